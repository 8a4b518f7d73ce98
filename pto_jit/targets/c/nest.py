# SPDX-License-Identifier: MIT
"""Row nests (`targets.loops.form`) as C loops: one per row axis, and one per stage over the inner axis.

A stage is a loop of one element per iteration, marked `omp simd` with its reductions, which is what a C compiler needs
to know to use vectors.  Elements of different iterations never depend on each other: stores that would overlap what is
read are diverted by the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType, i32
from pto_jit.ir.nodes import Const
from pto_jit.targets.c.builder import joined
from pto_jit.targets.c.values import (
    EQUALITY,
    OR,
    UNARY,
    CPointer,
    CSlot,
    CValue,
    float_constant,
    lift,
    memory_ctype,
    register_ctype,
)
from pto_jit.targets.cpu.constants import F32, F64, I1, I32, I64, number, register_type
from pto_jit.targets.cpu.folds import reduce_identity
from pto_jit.targets.cpu.nest import row_bytes
from pto_jit.targets.loops.form import (
    Accumulate,
    Arg,
    Compute,
    Fold,
    Kept,
    Nest,
    Place,
    Places,
    Position,
    Read,
    RowBuffer,
    Segment,
    Step,
    Write,
)

if TYPE_CHECKING:
    from pto_jit.targets.c.function import CFunctionWriter

_NO_BRACES = nullcontext()
_COMBINE = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}


class CNest:
    """Writes one nest at the place of insertion."""

    def __init__(self, w: CFunctionWriter, nest: Nest, inputs: Any) -> None:
        self.w = w
        self.code = w.code
        self.nest = nest
        self.inputs = inputs
        self.inner = nest.rank - 1
        self.values: dict[int, CValue] = {}
        self.indices: list[Any] = []
        self.rows: dict[tuple[Place, Places], tuple[CPointer, Any]] = {}
        """Where the current row begins in a place, and how many bytes apart its elements are."""
        self.flat = inputs.flat is True
        self.begin: Any = 0  # of the one row that a nest without rows is
        self.count: Any = inputs.total if self.flat else inputs.extents[-1] if inputs.extents else 0
        self.buffers: dict[RowBuffer, CPointer] = {b: self._buffer(b) for b in nest.buffers}

    def _buffer(self, buffer: RowBuffer) -> CPointer:
        ctype = memory_ctype(buffer.dtype)
        return self.code.pointer(row_memory(self.w, self.inputs, buffer.dtype), ctype, "row", keep=True)

    def write(self) -> None:
        """All rows."""
        self._rows(() if self.flat else self.inputs.extents[:-1])

    def write_range(self, begin: str, end: str) -> None:
        """Those along the first axis from `begin` to `end`, two variables; of one long row these elements."""
        first, last = CValue(I64, begin), CValue(I64, end)
        if self.flat:
            self.begin, self.count = first, self.code.sub(last, first)
            self._row()
            return
        i = self.code.names.fresh("i")
        self.code.declared[i] = "int64_t"
        self.indices.append(CValue(I64, i))
        with self.code.braces(f"for (int64_t {i} = {begin}; {i} < {end}; ++{i})"):
            self._rows(self.inputs.extents[1:-1])

    def _rows(self, extents: Sequence[Any]) -> None:
        """The rows of the axes with these extents, at the indices so far."""
        if not extents:
            self._row()
            return
        index, loop = self._axis(extents[0], "i")
        self.indices.append(index)
        with loop:
            self._rows(extents[1:])

    def _axis(self, extent: Any, wish: str, start: str = "") -> tuple[Any, AbstractContextManager[None]]:
        """An index of a loop over an axis, and the loop's braces; `start`: a variable that has the first index."""
        last = str(extent) if isinstance(extent, int) else self.code.named(lift(extent)).text
        if start:
            return CValue(I64, start), self.code.braces(f"for (; {start} < {last}; ++{start})")
        if isinstance(extent, int) and extent == 1:
            return 0, _NO_BRACES
        i = self.code.names.fresh(wish)
        self.code.declared[i] = "int64_t"
        return CValue(I64, i), self.code.braces(f"for (int64_t {i} = 0; {i} < {last}; ++{i})")

    def _row(self) -> None:
        self._row_pointers()
        for k, segment in enumerate(self.nest.rows):
            for step in segment:
                self._step(step, None)
            if k < len(self.nest.stages) and self.nest.stages[k]:
                self._stage(self.nest.stages[k])

    def _row_pointers(self) -> None:
        """Where the current row begins in every place that the stages use; those that are the same have one name."""
        begun: dict[tuple[str, str], CPointer] = {}
        for stage in self.nest.stages:
            for step in stage:
                place, axes = key = _place_of(step)
                if place is None or isinstance(place, RowBuffer) or key in self.rows:
                    continue
                memory = self.inputs.memory[place]
                distance: Any = 0
                for axis, stride in zip(axes, memory.strides, strict=True):
                    if axis is not None and axis != self.inner and self.indices:
                        distance = self.code.add(distance, self.code.mul(self.indices[axis], stride))
                    elif axis == self.inner:
                        distance = self.code.add(distance, self.code.mul(self.begin, stride))
                pointer = self._begin(memory.pointer, step.dtype)
                moved = self.code.offset(pointer, distance)
                if moved is not pointer:
                    where = moved.text, moved.element
                    if where not in begun:
                        begun[where] = self.code.pointer(*where, f"{pointer.base}_row", keep=True)
                    moved = begun[where]
                self.rows[key] = moved, memory.strides[axes.index(self.inner)] if self.inner in axes else 0

    def _begin(self, pointer: Any, dtype: DType) -> Any:
        """A pointer to elements of a dtype."""
        return pointer if isinstance(pointer, CSlot) else self.code.typed(pointer, memory_ctype(dtype))

    # -- values ---------------------------------------------------------------------------------------------------

    def scalar(self, arg: Arg) -> CValue:
        """A value of row level, or of the function."""
        if isinstance(arg, int):
            return self.values[arg]
        if isinstance(arg, Const):
            typ = register_type(arg.type.dtype)
            if typ in (F32, F64):
                return float_constant(float(arg.value), typ)
            if typ == I1:
                return lift(number(I1, arg.value))
            if arg.type.dtype.name in ("u32", "u64"):
                suffix = "u" if arg.type.dtype.bits == 32 else "ull"
                text = f"{int(arg.value) % (1 << arg.type.dtype.bits)}{suffix}"
                return CValue(typ, text, ctype=register_ctype(arg.type.dtype))
            return lift(number(typ, arg.value))
        return lift(self.inputs.scalars[arg.name])

    def _let(self, ref: int, value: CValue, wish: str) -> None:
        """A value by name, so that its operands are computed once."""
        self.values[ref] = self.code.named(value, wish)

    def _address(self, place: Place, axes: Places, j: Any) -> Any:
        """Where the element at the current indices lies."""
        if isinstance(place, RowBuffer) or (j is not None and self.inner in axes):
            return self.along(*self.row_of(place, axes), j)
        memory = self.inputs.memory[place]
        distance: Any = 0
        for axis, stride in zip(axes, memory.strides, strict=True):
            if axis is not None:
                distance = self.code.add(distance, self.code.mul(self.indices[axis], stride))
        pointer = memory.pointer
        return pointer if isinstance(pointer, CSlot) else self.code.offset(pointer, distance)

    def row_of(self, place: Place, axes: Places) -> tuple[CPointer, Any]:
        """Where the row begins in a place that has the inner axis, and how many bytes apart its elements are."""
        if isinstance(place, RowBuffer):
            return self.buffers[place], place.dtype.bytes
        return self.rows[place, axes]

    def along(self, row: CPointer, stride: Any, j: CValue) -> Any:
        """The place of element `j` of a row."""
        if isinstance(stride, int):
            return row.stepped(j.poly or {}, stride) if stride else row
        return self.code.offset(row, self.code.mul(j, stride))

    def _typed(self, address: Any, dtype: DType) -> Any:
        if isinstance(address, CSlot) or address.element == memory_ctype(dtype) or address.place:
            return address
        return self.code.typed(address, memory_ctype(dtype))

    # -- steps ----------------------------------------------------------------------------------------------------

    def _step(self, step: Step, j: Any) -> None:
        """One step, of row level (`j` is None) or for the element `j` of the row."""
        b, ops = self.code.b, self.w.ops
        match step:
            case Read():
                address = self._typed(self._address(step.place, step.axes, j), step.dtype)
                raw = self.code.read_as(address, step.dtype)
                self._let(step.dst, b.from_memory(raw, step.dtype), "v")
            case Position():
                index = j if step.axis == self.inner and j is not None else self.indices[step.axis]
                ctype = register_ctype(step.dtype)
                value = lift(index)
                if step.dtype.name != "i64":
                    value = CValue(register_type(step.dtype), f"({ctype}){value.at(15)}", 15, ctype=ctype)
                self._let(step.dst, value, "at")
            case Compute():
                args = [self.scalar(a) for a in step.args]
                self._let(step.dst, ops.apply(step.op, args, step.operand, dict(step.attrs), step.dtype), step.op)
            case Write():
                address = self._typed(self._address(step.place, step.axes, j), step.dtype)
                b.store(b.to_memory(self.scalar(step.arg), step.dtype), address)
            case Accumulate():
                address = self._typed(self._address(Kept(step.name), step.axes, j), step.dtype)
                have = b.from_memory(self.code.read_as(address, step.dtype), step.dtype)
                name = _COMBINE.get(step.op, step.op)
                out = ops.apply(name, (have, self.scalar(step.arg)), step.dtype, {}, step.dtype)
                b.store(b.to_memory(out, step.dtype), address)
            case Fold():
                raise AssertionError(step)

    def _stage(self, steps: Segment) -> None:
        """One loop over the inner axis; with vector instructions also one over what they leave."""
        dialect = self.w.module.dialect
        simd = _is_simd(steps, self.inner)
        vectors = dialect.stage(self, steps) if dialect is not None and simd else None
        start, folds = vectors or ("", {s: self._accumulator(s) for s in steps if isinstance(s, Fold)})
        if vectors is None or start:
            self._loop(steps, start, folds, simd=simd and vectors is None)
        for fold, slots in folds.items():
            self.values[fold.dst] = self._folded(fold, slots)

    def _loop(self, steps: Segment, start: str, folds: dict[Fold, list[CSlot]], *, simd: bool) -> None:
        """The elements of a stage one by one, from the index in `start` on; `simd`: in any order."""
        code = self.code
        if simd and not (isinstance(self.count, int) and self.count == 1):
            clauses = [c for f, v in folds.items() for c in self._clauses(f, v)]
            if not isinstance(self.count, int):
                self.count = code.named(lift(self.count))  # before the pragma, which belongs to the loop
            code.line(" ".join(["#pragma omp simd", *clauses]))
        index, loop = self._axis(self.count, "j", start)
        j = lift(index)
        with loop:
            for step in steps:
                if isinstance(step, Fold):
                    self._fold(step, folds[step], j)
                else:
                    self._step(step, j)

    def _accumulator(self, fold: Fold) -> list[CSlot]:
        """The variables of a fold; for the largest or smallest float also whether there was a NaN, which compilers
        can only then look for with vectors of the largest so far (of what stands for it, see `pto_order_f32`)."""
        ctype = register_ctype(fold.operand)
        first = lift(reduce_identity(fold.op, fold.operand, register_type(fold.operand))).text
        if _is_float_extreme(fold):
            kind = _kind(fold)
            best = self.code.variable(fold.op, f"pto_order_{kind}", f"pto_order_of_{kind}({first})", here=True)
            return [best, self.code.variable("nan", f"int{kind[1:]}_t", "0", here=True)]
        best = self.code.variable(fold.op, ctype, first, here=True)
        if fold.op in ("argmax", "argmin"):
            return [best, self.code.variable("where", "int64_t", "-1", here=True)]
        return [best]

    def _clauses(self, fold: Fold, slots: list[CSlot]) -> list[str]:
        name = {"sum": "+", "prod": "*", "any": "||", "all": "&&"}.get(fold.op, fold.op)
        if fold.operand.kind == "b":
            name = {"max": "||", "min": "&&", "+": "||", "*": "&&"}.get(name, name)
        return [f"reduction({sign} : {slot.variable})" for sign, slot in zip((name, "|"), slots, strict=False)]

    def _fold(self, fold: Fold, slots: list[CSlot], j: CValue) -> None:
        code = self.code
        value, best = self.scalar(fold.arg), slots[0].variable
        have = CValue(value.type, best, ctype=slots[0].holds)
        if fold.op in ("argmax", "argmin"):
            self._fold_place(fold, slots, value, have, j)
        elif len(slots) > 1:
            value = code.named(value, "v")
            larger = "larger" if fold.op == "max" else "smaller"
            code.line(f"{best} = pto_{larger}_{_kind(fold)}({value.text}, {best});")
            code.line(f"{slots[1].variable} |= {value.text} != {value.text};")
        else:
            out = self.w.ops.apply(_COMBINE.get(fold.op, fold.op), (have, value), fold.operand, {}, fold.operand)
            code.line(f"{best} = {out.text};")

    def _fold_place(self, fold: Fold, slots: list[CSlot], value: CValue, have: CValue, j: CValue) -> None:
        """The place of the largest or smallest element: the first, or that of the first NaN."""
        code = self.code
        best, where = slots[0].variable, slots[1].variable
        better = self.w.ops.apply("gt" if fold.op == "argmax" else "lt", (value, have), fold.operand, {}, fold.operand)
        nan = f" || ({value.text} != {value.text} && {best} == {best})" if fold.operand.kind == "f" else ""
        with code.braces(f"if ({where} < 0 || {joined(better, OR)}{nan})"):
            code.line(f"{best} = {value.text};")
            code.line(f"{where} = {j.text};")

    def _folded(self, fold: Fold, slots: list[CSlot]) -> CValue:
        if fold.op in ("argmax", "argmin"):
            index = CValue(I32, f"(int32_t)pto_max({slots[1].variable}, 0)", 15)
            return self.code.named(self.w.ops.convert(index, i32, fold.dtype), "index")
        out = CValue(register_type(fold.operand), slots[0].variable, ctype=slots[0].holds)
        if len(slots) == 1:
            return out
        out = CValue(out.type, f"pto_ordered_{_kind(fold)}({out.text})")
        return self.code.named(self.code.b.select(CValue(I1, f"{slots[1].variable} != 0", EQUALITY),
                                                  float_constant(float("nan"), out.type), out), fold.op)  # fmt: skip


def row_memory(w: CFunctionWriter, inputs: Any, dtype: DType) -> str:
    """Scratch memory for a row of elements of a dtype, as an expression."""
    return f"({memory_ctype(dtype)} *){lift(w.scratch(row_bytes(w.code, inputs, dtype))).at(UNARY)}"


def _is_float_extreme(fold: Fold) -> bool:
    return fold.op in ("max", "min") and fold.operand.kind == "f"


def _kind(fold: Fold) -> str:
    """What a float is in a register: f32 or f64."""
    return "f64" if fold.operand.bits == 64 else "f32"


def _place_of(step: Any) -> tuple[Any, Places]:
    if isinstance(step, (Read, Write)):
        return step.place, step.axes
    if isinstance(step, Accumulate):
        return Kept(step.name), step.axes
    return None, ()


def _is_simd(steps: Segment, inner: int) -> bool:
    """Whether the elements of a stage may be computed in any order."""
    for step in steps:
        if isinstance(step, Fold) and step.op in ("argmax", "argmin"):
            return False
        if isinstance(step, Accumulate) and inner not in step.axes:
            return False
    return True
