# SPDX-License-Identifier: MIT
"""atan2: the quotient of the smaller by the larger operand, a minimax polynomial, and the octant put back."""

from __future__ import annotations

import math

from pto_jit.targets.vecmath.coefficients import ATAN, PI
from pto_jit.targets.vecmath.emitter import Emitter, Value
from pto_jit.targets.vecmath.polynomial import estrin


def atan2(b: Emitter, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), in [-pi, pi], with the special cases of C's Annex F.

    atan(q) = q + q**3 A(q**2) on [0, 1] in f32; in f64 on [0, tan(pi/8)], using
    atan(v/w) = pi/4 + atan((v - w) / (v + w)) above.
    """
    zero, one = b.const(0.0), b.const(1.0)
    width, height = b.abs(x), b.abs(y)
    steep = b.gt(height, width)
    small, large = b.min(height, width), b.max(height, width)
    # Two zeros count as 0/1, two infinities as 1/1; the largest numbers are scaled so that their sum is finite.
    both_infinite = b.eq(small, b.const(math.inf))
    small = b.select(both_infinite, one, small)
    large = b.select(b.mask_or(both_infinite, b.eq(large, zero)), one, large)
    flip = b.ilt(b.ixor(b.bits(x), b.select(steep, b.iconst(-1), b.iconst(0))), b.iconst(0))
    pi, pi_low = (b.const(part) for part in PI[b.dtype])
    leftwards = b.ilt(b.bits(x), b.iconst(0))
    half = b.const(0.5)
    turns = b.select(steep, half, b.select(leftwards, one, zero))
    if b.dtype == "f64":
        huge = b.gt(large, b.const(2.0**1020))
        quarter = b.const(0.25)
        small, large = (b.select(huge, b.mul(v, quarter), v) for v in (small, large))
        wide = b.gt(small, b.mul(large, b.const(0.4142135623730951)))
        eighth = b.select(flip, b.const(-0.25), quarter)
        turns = b.select(wide, b.add(turns, eighth), turns)
        small, large = b.select(wide, b.sub(small, large), small), b.select(wide, b.add(small, large), large)
    q = b.div(small, large)
    z = b.mul(q, q)
    angle = b.fma(b.mul(q, z), estrin(b, z, ATAN[b.dtype]), q)
    angle = b.select(flip, b.neg(angle), angle)
    # turns is a multiple of 1/4, so its product with pi rounds only where three quarters are meant.
    result = b.fma(turns, pi, b.fma(turns, pi_low, angle))
    result = b.copysign(result, y)
    return b.select(b.mask_or(b.ne(x, x), b.ne(y, y)), b.const(math.nan), result)
