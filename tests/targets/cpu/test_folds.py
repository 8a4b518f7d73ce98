# SPDX-License-Identifier: MIT
"""Folds and scans with functions and running sums: several places at a time, every one in the order of its elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

RNG = np.random.default_rng(7)
SHAPES = [(37, 21), (8, 64), (70, 16), (1, 5), (5, 1), (20, 3)]


def add(a: Any, b: Any) -> Any:
    return a + b


def first_largest(a: Any, b: Any) -> Any:
    if b[0] > a[0]:
        return b
    return a


def affine(a: Any, b: Any) -> Any:
    return a[0] * b[0], b[0] * a[1] + b[1]


@pto.jit
def folded(x, y, axis: pl.constexpr, keep: pl.constexpr):
    pl.store(pl.reduce(x[:, :], axis, add, 0.5, keepdims=keep), y)


@pto.jit
def places(x, at, value, place, axis: pl.constexpr):
    v, p = pl.reduce((x[:, :], at[:, :]), axis, first_largest)
    pl.store(v, value)
    pl.store(p, place)


@pto.jit
def scanned(x, y, axis: pl.constexpr, reverse: pl.constexpr):
    a, b = pl.associative_scan((x[:, :], y[:, :]), axis, affine, reverse=reverse)
    pl.store(a, x)
    pl.store(b, y)


@pto.jit
def summed(x, y, axis: pl.constexpr, reverse: pl.constexpr):
    pl.store(pl.cumsum(x[:, :], axis, reverse=reverse), y)


@pto.jit
def cube(x, y, z, axis: pl.constexpr):
    pl.store(pl.reduce(x[:, :, :], axis, add), y)
    pl.store(pl.cumsum(x[:, :, :], axis), z)


def in_order(x: np.ndarray, axis: int, start: Any) -> np.ndarray:
    total = np.full(np.delete(x.shape, axis), start, x.dtype)
    for row in np.moveaxis(x, axis, 0):
        total = total + row
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_folds_and_running_sums_keep_their_order(axis: int, shape: tuple[int, int], dtype: Any) -> None:
    x = (RNG.uniform(-9, 9, shape)).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        expected = in_order(x, axis, 0.5)
        for keep in (False, True):
            y = np.zeros(np.expand_dims(expected, axis).shape if keep else expected.shape, dtype)
            folded(x, y, axis, keep)
            np.testing.assert_array_equal(y.reshape(expected.shape), expected)
    sums = np.cumsum(x, axis, dtype=np.int64 if dtype == np.int8 else dtype)
    for reverse in (False, True):
        z = np.zeros(shape, sums.dtype)
        summed(np.flip(x, axis) if reverse else x, z, axis, reverse)
        np.testing.assert_array_equal(np.flip(z, axis) if reverse else z, sums)
    at = np.broadcast_to(np.expand_dims(np.arange(shape[axis], dtype=np.int32), 1 - axis), shape).copy()
    value, place = np.zeros(shape[1 - axis], dtype), np.zeros(shape[1 - axis], np.int32)
    places(x, at, value, place, axis)
    np.testing.assert_array_equal(value, x.max(axis))
    np.testing.assert_array_equal(place, x.argmax(axis))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans_of_several_tiles_agree_with_the_interpreter(axis: int, reverse: bool) -> None:
    for shape in SHAPES:
        x, y = (RNG.uniform(-1.1, 1.1, shape) for _ in range(2))
        x2, y2 = x.copy(), y.copy()
        scanned(x, y, axis, reverse)
        scanned.interpret(x2, y2, axis, reverse)
        np.testing.assert_allclose(x, x2, rtol=1e-12)
        np.testing.assert_allclose(y, y2, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_tiles_of_three_axes_fold_along_any(axis: int) -> None:
    for shape in [(3, 19, 33), (20, 1, 18), (4, 5, 0), (2, 3, 1)]:
        x = RNG.integers(-9, 9, shape)
        y, z = np.zeros(np.delete(shape, axis), x.dtype), np.zeros(shape, x.dtype)
        if shape[axis]:
            cube(x, y, z, axis)
            np.testing.assert_array_equal(y, x.sum(axis))
            np.testing.assert_array_equal(z, x.cumsum(axis))


def test_columns_of_a_fold_are_taken_together() -> None:
    text = folded.compile(np.zeros((8, 64), np.float32), np.zeros(64, np.float32), 0, False).ir("llvm")
    assert "fadd <16 x float>" in text or "fadd <8 x float>" in text or "fadd <4 x float>" in text


def larger(a: Any, b: Any) -> Any:
    return pl.maximum(b, a)


@pto.jit
def of_one_operation(x, y, z, fn: pl.constexpr, axis: pl.constexpr):
    pl.store(pl.reduce(x[:, :], axis, fn, keepdims=True), y)
    z[0] = pl.reduce(x[0, :], 0, fn, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint64])
@pytest.mark.parametrize("fn, ufunc", [(add, np.add), (larger, np.maximum)])
def test_folds_by_one_operation_are_reductions_where_their_order_shows_nowhere(
    fn: Any, ufunc: Any, dtype: Any
) -> None:
    if fn is add and np.issubdtype(dtype, np.floating):
        return
    for shape in [*SHAPES, (2, 300)]:
        x = RNG.uniform(0, 100, shape).astype(dtype)
        if np.issubdtype(dtype, np.floating) and shape[0] > 1:
            x[1, shape[1] // 2] = np.nan
        for axis in (0, 1):
            expected = ufunc.reduce(x, axis, dtype=dtype, keepdims=True)
            y, z = np.empty_like(expected), np.empty(1, dtype)
            of_one_operation(x, y, z, fn, axis)
            np.testing.assert_array_equal(y, expected)
            assert z[0] == ufunc.reduce(x[0], dtype=dtype, initial=dtype(3))
    empty, one = np.zeros((1, 0), dtype), np.zeros(1, dtype)
    with pytest.raises(pto.LaunchError, match="empty"):
        of_one_operation(empty, np.zeros((1, 1), dtype), one, fn, 1)
    of_one_operation(empty, np.zeros((1, 0), dtype), one, fn, 0)
    assert one[0] == 3


def test_fastmath_allows_folds_of_floats_any_order() -> None:
    @pto.jit(fastmath=True)
    def total(x, y):
        y[0] = pl.reduce(x[0, :], 0, add, 0.5)

    x, y = RNG.uniform(-1, 1, (1, 1000)).astype(np.float32), np.zeros(1, np.float32)
    total(x, y)
    np.testing.assert_allclose(y, x.sum() + 0.5, rtol=1e-4, atol=1e-4)
    assert "fadd" in (text := total.compile(x, y).ir("llvm")) and "x float>" in text


@pto.jit
def in_shares(x: pl.Tensor, number: pl.Tensor, out: pl.Tensor):
    top, where = pl.reduce((x[...], number[...]), 0, first_largest, (-1e30, -1))
    scale, shift = pl.reduce((1.0 - x[...] * 0.01, x[...]), 0, affine, (2.0, 1.0))
    out[0], out[1], out[2], out[3] = top, where, scale, shift


@pytest.mark.parametrize("n", [0, 1, 255, 256, 511, 512, 1535, 1536, 20_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_lines_are_folded_in_shares_in_their_order(n: int, dtype: Any) -> None:
    x = RNG.standard_normal(n).astype(dtype)
    x[n // 3 :: max(1, n // 5)] = 9
    out = np.zeros(4)
    in_shares(x, np.arange(n), out)
    scale, shift = 2.0, 1.0
    for v in x.astype(np.float64):
        scale, shift = scale * (1 - 0.01 * v), shift * (1 - 0.01 * v) + v
    expected = [x.max(), x.argmax(), scale, shift] if n else [-1e30, -1, 2, 1]
    np.testing.assert_allclose(out, expected, rtol=5e-4 if dtype is np.float32 else 1e-9)


@pto.jit
def of_lines(x: pl.Tensor, out: pl.Tensor, axis: pl.constexpr):
    t = x[...]
    _, shift = pl.reduce((1.0 - t * 0.01, t), axis, affine)
    out[...] = shift


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(1, 3000), (3, 1100), (700, 2), (600, 40)])
def test_lines_of_few_rows_or_columns(shape: tuple[int, int], axis: int) -> None:
    for x in (RNG.standard_normal(shape), np.asfortranarray(RNG.standard_normal(shape)), RNG.standard_normal(shape)[:, ::-1]):
        out = np.zeros(shape[1 - axis])
        of_lines(x, out, axis)
        expected = np.zeros_like(out)
        for v in np.moveaxis(x, axis, 0):
            expected = expected * (1 - 0.01 * v) + v
        np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12)
