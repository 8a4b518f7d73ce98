# SPDX-License-Identifier: MIT
"""Vector math in NEON intrinsics: the recipes of `targets.vecmath` on four lanes of f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.targets.c.recipes import CRecipes
from pto_jit.targets.c.tidy import without_unread
from pto_jit.targets.c.values import c_float
from pto_jit.targets.vecmath import RECIPES
from pto_jit.targets.vecmath.emitter import ldexp_by_parts


class NeonRecipes:
    """The vector functions of one source file, among its scalar ones."""

    def __init__(self, scalar: CRecipes) -> None:
        self.texts = scalar.texts

    def call(self, name: str, arguments: Sequence[str]) -> str:
        """An expression for the recipe `name` on vectors."""
        recipe = RECIPES[name]
        return f"{self.function(name, recipe.function, recipe.arity)}({', '.join(arguments)})"

    def function(self, name: str, body: Callable[..., Any], arity: int) -> str:
        full = f"pto_{name}_f32x4"
        if full not in self.texts:
            emitter = NeonEmitter(self)
            names = ["x", "y", "z", "w"][:arity]
            result = body(emitter, *names)
            parameters = ", ".join(f"float32x4_t {n}" for n in names)
            lines = [f"static inline float32x4_t {full}({parameters}) {{"]
            lines += [f"  {line}" for line in [*without_unread(emitter.lines, result), f"return {result};"]]
            self.texts[full] = [*lines, "}"]
        return full


class NeonEmitter:
    """The `Emitter` protocol over `arm_neon.h`."""

    dtype = "f32"

    def __init__(self, functions: NeonRecipes) -> None:
        self.functions = functions
        self.lines: list[str] = []
        self._count = 0
        self._constants: dict[str, str] = {}
        self._integers: set[str] = set()

    def _let(self, ctype: str, expression: str) -> str:
        name = f"t{self._count}"
        self._count += 1
        self.lines.append(f"const {ctype} {name} = {expression};")
        return name

    def _value(self, function: str, *arguments: str) -> str:
        return self._let("float32x4_t", f"{function}({', '.join(arguments)})")

    def _whole(self, function: str, *arguments: str) -> str:
        name = self._let("int32x4_t", f"{function}({', '.join(arguments)})")
        self._integers.add(name)
        return name

    def _mask(self, function: str, *arguments: str) -> str:
        return self._let("uint32x4_t", f"{function}({', '.join(arguments)})")

    def const(self, value: float) -> str:
        text = c_float(value, "f32")
        if text not in self._constants:
            self._constants[text] = self._value("vdupq_n_f32", text)
        return self._constants[text]

    def iconst(self, value: int) -> str:
        value = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        text = f"(int32_t){value % (1 << 32):#x}u" if value < 0 else f"{value:#x}"
        if text not in self._constants:
            self._constants[text] = self._whole("vdupq_n_s32", text)
        return self._constants[text]

    def add(self, x: str, y: str) -> str:
        return self._value("vaddq_f32", x, y)

    def sub(self, x: str, y: str) -> str:
        return self._value("vsubq_f32", x, y)

    def mul(self, x: str, y: str) -> str:
        return self._value("vmulq_f32", x, y)

    def div(self, x: str, y: str) -> str:
        return self._value("vdivq_f32", x, y)

    def fma(self, x: str, y: str, z: str) -> str:
        return self._value("vfmaq_f32", z, x, y)

    def neg(self, x: str) -> str:
        return self._value("vnegq_f32", x)

    def abs(self, x: str) -> str:
        return self._value("vabsq_f32", x)

    def sqrt(self, x: str) -> str:
        return self._value("vsqrtq_f32", x)

    def min(self, x: str, y: str) -> str:
        return self.select(self.lt(x, y), x, y)

    def max(self, x: str, y: str) -> str:
        return self.select(self.gt(x, y), x, y)

    def copysign(self, magnitude: str, sign: str) -> str:
        return self._value("pto_copysign_f32x4", magnitude, sign)

    def round_even(self, x: str) -> str:
        return self._value("vrndnq_f32", x)

    def floor(self, x: str) -> str:
        return self._value("vrndmq_f32", x)

    def trunc(self, x: str) -> str:
        return self._value("vrndq_f32", x)

    def ldexp(self, x: str, n: str) -> str:
        return ldexp_by_parts(self, x, n)  # pyright: ignore[reportArgumentType]

    def lt(self, x: str, y: str) -> str:
        return self._mask("vcltq_f32", x, y)

    def le(self, x: str, y: str) -> str:
        return self._mask("vcleq_f32", x, y)

    def gt(self, x: str, y: str) -> str:
        return self._mask("vcgtq_f32", x, y)

    def ge(self, x: str, y: str) -> str:
        return self._mask("vcgeq_f32", x, y)

    def eq(self, x: str, y: str) -> str:
        return self._mask("vceqq_f32", x, y)

    def ne(self, x: str, y: str) -> str:
        return self.mask_not(self.eq(x, y))

    def mask_and(self, p: str, q: str) -> str:
        return self._mask("vandq_u32", p, q)

    def mask_or(self, p: str, q: str) -> str:
        return self._mask("vorrq_u32", p, q)

    def mask_not(self, p: str) -> str:
        return self._mask("vmvnq_u32", p)

    def select(self, mask: str, x: str, y: str) -> str:
        if x in self._integers or y in self._integers:
            return self._whole("vbslq_s32", mask, x, y)
        return self._value("vbslq_f32", mask, x, y)

    def bits(self, x: str) -> str:
        return self._whole("vreinterpretq_s32_f32", x)

    def from_bits(self, i: str) -> str:
        return self._value("vreinterpretq_f32_s32", i)

    def iadd(self, i: str, j: str) -> str:
        return self._whole("vaddq_s32", i, j)

    def isub(self, i: str, j: str) -> str:
        return self._whole("vsubq_s32", i, j)

    def iand(self, i: str, j: str) -> str:
        return self._whole("vandq_s32", i, j)

    def ior(self, i: str, j: str) -> str:
        return self._whole("vorrq_s32", i, j)

    def ixor(self, i: str, j: str) -> str:
        return self._whole("veorq_s32", i, j)

    def shl(self, i: str, count: int) -> str:
        return self._whole("vshlq_n_s32", i, str(count))

    def lshr(self, i: str, count: int) -> str:
        if count == 0:
            return i
        shifted = self._let("uint32x4_t", f"vshrq_n_u32(vreinterpretq_u32_s32({i}), {count})")
        return self._whole("vreinterpretq_s32_u32", shifted)

    def ashr(self, i: str, count: int) -> str:
        return self._whole("vshrq_n_s32", i, str(count)) if count else i

    def ieq(self, i: str, j: str) -> str:
        return self._mask("vceqq_s32", i, j)

    def ilt(self, i: str, j: str) -> str:
        return self._mask("vcltq_s32", i, j)

    def to_float(self, i: str) -> str:
        return self._value("vcvtq_f32_s32", i)

    def lookup(self, table: Sequence[float], index: str) -> str:
        name = f"t{self._count}"
        self._count += 1
        self.lines.append(f"static const float {name}[] = {{{', '.join(c_float(v, 'f32') for v in table)}}};")
        return self._value("pto_lookup_f32x4", name, index)

    def repeat(self, times: int, body: Callable[..., tuple[str, ...]], *state: str) -> tuple[str, ...]:
        names: list[str] = []
        for value in state:
            name = f"t{self._count}"
            self._count += 1
            self.lines.append(f"float32x4_t {name} = {value};")
            names.append(name)
        self.lines.append(f"for (int step = 0; step < {times}; ++step) {{")
        known = dict(self._constants)
        results = body(self, *names)
        self._constants = known  # what was declared inside ends there
        self.lines += [f"{name} = {result};" for name, result in zip(names, results, strict=True)]
        self.lines.append("}")
        return tuple(names)

    def slow_path(self, mask: str, slow: Callable[..., str], operands: tuple[str, ...], fast: str) -> str:
        name = self.functions.function(slow.__name__, slow, len(operands))
        chosen = f"vbslq_f32({mask}, {name}({', '.join(operands)}), {fast})"
        return self._let("float32x4_t", f"vmaxvq_u32({mask}) != 0 ? {chosen} : {fast}")
