# SPDX-License-Identifier: MIT
"""Floats that become integers and are known to fit, because they were clipped or made of narrow integers.

``y[i] = int(min(max(x[i], 0.0), 255.0))`` saturates at no limit of i64, and needs no i64 on its way to u8: the
conversion to i32 asks for NaN alone, and vectors have twice the lanes (AVX2 has no conversion to i64 at all).

What is known of a number is an interval that it lies in unless it is NaN: from constants, the types of narrow integers,
extremes, selections (with what their condition says of either side) and arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf

from pto_jit.dtypes import i32
from pto_jit.ir.nodes import Block, Const, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import def_counts, map_funcs, rewrite_func, statements, uses
from pto_jit.lower.names import I64, Names
from pto_jit.slotted import replace

FITS = "fits"
"""The attribute of a `cast` from a float to an integer that only NaN does not fit in."""

Interval = tuple[float, float]

_CHOICES = frozenset(["copy", "select", "min", "minimum", "max", "maximum"])  # which give an operand as it is

_ALL: Interval = (-inf, inf)
_LIMIT = 2.0**31 - 2.0**24  # what is rounded on the way stays below the limit of i32
_STEPS = 64  # operations that are looked at for one number
_ROUNDED = 2.0**-7  # what rounding adds at most, in any float type, as part of the greatest amount
_FINITE = {16: 60000.0, 32: 1e30, 64: 1e30}  # by bits of a float, what is not infinite when it is rounded
_I32 = ScalarType(i32)


def with_fitting_casts(module: Module) -> Module:
    """The program with `FITS` at such conversions, to i32 where only narrower integers are made of them."""

    def convert(func: Func) -> Func:
        ops = [s for s in statements(func.body) if isinstance(s, Op)]
        casts = [op for op in ops if _to_i64(op)]
        if not casts:
            return func
        made = def_counts(func.body)
        makers = {r.name: op for op in ops for r in op.results if made[r.name] == 1}
        fitting = {op.results[0].name for op in casts if made[op.results[0].name] == 1 and _fits(op, makers)}
        if not fitting:
            return func
        others = Counter(v.name for s in statements(func.body) if not _narrows(s) for v in uses(s))
        narrow = {name for name in fitting if not others[name]}
        names = Names(func)
        short = {name: names.fresh("short", _I32) for name in narrow}

        def visit(stmt: Stmt) -> Stmt | Block | None:
            if not isinstance(stmt, Op) or stmt.op != "cast":
                return None
            if stmt.results[0].name in fitting:
                to = short.get(stmt.results[0].name)
                if to is None:
                    return replace(stmt, attrs=(*stmt.attrs, (FITS, True)))
                return replace(stmt, results=(to,), attrs=(("dtype", i32), (FITS, True)))
            source = stmt.args[0]
            if isinstance(source, Var) and source.name in short:
                to = short[source.name]
                if stmt.results[0].type == _I32:
                    return Op("copy", stmt.results, (to,), loc=stmt.loc)
                return replace(stmt, args=(to,))
            return None

        return rewrite_func(func, visit)

    return map_funcs(module, convert)


def _to_i64(op: Op) -> bool:
    if op.op != "cast" or op.results[0].type != I64:
        return False
    source = op.args[0].type
    return isinstance(source, ScalarType) and source.dtype.kind == "f"


def _narrows(stmt: Stmt) -> bool:
    """Whether a statement makes an integer of at most 32 bits of another one."""
    if not isinstance(stmt, Op) or stmt.op != "cast":
        return False
    source, result = stmt.args[0].type, stmt.results[0].type
    if not isinstance(source, ScalarType) or not isinstance(result, ScalarType):
        return False
    return source == I64 and result.dtype.kind in "iu" and result.dtype.bits <= 32


def _fits(cast: Op, makers: Mapping[str, Op]) -> bool:
    low, high = _Bounds(makers).of(cast.args[0], {})
    return low > -_LIMIT and high < _LIMIT


class _Bounds:
    """What is known of numbers."""

    def __init__(self, makers: Mapping[str, Op]) -> None:
        self.makers = makers
        self.steps = _STEPS

    def of(self, x: Operand, known: Mapping[str, Interval]) -> Interval:
        """The interval of an operand; `known`: what conditions say."""
        if isinstance(x, Const):
            value = float(x.value)
            return (value, value) if value == value else _ALL
        here = known.get(x.name, _ALL)
        op = self.makers.get(x.name)
        self.steps -= 1
        if op is None or self.steps < 0 or not isinstance(x.type, ScalarType):
            return here
        if x.type.dtype.kind in "iu":
            return _common(here, _of_integers(x.type))
        if x.type.dtype.kind != "f":
            return here
        made = self.made(op, known)
        if op.op not in _CHOICES and max(map(abs, made)) > _FINITE[x.type.dtype.bits]:
            made = _ALL  # it may be infinite, too
        return _common(here, made)

    def made(self, op: Op, known: Mapping[str, Interval]) -> Interval:
        match op.op:
            case "copy" | "cast":
                source = op.args[0].type
                exact = op.op == "copy" or (isinstance(source, ScalarType) and source.dtype.kind in "iu")
                low, high = self.of(op.args[0], known)
                return (low, high) if exact else _wider(low, high)
            case "select":
                cond, first, second = op.args
                holds, fails = self.said(cond)
                sides = [self.of(v, _with(known, said)) for v, said in ((first, holds), (second, fails))]
                return min(s[0] for s in sides), max(s[1] for s in sides)
            case "min" | "minimum" | "max" | "maximum" if len(op.args) == 2:
                (a, b), (c, d) = (self.of(v, known) for v in op.args)
                return (min(a, c), min(b, d)) if op.op.startswith("min") else (max(a, c), max(b, d))
            case "add" | "sub" | "mul" | "fma" | "neg" | "abs" | "floor" | "ceil" | "round" | "trunc":
                return self.arithmetic(op.op, [self.of(v, known) for v in op.args])
        return _ALL

    def arithmetic(self, name: str, args: list[Interval]) -> Interval:
        if any(inf in map(abs, a) for a in args):
            return _ALL
        (a, b), (c, d) = args[0], args[1] if len(args) > 1 else (0.0, 0.0)
        match name:
            case "add":
                return _wider(a + c, b + d)
            case "sub":
                return _wider(a - d, b - c)
            case "mul" | "fma":
                products = a * c, a * d, b * c, b * d
                low, high = min(products), max(products)
                return _wider(low, high) if name == "mul" else _wider(low + args[2][0], high + args[2][1])
            case "neg":
                return -b, -a
            case "abs":
                return 0.0, max(abs(a), abs(b))
        return a - 1, b + 1

    def said(self, cond: Operand) -> tuple[dict[str, Interval], dict[str, Interval]]:
        """What a condition says where it holds, and where not."""
        op = self.makers.get(cond.name) if isinstance(cond, Var) else None
        if op is None or op.op not in ("lt", "le", "gt", "ge"):
            return {}, {}
        first, second = op.args
        below = op.op in ("lt", "le")
        if isinstance(first, Const):
            first, second, below = second, first, not below
        if not isinstance(first, Var) or not isinstance(second, Const):
            return {}, {}
        at = float(second.value)
        low, high = {first.name: (-inf, at)}, {first.name: (at, inf)}
        return (low, high) if below else (high, low)


def _with(known: Mapping[str, Interval], said: Mapping[str, Interval]) -> dict[str, Interval]:
    return {**known, **{name: _common(known.get(name, _ALL), i) for name, i in said.items()}}


def _common(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _wider(low: float, high: float) -> Interval:
    """Bounds of results that are rounded."""
    by = max(abs(low), abs(high)) * _ROUNDED
    return low - by, high + by


def _of_integers(typ: ScalarType) -> Interval:
    bits = typ.dtype.bits
    if bits > 16:
        return _ALL
    return (0.0, 2.0**bits - 1) if typ.dtype.kind == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
