# SPDX-License-Identifier: MIT
"""Functions of C's and CUDA's mathematics libraries that the language has no operation for, as Python over `pl`.

Arguments and results have one dtype, the computation is in f64.  Errors of f64 results: gamma functions 3e-13 of the
value (`lgamma`: of 1 where the value is smaller), `erfcx` 1e-11 and above 3 2e-7, inverses of error functions 1e-12,
`normcdf` 1e-14, Bessel functions 2e-7 of the amplitude, the others a few units in the last place.

Sources: Stirling's series (Abramowitz and Stegun 6.1.41) behind the recurrence of the gamma function; Press et al.,
Numerical Recipes, 6.2 (`erfc`) and 6.5 (Bessel functions, after Hart 1968); Winitzki (2008) with Newton's steps for the
inverse error function.
"""

from __future__ import annotations

from typing import Any

import pto_jit.language as pl
from pto_jit.semantic.mathematics import cbrt, erfc, float_dtype, hypot

_PI = 3.141592653589793
_INF, _NAN = float("inf"), float("nan")


def _log_gamma(x: Any) -> Any:
    """log(gamma(x)) for x >= 0.5, by Stirling's series, below 16 at x + 8."""
    product = x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0)
    product = pl.where(x < 16.0, product, 1.0)
    z = pl.where(x < 16.0, x + 8.0, x)
    r = 1.0 / (z * z)
    series = 1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r * (1.0 / 1188.0 - r * (
        691.0 / 360360.0)))))  # fmt: skip
    # (z - 0.5) log z - z, grouped so that infinity minus infinity does not arise
    return (z - 0.5) * (pl.log(z) - 1.0) + 0.4189385332046727 + series / z - pl.log(product)


def _modulo_two(x: Any) -> Any:
    """|x| modulo 2, exactly."""
    a = pl.abs(x)
    return a - 2.0 * pl.floor(a * 0.5)


def _sine_of_turns(x: Any) -> Any:
    """sin(pi x), exact at whole numbers and accurate next to them."""
    rest = _modulo_two(x)
    part = pl.where(rest >= 1.0, rest - 1.0, rest)
    sine = pl.sin(_PI * pl.where(part > 0.5, 1.0 - part, part))
    sine = pl.where(rest >= 1.0, -sine, sine)
    return pl.where(x == 0.0, x, pl.where(x < 0.0, -sine, sine))


def lgamma(value: Any) -> Any:
    """The logarithm of |gamma(value)|; inf at 0, -1, -2, ..."""
    x = pl.cast(value, pl.f64)
    small = x < 0.5
    found = _log_gamma(pl.where(small, 1.0 - x, x))
    reflected = 1.1447298858494002 - pl.log(pl.abs(_sine_of_turns(x))) - found
    return pl.cast(pl.where(x == -_INF, _INF, pl.where(small, reflected, found)), float_dtype(value))


def tgamma(value: Any) -> Any:
    """gamma(value); NaN at -1, -2, ..., inf at 0, -inf at -0.0."""
    x = pl.cast(value, pl.f64)
    small = x < 0.5
    found = pl.exp(_log_gamma(pl.where(small, 1.0 - x, x)))
    sine = _sine_of_turns(x)
    reflected = pl.where((sine == 0.0) & (x < 0.0), _NAN, _PI / (sine * found))
    return pl.cast(pl.where(small, reflected, found), float_dtype(value))


def sinpi(value: Any) -> Any:
    """sin(pi value), exact at whole numbers."""
    return pl.cast(_sine_of_turns(pl.cast(value, pl.f64)), float_dtype(value))


def cospi(value: Any) -> Any:
    """cos(pi value), exact at whole and half numbers."""
    rest = _modulo_two(pl.cast(value, pl.f64))
    from_zero = pl.where(rest <= 1.0, 0.5 - rest, rest - 1.5)  # the distance from the nearest zero, exact close to it
    return pl.cast(pl.sin(_PI * from_zero), float_dtype(value))


# -- error functions ----------------------------------------------------------------------------------------------


def _tail(z: Any) -> Any:
    """log(erfc(z)) + z**2 for z >= 0, within 1.2e-7."""
    t = 1.0 / (1.0 + 0.5 * z)
    return pl.log(t) - 1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (
        0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))))  # fmt: skip


def erfcx(value: Any) -> Any:
    """exp(value**2) erfc(value)."""
    x = pl.cast(value, pl.f64)
    near = pl.exp(x * x) * (1.0 - pl.erf(x))
    return pl.cast(pl.where(x < 3.0, near, pl.exp(_tail(pl.abs(x)))), float_dtype(value))


def normcdf(value: Any) -> Any:
    """The distribution function of the standard normal distribution."""
    return pl.cast(0.5 * erfc(pl.cast(value, pl.f64) * -0.7071067811865476), float_dtype(value))


def _inverse_complement(c: Any) -> Any:
    """x with erfc(x) = c, for c in (0, 1]."""
    y = 1.0 - c
    log = pl.log(c * (1.0 + y))
    half = 4.330746750799873 + 0.5 * log
    x = pl.sqrt(pl.maximum(pl.sqrt(half * half - log * 6.802721088435374) - half, 0.0))
    for _ in pl.static_range(3):  # Newton's, for the logarithm: it converges far out, too
        own = erfc(x)
        x = x + own * pl.log(own / c) * pl.exp(x * x) * 0.886226925452758
    return x


def _inverse(c: Any) -> Any:
    """x with erfc(x) = c, for c in (0, 2)."""
    found = _inverse_complement(pl.minimum(c, 2.0 - c))
    found = pl.where((c == 0.0) | (c == 2.0), _INF, found)
    found = pl.where((c < 0.0) | (c > 2.0), _NAN, found)
    return pl.where(c > 1.0, -found, found)


def erfcinv(value: Any) -> Any:
    """The inverse of erfc, from 0 to 2."""
    return pl.cast(_inverse(pl.cast(value, pl.f64)), float_dtype(value))


def erfinv(value: Any) -> Any:
    """The inverse of erf, from -1 to 1."""
    x = pl.cast(value, pl.f64)
    y = x * x
    series = 0.886226925452758 * x * (1.0 + y * (0.2617993877991494 + y * 0.143931730849219))  # 1 - x would lose digits
    return pl.cast(pl.where(pl.abs(x) < 2e-3, series, _inverse(1.0 - x)), float_dtype(value))


def normcdfinv(value: Any) -> Any:
    """The inverse of normcdf, from 0 to 1."""
    return pl.cast(-1.4142135623730951 * _inverse(2.0 * pl.cast(value, pl.f64)), float_dtype(value))


# -- Bessel functions ---------------------------------------------------------------------------------------------


def _polynomial(x: Any, *factors: float) -> Any:
    """factors[0] + factors[1] x + ..."""
    total = factors[-1]
    for factor in factors[-2::-1]:
        total = factor + x * total
    return total


def _phase_0(x: Any) -> tuple[Any, Any, Any]:
    """Amplitude of order 0 for x >= 8, and the factors of its cosine and sine."""
    z = 8.0 / x
    y = z * z
    p = _polynomial(y, 1.0, -0.1098628627e-2, 0.2734510407e-4, -0.2073370639e-5, 0.2093887211e-6)
    q = _polynomial(y, -0.1562499995e-1, 0.1430488765e-3, -0.6911147651e-5, 0.7621095161e-6, -0.934935152e-7)
    return pl.sqrt(0.636619772 / x), p, z * q


def _phase_1(x: Any) -> tuple[Any, Any, Any]:
    """The same of order 1."""
    z = 8.0 / x
    y = z * z
    p = _polynomial(y, 1.0, 0.183105e-2, -0.3516396496e-4, 0.2457520174e-5, -0.240337019e-6)
    q = _polynomial(y, 0.04687499995, -0.2002690873e-3, 0.8449199096e-5, -0.88228987e-6, 0.105787412e-6)
    return pl.sqrt(0.636619772 / x), p, z * q


def _vanishing(x: Any, wave: Any) -> Any:
    """A wave of falling amplitude, which is 0 at infinity, where its phase is unknown."""
    return pl.where(x == _INF, 0.0, wave)


def _j0(x: Any) -> Any:
    y = x * x
    near = _polynomial(y, 57568490574.0, -13362590354.0, 651619640.7, -11214424.18, 77392.33017, -184.9052456) / (
        _polynomial(y, 57568490411.0, 1029532985.0, 9494680.718, 59272.64853, 267.8532712, 1.0))
    at = pl.maximum(x, 8.0)
    amplitude, p, q = _phase_0(at)
    far = _vanishing(at, amplitude * (pl.cos(at - 0.785398164) * p - pl.sin(at - 0.785398164) * q))
    return pl.where(x < 8.0, near, far)


def _j1(x: Any) -> Any:
    y = x * x
    near = x * _polynomial(y, 72362614232.0, -7895059235.0, 242396853.1, -2972611.439, 15704.48260, -30.16036606) / (
        _polynomial(y, 144725228442.0, 2300535178.0, 18583304.74, 99447.43394, 376.9991397, 1.0))
    at = pl.maximum(x, 8.0)
    amplitude, p, q = _phase_1(at)
    far = _vanishing(at, amplitude * (pl.cos(at - 2.356194491) * p - pl.sin(at - 2.356194491) * q))
    return pl.where(x < 8.0, near, far)


def j0(value: Any) -> Any:
    """The Bessel function of the first kind of order 0."""
    return pl.cast(_j0(pl.abs(pl.cast(value, pl.f64))), float_dtype(value))


def j1(value: Any) -> Any:
    """The Bessel function of the first kind of order 1."""
    x = pl.cast(value, pl.f64)
    return pl.cast(pl.sign(x) * _j1(pl.abs(x)), float_dtype(value))


def y0(value: Any) -> Any:
    """The Bessel function of the second kind of order 0; -inf at 0, NaN below."""
    x = pl.cast(value, pl.f64)
    y = x * x
    near = _polynomial(y, -2957821389.0, 7062834065.0, -512359803.6, 10879881.29, -86327.92757, 228.4622733) / (
        _polynomial(y, 40076544269.0, 745249964.8, 7189466.438, 47447.26470, 226.1030244, 1.0))
    near = near + 0.636619772 * _j0(x) * pl.log(x)
    at = pl.maximum(x, 8.0)
    amplitude, p, q = _phase_0(at)
    far = _vanishing(at, amplitude * (pl.sin(at - 0.785398164) * p + pl.cos(at - 0.785398164) * q))
    return pl.cast(pl.where(x < 0.0, _NAN, pl.where(x < 8.0, near, far)), float_dtype(value))


def y1(value: Any) -> Any:
    """The Bessel function of the second kind of order 1; -inf at 0, NaN below."""
    x = pl.cast(value, pl.f64)
    y = x * x
    above = _polynomial(y, -0.4900604943e13, 0.1275274390e13, -0.5153438139e11, 0.7349264551e9, -0.4237922726e7,
                        0.8511937935e4)  # fmt: skip
    below = _polynomial(y, 0.2499580570e14, 0.4244419664e12, 0.3733650367e10, 0.2245904002e8, 0.1020426050e6,
                        0.3549632885e3, 1.0)  # fmt: skip
    near = x * above / below
    near = near + 0.636619772 * (_j1(x) * pl.log(x) - 1.0 / x)
    at = pl.maximum(x, 8.0)
    amplitude, p, q = _phase_1(at)
    far = _vanishing(at, amplitude * (pl.sin(at - 2.356194491) * p + pl.cos(at - 2.356194491) * q))
    near = pl.where(x == 0.0, -_INF, near)
    return pl.cast(pl.where(x < 0.0, _NAN, pl.where(x < 8.0, near, far)), float_dtype(value))


def _grown(x: Any) -> Any:
    """exp(x) / sqrt(x), for x > 0; its parts overflow no earlier than it does."""
    half = pl.exp(0.5 * x)
    return pl.where(x == _INF, _INF, half / pl.sqrt(x) * half)


def cyl_bessel_i0(value: Any) -> Any:
    """The modified Bessel function of the first kind of order 0."""
    x = pl.abs(pl.cast(value, pl.f64))
    y = x * x / 14.0625
    near = _polynomial(y, 1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2)
    at = pl.maximum(x, 3.75)
    far = _grown(at) * _polynomial(
        3.75 / at, 0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2, -0.2057706e-1, 0.2635537e-1,
        -0.1647633e-1, 0.392377e-2)  # fmt: skip
    return pl.cast(pl.where(x < 3.75, near, far), float_dtype(value))


def cyl_bessel_i1(value: Any) -> Any:
    """The modified Bessel function of the first kind of order 1."""
    signed = pl.cast(value, pl.f64)
    x = pl.abs(signed)
    y = x * x / 14.0625
    near = x * _polynomial(y, 0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3)
    at = pl.maximum(x, 3.75)
    far = _grown(at) * _polynomial(
        3.75 / at, 0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1, 0.2282967e-1, -0.2895312e-1,
        0.1787654e-1, -0.420059e-2)  # fmt: skip
    return pl.cast(pl.sign(signed) * pl.where(x < 3.75, near, far), float_dtype(value))


# -- parts of numbers ---------------------------------------------------------------------------------------------


def logb(value: Any) -> Any:
    """The exponent of the leading binary digit: floor(log2 |value|)."""
    x = pl.abs(pl.cast(value, pl.f64))
    e = pl.floor(pl.log2(x))
    e = pl.where(pl.exp2(e) > x, e - 1.0, pl.where(pl.exp2(e + 1.0) <= x, e + 1.0, e))
    return pl.cast(pl.where((x == 0.0) | (x == _INF), pl.log2(x), e), float_dtype(value))


def ldexp(value: Any, exponent: Any) -> Any:
    """value * 2**exponent, rounded once: the last of its steps alone can leave the range of normal numbers."""
    x, e = pl.cast(value, pl.f64), pl.clip(pl.cast(exponent, pl.f64), -2200.0, 2200.0)
    last = pl.clip(e, -1022.0, 1022.0)
    second = pl.clip(e - last, -1022.0, 1022.0)
    first = e - last - second
    return pl.cast(x * pl.exp2(first) * pl.exp2(second) * pl.exp2(last), float_dtype(value))


# -- powers and roots ---------------------------------------------------------------------------------------------


def exp10(value: Any) -> Any:
    """10**value."""
    x = pl.cast(value, pl.f64)
    high = x * 2.302585092994046
    low = pl.fma(x, 2.302585092994046, -high) + x * -2.1707562233822494e-16
    found = pl.exp(high)
    return pl.cast(pl.where(pl.abs(low) < 1.0, found * (1.0 + low), found), float_dtype(value))


def rcbrt(value: Any) -> Any:
    """1 / cbrt(value)."""
    return pl.cast(1.0 / cbrt(pl.cast(value, pl.f64)), float_dtype(value))


def rhypot(a: Any, b: Any) -> Any:
    """1 / sqrt(a**2 + b**2)."""
    return pl.cast(1.0 / hypot(pl.cast(a, pl.f64), pl.cast(b, pl.f64)), float_dtype(a, b))
