# SPDX-License-Identifier: MIT
"""Matrix products of tiles: calls of the packed products, operands where they lie.

A tile that is a view of a tensor is passed in place with its strides, transposed or not; an accumulator is added to
where it is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pto_jit.dtypes import DType, f32, i32
from pto_jit.errors import InternalError
from pto_jit.ir.nodes import Fuse, Op, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.semantic import failures
from pto_jit.targets.cpu.code import I32, PTR, VOID, Index, Value, i64, number
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.groups import write_group
from pto_jit.targets.cpu.matmul.library import Library, Processor
from pto_jit.targets.cpu.matmul.shape import ACCUMULATE, FIXED_A, FIXED_B, Combo, Machine, scheme_of
from pto_jit.targets.cpu.stores import address_range
from pto_jit.targets.cpu.tensors import region
from pto_jit.targets.cpu.tiles import (
    assign_tile,
    copy_region,
    fits_anything,
    materialise,
    may_fit,
    set_valid,
    tile_slot,
)
from pto_jit.targets.cpu.values import Tensor, Tile, TileSlot

_LOCK = threading.Lock()
_LIBRARIES: dict[tuple[tuple[str, int], ...], Library] = {}
_CACHE: list[Any] = []


def use_cache(cache: Any) -> None:
    """Keep compiled products in (and take them from) a disk cache."""
    _CACHE[:] = [cache]


def _load(key: str) -> bytes | None:
    found = _CACHE[0].load(key) if _CACHE else None
    return None if found is None else found[1]


def _store(key: str, code: bytes) -> None:
    if _CACHE:
        _CACHE[0].store(key, {"product": key}, code)


def product_address(name: str, runtime: Mapping[str, int]) -> int:
    """The address of `pto_mm_<a>_<b>_<c>[_mt]`, compiled at its first use."""
    plain = name.removesuffix("_mt")
    combo = Combo(*plain.removeprefix("pto_mm_").split("_"))
    externals = {n: runtime[n] for n in Library.EXTERNALS}
    with _LOCK:
        key = tuple(sorted(externals.items()))
        library = _LIBRARIES.get(key)
        if library is None:
            library = _LIBRARIES[key] = Library(externals, load=_load, store=_store)
    found = library.ensure(combo)
    return found.parallel if name.endswith("_mt") else found.single


def _combo(a: DType, b: DType, c: DType) -> tuple[DType, DType, DType] | None:
    """The dtypes of a product that exists on this machine."""
    here = Processor.host()
    try:
        scheme_of(Combo(a.name, b.name, c.name), Machine.of(here.features, here.triple))
    except ValueError:
        return None
    return a, b, c


def write_dot(w: FunctionWriter, op: Op) -> None:
    """`dot(a, b[, acc])` over the last two axes, batched over the others."""
    a, b = w.tile(op.args[0]), w.tile(op.args[1])
    result = op.results[0]
    assert isinstance(result.type, TileType)
    dtype = result.type.dtype
    summed = a.dtype if a.dtype.bits >= 32 else f32 if a.dtype.is_float else i32
    if dtype != summed:  # the product is summed wide and rounded once
        wide = Var(result.name + ".wide", TileType(summed, result.type.shape))
        args = op.args[:2]
        if len(op.args) > 2:
            acc = Var(result.name + ".acc", TileType(summed, result.type.shape))
            w.op(Op("cast", (acc,), (op.args[2],), (("dtype", summed),), (), op.loc))
            args = (*args, acc)
        inner = Op("dot", (wide,), args, (), (), op.loc)
        if id(op) in w.module.repeated:
            w.module.repeated[id(inner)] = inner
        w.op(inner)
        w.op(Op("cast", (result,), (wide,), (("dtype", dtype),), (), op.loc))
        return
    if _combo(a.dtype, b.dtype, dtype) is None:
        raise InternalError(f"the cpu target has no matrix product {a.dtype} x {b.dtype} -> {dtype}  ({op.loc})")
    with w.passing_results():  # a result that replaces an operand is made beside it
        _Product(w, op, a, b, dtype).write()


def write_stored_dot(w: FunctionWriter, op: Op, fused: Fuse) -> bool:
    """Write `dot` with the group after it, when that group is nothing but the store of the product."""
    store = fused.body[0]
    result = op.results[0]
    assert isinstance(store, Op) and isinstance(result.type, TileType)
    a, b = w.tile(op.args[0]), w.tile(op.args[1])
    dtype = result.type.dtype
    tensor = store.args[1].type
    assert isinstance(tensor, TensorType)
    if tensor.layout == "strided" or _combo(a.dtype, b.dtype, dtype) is None:
        return False
    _Product(w, op, a, b, dtype).write_stored(fused, store)
    return True


def promise_fixed(w: FunctionWriter, tensors: Sequence[Tensor], written: Collection[int]) -> None:
    """Tell the runtime which tensors do not change in this launch: those that the program does not write, where none
    that it writes overlaps them.  `written`: places in `tensors`."""
    code = w.code

    def range_of(tensor: Tensor) -> tuple[Value, Value]:
        return address_range(code, tensor.pointer, tensor.strides, tensor.extents, tensor.dtype.bytes)

    changing = [range_of(tensors[k]) for k in sorted(written)]
    matrices_first = sorted(enumerate(tensors), key=lambda item: len(item[1].extents) < 2)  # few are remembered
    for k, tensor in matrices_first:
        if k in written:
            continue
        low, high = range_of(tensor)
        changes = code.any_of([code.b.and_(code.b.icmp_unsigned("<", low, end), code.b.icmp_unsigned("<", start, high))
                               for start, end in changing])  # fmt: skip
        pointers = [code.b.inttoptr(v, PTR) for v in (low, i64(code.pick(changes, low, high)))]
        code.call("pto_fixed", VOID, [code.worker, *pointers])


class _Product:
    def __init__(self, w: FunctionWriter, op: Op, a: Tile, b: Tile, dtype: DType) -> None:
        self.w, self.op, self.a, self.b, self.dtype = w, op, a, b, dtype
        self.code = w.code
        self.result = op.results[0]

    def write_stored(self, fused: Fuse, store: Op) -> None:
        """A product whose only use is one store: into the tensor itself where all of it fits there and the operands
        lie elsewhere (decided when it runs), else by way of a tile."""
        w, code, dtype = self.w, self.code, self.dtype
        declared, valid, k = self._extents()
        tensor = w.tensor(store.args[1])
        pointer, inside = region(w, tensor, [w.index(a) for a in store.args[2:]], valid, store.loc)
        w.record(store, tensor, pointer, inside, tensor.strides)
        reasons: list[bool | Value] = [code.compare("!=", a, b) for a, b in zip(inside, valid, strict=True)]
        low, high = address_range(code, pointer, tensor.strides, inside, dtype.bytes)
        for tile in (self.a, self.b):
            if tile.view:
                low2, high2 = address_range(code, tile.pointer, tile.strides, tile.valid, tile.dtype.bytes)
                below, above = code.b.icmp_unsigned("<", low, high2), code.b.icmp_unsigned("<", low2, high)
                reasons.append(code.b.and_(below, above))
        apart = code.any_of(reasons)
        strides = w.strides(dtype, declared)

        def scratch() -> list[Value]:
            size = code.max(code.mul(dtype.bytes, *declared), 64)
            block = code.call("pto_scratch_push", PTR, [code.worker, i64(size)])
            w.got_memory(block)
            return [block, *(i64(s) for s in strides)]

        got = code.choose(apart, scratch, lambda: [pointer, *(i64(s) for s in tensor.strides)])
        found = tuple(s if isinstance(s, int) and isinstance(t, int) and s == t else g
                      for s, t, g in zip(strides, tensor.strides, got[1:], strict=True))  # fmt: skip
        self._multiply(Tile(dtype, got[0], declared, valid, found), valid, k, False)
        with code.when(apart, likely=False), w.passing():
            w.env[self.result.name] = Tile(dtype, got[0], declared, valid, strides)
            write_group(w, fused)
            code.call("pto_scratch_pop", VOID, [code.worker, got[0]])

    def write(self) -> None:
        declared, valid, k = self._extents()
        accumulate = len(self.op.args) > 2
        target, done = self._target(declared, valid, accumulate)
        self._multiply(target, valid, k, accumulate)
        done()

    def _names(self) -> list[str]:
        return [x.name for x in self.op.args if isinstance(x, Var)]

    def _extents(self) -> tuple[tuple[Index, ...], tuple[Index, ...], Index]:
        code, w, a, b = self.code, self.w, self.a, self.b
        site = w.module.site(*failures.VALID.at(axis="of the contraction"), self.op.loc)
        k, other = a.valid[-1], b.valid[-2]
        if k is not other:
            if may_fit(a) or may_fit(b):
                anything = [fits_anything(w, a, -1), fits_anything(w, b, -2)]
                code.check(code.any_of([code.compare("==", k, other), *anything]), site, k, other)
                k = code.min(k, other)
            else:
                code.check(code.compare("==", k, other), site, k, other)
        rank = max(a.rank, b.rank)
        declared: list[Index] = []
        valid: list[Index] = []
        types = [self.op.args[0].type, self.op.args[1].type]
        for axis in range(rank - 2):
            picks: list[tuple[Index, Index]] = []
            unit: list[Index] = []
            for t, typ in zip((a, b), types, strict=True):
                at = axis - (rank - t.rank)
                if at < 0:
                    continue
                assert isinstance(typ, TileType)
                if typ.shape[at] == 1:
                    unit.append(t.valid[at])
                else:
                    picks.append((t.declared[at], t.valid[at]))
            if len(picks) == 2:
                site = w.module.site(*failures.VALID.at(axis=axis), self.op.loc)
                code.check(code.compare("==", picks[0][1], picks[1][1]), site, picks[0][1], picks[1][1])
            d, v = picks[0] if picks else (1, 1)
            for u in unit:
                v = code.pick(code.compare("==", u, 0), 0, v)
            declared.append(d)
            valid.append(v)
        return (*declared, a.declared[-2], b.declared[-1]), (*valid, a.valid[-2], b.valid[-1]), k

    def _target(self, declared: tuple[Index, ...], valid: tuple[Index, ...], accumulate: bool) -> tuple[Tile, Any]:
        """The memory of the result, holding the accumulator when there is one, and what to do afterwards."""
        w, code, result, dtype = self.w, self.code, self.result, self.dtype
        names = self._names()
        acc = w.tile(self.op.args[2]) if accumulate else None
        if acc is not None:
            self._check_accumulator(acc, names[2], declared, valid)
            slot = w.env.get(result.name)
            if names[2] == result.name and isinstance(slot, TileSlot) and result.name not in names[:2]:
                target = Tile(dtype, acc.pointer, declared, valid, w.strides(dtype, acc.declared))
                return target, lambda: set_valid(w, slot, target)
            if result.name not in w.mutable and names[2] not in names[:2] and w.inherit(result.name, names[2]):
                target = Tile(dtype, acc.pointer, declared, valid, acc.strides)
                return target, lambda: assign_tile(w, result, target)
        in_slot = result.name in w.mutable and result.name not in names
        if in_slot:
            slot = tile_slot(w, result, declared)
            now = w.read_slot(slot)
            target = Tile(dtype, now.pointer, declared, valid, w.strides(dtype, declared))
        elif result.name in w.mutable:
            pointer = w.scratch(code.bytes(dtype.bytes, declared))
            target = Tile(dtype, pointer, declared, valid, w.strides(dtype, declared))
        else:
            pointer, strides = w.buffer(result.name, dtype, declared)
            target = Tile(dtype, pointer, declared, valid, strides)
        if acc is not None:
            copy_region(w, dtype, target.pointer, target.strides, acc.pointer, acc.strides, valid)

        def done() -> None:
            if in_slot:
                set_valid(w, w.env[result.name], target)
            else:
                assign_tile(w, result, target)

        return target, done

    def _check_accumulator(
        self, acc: Tile, name: str, shape: tuple[Index, ...], valid: tuple[Index, ...]
    ) -> None:  # fmt: skip
        code, w = self.code, self.w
        for axis, (declared, extent) in enumerate(zip(acc.declared, shape, strict=True)):
            site = w.module.site(*failures.DECLARED.at(axis=axis), self.op.loc)
            code.check(code.compare("==", declared, extent), site, declared, extent)
        for axis, (have, wanted) in enumerate(zip(acc.valid, valid, strict=True)):
            site = w.module.site(*failures.VALID.at(axis=axis), self.op.loc)
            ok = code.any_of([code.compare("==", have, wanted), fits_anything(w, acc, axis)])
            code.check(ok, site, have, wanted)

    def _elements(self, tile: Tile, name: str) -> tuple[Tile, list[Index]]:
        """A tile whose last two strides are whole elements, and these strides in elements."""
        size = tile.dtype.bytes
        out: list[Index] = []
        for stride in tile.strides[-2:]:
            if isinstance(stride, int):
                if stride % size or stride < 0:
                    return self._elements(materialise(self.w, name + ".packed", tile), name)
                out.append(stride // size)
            else:
                out.append(self.code.b.ashr(stride, number(stride.type, size.bit_length() - 1)) if size > 1 else stride)
        return tile, out

    def _multiply(self, target: Tile, valid: tuple[Index, ...], k: Index, accumulate: bool) -> None:
        code, w = self.code, self.w
        names = self._names()
        a, a_strides = self._elements(self.a, names[0])
        b, b_strides = self._elements(self.b, names[1])
        c, c_strides = self._elements(target, self.result.name)
        name = f"pto_mm_{a.dtype}_{b.dtype}_{self.dtype}" + ("" if w.parallel else "_mt")
        how = ACCUMULATE if accumulate else 0
        if id(self.op) in w.module.repeated:
            how |= (FIXED_A if a.view else 0) | (FIXED_B if b.view else 0)
        types = [self.op.args[0].type, self.op.args[1].type]

        def product(indices: Sequence[Index]) -> None:
            pointers = []
            for tile, typ in ((a, types[0]), (b, types[1]), (c, None)):
                lead = len(indices) - (tile.rank - 2)
                distance: Index = 0
                for at in range(tile.rank - 2):
                    if isinstance(typ, TileType) and typ.shape[at] == 1:
                        continue
                    distance = code.add(distance, code.mul(indices[lead + at], tile.strides[at]))
                pointers.append(code.offset(tile.pointer, distance))
            values: list[Value] = [
                code.worker, i64(valid[-2]), i64(valid[-1]), i64(k), pointers[0], *map(i64, a_strides), pointers[1],
                *map(i64, b_strides), pointers[2], *map(i64, c_strides), number(I32, how),
            ]  # fmt: skip
            code.check_status(code.call(name, I32, values))

        def nested(axis: int, indices: list[Index]) -> None:
            if axis == target.rank - 2:
                product(indices)
                return

            def body(i: Value, _: list[Value]) -> Sequence[Value]:
                nested(axis + 1, [*indices, i])
                return ()

            code.loop(0, valid[axis], body=body, name=f"batch{axis}")

        nested(0, [])
