# SPDX-License-Identifier: MIT
"""The stores of a group: where they write, and when they must not write there at once.

A nest stores row by row while the program says tile by tile.  That makes no difference unless a stored region overlaps,
other than element by element, what the nest reads or another store writes; or part of the tile lies outside the tensor.
Then (decided when the code runs) the nest stores to scratch memory, which is copied when it is done.  Other columns of
the same rows do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Op, Var
from pto_jit.slotted import mutable
from pto_jit.targets.cpu.analysis import may_share
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I64, PTR, VOID, Index, Value, i64, number
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import STREAM, Strided
from pto_jit.targets.cpu.strided import MOST
from pto_jit.targets.cpu.tensors import region
from pto_jit.targets.cpu.tiles import copy_region
from pto_jit.targets.cpu.values import Tensor, Tile
from pto_jit.targets.loops.form import Nest, Places, Store, Stored


@mutable
class _Region:
    """What a store writes: its address, strides per axis of the tile, the extents inside the tensor."""

    tensor: Tensor
    pointer: Value
    strides: tuple[Index, ...]
    inside: tuple[Index, ...]
    range: tuple[Value, Value] | None = None
    """The addresses between which it lies, once somebody asked."""


def address_range(
    code: Code, pointer: Value, strides: Sequence[Index], shape: Sequence[Index], size: int
) -> tuple[Value, Value]:
    """The addresses from the first byte of a region to the one after its last (an empty one: nothing)."""
    up: Index = size
    down: Index = 0
    for stride, extent in zip(strides, shape, strict=True):
        reach = code.mul(code.sub(extent, 1), stride)
        if isinstance(stride, int):
            up = code.add(up, reach) if stride >= 0 else up
            down = code.add(down, reach) if stride < 0 else down
        elif isinstance(extent, int) and extent == 1:
            continue
        else:
            up = code.add(up, code.max(reach, 0))
            down = code.add(down, code.min(reach, 0))
    address = code.b.ptrtoint(pointer, I64)
    empty = code.any_of([code.compare("==", e, 0) for e in shape])
    low = i64(code.add(address, down))
    high = code.pick(empty, low, code.add(address, up))
    return low, i64(high)


def ranges_meet(code: Code, one: tuple[Value, Value], other: tuple[Value, Value]) -> Value:
    """Whether two ranges of addresses (see `address_range`) have a byte in common."""
    (low, high), (low2, high2) = one, other
    return code.b.and_(code.b.icmp_unsigned("<", low, high2), code.b.icmp_unsigned("<", low2, high))


def columns_apart(
    code: Code, one: tuple[Value, Sequence[Index]], other: tuple[Value, Sequence[Index]], shape: Sequence[Index],
    size: int,
) -> Callable[[], Value] | None:  # fmt: skip
    """What writes whether two regions of one shape are different columns of the same rows of a tensor.

    one, other: their addresses and strides.  Rows are the last axis but one; planes and so on hold whole rows.  None:
    nothing is known of such regions.
    """
    (start, strides), (start2, strides2) = one, other
    inner = strides[-1] if strides else None
    if not isinstance(inner, int) or inner < size or strides2[-1] != inner or all(n == 1 for n in shape[:-1]):
        return None

    def apart() -> Value:
        width = code.add(code.mul(code.sub(shape[-1], 1), inner), size)
        between = code.b.sub(code.b.ptrtoint(start2, I64), code.b.ptrtoint(start, I64))
        distance = code.max(between, code.sub(0, between))
        conditions = [code.compare("==", a, b) for a, b in zip(strides[:-1], strides2[:-1], strict=True)]
        conditions.append(code.compare("<=", width, distance))
        conditions.append(code.compare("<=", code.add(distance, width), strides[-2]))
        for outer, stride, extent in zip(strides[:-2], strides[1:-1], shape[1:-1], strict=True):
            conditions.append(code.compare("<=", code.mul(extent, stride), outer))
        found = code.all_of(conditions)
        return number(I1, found) if isinstance(found, bool) else found

    return apart


def _step(reg: _Region) -> int:
    """Elements from one to the next along a region's last axis where vectors are stored so, else 1: memory for what is
    diverted has the same, so that it is known where either is written."""
    inner = reg.strides[-1] if reg.strides else None
    step, rest = divmod(inner, reg.tensor.dtype.bytes) if isinstance(inner, int) else (1, 0)
    return step if rest == 0 and 2 <= step <= MOST else 1


class Stores:
    """The stores of one nest; `place` before it is written, `finish` after."""

    def __init__(
        self, w: FunctionWriter, nest: Nest, tiles: dict[str, Tile], extents: tuple[Index, ...],
        has: Callable[[str, int], bool | Value],
    ) -> None:  # fmt: skip
        self.w = w
        self.code = w.code
        self.nest = nest
        self.tiles = tiles
        self.extents = extents
        self.has = has  # whether there is anything of a tile along an axis
        self.ones: dict[int, tuple[bool | Value, Index]] = {}  # by the identity of what `has` says: 1 where it holds
        self.divert: bool | Value = False
        self.regions: list[_Region] = []
        self.diverted: list[tuple[Value, tuple[Index, ...]]] = []

    def _region(self, op: Op) -> _Region:
        """Where a store of the group writes."""
        w = self.w
        value, target, *offsets = op.args
        assert isinstance(value, Var)
        tensor = w.tensor(target)
        store = next(s for s in self.nest.stores if s.op is op)
        valid = tuple(self._one(value.name, k) if a is None else self.extents[a] for k, a in enumerate(store.axes))
        at = [w.index(a) for a in offsets]
        pointer, inside = region(w, tensor, at, valid, op.loc, promised=bool(op.attr("inside")))
        w.record(op, tensor, pointer, inside, tensor.strides)
        return _Region(tensor, pointer, tensor.strides, inside)

    def place(self) -> dict[Any, Strided]:
        """The memory of every store."""
        code, nest, regions = self.code, self.nest, self.regions
        if not nest.stores:
            return {}
        self.regions += [self._region(s.op) for s in nest.stores]
        reasons: list[bool | Value] = []
        beside: list[tuple[Value, Callable[[], Value]]] = []  # those that may not be: of columns of the same rows
        for store, reg in zip(nest.stores, regions, strict=True):
            for k, (axis, inside) in enumerate(zip(store.axes, reg.inside, strict=True)):
                name = store.op.args[0].name  # pyright: ignore[reportAttributeAccessIssue]  # tiles are variables
                whole = self._one(name, k) if axis is None else self.extents[axis]
                reasons.append(code.compare("!=", inside, whole))

        def may_clash(
            dtype: DType, pointer: Value, strides: Sequence[Index], axes: Places, until: int, store: Store, reg: _Region
        ) -> None:
            shape = [1 if a is None else self.extents[a] for a in axes]
            same = axes == store.axes and until <= store.time
            found = self._clash(dtype, pointer, strides, shape, store.axes, reg, same)
            if self.w.clash is None and axes == store.axes and dtype.bytes == reg.tensor.dtype.bytes:
                apart = columns_apart(code, (pointer, strides), (reg.pointer, reg.strides), shape, dtype.bytes)
                if apart is not None and not isinstance(found, bool):
                    beside.append((found, apart))
                    return
            reasons.append(found)

        for number_, (store, reg) in enumerate(zip(nest.stores, regions, strict=True)):
            for source in nest.sources:
                tile = self.tiles[source.name]
                if tile.view and source.until >= 0 and self._may_meet(source.name, store.op):
                    may_clash(tile.dtype, tile.pointer, tile.strides, source.axes, source.until, store, reg)
            for other, earlier in zip(nest.stores[:number_], regions[:number_], strict=True):
                may_clash(earlier.tensor.dtype, earlier.pointer, earlier.strides, other.axes, other.time, store, reg)
        self.divert = divert = code.any_of([*reasons, *(found for found, _ in beside)])
        if beside and not isinstance(divert, bool):

            def looked_at() -> Sequence[Value]:
                clashes = (code.b.and_(found, code.b.not_(apart())) for found, apart in beside)
                return [code.any_of([*reasons, *clashes])]  # pyright: ignore[reportReturnType]

            (self.divert,) = (divert,) = code.choose(divert, looked_at, lambda: [number(I1, False)])
        memory: dict[Any, Strided] = {}
        if divert is False:
            for k, (store, reg) in enumerate(zip(nest.stores, regions, strict=True)):
                memory[Stored(k)] = Strided(self._of_something(store, reg.pointer), reg.strides)
            return memory
        sizes = []
        for store, reg in zip(nest.stores, regions, strict=True):
            shape = [1 if a is None else self.extents[a] for a in store.axes]
            step = _step(reg)
            strides = tuple(code.mul(s, step) for s in self.w.strides(reg.tensor.dtype, shape))
            sizes.append((strides, code.mul(reg.tensor.dtype.bytes, step, *shape)))

        def scratch() -> Sequence[Value]:
            out: list[Value] = []
            for strides, size in sizes:
                pointer = code.call("pto_scratch_push", PTR, [code.worker, i64(code.max(size, 64))])
                self.w.got_memory(pointer)
                out += [pointer, *(i64(s) for s in strides)]
            return out

        def direct() -> Sequence[Value]:
            return [v for reg in regions for v in (reg.pointer, *(i64(s) for s in reg.strides))]

        got = code.choose(divert, scratch, direct)
        at = 0
        for k, (reg, (strides, _)) in enumerate(zip(regions, sizes, strict=True)):
            pointer, found = got[at], got[at + 1 : at + 1 + len(strides)]
            at += 1 + len(strides)
            final = tuple(a if isinstance(a, int) and isinstance(b, int) and a == b else f
                          for a, b, f in zip(strides, reg.strides, found, strict=True))  # fmt: skip
            memory[Stored(k)] = Strided(self._of_something(nest.stores[k], pointer), final)
            self.diverted.append((pointer, strides))
        return memory

    def _of_something(self, store: Store, pointer: Value) -> Value:
        """Where a store writes; memory that nothing reads where it is of one element that is not there, which a nest
        without rows writes all the same."""
        if self.nest.rank > 1 or any(a is not None for a in store.axes):
            return pointer
        name = store.op.args[0].name  # pyright: ignore[reportAttributeAccessIssue]
        there = self.code.all_of([self.has(name, k) for k in range(len(store.axes))])
        if there is True:
            return pointer
        spare = self.code.alloca(I64)
        return self.code.b.select(there, pointer, spare) if there is not False else spare

    def _one(self, name: str, axis: int) -> Index:
        """The valid extent of an axis of extent 1 of a tile."""
        there = self.has(name, axis)
        if id(there) not in self.ones:
            self.ones[id(there)] = there, self.code.pick(there, 1, 0)
        return self.ones[id(there)][1]

    def _may_meet(self, name: str, store: Op) -> bool:
        """Whether a tile that is read may lie in memory that the tensor of a store has a part in."""
        target = store.args[1]
        assert isinstance(target, Var)
        roots = self.w.module.aliasing.of(self.w.func)
        return may_share(roots.get(name), roots.get(target.name))

    def _clash(
        self, dtype: DType, pointer: Value, strides: Sequence[Index], shape: Sequence[Index], store_axes: Places,
        reg: _Region, same: bool,
    ) -> bool | Value:  # fmt: skip
        """Whether memory read (or stored before) overlaps a stored region other than element by element."""
        code = self.code
        store_shape = [1 if a is None else self.extents[a] for a in store_axes]
        if self.w.clash is not None:
            return self.w.clash(dtype, pointer, strides, shape, reg, store_shape, same)
        low, high = address_range(code, pointer, strides, shape, dtype.bytes)
        if reg.range is None:
            reg.range = address_range(code, reg.pointer, reg.strides, store_shape, reg.tensor.dtype.bytes)
        overlap = ranges_meet(code, (low, high), reg.range)
        if not same or dtype.bytes != reg.tensor.dtype.bytes:
            return overlap
        conditions: list[bool | Value] = [code.b.icmp_unsigned("==", pointer, reg.pointer)]
        for a, b, extent in zip(strides, reg.strides, shape, strict=True):
            if isinstance(extent, int) and extent == 1:
                continue
            conditions.append(code.compare("==", a, b))
        equal = code.all_of(conditions)
        if equal is False:
            return overlap
        if equal is True:
            return False
        assert not isinstance(equal, bool)
        return code.b.and_(overlap, code.b.not_(equal))

    def finish(self) -> None:
        """Bring diverted stores to their places, in order."""
        if self.divert is False:
            return
        code = self.code
        with code.when(self.divert, likely=False):
            for reg, (pointer, strides) in zip(self.regions, self.diverted, strict=True):
                copy_region(self.w, reg.tensor.dtype, reg.pointer, reg.strides, pointer, strides, reg.inside)
            for pointer, _ in reversed(self.diverted):
                code.call("pto_scratch_pop", VOID, [code.worker, pointer])

    def streams(self) -> dict[int, Any]:
        """Per store whether it goes past the caches: when its tensor is too large for them, and nobody says that what
        is stored is read again soon."""
        code, divert = self.code, self.divert
        if not self.w.past_caches:
            return {}
        out: dict[int, Any] = {}
        for k, reg in enumerate(self.regions):
            size = code.mul(reg.tensor.dtype.bytes, *reg.tensor.extents)
            large = code.compare(">", size, STREAM) if not self.nest.stores[k].op.attr("reused") else False
            if divert is not False and large is not False:
                large = code.all_of([large, code.b.not_(divert) if divert is not True else False])
            if large is not False:
                self.w.streams = True
            out[k] = large
        return out
