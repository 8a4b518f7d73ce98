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


@pto.jit
def composed(x, positive, unit, out):
    for i in pl.range(x.shape[0], parallel=True):
        out[0, i] = math.sinh(x[i])
        out[1, i] = math.cosh(x[i])
        out[2, i] = math.asinh(x[i])
        out[3, i] = math.cbrt(x[i])
        out[4, i] = math.acosh(positive[i])
        out[5, i] = math.log10(positive[i])
        out[6, i] = math.atanh(unit[i])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_hyperbolic_functions_their_inverses_roots_and_logarithms(dtype: type) -> None:
    rng = np.random.default_rng(1)
    of = np.finfo(dtype)
    odd = [0, -0.0, np.inf, -np.inf, np.nan, of.smallest_subnormal, -of.tiny, of.max, -of.max, 1, -1, 1 + of.eps, 0.5]
    wide = rng.standard_normal(4000) * 10 ** rng.uniform(-of.precision, 3, 4000)
    near = 1 + rng.standard_normal(4000) * 10 ** rng.uniform(-of.precision, 0, 4000)
    x = np.concatenate([wide, near, odd]).astype(dtype)
    unit = np.concatenate([rng.uniform(-1, 1, 8000), odd]).astype(dtype)
    out = np.empty((7, x.size), dtype)
    composed(x, x, unit, out)
    a, b = x.astype(np.longdouble), unit.astype(np.longdouble)
    with np.errstate(all="ignore"):
        exact = np.stack([np.sinh(a), np.cosh(a), np.arcsinh(a), np.cbrt(a), np.arccosh(a), np.log10(a), np.arctanh(b)])
        expected = exact.astype(dtype)
    _assert_close(out, exact, expected, 4)


def _assert_close(out: np.ndarray, exact: np.ndarray, expected: np.ndarray, units: float) -> None:
    """Within so many units in the last place of the exact results, the special values as expected."""
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(out), ~known)
    np.testing.assert_array_equal(np.signbit(out)[known], np.signbit(expected)[known])
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(out[~finite], expected[~finite])
    assert (np.abs(out[finite] - exact[finite]) / np.spacing(np.abs(expected[finite]))).max() < units


@pto.jit
def complement(x, out):
    for i in pl.range(x.shape[0], parallel=True):
        out[i] = math.erfc(x[i])


def test_the_complement_of_the_error_function_far_out() -> None:
    x = np.concatenate([np.linspace(-7, 27.2, 4001), [0, -0.0, 0.5, 30, 1e30, np.inf, -np.inf, np.nan]])
    exact = np.array([math.erfc(v) for v in x])
    for dtype, units, last in ((np.float64, 8, None), (np.float32, 8, 4001)):
        given = x.astype(dtype)[:last]
        out, exact = np.empty_like(given), np.array([math.erfc(v) for v in given])
        complement(given, out)
        _assert_close(out, exact, exact.astype(dtype), units)


@pto.jit
def parted(x, y, out):
    for i in pl.range(x.shape[0], parallel=True):
        out[0, i] = math.copysign(x[i], y[i])
        out[1, i] = math.copysign(2, y[i])
        out[2, i] = math.remainder(x[i], y[i])
        out[3, i] = math.remainder(x[i], 2)


def test_signs_and_remainders_are_exact() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.standard_normal(2000) * 10 ** rng.uniform(-3, 19, 2000), np.arange(-20, 20) / 2,
                        [0.0, -0.0, 5, np.inf, np.nan, 3, -3, 1e300, -1e300]])  # fmt: skip
    y = np.concatenate([rng.standard_normal(2000), np.tile([1, -2, 3, 0.5], 10),
                        [-0.0, 1, np.inf, 2, 1, -np.nan, np.nan, 3, -7e-300]])  # fmt: skip
    out = np.empty((4, x.size))
    parted(x, y, out)
    np.testing.assert_array_equal(out[:2], [np.copysign(x, y), np.copysign(2, y)])
    np.testing.assert_array_equal(np.signbit(out[:2]), np.signbit([np.copysign(x, y), np.copysign(2, y)]))
    for row, divisors in ((out[2], y), (out[3], np.full_like(y, 2))):
        exact = np.array([math.remainder(a, b) if np.isfinite(a) and b != 0 else np.nan
                          for a, b in zip(x, divisors, strict=True)])  # fmt: skip
        np.testing.assert_array_equal(row, exact)
        np.testing.assert_array_equal(np.signbit(row[exact == 0]), np.signbit(exact[exact == 0]))


@pto.jit
def pieces(x, y, n, fraction, exponent, out):
    for i in pl.range(x.shape[0], parallel=True):
        fraction[i], exponent[i] = math.frexp(x[i])
        out[0, i], out[1, i] = math.modf(x[i])
        out[2, i] = math.nextafter(x[i], y[i])
        out[3, i] = math.ldexp(x[i], n[i])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_parts_of_numbers_and_their_neighbours_are_exact(dtype: type) -> None:
    rng = np.random.default_rng(2)
    of = np.finfo(dtype)
    exponents = rng.integers(of.minexp - of.nmant, of.maxexp - 2, 500)
    odd = [0, -0.0, np.inf, -np.inf, np.nan, of.smallest_subnormal, -of.smallest_subnormal, of.tiny, of.max, -of.max]
    x = np.concatenate([rng.standard_normal(500) * 2.0**exponents, np.arange(-9, 9) / 2, odd]).astype(dtype)
    y = rng.permutation(x)
    y[::7] = x[::7]
    n = rng.integers(-40, 40, x.size).astype(np.int32)
    n[::9] *= 60
    fraction, exponent, out = np.empty_like(x), np.zeros(x.size, np.int32), np.empty((4, x.size), dtype)
    pieces(x, y, n, fraction, exponent, out)
    with np.errstate(all="ignore"):
        beside = np.where(x == y, y, np.nextafter(x, y))  # of 0.0 and -0.0 as in C, for f16, too
        expected = np.stack([*np.modf(x), beside, np.ldexp(x.astype(np.float64), n).astype(dtype)])
        halves, powers = np.frexp(x)
    for found, exact in ((out, expected), (fraction, halves)):
        np.testing.assert_array_equal(found, exact)
        known = ~np.isnan(exact)
        np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(exact[known]))
    np.testing.assert_array_equal(exponent, np.where(np.isfinite(x), powers, 0))


@pytest.mark.parametrize("target", ["c", "cpu"])
def test_parts_of_tiles_and_numbers(target: str) -> None:
    @pto.jit(target=target)
    def tiles(x, n, y):
        fraction, exponent = math.frexp(x[:])
        part, whole = math.modf(x[:])
        y[0, :], y[1, :], y[2, :], y[3, :] = fraction, exponent, part, whole
        y[4, :], y[5, :] = math.nextafter(x[:], 0.0), math.ldexp(x[:], n[:])

    @pto.jit
    def numbers(a: float, k: int):
        return math.frexp(a)[0], math.frexp(k)[1], math.modf(a)[1], math.nextafter(a, math.inf), math.ldexp(a, k)

    x, n = np.array([1.5, -2.25, 0, 1e-3, 700], np.float32), np.array([0, 1, 2, -3, 200], np.int32)
    y = np.empty((6, 5), np.float32)
    tiles(x, n, y)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, [*np.frexp(x), *np.modf(x), np.nextafter(x, np.float32(0)), np.ldexp(x, n)])
    assert numbers(3.7, 8) == (3.7 / 4, 4, 3.0, math.nextafter(3.7, math.inf), 3.7 * 256)


def test_powers_of_ten_gamma_functions_and_bases() -> None:
    @pto.jit
    def kernel(x, out):
        for i in pl.range(x.shape[0], parallel=True):
            out[0, i], out[1, i], out[2, i] = math.log10(x[i]), math.log(x[i], 3), math.lgamma(x[i])
            out[3, i] = math.gamma(x[i])

    for dtype, most in ((np.float64, 300), (np.float32, 38)):
        powers = np.arange(-most // 2, most)
        x = np.array([10.0**int(n) for n in powers], dtype)
        out = np.empty((4, x.size), dtype)
        kernel(x, out)
        np.testing.assert_array_equal(out[0], powers)
        np.testing.assert_allclose(out[1], np.log(x.astype(np.longdouble)) / math.log(3), rtol=1e-6)
    x = np.linspace(0.1, 20, 60)
    out = np.empty((4, 60))
    kernel(x, out)
    np.testing.assert_allclose(out[2], [math.lgamma(v) for v in x], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(out[3], [math.gamma(v) for v in x], rtol=1e-12)
    x = np.array([-1e-300, -1e-20, -1e-10, -1e-4, 1e-20, -3 + 2**-40, 30, 1e40, 1e300, np.inf, -np.inf])
    out = np.empty((4, x.size))
    kernel(x, out)
    np.testing.assert_allclose(out[2], [math.lgamma(v) for v in x], rtol=1e-12)
    np.testing.assert_allclose(out[3], [*(math.gamma(v) for v in x[:7]), np.inf, np.inf, np.inf, np.nan], rtol=1e-12)


@pytest.mark.parametrize("name", ["sinh", "cosh", "asinh", "atanh", "cbrt", "erfc", "log10"])
def test_tiles_narrow_floats_and_integers(name: str) -> None:
    function = getattr(math, name)

    @pto.jit
    def tiles(x, y):
        pl.store(function(pl.load(x)), y)

    x = np.linspace(0.1, 0.9, 50)
    for dtype in (np.float16, np.float32, np.float64):
        given, out = x.astype(dtype), np.empty(50, dtype)
        tiles(given, out)
        np.testing.assert_allclose(out, [function(float(v)) for v in given], rtol=2 * np.finfo(dtype).eps)
    whole, out = np.zeros(20, np.int32) + (name == "log10"), np.empty(20, np.float32)
    tiles(whole, out)
    np.testing.assert_allclose(out, function(float(whole[0])), atol=1e-6)
