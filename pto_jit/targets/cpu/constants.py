# SPDX-License-Identifier: MIT
"""The LLVM types of elements, and constants of them, which are kept as the text that is printed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType

Index = Any  # int | ir.Value of type i64
Value = Any  # ir.Value

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32, F64, F16 = ir.FloatType(), ir.DoubleType(), ir.HalfType()
PTR = ir.PointerType()
VOID = ir.VoidType()
_INTS = {8: I8, 16: ir.IntType(16), 32: I32, 64: I64}
_VECTORS: dict[tuple[ir.Type, int], ir.Type] = {}


def register_type(dtype: DType) -> ir.Type:
    """The LLVM type in which one element is computed with: f16 and bf16 as f32, bool_ as i1."""
    if dtype.kind == "f":
        return F64 if dtype.bits == 64 else F32
    return I1 if dtype.kind == "b" else _INTS[dtype.bits]


def storage_type(dtype: DType) -> ir.Type:
    """The LLVM type of one element in memory: bf16 as i16, bool_ as i8."""
    if dtype.kind == "f":
        return {16: F16 if dtype.name == "f16" else _INTS[16], 32: F32, 64: F64}[dtype.bits]
    return _INTS[dtype.bits]


def vector(element: ir.Type, lanes: int) -> ir.Type:
    """``<lanes x element>``, the element itself for one lane."""
    if lanes == 1:
        return element
    key = (element, lanes)
    if key not in _VECTORS:
        _VECTORS[key] = ir.VectorType(element, lanes)
    return _VECTORS[key]


class Text(ir.Constant):
    """A constant given by its text, which costs nothing to print; llvmlite formats its own constants at each use."""

    def __init__(self, typ: ir.Type, text: str) -> None:
        self.type = typ
        self.constant: Any = text
        self.text = text

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    def get_reference(self) -> str:
        """What llvmlite prints of an operand."""
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and (self.type, self.text) == (other.type, other.text)

    def __hash__(self) -> int:
        return hash(self.text)


def number(typ: ir.Type, value: int | float | bool) -> Text:
    """A constant of a scalar or vector type, the same in every lane."""
    element = typ.element if isinstance(typ, ir.VectorType) else typ
    if isinstance(element, ir.IntType):
        text = str(_signed(int(value), element.width)) if element.width > 1 else "true" if value else "false"
    elif element == F64:
        text = f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016x}"
    else:
        assert element == F32, element
        text = f"0x{struct.unpack('<Q', struct.pack('<d', _to_f32(float(value))))[0]:016x}"
    if element is typ:
        return Text(typ, text)
    return Text(typ, f"splat ({element} {text})")


def nan(typ: ir.Type) -> Text:
    """A NaN of f32 or f64 in every lane, all of whose bits are set: selected by a mask it is one `or` with the mask."""
    element = typ.element if isinstance(typ, ir.VectorType) else typ
    bits = "0xffffffffffffffff" if element == F64 else "0xffffffffe0000000"  # LLVM writes an f32 as an f64
    return Text(typ, bits if element is typ else f"splat ({element} {bits})")


def constant_of(value: Value) -> int | None:
    """The whole number that every lane of a constant made by `number` has; None for anything else."""
    if not isinstance(value, Text):
        return None
    element = value.type.element if isinstance(value.type, ir.VectorType) else value.type
    digits = value.text.removeprefix(f"splat ({element} ").removesuffix(")")
    return int(digits) if isinstance(element, ir.IntType) and digits.removeprefix("-").isdecimal() else None


def _signed(value: int, bits: int) -> int:
    """The number that the lowest bits of `value` stand for in two's complement, as LLVM prints integers."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def _to_f32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def zero(typ: ir.Type) -> Text:
    """0, 0.0, false or the null pointer; of a vector type in every lane."""
    if isinstance(typ, ir.VectorType):
        return Text(typ, "zeroinitializer")
    return Text(typ, "null" if typ == PTR else "0" if isinstance(typ, ir.IntType) else "0.0")


@cache
def numbers(element: ir.IntType, values: Sequence[int]) -> Text:
    """A constant vector of integers."""
    text = ", ".join(f"{element} {_signed(v, element.width)}" for v in values)
    out = Text(vector(element, len(values)), f"<{text}>")
    out.constant = ()  # as the mask of a shuffle: nothing for llvmlite to check
    return out


def undefined(typ: ir.Type) -> Text:
    """A vector whose lanes are all still to be set."""
    return Text(typ, "poison")


def i64(value: Index) -> Value:
    """An index as an operand of an instruction."""
    return _i64(value) if isinstance(value, int) else value


@lru_cache(4096)
def _i64(value: int) -> Text:
    """The same few numbers, over and over."""
    return number(I64, value)
