# SPDX-License-Identifier: MIT
"""Loops over elements of short last axes, whose extents are not declared, have a version for the extents they suggest."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def _gray(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = 0.299 * x[i, j, 0] + 0.587 * x[i, j, 1] + 0.114 * x[i, j, 2]


def _gray_parallel(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in pl.range(x.shape[0], parallel=True):
        for j in pl.range(x.shape[1], parallel=True):
            y[i, j] = 0.299 * x[i, j, 0] + 0.587 * x[i, j, 1] + 0.114 * x[i, j, 2]


def _turned(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(0, x.shape[1], 2):
            y[i, j, 0] = x[i, j, 2]
            y[i, j, 1] = x[i, j, 1]
            y[i, j, 2] = x[i, j, 0]


def _channels(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1] - 1):
            for c in range(3):
                if c != 1 or x[i, j, 0] > 0:
                    y[i, j + 1, c] = x[i, j, c] * 2


def _counted(x: pl.Tensor, y: pl.Tensor) -> None:
    n = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j, 0] > x[i, j, 2]:
                n += 1
    y[0, 0, 0] = n


def _versions(kernel: Any, *args: Any) -> set[int]:
    """The extents that are compared with when the kernel runs."""
    text = kernel.compile(*args).ir("llvm")
    return {int(n) for n in re.findall(r"icmp eq i64 %[^\n]*, ([2-9])$", text, flags=re.M)}


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("function", [_gray, _gray_parallel, _turned, _channels, _counted])
def test_the_results_are_the_same_for_any_last_extent(function: Any, dtype: Any) -> None:
    kernel = pto.jit(function, cache=False)
    rng = np.random.default_rng(0)
    for channels in (3, 4, 3, 5):
        x = rng.integers(0, 100, (5, 67, channels)).astype(dtype)
        y = np.zeros((5, 67), np.float32) if function in (_gray, _gray_parallel) else np.zeros_like(x)
        expected = y.copy()
        kernel.interpret(x, expected)
        kernel(x, y)
        np.testing.assert_array_equal(y, expected)
        assert _versions(kernel, x, y) == {3, 4}, "four, where one of them is not read"


def test_two_elements_are_not_taken_for_three() -> None:
    @pto.jit(cache=False)
    def distances(x: pl.Tensor, y: pl.Tensor) -> None:
        for i in range(x.shape[0]):
            y[i] = x[i, 0] * x[i, 0] + x[i, 1] * x[i, 1]

    assert _versions(distances, np.zeros((50, 2), np.float32), np.zeros(50, np.float32)) == {2}


def test_tensors_of_other_extents_than_each_other_are_read_as_they_are() -> None:
    kernel = pto.jit(_turned, cache=False)
    x = np.arange(5 * 30 * 3).reshape(5, 30, 3).astype(np.uint8)
    y = np.zeros((5, 30, 4), np.uint8)
    kernel(x, y)
    np.testing.assert_array_equal(y[:, ::2, :3], x[:, ::2, ::-1])
    assert not y[:, 1::2].any() and not y[..., 3].any()


@pto.jit(cache=False)
def declared(x: pl.Tensor[[None, 3], pl.f32], y: pl.Tensor):
    for i in range(x.shape[0]):
        y[i] = x[i, 0] + x[i, 1] + x[i, 2]


@pto.jit(cache=False)
def summed(x: pl.Tensor, y: pl.Tensor):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i, 0] * x[i, 1]
    y[0] = total


@pto.jit(cache=False)
def first(x: pl.Tensor, y: pl.Tensor):
    for i in range(x.shape[0]):
        y[i] = x[i, 0]


@pto.jit(cache=False)
def along(x: pl.Tensor, y: pl.Tensor):
    for i in range(x.shape[1]):
        y[i] = x[0, i] + x[1, i] + x[i % 2, 2]


@pytest.mark.parametrize("kernel", [declared, summed, first, along])
def test_loops_that_suggest_nothing_or_gain_nothing_are_written_once(kernel: Any) -> None:
    x, y = np.arange(30, dtype=np.float32).reshape(10, 3), np.zeros(10, np.float32)
    assert _versions(kernel, x, y) == set()


def test_strided_tensors_are_read_as_they_are() -> None:
    kernel = pto.jit(_gray, cache=False)
    whole = np.random.default_rng(0).integers(0, 256, (6, 40, 6)).astype(np.uint8)
    x, y = whole[:, :, ::2], np.zeros((6, 40), np.float32)
    expected = y.copy()
    kernel.interpret(x, expected)
    kernel(x, y)
    np.testing.assert_array_equal(y, expected)
    assert _versions(kernel, x, y) == set()
