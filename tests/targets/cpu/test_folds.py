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
