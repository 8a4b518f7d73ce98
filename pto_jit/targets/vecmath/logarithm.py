# SPDX-License-Identifier: MIT
"""log, log2, log1p: x = 2**k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and a minimax polynomial in f.

f32 uses the polynomial in f itself; f64 the series of atanh in s = f / (2 + f), which needs a third of the terms.
"""

from __future__ import annotations

import math

from pto_jit.targets.vecmath.coefficients import ATANH, LN2, LOG1P, LOG2_1P, LOG2E_PARTS
from pto_jit.targets.vecmath.emitter import Emitter, Int, Mask, Value, mostly
from pto_jit.targets.vecmath.polynomial import estrin

_SQRT_HALF_BITS = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}
_MANTISSA = {"f32": 23, "f64": 52}


def exponent(b: Emitter, x: Value) -> Int:
    """k with x / 2**k between sqrt(1/2) and sqrt(2), for a positive normal x."""
    return b.ashr(b.isub(b.bits(x), b.iconst(_SQRT_HALF_BITS[b.dtype])), _MANTISSA[b.dtype])


def split(b: Emitter, x: Value) -> tuple[Value, Value]:
    """(k, f) with x = 2**k (1 + f), for a positive finite x, subnormal too."""
    mantissa = _MANTISSA[b.dtype]
    subnormal = b.lt(x, b.const(2.0 ** (-126 if b.dtype == "f32" else -1022)))
    normal = mostly(b, x, lambda: subnormal, lambda: b.select(subnormal, b.mul(x, b.const(2.0**mantissa)), x))
    shift = b.const(0.0)
    shift = mostly(b, shift, lambda: subnormal, lambda: b.select(subnormal, b.const(-float(mantissa)), shift))
    k = exponent(b, normal)
    f = b.sub(b.from_bits(b.isub(b.bits(normal), b.shl(k, mantissa))), b.const(1.0))
    return b.add(b.to_float(k), shift), f


def log1p_tail(b: Emitter, f: Value, plus: Value) -> Value:
    """log(1 + f) - f + plus, where plus is small beside f or f is not small."""
    square = b.mul(f, f)
    if b.dtype == "f32":
        return b.fma(square, estrin(b, f, LOG1P["f32"]), plus)
    s = b.div(f, b.add(f, b.const(2.0)))
    z = b.mul(s, s)
    half_square = b.mul(square, b.const(0.5))
    return b.fma(s, b.fma(z, estrin(b, z, ATANH["f64"]), half_square), b.sub(plus, half_square))


def at_the_edges(b: Emitter, x: Value, result: Value, zero: float) -> Value:
    """`result`, and for a logarithm that has its pole at `zero` what it is there, below, and at infinity."""

    def edges() -> Value:
        upper = b.select(b.eq(x, b.const(math.inf)), x, result)
        outside = b.select(b.eq(x, b.const(zero)), b.const(-math.inf), b.const(math.nan))
        return b.select(b.gt(x, b.const(zero)), upper, outside)

    def at_one() -> Mask:
        return b.mask_not(b.mask_and(b.gt(x, b.const(zero)), b.lt(x, b.const(math.inf))))

    return mostly(b, result, at_one, edges)


def log(b: Emitter, x: Value) -> Value:
    """The natural logarithm: k ln 2 + log(1 + f)."""
    k, f = split(b, x)
    high, low = LN2[b.dtype]
    fraction = b.add(f, log1p_tail(b, f, b.mul(k, b.const(low))))
    return at_the_edges(b, x, b.fma(k, b.const(high), fraction), 0.0)


def log2(b: Emitter, x: Value) -> Value:
    """The logarithm to base 2: k + f log2(e) + (log(1 + f) - f) log2(e)."""
    k, f = split(b, x)
    high, low = LOG2E_PARTS[b.dtype]
    if b.dtype == "f32":
        tail = b.mul(b.mul(f, f), estrin(b, f, LOG2_1P["f32"]))
    else:
        tail = b.mul(log1p_tail(b, f, b.const(0.0)), b.const(high))
    fraction = b.fma(f, b.const(high), b.fma(f, b.const(low), tail))
    return at_the_edges(b, x, b.add(k, fraction), 0.0)


def log1p(b: Emitter, x: Value) -> Value:
    """log(1 + x): k is taken from the rounded 1 + x, f = 2**-k x + (2**-k - 1) is rounded once only."""
    bias = 127 if b.dtype == "f32" else 1023
    k = exponent(b, b.add(x, b.const(1.0)))
    # 4 / 2**k is normal for every k; a quarter of it may be subnormal, and is exact.
    power = b.from_bits(b.shl(b.isub(b.iconst(bias + 2), k), _MANTISSA[b.dtype]))
    inverse = b.mul(power, b.const(0.25))
    f = b.fma(inverse, x, b.sub(inverse, b.const(1.0)))
    high, low = LN2[b.dtype]
    n = b.to_float(k)
    fraction = b.add(f, log1p_tail(b, f, b.mul(n, b.const(low))))
    result = b.copysign(b.fma(n, b.const(high), fraction), x)
    return at_the_edges(b, x, result, -1.0)
