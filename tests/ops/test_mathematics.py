# SPDX-License-Identifier: MIT
"""Functions of `math` that are made of several operations: as accurate as these, with Python's special values."""

from __future__ import annotations

import math

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def elements(x, y, out):
    for i in pl.range(x.shape[0], parallel=True):
        out[0, i] = math.asin(x[i])
        out[1, i] = math.acos(x[i])
        out[2, i] = math.atan(y[i])
        out[3, i] = math.hypot(x[i], y[i])
        out[4, i] = math.degrees(y[i])
        out[5, i] = math.radians(y[i])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inverse_functions_and_distances(dtype: type) -> None:
    rng = np.random.default_rng(0)
    least, most = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max / 128
    x = np.concatenate([np.linspace(-1, 1, 999), [0, -0.0, least, 1.5, np.nan, np.inf, np.nan, 0, 0.5]]).astype(dtype)
    y = np.concatenate([rng.standard_normal(999) * 10 ** rng.uniform(-9, 9, 999),
                        [-0.0, 0, least, most, 1, np.nan, -np.inf, -np.inf, -most]]).astype(dtype)  # fmt: skip
    out = np.empty((6, x.size), dtype)
    elements(x, y, out)
    a, b = x.astype(np.longdouble), y.astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        exact = np.stack([np.arcsin(a), np.arccos(a), np.arctan(b), np.hypot(a, b), np.degrees(b), np.radians(b)])
    expected = exact.astype(dtype)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    np.testing.assert_array_equal(np.signbit(out)[~np.isnan(out)], np.signbit(expected)[~np.isnan(out)])
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(out[~finite], expected[~finite])
    error = np.abs(out[finite] - exact[finite]) / np.spacing(np.abs(expected[finite]))
    assert error.max() < 4


def test_numbers_and_tiles() -> None:
    @pto.jit
    def numbers(a: int, x, y):
        pl.store(math.hypot(pl.load(x), 4), [0], y)
        return math.atan(a), math.hypot(3, a), math.asin(0.5)

    x = np.array([3, 0, -3], np.float32)
    y = np.empty_like(x)
    assert numbers(4, x, y) == pytest.approx((math.atan(4), 5.0, math.asin(0.5)), rel=1e-15)
    np.testing.assert_allclose(y, [5, 4, 5], rtol=1e-6)
