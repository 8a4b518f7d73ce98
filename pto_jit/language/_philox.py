# SPDX-License-Identifier: MIT
"""Philox 4x32-10, the counter-based generator behind `pl.rand` and `pl.randn`.

Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3; SC 2011.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_ROUND = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> tuple[Any, Any, Any, Any]:
    """Ten rounds on four arrays of 32-bit words (held in u64); returns four u64 arrays of 32-bit words."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _ROUND[0] * c0, _ROUND[1] * c2
        c0, c1, c2, c3 = (
            (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0), p1 & _LOW,
            (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1), p0 & _LOW,
        )  # fmt: skip
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(seed: int, counters: Any) -> tuple[Any, Any]:
    """Output words 0 and 1 for 64-bit counters; key (seed low, seed high), counter (low, high, 0, 0)."""
    bits = int(seed) & 0xFFFFFFFFFFFFFFFF  # a negative seed counts as two's complement
    low, high = counters & _LOW, counters >> _SHIFT
    zero = np.zeros_like(low)
    first, second, _, _ = philox((low, high, zero, zero), (bits & 0xFFFFFFFF, bits >> 32))
    return first, second


def uniform(seed: int, counters: Any) -> Any:
    """f32 in [0, 1) for an array of u64 counters."""
    return _unit(words(seed, counters)[0])


def normal(seed: int, counters: Any) -> Any:
    """Standard normal f32 for an array of u64 counters (Box and Muller, Ann. Math. Stat. 29, 1958)."""
    u0, u1 = (_unit(w).astype(np.float64) for w in words(seed, counters))
    return (np.sqrt(-2 * np.log1p(-u0)) * np.cos(2 * np.pi * u1)).astype(np.float32)


def _unit(word: Any) -> Any:
    return (word >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)


def sequence(offset: int, shape: tuple[int, ...]) -> Any:
    """Counters offset, offset + 1, ... in row-major order, modulo 2**64."""
    count = int(np.prod(shape, dtype=np.int64))
    start = np.uint64(int(offset) & 0xFFFFFFFFFFFFFFFF)
    with np.errstate(over="ignore"):
        return (start + np.arange(count, dtype=np.uint64)).reshape(shape)
