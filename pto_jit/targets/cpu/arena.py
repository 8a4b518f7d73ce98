# SPDX-License-Identifier: MIT
"""Where the static buffers of a frame lie in its one scratch block."""

from __future__ import annotations

ALIGN = 64


class Arena:
    """Offsets in the static scratch block of a frame; released ranges are used again, first fit."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """The offset of a free range of `size` bytes."""
        size = (size + ALIGN - 1) // ALIGN * ALIGN
        for k, (start, length) in enumerate(self._free):
            if length >= size:
                if length == size:
                    del self._free[k]
                else:
                    self._free[k] = (start + size, length - size)
                return start
        start = self.size
        self.size += size
        return start

    def give(self, start: int, size: int) -> None:
        """Let a range be used again."""
        size = (size + ALIGN - 1) // ALIGN * ALIGN
        self._free.append((start, size))
        self._free.sort()
        merged: list[tuple[int, int]] = []
        for at, length in self._free:
            if merged and sum(merged[-1]) == at:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((at, length))
        self._free = merged
