# SPDX-License-Identifier: MIT
"""Row nests as LLVM code: the loop over the rows, the work of row level, and which vectors each stage uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Const
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import Index, Value, number, register_type, storage_type
from pto_jit.targets.cpu.elementwise import Elementwise, from_memory, to_memory
from pto_jit.targets.cpu.folds import Folds
from pto_jit.targets.cpu.packing import COLUMNS, ROOM, TOGETHER, Pack
from pto_jit.targets.cpu.stage import StageWriter
from pto_jit.targets.cpu.strided import MOST
from pto_jit.targets.loops.form import (
    Accumulate,
    Arg,
    Compute,
    Fold,
    Kept,
    Memory,
    Nest,
    Place,
    Places,
    Position,
    Read,
    RowBuffer,
    Segment,
    Stored,
    Write,
)  # fmt: skip

_HEAVY = frozenset(
    """pow fmod atan2 exp exp2 log log2 log1p expm1 rsqrt sin cos tan tanh erf sigmoid silu gelu rand_at randn_at
    floordiv mod""".split()
)
_SLOW = frozenset("pow sin cos tan fmod mod floordiv randn_at".split())
DIVIDE = 1 << 17  # elements from which on a nest is worth dividing among the workers
_FLAT = 16384  # elements of a row when a whole contiguous nest runs as one long row
_NEAR = 16384  # bytes of a row that all rows add to, which stay in the first cache
STREAM = 16 << 20  # bytes of output from which on stores go past the caches


@frozen
class Strided:
    """Where a place of the nest lies: a pointer and per axis of the tile a stride in bytes."""

    pointer: Value
    strides: tuple[Index, ...]


@frozen
class Inputs:
    """All that a nest takes from the function around it, so that it can also run in a function of its own."""

    extents: tuple[Index, ...]
    memory: dict[Any, Strided]
    scalars: dict[str, Value]
    streams: dict[int, Any]
    """Per store: whether it goes past the caches (a bool or an i1)."""
    flat: Any = False
    total: Index = 0
    longest: Index = 0
    """Elements that a row has at most: a number where that is known and not too many to keep room for."""


def row_count(code: Code, inputs: Inputs) -> Index:
    """How many rows a nest has."""
    rows: Index = 1
    for extent in inputs.extents[:-1]:
        rows = code.mul(rows, extent)
    if inputs.flat is False:
        return rows
    return code.pick(inputs.flat, code.div(code.add(inputs.total, _FLAT - 1), _FLAT), rows)


def row_bytes(code: Code, inputs: Inputs, dtype: DType) -> Index:
    """Memory for a row, and a cache line behind it."""
    return code.add(code.mul(inputs.longest, dtype.bytes), 64)


class NestWriter:
    """Writes one nest at the place of insertion of `code`."""

    def __init__(
        self, code: Code, ops: Elementwise, nest: Nest, inputs: Inputs, width: int,
        scratch: Callable[[Index], Value], held: dict[Place, Value] | None = None,
    ) -> None:  # fmt: skip
        self.code = code
        self.ops = ops
        self.nest = nest
        self.inputs = inputs
        self.width = width  # bytes of a vector register
        self.held = held or {}  # places whose columns lie in vectors, by themselves
        self.folds = Folds(lambda: code.b, ops)
        self.values: dict[int, Value] = {}  # of row level, in the current row
        self.rows: dict[Any, Value] = {}  # pointers to the current row
        self.count: Index = 0  # elements of the current row
        self.divisor = 1  # a number that divides them, whatever they are
        self.first: Index = 0  # of them, where rows are taken in blocks of columns
        self.inner = nest.rank - 1
        self.buffers = {b: scratch(row_bytes(code, inputs, b.dtype)) for b in nest.buffers}
        self.apart: dict[Any, int] = {}  # elements from one to the next, where vectors are shuffled for that
        self.added = {(Kept(step.name), step.axes) for stage in nest.stages for step in stage
                      if isinstance(step, Accumulate)}  # fmt: skip
        packed: list[tuple[Place, Places, DType]] = []
        for place, axes, dtype in self._places():
            if not self._strided(place, axes, dtype):
                continue
            step = self._step(place, axes, dtype)
            if step:
                self.apart[place, axes] = step
            else:
                packed.append((place, axes, dtype))
        several = nest.rank > 1 or inputs.flat is not False
        self.block = self._columns_at_once(bool(packed)) if several else 0
        self.together = self._rows_at_once(packed)
        self.packs = {(place, axes): self._pack(place, axes, dtype, scratch) for place, axes, dtype in packed}

    @property
    def b(self) -> Any:
        """The builder at the place of insertion."""
        return self.code.b

    def _places(self) -> list[tuple[Place, Places, DType]]:
        """Every memory place used at inner level."""
        seen: dict[tuple[Place, Places], DType] = {}
        for stage in self.nest.stages:
            for step in stage:
                if isinstance(step, (Read, Write)):
                    if not isinstance(step.place, RowBuffer) and self.inner in step.axes:
                        seen.setdefault((step.place, step.axes), step.dtype)
                elif isinstance(step, Accumulate):
                    seen.setdefault((Kept(step.name), step.axes), step.dtype)
        return [(place, axes, dtype) for (place, axes), dtype in seen.items()]

    def stride(self, place: Place, axes: Places, axis: int) -> Index:
        """Bytes from one element to the next along an axis of the space."""
        return self.inputs.memory[place].strides[axes.index(axis)]

    def _stride(self, place: Place, axes: Places) -> Index:
        return self.stride(place, axes, self.inner)

    def _strided(self, place: Place, axes: Places, dtype: DType) -> bool:
        stride = self._stride(place, axes)
        return not (isinstance(stride, int) and stride == dtype.bytes)

    def _step(self, place: Place, axes: Places, dtype: DType) -> int:
        """How many elements lie from one element to the next; 0 where a row has to be packed.

        Few processors but those of AVX-512 load and store lanes apart at once; results that are added to are packed.
        """
        stride = self._stride(place, axes)
        if not isinstance(stride, int) or stride % dtype.bytes or self.width != 64 or isinstance(place, Kept):
            return 0
        step = stride // dtype.bytes
        return step if 2 <= step <= MOST else 0

    # -- rows that are packed --------------------------------------------------------------------------------------

    def _pitch(self, dtype: DType) -> Index:
        """Bytes from one packed row to the next."""
        return self.block * dtype.bytes + 64 if self.block else row_bytes(self.code, self.inputs, dtype)

    def _rows_at_once(self, packed: Sequence[tuple[Place, Places, DType]]) -> Index:
        """How many rows are packed at a time: several where it is their columns that lie side by side.

        Packed rows are brought back after all of them are computed.  Where only some stores are packed it is one row,
        so that stores to the same elements stay in order.
        """
        stores = {step.place for stage in self.nest.stages for step in stage
                  if isinstance(step, Write) and isinstance(step.place, Stored)}  # fmt: skip
        diverted = {place for place, _, _ in packed if isinstance(place, Stored)}
        if not packed or self.nest.rank < 2 or (diverted and diverted != stores):
            return 1
        code, rows = self.code, self.inputs.extents[-2]
        room = [code.compare("<=", code.mul(self._pitch(dtype), TOGETHER), ROOM) for _, _, dtype in packed]
        beside = [code.compare("==", self.stride(place, axes, self.inner - 1), dtype.bytes)
                  for place, axes, dtype in packed if self.inner - 1 in axes]  # fmt: skip
        worth = code.all_of([*room, code.any_of(beside)])
        return code.pick(worth, min(TOGETHER, rows) if isinstance(rows, int) else TOGETHER, 1)

    def _has_content(self, key: tuple[Place, Places]) -> bool:
        """Whether a row is read before it is written: operands, and results that are added to."""
        return isinstance(key[0], Memory) or key in self.added

    def _pack(self, place: Place, axes: Places, dtype: DType, scratch: Callable[[Index], Value]) -> Pack:
        """Scratch memory for the packed rows of a place."""
        outer = self.inner - 1
        across = self.stride(place, axes, outer) if outer >= 0 and outer in axes else None
        pitch = self._pitch(dtype)
        room = scratch(pitch if across is None else self.code.mul(self.together, pitch))
        return Pack(dtype, room, pitch, self._stride(place, axes), across)

    def _packed(self, begin: Index, end: Index) -> None:
        """The rows from begin to end, which differ in their last index only, several at a time."""
        code = self.code

        def body(first: Value, _: list[Value]) -> Sequence[Value]:
            rows = code.min(self.together, code.sub(end, first))
            if self.block and not self._adds():
                self._columns(lambda: self._several(first, rows))
            else:
                self._several(first, rows)
            return ()

        code.loop(begin, end, self.together, body=body, name="rows")

    def _several(self, first: Value, rows: Index) -> None:
        """Rows that are packed at a time."""
        code = self.code
        self._begin(self._indices(first), first)
        for key, pack in self.packs.items():
            pack.base = self.rows[key]
            if self._has_content(key):
                pack.fill(code, self.width, rows, self.count)
        columns = self.count

        def body(k: Value, _: list[Value]) -> Sequence[Value]:
            row = code.add(first, k)
            self._begin(self._indices(row), row)
            for key, pack in self.packs.items():
                self.rows[key] = pack.row(code, k)
            self._row()
            return ()

        code.loop(0, rows, body=body, name="row")
        for key, pack in self.packs.items():
            if not isinstance(key[0], Memory):
                pack.empty(code, self.width, rows, columns)

    # -- rows -----------------------------------------------------------------------------------------------------

    def write(self, begin: Index, end: Index) -> None:
        """The rows from begin to end."""
        if self.nest.rank <= 1 and self.inputs.flat is False:
            self._alone((), None)
            return

        def rows() -> None:
            if self.packs and self.nest.rank > 1:
                self._runs(begin, end)
                return

            def body(row: Value, _: list[Value]) -> Sequence[Value]:
                self._alone(self._indices(row), row)
                return ()

            self.code.loop(begin, end, body=body, name="row")

        if self.block and self._adds():
            self._columns(rows)
        else:
            rows()

    def columns(self, first: Value, lanes: int, mask: Value | None) -> None:
        """The only row, so many columns from `first` on; of them those in the mask."""
        self._begin((), None)
        StageWriter(self, self.nest.stages[0], lanes, lanes).vectors(first, mask)

    def _columns(self, rows: Callable[[], None]) -> None:
        """Rows in blocks of columns."""

        def columns(first: Value, _: list[Value]) -> Sequence[Value]:
            self.first = first
            rows()
            return ()

        self.code.loop(0, self.inputs.extents[-1], self.block, body=columns, name="columns")

    def _adds(self) -> bool:
        """Whether all rows add to results."""
        return bool(self.added)

    def _runs(self, begin: Index, end: Index) -> None:
        """The rows from begin to end, in runs of those that differ in their last index only."""
        if self.nest.rank == 2:
            self._packed(begin, end)
            return
        code, length = self.code, self.inputs.extents[-2]
        if length == 0:
            return

        def body(run: Value, _: list[Value]) -> Sequence[Value]:
            start = code.mul(run, length)
            self._packed(code.max(begin, start), code.min(end, code.add(start, length)))
            return ()

        with code.when(code.compare("<", begin, end)):
            last = code.div(code.sub(end, 1), length)
            code.loop(code.div(begin, length), code.add(last, 1), body=body, name="run")

    def _columns_at_once(self, packed: bool) -> int:
        """How many columns rows go through before the next ones; 0: whole rows.

        So much stays in the first cache where all rows add to one row; where rows are packed it are those that are
        packed at a time.
        """
        inner = self.inputs.extents[-1]
        steps = self.nest.stages[0] if len(self.nest.stages) == 1 and not any(self.nest.rows) else ()
        added = [s for s in steps if isinstance(s, Accumulate)]
        if any(s.axes != (self.inner,) for s in added) or any(isinstance(s, (Fold, Position)) for s in steps):
            return 0
        if not steps or not (added or packed):
            return 0
        block = _NEAR // max(s.dtype.bytes for s in added) if added else COLUMNS
        return 0 if isinstance(inner, int) and inner <= block else block

    def _indices(self, row: Value) -> tuple[Index, ...]:
        outer = self.inputs.extents[:-1]
        if not outer:
            return ()
        out: list[Index] = []
        rest: Index = row
        for extent in reversed(outer[1:]):
            out.append(self.code.mod(rest, extent))
            rest = self.code.div(rest, extent)
        return (rest, *reversed(out))

    def _alone(self, indices: tuple[Index, ...], row: Value | None) -> None:
        """A row of which nothing, or only what it has itself, is packed."""
        self._begin(indices, row)
        for key, pack in self.packs.items():
            pack.base = self.rows[key]
            self.rows[key] = pack.memory
            if self._has_content(key):
                pack.fill(self.code, self.width, 1, self.count)
        self._row()
        for key, pack in self.packs.items():
            if not isinstance(key[0], Memory):
                pack.empty(self.code, self.width, 1, self.count)

    def _begin(self, indices: tuple[Index, ...], row: Value | None) -> None:
        """Where a row lies, and how many elements it has."""
        code, inputs = self.code, self.inputs
        self.indices = indices
        self.values = {}
        self.rows = {}
        self.count = inner = inputs.extents[-1] if inputs.extents else 0
        self.divisor = math.gcd(inner, _FLAT) if isinstance(inner, int) else 1
        if self.block:
            self.count = code.min(self.block, code.sub(inner, self.first))
            self.divisor = math.gcd(self.divisor, self.block)
        if inputs.flat is not False and row is not None:
            left = code.sub(inputs.total, code.mul(row, _FLAT))
            self.count = code.pick(inputs.flat, code.min(_FLAT, left), self.count)
        for place, axes, _ in self._places():
            self._row_pointer(place, axes, row)

    def _row(self) -> None:
        """The work of a row that was begun."""
        for k, segment in enumerate(self.nest.rows):
            self._segment(segment)
            if k < len(self.nest.stages):
                self._stage(self.nest.stages[k])

    def _row_pointer(self, place: Place, axes: Places, row: Value | None) -> None:
        code = self.code
        memory = self.inputs.memory[place]
        distance: Index = 0
        for axis, stride in zip(axes, memory.strides, strict=True):
            if axis is not None and axis != self.inner:
                distance = code.add(distance, code.mul(self.indices[axis], stride))
        if self.inputs.flat is not False and row is not None:
            size = self._stride(place, axes)
            distance = code.pick(self.inputs.flat, code.mul(row, _FLAT, size), distance)
        if self.block:
            distance = code.add(distance, code.mul(self.first, self._stride(place, axes)))
        self.rows[place, axes] = code.offset(memory.pointer, distance)

    # -- row level ------------------------------------------------------------------------------------------------

    def scalar(self, arg: Arg) -> Value:
        if isinstance(arg, int):
            return self.values[arg]
        if isinstance(arg, Const):
            return number(register_type(arg.type.dtype), arg.value)
        return self.inputs.scalars[arg.name]

    def _element(self, place: Place, axes: Places) -> Value:
        """The address of a row-level element."""
        memory = self.inputs.memory[place]
        distance: Index = 0
        for axis, stride in zip(axes, memory.strides, strict=True):
            if axis is not None:
                distance = self.code.add(distance, self.code.mul(self.indices[axis], stride))
        return self.code.offset(memory.pointer, distance)

    def _segment(self, segment: Segment) -> None:
        for step in segment:
            match step:
                case Read():
                    raw = self.b.load(self._element(step.place, step.axes), typ=storage_type(step.dtype),
                                      align=step.dtype.bytes)  # fmt: skip
                    self.values[step.dst] = from_memory(self.b, raw, step.dtype)
                case Position():
                    self.values[step.dst] = self.index(self.indices[step.axis], step.dtype)
                case Compute():
                    if self.code.lines is not None:
                        self.code.lines.place(self.code, step.loc)
                    args = [self.scalar(a) for a in step.args]
                    self.values[step.dst] = self.ops.apply(step.op, args, step.operand, dict(step.attrs), step.dtype)
                case Write():
                    value = to_memory(self.b, self.scalar(step.arg), step.dtype)
                    self.b.store(value, self._element(step.place, step.axes), align=step.dtype.bytes)
                case Accumulate():
                    address = self._element(Kept(step.name), step.axes)
                    self.accumulate(step, address, self.scalar(step.arg), 1, None)
                case Fold():
                    raise AssertionError(step)

    def index(self, index: Index, dtype: DType) -> Value:
        """An index as a number of a dtype."""
        typ = register_type(dtype)
        if isinstance(index, int):
            return number(typ, index)
        if dtype.kind == "f":
            return self.b.sitofp(index, typ)
        return index if dtype.bits == 64 else self.b.trunc(index, typ)

    def accumulate(self, step: Accumulate, address: Value, value: Value, lanes: int, mask: Value | None) -> None:
        have = from_memory(self.b, load(self.code, address, step.dtype, lanes, mask), step.dtype)
        out = self.folds.combine(step.op, step.dtype, have, value)
        save(self.code, address, to_memory(self.b, out, step.dtype), step.dtype, mask)

    # -- stages ---------------------------------------------------------------------------------------------------

    def _stage(self, steps: Segment) -> None:
        if not steps:
            return
        base = lanes_of(steps, self.width)
        count = self.count
        known = count if isinstance(count, int) else None
        factor = unrolled(steps)
        if known is not None:
            if known == 0:
                for step in steps:
                    if isinstance(step, Fold):
                        self.values[step.dst] = self.folds.result(step, self.folds.initial(step, 1))
                return
            while base > 1 and base // 2 >= known:
                base //= 2
            while factor > 1 and base * factor > known:
                factor //= 2
        StageWriter(self, steps, base, base * factor).write(count)


def lanes_of(steps: Segment, width: int) -> int:
    """Lanes of one register, of `width` bytes, at the widest type that is computed with."""
    widest = 8
    for step in steps:
        for dtype in (getattr(step, "dtype", None), getattr(step, "operand", None)):
            if dtype is not None:
                bits = 32 if dtype.kind == "f" and dtype.bits == 16 else dtype.bits
                widest = max(widest, bits)
        if isinstance(step, Fold) and step.op in ("argmax", "argmin"):
            widest = max(widest, 32)
    return width * 8 // widest


def unrolled(steps: Segment) -> int:
    """How many registers are worked on side by side."""
    weight = 0
    for step in steps:
        if isinstance(step, Compute):
            if step.op in _SLOW:
                return 1
            weight += 20 if step.op in _HEAVY else 1
    return 4 if weight <= 24 else 2 if weight <= 48 else 1
