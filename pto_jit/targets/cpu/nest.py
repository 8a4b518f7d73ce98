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
from pto_jit.targets.cpu.code import Code, Index, Value, number, register_type, storage_type
from pto_jit.targets.cpu.elementwise import Elementwise, from_memory, to_memory
from pto_jit.targets.cpu.folds import Folds
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
        scratch: Callable[[Index], Value],
    ) -> None:  # fmt: skip
        self.code = code
        self.ops = ops
        self.nest = nest
        self.inputs = inputs
        self.width = width  # bytes of a vector register
        self.folds = Folds(lambda: code.b, ops)
        self.values: dict[int, Value] = {}  # of row level, in the current row
        self.rows: dict[Any, Value] = {}  # pointers to the current row
        self.count: Index = 0  # elements of the current row
        self.divisor = 1  # a number that divides them, whatever they are
        self.first: Index = 0  # of them, where rows are taken in blocks of columns
        self.block = 0
        self.inner = nest.rank - 1
        self.buffers = {b: scratch(row_bytes(code, inputs, b.dtype)) for b in nest.buffers}
        self.apart: dict[Any, int] = {}  # elements from one to the next, where vectors are shuffled for that
        self.packs: dict[Any, Value] = {}
        for place, axes, dtype in self._places():
            if not self._strided(place, axes, dtype):
                continue
            step = self._step(place, axes, dtype)
            if step:
                self.apart[place, axes] = step
            else:
                self.packs[place, axes] = scratch(row_bytes(code, inputs, dtype))

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

    # -- rows -----------------------------------------------------------------------------------------------------

    def write(self, begin: Index, end: Index) -> None:
        """The rows from begin to end."""
        if self.nest.rank <= 1 and self.inputs.flat is False:
            self._row((), None)
            return

        def rows() -> None:
            def body(row: Value, _: list[Value]) -> Sequence[Value]:
                self._row(self._indices(row), row)
                return ()

            self.code.loop(begin, end, body=body, name="row")

        self.block = self._columns_at_once()
        if not self.block:
            rows()
            return

        def columns(first: Value, _: list[Value]) -> Sequence[Value]:
            self.first = first
            rows()
            return ()

        self.code.loop(0, self.inputs.extents[-1], self.block, body=columns, name="columns")

    def _columns_at_once(self) -> int:
        """How many columns all rows go through before the next ones, where all add to one row, which then stays in the
        first cache; 0: whole rows."""
        inner = self.inputs.extents[-1]
        steps = self.nest.stages[0] if len(self.nest.stages) == 1 and not any(self.nest.rows) else ()
        added = [s for s in steps if isinstance(s, Accumulate)]
        if not added or any(s.axes != (self.inner,) for s in added) or any(isinstance(s, Position) for s in steps):
            return 0
        block = _NEAR // max(s.dtype.bytes for s in added)
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

    def _row(self, indices: tuple[Index, ...], row: Value | None) -> None:
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
        for (place, axes), pack in self.packs.items():
            if isinstance(place, Memory):
                self._pack(place, axes, pack, into=True)
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

    def _pack(self, place: Place, axes: Places, pack: Value, into: bool) -> None:
        """Copy a row with an inner stride into contiguous memory, or back."""
        code = self.code
        dtype = next(d for p, a, d in self._places() if (p, a) == (place, axes))
        typ = storage_type(dtype)
        stride, base = self._stride(place, axes), self.rows[place, axes]

        def body(i: Value, _: list[Value]) -> Sequence[Value]:
            far = code.offset(base, code.mul(i, stride))
            near = code.offset(pack, code.mul(i, dtype.bytes))
            source, target = (far, near) if into else (near, far)
            value = code.b.load(source, typ=typ, align=dtype.bytes)
            code.b.store(value, target, align=dtype.bytes)
            return ()

        code.loop(0, self.count, body=body, name="pack")

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
        base = self._lanes(steps)
        count = self.count
        known = count if isinstance(count, int) else None
        factor = self._factor(steps)
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
        for step in steps:
            if isinstance(step, Write) and (step.place, step.axes) in self.packs:
                self._pack(step.place, step.axes, self.packs[step.place, step.axes], into=False)

    def _lanes(self, steps: Segment) -> int:
        """Lanes of one register at the widest type that is computed with."""
        widest = 8
        for step in steps:
            for dtype in (getattr(step, "dtype", None), getattr(step, "operand", None)):
                if dtype is not None:
                    bits = 32 if dtype.kind == "f" and dtype.bits == 16 else dtype.bits
                    widest = max(widest, bits)
            if isinstance(step, Fold) and step.op in ("argmax", "argmin"):
                widest = max(widest, 32)
        return self.width * 8 // widest

    def _factor(self, steps: Segment) -> int:
        weight = 0
        for step in steps:
            if isinstance(step, Compute):
                if step.op in _SLOW:
                    return 1
                weight += 20 if step.op in _HEAVY else 1
        return 4 if weight <= 24 else 2 if weight <= 48 else 1
