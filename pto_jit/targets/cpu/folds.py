# SPDX-License-Identifier: MIT
"""Reductions along the inner axis: accumulators of many lanes, and what they come to in the end.

max and min of floats are a plain maximum, which ignores NaN, beside the greatest magnitude as a bit pattern, which
remembers it: only those of NaN are above infinity's.  argmax and argmin carry the index of each lane's best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, i32
from pto_jit.targets.cpu.code import I8, I32, I64, Value, number, register_type, vector, zero
from pto_jit.targets.cpu.elementwise import Elementwise, cast, halves
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
            return first, number(vector(I32, lanes), _NEVER)
        if fold.op in ("max", "min") and fold.operand.kind == "f":
            return first, zero(vector(_bits(fold.operand), lanes))
        return (first,)

    def step(self, fold: Fold, state: Sequence[Value], value: Value, index: Value | None) -> tuple[Value, ...]:
        """One step of a fold."""
        b = self.b
        if fold.op in ("argmax", "argmin"):
            assert index is not None
            return self._better(fold, (value, index), state)
        if fold.op in ("max", "min") and fold.operand.kind == "f":
            sign = ">" if fold.op == "max" else "<"
            kept = b.select(b.fcmp_ordered(sign, value, state[0]), value, state[0])
            bits = b.bitcast(value, state[1].type)
            magnitude = b.and_(bits, number(bits.type, (1 << (_bits(fold.operand).width - 1)) - 1))
            return kept, call_intrinsic(b, "umax", bits.type, state[1], magnitude)
        return (self.combine(fold.op, fold.operand, state[0], value),)

    def _better(self, fold: Fold, x: Sequence[Value], y: Sequence[Value]) -> tuple[Value, Value]:
        """The first of two (value, index) pairs in the order of argmax or argmin; NaN comes before everything."""
        b, dtype = self.b, fold.operand
        sign = "gt" if fold.op == "argmax" else "lt"
        if dtype.kind == "b":
            x1, y1 = b.zext(x[0], vector(I8, lane_count(x[0].type))), b.zext(y[0], vector(I8, lane_count(y[0].type)))
            ahead = b.icmp_unsigned(">" if sign == "gt" else "<", x1, y1)
            same = b.icmp_unsigned("==", x1, y1)
        else:
            ahead = self.ops.apply(sign, (x[0], y[0]), dtype, {}, dtype)
            same = self.ops.apply("eq", (x[0], y[0]), dtype, {}, dtype)
        if dtype.kind == "f":
            x_nan, y_nan = b.fcmp_unordered("uno", x[0], x[0]), b.fcmp_unordered("uno", y[0], y[0])
            y_number = b.fcmp_ordered("ord", y[0], y[0])
            ahead = b.or_(ahead, b.and_(x_nan, y_number))
            same = b.or_(same, b.and_(x_nan, y_nan))
        earlier = b.icmp_signed("<", x[1], y[1])
        pick = b.or_(ahead, b.and_(same, earlier))
        return b.select(pick, x[0], y[0]), b.select(pick, x[1], y[1])

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
        out = self.narrow(fold, state, 1)
        b = self.b
        if fold.op in ("argmax", "argmin"):
            value = b.select(b.icmp_signed("==", out[1], number(I32, _NEVER)), number(I32, 0), out[1])
            return cast(b, value, i32, fold.dtype)
        if len(out) == 2:
            typ = _bits(fold.operand)
            infinity = number(typ, 0x7FF << 52 if typ.width == 64 else 0xFF << 23)
            nan = number(register_type(fold.operand), float("nan"))
            return b.select(b.icmp_unsigned(">", out[1], infinity), nan, out[0])
        return out[0]
