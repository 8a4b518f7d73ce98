# SPDX-License-Identifier: MIT
"""Tiles while a kernel is written: where their elements are, and how much of each axis is valid."""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.slotted import frozen, replace

ErrorName = str


@frozen
class Site:
    """A place that can fail while running: the error's name, its message over {0} {1}, and where it is."""

    error: ErrorName
    message: str
    loc: Loc


@frozen
class Axis:
    """One axis of a tile, as C expressions.

    unit: its extent is the constant 1, so it follows any other; capacity: a compile-time number that `declared` does
    not exceed; valid: how many are valid, at most `declared`; fits: generated, so that it fits any valid extent.
    """

    unit: bool
    capacity: str
    declared: str
    valid: str
    fits: bool = False

    @property
    def full(self) -> bool:
        return self.valid == self.declared


UNIT = Axis(True, "1", "1", "1")


@frozen
class Tile:
    """A tile value: `element(i, j)` is its C expression for slot (i, j).

    rank 1 stands for one row (`standing`: for one column).  `array` is the name when it lies in an array of its own.
    """

    dtype: DType
    rank: int
    rows: Axis
    columns: Axis
    element: Callable[[str, str], str]
    array: str | None = None
    standing: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes as the program counts them."""
        if self.rank == 1:
            return (self.rows,) if self.standing else (self.columns,)
        return (self.rows, self.columns)

    @property
    def is_unit(self) -> bool:
        """Whether all threads hold the only element."""
        return self.rows.unit and self.columns.unit

    def with_element(self, array: str) -> Tile:
        return replace(self, element=in_array(array, self.rows.unit, self.columns.unit), array=array)


def in_array(name: str, unit_row: bool, unit_column: bool) -> Callable[[str, str], str]:
    """Elements of `name[NR][NC]`."""
    return lambda i, j: f"{name}[{'0' if unit_row else i}][{'0' if unit_column else j}]"
