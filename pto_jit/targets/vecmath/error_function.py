# SPDX-License-Identifier: MIT
"""erf, and gelu in its exact form."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.targets.vecmath.coefficients import (
    ERF_LARGE,
    ERF_SMALL,
    MILLS_DENOMINATOR,
    MILLS_LINE,
    MILLS_NUMERATOR,
)
from pto_jit.targets.vecmath.emitter import Emitter, Value, magic
from pto_jit.targets.vecmath.exponential import exp2_of_reduced, power_of_two, times_power_of_two
from pto_jit.targets.vecmath.logistic import TAIL_SCALE, expm1_of_tail
from pto_jit.targets.vecmath.polynomial import estrin


def erf(b: Emitter, x: Value) -> Value:
    """The error function: x + x P(x**2) below 1, 1 - 2**(|x| Q(|x|)) above."""
    size = b.abs(x)
    limited = b.min(b.const(4.0 if b.dtype == "f32" else 6.0), size)
    exponent = b.mul(limited, estrin(b, limited, ERF_LARGE[b.dtype]))
    shifted = b.add(exponent, magic(b))
    r = b.sub(exponent, b.sub(shifted, magic(b)))
    large = b.sub(b.const(1.0), times_power_of_two(b, exp2_of_reduced(b, r), b.bits(shifted)))
    small = b.fma(size, estrin(b, b.mul(size, size), ERF_SMALL[b.dtype]), size)
    # A NaN takes the second way, where it stays one.
    return b.copysign(b.select(b.ge(size, b.const(1.0)), large, small), x)


def gelu(b: Emitter, x: Value) -> Value:
    """x Phi(x), Phi the distribution function of the normal distribution; -0 at minus infinity, the limit.

    Phi(-t) = e**(-t**2/2) / M(t) for t >= 0, where M(t) = sqrt(2 pi) / Mills' ratio is 2 at zero and nearly a straight
    line further on; the rest is a rational function of t.  (After the continued fraction of Laplace.)  t**2 enters in
    two parts, so the tail keeps its accuracy down to the smallest subnormal.
    """
    limit = b.const(15.7 if b.dtype == "f32" else 39.5)
    unscale = 2.0 ** -TAIL_SCALE[b.dtype]
    x = b.max(b.neg(limit), x)
    near = b.min(limit, x)
    t = b.abs(near)

    half = b.mul(t, b.const(-0.5))
    exponent = b.mul(half, t)
    growth, i = expm1_of_tail(b, exponent, b.fma(half, t, b.neg(exponent)))
    slope, offset = MILLS_LINE[b.dtype]
    # tail / (line + above / below), with one division
    above = _last_term_apart(b, t, MILLS_NUMERATOR[b.dtype])
    below = _last_term_apart(b, t, MILLS_DENOMINATOR[b.dtype])
    divisor = b.fma(b.fma(t, b.const(slope), b.const(offset)), below, above)
    tail = b.ratio(b.mul(b.mul(b.fma(near, growth, near), below), power_of_two(b, i)), divisor)

    left = b.le(x, b.const(0.0))  # zero too, which keeps its sign there
    result = b.select(left, tail, b.fma(tail, b.const(-unscale), x))
    return b.mul(result, b.select(left, b.const(unscale), b.const(1.0)))


def _last_term_apart(b: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial by `estrin`, but its constant term added last: more accurate where that term is the largest."""
    return b.fma(x, estrin(b, x, coefficients[1:]), b.const(coefficients[0]))
