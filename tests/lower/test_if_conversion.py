# SPDX-License-Identifier: MIT
"""Branches that store to the same elements either way are selections, where what they do cannot fail."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

Kernel = Any


def _life(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            n = x[i - 1, j - 1] + x[i - 1, j] + x[i - 1, j + 1] + x[i, j - 1] + x[i, j + 1]
            n += x[i + 1, j - 1] + x[i + 1, j] + x[i + 1, j + 1]
            if n == 3:
                y[i, j] = 1
            elif n == 2:
                y[i, j] = x[i, j]
            else:
                y[i, j] = 0


def _several(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in pl.range(x.shape[0], parallel=True):
        for j in range(1, x.shape[1]):
            if x[i, j] > x[i, j - 1]:
                y[i, j] = x[i, j] - x[i, j - 1]
                y[i, j - 1] = 1
            else:
                k = j - 1
                a = x[i, k]
                y[i, j] = 0
                y[i, k] = a


def _in_place(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = y[i, j]
            if x[i, j] > a:
                y[i, j] = x[i, j]
            else:
                y[i, j] = a - 1


CONVERTED = _life, _several, _in_place


def _guarded(x: pl.Tensor, y: pl.Tensor) -> None:
    """The element read in a branch may lie behind the end."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if j + 3 < x.shape[1]:
                y[i, j] = x[i, j] + x[i, j + 3]
            else:
                y[i, j] = x[i, j]


def _beside(x: pl.Tensor, y: pl.Tensor) -> None:
    """It lies in the tensor along one axis, and may not along the other."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1] - 1):
            a = x[i, j] + x[i, j + 1]
            if i > 0:
                y[i, j] = x[i - 1, j]
            else:
                y[i, j] = a


def _divided(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = x[i, j]
            if a > 1:
                y[i, j] = 100 // a
            else:
                y[i, j] = 7


def _elsewhere(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(1, x.shape[1]):
            if x[i, j] > 1:
                y[i, j] = 3
            else:
                y[i, j - 1] = 4


def _once(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1:
                y[i, j] = 3


def _read_back(x: pl.Tensor, y: pl.Tensor) -> None:
    """What a branch reads it has written."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            a = y[i, j]
            if x[i, j] > 1:
                y[i, j] = a + 1
                y[i, j] = y[i, j] + x[i, j]
            else:
                y[i, j] = a
                y[i, j] = 5


def _carried(x: pl.Tensor, y: pl.Tensor) -> None:
    for i in range(x.shape[0]):
        n = x[i, 0]
        for j in range(x.shape[1]):
            n = n + x[i, j]
            if n > 3:
                y[i, j] = n
            else:
                y[i, j] = 0


KEPT = _guarded, _beside, _divided, _elsewhere, _once, _read_back, _carried


def _branches(function: Kernel, **options: Any) -> int:
    x = np.zeros((9, 70), np.int32)
    return len(re.findall(r"\bIF\b", pto.jit(function, cache=False, **options).compile(x, x.copy()).ir("independent")))


@pytest.mark.parametrize("function", CONVERTED)
def test_branches_are_selections(function: Kernel) -> None:
    assert _branches(function) == 0


@pytest.mark.parametrize("function", KEPT)
def test_branches_that_may_fail_or_do_other_things_stay(function: Kernel) -> None:
    assert _branches(function) > 0


@pytest.mark.parametrize("function", CONVERTED)
def test_branches_stay_where_the_program_is_debugged(function: Kernel) -> None:
    assert _branches(function, debug=True) > 0


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("function", [*CONVERTED, *KEPT])
def test_the_results_are_those_of_the_branches(function: Kernel, dtype: Any) -> None:
    kernel = pto.jit(function)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (9, 70)).astype(dtype)
    for apart in (True, False):
        given = x.copy(), rng.integers(0, 4, x.shape).astype(dtype)
        if not apart:
            given = given[0], given[0]
        expected = given[0].copy(), given[1].copy()
        if not apart:
            expected = expected[0], expected[0]
        if function is _several and not apart:  # its rows are promised to be independent, and are
            continue
        kernel.interpret(*expected)
        kernel(*given)
        for got, wanted in zip(given, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_what_fails_is_told_at_its_place() -> None:
    def outside(x: pl.Tensor, y: pl.Tensor) -> None:
        for i in range(x.shape[0]):
            if x[i] > 0:
                y[i] = x[i]
            else:
                y[i] = 0  # here

    x = np.zeros(5, np.float32)
    with pytest.raises(pto.BoundsError) as caught:
        pto.jit(outside, debug=True)(x, np.zeros(3, np.float32))
    assert "y[i] = 0  # here" in str(caught.value)
