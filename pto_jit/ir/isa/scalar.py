# SPDX-License-Identifier: MIT
"""Scalar instructions, for in-core and orchestration functions alike."""

from __future__ import annotations

from pto_jit.dtypes import DType, bool_
from pto_jit.ir.isa.elementwise import COMPARISONS, condition, convert, divide
from pto_jit.ir.isa.row import (
    Emit,
    Expand,
    Given,
    Instruction,
    Last,
    alike,
    converted,
    declared_dtype,
    default_dtype,
    instruction,
    mode_among,
    one,
)
from pto_jit.ir.nodes import Const, Operand, Var


def joined(e: Emit, *args: Given) -> list[Operand]:
    """Operands of one dtype: integers of different ones (a loop variable and a parameter) meet in the wider one."""
    dtypes = {arg.type.dtype for arg in args if isinstance(arg, (Var, Const))}
    if len(dtypes) < 2 or not all(dtype.is_integer for dtype in dtypes):
        return alike(e, *args)
    wide: DType = max(dtypes, key=lambda dtype: (dtype.bits, dtype.is_signed))
    made = [e.scalar(arg, wide) for arg in args]
    return [arg if arg.type.dtype == wide else e("cast", arg, dtype=wide) for arg in made]


def arithmetic(op: str) -> Expand:
    def expand(e: Emit, a: Given, b: Given) -> Last:
        left, right = joined(e, a, b)
        last: Last = divide(e, left, right) if op == "div" else (op, (left, right), {})
        wanted = declared_dtype(e)
        both = wanted is not None and wanted.is_integer and left.type.dtype.is_integer
        return converted(e, left.type.dtype, last) if both else last

    return expand


def compare(e: Emit, a: Given, b: Given, mode: str) -> Last:
    return converted(e, bool_, (mode_among("scalar_cmp", mode, COMPARISONS), joined(e, a, b), {}))


def immediate(e: Emit, value: Given) -> Last:
    dtype = declared_dtype(e)
    if isinstance(value, (Var, Const)):
        return "copy", (value,), {}
    return "copy", (e.scalar(value, default_dtype(value) if dtype is None else dtype),), {}


def choose(e: Emit, mask: Given, a: Given, b: Given) -> Last:
    return "select", (condition(e, mask), *joined(e, a, b)), {}


_BINARY = {
    "add": ("add", "a + b"), "sub": ("sub", "a - b"), "mul": ("mul", "a * b"),
    "div": ("div", "a / b; of integers rounded towards zero"), "rem": ("mod", "a % b with the sign of b"),
    "max": ("max", "the larger of a and b"), "min": ("min", "the smaller of a and b"),
    "and": ("and", "bitwise a and b"), "or": ("or", "bitwise a or b"), "xor": ("xor", "bitwise a exclusive or b"),
    "shl": ("shl", "a shifted left by b"), "shr": ("shr", "a shifted right by b"),
}  # fmt: skip
_UNARY = {
    "neg": ("neg", "-x"), "abs": ("abs", "|x|"), "not": ("not", "the bitwise complement of x"),
    "exp": ("exp", "e to the x"), "log": ("log", "the natural logarithm of x"),
    "sqrt": ("sqrt", "the square root of x"), "rsqrt": ("rsqrt", "1 / sqrt(x)"), "recip": ("reciprocal", "1 / x"),
}  # fmt: skip

ROWS: tuple[Instruction, ...] = (
    instruction("scalar_li", "scalar", "D:dst s:value", immediate, "dst = a number"),
    instruction("scalar_mov", "scalar", "D:dst s:x", immediate, "dst = x"),
    *(instruction(f"scalar_{name}", "scalar", "D:dst s:a s:b", arithmetic(op), f"dst = {doc}")
      for name, (op, doc) in _BINARY.items()),
    *(instruction(f"scalar_{name}", "scalar", "D:dst s:x", one(op), f"dst = {doc}")
      for name, (op, doc) in _UNARY.items()),
    instruction("scalar_cmp", "scalar", "D:dst s:a s:b w:mode=eq", compare,
                "dst = whether a and b compare so: eq ne lt le gt ge"),
    instruction("scalar_select", "scalar", "D:dst s:cond s:a s:b", choose, "dst = a if cond is not zero, else b"),
    instruction("scalar_cvt", "scalar", "D:dst s:x w:mode=rint", convert,
                "dst = x in the dtype of dst; floats become integers by rint, round, floor, ceil or trunc"),
    instruction("scalar_load", "scalar", "D:dst x:memref i:row=0 i:col=0",
                lambda e, x, row, col: ("getelem", (x, row, col), {}), "dst = one element of a memref"),
    instruction("scalar_store", "scalar", "x:memref s:value i:row=0 i:col=0",
                lambda e, x, value, row, col: ("setelem", (e.scalar(value, x.type.dtype), x, row, col), {}),
                "one element of a memref = value"),
)  # fmt: skip
