# SPDX-License-Identifier: MIT
"""Strided copies (`pto_copy`) against NumPy: any rank, element size, sign of strides and contiguity."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from pto_jit.runtime import symbols

COPY = ctypes.CFUNCTYPE(
    None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
)(symbols()["pto_copy"])


def part(rng: np.random.Generator, memory: np.ndarray, extents: list[int]) -> np.ndarray:
    """A view of `memory` with these extents, some of its axes whole, some with gaps, some backwards, in any order."""
    steps = [int(rng.choice([1, 1, 2, -1])) for _ in extents]
    order = rng.permutation(len(extents)) if rng.random() < 0.3 else np.arange(len(extents))
    room = [extents[k] * abs(steps[k]) + int(rng.choice([0, 0, 3])) for k in order]
    whole = memory[: int(np.prod(room))].reshape(room).transpose(np.argsort(order))
    forwards = whole[(..., *(slice(0, n * abs(s), abs(s)) for n, s in zip(extents, steps, strict=True)))]
    return forwards[(..., *(slice(None, None, 1 if s > 0 else -1) for s in steps))]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("rank", range(5))
def test_a_region_is_copied_and_nothing_else(rank: int, size: int) -> None:
    rng = np.random.default_rng(10 * rank + size)
    dtype = np.dtype((np.void, size))
    for _ in range(60):
        extents = [int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 5, rank)]
        source, target = (rng.integers(0, 256, 40000 * size, dtype=np.uint8).view(dtype) for _ in range(2))
        wanted = target.copy()
        state = rng.bit_generator.state
        one, other = part(rng, source, extents), part(rng, target, extents)
        rng.bit_generator.state = state
        part(rng, source, extents)
        part(rng, wanted, extents)[...] = one
        numbers = [*extents, *other.strides, *one.strides]
        COPY(rank, other.ctypes.data, one.ctypes.data, size, (ctypes.c_int64 * len(numbers))(*numbers))
        assert target.tobytes() == wanted.tobytes()
