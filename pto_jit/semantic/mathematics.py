# SPDX-License-Identifier: MIT
"""Functions of Python's `math` that are made of several operations, as Python over `pl`, for numbers and tiles.

They are accurate to a few units in the last place and have the special values of C; `docs/vector-math.md` has the
measurements.  `asin`, `acos` and `hypot` follow the promotions of the operations they consist of; the others compute
in the dtype of the argument, f16, bf16 and integers in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pto_jit.language as pl
from pto_jit import dtypes

_LN2 = 0.6931471805599453
_INF, _NAN = float("inf"), float("nan")
_LARGE = float(1 << 28)  # the square of a larger number swallows a 1 that is added, in f64, too


def float_dtype(*values: Any) -> dtypes.DType:
    """The dtype of a result: that of the arguments if they share a float dtype, else f64 if one is f64, else f32."""
    given = [v.dtype for v in values if hasattr(v, "dtype")]
    known = {d if isinstance(d, dtypes.DType) else dtypes.from_numpy(d) for d in given}
    if len(known) == 1 and all(d is not None and d.is_float for d in known):
        return known.pop() or dtypes.f32
    return dtypes.f64 if dtypes.f64 in known else dtypes.f32


def _wide(value: Any, dtype: dtypes.DType | None = None) -> Any:
    """An argument in the dtype of the computation, at least f32; `dtype`: the result's, if already known."""
    return pl.cast(value, pl.f64 if (dtype or float_dtype(value)) == dtypes.f64 else pl.f32)


def _with_sign(x: Any, magnitude: Any) -> Any:
    """The value of an odd function at x from that at |x|."""
    return pl.where(x == 0.0, x, pl.where(x < 0.0, -magnitude, magnitude))


def _cosine_of(sine: Any) -> Any:
    """The cosine of an angle from -pi / 2 to pi / 2 whose sine is given; near 1 without the loss of 1 - sine ** 2."""
    return pl.sqrt((1 - sine) * (1 + sine))


def asin(value: Any) -> Any:
    """The angle from -pi / 2 to pi / 2 with that sine."""
    return pl.atan2(value, _cosine_of(value))


def acos(value: Any) -> Any:
    """The angle from 0 to pi with that cosine."""
    return pl.atan2(_cosine_of(value), value)


def hypot(a: Any, b: Any) -> Any:
    """sqrt(a * a + b * b) without overflow of the squares: the larger one times the root of 1 + ratio ** 2."""
    x, y = pl.abs(a), pl.abs(b)
    large = pl.maximum(x, y)
    ratio = pl.minimum(x, y) / large
    found = pl.where(large == 0, large, large * pl.sqrt(1 + ratio * ratio))
    return pl.where(pl.isinf(x) | pl.isinf(y), _INF, found)


def sinh(value: Any) -> Any:
    """The hyperbolic sine."""
    x = _wide(value)
    a = pl.abs(x)
    t = pl.expm1(a)
    half = pl.exp(a * 0.5)  # its square overflows later than exp(a)
    return pl.cast(_with_sign(x, pl.where(a > 80.0, 0.5 * half * half, 0.5 * (t + t / (t + 1.0)))), float_dtype(value))


def cosh(value: Any) -> Any:
    """The hyperbolic cosine."""
    x = _wide(value)
    a = pl.abs(x)
    e, half = pl.exp(a), pl.exp(a * 0.5)
    return pl.cast(pl.where(a > 80.0, 0.5 * half * half, 0.5 * e + 0.5 / e), float_dtype(value))


def asinh(value: Any) -> Any:
    """The inverse of the hyperbolic sine."""
    x = _wide(value)
    a = pl.abs(x)
    near = pl.log1p(a + a * a / (1.0 + pl.sqrt(a * a + 1.0)))
    return pl.cast(_with_sign(x, pl.where(a > _LARGE, pl.log(a) + _LN2, near)), float_dtype(value))


def acosh(value: Any) -> Any:
    """The inverse of the hyperbolic cosine; NaN below 1."""
    x = _wide(value)
    t = x - 1.0
    near = pl.log1p(t + pl.sqrt(t * (t + 2.0)))
    found = pl.where(x > _LARGE, pl.log(x) + _LN2, near)
    return pl.cast(pl.where(x < 1.0, _NAN, found), float_dtype(value))


def atanh(value: Any) -> Any:
    """The inverse of the hyperbolic tangent; infinite at 1 and -1, NaN beyond."""
    x = _wide(value)
    a = pl.abs(x)
    return pl.cast(_with_sign(x, 0.5 * pl.log1p((a + a) / (1.0 - a))), float_dtype(value))


def log10(value: Any) -> Any:
    """The decimal logarithm, exact for powers of ten; in f64."""
    x = pl.cast(value, pl.f64)
    natural = pl.log(x)
    found = pl.fma(natural, 0.4342944819032518, natural * 1.098319650216765e-17)
    whole = pl.round(found)
    found = pl.where(pl.abs(found - whole) <= 2.0**-52 * pl.abs(whole), whole, found)
    return pl.cast(pl.where(pl.isinf(natural), natural, found), float_dtype(value))


def erfc(value: Any) -> Any:
    """1 - erf(value), accurate far out, too: computed there from GELU, whose tail keeps its digits."""
    x = _wide(value)
    z = pl.minimum(x, 40.0)
    root, low = (1.4142135623730951, -9.667293313452913e-17) if float_dtype(value) == dtypes.f64 else (
        1.4142135381698608, 2.4203233972979183e-08)  # fmt: skip
    s = z * root
    rest = pl.fma(z, root, -s) + z * low  # z times the root of 2 is s + rest
    tail = 2.0 * pl.gelu(-s) / -s * (1.0 - s * rest)
    return pl.cast(pl.where(x < 0.5, 1.0 - pl.erf(x), pl.where(pl.isnan(x), x, tail)), float_dtype(value))


def cbrt(value: Any) -> Any:
    """The cubic root, of negative numbers, too."""
    x = _wide(value)
    wide = float_dtype(value) == dtypes.f64
    least, scale, back = (2.0**-1000, 2.0**60, 2.0**-20) if wide else (2.0**-100, 2.0**30, 2.0**-10)
    small = pl.abs(x) < least
    a = pl.where(small, pl.abs(x) * scale, pl.abs(x))
    y = pl.exp2(pl.log2(a) * (1.0 / 3.0))
    y = y - pl.fma(y * y, y, -a) / (3.0 * y * y)  # Newton's step doubles the digits
    y = pl.where((a == 0.0) | (a == _INF), a, pl.where(small, y * back, y))
    return pl.cast(_with_sign(x, y), float_dtype(value))


def _is_negative(x: Any) -> Any:
    """Whether the sign bit of an f32 or f64 is set."""
    return pl.bitcast(x, pl.i64 if float_dtype(x) == dtypes.f64 else pl.i32) < 0


def copysign(value: Any, sign: Any) -> Any:
    """|value| with the sign of `sign`, also of -0.0 and NaN."""
    dtype = float_dtype(value, sign)
    a = pl.abs(_wide(value, dtype))
    return pl.cast(pl.where(_is_negative(_wide(sign, dtype)), -a, a), dtype)


def remainder(value: Any, divisor: Any) -> Any:
    """value - n divisor for the whole number n nearest to the quotient, the even one of two; exact."""
    dtype = float_dtype(value, divisor)
    x, y = _wide(value, dtype), pl.abs(_wide(divisor, dtype))
    a = pl.abs(x)
    m = pl.fmod(a, y)
    rest = y - m
    even = m - 2.0 * pl.fmod(0.5 * (a - m), y)
    found = pl.where(m < rest, m, pl.where(m > rest, -rest, even))
    return pl.cast(pl.where(_is_negative(x), -found, found), dtype)


# -- parts of numbers --------------------------------------------------------------------------------------------------

_BITS = {dtypes.f64: (pl.i64, 52), dtypes.f32: (pl.i32, 23), dtypes.bf16: (pl.i16, 7), dtypes.f16: (pl.i16, 10)}
"""The integer of the size of a float, and how many of its bits are the fraction."""


def frexp(value: Any) -> tuple[Any, Any]:
    """A fraction of [0.5, 1) with the sign of `value`, and the exponent (i32) of 2 that it is to be multiplied with;
    0, infinities and NaN are their own fraction, of exponent 0."""
    x = _wide(value)
    wide = float_dtype(value) == dtypes.f64
    integer, fraction = _BITS[dtypes.f64 if wide else dtypes.f32]
    bias, least, places = (1022, 2.0**-1022, 54) if wide else (126, 2.0**-126, 25)
    small = pl.abs(x) < least
    bits = pl.bitcast(pl.where(small, x * 2.0**places, x), integer)
    moved = ((bits >> fraction) & (2 * bias + 3)) - bias
    half = pl.bitcast(bits - (moved << fraction), pl.f64 if wide else pl.f32)
    exponent = moved - pl.where(small, places, 0)
    whole = (x == 0.0) | ~pl.isfinite(x)
    return pl.cast(pl.where(whole, x, half), float_dtype(value)), pl.cast(pl.where(whole, 0, exponent), pl.i32)


def modf(value: Any) -> tuple[Any, Any]:
    """The fraction and the whole part of a number, both with its sign."""
    x = _wide(value)
    whole = pl.trunc(x)
    nothing = pl.where(pl.isinf(x), 1.0 / x, x * 0.0)  # with the sign
    dtype = float_dtype(value)
    return pl.cast(pl.where(x == whole, nothing, x - whole), dtype), pl.cast(whole, dtype)


def nextafter(value: Any, towards: Any) -> Any:
    """The number next to `value` in the direction of `towards`, in the dtype of the result."""
    dtype = float_dtype(value, towards)
    x, y = pl.cast(value, dtype), pl.cast(towards, dtype)
    integer, _ = _BITS[dtype]
    bits = pl.bitcast(x, integer)
    least = pl.where(y > 0.0, pl.bitcast(pl.cast(1, integer), dtype), -pl.bitcast(pl.cast(1, integer), dtype))
    away = (x < y) == (x > 0.0)
    moved = pl.where(x == 0.0, least, pl.bitcast(pl.where(away, bits + 1, bits - 1), dtype))
    return pl.where(x == y, y, pl.where(pl.isnan(x) | pl.isnan(y), x + y, moved))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        acos, acosh, asin, asinh, atanh, cbrt, copysign, cosh, erfc, frexp, hypot, log10, modf, nextafter, remainder,
        sinh,
    )
}  # fmt: skip
"""By the name in `math`."""
