# SPDX-License-Identifier: MIT
"""The least time that the measured limits of this machine allow for some work.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009), with the bandwidth of the memory level that the
operands fit in: a limit is measured when a row first asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pto_jit.bench.record import Reading
from pto_jit.bench.workload import Work

_SMALLEST, _LARGEST = 16 << 10, 512 << 20
_STEPS_PER_OCTAVE = 8


class Roofline:
    """Limits by kind, working set and number of threads; `probe(function, *arguments)` measures one."""

    def __init__(self, probe: Callable[..., Any]) -> None:
        self._probe = probe
        self._arithmetic: dict[int, list[Reading]] = {}
        self._memory: dict[tuple[str, int, int], Reading] = {}

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Everything measured so far."""
        return (*(one for some in self._arithmetic.values() for one in some), *self._memory.values())

    def seconds(self, work: Work, threads: int) -> float:
        """No program can do `work` faster with so many threads, as far as these limits tell."""
        arithmetic = work.flops / self._peak(work.flop_kind, threads) if work.flops else 0.0
        return max(arithmetic, self._traffic(work, threads))

    def _peak(self, kind: str, threads: int) -> float:
        if threads not in self._arithmetic:
            self._arithmetic[threads] = self._probe("arithmetic", threads)
        # Without an instruction for bf16, or with a slow one, the f32 units do that work; where there are tiles, six
        # products of bf16 parts are one of f32.
        shares = {
            "f32": {"f32 FMA": 1},
            "f32 product": {"f32 FMA": 1, "bf16 tiles": 6},
            "bf16": {"f32 FMA": 1, "bf16 dot": 1, "bf16 tiles": 1},
        }[kind]
        readings = (one for one in self._arithmetic[threads] if one.name in shares)
        return max(one.rate / shares[one.name] for one in readings) * 1e9

    def _traffic(self, work: Work, threads: int) -> float:
        # What is read and written in equal parts moves as a copy does; what is read beyond that, as a read does.
        both = 2 * min(work.bytes_read, work.bytes_written)
        rest = work.bytes_moved - both
        seconds = 0.0
        if both:
            # The better kind of store: a cache-resident result wants one, a large one the other.
            kinds = ("copy", "copy, streaming stores")
            seconds += both / max(self._bandwidth(kind, work.bytes_moved, threads) for kind in kinds)
        if rest:
            seconds += rest / self._bandwidth("read", work.bytes_moved, threads)
        return seconds

    def _bandwidth(self, kind: str, total: int, threads: int) -> float:
        total = min(max(total, _SMALLEST), _LARGEST)
        total = round(2 ** (math.floor(math.log2(total) * _STEPS_PER_OCTAVE) / _STEPS_PER_OCTAVE))
        key = (kind, total, threads)
        if key not in self._memory:
            self._memory[key] = self._probe("bandwidth", kind, total, threads)
        return self._memory[key].rate * 1e9
