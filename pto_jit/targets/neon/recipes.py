# SPDX-License-Identifier: MIT
"""Vector math in NEON intrinsics: the recipes of `targets.vecmath` on four lanes of f32 or two of f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.targets.c.recipes import CRecipes
from pto_jit.targets.c.tidy import without_unread
from pto_jit.targets.c.values import c_float
from pto_jit.targets.source.recipes import FloatName, add_function
from pto_jit.targets.vecmath import RECIPES
from pto_jit.targets.vecmath.emitter import ldexp_by_parts

_LANES = {"f32": 4, "f64": 2}


class Names:
    """The names of vector functions, for asking whether there is one."""

    def call(self, name: str, arguments: Sequence[str], dtype: FloatName) -> str:
        """An expression for the recipe `name` on vectors."""
        return f"pto_{name}_{dtype}x{_LANES[dtype]}({', '.join(arguments)})"


class NeonRecipes(Names):
    """The vector functions of one source file, among its scalar ones."""

    def __init__(self, scalar: CRecipes) -> None:
        self.texts = scalar.texts

    def call(self, name: str, arguments: Sequence[str], dtype: FloatName) -> str:
        """The same; the function is written when it is new."""
        recipe = RECIPES[name]
        self.function(name, recipe.function, recipe.arity, dtype)
        return super().call(name, arguments, dtype)

    def function(
        self, name: str, body: Callable[..., Any], arity: int, dtype: FloatName, head: str = "static inline"
    ) -> str:
        full = f"pto_{name}_{dtype}x{_LANES[dtype]}"
        if full not in self.texts:
            add_function(self.texts, (NeonRecipes, "", full), lambda: self._alone(full, body, arity, dtype, head))
        return full

    def _alone(
        self, full: str, body: Callable[..., Any], arity: int, dtype: FloatName, head: str
    ) -> dict[str, list[str]]:
        """The function in a file of its own."""
        file = NeonRecipes(CRecipes())
        emitter = NeonEmitter(file, dtype)
        names = ["x", "y", "z", "w"][:arity]
        result = body(emitter, *names)
        parameters = ", ".join(f"{emitter.float} {n}" for n in names)
        lines = [f"{head} {emitter.float} {full}({parameters}) {{"]
        lines += [f"  {line}" for line in [*without_unread(emitter.lines, result), f"return {result};"]]
        return {**file.texts, full: [*lines, "}"]}


class NeonEmitter:
    """The `Emitter` protocol over `arm_neon.h`."""

    def __init__(self, functions: NeonRecipes, dtype: FloatName) -> None:
        self.functions = functions
        self.dtype: FloatName = dtype
        self.width = 32 if dtype == "f32" else 64
        self.vector = f"{dtype}x{_LANES[dtype]}"
        self.float, self.int, self.mask = (f"{t}{self.width}x{_LANES[dtype]}_t" for t in ("float", "int", "uint"))
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
        return self._let(self.float, f"{function}({', '.join(arguments)})")

    def _whole(self, function: str, *arguments: str) -> str:
        name = self._let(self.int, f"{function}({', '.join(arguments)})")
        self._integers.add(name)
        return name

    def _mask(self, function: str, *arguments: str) -> str:
        return self._let(self.mask, f"{function}({', '.join(arguments)})")

    def const(self, value: float) -> str:
        text = c_float(value, self.dtype)
        if text not in self._constants:
            self._constants[text] = self._value(f"vdupq_n_f{self.width}", text)
        return self._constants[text]

    def iconst(self, value: int) -> str:
        value %= 1 << self.width
        negative = value >> (self.width - 1)
        text = f"(int{self.width}_t){value:#x}u" if negative else f"{value:#x}"
        text += "ll" if self.width == 64 else ""
        if text not in self._constants:
            self._constants[text] = self._whole(f"vdupq_n_s{self.width}", text)
        return self._constants[text]

    def add(self, x: str, y: str) -> str:
        return self._value(f"vaddq_f{self.width}", x, y)

    def sub(self, x: str, y: str) -> str:
        return self._value(f"vsubq_f{self.width}", x, y)

    def mul(self, x: str, y: str) -> str:
        return self._value(f"vmulq_f{self.width}", x, y)

    def div(self, x: str, y: str) -> str:
        return self._value(f"vdivq_f{self.width}", x, y)

    ratio = div

    def fma(self, x: str, y: str, z: str) -> str:
        return self._value(f"vfmaq_f{self.width}", z, x, y)

    def neg(self, x: str) -> str:
        return self._value(f"vnegq_f{self.width}", x)

    def abs(self, x: str) -> str:
        return self._value(f"vabsq_f{self.width}", x)

    def sqrt(self, x: str) -> str:
        return self._value(f"vsqrtq_f{self.width}", x)

    def min(self, x: str, y: str) -> str:
        return self.select(self.lt(x, y), x, y)

    def max(self, x: str, y: str) -> str:
        return self.select(self.gt(x, y), x, y)

    def copysign(self, magnitude: str, sign: str) -> str:
        return self._value(f"pto_copysign_{self.vector}", magnitude, sign)

    def round_even(self, x: str) -> str:
        return self._value(f"vrndnq_f{self.width}", x)

    def floor(self, x: str) -> str:
        return self._value(f"vrndmq_f{self.width}", x)

    def trunc(self, x: str) -> str:
        return self._value(f"vrndq_f{self.width}", x)

    masks_ldexp = False

    def ldexp(self, x: str, n: str, kept: str | None = None) -> str:
        return ldexp_by_parts(self, x, n)  # pyright: ignore[reportArgumentType]

    def lt(self, x: str, y: str) -> str:
        return self._mask(f"vcltq_f{self.width}", x, y)

    def le(self, x: str, y: str) -> str:
        return self._mask(f"vcleq_f{self.width}", x, y)

    def gt(self, x: str, y: str) -> str:
        return self._mask(f"vcgtq_f{self.width}", x, y)

    def ge(self, x: str, y: str) -> str:
        return self._mask(f"vcgeq_f{self.width}", x, y)

    def eq(self, x: str, y: str) -> str:
        return self._mask(f"vceqq_f{self.width}", x, y)

    def ne(self, x: str, y: str) -> str:
        return self.mask_not(self.eq(x, y))

    def mask_and(self, p: str, q: str) -> str:
        return self._mask(f"vandq_u{self.width}", p, q)

    def mask_or(self, p: str, q: str) -> str:
        return self._mask(f"vorrq_u{self.width}", p, q)

    def mask_not(self, p: str) -> str:
        return self._mask("vmvnq_u32" if self.width == 32 else "pto_not_u64x2", p)

    def select(self, mask: str, x: str, y: str) -> str:
        if x in self._integers or y in self._integers:
            return self._whole(f"vbslq_s{self.width}", mask, x, y)
        return self._value(f"vbslq_f{self.width}", mask, x, y)

    def bits(self, x: str) -> str:
        return self._whole(f"vreinterpretq_s{self.width}_f{self.width}", x)

    def from_bits(self, i: str) -> str:
        return self._value(f"vreinterpretq_f{self.width}_s{self.width}", i)

    def iadd(self, i: str, j: str) -> str:
        return self._whole(f"vaddq_s{self.width}", i, j)

    def isub(self, i: str, j: str) -> str:
        return self._whole(f"vsubq_s{self.width}", i, j)

    def iand(self, i: str, j: str) -> str:
        return self._whole(f"vandq_s{self.width}", i, j)

    def ior(self, i: str, j: str) -> str:
        return self._whole(f"vorrq_s{self.width}", i, j)

    def ixor(self, i: str, j: str) -> str:
        return self._whole(f"veorq_s{self.width}", i, j)

    def shl(self, i: str, count: int) -> str:
        return self._whole(f"vshlq_n_s{self.width}", i, str(count))

    def lshr(self, i: str, count: int) -> str:
        if count == 0:
            return i
        bits = self.width
        shifted = self._let(self.mask, f"vshrq_n_u{bits}(vreinterpretq_u{bits}_s{bits}({i}), {count})")
        return self._whole(f"vreinterpretq_s{bits}_u{bits}", shifted)

    def ashr(self, i: str, count: int) -> str:
        return self._whole(f"vshrq_n_s{self.width}", i, str(count)) if count else i

    def ieq(self, i: str, j: str) -> str:
        return self._mask(f"vceqq_s{self.width}", i, j)

    def ilt(self, i: str, j: str) -> str:
        return self._mask(f"vcltq_s{self.width}", i, j)

    def to_float(self, i: str) -> str:
        return self._value(f"vcvtq_f{self.width}_s{self.width}", i)

    def lookup(self, table: Sequence[float], index: str) -> str:
        name = f"t{self._count}"
        self._count += 1
        items = ", ".join(c_float(v, self.dtype) for v in table)
        self.lines.append(f"static const {'float' if self.width == 32 else 'double'} {name}[] = {{{items}}};")
        return self._value(f"pto_lookup_{self.vector}", name, index)

    def repeat(self, times: int, body: Callable[..., tuple[str, ...]], *state: str) -> tuple[str, ...]:
        names: list[str] = []
        for value in state:
            name = f"t{self._count}"
            self._count += 1
            self.lines.append(f"{self.float} {name} = {value};")
            names.append(name)
        self.lines.append(f"for (int step = 0; step < {times}; ++step) {{")
        known = dict(self._constants)
        results = body(self, *names)
        self._constants = known  # what was declared inside ends there
        self.lines += [f"{name} = {result};" for name, result in zip(names, results, strict=True) if name != result]
        self.lines.append("}")
        return tuple(names)

    def slow_path(self, mask: str, slow: Callable[..., str], operands: tuple[str, ...], fast: str) -> str:
        # apart: the function around it is short then, and becomes part of a loop, whose registers have its constants
        name = self.functions.function(slow.__name__, slow, len(operands), self.dtype, "PTO_SELDOM static")
        chosen = f"vbslq_f{self.width}({mask}, {name}({', '.join(operands)}), {fast})"
        return self._let(self.float, f"pto_any_u{self.width}x{_LANES[self.dtype]}({mask}) ? {chosen} : {fast}")
