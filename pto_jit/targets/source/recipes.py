# SPDX-License-Identifier: MIT
"""The vector math's recipes as C functions: the same operations in the same order as on every target.

Each function `exp_f32(x)` is written once per source file, with what it calls before it.  The dialect gives the
spelling of what C has no operator for; contraction must be off when the source is compiled.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from pto_jit.targets.vecmath import RECIPES
from pto_jit.targets.vecmath.emitter import Int, Mask, Value, ldexp_by_parts

FloatName = Literal["f32", "f64"]


def float_literal(value: float, dtype: str) -> str:
    """`value` rounded to f32 or f64, as an expression that gives exactly that number."""
    return _literal(float(value).hex(), dtype != "f64")


@lru_cache(1024)  # programs have few different numbers
def _literal(exact: str, single: bool) -> str:
    value = float.fromhex(exact)
    if single:
        value = ctypes.c_float(value).value
    if math.isnan(value):
        return "pto::nan_of<float>()" if single else "pto::nan_of<double>()"
    if math.isinf(value):
        text = "pto::infinity_of<float>()" if single else "pto::infinity_of<double>()"
        return text if value > 0 else f"-{text}"
    digits = repr(value)
    if single:
        digits = next(d for p in range(6, 10) if ctypes.c_float(float(d := f"{value:.{p}g}")).value == value)
    if "." not in digits and "e" not in digits:
        digits += ".0"
    return digits + ("f" if single else "")


_written: dict[tuple[type, str, str], dict[str, list[str]]] = {}
"""The functions that were ever written, each after those that it calls.  A function depends on the recipe, the dtype
and the spelling alone, which are the key: there are only so many."""


def add_function(
    texts: dict[str, list[str]], key: tuple[type, str, str], write: Callable[[], dict[str, list[str]]]
) -> None:
    """Add a function, and those it calls, to the functions of a file; `write`: what it is in a file of its own."""
    known = _written.get(key)
    if known is None:
        known = _written[key] = write()
    for name, lines in known.items():
        texts.setdefault(name, lines)


class RecipeFunctions:
    """The functions of one source file, in an order in which each is defined before its callers.

    `head` starts a definition, such as `static inline` or `__device__ inline`; instead: functions that exist already
    and serve for recipes on f32; ratio: `Emitter.ratio` of f32.
    """

    def __init__(self, head: str, instead: Mapping[str, str] | None = None, ratio: str = "{} / {}") -> None:
        self.head = head
        self.instead = instead or {}
        self.ratio = ratio
        self.texts: dict[str, list[str]] = {}

    def call(self, name: str, dtype: FloatName, arguments: Sequence[str]) -> str:
        """An expression for the recipe `name` of RECIPES; its function is added when it is new."""
        if dtype == "f32" and name in self.instead:
            return f"{self.instead[name]}({', '.join(arguments)})"
        recipe = RECIPES[name]
        return f"pto::{self.function(name, recipe.function, dtype, recipe.arity)}({', '.join(arguments)})"

    def function(self, name: str, body: Callable[..., Any], dtype: FloatName, arity: int) -> str:
        full = f"{name}_{dtype}"
        if full not in self.texts:
            key = type(self), f"{self.head} {self.ratio}", full
            add_function(self.texts, key, lambda: self._alone(full, body, dtype, arity))
        return full

    def _alone(self, full: str, body: Callable[..., Any], dtype: FloatName, arity: int) -> dict[str, list[str]]:
        """The function in a file of its own."""
        file = RecipeFunctions(self.head, self.instead, self.ratio)
        emitter = CEmitter(file, dtype)
        names = ["x", "y", "z", "w"][:arity]
        result = body(emitter, *names)
        typ = "float" if dtype == "f32" else "double"
        params = ", ".join(f"{typ} {n}" for n in names)
        lines = [f"{self.head} {typ} {full}({params}) {{"]
        lines += [f"  {line}" for line in [*emitter.lines, f"return {result};"]]
        return {**file.texts, full: [*lines, "}"]}


class CEmitter:
    """The `Emitter` protocol over C++ text: every value is a name or a literal."""

    def __init__(self, functions: RecipeFunctions, dtype: FloatName) -> None:
        self.functions = functions
        self.dtype: FloatName = dtype
        self.lines: list[str] = []
        self._count = 0
        self._float, self._int = ("float", "int32_t") if dtype == "f32" else ("double", "int64_t")
        self._unsigned = "u" + self._int

    def _let(self, typ: str, expression: str) -> str:
        name = f"t{self._count}"
        self._count += 1
        self.lines.append(f"const {typ} {name} = {expression};")
        return name

    def _value(self, expression: str) -> Value:
        return self._let(self._float, expression)

    def _whole(self, expression: str) -> Int:
        return self._let(self._int, expression)

    def _mask(self, expression: str) -> Mask:
        return self._let("bool", expression)

    def const(self, value: float) -> Value:
        return float_literal(value, self.dtype)

    def iconst(self, value: int) -> Int:
        bits = 32 if self.dtype == "f32" else 64
        value &= (1 << bits) - 1
        return f"{self._int}({value:#x}u)" if bits == 32 else f"{self._int}({value:#x}ull)"

    def add(self, x: Value, y: Value) -> Value:
        return self._value(f"{x} + {y}")

    def sub(self, x: Value, y: Value) -> Value:
        return self._value(f"{x} - {y}")

    def mul(self, x: Value, y: Value) -> Value:
        return self._value(f"{x} * {y}")

    def div(self, x: Value, y: Value) -> Value:
        return self._value(f"{x} / {y}")

    def ratio(self, x: Value, y: Value) -> Value:
        return self._value(self.functions.ratio.format(x, y) if self.dtype == "f32" else f"{x} / {y}")

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return self._value(f"pto::fma({x}, {y}, {z})")

    def neg(self, x: Value) -> Value:
        return self._value(f"-{x}")

    def abs(self, x: Value) -> Value:
        return self._value(f"pto::absolute({x})")

    def sqrt(self, x: Value) -> Value:
        return self._value(f"pto::square_root({x})")

    def min(self, x: Value, y: Value) -> Value:
        return self._value(self._extreme("<", "pto::minimum", x, y))

    def max(self, x: Value, y: Value) -> Value:
        return self._value(self._extreme(">", "pto::maximum", x, y))

    def _extreme(self, sign: str, function: str, x: Value, y: Value) -> str:
        """As `function` where x is a number that is not 0: no NaN, and not equal to y unless they are the same."""
        plain = str(x).removeprefix("-")
        if plain[:1].isdigit() and plain.rstrip("f") not in ("0.0", "0"):
            return f"{function}({x}, {y})"
        return f"{x} {sign} {y} ? {x} : {y}"

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return self._value(f"pto::copy_sign({magnitude}, {sign})")

    def round_even(self, x: Value) -> Value:
        return self._value(f"pto::round_even({x})")

    def floor(self, x: Value) -> Value:
        return self._value(f"pto::round_down({x})")

    def trunc(self, x: Value) -> Value:
        return self._value(f"pto::truncate({x})")

    masks_ldexp = False

    def ldexp(self, x: Value, n: Value, kept: Mask | None = None) -> Value:
        return ldexp_by_parts(self, x, n)

    def lt(self, x: Value, y: Value) -> Mask:
        return self._mask(f"{x} < {y}")

    def le(self, x: Value, y: Value) -> Mask:
        return self._mask(f"{x} <= {y}")

    def gt(self, x: Value, y: Value) -> Mask:
        return self._mask(f"{x} > {y}")

    def ge(self, x: Value, y: Value) -> Mask:
        return self._mask(f"{x} >= {y}")

    def eq(self, x: Value, y: Value) -> Mask:
        return self._mask(f"{x} == {y}")

    def ne(self, x: Value, y: Value) -> Mask:
        return self._mask(f"{x} != {y}")

    def mask_and(self, p: Mask, q: Mask) -> Mask:
        return self._mask(f"{p} && {q}")

    def mask_or(self, p: Mask, q: Mask) -> Mask:
        return self._mask(f"{p} || {q}")

    def mask_not(self, p: Mask) -> Mask:
        return self._mask(f"!{p}")

    def select(self, mask: Mask, x: Any, y: Any) -> Any:
        return self._let("auto", f"{mask} ? {x} : {y}")

    def bits(self, x: Value) -> Int:
        return self._whole(f"pto::bits({x})")

    def from_bits(self, i: Int) -> Value:
        return self._value(f"pto::from_bits({i})")

    def _wrapping(self, i: Int, sign: str, j: Int) -> Int:
        return self._whole(f"{self._int}({self._unsigned}({i}) {sign} {self._unsigned}({j}))")

    def iadd(self, i: Int, j: Int) -> Int:
        return self._wrapping(i, "+", j)

    def isub(self, i: Int, j: Int) -> Int:
        return self._wrapping(i, "-", j)

    def iand(self, i: Int, j: Int) -> Int:
        return self._whole(f"{i} & {j}")

    def ior(self, i: Int, j: Int) -> Int:
        return self._whole(f"{i} | {j}")

    def ixor(self, i: Int, j: Int) -> Int:
        return self._whole(f"{i} ^ {j}")

    def shl(self, i: Int, count: int) -> Int:
        return self._whole(f"{self._int}({self._unsigned}({i}) << {count})")

    def lshr(self, i: Int, count: int) -> Int:
        return self._whole(f"{self._int}({self._unsigned}({i}) >> {count})")

    def ashr(self, i: Int, count: int) -> Int:
        return self._whole(f"{i} >> {count}")

    def ieq(self, i: Int, j: Int) -> Mask:
        return self._mask(f"{i} == {j}")

    def ilt(self, i: Int, j: Int) -> Mask:
        return self._mask(f"{i} < {j}")

    def to_float(self, i: Int) -> Value:
        return self._value(f"{self._float}({i})")

    def lookup(self, table: Sequence[float], index: Int) -> Value:
        name = f"t{self._count}"
        self._count += 1
        items = ", ".join(float_literal(v, self.dtype) for v in table)
        self.lines.append(f"static constexpr {self._float} {name}[] = {{{items}}};")
        return self._value(f"{name}[{index}]")

    def repeat(self, times: int, body: Callable[..., tuple[Value, ...]], *state: Value) -> tuple[Value, ...]:
        names: list[str] = []
        for value in state:
            name = f"t{self._count}"
            self._count += 1
            self.lines.append(f"{self._float} {name} = {value};")
            names.append(name)
        self.lines.append(f"for (int step = 0; step < {times}; ++step) {{")
        results = body(self, *names)
        self.lines += [f"{name} = {result};" for name, result in zip(names, results, strict=True) if name != result]
        self.lines.append("}")
        return tuple(names)

    def slow_path(self, mask: Mask, slow: Callable[..., Value], operands: tuple[Value, ...], fast: Value) -> Value:
        name = self.functions.function(slow.__name__, slow, self.dtype, len(operands))
        return self._value(f"{mask} ? {name}({', '.join(operands)}) : {fast}")
