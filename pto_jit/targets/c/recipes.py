# SPDX-License-Identifier: MIT
"""Vector math in C11: the recipes of `targets.vecmath` as static functions, the same operations in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.targets.c.tidy import without_unread
from pto_jit.targets.c.values import c_float
from pto_jit.targets.source.recipes import CEmitter, FloatName, RecipeFunctions, add_function
from pto_jit.targets.vecmath import RECIPES

_HEAD = "static inline"


class CRecipes(RecipeFunctions):
    """The functions of one source file; `bitcasts` and `normal` are what else of the kind it needs."""

    def __init__(self) -> None:
        super().__init__(_HEAD)
        self.bitcasts: set[tuple[str, str]] = set()
        self.normal = False

    def call(self, name: str, dtype: FloatName, arguments: Sequence[str]) -> str:
        recipe = RECIPES[name]
        return f"{self.function(name, recipe.function, dtype, recipe.arity)}({', '.join(arguments)})"

    def function(self, name: str, body: Callable[..., Any], dtype: FloatName, arity: int) -> str:
        full = f"pto_{name}_{dtype}"
        if full not in self.texts:
            add_function(self.texts, (CRecipes, self.head, full), lambda: self._alone(full, body, dtype, arity))
        return full

    def _alone(self, full: str, body: Callable[..., Any], dtype: FloatName, arity: int) -> dict[str, list[str]]:
        file = CRecipes()
        emitter = C11Emitter(file, dtype)
        names = ["x", "y", "z", "w"][:arity]
        result = body(emitter, *names)
        typ = "float" if dtype == "f32" else "double"
        lines = [f"{_HEAD} {typ} {full}({', '.join(f'{typ} {n}' for n in names)}) {{"]
        lines += [f"  {line}" for line in [*without_unread(emitter.lines, result), f"return {result};"]]
        return {**file.texts, full: [*lines, "}"]}


class C11Emitter(CEmitter):
    """The emitter in the spelling of C11."""

    def __init__(self, functions: CRecipes, dtype: FloatName) -> None:
        super().__init__(functions, dtype)
        self._suffix = "f" if dtype == "f32" else ""
        self._integers: set[str] = set()

    def _let(self, typ: str, expression: str) -> str:
        name = super()._let(typ, expression)
        if typ == self._int:
            self._integers.add(name)
        return name

    def const(self, value: float) -> str:
        return c_float(value, self.dtype)

    def iconst(self, value: int) -> str:
        bits = 32 if self.dtype == "f32" else 64
        value &= (1 << bits) - 1
        if value >> (bits - 1):
            return f"({self._int}){value:#x}u{'' if bits == 32 else 'll'}"
        return f"{value:#x}" if bits == 32 else f"{value:#x}ll"

    def _call(self, name: str, *arguments: str) -> str:
        return self._value(f"{name}{self._suffix}({', '.join(arguments)})")

    def neg(self, x: str) -> str:
        return self._value(f"-({x})" if x.startswith("-") else f"-{x}")

    def fma(self, x: str, y: str, z: str) -> str:
        return self._call("fma", x, y, z)

    def abs(self, x: str) -> str:
        return self._call("fabs", x)

    def sqrt(self, x: str) -> str:
        return self._call("sqrt", x)

    def _extreme(self, sign: str, function: str, x: str, y: str) -> str:
        return f"{x} {sign} {y} ? {x} : {y}"

    def copysign(self, magnitude: str, sign: str) -> str:
        return self._call("copysign", magnitude, sign)

    def round_even(self, x: str) -> str:
        return self._call("rint", x)

    def floor(self, x: str) -> str:
        return self._call("floor", x)

    def trunc(self, x: str) -> str:
        return self._call("trunc", x)

    def select(self, mask: str, x: str, y: str) -> str:
        whole = any(v in self._integers or v.startswith(("0x", f"({self._int})")) for v in (x, y))
        return self._let(self._int if whole else self._float, f"{mask} ? {x} : {y}")

    def bits(self, x: str) -> str:
        return self._whole(f"pto_bits_{self.dtype}({x})")

    def from_bits(self, i: str) -> str:
        return self._value(f"pto_from_bits_{self.dtype}({i})")

    def _wrapping(self, i: str, sign: str, j: str) -> str:
        return self._whole(f"{i} {sign} {j}")  # integers wrap: the build says so

    def shl(self, i: str, count: int) -> str:
        return self._whole(f"{i} << {count}")

    def lshr(self, i: str, count: int) -> str:
        return self._whole(f"({self._int})(({self._unsigned}){i} >> {count})")

    def to_float(self, i: str) -> str:
        return self._value(f"({self._float}){i}")

    def lookup(self, table: Sequence[float], index: str) -> str:
        name = f"t{self._count}"
        self._count += 1
        items = ", ".join(c_float(v, self.dtype) for v in table)
        self.lines.append(f"static const {self._float} {name}[] = {{{items}}};")
        return self._value(f"{name}[{index}]")

    def slow_path(self, mask: str, slow: Callable[..., str], operands: tuple[str, ...], fast: str) -> str:
        name = self.functions.function(slow.__name__, slow, self.dtype, len(operands))
        return self._value(f"{mask} ? {name}({', '.join(operands)}) : {fast}")
