# SPDX-License-Identifier: MIT
"""Sizes that are numbers or C++ expressions, and tensors as a kernel sees them."""

from __future__ import annotations

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.values import Expr, Size


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


def least(a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else Expr(f"smaller({text(a)}, {text(b)})", names(a) | names(b))


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
