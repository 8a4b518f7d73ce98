# SPDX-License-Identifier: MIT
"""Windows that take extrema of floats are written iteration by iteration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

Kernel = Callable[..., Any]


def _erosion(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            m = x[i, j]
            for a in range(-1, 2):
                for b in range(-1, 2):
                    m = min(m, x[i + a, j + b])
            y[i, j] = m


def _two_of_them(x: pl.Tensor, y: pl.Tensor) -> None:
    """The least and the greatest, and how far the loop has come."""
    for i in range(1, x.shape[0] - 1):
        for j in range(2, x.shape[1] - 2):
            low = x[i, j]
            high = x[i, j]
            steps = 0
            for b in range(2, -3, -2):
                low = min(x[i, j + b], low)
                high = max(high, x[i, j + b])
                steps += b + 3
            y[i, j] = high - low + steps


def _changing_places(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            a = x[i, j]
            b = x[i, j - 1]
            for k in range(3):
                a, b = b, max(a, x[i - 1 + k, j])
            y[i, j] = a * 3 + b


def _branches(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            m = x[i, j]
            for k in range(-1, 2):
                if x[i, j + k] != 2:
                    m = max(m, x[i + k, j])
            if m > 1:
                y[i, j] = m
            else:
                y[i, j] = x[i, j]


UNROLLED = _erosion, _two_of_them, _changing_places


def _long(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        m = x[i, 0]
        for k in range(200):
            m = max(m, x[i, k % 3] + k)
        y[i, 0] = m


def _sum(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        m = x[i, 0]
        for k in range(3):
            m = m + x[i, k]
        y[i, 0] = m


KEPT = _long, _sum


def _loops(function: Kernel, dtype: Any = np.float32, **options: Any) -> int:
    x = np.zeros((9, 70), dtype)
    return len(re.findall(r"\bFOR\b", pto.jit(function, cache=False, **options).compile(x, x.copy()).ir("independent")))


@pytest.mark.parametrize("function", UNROLLED)
def test_windows_are_unrolled(function: Kernel) -> None:
    assert _loops(function) == 2
    assert _loops(function, np.int32) > 2, "the optimiser unrolls them"
    assert _loops(function, debug=True) > 2


@pytest.mark.parametrize("function", KEPT)
def test_long_loops_and_sums_stay(function: Kernel) -> None:
    assert _loops(function) == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize("function", [*UNROLLED, *KEPT, _branches])
def test_the_results_are_those_of_the_loops(function: Kernel, dtype: Any) -> None:
    kernel, in_order = pto.jit(function), pto.jit(function, debug=True)
    rng = np.random.default_rng(0)
    for special in (None, np.nan, -0.0):
        x = rng.integers(0, 4, (9, 70)).astype(dtype)
        if special is not None:
            if dtype is np.int32:
                continue
            x[rng.random(x.shape) < 0.1] = special
        got, wanted = np.zeros_like(x), np.zeros_like(x)
        kernel(x, got)
        in_order(x, wanted)
        np.testing.assert_array_equal(got, wanted)
        if dtype is not np.int32:
            known = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(wanted)[known])
