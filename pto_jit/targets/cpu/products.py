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
from pto_jit.ir.nodes import Block, Fuse, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.semantic import failures
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.constants import I32, I64, PTR, VOID, Index, Value, i64, number, zero
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.matmul.library import Library, Processor, entry_of
from pto_jit.targets.cpu.matmul.shape import ACCUMULATE, FIXED_A, FIXED_B, Combo, Machine, Scheme, scheme_of
from pto_jit.targets.cpu.matmul.sums import TERM
from pto_jit.targets.cpu.placed import write_stored
from pto_jit.targets.cpu.stores import address_range
from pto_jit.targets.cpu.tiles import (
    assign_tile,
    copy_region,
    fits_anything,
    materialise,
    may_fit,
    need_extent,
    set_valid,
    tile_slot,
)
from pto_jit.targets.cpu.values import Tensor, Tile, TileSlot

_LOCK = threading.RLock()
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
    """The address of an entry of `matmul.library`, compiled at its first use."""
    combo, suffix = entry_of(name)
    externals = {n: runtime[n] for n in Library.EXTERNALS}
    with _LOCK:
        key = tuple(sorted(externals.items()))
        library = _LIBRARIES.get(key)
        if library is None:
            library = _LIBRARIES[key] = Library(externals, load=_load, store=_store)
    return library.ensure(combo).named[suffix]


def _scheme(a: DType, b: DType, c: DType) -> Scheme | None:
    """How this machine computes a product of these dtypes; None where there is none."""
    here = Processor.host()
    try:
        return scheme_of(Combo(a.name, b.name, c.name), Machine.of(here.features, here.triple))
    except ValueError:
        return None


def _summed(a: DType) -> DType:
    """What products of such elements are summed in."""
    return a if a.bits >= 32 else f32 if a.is_float else i32


def _computes(op: Op) -> bool:
    """Whether this machine has a product as it stands, rounded to 16 bits or not."""
    a, b, c = (tile_type(op, k).dtype for k in (0, 1, None))
    scheme = _scheme(a, b, c)
    if scheme is None and len(op.args) == 2 and (wide := _scheme(a, b, _summed(a))) is not None:
        return c.name in wide.rounds
    return scheme is not None


def write_dot(w: FunctionWriter, op: Op) -> None:
    """`dot(a, b[, acc])` over the last two axes, batched over the others."""
    a, b = w.tile(op.args[0]), w.tile(op.args[1])
    result = op.results[0]
    assert isinstance(result.type, TileType)
    dtype, summed = result.type.dtype, _summed(a.dtype)
    if dtype != summed and not _computes(op):  # the product is summed wide and rounded once
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
    if not _computes(op):
        raise InternalError(f"the cpu target has no matrix product {a.dtype} x {b.dtype} -> {dtype}  ({op.loc})")
    write_sum(w, [term_of(w, op)])


def write_sum(w: FunctionWriter, terms: Sequence[Term]) -> None:
    """Products, each added to the one before, as one; the first may have an accumulator."""
    with w.passing_results():  # a result that replaces an operand is made beside it
        _Product(w, terms).write()


def write_stored_sum(w: FunctionWriter, terms: Sequence[Term], fused: Fuse) -> bool:
    """Write a sum of products with the group after it, when that group is nothing but the store of the sum."""
    op, store = terms[-1].op, fused.body[0]
    assert isinstance(store, Op)
    tensor = store.args[1].type
    assert isinstance(tensor, TensorType)
    if tensor.layout == "strided" or terms[0].accumulates:
        return False
    if not _computes(op):
        return False
    _Product(w, terms).write_stored(fused)
    return True


@frozen
class Term:
    """One product of a sum: its operands as they lie in memory, the extents of its result, and k.

    accumulates: its accumulator is kept in memory; if not, there is none, or it is zero, or it is another term.
    """

    op: Op
    a: Tile
    b: Tile
    declared: tuple[Index, ...]
    valid: tuple[Index, ...]
    k: Index
    accumulates: bool


def term_of(w: FunctionWriter, op: Op, before: Term | None = None) -> Term:
    """A product that has passed its checks; `before`: the term that it is added to."""
    a, b = w.tile(op.args[0]), w.tile(op.args[1])
    declared, valid, k = _extents(w, op, a, b)
    accumulates = len(op.args) > 2 and before is None
    if before is not None:
        sum_ = Tile(tile_type(op).dtype, a.pointer, before.declared, before.valid, ())
        _check_accumulator(w, op, sum_, declared, valid)
    elif accumulates:
        name = _named(op.args[2])  # pyright: ignore[reportGeneralTypeIssues]  # there are three
        _check_accumulator(w, op, w.tile_named(name), declared, valid)
        accumulates = name not in w.zeros
    return Term(op, a, b, declared, valid, k, accumulates)


def may_sum(block: Block, places: Sequence[int]) -> bool:
    """Whether this machine computes such products, each added to the one before, as one; one alone: as it is."""
    ops = [block[k] for k in places]
    if len(ops) == 1 and isinstance(ops[0], Op):
        return _computes(ops[0])
    types = [(tile_type(op, 0), tile_type(op, 1), tile_type(op)) for op in ops if isinstance(op, Op)]
    dtypes = {(a.dtype, b.dtype, c.dtype) for a, b, c in types}
    scheme = _scheme(*dtypes.pop())
    return scheme is not None and scheme.sums and not dtypes and all(t.rank == 2 for three in types for t in three)


def write_zeros(w: FunctionWriter, op: Op) -> None:
    """`full(0)` that is only the accumulator of a product: no memory, for no product reads it."""
    name = op.results[0].name
    extents = tuple(w.index(a) for a in op.args[1:])
    for axis, extent in enumerate(extents):
        need_extent(w, op, axis, extent)
    dtype = tile_type(op).dtype
    w.env[name] = Tile(dtype, zero(PTR), extents, extents, w.strides(dtype, extents), fits=(1,) * len(extents))
    w.zeros.add(name)


def tile_type(op: Op, operand: int | None = None) -> TileType:
    """The type of the result, or of an operand."""
    found = op.results[0].type if operand is None else op.args[operand].type
    assert isinstance(found, TileType)
    return found


def _named(operand: Operand) -> str:
    assert isinstance(operand, Var)
    return operand.name


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


def _extents(w: FunctionWriter, op: Op, a: Tile, b: Tile) -> tuple[tuple[Index, ...], tuple[Index, ...], Index]:
    """The declared and the valid extents of a product, and k."""
    code = w.code
    same = code.compare("==", a.declared[-1], b.declared[-2])
    if same is not True:
        differ = w.module.site(*failures.DECLARED.at(axis="of the contraction"), op.loc)
        code.check(same, differ, a.declared[-1], b.declared[-2])
    site = w.module.site(*failures.VALID.at(axis="of the contraction"), op.loc)
    k, other = a.valid[-1], b.valid[-2]
    whole = a.valid[-1] is a.declared[-1] and b.valid[-2] is b.declared[-2]  # then they are the same
    if k is not other and not whole:
        if may_fit(a, -1) or may_fit(b, -2):
            anything = [fits_anything(w, a, -1), fits_anything(w, b, -2)]
            code.check(code.any_of([code.compare("==", k, other), *anything]), site, k, other)
            k = code.min(k, other)
        else:
            code.check(code.compare("==", k, other), site, k, other)
    rank = max(a.rank, b.rank)
    declared: list[Index] = []
    valid: list[Index] = []
    types = [tile_type(op, 0), tile_type(op, 1)]
    for axis in range(rank - 2):
        picks: list[tuple[Index, Index]] = []
        unit: list[Index] = []
        for t, typ in zip((a, b), types, strict=True):
            at = axis - (rank - t.rank)
            if at < 0:
                continue
            if typ.shape[at] == 1:
                unit.append(t.valid[at])
            else:
                picks.append((t.declared[at], t.valid[at]))
        if len(picks) == 2:
            site = w.module.site(*failures.VALID.at(axis=axis), op.loc)
            (_, v), (_, other) = picks
            fit = [fits_anything(w, t, axis - (rank - t.rank)) for t in (a, b)]
            code.check(code.any_of([code.compare("==", v, other), *fit]), site, v, other)
            picks[0] = picks[0][0], v if v is other else code.min(v, other)
        d, v = picks[0] if picks else (1, 1)
        for u in unit:
            v = code.pick(code.compare("==", u, 0), 0, v)
        declared.append(d)
        valid.append(v)
    return (*declared, a.declared[-2], b.declared[-1]), (*valid, a.valid[-2], b.valid[-1]), k


def _check_accumulator(
    w: FunctionWriter, op: Op, acc: Tile, shape: tuple[Index, ...], valid: tuple[Index, ...]
) -> None:  # fmt: skip
    code, loc = w.code, op.loc.added or op.loc
    for axis, (declared, extent) in enumerate(zip(acc.declared, shape, strict=True)):
        site = w.module.site(*failures.DECLARED.at(axis=axis), loc)
        code.check(code.compare("==", declared, extent), site, declared, extent)
    for axis, (have, wanted) in enumerate(zip(acc.valid, valid, strict=True)):
        site = w.module.site(*failures.VALID.at(axis=axis), loc)
        ok = code.any_of([code.compare("==", have, wanted), fits_anything(w, acc, axis)])
        code.check(ok, site, have, wanted)


class _Product:
    """One product, or a sum of them."""

    def __init__(self, w: FunctionWriter, terms: Sequence[Term]) -> None:
        self.w, self.terms, self.first = w, terms, terms[0]
        self.code = w.code
        self.op = terms[-1].op
        self.result = self.op.results[0]
        self.dtype = tile_type(self.op).dtype

    def write_stored(self, fused: Fuse) -> None:
        """Products whose only use is one store."""
        operands = [tile for term in self.terms for tile in (term.a, term.b)]
        write_stored(self.w, self.result, fused, operands, self.first.declared, self.first.valid, self._multiply)

    def write(self) -> None:
        target, done = self._target()
        self._multiply(target)
        done()

    def _target(self) -> tuple[Tile, Any]:
        """The memory of the result, holding the accumulator when there is one, and what to do afterwards."""
        w, code, result, dtype = self.w, self.code, self.result, self.dtype
        declared, valid = self.first.declared, self.first.valid
        operands = [_named(x) for term in self.terms for x in term.op.args[:2]]
        start = _named(self.first.op.args[-1]) if self.first.accumulates else None
        acc = None if start is None else w.tile_named(start)
        if acc is not None:
            assert start is not None
            slot = w.env.get(result.name)
            if start == result.name and isinstance(slot, TileSlot) and result.name not in operands:
                target = Tile(dtype, acc.pointer, declared, valid, w.strides(dtype, acc.declared))
                return target, lambda: set_valid(w, slot, target)
            if result.name not in w.mutable and start not in operands and w.inherit(result.name, start):
                target = Tile(dtype, acc.pointer, declared, valid, acc.strides)
                return target, lambda: assign_tile(w, result, target)
        in_slot = result.name in w.mutable and result.name not in (*operands, start)
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

    def _operands(self, term: Term) -> tuple[Tile, list[Index], Tile, list[Index], int]:
        """A and B with their strides in elements, and what is known of them: `FIXED_A`, `FIXED_B`."""
        a, a_strides = self._elements(term.a, _named(term.op.args[0]))
        b, b_strides = self._elements(term.b, _named(term.op.args[1]))
        fixed = 0
        if id(term.op) in self.w.module.repeated:
            fixed = (FIXED_A if a.view else 0) | (FIXED_B if b.view else 0)
        return a, a_strides, b, b_strides, fixed

    def _multiply(self, target: Tile) -> None:
        if len(self.terms) > 1:
            self._call_sum(target)
        else:
            self._call_product(target)

    def _symbol(self, suffix: str) -> str:
        wide, sixteen = _summed(self.first.a.dtype), self.dtype.kind == "f" and self.dtype.bits == 16
        to = f"_to_{self.dtype}" if sixteen else ""
        name = f"pto_mm_{self.first.a.dtype}_{self.first.b.dtype}_{wide if sixteen else self.dtype}{suffix}{to}"
        return f"{name}_mt" if self.w.divides_products else name

    def _call_sum(self, target: Tile) -> None:
        """One call for all terms, which are told in a table on the stack."""
        code, words = self.code, len(TERM)
        table = code.alloca(I64, "terms", len(self.terms) * words)
        for i, term in enumerate(self.terms):
            a, _, b, _, fixed = self._operands(term)
            of_a, of_b = ((x.pointer, *map(i64, x.strides)) for x in (a, b))
            values = [*of_a, *of_b, i64(term.k), i64(fixed)]
            for j, value in enumerate(values):
                code.b.store(value, code.offset(table, 8 * (i * words + j)), align=8)
        c, c_strides = self._elements(target, self.result.name)
        how = number(I32, ACCUMULATE if self.first.accumulates else 0)
        shape = [*map(i64, self.first.valid), i64(len(self.terms))]
        values = [code.worker, *shape, table, c.pointer, *map(i64, c_strides), how]
        code.check_status(code.call(self._symbol("_sum"), I32, values))

    def _call_product(self, target: Tile) -> None:
        code, valid = self.code, self.first.valid
        a, a_strides, b, b_strides, how = self._operands(self.first)
        c, c_strides = self._elements(target, self.result.name)
        how |= ACCUMULATE if self.first.accumulates else 0
        types = [tile_type(self.op, 0), tile_type(self.op, 1)]

        def product(indices: Sequence[Index]) -> None:
            pointers = []
            for tile, typ in ((a, types[0]), (b, types[1]), (c, None)):
                lead = len(indices) - (tile.rank - 2)
                distance: Index = 0
                for at in range(tile.rank - 2):
                    if typ is not None and typ.shape[at] == 1:
                        continue
                    distance = code.add(distance, code.mul(indices[lead + at], tile.strides[at]))
                pointers.append(code.offset(tile.pointer, distance))
            values: list[Value] = [
                code.worker, i64(valid[-2]), i64(valid[-1]), i64(self.first.k), pointers[0], *map(i64, a_strides),
                pointers[1], *map(i64, b_strides), pointers[2], *map(i64, c_strides), number(I32, how),
            ]  # fmt: skip
            code.check_status(code.call(self._symbol(""), I32, values))

        def nested(axis: int, indices: list[Index]) -> None:
            if axis == target.rank - 2:
                product(indices)
                return

            def body(i: Value, _: list[Value]) -> Sequence[Value]:
                nested(axis + 1, [*indices, i])
                return ()

            code.loop(0, valid[axis], body=body, name=f"batch{axis}")

        nested(0, [])
