# SPDX-License-Identifier: MIT
"""Small tiles at run-time places: code for whole ones beside that for parts; accumulators are written in place."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

RNG = np.random.default_rng(11)


@pto.jit
def scaled(x, y):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        for j in range(0, x.shape[1], 8):
            pl.store(pl.load(x, [i, j], [8, 8]) * 2.0 + 1.0, [i, j], y)


@pto.jit
def shares(x, y):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        for j in range(0, x.shape[1], 8):
            t = pl.load(x, [i, j], [8, 8])
            pl.store(t / pl.sum(t, axis=1, keepdims=True), [i, j], y)


@pto.jit
def totals(x, y):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        for j in range(0, x.shape[1], 8):
            y[i // 8, j // 8] = pl.sum(pl.load(x, [i, j], [8, 8]))


@pto.jit
def column_sums(x, y):
    for j in pl.range(0, x.shape[1], 8, parallel=True):
        acc = pl.zeros([8, 8], pl.f32)
        for i in range(0, x.shape[0], 8):
            acc += pl.load(x, [i, j], [8, 8])
        pl.store(pl.sum(acc, axis=0, keepdims=True), [0, j], y)


@pto.jit
def bags(table, index, y):
    for b in pl.range(y.shape[0], parallel=True):
        acc = pl.zeros([table.shape[1]], table.dtype)
        for i in range(index.shape[1]):
            acc += table[index[b, i], :]
        y[b, :] = acc


@pto.jit
def planes(x, y):
    with pl.incore():
        acc = x[0, :, :] * 0.0
        for i in range(x.shape[0]):
            acc = acc + x[i, :, :]
        y[:, :] = acc


@pto.jit
def added_ones(x, y, n):
    acc = pl.zeros([x.shape[0]], pl.f32)
    for _ in range(2):
        acc = pl.full([n], 1.0, pl.f32) + acc
    y[:] = acc


def blocks(x: np.ndarray) -> list[tuple[slice, slice]]:
    return [(slice(i, i + 8), slice(j, j + 8)) for i in range(0, x.shape[0], 8) for j in range(0, x.shape[1], 8)]


@pytest.mark.parametrize("shape", [(16, 24), (8, 8), (19, 21), (3, 5), (16, 9), (9, 16), (0, 8)])
def test_whole_tiles_and_parts_agree_with_numpy(shape: tuple[int, int]) -> None:
    x = RNG.uniform(0.5, 1.5, shape).astype(np.float32)
    y = np.full((shape[0] + 1, shape[1] + 1), np.nan, np.float32)
    scaled(x, y[:-1, :-1])
    np.testing.assert_array_equal(y[:-1, :-1], x * 2 + 1)
    assert np.isnan(y[-1]).all() and np.isnan(y[:, -1]).all()
    shares(x, y[:-1, :-1])
    for place in blocks(x):
        np.testing.assert_allclose(y[place][: x[place].shape[0], : x[place].shape[1]],
                                   x[place] / x[place].sum(axis=1, keepdims=True), rtol=1e-5)  # fmt: skip
    sums = np.zeros((-(-shape[0] // 8), -(-shape[1] // 8)), np.float32)
    totals(x, sums)
    np.testing.assert_allclose(sums.ravel(), [x[place].sum() for place in blocks(x)], rtol=1e-5)


@pytest.mark.parametrize("columns", [8, 21])
def test_small_accumulators_agree_with_numpy(columns: int) -> None:
    x = RNG.uniform(-1, 1, (40, columns)).astype(np.float32)
    y = np.zeros((1, columns), np.float32)
    column_sums(x, y)
    np.testing.assert_allclose(y[0], x.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_whole_small_tiles_are_computed_without_masks() -> None:
    x = np.zeros((8, 8), np.float32)
    text = scaled.compile(x, x).ir("llvm")
    assert "fmul <8 x float>" in text


@pytest.mark.parametrize("columns", [1, 16, 64, 100])
def test_accumulators_of_run_time_extent_are_written_in_place(columns: int) -> None:
    table, index = RNG.uniform(-1, 1, (50, columns)).astype(np.float32), RNG.integers(0, 50, (3, 7))
    y = np.zeros((3, columns), np.float32)
    bags(table, index, y)
    np.testing.assert_allclose(y, table[index].sum(axis=1), rtol=1e-5, atol=1e-5)
    pushes = bags.compile(table, index, y).ir("llvm").count('call ptr @"pto_scratch_push"')
    assert pushes == 1  # of the store, for what may lie outside of y
    x = RNG.uniform(-1, 1, (5, 9, columns)).astype(np.float32)
    plane = np.zeros(x.shape[1:], np.float32)
    planes(x, plane)
    np.testing.assert_allclose(plane, x.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_what_is_added_to_an_accumulator_has_its_extents() -> None:
    x, y = np.zeros(10, np.float32), np.zeros(10, np.float32)
    added_ones(x, y, 10)
    assert (y == 2).all()
    for n in (7, 20):  # these were accepted, and what was stored depended on memory behind the accumulator
        with pytest.raises(pto.LaunchError, match=f"axis 0: {n} and 10"):
            added_ones(x, y, n)


@pto.jit
def alternated(x, index, y, z):
    with pl.incore():
        a = pl.zeros([x.shape[1]], x.dtype)
        b = x[0, :] * 1.0
        for i in range(index.shape[0]):
            row = x[index[i], :]
            a, b = row - a, pl.maximum(b, row + a)
        y[:] = a
        z[:] = b


def alternated_by_rows(x: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `alternated` writes, row by row; f16 is computed in f32 and rounded in every iteration."""
    wide, dtype = np.float32 if x.dtype == np.float16 else x.dtype, x.dtype
    a, b = np.zeros(x.shape[1], dtype), x[0]
    for i in index:
        before, row = a.astype(wide), x[i].astype(wide)
        a, b = (row - before).astype(dtype), np.maximum(b.astype(wide), row + before).astype(dtype)
    return a, b


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_accumulators_by_strips_have_the_bits_of_those_in_memory(dtype: type) -> None:
    long = (RNG.uniform(-4, 4, (9, 5000))).astype(dtype)
    for count in (0, 1, 7, 8, 9, 23):  # blocks of 8 rows and of 64
        for columns in (0, 1, 15, 64, 65, 200, 5000):
            index = RNG.integers(0, 9, count * (1 if columns > 200 else 6))
            x, found = np.ascontiguousarray(long[:, :columns]), np.full((2, columns), 7, dtype)
            alternated(x, index, *found)
            np.testing.assert_array_equal(found, alternated_by_rows(x, index))
    assert "strips:" in alternated.compile(long, index, *found).ir("llvm")


@pto.jit
def every_other_row(x, y, first):
    with pl.incore():
        acc = pl.zeros([x.shape[1]], x.dtype)
        for i in range(first, x.shape[0], 2):
            acc += x[i, :] * x[i, 0]
        y[:] = acc


@pytest.mark.parametrize("shape", [(1, 3), (2, 70), (31, 2000), (300, 40)])
def test_blocks_of_rows_with_steps_and_numbers_of_rows(shape: tuple[int, int]) -> None:
    x, y = RNG.integers(-4, 4, shape), np.empty(shape[1], np.int64)
    for first in (0, 1):
        every_other_row(x, y, first)
        np.testing.assert_array_equal(y, (x * x[:, :1])[first::2].sum(axis=0))


def test_rows_without_columns_are_looked_up_as_others() -> None:
    x, y = np.zeros((9, 0), np.float32), np.zeros((2, 0), np.float32)
    alternated(x, np.array([8, 0]), *y)
    for index in (9, -10):
        with pytest.raises(pto.BoundsError):
            alternated(x, np.array([0, index]), *y)


@pto.jit
def far_apart(x, y, n):
    with pl.incore():
        acc = pl.zeros([x.shape[1]], x.dtype)
        for i in range(0, n, 2**58):
            acc += x[i >> 58, :]
        y[:] = acc


def test_rows_of_a_loop_with_a_large_step() -> None:
    x, y = RNG.uniform(-1, 1, (4, 70)), np.zeros(70)
    far_apart(x, y, 2**60)  # blocks of so many steps would overflow, and the loop not end
    np.testing.assert_allclose(y, x.sum(axis=0))


@pto.jit
def exchanged(x, y, n):
    with pl.incore():
        a = x[0, :] * 1
        b = x[1, :] * 1
        for _ in range(n):
            a, b = b, a + b
        y[0, :] = a
        y[1, :] = b


def test_accumulators_that_change_places() -> None:
    x, y = RNG.integers(0, 9, (2, 70)), np.empty((2, 70), np.int64)
    exchanged(x, y, 5)
    np.testing.assert_array_equal(y, [3 * x[0] + 5 * x[1], 5 * x[0] + 8 * x[1]])


@pto.jit
def parts_of_rows(x, start, y, width):
    with pl.incore():
        acc = pl.zeros([width], pl.f32)
        for i in range(start.shape[0]):
            acc += pl.load(x, [start[i]], [width])
        pl.store(acc, y)


def test_accumulators_of_incomplete_rows() -> None:
    x, y = RNG.uniform(-1, 1, 40).astype(np.float32), np.zeros(30, np.float32)
    parts_of_rows(x, np.array([3, 0, 10]), y, 30)
    np.testing.assert_allclose(y, x[3:33] + x[:30] + x[10:], rtol=1e-5, atol=1e-6)
    y[:] = 0
    parts_of_rows(x, np.array([20, 20]), y, 30)  # as much as there is, the first time, too
    np.testing.assert_allclose(y, [*(x[20:] * 2), *[0] * 10], rtol=1e-6)
    for start in ([20, 0], [0, 20]):
        with pytest.raises(pto.LaunchError, match=r"axis 0: (20 and 30|30 and 20)"):
            parts_of_rows(x, np.array(start), y, 30)
    with pytest.raises(pto.LaunchError, match="axis 0: 20 and 30"):  # in the third block
        parts_of_rows(x, np.array([*range(10), 20] * 14), y, 30)
    with pytest.raises(pto.BoundsError):
        parts_of_rows(x, np.array([0, 0, -1]), y, 30)
