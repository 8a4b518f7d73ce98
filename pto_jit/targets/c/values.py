# SPDX-License-Identifier: MIT
"""Values of generated C: expressions over names that never change once they are declared.

Every value has the LLVM type that the CPU target gives it (`type`), by which the shared writers tell integers, truth
values and pointers apart, and the C type of its expression (`ctype`).  64-bit integers are polynomials over names, so
that places in memory come out as `x[i * x_s0 + j]`, whatever order and unit they were computed in.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.constants import F32, F64, I1, I32, I64, PTR, Text
from pto_jit.targets.source.recipes import float_literal

ATOM, UNARY, MUL, ADD, SHIFT, RELATION, EQUALITY, BIT_AND, BIT_XOR, BIT_OR, AND, OR, CHOICE = range(16, 3, -1)
"""Levels of C operators, from those that bind most tightly."""
Monomial = tuple[str, ...]
Polynomial = Mapping[Monomial, int]

_C_TYPES = {
    "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double", "bool_": "bool",
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
}  # fmt: skip
SIZES = {"uint16_t": 2, "float": 4, "double": 8, "bool": 1, "int8_t": 1, "int16_t": 2, "int32_t": 4, "int64_t": 8,
         "uint8_t": 1, "uint32_t": 4, "uint64_t": 8, "char": 1}  # fmt: skip


def memory_ctype(dtype: DType) -> str:
    """The C type of an element in memory: 16-bit floats as their bits."""
    return _C_TYPES[dtype.name]


def register_ctype(dtype: DType) -> str:
    """The C type that an element is computed with."""
    return "float" if dtype.kind == "f" and dtype.bits == 16 else _C_TYPES[dtype.name]


def ctype_of(typ: Any) -> str:
    """The C type that stands for an LLVM type where no dtype says more."""
    if typ is I64:
        return "int64_t"
    width = getattr(typ, "width", None)
    if width is not None:
        return "bool" if width == 1 else f"int{width}_t"
    return "float" if typ is F32 else "double" if typ is F64 else "void *" if typ == PTR else "uint16_t"


class CValue:
    """An expression: its text, how tightly it binds, and for 64-bit integers its polynomial."""

    __slots__ = ("_level", "_shown", "_text", "ctype", "opposite", "poly", "type")

    def __init__(
        self, typ: Any, text: str = "", level: int = ATOM, *, ctype: str | None = None,
        poly: Polynomial | None = None, opposite: str = "",
    ) -> None:  # fmt: skip
        self.type = typ
        self.ctype = ctype or ("int64_t" if typ is I64 else ctype_of(typ))
        self._text, self._level = text, level
        self.opposite = opposite  # of a comparison: the text of its negation
        self.poly = poly
        self._shown: tuple[str, int] | None = None  # of the polynomial
        if poly is None and typ is I64:
            text = text if level >= UNARY else f"({text})"
            self.poly = {(text,): 1}
            self._shown = text, _level_of_name(text)

    @property
    def text(self) -> str:
        if self.poly is None:
            return self._text
        shown = self._shown
        if shown is None:
            shown = self._shown = polynomial_text(self.poly)
        return shown[0]

    @property
    def level(self) -> int:
        if self.poly is None:
            return self._level
        if self._shown is None:
            self._shown = polynomial_text(self.poly)
        return self._shown[1]

    def at(self, level: int) -> str:
        """The text as an operand of an operator of this level."""
        text = self.text
        return text if self.level >= level else f"({text})"

    def rename(self, name: str) -> None:
        """Be the variable `name`, which holds the value (not for 64-bit integers)."""
        self._text, self._level, self.opposite = name, ATOM, ""

    @property
    def name(self) -> str | None:
        """The name that this value is, or None."""
        text = self.text
        return text if text.isidentifier() else None

    def __repr__(self) -> str:
        return f"<{self.ctype} {self.text}>"


class CPointer(CValue):
    """`base + place`: `element` is the C type of what lies there, "" for bytes; `place` counts elements (or bytes)."""

    __slots__ = ("base", "element", "place")

    def __init__(self, base: str, element: str, place: Polynomial | None = None) -> None:
        self.base, self.element, self.place = base, element, place or {}
        self.type, self.ctype, self.opposite, self.poly = PTR, f"{element or 'void'} *", "", None

    @property
    def text(self) -> str:
        if not self.place:
            return self.base
        where = polynomial_text(self.place)[0]
        joined = f"- {where[1:]}" if where.startswith("-") else f"+ {where}"
        return f"{self.base} {joined}" if self.element else f"(char *){self.base} {joined}"

    @property
    def level(self) -> int:
        return ADD if self.place else ATOM

    def moved(self, distance: Polynomial) -> CPointer:
        """Moved by a number of bytes."""
        size = SIZES[self.element] if self.element else 1
        if all(c % size == 0 for c in distance.values()):
            step = {m: c // size for m, c in distance.items()}
            return CPointer(self.base, self.element, plus(self.place, step))
        start = {m: c * size for m, c in self.place.items()}
        return CPointer(self.base, "", plus(start, distance))

    def stepped(self, count: Polynomial, stride: int) -> CPointer:
        """Moved by `count` times so many bytes."""
        elements, rest = divmod(stride, SIZES[self.element] if self.element else 1)
        if rest:
            return self.moved({m: c * stride for m, c in count.items()})
        step = count if elements == 1 else {m: c * elements for m, c in count.items()}
        return CPointer(self.base, self.element, plus(self.place, step) if self.place else step)

    def element_text(self, ctype: str) -> str:
        """The element of a C type that lies here, as something to read or assign."""
        if self.element == ctype:
            where = polynomial_text(self.place)[0] if self.place else "0"
            return f"{self.base}[{where}]"
        start = f"({self.text})" if self.place else self.base
        return f"*({ctype} *){start}"


class CSlot(CValue):
    """A variable of the generated function that is assigned more than once."""

    __slots__ = ("variable",)

    def __init__(self, variable: str, ctype: str) -> None:
        self.variable = variable
        super().__init__(PTR, f"&{variable}", UNARY, ctype=f"{ctype} *")

    @property
    def holds(self) -> str:
        """The C type of the variable."""
        return self.ctype.removesuffix(" *")


# -- polynomials -------------------------------------------------------------------------------------------------------


def plus(x: Polynomial, y: Polynomial, sign: int = 1) -> Polynomial:
    out = dict(x)
    for m, c in y.items():
        total = out.get(m, 0) + sign * c
        if total:
            out[m] = total
        else:
            out.pop(m, None)
    return out


def times(x: Polynomial, y: Polynomial) -> Polynomial:
    if len(y) == 1 and () in y:  # by a constant: most are sizes of elements
        factor = y[()]
        return {m: c * factor for m, c in x.items()} if factor else {}
    out: dict[Monomial, int] = {}
    for m, c in x.items():
        for n, d in y.items():
            key = tuple(sorted((*m, *n)))
            out[key] = out.get(key, 0) + c * d
            if not out[key]:
                del out[key]
    return out


def polynomial_text(poly: Polynomial) -> tuple[str, int]:
    """A polynomial as C and the level of its operator."""
    return sum_text(tuple(poly.items()))


@lru_cache(maxsize=1024)
def sum_text(terms: tuple[tuple[Monomial, int], ...]) -> tuple[str, int]:
    """`polynomial_text` of these terms, of which it is a function alone; a kernel asks for few different ones."""
    if not terms:
        return "0", ATOM
    terms = tuple([(n, 2**63 if f == -(2**63) else f) for n, f in terms])  # equal modulo 2**64, and C can write it
    if len(terms) == 1:
        ((names, factor),) = terms
        if not names:
            return integer_text(factor), ATOM if factor >= 0 else UNARY
        return _first_term(names, factor)
    ordered = [term for term in terms if term[0] and term[1] > 0]  # what is added comes first
    ordered += [term for term in terms if not term[0]]
    ordered += [term for term in terms if term[0] and term[1] < 0]
    text = _first_term(*ordered[0])[0]
    for names, factor in ordered[1:]:
        text += f" - {_product(names, -factor)}" if factor < 0 else f" + {_product(names, factor)}"
    return text, ADD


def _first_term(names: Monomial, factor: int) -> tuple[str, int]:
    """A term with its sign, and the level of its operator."""
    text = _product(names, abs(factor))
    if factor < 0:
        return f"-{text}", UNARY if factor == -1 and len(names) == 1 else MUL
    if factor != 1 or len(names) > 1:
        return text, MUL if names else ATOM
    return text, _level_of_name(text)


def _level_of_name(text: str) -> int:
    """The level of what stands for a name in a polynomial: a name, a call, or an expression in parentheses."""
    return UNARY if text.startswith("(") else ATOM


def _product(names: Monomial, factor: int) -> str:
    if not names:
        return integer_text(factor)
    text = names[0] if len(names) == 1 else " * ".join(names)
    return text if factor == 1 else f"{integer_text(factor)} * {text}"


def integer_text(value: int) -> str:
    """A 64-bit integer constant; 2**63 wraps to -2**63."""
    if abs(value) == 2**63:
        return "(-0x7fffffffffffffffll - 1)"
    return str(int(value)) if -(2**31) < value < 2**31 else f"{value}ll"


# -- what the shared writers hand in -----------------------------------------------------------------------------------


_INTEGERS = tuple([CValue(I64, poly={(): n} if n else {}) for n in range(257)])  # that are asked for all the time


def lift(value: Any) -> CValue:
    """A value, also one given as a Python int or as a constant of the CPU target."""
    if isinstance(value, CValue):
        return value
    if isinstance(value, int):
        return _INTEGERS[value] if 0 <= value < len(_INTEGERS) else CValue(I64, poly={(): value})
    assert isinstance(value, Text), value
    typ, text = value.type, value.text
    if typ is I1:
        return CValue(I1, text)
    if typ == PTR:
        return CPointer("NULL", "")
    if typ is F32 or typ is F64:
        number = struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0] if text.startswith("0x") else float(text)
        return float_constant(number, typ)
    number = int(text)
    if typ is I64:
        return lift(number)
    if typ is I32 and number == -(2**31):
        return CValue(I32, "(-0x7fffffff - 1)")
    return CValue(typ, str(number), ATOM if number >= 0 else UNARY)


def float_constant(number: float, typ: Any) -> CValue:
    """A constant of type float or double."""
    text = c_float(number, "f64" if typ is F64 else "f32")
    return CValue(typ, text, UNARY if text.startswith("-") else ATOM)


def c_float(number: float, dtype: str) -> str:
    """A constant as C11 writes it."""
    if number != number:
        return "NAN" if dtype != "f64" else "(double)NAN"
    if number in (float("inf"), float("-inf")):
        return "INFINITY" if number > 0 else "-INFINITY"
    text = float_literal(number, dtype)
    return text.replace("pto::infinity_of<float>()", "INFINITY").replace("pto::infinity_of<double>()", "INFINITY")
