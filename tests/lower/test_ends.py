# SPDX-License-Identifier: MIT
"""The least element, or else the greatest, are looked for independently where they are in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

Kernel = Callable[..., Any]


def _less_first(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    for i in range(x.shape[0]):
        if x[i] < low:
            low = x[i]
        elif x[i] > high:
            high = x[i]
    return low, high


def _greater_first(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    for i in range(x.shape[0]):
        v = x[i]
        if v >= high:
            high = v
        elif low > v:
            low = v
    return low, high


def _with_places(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    at = 0 - 1
    there = 0 - 1
    for i in range(x.shape[0]):
        if x[i] < low:
            low = x[i]
            at = i
        elif x[i] >= high:
            high = x[i]
            there = i
    return low, high, at, there


def _by_a_function(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    for i in range(x.shape[0]):
        if x[i] < low:
            low = x[i]
        else:
            high = max(high, x[i])
    return low, high


ALL = _less_first, _greater_first, _with_places, _by_a_function


def _of_either(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    """An element may be both at once, and counts for the first."""
    for i in range(x.shape[0]):
        if x[i] <= low:
            low = x[i]
        elif x[i] >= high:
            high = x[i]
    return low, high


def _other_elements(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    for i in range(1, x.shape[0]):
        if x[i] < low:
            low = x[i]
        elif x[i - 1] > high:
            high = x[i - 1]
    return low, high


def _the_same_side(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    for i in range(x.shape[0]):
        if x[i] < low:
            low = x[i]
        elif x[i] < high:
            high = x[i]
    return low, high


def _back_and_forth(x: pl.Tensor, low: pl.Scalar, high: pl.Scalar) -> None:
    """The first end does not move away from the other."""
    for i in range(x.shape[0]):
        if x[i] < low:
            low = low + 1
        elif x[i] > high:
            high = x[i]
    return low, high


KEPT = _of_either, _other_elements, _the_same_side, _back_and_forth


def _ordered(function: Kernel, dtype: Any) -> bool:
    compiled = pto.jit(function, cache=False).compile(np.zeros(100, dtype), dtype(0), dtype(0))
    return "%ordered = sle" in compiled.ir("independent")


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_which_loops_have_two_versions(dtype: Any) -> None:
    expected = ALL if dtype is np.float32 else (*ALL, _of_either)  # equal integers are the same
    assert [f.__name__ for f in (*ALL, *KEPT) if _ordered(f, dtype)] == [f.__name__ for f in expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int32])
@pytest.mark.parametrize("function", [*ALL, *KEPT])
def test_the_results_are_those_of_the_branches(function: Kernel, dtype: Any) -> None:
    kernel, checked = pto.jit(function), pto.jit(function, debug=True)
    rng = np.random.default_rng(0)
    is_float = dtype in (np.float32, np.float64)
    for count in (1, 2, 63, 64, 300):
        for special in (None, np.nan, -0.0) if is_float else (None,):
            x = rng.integers(0, 60, count).astype(dtype)
            if special is not None:
                x[rng.random(count) < 0.2] = special
            for low, high in ((x[0], x[0]), (dtype(90), dtype(0)), (dtype(30), dtype(30)), (dtype(20), dtype(25))):
                got, wanted = kernel(x, low, high), checked(x, low, high)
                assert [np.asarray(v).tobytes() for v in got] == [np.asarray(v).tobytes() for v in wanted]
