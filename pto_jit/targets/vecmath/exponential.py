# SPDX-License-Identifier: MIT
"""exp, exp2, expm1: argument reduction to |r| <= ln(2)/2, a minimax polynomial, and a scaling by 2**n."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pto_jit.targets.vecmath.coefficients import EXP, EXP2, EXPM1_TAIL, LN2, LOG2E
from pto_jit.targets.vecmath.emitter import LOWEST, Emitter, Int, Mask, Value, magic
from pto_jit.targets.vecmath.polynomial import clamp, estrin, horner


def reduce_by_ln2(b: Emitter, x: Value, most: int | None = None) -> tuple[Value, Value, Int]:
    """(n, r, i) with x = n ln 2 + r, |r| <= ln(2)/2, n integral, i holding n in its low bits; for |x| < 2**20.

    most: what n does not exceed, however large x is; r is then as large as it has to be.

    ln 2 is subtracted in two parts (Cody and Waite).  The first fused operation is exact, because its result has no
    more bits than x.
    """
    shifted = b.fma(x, b.const(LOG2E), magic(b))
    if most is not None:
        shifted = b.min(magic(b, most), shifted)
    n = b.sub(shifted, magic(b))
    high, low = LN2[b.dtype]
    return n, b.fma(n, b.const(-low), b.fma(n, b.const(-high), x)), b.bits(shifted)


def _limited_below(b: Emitter, x: Value, low: float, lowest: float) -> tuple[Value, Mask | None]:
    """x, and the mask for `Emitter.ldexp` where the result is zero below `low`.

    Without masks x does not go below `lowest`, far below: a scaling that rounds to zero from next to the subnormal
    numbers is as slow on many processors as one with a subnormal result.
    """
    if b.masks_ldexp:
        return x, b.mask_not(b.lt(x, b.const(low)))
    return b.max(b.const(lowest), x), None


def limited_exponent(b: Emitter, x: Value) -> tuple[Value, Mask | None]:
    """The exponent and the mask for 2**x by `Emitter.ldexp`; any number that is infinite or zero is as good."""
    low, high = (-151.0, 129.0) if b.dtype == "f32" else (-1076.0, 1025.0)
    return _limited_below(b, b.min(b.const(high), x), low, LOWEST[b.dtype])


def _above_one(b: Emitter, r: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial whose first coefficient is 1: a short one in as few operations as there are, a long one in groups
    that do not wait for each other, with the first two terms, in which its error is, as in the short one."""
    if b.dtype == "f32":
        return horner(b, r, coefficients)
    one, slope, *rest = coefficients
    return b.fma(b.fma(estrin(b, r, rest), r, b.const(slope)), r, b.const(one))


def exp(b: Emitter, x: Value) -> Value:
    """e**x.

    Above, n is limited rather than x: r and its polynomial grow with x, so that the result is infinite.
    """
    low, most = (-104.0, 129) if b.dtype == "f32" else (-746.0, 1025)
    x, kept = _limited_below(b, x, low, LOWEST[b.dtype] * math.log(2.0))
    n, r, _ = reduce_by_ln2(b, x, most)
    return b.ldexp(_above_one(b, r, EXP[b.dtype]), n, kept)


def exp2(b: Emitter, x: Value) -> Value:
    """2**x."""
    x, kept = limited_exponent(b, x)
    n = b.sub(b.add(x, magic(b)), magic(b))
    return b.ldexp(_above_one(b, b.sub(x, n), EXP2[b.dtype]), n, kept)


def exp2_of_reduced(b: Emitter, r: Value) -> Value:
    """2**r for |r| <= 1/2."""
    return b.fma(r, estrin(b, r, EXP2[b.dtype][1:]), b.const(1.0))


def power_of_two(b: Emitter, i: Int, offset: int = 0) -> Value:
    """2**(n + offset) for the n in the low bits of i; the result must be a normal number."""
    bias, mantissa = (127, 23) if b.dtype == "f32" else (1023, 52)
    return b.from_bits(b.shl(b.iadd(i, b.iconst(bias + offset)), mantissa))


def times_power_of_two(b: Emitter, x: Value, i: Int) -> Value:
    """x 2**n for the n in the low bits of i, when x is finite and x and the result are normal."""
    return b.from_bits(b.iadd(b.bits(x), b.shl(i, 23 if b.dtype == "f32" else 52)))


def expm1(b: Emitter, x: Value) -> Value:
    """e**x - 1 = (2**n - 1) + 2**n r + 2**n r**2 q(r).

    The factor is held as 2**(n - 1), which does not overflow before the result does; doubling at the end is exact.
    Where the halved value might be subnormal the result is x itself.
    """
    low, high, tiny = (-20.0, 89.0, 2.0**-26) if b.dtype == "f32" else (-40.0, 710.0, 2.0**-55)
    _, r, i = reduce_by_ln2(b, clamp(b, x, low, high))
    tail = b.mul(b.mul(r, r), estrin(b, r, EXPM1_TAIL[b.dtype]))
    scale = power_of_two(b, i, -1)
    half = b.fma(scale, tail, b.fma(scale, r, b.sub(scale, b.const(0.5))))
    return b.select(b.lt(b.abs(x), b.const(tiny)), x, b.add(half, half))
