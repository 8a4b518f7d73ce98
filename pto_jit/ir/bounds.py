# SPDX-License-Identifier: MIT
"""Bounds of integer scalars inside loops, as operands that can be computed before the loops.

Interval arithmetic on the operations that index computations are made of; what is computed from data has no bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Call, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, Type
from pto_jit.ir.walk import defs, statements

I64 = ScalarType(i64)
_FOLD: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "max": max,
    "min": min,
}
_DEPTH = 32


class Bounds:
    """Bounds at one place of a function: before statement `position` of its body.

    `made` are the operations that compute them, to be put there.
    """

    def __init__(self, func: Func, position: int, fresh: Callable[[str, Type], Var], loc: Loc) -> None:
        self.fresh, self.loc = fresh, loc
        self.made: list[Stmt] = []
        self.cache: dict[tuple[str, Operand, Operand], Operand] = {}
        self.makers: dict[str, list[Stmt]] = {}
        for stmt in statements(func.body):
            for var in defs(stmt):
                self.makers.setdefault(var.name, []).append(stmt)
        before = {id(stmt) for stmt in func.body[:position]}
        self.available = {p.name for p in func.params if p.name not in self.makers} | {
            name for name, made in self.makers.items()
            if len(made) == 1 and id(made[0]) in before and isinstance(made[0], (Op, Call))
        }  # fmt: skip

    def upper(self, operand: Operand, loops: Mapping[str, For]) -> Operand | None:
        """The largest value of an integer scalar inside `loops`; None when it is not known here."""
        return self._bound(operand, loops, True, 0)

    def lower(self, operand: Operand, loops: Mapping[str, For]) -> Operand | None:
        """The smallest value, likewise."""
        return self._bound(operand, loops, False, 0)

    def emit(self, op: str, a: Operand, b: Operand) -> Operand:
        """`op` of two i64 operands: a constant, or the result of an operation appended to `made`."""
        if isinstance(a, Const) and isinstance(b, Const):
            return Const(_FOLD[op](int(a.value), int(b.value)), I64)
        unit = {"add": 0, "sub": 0, "mul": 1, "floordiv": 1}.get(op)
        if isinstance(b, Const) and b.value == unit:
            return a
        if a == b and op in ("max", "min"):
            return a
        if op == "add" and isinstance(b, Const) and isinstance(a, Var):
            for (earlier, left, right), result in self.cache.items():  # (n - 1) + 1
                if result == a and earlier == "sub" and right == b:
                    return left
        key = (op, a, b)
        if key not in self.cache:
            result = self.fresh("extent", I64)
            self.cache[key] = result
            self.made.append(Op(op, (result,), (a, b), (), (), self.loc))
        return self.cache[key]

    def _bound(self, operand: Operand, loops: Mapping[str, For], up: bool, depth: int) -> Operand | None:
        if isinstance(operand, Const):
            return Const(int(operand.value), I64)
        if depth > _DEPTH or not isinstance(operand.type, ScalarType) or not operand.type.dtype.is_integer:
            return None
        if operand.name in self.available:
            return self._index(operand)
        loop = loops.get(operand.name)
        if loop is not None:
            around = {name: other for name, other in loops.items() if name != operand.name}
            return self._of_loop(loop, around, up, depth + 1)
        makers = self.makers.get(operand.name, ())
        if len(makers) != 1 or not isinstance(makers[0], Op) or makers[0].regions:
            return None
        return self._of_op(makers[0], loops, up, depth + 1)

    def _index(self, var: Var) -> Operand:
        if var.type == I64:
            return var
        key = ("cast", var, var)
        if key not in self.cache:
            self.cache[key] = self.fresh(f"{var.name}.idx", I64)
            result = self.cache[key]
            assert isinstance(result, Var)
            self.made.append(Op("cast", (result,), (var,), (("dtype", i64),), (), self.loc))
        return self.cache[key]

    def _of_loop(self, loop: For, loops: Mapping[str, For], up: bool, depth: int) -> Operand | None:
        """The first or last value of a loop variable; of an empty loop any value."""
        one = Const(1, I64)
        step = int(loop.step.value) if isinstance(loop.step, Const) else 0
        start = self._bound(loop.start, loops, up, depth)
        stop = self._bound(loop.stop, loops, up, depth)
        if start is None or stop is None:
            return None
        if step > 0:
            return self.emit("sub", stop, one) if up else start
        if step < 0:
            return start if up else self.emit("add", stop, one)
        last = self.emit("sub" if up else "add", stop, one)
        return self.emit("max" if up else "min", start, last)

    def _of_op(self, op: Op, loops: Mapping[str, For], up: bool, depth: int) -> Operand | None:
        def bound(position: int, up: bool) -> Operand | None:
            return self._bound(op.args[position], loops, up, depth)

        if op.op in ("copy", "cast"):
            return bound(0, up) if op.args[0].type.dtype.is_integer else None
        if op.op in ("add", "sub", "max", "min"):
            a, b = bound(0, up), bound(1, up if op.op != "sub" else not up)
            return None if a is None or b is None else self.emit(op.op, a, b)
        given, by = (1, 0) if op.op == "mul" and isinstance(op.args[0], Const) else (0, 1)
        if op.op in ("mul", "floordiv") and isinstance(op.args[by], Const):
            factor = int(op.args[by].value)  # type: ignore[union-attr]
            if factor == 0 or (factor < 0 and op.op == "floordiv"):
                return None
            a = bound(given, up if factor > 0 else not up)
            return None if a is None else self.emit(op.op, a, Const(factor, I64))
        return None
