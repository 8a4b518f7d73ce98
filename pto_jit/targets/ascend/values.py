# SPDX-License-Identifier: MIT
"""Tiles of the program as values of a vector core: what they span, how far they are valid, where they lie.

A tile has two axes here: leading axes of extent 1 are left out, a tile of one axis is a row.  One whose last axis is a
constant 1 is a *column*, whose elements lie one after the other: row reductions write it column-major and row
broadcasts read it so, while elementwise instructions take the same bytes as a row.  Nothing is copied in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen, mutable
from pto_jit.targets.ascend.form import Buffer
from pto_jit.targets.ascend.machine import padded

Span = Literal["full", "row", "column", "one"]
"""Which axes a value has more than one element along."""


@frozen
class Expr:
    """An integer that the kernel computes; `names`: the variables it reads."""

    text: str
    names: frozenset[str]


Size = int | Expr


def row_axis(shape: Sequence[int | None]) -> int | None:
    """Which axis of a tile of several axes is its rows: the one before the last, or the only longer one before it; None
    where there are more of them."""
    long = [k for k, n in enumerate(shape[:-1]) if n != 1]
    return len(shape) - 2 if not long else long[0] if len(long) == 1 else None


def joint(spans: list[Span]) -> Span:
    """What values span that are broadcast against each other."""
    rows = any(s in ("full", "column") for s in spans)
    columns = any(s in ("full", "row") for s in spans)
    return "full" if rows and columns else "column" if rows else "row" if columns else "one"


def span_of(rows: int, columns: int) -> Span:
    """Of declared extents; those that are not constant are given as 0."""
    return ("one" if columns == 1 else "row") if rows == 1 else ("column" if columns == 1 else "full")


@mutable(eq=False)
class Value:
    """dtype: of an element, `bool_` for a mask (one bit per element); capacity: rows and columns there is memory for;
    valid: rows and columns that count; free: per axis, whether it fits whatever it meets (generated values)."""

    name: str
    dtype: DType
    span: Span
    capacity: tuple[int, int]
    valid: tuple[Size, Size]
    buffer: Buffer
    free: tuple[bool, bool] = (False, False)
    given: bool = False  # belongs to a variable that is assigned again: its memory is not for others

    @property
    def is_mask(self) -> bool:
        return self.dtype.kind == "b"


def lying(span: Span, extents: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the row-major tile over a value: columns lie along a row."""
    return (1, extents[0]) if span in ("column", "one") else extents


def physical(dtype: DType, span: Span, capacity: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns, whole blocks, of the row-major tile that holds a value."""
    return _physical(0 if dtype.kind == "b" else dtype.bits, span, capacity)


@cache
def _physical(bits: int, span: Span, capacity: tuple[int, int]) -> tuple[int, int]:
    """bits: of an element; 0 for truth values."""
    rows, columns = lying(span, capacity)
    if not bits:  # comparisons write 64 at a time
        return rows, padded(-(-columns // 64) * 8, 1)
    return rows, padded(columns, bits // 8)


def bytes_of(dtype: DType, span: Span, capacity: tuple[int, int]) -> int:
    rows, columns = physical(dtype, span, capacity)
    return rows * columns * (1 if dtype.kind == "b" else dtype.bits // 8)
