# SPDX-License-Identifier: MIT
"""Whose value is where: a check that buffers which share memory do not share it while both are needed.

A trace of `ordering` tells here what each instruction reads and writes. A value that is read must not have been
overwritten, in whole or in part, by that of another buffer since it was written; `ordering` alone would find nothing
wrong with it, as long as the two are in order.
"""

from __future__ import annotations

from pto_jit.targets.ascend.form import Buffer

_Place = tuple[int, int]
"""Which buffer, and from where: copies of a buffer that take turns are values of their own."""


class Contents:
    """Of the memories of one core."""

    def __init__(self) -> None:
        self.kept: dict[_Place, tuple[Buffer, int, int]] = {}  # from where to where its value lies
        self.lost: dict[_Place, str] = {}  # what has overwritten it

    def written(self, buffer: Buffer, low: int, high: int) -> None:
        """A value was put there."""
        place = id(buffer), low
        for other, (old, first, last) in list(self.kept.items()):
            if old is not buffer and old.space == buffer.space and low < last and first < high:
                del self.kept[other]
                self.lost[other] = buffer.name
        self.kept[place] = buffer, low, high
        self.lost.pop(place, None)

    def overwritten(self, buffer: Buffer, low: int) -> str | None:
        """What is there instead of the value that was put there; None while it still is."""
        return self.lost.get((id(buffer), low))
