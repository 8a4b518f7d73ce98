# SPDX-License-Identifier: MIT
"""Powers with small constant exponents, half integers among them, are products (with a square root), as accurate and
with the same special values as `pow`."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

EXPONENTS = (3, 4, 5, -2, 3.0, 1.5, 2.5, -0.5, -1.5, -2.5)


@pto.jit
def power(x, y, n: pl.constexpr):
    for i in pl.range(x.shape[0], parallel=True):
        y[i] = x[i] ** n


@pto.jit
def rows(x, y, n: pl.constexpr):
    pl.store(pl.load(x) ** n, [0], y)


@pto.jit
def number(v: float, n: pl.constexpr):
    return v**n


def _error(got: np.ndarray, x: np.ndarray, n: float) -> float:
    """The largest error in units of the last place (in the format's smallest number for subnormal results)."""
    worst = 0.0
    for value, base in zip(got.tolist(), x.tolist(), strict=True):
        with mpmath.workprec(200):
            exact = Fraction(*mpmath.libmp.to_rational((mpmath.mpf(base) ** n)._mpf_))
        unit = float(np.spacing(np.abs(np.array(float(exact))).astype(got.dtype)))
        worst = max(worst, float(abs(Fraction(value) - exact) / Fraction(unit)))
    return worst


@pytest.mark.parametrize("kernel", [power, rows])
@pytest.mark.parametrize("n", EXPONENTS)
def test_small_constant_exponents_are_products(kernel: pto.JitFunction, n: float) -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        x = (rng.uniform(0.4, 2.5, 400) * rng.choice([-1, 1] if n == int(n) else [1], 400)).astype(dtype)
        y = np.empty_like(x)
        kernel(x, y, n)
        assert _error(y, x, n) < 4
        assert "pow" not in kernel.compile(x, y, n).ir("source").replace("power", "")
        largest, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
        large = dtype(2.1) * largest ** min(1 / abs(n), 0.9)
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, large, -large, 1 / large, least], dtype)
        y = np.empty_like(x)
        kernel(x, y, n)
        with np.errstate(all="ignore"):
            expected = np.power(x, dtype(n))
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
        np.testing.assert_array_equal(np.signbit(y[~np.isnan(y)]), np.signbit(expected[~np.isnan(y)]))
        np.testing.assert_allclose(y, expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).smallest_subnormal)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_powers_of_short_floats_are_rounded_once(dtype: type) -> None:
    x = np.linspace(0.5, 2, 97).astype(dtype)
    for n in (3, 5, -2, -0.5, 1.5):
        y = np.empty_like(x)
        power(x, y, n)
        np.testing.assert_array_equal(y, (x.astype(np.float64) ** n).astype(dtype))


def test_results_that_are_subnormal_have_all_their_digits() -> None:
    x = np.array([1e155, 3e160, 7e-78, 2e-65])
    y = np.empty_like(x)
    for n, k in ((-2, slice(0, 2)), (4, slice(2, 3)), (5, slice(3, 4))):
        power(x[k], y[k], n)
        assert _error(y[k], x[k], n) <= 1.5


def test_numbers_keep_their_weak_type() -> None:
    assert number(1.5, 3) == 1.5**3
    assert number(3.0, -2) == pytest.approx(1 / 9, rel=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0.5, -1, 1, 2])
def test_numbers_and_elements_interpreted_have_the_powers_of_compiled_code(n: float, dtype: type) -> None:
    x = np.array([-np.inf, -0.0, 4.0, -1.0, 0.3, np.nan], dtype)
    for kernel in (power, rows):
        compiled, interpreted = np.empty_like(x), np.empty_like(x)
        kernel(x, compiled, n)
        kernel.interpret(x, interpreted, n)
        np.testing.assert_array_equal(np.signbit(compiled), np.signbit(interpreted))
        np.testing.assert_array_equal(compiled, interpreted)
    for v in x.tolist():
        compiled, interpreted = number(v, n), number.interpret(v, n)
        assert np.signbit(compiled) == np.signbit(interpreted)
        np.testing.assert_array_equal(compiled, interpreted)
