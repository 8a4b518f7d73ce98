# SPDX-License-Identifier: MIT
"""Elementwise instructions: arithmetic, activations, comparisons, conversions."""

from __future__ import annotations

from pto_jit.dtypes import bool_
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.isa.row import (
    Emit,
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

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ROUNDINGS = ("none", "rint", "round", "floor", "ceil", "trunc")


def divide(e: Emit, a: Given, b: Given) -> Last:
    """a / b; of integers the quotient rounded towards zero, as in C."""
    left, right = alike(e, a, b)
    if left.type.dtype.is_float:
        return "div", (left, right), {}
    rest = e("fmod", left, right)
    return "floordiv", (e("sub", left, rest), right), {}


def multiply_add(e: Emit, a: Operand, b: Operand, c: Operand) -> Last:
    """a * b + c, rounded once where the dtype has fractions."""
    if a.type.dtype.is_float:
        return "fma", (a, b, c), {}
    return "add", (e("mul", a, b), c), {}


def relu_of(e: Emit, last: Last) -> Last:
    op, args, attrs = last
    return "relu", (e(op, *args, **attrs),), {}


def compare(e: Emit, a: Given, b: Given, mode: str) -> Last:
    return converted(e, bool_, (mode_among("cmp", mode, COMPARISONS), alike(e, a, b), {}))


def condition(e: Emit, mask: Given) -> Operand:
    """A mask as bool_: it holds where it is not zero."""
    if not isinstance(mask, (Var, Const)):
        return e.scalar(mask != 0, bool_)
    if mask.type.dtype == bool_:
        return mask
    return e("ne", mask, e.scalar(0, mask.type.dtype))


def select(e: Emit, mask: Given, a: Given, b: Given) -> Last:
    return "select", (condition(e, mask), *alike(e, a, b)), {}


def prelu(e: Emit, x: Operand, slope: Given) -> Last:
    """x where it is positive, else x * slope."""
    _, factor = alike(e, x, slope)
    positive = e("gt", x, e.scalar(0, x.type.dtype))
    return "select", (positive, x, e("mul", x, factor)), {}


def convert(e: Emit, x: Given, mode: str = "rint") -> Last:
    """x in the dtype of the destination; the mode says how fractions go."""
    word, wanted = mode_among("cvt", mode, ROUNDINGS), declared_dtype(e)
    if wanted is None:
        raise TypeMismatchError(
            "`cvt`: the dtype of the result is not known",
            code="PTO-T196",
            hint="declare the destination with its dtype",
        )
    if not isinstance(x, (Var, Const)):
        x = e.scalar(x, default_dtype(x))
    if x.type.dtype.is_float and wanted.is_integer:
        if word == "round":  # halves away from zero
            up = e("floor", e("add", e("abs", x), e.scalar(0.5, x.type.dtype)))
            x = e("mul", e("sign", x), up)
        elif word != "trunc":
            x = e("round" if word in ("none", "rint") else word, x)
    elif word not in ("none", "rint"):
        raise TypeMismatchError(
            f"`cvt` from {x.type.dtype} to {wanted} has no mode {mode!r}",
            code="PTO-T197",
            hint="modes other than rint are for conversions of floats to integers",
        )
    return "cast", (x,), {"dtype": wanted}


def quantise(e: Emit, x: Operand, scale: Given, offset: Given) -> Last:
    """round(x * scale + offset) in the dtype of the destination."""
    value, factor, shift = alike(e, x, scale, offset)
    op, args, attrs = multiply_add(e, value, factor, shift)
    return convert(e, e(op, *args, **attrs))


def dequantise(e: Emit, x: Operand, scale: Given, offset: Given) -> Last:
    """(x - offset) * scale in the dtype of the destination."""
    wanted = declared_dtype(e)
    if wanted is None or not wanted.is_float:
        raise TypeMismatchError(
            "`dequant` gives floats", code="PTO-T198", hint="declare the destination with a floating-point dtype"
        )
    value = e("cast", x, dtype=wanted)
    return "mul", (e("sub", value, e.scalar(offset, wanted)), e.scalar(scale, wanted)), {}


def _binary(name: str, op: str, doc: str) -> tuple[Instruction, Instruction]:
    """An instruction of two tiles, and the one of a tile and a scalar, which has an `s` behind its name."""
    expand = divide if op == "div" else one(op)
    pair = "o:a o:b" if op in ("div", "sub") else "t:a s:b"
    return (
        instruction(name, "arithmetic", "T:dst t:a t:b", expand, f"dst = {doc}"),
        instruction(f"{name.removesuffix('_')}s", "arithmetic", f"T:dst {pair}", expand,
                    f"dst = {doc}, one of them a scalar" if pair[0] == "o" else f"dst = {doc}, b a scalar"),
    )  # fmt: skip


_BINARY = {
    "add": ("add", "a + b"),
    "sub": ("sub", "a - b"),
    "mul": ("mul", "a * b"),
    "div": ("div", "a / b; of integers rounded towards zero"),
    "max": ("max", "the larger of a and b, NaN if one is NaN"),
    "min": ("min", "the smaller of a and b, NaN if one is NaN"),
    "rem": ("mod", "a % b with the sign of b"),
    "fmod": ("fmod", "the remainder of a / b with the sign of a"),
    "pow": ("pow", "a ** b"),
    "and_": ("and", "bitwise a and b"),
    "or_": ("or", "bitwise a or b"),
    "xor": ("xor", "bitwise a exclusive or b"),
    "shl": ("shl", "a shifted left by b"),
    "shr": ("shr", "a shifted right by b, arithmetic on signed integers"),
}
_UNARY = {
    "abs": ("abs", "|x|"),
    "neg": ("neg", "-x"),
    "not_": ("not", "the bitwise complement of x"),
    "sign": ("sign", "-1, 0 or 1"),
    "square": ("square", "x * x"),
    "exp": ("exp", "e to the x"),
    "exp2": ("exp2", "2 to the x"),
    "expm1": ("expm1", "exp(x) - 1, accurate near 0"),
    "log": ("log", "the natural logarithm of x"),
    "log2": ("log2", "the logarithm of x to base 2"),
    "log1p": ("log1p", "log(1 + x), accurate near 0"),
    "sqrt": ("sqrt", "the square root of x"),
    "rsqrt": ("rsqrt", "1 / sqrt(x)"),
    "recip": ("reciprocal", "1 / x"),
    "sin": ("sin", "the sine of x"),
    "cos": ("cos", "the cosine of x"),
    "tan": ("tan", "the tangent of x"),
    "tanh": ("tanh", "the hyperbolic tangent of x"),
    "erf": ("erf", "the error function of x"),
    "relu": ("relu", "max(x, 0)"),
    "sigmoid": ("sigmoid", "1 / (1 + exp(-x))"),
    "silu": ("silu", "x * sigmoid(x)"),
    "floor": ("floor", "x rounded down"),
    "ceil": ("ceil", "x rounded up"),
    "round": ("round", "x rounded to the nearest whole number, halves to even"),
    "trunc": ("trunc", "x rounded towards zero"),
}
OPERATIONS = frozenset(op for name, (op, _) in (_BINARY | _UNARY).items() if op == name.removesuffix("_")) | {
    "gelu", "sort", "argsort", "topk", "select",
}  # fmt: skip

ROWS: tuple[Instruction, ...] = (
    *(row for name, (op, doc) in _BINARY.items() for row in _binary(name, op, doc)),
    *(instruction(name, "activation", "T:dst t:x", one(op), f"dst = {doc}") for name, (op, doc) in _UNARY.items()),
    instruction("gelu", "activation", "T:dst t:x w:approximate=none", lambda e, x, approximate: (
        "gelu", (x,), {"approximate": mode_among("gelu", approximate, ("none", "tanh"))}),
        'dst = x times the normal distribution function of x; approximate: "none" or "tanh"'),
    instruction("lrelu", "activation", "T:dst t:x s:slope", prelu, "dst = x where x > 0, else x * slope"),
    instruction("prelu", "activation", "T:dst t:x t:slope", prelu, "dst = x where x > 0, else x * slope, elementwise"),
    instruction("addc", "arithmetic", "T:dst t:a t:b t:c", lambda e, a, b, c: ("add", (e("add", a, b), c), {}),
                "dst = a + b + c"),
    instruction("subc", "arithmetic", "T:dst t:a t:b t:c", lambda e, a, b, c: ("add", (e("sub", a, b), c), {}),
                "dst = a - b + c"),
    instruction("addsc", "arithmetic", "T:dst t:a s:s t:b", lambda e, a, s, b: (
        "add", (e("add", *alike(e, a, s)), b), {}), "dst = a + s + b"),
    instruction("subsc", "arithmetic", "T:dst t:a s:s t:b", lambda e, a, s, b: (
        "add", (e("sub", *alike(e, a, s)), b), {}), "dst = a - s + b"),
    instruction("axpy", "arithmetic", "T:dst t:x s:s", lambda e, x, s: multiply_add(e, x, alike(e, x, s)[1], e.old()),
                "dst = dst + s * x"),
    instruction("fusedmuladd", "arithmetic", "T:dst t:a t:b", lambda e, a, b: multiply_add(e, e.old(), a, b),
                "dst = dst * a + b"),
    instruction("fusedmuladdrelu", "arithmetic", "T:dst t:a t:b",
                lambda e, a, b: relu_of(e, multiply_add(e, e.old(), a, b)), "dst = max(dst * a + b, 0)"),
    instruction("muladddst", "arithmetic", "T:dst t:a t:b", lambda e, a, b: multiply_add(e, a, b, e.old()),
                "dst = a * b + dst"),
    instruction("addrelu", "arithmetic", "T:dst t:a t:b", lambda e, a, b: ("relu", (e("add", a, b),), {}),
                "dst = max(a + b, 0)"),
    instruction("subrelu", "arithmetic", "T:dst t:a t:b", lambda e, a, b: ("relu", (e("sub", a, b),), {}),
                "dst = max(a - b, 0)"),
    instruction("addreluconv", "arithmetic", "T:dst t:a t:b", lambda e, a, b: convert(e, e("relu", e("add", a, b))),
                "dst = max(a + b, 0) in the dtype of dst"),
    instruction("subreluconv", "arithmetic", "T:dst t:a t:b", lambda e, a, b: convert(e, e("relu", e("sub", a, b))),
                "dst = max(a - b, 0) in the dtype of dst"),
    instruction("cmp", "comparison", "T:dst t:a t:b w:mode=eq", compare,
                "dst = whether a and b compare so: eq ne lt le gt ge"),
    instruction("cmps", "comparison", "T:dst t:a s:b w:mode=eq", compare,
                "dst = whether a and the scalar b compare so: eq ne lt le gt ge"),
    instruction("sel", "comparison", "T:dst t:mask t:a t:b", select, "dst = a where the mask holds, else b"),
    instruction("sels", "comparison", "T:dst t:mask o:a o:b", select,
                "dst = a where the mask holds, else b, one of them a scalar"),
    instruction("cvt", "conversion", "T:dst t:x w:mode=rint", convert,
                "dst = x in the dtype of dst; floats become integers by rint (halves to even), round (halves away from "
                "zero), floor, ceil or trunc"),
    instruction("quant", "conversion", "T:dst t:x o:scale o:offset=0", quantise,
                "dst = round(x * scale + offset) in the dtype of dst"),
    instruction("dequant", "conversion", "T:dst t:x o:scale o:offset=0", dequantise,
                "dst = (x - offset) * scale in the dtype of dst"),
)  # fmt: skip
