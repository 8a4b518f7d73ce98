# SPDX-License-Identifier: MIT
"""fmod, exact for all operands."""

from __future__ import annotations

import math

from pto_jit.targets.vecmath.emitter import Emitter, Value


def _last_step(b: Emitter, x: Value, y: Value) -> Value:
    """x modulo y for |x| < 2**p y, p the precision: the quotient may come out one too large, never more."""
    r = b.fma(b.neg(b.trunc(b.div(x, y))), y, x)
    return b.select(b.lt(r, b.const(0.0)), b.add(r, y), r)


def fmod_of_distant(b: Emitter, x: Value, y: Value) -> Value:
    """The slow path of `fmod`, for positive finite operands: long division, a whole mantissa per step.

    When q = x / y rounded is at least 2**(p - 1) it is an integer, and x - q y is exact (its last place is that of
    y or above) and at most half a last place of q times y.  So x becomes smaller by p bits in a step.  To keep q
    finite, x is first reduced modulo multiples y 2**j of y.
    """
    precision, shift = (24, 100) if b.dtype == "f32" else (53, 700)
    zero, infinity = b.const(0.0), b.const(math.inf)
    for level in (2, 1, 0):
        divisor = y
        for _ in range(level):
            divisor = b.mul(divisor, b.const(2.0**shift))
        usable = b.lt(divisor, infinity)

        def step(b: Emitter, rest: Value, divisor: Value) -> tuple[Value, Value]:
            q = b.round_even(b.div(rest, divisor))
            return b.fma(b.neg(q), divisor, rest), divisor

        rest, _ = b.repeat(shift // (precision - 1) + 2, step, x, divisor)
        rest = b.select(b.lt(rest, zero), b.add(rest, divisor), rest)
        x = b.select(usable, rest, x)
    return x


def fmod(b: Emitter, x: Value, y: Value) -> Value:
    """x - n y for the integer n = x / y truncated, exactly; of the sign of x.  NaN for y = 0 or an infinite x."""
    size, divisor = b.abs(x), b.abs(y)
    quotient = b.div(size, divisor)
    fast = _last_step(b, size, divisor)
    limit = 2.0**24 if b.dtype == "f32" else 2.0**53
    valid = b.mask_and(b.lt(size, b.const(math.inf)), b.gt(divisor, b.const(0.0)))
    distant = b.mask_and(b.ge(quotient, b.const(limit)), valid)
    result = b.copysign(b.slow_path(distant, fmod_of_distant, (size, divisor), fast), x)
    result = b.select(b.lt(size, divisor), x, result)
    return b.select(valid, result, b.const(math.nan))
