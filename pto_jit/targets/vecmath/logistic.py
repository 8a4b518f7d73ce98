# SPDX-License-Identifier: MIT
"""tanh, sigmoid, silu, gelu_tanh: one exponential of a non-positive number and one division each.

With E = e**-|t| the logistic function is 1 / (1 + E) for t >= 0 and E / (1 + E) below.  E is held as E 2**64
(f64: 2**512), which is a normal number even where E itself is far below the smallest; the factor is taken out again
at the very end.  So the negative tail keeps its full accuracy down to the smallest subnormal.  Arguments are limited
only where the result is far below that: a product that is rounded to zero from next to the subnormal numbers is as
slow on many processors as one that is subnormal.
"""

from __future__ import annotations

from pto_jit.targets.vecmath.coefficients import EXP, EXPM1_TAIL, GELU_TANH, LN2, LOG2E
from pto_jit.targets.vecmath.emitter import Emitter, Int, Value, magic
from pto_jit.targets.vecmath.exponential import (
    exp2_of_reduced,
    power_of_two,
    reduce_by_ln2,
    times_power_of_two,
)
from pto_jit.targets.vecmath.polynomial import estrin

TAIL_SCALE = {"f32": 64, "f64": 512}
"""The exponent of the factor that keeps a tail normal."""


def biased_magic(b: Emitter) -> Value:
    """What it is added to is rounded to an integer, with that integer plus TAIL_SCALE in the low bits."""
    return magic(b, TAIL_SCALE[b.dtype])


def expm1_of_tail(b: Emitter, x: Value, below: Value | None = None) -> tuple[Value, Int]:
    """(g, i) with e**(x + below) = (1 + g) 2**n, |g| < 0.42, and n + TAIL_SCALE in the low bits of i.

    For x <= 0 as far as x e**x does not vanish; g is NaN where x is.
    """
    shifted = b.fma(x, b.const(LOG2E), biased_magic(b))
    n = b.sub(shifted, biased_magic(b))
    high, low = LN2[b.dtype]
    r = b.fma(n, b.const(-low), b.fma(n, b.const(-high), x))
    if below is not None:
        r = b.add(r, below)
    return b.fma(b.mul(r, r), estrin(b, r, EXP[b.dtype][2:]), r), b.bits(shifted)


def exp_of_tail(b: Emitter, x: Value) -> Value:
    """e**x 2**TAIL_SCALE for x as above; some number or NaN where x is NaN."""
    growth, i = expm1_of_tail(b, x)
    return times_power_of_two(b, b.add(b.const(1.0), growth), i)


def tanh(b: Emitter, x: Value) -> Value:
    """The hyperbolic tangent: t / (t + 2) with t = e**(2|x|) - 1."""
    size = b.min(b.const(9.1 if b.dtype == "f32" else 19.1), b.abs(x))
    _, r, i = reduce_by_ln2(b, b.add(size, size))
    tail = b.mul(b.mul(r, r), estrin(b, r, EXPM1_TAIL[b.dtype]))
    scale = power_of_two(b, i)
    t = b.fma(scale, tail, b.fma(scale, r, b.sub(scale, b.const(1.0))))
    return b.copysign(b.ratio(t, b.add(t, b.const(2.0))), x)


def _times_logistic(b: Emitter, factor: Value, tail: Value, t: Value) -> Value:
    """`factor` times the logistic function of t, where tail = e**-|t| 2**TAIL_SCALE; NaN where `factor` is."""
    zero, one = b.const(0.0), b.const(1.0)
    unscale = b.const(2.0 ** -TAIL_SCALE[b.dtype])
    negative = b.lt(t, zero)
    quotient = b.ratio(b.select(negative, b.mul(factor, tail), factor), b.fma(tail, unscale, one))
    return b.mul(quotient, b.select(negative, unscale, one))


def sigmoid(b: Emitter, x: Value) -> Value:
    """The logistic function 1 / (1 + e**-x)."""
    exponent = b.max(b.const(-130.0 if b.dtype == "f32" else -1060.0), b.neg(b.abs(x)))
    one_or_nan = b.fma(exponent, b.const(0.0), b.const(1.0))
    return _times_logistic(b, one_or_nan, exp_of_tail(b, exponent), x)


def silu(b: Emitter, x: Value) -> Value:
    """x / (1 + e**-x); -0 at minus infinity, the limit."""
    lowest = b.const(-130.0 if b.dtype == "f32" else -1060.0)
    x = b.max(lowest, x)
    return _times_logistic(b, x, exp_of_tail(b, b.max(lowest, b.neg(b.abs(x)))), x)


def gelu_tanh(b: Emitter, x: Value) -> Value:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3))) / 2; -0 at minus infinity, the limit.

    It is x times the logistic function of x (c0 + c1 x**2), whose exponential is computed as a power of two (the
    logarithm of e is part of c0 and c1).  The exponent may be a hundred and more, so an error of half a unit in its
    last place would be many in the result: it is carried in two parts.  The upper part of c0 is so short that
    `excess` is exact.
    """
    limit = 11.5 if b.dtype == "f32" else 22.5
    x = b.max(b.const(-limit), x)
    size = b.min(b.const(limit), b.abs(x))
    c0, c0_low, c1, c1_low = (b.const(-value) for value in GELU_TANH[b.dtype])
    square = b.mul(size, size)
    square_low = b.fma(size, size, b.neg(square))
    factor = b.fma(c1, square, c0)
    excess = b.sub(factor, c0)
    constants_low = b.fma(c1_low, square, c0_low)
    factor_low = b.add(b.fma(c1, square_low, constants_low), b.fma(c1, square, b.neg(excess)))
    exponent = b.mul(size, factor)
    below = b.fma(size, factor_low, b.fma(size, factor, b.neg(exponent)))
    shifted = b.add(exponent, biased_magic(b))
    r = b.add(b.sub(exponent, b.sub(shifted, biased_magic(b))), below)
    return _times_logistic(b, x, times_power_of_two(b, exp2_of_reduced(b, r), b.bits(shifted)), x)
