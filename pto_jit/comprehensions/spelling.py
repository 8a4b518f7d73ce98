# SPDX-License-Identifier: MIT
"""Expressions as text, for messages."""

from __future__ import annotations

from pto_jit.comprehensions.nodes import (
    Apply,
    Cast,
    Expression,
    Extent,
    Name,
    Number,
    Pad,
    Read,
    Select,
    Unary,
)

_STRENGTH = {"||": 1, "&&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "|": 4, "^": 4, "&": 4,
             "<<": 5, ">>": 5, "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 9}  # fmt: skip


def spelled(e: Expression) -> str:
    """The expression as a reader would write it: `B(2*i + k)`."""
    return _text(e, 0)


def _text(e: Expression, around: int) -> str:
    if isinstance(e, Number):
        return str(e.value)
    if isinstance(e, Name):
        return e.name
    if isinstance(e, Extent):
        return f"{e.tensor}.{e.axis}"
    if isinstance(e, Read):
        return f"{e.tensor}({', '.join(map(spelled, e.subscripts))})"
    if isinstance(e, Pad):
        return f"pad({spelled(e.read)}, {spelled(e.value)})"
    if isinstance(e, Cast):
        return f"{e.dtype}({spelled(e.operand)})"
    if isinstance(e, Apply):
        return f"{e.name}({', '.join(map(spelled, e.arguments))})"
    if isinstance(e, Unary):
        return f"{e.op}{_text(e.operand, 8)}"
    if isinstance(e, Select):
        text = f"{_text(e.condition, 1)} ? {_text(e.yes, 0)} : {_text(e.no, 0)}"
        return f"({text})" if around else text
    strength = _STRENGTH[e.op]
    space = "" if strength >= 7 else " "
    text = f"{_text(e.left, strength)}{space}{e.op}{space}{_text(e.right, strength + 1)}"
    return f"({text})" if strength < around else text
