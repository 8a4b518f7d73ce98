# SPDX-License-Identifier: MIT
"""Sizes that are numbers or C++ expressions, and tensors as a kernel sees them."""

from __future__ import annotations

from pto_jit.dtypes import DType, i16
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.values import Expr, Size, Value


@frozen
class Tensor:
    """A tensor or view: pointer expression, extents, strides in elements; root: the parameter it is a part of."""

    root: str
    dtype: DType
    pointer: Expr
    extents: tuple[Size, ...]
    strides: tuple[Size, ...]


def product(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 1:
        return b
    if b == 1:
        return a
    if a == 0 or b == 0:
        return 0
    return Expr(f"{atom(a)} * {atom(b)}", names(a) | names(b))


def total(a: Size, b: Size, sign: str = "+") -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return a + b if sign == "+" else a - b
    if b == 0:
        return a
    if a == 0 and sign == "+":
        return b
    right = atom(b) if sign == "-" else text(b)
    return Expr(f"{text(a)} {sign} {right}", names(a) | names(b))


def in_steps(a: Size, step: int) -> Size:
    """How many of so many elements every step-th one is, from the first one on."""
    if step == 1:
        return a
    if isinstance(a, int):
        return -(-a // step)
    return Expr(f"({text(total(a, step - 1))}) / {step}", a.names)


def least(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else Expr(f"smaller({text(a)}, {text(b)})", names(a) | names(b))


def in_words(value: Value, valid: tuple[Size, Size]) -> Value:
    """The bytes of a value, or of its valid part, 16 bits at a time."""
    rows, columns = value.capacity
    times = value.dtype.bytes // 2
    across = value.span in ("column", "one")
    capacity = (rows * times, columns) if across else (rows, columns * times)
    words = (product(valid[0], times), valid[1]) if across else (valid[0], product(valid[1], times))
    return Value(value.name, i16, "column" if value.span == "one" else value.span, capacity, words, value.buffer)


def text(size: Size) -> str:
    return str(size) if isinstance(size, int) else size.text


def names(size: Size) -> frozenset[str]:
    return frozenset() if isinstance(size, int) else size.names


def atom(size: Size) -> str:
    out = text(size)
    return f"({out})" if " " in _outside(out) else out


def _outside(expression: str) -> str:
    """What is not inside parentheses."""
    depth, out = 0, []
    for ch in expression:
        depth += (ch == "(") - (ch == ")")
        if depth == 0:
            out.append(ch)
    return "".join(out)
