# SPDX-License-Identifier: MIT
"""pow: 2**(y log2 |x|), the logarithm and the product in two parts.

log2(1 + f) = (2 s + s**3 A(s**2)) log2(e) with s = f / (2 + f).  The exponent may be as large as 1075, so log2 needs
some eleven (f32: eight) bits more than the format has.  The series is at most 1 % of 2 s; its leading term is carried
in two parts, of the rest the rounding errors do not matter.
"""

from __future__ import annotations

import math

from pto_jit.targets.vecmath.coefficients import ATANH_POW, ATANH_POW_LOW, LOG2E_PARTS
from pto_jit.targets.vecmath.emitter import Emitter, Mask, Value, magic, mostly
from pto_jit.targets.vecmath.exponential import exp2_of_reduced, limited_exponent
from pto_jit.targets.vecmath.logarithm import split
from pto_jit.targets.vecmath.polynomial import clamp, estrin, fast_two_sum, two_product


def _log2(b: Emitter, x: Value) -> tuple[Value, Value]:
    """log2(x) as a sum of two, for a positive finite x."""
    k, f = split(b, x)
    two = b.const(2.0)
    denominator = b.add(f, two)
    denominator_low = b.sub(f, b.sub(denominator, two))
    inverse = b.div(b.const(1.0), denominator)
    s = b.mul(f, inverse)
    minus_s = b.neg(s)
    s_low = b.mul(b.fma(minus_s, denominator_low, b.fma(minus_s, denominator, f)), inverse)
    series, series_low = _series(b, s, s_low)
    natural, lost = fast_two_sum(b, b.add(s, s), series)
    natural_low = b.add(b.add(b.add(s_low, s_low), series_low), lost)
    high, low = (b.const(part) for part in LOG2E_PARTS[b.dtype])
    fraction, error = two_product(b, natural, high)
    fraction_low = b.fma(natural_low, high, b.fma(natural, low, error))
    total, lost = fast_two_sum(b, k, fraction)
    return fast_two_sum(b, total, b.add(lost, fraction_low))


def _series(b: Emitter, s: Value, s_low: Value) -> tuple[Value, Value]:
    """s**3 A(s**2) as a sum of two."""
    coefficients = ATANH_POW[b.dtype]
    z, z_low = two_product(b, s, s)
    z_low = b.fma(b.add(s, s), s_low, z_low)
    higher = b.fma(z, estrin(b, z, coefficients[1:]), b.const(ATANH_POW_LOW[b.dtype]))
    factor, factor_low = fast_two_sum(b, b.const(coefficients[0]), higher)
    cube, cube_low = two_product(b, z, factor)
    cube_low = b.fma(z, factor_low, b.fma(z_low, factor, cube_low))
    series, series_low = two_product(b, s, cube)
    return series, b.fma(s, cube_low, b.fma(s_low, cube, series_low))


def _is_integral(b: Emitter, x: Value) -> Mask:
    return b.eq(b.trunc(x), x)


def pow(b: Emitter, x: Value, y: Value) -> Value:
    """x**y with the special cases of C's Annex F."""
    zero, infinity, one = b.const(0.0), b.const(math.inf), b.const(1.0)
    # No power beyond the limit is finite and not zero, except of 1; and all such y are even, as infinity counts.
    limit = 2.0**40 if b.dtype == "f32" else 2.0**70
    exponent = clamp(b, y, -limit, limit)
    size = b.abs(x)
    high, low = _log2(b, size)
    product, product_low = two_product(b, exponent, high)
    product_low = b.fma(exponent, low, product_low)
    limited, kept = limited_exponent(b, product)
    n = b.sub(b.add(limited, magic(b)), magic(b))
    r = b.add(b.sub(limited, n), b.select(b.eq(limited, product), product_low, zero))
    plain = b.ldexp(exp2_of_reduced(b, r), n, kept)

    def any_power() -> Value:
        falling = b.lt(y, zero)
        result = b.select(b.eq(size, zero), b.select(falling, infinity, zero), plain)
        result = b.select(b.eq(size, infinity), b.select(falling, zero, infinity), result)
        integral = _is_integral(b, exponent)
        odd = b.mask_and(integral, b.mask_not(_is_integral(b, b.mul(exponent, b.const(0.5)))))
        result = b.select(odd, b.copysign(result, x), result)
        negative = b.mask_and(b.lt(x, zero), b.gt(x, b.const(-math.inf)))
        invalid = b.mask_or(b.mask_or(b.ne(x, x), b.ne(y, y)), b.mask_and(negative, b.mask_not(integral)))
        result = b.select(invalid, b.const(math.nan), result)
        return b.select(b.mask_or(b.eq(x, one), b.eq(y, zero)), one, result)

    def special() -> Mask:
        finite = b.mask_and(b.lt(x, infinity), b.lt(b.abs(y), infinity))
        return b.mask_not(b.mask_and(b.gt(x, zero), finite))

    return mostly(b, plain, special, any_power)
