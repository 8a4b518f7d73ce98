# SPDX-License-Identifier: MIT
"""Numbers that vary, and what they do not exceed: extents of tiles that end where tensors do.

`x[i : min(i + 64, n)]` has at most 64 rows, whatever `i` is.  Differences are compared as sums of multiples of
variables, each assigned once.

Before::

    %t0 = sadd %i, 64 : i64
    %t1 = smin %t0, %n : i64
    %t2 = ssub %t1, %i : i64        // at most 64
    %t3 = smax %t2, 0 : i64         // at most 64
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Const, Func, Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import statements

_INDEX = ScalarType(i64)
_COMPARISONS = {"le": (0, 1, 0), "lt": (0, 1, 1), "ge": (1, 0, 0), "gt": (1, 0, 1)}
"""Which operand is at most the other one, and by how much it is less at least."""
_PRODUCTS = 16  # terms of a product of two sums that are looked at


def ceilings(func: Func, mutable: Container[str], varying: Container[str]) -> dict[str, Operand]:
    """Numbers that vary, with a positive constant, or a number that does not vary, which they do not exceed.

    mutable, varying: names that are assigned more than once, and those of what is not the same in all iterations.
    """
    found = _Ceilings(varying)
    for s in statements(func.body):
        if isinstance(s, Op) and len(s.results) == 1 and s.results[0].name not in mutable:
            found.note(s, mutable)
    return found.known


class _Sum:
    """A constant, and products of variables with factors."""

    def __init__(self, constant: int = 0, factors: dict[tuple[str, ...], int] | None = None) -> None:
        self.constant, self.factors = constant, factors or {}

    def plus(self, other: _Sum, times: int = 1) -> _Sum:
        factors = dict(self.factors)
        for names, factor in other.factors.items():
            factors[names] = factors.get(names, 0) + times * factor
        return _Sum(self.constant + times * other.constant, {n: f for n, f in factors.items() if f})

    def times(self, other: _Sum) -> _Sum:
        out = _Sum(0).plus(self, other.constant)
        for names, factor in other.factors.items():
            product = {tuple(sorted((*own, *names))): times for own, times in self.factors.items()}
            product[names] = product.get(names, 0) + self.constant
            out = out.plus(_Sum(0, product), factor)
        return out


class _Ceilings:
    def __init__(self, varying: Container[str]) -> None:
        self.varying = varying
        self.known: dict[str, Operand] = {}
        self.made: dict[str, Op] = {}
        self.sums: dict[str, _Sum] = {}
        self.vars: dict[str, Var] = {}

    def note(self, op: Op, mutable: Container[str]) -> None:
        """Learn what the result of an operation is at most, where it is a number."""
        (result,) = op.results
        if op.op in _COMPARISONS and all(a.type == _INDEX for a in op.args):
            self.made[result.name] = op
        numbers = op.args[1:] if op.op == "select" else op.args
        if not all(isinstance(v.type, ScalarType) and v.type.dtype.kind in "iu" for v in (result, *numbers)):
            return
        if result.type == _INDEX and all(a.type == _INDEX for a in numbers) and not any(
            isinstance(a, Var) and a.name in mutable for a in op.args
        ):  # fmt: skip
            self.made[result.name] = op
            self.vars.update((v.name, v) for v in (result, *numbers) if isinstance(v, Var))
        if result.name in self.varying:
            ceiling = self._of(op)
            if ceiling is not None and not (isinstance(ceiling, Const) and ceiling.value <= 0):
                self.known[result.name] = ceiling

    def _at_most(self, operand: Operand) -> Operand | None:
        """What an operand does not exceed."""
        if isinstance(operand, Const) or operand.name not in self.varying:
            return operand
        return self.known.get(operand.name)

    def _of(self, op: Op) -> Operand | None:
        most = [self._at_most(a) for a in op.args]
        sure = [m for m in most if m is not None]
        match op.op:
            case "min":
                return _least(m for m in sure if not isinstance(m, Const) or m.value > 0)
            case "cast":  # of an integer to one of 64 bits
                constant = op.results[0].type == _INDEX and isinstance(most[0], Const)
                return Const(int(most[0].value), _INDEX) if constant else None  # type: ignore[union-attr]
            case "copy":
                return most[0]
            case "max" if len(sure) == 2:
                a, b = sorted(sure, key=lambda m: isinstance(m, Const))
                if isinstance(a, Const) and isinstance(b, Const):
                    return max(a, b, key=lambda m: m.value)
                return a if isinstance(b, Const) and b.value <= 1 else None  # no tile has fewer elements
            case "add" | "mul" | "floordiv" if op.results[0].name in self.made and isinstance(op.args[1], Const):
                a, b = most[0], int(op.args[1].value)
                if not isinstance(a, Const) or (op.op != "add" and b <= 0):
                    return None
                return Const({"add": a.value + b, "mul": a.value * b, "floordiv": a.value // b}[op.op], _INDEX)
            case "sub" if op.results[0].name in self.made:
                return self._most(self._sum(op.results[0]))
            case "select" if op.results[0].name in self.made:
                return self._either(op, _Sum(), 4)
            case _:
                return None

    def _sum(self, operand: Operand) -> _Sum:
        if isinstance(operand, Const):
            return _Sum(int(operand.value))
        known = self.sums.get(operand.name)
        if known is None:
            known = self.sums[operand.name] = self._sum_of(operand)
        return known

    def _sum_of(self, var: Var) -> _Sum:
        op = self.made.get(var.name)
        match op:
            case Op(op="copy"):
                return self._sum(op.args[0])
            case Op(op="add" | "sub"):
                return self._sum(op.args[0]).plus(self._sum(op.args[1]), 1 if op.op == "add" else -1)
            case Op(op="mul"):
                a, b = map(self._sum, op.args)
                return a.times(b) if len(a.factors) * len(b.factors) <= _PRODUCTS else _Sum(0, {(var.name,): 1})
            case _:
                return _Sum(0, {(var.name,): 1})

    def _most(self, total: _Sum, depth: int = 4) -> Operand | None:
        """What a sum is at most: by a number that it is, or by what a minimum or a choice in it is, or a maximum that
        is taken away."""
        found = self._number(total)
        for names, factor in total.factors.items() if found is None and depth else ():
            op = self.made.get(names[0]) if len(names) == 1 else None
            if op is not None and op.op == ("min" if factor > 0 else "max"):
                instead = total.plus(_Sum(0, {names: factor}), -1)
                found = _least([self._most(instead.plus(self._sum(a), factor), depth - 1) for a in op.args])
            elif op is not None and op.op == "select" and factor == 1:
                found = self._either(op, total.plus(_Sum(0, {names: factor}), -1), depth - 1)
            if found is not None:
                break
        return found

    def _number(self, total: _Sum) -> Operand | None:
        """What a sum is at most, where it has no variables, or one that is known to be at most something."""
        if not total.factors:
            return Const(total.constant, _INDEX)
        (names, factor), *more = total.factors.items()
        most = self._at_most(self.vars[names[0]]) if factor == len(names) == 1 and not more else None
        if isinstance(most, Const):
            return Const(int(most.value) + total.constant, _INDEX)
        return most if total.constant == 0 else None

    def _either(self, op: Op, more: _Sum, depth: int) -> Operand | None:
        """A choice and something more: what both ways are at most, by what the condition says of them, too."""
        cond, *ways = op.args
        asked = self.made.get(cond.name) if isinstance(cond, Var) else None
        found: list[Const] = []
        for way, operand in enumerate(ways):
            total = self._sum(operand).plus(more)
            most = self._most(total, depth)
            if not isinstance(most, Const) and asked is not None and asked.op in _COMPARISONS:
                low, high, less = _COMPARISONS[asked.op]
                if way == 1:  # what was compared is the other way round
                    low, high, less = high, low, 1 - less
                room = self._sum(asked.args[high]).plus(self._sum(asked.args[low]), -1).plus(_Sum(less), -1)
                most = self._most(total.plus(room), depth)
            if not isinstance(most, Const):
                return None
            found.append(most)
        return max(found, key=lambda m: m.value, default=None)


def _least(ceilings: Iterable[Operand | None]) -> Operand | None:
    """One of several ceilings, a constant if there is one: the smallest."""
    sure = [m for m in ceilings if m is not None]
    return min(sure, key=lambda m: int(m.value) if isinstance(m, Const) else math.inf, default=None)
