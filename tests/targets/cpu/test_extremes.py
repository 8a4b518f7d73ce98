# SPDX-License-Identifier: MIT
"""Maxima and minima of maxima and minima: NaN wherever one of the numbers is, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def network(low, high, rows):
    """A few extremes of eighteen rows, some used twice, more in a chain than are looked at together."""
    first = low(low(rows[0], rows[1]), high(rows[2], rows[3]))
    second = high(first, low(rows[4], first))
    third = rows[5]
    for row in rows[6:]:
        third = high(low(row, third), row * 0.5)
    return first, second, low(low(third, second), high(first, third)) + high(second, 1.0)


@pto.jit
def by_tiles(x, y):
    found = network(pl.minimum, pl.maximum, [x[k, :] for k in range(18)])
    y[0, :] = found[0]
    y[1, :] = found[1]
    y[2, :] = found[2]


@pto.jit
def by_elements(x, y):
    for i in range(x.shape[1]):
        found = network(min, max, [x[k, i] for k in range(18)])
        y[0, i] = found[0]
        y[1, i] = found[1]
        if found[0] > 0.0 or found[0] <= 0.0 or found[0] != found[0]:
            y[2, i] = found[2]


@pytest.mark.parametrize("kernel", [by_tiles, by_elements])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_chains_of_extremes_are_nan_where_numpys_are(kernel, dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((18, 403)).astype(dtype)
    x[rng.integers(0, 18, 200), rng.integers(0, 403, 200)] = np.nan
    y = np.zeros((3, 403), dtype)
    kernel(x, y)
    wide = list(x.astype(np.float32 if dtype == "float16" else dtype))
    np.testing.assert_array_equal(y, np.array(network(np.minimum, np.maximum, wide)).astype(dtype))


def test_a_carried_extreme_keeps_nan() -> None:
    @pto.jit
    def kernel(x, y):
        least = x[0]
        for i in range(x.shape[0]):
            least = min(max(x[i], -1.0), min(least, 3.0))
            y[i] = least

    x = np.array([2, 5, np.nan, -7, 1], np.float32)
    y = np.zeros(5, np.float32)
    kernel(x, y)
    np.testing.assert_array_equal(y, np.array([2, 2, np.nan, np.nan, np.nan], np.float32))
