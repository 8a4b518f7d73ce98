# SPDX-License-Identifier: MIT
"""Reductions along the inner axis: accumulators of many lanes, and what they come to in the end.

max and min of floats are a plain maximum, which ignores NaN, beside the greatest magnitude as a bit pattern, which
remembers it: only those of NaN are above infinity's.  argmax and argmin carry each lane's best and its index, and for
floats beside them the index of its first NaN: what an element needs of the one before is a maximum only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, i32
from pto_jit.targets.cpu.constants import I32, I64, Value, number, register_type, vector, zero
from pto_jit.targets.cpu.elementwise import Elementwise, cast, halves, splat
from pto_jit.targets.cpu.vector import call_intrinsic, lane_count
from pto_jit.targets.loops.form import Fold

_NEVER = 2**31 - 1  # the index of an accumulator that has seen nothing


def reduce_identity(op: str, dtype: DType, typ: ir.Type) -> Value:
    """What a reduction of nothing gives, in every lane."""
    if op in ("sum", "any"):
        return zero(typ) if dtype.kind != "b" else number(typ, False)
    if op == "prod":
        return number(typ, 1)
    if op == "all":
        return number(typ, True)
    low = op in ("max", "argmax")
    if dtype.kind == "f":
        return number(typ, float("-inf") if low else float("inf"))
    if dtype.kind == "b":
        return number(typ, not low)
    if dtype.is_signed:
        half = 1 << (dtype.bits - 1)
        return number(typ, -half if low else half - 1)
    return number(typ, 0 if low else (1 << dtype.bits) - 1)


def _bits(dtype: DType) -> ir.IntType:
    """The integers of the width of a float in registers."""
    return I64 if dtype.bits == 64 else I32


class Folds:
    """Reductions through the operations of one function."""

    def __init__(self, builder: Callable[[], ir.IRBuilder], ops: Elementwise) -> None:
        self._builder = builder
        self.ops = ops

    @property
    def b(self) -> Any:
        """The builder at the place of insertion."""
        return self._builder()

    def combine(self, op: str, dtype: DType, x: Value, y: Value) -> Value:
        """One step of a reduction of numbers; NaN wins in max and min."""
        name = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(op, op)
        return self.ops.apply(name, (x, y), dtype, {}, dtype)

    def initial(self, fold: Fold, lanes: int) -> tuple[Value, ...]:
        """The accumulators before the first element."""
        typ = vector(register_type(fold.operand), lanes)
        first = reduce_identity(fold.op, fold.operand, typ)
        if fold.op in ("argmax", "argmin"):
            never = number(vector(I32, lanes), _NEVER)
            return (first, never, never) if fold.operand.kind == "f" else (first, never)
        if fold.op in ("max", "min") and fold.operand.kind == "f":
            return first, zero(vector(_bits(fold.operand), lanes))
        return (first,)

    def step(self, fold: Fold, state: Sequence[Value], value: Value, index: Value | None) -> tuple[Value, ...]:
        """One step of a fold."""
        b = self.b
        if fold.op in ("argmax", "argmin"):
            assert index is not None
            return self._found(fold, state, value, index)
        if fold.op in ("max", "min") and fold.operand.kind == "f":
            sign = ">" if fold.op == "max" else "<"
            kept = b.select(b.fcmp_ordered(sign, value, state[0]), value, state[0])
            bits = b.bitcast(value, state[1].type)
            magnitude = b.and_(bits, number(bits.type, (1 << (_bits(fold.operand).width - 1)) - 1))
            return kept, call_intrinsic(b, "umax", bits.type, state[1], magnitude)
        return (self.combine(fold.op, fold.operand, state[0], value),)

    def _ahead(self, fold: Fold, x: Value, y: Value) -> Value:
        """Whether x is greater than y for argmax, less for argmin; False where one is NaN."""
        b, dtype = self.b, fold.operand
        sign = ">" if fold.op == "argmax" else "<"
        if dtype.kind == "f":
            return b.fcmp_ordered(sign, x, y)
        if dtype.kind == "b":
            first, second = (x, y) if sign == ">" else (y, x)
            return b.and_(first, b.not_(second))
        return b.icmp_signed(sign, x, y) if dtype.is_signed else b.icmp_unsigned(sign, x, y)

    def _least(self, x: Value, y: Value) -> Value:
        return call_intrinsic(self.b, "smin", x.type, x, y)

    def _found(self, fold: Fold, state: Sequence[Value], value: Value, index: Value) -> tuple[Value, ...]:
        """One step of argmax or argmin.  A lane meets its elements in order: one that is not ahead is not first."""
        b = self.b
        best, place, *nan = state
        pick = self._ahead(fold, value, best)
        out = b.select(pick, value, best), b.select(pick, index, place)
        if not nan:
            return out
        never = number(index.type, _NEVER)
        return *out, self._least(nan[0], b.select(b.fcmp_unordered("uno", value, value), index, never))

    def _better(self, fold: Fold, x: Sequence[Value], y: Sequence[Value]) -> tuple[Value, ...]:
        """Two accumulators of argmax or argmin as one: of two equal elements the one with the lesser index."""
        b = self.b
        earlier = b.and_(b.not_(self._ahead(fold, y[0], x[0])), b.icmp_signed("<", x[1], y[1]))
        pick = b.or_(self._ahead(fold, x[0], y[0]), earlier)
        nan = [self._least(i, j) for i, j in zip(x[2:], y[2:], strict=True)]
        return b.select(pick, x[0], y[0]), b.select(pick, x[1], y[1]), *nan

    def _first(self, fold: Fold, state: Sequence[Value]) -> Value:
        """The index that the lanes of argmax or argmin come to; `_NEVER` where no element is ahead of the identity."""
        b = self.b
        values, indices, *nan = state
        best = values
        while lane_count(best.type) > 1:
            x, y = halves(b, best)
            best = b.select(self._ahead(fold, x, y), x, y)
        if values is not best:
            every = splat(b, best, lane_count(values.type))
            same = b.fcmp_ordered if fold.operand.kind == "f" else b.icmp_unsigned
            indices = self._lowest(b.select(same("==", values, every), indices, number(indices.type, _NEVER)))
        if not nan:
            return indices
        first = self._lowest(nan[0])
        return b.select(b.icmp_signed("==", first, number(I32, _NEVER)), indices, first)

    def _lowest(self, lanes: Value) -> Value:
        """The least of all lanes."""
        if lane_count(lanes.type) == 1:
            return lanes
        return call_intrinsic(self.b, "vector.reduce.smin", I32, lanes, overloads=(lanes.type,))

    def merge(self, fold: Fold, x: Sequence[Value], y: Sequence[Value]) -> tuple[Value, ...]:
        """Two accumulators of equal lanes as one."""
        b = self.b
        if fold.op in ("argmax", "argmin"):
            return self._better(fold, x, y)
        if fold.op in ("max", "min") and fold.operand.kind == "f":
            sign = ">" if fold.op == "max" else "<"
            magnitude = call_intrinsic(b, "umax", x[1].type, x[1], y[1])
            return b.select(b.fcmp_ordered(sign, x[0], y[0]), x[0], y[0]), magnitude
        return (self.combine(fold.op, fold.operand, x[0], y[0]),)

    def narrow(self, fold: Fold, state: Sequence[Value], lanes: int) -> tuple[Value, ...]:
        """Accumulators of fewer lanes, by merging halves."""
        while lane_count(state[0].type) > lanes:
            pairs = [halves(self.b, v) for v in state]
            state = self.merge(fold, [p[0] for p in pairs], [p[1] for p in pairs])
        return tuple(state)

    def result(self, fold: Fold, state: Sequence[Value]) -> Value:
        """The number that accumulators of any lane count come to."""
        b = self.b
        if fold.op in ("argmax", "argmin"):
            first = self._first(fold, state)
            first = b.select(b.icmp_signed("==", first, number(I32, _NEVER)), number(I32, 0), first)
            return cast(b, first, i32, fold.dtype)
        out = self.narrow(fold, state, 1)
        if len(out) == 2:
            typ = _bits(fold.operand)
            infinity = number(typ, 0x7FF << 52 if typ.width == 64 else 0xFF << 23)
            nan = number(register_type(fold.operand), float("nan"))
            return b.select(b.icmp_unsigned(">", out[1], infinity), nan, out[0])
        return out[0]
