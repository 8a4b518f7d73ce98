# SPDX-License-Identifier: MIT
"""Elements at places that are computed: in tiles, in tensors, and counts; random numbers; against the interpreter."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import needs_compiler
from .test_lines import agree, mapped

pytestmark = needs_compiler
RNG = np.random.default_rng(12)
F32 = np.float32


def moved(x: pl.Tensor, up: pl.Tensor, back: pl.Tensor, other: pl.Tensor, pairs: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [r, 0], [8, 40])
        pl.store(pl.flip(t, 0), [r, 0], up)
        pl.store(pl.flip(t, 1) * t[0, 1], [r, 0], back)
        whole = pl.load(x, [r, 0], [8, 40], pad=3)
        pl.store(pl.reshape(whole, [20, 16]), [r // 8 * 20, 0], other)
        pl.store(pl.stack([pl.max(t, axis=1), pl.min(t, axis=1)], axis=1), [r, 0], pairs)
        pl.store(pl.stack([pl.max(t, axis=0), pl.min(t, axis=0)]), [r, 2], pairs)


def test_tiles_turned_round_and_put_together() -> None:
    x = RNG.integers(-99, 99, (13, 37)).astype(np.int16)
    agree(moved, [x], [np.zeros((13, 37), np.int16), np.zeros((13, 37), np.int16), np.zeros((40, 16), np.int16),
                       np.zeros((16, 42), np.int16)])  # fmt: skip


def test_functions_of_elements_with_control_flow_and_several_results() -> None:
    x = RNG.integers(1, 30, (7, 37)).astype(np.int32)
    agree(mapped, [x], [np.zeros((7, 37), np.int32) for _ in range(3)])


def reshaped(x: pl.Tensor, y: pl.Tensor):
    n, m = y.shape
    t = pl.load(x, [0, 0], [x.shape[0], x.shape[1]])
    pl.store(pl.reshape(t, [n, m]), [0, 0], y)


def test_reshapes_of_extents_that_are_known_when_they_run() -> None:
    x, y = np.arange(12, dtype=np.int32).reshape(3, 4), np.zeros((6, 2), np.int32)
    agree(reshaped, [x], [y], orders=(0,))
    y = np.zeros((5, 2), np.int32)
    with pytest.raises(pto.LaunchError, match="reshape of 12 elements to 10 elements"):
        emulate(pto.jit(reshaped).compile(x, y, target="cuda"), x, y)


def gathered(x: pl.Tensor, at: pl.Tensor, along: pl.Tensor, down: pl.Tensor, counts: pl.Tensor):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        t, index = pl.load(x, [r, 0], [8, 40]), pl.load(at, [r, 0], [8, 24])
        pl.store(pl.gather(t, index, 1), [r, 0], along)
        pl.store(pl.gather(t, pl.load(at, [r, 0], [8, 40]) % 2, 0), [r, 0], down)
        pl.store(pl.histogram(index, 9), [r, 0], counts)


def test_elements_are_gathered_and_counted() -> None:
    x, at = RNG.standard_normal((13, 37)).astype(F32), RNG.integers(0, 12, (13, 37)).astype(np.int32)
    outputs = [np.zeros((13, 24), F32), np.zeros((13, 37), F32), np.zeros((13, 9), np.int32)]
    agree(gathered, [x, at], outputs)
    at[3, 5] = 37
    with pytest.raises(pto.BoundsError, match=r"gather: index 37 is outside \[0, 37\)"):
        emulate(pto.jit(gathered).compile(x, at, *outputs, target="cuda"), x, at, *outputs)


def picked(table: pl.Tensor, at: pl.Tensor, line: pl.Tensor, rows: pl.Tensor, columns: pl.Tensor, single: pl.Tensor):
    for r in pl.range(0, at.shape[0], 8, parallel=True):
        index = pl.load(at, [r], [8])
        pl.store(table[index, :], [r, 0], rows)
        pl.store(table[:, index], [0, r], columns)
        pl.store(line[index] + line[index * 0], [r], single)


@pytest.mark.parametrize("dtype", [F32, ml_dtypes.bfloat16])
def test_rows_columns_and_elements_of_tensors_are_taken(dtype: Any) -> None:
    table, line = RNG.standard_normal((20, 36)).astype(dtype), RNG.standard_normal(20).astype(dtype)
    at = RNG.integers(0, 20, 13)
    agree(picked, [table, at, line], [np.zeros((13, 36), dtype), np.zeros((20, 13), dtype), np.zeros(13, dtype)])


def scattered(x: pl.Tensor, at: pl.Tensor, along: pl.Tensor, down: pl.Tensor):
    t, index = pl.load(x, [0, 0], [8, 40]), pl.load(at, [0, 0], [8, 40])
    pl.scatter(t, index, 1, along)
    pl.scatter(t, index // 4, 0, down)


def test_of_elements_that_are_scattered_to_one_place_the_last_stays() -> None:
    x, at = RNG.standard_normal((7, 37)).astype(F32), RNG.integers(0, 30, (7, 37)).astype(np.int64)
    agree(scattered, [x, at], [np.zeros((7, 50), F32), np.zeros((9, 37), F32)], orders=(0, 1, 5))


def updated(x: pl.Tensor, sums: pl.Tensor, most: pl.Tensor, least: pl.Tensor):
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t = pl.load(x, [r, 0], [4, 40])
        pl.atomic_add(sums, [3], pl.sum(t, axis=0).to(sums.dtype))
        pl.atomic_max(most, [0], pl.max(t, axis=0))
        pl.atomic_min(least, [0, 0], t)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint16, np.int32, np.uint64])
def test_tensors_are_updated_atomically(dtype: Any) -> None:
    x = RNG.integers(0, 5, (13, 37)).astype(dtype)
    agree(updated, [x], [np.ones(38, dtype), np.ones(37, dtype), np.full((4, 40), 3, dtype)])


def random_numbers(x: pl.Tensor, flat: pl.Tensor, bell: pl.Tensor, again: pl.Tensor, seed, offset):
    for r in pl.range(0, x.shape[0], 8, parallel=True):
        pl.store(pl.rand(seed, offset + r, [8, 40]), [r, 0], flat)
        pl.store(pl.randn(seed, offset + r, [8, 40]), [r, 0], bell)
        pl.store(pl.rand(seed, pl.load(x, [r, 0], [8, 40])), [r, 0], again)


def test_random_numbers_are_those_of_every_target() -> None:
    x = RNG.integers(-3, 1000, (13, 37)).astype(np.int64)
    agree(random_numbers, [x], [np.zeros((13, 37), F32) for _ in range(3)], -7, 1 << 33)


def large_and_random(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 128, parallel=True):
        pl.store(pl.load(x, [r, 0], [128, 128]) + pl.rand(7, 3, [128, 128]), [r, 0], y)


def test_random_tiles_that_are_divided_among_blocks_have_their_numbers() -> None:
    agree(large_and_random, [np.zeros((130, 128), F32)], [np.zeros((130, 128), F32)], orders=(0,))
