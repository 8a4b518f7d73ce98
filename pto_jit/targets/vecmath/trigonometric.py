# SPDX-License-Identifier: MIT
"""sin, cos, tan: x = n pi/2 + r with |r| <= pi/4, and minimax polynomials in r**2.

Arguments up to `FAST_LIMIT` are reduced with pi/2 in three parts (Cody and Waite); beyond it, `slow_path` uses the
method of Payne and Hanek, "Radian reduction for trigonometric functions" (1983).
"""

from __future__ import annotations

from pto_jit.targets.vecmath.coefficients import COS, HALF_PI, SIN
from pto_jit.targets.vecmath.emitter import Emitter, Int, Mask, Value, magic
from pto_jit.targets.vecmath.polynomial import horner
from pto_jit.targets.vecmath.radian_reduction import reduce_huge

FAST_LIMIT = {"f32": 2.0**17, "f64": 2.0**30}
"""The largest argument of the three-part reduction: n times the third part stays far below the smallest |r|."""


def _reduce(b: Emitter, x: Value) -> tuple[Value, Int]:
    """(r, i) with x = n pi/2 + r and n in the low bits of i, for |x| <= FAST_LIMIT.

    The first fused operation is exact: its result is a multiple of the last place of pi/2 (or of x) and below 1.
    """
    shifted = b.fma(x, b.const(0.6366197723675814), magic(b))
    n = b.sub(shifted, magic(b))
    for part in HALF_PI[b.dtype]:
        x = b.fma(n, b.const(-part), x)
    return x, b.bits(shifted)


def _kernels(b: Emitter, r: Value) -> tuple[Value, Value]:
    """sin and cos of |r| <= pi/4."""
    z = b.mul(r, r)
    sine = b.mul(r, b.fma(z, horner(b, z, SIN[b.dtype]), b.const(1.0)))
    cosine = b.fma(z, b.fma(z, horner(b, z, COS[b.dtype]), b.const(-0.5)), b.const(1.0))
    return sine, cosine


def _is_odd(b: Emitter, i: Int) -> Mask:
    return b.mask_not(b.ieq(b.iand(i, b.iconst(1)), b.iconst(0)))


def _flip(b: Emitter, x: Value, i: Int, bit: int) -> Value:
    """x with its sign changed where bit `bit` of i is set."""
    top = 31 if b.dtype == "f32" else 63
    return b.from_bits(b.ixor(b.bits(x), b.shl(b.iand(i, b.iconst(1 << bit)), top - bit)))


def _sine(b: Emitter, r: Value, i: Int) -> Value:
    """sin(n pi/2 + r)."""
    sine, cosine = _kernels(b, r)
    return _flip(b, b.select(_is_odd(b, i), cosine, sine), i, 1)


def _tangent(b: Emitter, r: Value, i: Int) -> Value:
    """tan(n pi/2 + r): sin/cos of r, or -cos/sin."""
    sine, cosine = _kernels(b, r)
    odd = _is_odd(b, i)
    return _flip(b, b.div(b.select(odd, cosine, sine), b.select(odd, sine, cosine)), i, 0)


def _is_huge(b: Emitter, x: Value) -> Mask:
    """Beyond the fast reduction; infinite or NaN."""
    return b.mask_not(b.le(b.abs(x), b.const(FAST_LIMIT[b.dtype])))


def sine_of_huge(b: Emitter, x: Value) -> Value:
    """The slow path of `sin`."""
    return _sine(b, *reduce_huge(b, x))


def cosine_of_huge(b: Emitter, x: Value) -> Value:
    """The slow path of `cos`."""
    r, i = reduce_huge(b, x)
    return _sine(b, r, b.iadd(i, b.iconst(1)))


def tangent_of_huge(b: Emitter, x: Value) -> Value:
    """The slow path of `tan`."""
    return _tangent(b, *reduce_huge(b, x))


def sin(b: Emitter, x: Value) -> Value:
    """The sine of x radians; NaN at the infinities."""
    return b.slow_path(_is_huge(b, x), sine_of_huge, (x,), _sine(b, *_reduce(b, x)))


def cos(b: Emitter, x: Value) -> Value:
    """The cosine of x radians: the sine of x + pi/2; NaN at the infinities."""
    r, i = _reduce(b, x)
    return b.slow_path(_is_huge(b, x), cosine_of_huge, (x,), _sine(b, r, b.iadd(i, b.iconst(1))))


def tan(b: Emitter, x: Value) -> Value:
    """The tangent of x radians; NaN at the infinities."""
    return b.slow_path(_is_huge(b, x), tangent_of_huge, (x,), _tangent(b, *_reduce(b, x)))
