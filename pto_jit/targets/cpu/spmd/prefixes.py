# SPDX-License-Identifier: MIT
"""Running extremes and sums of lanes (`lower.scans`): every vector by itself in log2(lanes) steps, then combined with
what was before it, which is all that one vector waits for.  Sums of floats go from lane to lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import ScalarType
from pto_jit.lower.ordered import is_in_order
from pto_jit.lower.scans import BEFORE
from pto_jit.targets.cpu.constants import I1, I32, Value, nan, number, numbers, vector
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.function import FunctionWriter

_COMPARED = {"gt": (">", -inf), "ge": (">=", -inf), "lt": ("<", inf), "le": ("<=", inf)}
"""Comparisons, with what changes nothing."""


class Prefixes:
    """Writes `prefix` and `before` for groups of which every lane has an iteration."""

    def __init__(self, w: FunctionWriter, width: int) -> None:
        self.w = w
        self.width = width
        self._before: dict[str, Value] = {}  # what a variable was when the group began

    def apply(self, op: Op, vectors: Sequence[Value]) -> list[Value]:
        """The vectors of one group; a `prefix` gives its variable the last lane."""
        name, typ = op.attr("of"), op.results[0].type
        assert isinstance(name, str) and isinstance(typ, ScalarType)
        b, var = self.w.b, Var(name, typ)
        if op.op == BEFORE:
            last = ir.Constant(vectors[0].type, ir.Undefined)
            last = b.insert_element(last, self._before[name], number(I32, self.width - 1))
            pairs = zip([last, *vectors[:-1]], vectors, strict=True)
            return [self._picked(x, y, range(self.width - 1, 2 * self.width - 1)) for x, y in pairs]
        kind = str(op.attr("op"))
        first = self._before[name] = self.w.scalar(var)
        if is_in_order(kind, typ):
            out, last = self._in_order(kind, typ.dtype, first, vectors)
            self.w.define(var, last)
            return out
        if kind in _COMPARED:
            out = self._selected(kind, first, vectors)
        elif typ.dtype.kind == "f":
            out = self._extremes(kind, bool(op.attr("turned")), first, vectors)
        else:
            out = self._running(kind, typ.dtype, first, vectors)
        self.w.define(var, b.extract_element(out[-1], number(I32, self.width - 1)))
        return out

    def _in_order(
        self, kind: str, dtype: DType, first: Value, vectors: Sequence[Value]
    ) -> tuple[list[Value], Value]:
        """Lane after lane; the vectors are dropped by the optimiser where nobody asks for what is on the way."""
        b, carry, out = self.w.b, first, list[Value]()
        for value in vectors:
            together = ir.Constant(value.type, ir.Undefined)
            for lane in range(self.width):
                element = b.extract_element(value, number(I32, lane))
                carry = self.w.ops.apply(kind, (carry, element), dtype, {}, dtype)
                together = b.insert_element(together, carry, number(I32, lane))
            out.append(together)
        return out, carry

    def _running(self, kind: str, dtype: DType, first: Value, vectors: Sequence[Value]) -> list[Value]:
        """Integers, whose operands may change places."""

        def both(x: Value, y: Value) -> Value:
            return self.w.ops.apply(kind, (x, y), dtype, {}, dtype)

        carry, out = splat(self.w.b, first, self.width), []
        for value in vectors:
            alone = self._alone(value, both, again=kind not in ("add", "xor"))
            out.append(both(carry, alone))
            carry = both(carry, self._last(alone))
        return out

    def _extremes(self, kind: str, turned: bool, first: Value, vectors: Sequence[Value]) -> list[Value]:
        """Extremes of floats: from the first NaN on, of which there is one for all, they are NaN.

        They are taken without a thought of NaN, of which the lanes up to the first one know nothing; where that is, is
        a number with a bit for each lane.
        """
        b, width = self.w.b, self.width
        sign, bits = ">" if kind in ("max", "maximum") else "<", ir.IntType(width)

        def both(x: Value, y: Value) -> Value:
            x, y = (y, x) if turned else (x, y)
            return b.select(b.fcmp_ordered(sign, y, x), y, x)

        def from_first(mask: Value) -> Value:  # the lowest bit that is set, and all above it
            return b.or_(mask, b.sub(number(I32, 0), mask))

        carry, out = splat(b, first, width), []
        seen = b.sext(b.fcmp_unordered("uno", first, first), I32)
        for value in vectors:
            here = b.zext(b.bitcast(b.fcmp_unordered("uno", value, value), bits), I32)
            lost = b.or_(seen, from_first(here))
            alone = self._alone(value, both, again=True)
            where = b.bitcast(b.trunc(lost, bits), vector(I1, width))
            out.append(b.select(where, nan(value.type), both(carry, alone)))
            carry = both(carry, self._last(alone))
            seen = b.ashr(lost, number(I32, 31))
        return out

    def _selected(self, kind: str, first: Value, vectors: Sequence[Value]) -> list[Value]:
        """Floats that replace what they compare with: a NaN replaces nothing, as the least of all would not, or what is
        its equal."""
        b = self.w.b
        sign, least = _COMPARED[kind]

        def both(x: Value, y: Value) -> Value:
            return b.select(b.fcmp_ordered(sign, y, x), y, x)

        carry, out = splat(b, first, self.width), []
        for value in vectors:
            known = b.select(b.fcmp_ordered("ord", value, value), value, number(value.type, least))
            alone = self._alone(known, both, again=True)
            out.append(both(carry, alone))
            carry = both(carry, self._last(alone))
        return out

    def _alone(self, value: Value, both: Callable[[Value, Value], Value], *, again: bool) -> Value:
        """A vector with what comes of each lane and those before it; `again`: operands may count twice."""
        width, step = self.width, 1
        while step < width:
            moved = self._picked(value, value, [k - step if k >= step else k for k in range(width)])
            together = both(moved, value)
            if not again:
                together = self._picked(value, together, [k if k < step else width + k for k in range(width)])
            value, step = together, 2 * step
        return value

    def _last(self, value: Value) -> Value:
        return self._picked(value, value, [self.width - 1] * self.width)

    def _picked(self, x: Value, y: Value, lanes: Sequence[int]) -> Value:
        return self.w.b.shuffle_vector(x, y, numbers(I32, tuple(lanes)))
