# SPDX-License-Identifier: MIT
"""Tiles while a kernel is written: where their elements are, and how much of each axis is valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.slotted import field, frozen, replace

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
    not exceed; valid: how many are valid, at most `declared`; fits: generated, so that it fits any valid extent;
    parts: the axes of the program that it stands for, when it is several (`merged`).
    """

    unit: bool
    capacity: str
    declared: str
    valid: str
    fits: bool = False
    parts: tuple[Axis, ...] = field(default=())

    @property
    def full(self) -> bool:
        return self.valid == self.declared


UNIT = Axis(True, "1", "1", "1")


def sized(axis: Axis) -> Axis:
    """An axis of what was computed otherwise than elementwise: it fits no other extent."""
    return replace(axis, fits=False, parts=tuple([sized(a) for a in axis.parts])) if axis.fits or axis.parts else axis


def times(factors: Iterable[str]) -> str:
    """The product of C expressions of which none is negative."""
    known, others = 1, []
    for text in factors:
        if text.isdigit():
            known *= int(text)
        else:
            others.append(f"({text})" if " " in text and text[0] != "(" else text)
    if not others:
        return str(known)
    texts = [*([str(known)] if known != 1 else []), *others]
    return texts[0] if len(texts) == 1 else f"({' * '.join(texts)})"


def total(terms: Iterable[str]) -> str:
    """The sum of C expressions."""
    known, others = 0, []
    for text in terms:
        if text.isdigit():
            known += int(text)
        else:
            others.append(text)
    texts = [*others, *([str(known)] if known or not others else [])]
    return texts[0] if len(texts) == 1 else f"({' + '.join(texts)})"


def merged(axes: Sequence[Axis]) -> Axis:
    """Axes of the program, of which the first is not a unit, as the rows of a tile.

    Row by row there are the valid elements alone: the last axis runs first, and each as far as it is valid.
    """
    fits = all(a.fits for a in axes if not a.unit)
    capacity, declared, valid = (times(texts) for texts in zip(*((a.capacity, a.declared, a.valid) for a in axes),
                                                               strict=True))  # fmt: skip
    return Axis(False, capacity, declared, valid, fits, tuple(axes))


def where(conditions: Iterable[str], extent: str) -> str:
    """A C expression for an extent that is 0 unless conditions hold."""
    conditions = dict.fromkeys(conditions)
    return f"({' && '.join(conditions)} ? {extent} : 0)" if conditions else extent


def joined_units(axes: Sequence[Axis]) -> Axis:
    """The axis that several of extent 1 become: there is nothing along it where one has nothing."""
    lacking = dict.fromkeys(a.valid for a in axes if not a.full)
    return replace(axes[0], valid=times(lacking), fits=all(a.fits for a in axes))


def joined_lead(leads: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """`lead` of what tiles that have these become together."""
    aligned = zip_longest(*(reversed(lead) for lead in leads), fillvalue=UNIT)
    return tuple(map(joined_units, aligned))[::-1]


def _indices(axes: Sequence[Axis], place: str) -> list[str]:
    """The index along each of several axes for a place among their valid elements."""
    out: list[str] = []
    for k, axis in enumerate(axes):
        later = times(a.valid for a in axes[k + 1 :])
        first = all(a.unit for a in axes[:k])
        text = place if later == "1" else f"{place} / {later}"
        out.append("0" if axis.unit else f"({text})" if first else f"({text} % {times([axis.valid])})")
    return out


def place_of(axes: Sequence[Axis], indices: Sequence[str]) -> str:
    """The place among the valid elements of several axes for an index along each."""
    terms = [i if (later := times(a.valid for a in axes[k + 1 :])) == "1" else f"{i} * {later}"
             for k, (axis, i) in enumerate(zip(axes, indices, strict=True)) if not axis.unit]  # fmt: skip
    return f"({' + '.join(terms)})" if len(terms) > 1 else terms[0] if terms else "0"


@frozen
class Tile:
    """A tile value: `element(i, j)` is its C expression for slot (i, j).

    rank 1 stands for one row (`standing`: for one column); of more than two axes all but the last are its rows.
    `array` is the name when it lies in an array of its own.  `lead`: the last of the axes of extent 1 that are before
    those it shows (others have their element): where one has none, nobody looks at the elements.
    """

    dtype: DType
    rank: int
    rows: Axis
    columns: Axis
    element: Callable[[str, str], str]
    array: str | None = None
    standing: bool = False
    lead: tuple[Axis, ...] = ()

    def hidden(self, count: int) -> tuple[Axis, ...]:
        """So many axes of extent 1 before those that it shows."""
        known = self.lead[max(0, len(self.lead) - count) :]
        return (*[UNIT] * (count - len(known)), *known)

    def there(self, extent: str) -> str:
        """An extent of one of the axes that it shows; none, where those before have no element."""
        return where([f"{a.valid} > 0" for a in self.lead if not a.full], extent)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes as the program counts them."""
        if self.rank == 1:
            return (self.rows,) if self.standing else (self.columns,)
        return (*(self.rows.parts or (self.rows,)), self.columns)

    def indices(self, row: str, column: str) -> list[str]:
        """The index along each of its axes for a row and a column."""
        if self.rank == 1:
            return [row if self.standing else column]
        return [*(_indices(self.rows.parts, row) if self.rows.parts else [row]), column]

    def place(self, indices: Sequence[str]) -> tuple[str, str]:
        """The row and the column for an index along each of its axes."""
        if self.rank == 1:
            return (indices[0], "0") if self.standing else ("0", indices[0])
        return place_of(self.rows.parts or (self.rows,), indices[:-1]), indices[-1] if not self.columns.unit else "0"

    def declared_place(self, row: str, column: str) -> str:
        """The number of an element in the order of declared extents, for its row and column."""
        parts = [replace(a, valid=a.declared) for a in (*(self.rows.parts or (self.rows,)), self.columns)]
        return place_of(parts, [*_indices(self.rows.parts, row), column] if self.rows.parts else [row, column])

    @property
    def is_uniform(self) -> bool:
        """Whether all its elements are one expression."""
        return self.element("?", "?") == self.element("!", "!")

    @property
    def is_unit(self) -> bool:
        """Whether all threads hold the only element."""
        return self.rows.unit and self.columns.unit

    def with_element(self, array: str) -> Tile:
        return replace(self, element=in_array(array, self.rows.unit, self.columns.unit), array=array)


def in_array(name: str, unit_row: bool, unit_column: bool) -> Callable[[str, str], str]:
    """Elements of `name[NR][NC]`."""
    return lambda i, j: f"{name}[{'0' if unit_row else i}][{'0' if unit_column else j}]"
