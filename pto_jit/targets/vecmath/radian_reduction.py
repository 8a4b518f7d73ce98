# SPDX-License-Identifier: MIT
"""Reduction of huge arguments modulo pi/2, after Payne and Hanek (1983), in floating point.

x 2/pi is needed modulo 4 only, so the bits of 2/pi that contribute multiples of 4 are left out: which ones, depends
on the exponent of x.  A table holds, for each group of exponents, four numbers that add up to what is left of 2/pi.
Their products with x are exact as pairs (fused multiply-add), are taken modulo 4 one by one, and added up without
loss.  The argument closest to a multiple of pi/2 leaves 2**-30 (f32) or 2**-62 (f64); what the table leaves out is
below 2**-60 and 2**-120.
"""

from __future__ import annotations

from functools import cache

from pto_jit.targets.vecmath.coefficients import HALF_PI, TWO_OVER_PI_BITS
from pto_jit.targets.vecmath.emitter import Emitter, Int, Value, magic
from pto_jit.targets.vecmath.polynomial import fast_two_sum, two_product, two_sum

_PRECISION = {"f32": 24, "f64": 53}
_GROUP_BITS = {"f32": 3, "f64": 5}  # log2 of the number of exponents that share an entry
_FIRST = {"f32": 16, "f64": 29}  # the smallest exponent served
_LAST = {"f32": 127, "f64": 1023}
_SCALE = {"f32": 64, "f64": 512}  # x is multiplied by 2**-scale and the table by 2**scale, against underflow


def _round_to(bits: int, numerator: int, exponent: int) -> tuple[float, int]:
    """`numerator * 2**exponent` cut off to `bits` bits, as a float, and what is left of the numerator."""
    excess = max(numerator.bit_length() - bits, 0)
    head = numerator >> excess
    return float(head) * 2.0 ** (exponent + excess), numerator - (head << excess)


@cache
def table(dtype: str) -> tuple[tuple[float, ...], ...]:
    """Four columns; row g is for x with exponents FIRST + (g << GROUP_BITS) and up: 2/pi * 2**SCALE, reduced."""
    precision, total = _PRECISION[dtype], TWO_OVER_PI_BITS.bit_length()
    rows: list[tuple[float, ...]] = []
    for exponent in range(_FIRST[dtype], _LAST[dtype] + 1, 1 << _GROUP_BITS[dtype]):
        last_place = exponent - precision + 1  # every x of the group is a multiple of 2**last_place
        kept = min(total + 2 - last_place, total)  # weights below 2**(2 - last_place)
        remaining = TWO_OVER_PI_BITS & ((1 << kept) - 1)
        # Eight words of precision are plenty; the numbers then fit a Python float's exponent.
        cut = max(remaining.bit_length() - 8 * precision, 0)
        remaining >>= cut
        parts: list[float] = []
        for _ in range(4):
            part, remaining = _round_to(precision, remaining, cut - total + _SCALE[dtype])
            parts.append(part)
        rows.append(tuple(parts))
    return tuple(zip(*rows, strict=True))


def _modulo_4(b: Emitter, x: Value) -> Value:
    """x minus the nearest multiple of 4, exactly."""
    return b.fma(b.round_even(b.mul(x, b.const(0.25))), b.const(-4.0), x)


def _row(b: Emitter, x: Value) -> Int:
    """The row of the table for each lane; some row where x is small, infinite or NaN."""
    bias, mantissa = (127, 23) if b.dtype == "f32" else (1023, 52)
    exponent = b.iand(b.lshr(b.bits(x), mantissa), b.iconst(2 * bias + 1))
    row = b.ashr(b.isub(exponent, b.iconst(bias + _FIRST[b.dtype])), _GROUP_BITS[b.dtype])
    row = b.select(b.ilt(row, b.iconst(0)), b.iconst(0), row)
    last = b.iconst(len(table(b.dtype)[0]) - 1)
    return b.select(b.ilt(last, row), last, row)


def reduce_huge(b: Emitter, x: Value) -> tuple[Value, Int]:
    """(r, i) with x = n pi/2 + r, |r| <= pi/4, and n modulo 4 in the low bits of i; r is NaN unless x is finite.

    For |x| >= 2**16 (f32), 2**29 (f64).
    """
    row = _row(b, x)
    scaled = b.mul(x, b.const(2.0 ** -_SCALE[b.dtype]))
    high, middle, low, lowest = (b.lookup(column, row) for column in table(b.dtype))
    first, first_error = two_product(b, scaled, high)
    second, second_error = two_product(b, scaled, middle)
    third, third_error = two_product(b, scaled, low)
    terms = (
        _modulo_4(b, first_error), _modulo_4(b, second), second_error, third, third_error, b.mul(scaled, lowest),
    )  # fmt: skip
    total, error, rest = _modulo_4(b, first), b.const(0.0), b.const(0.0)
    for term in terms[:2]:
        total, lost = two_sum(b, total, term)
        error = b.add(error, lost)  # at most two bits each: exact
    n = b.round_even(total)
    total = b.sub(total, n)
    for term in terms[2:]:
        total, lost = two_sum(b, total, term)
        error, lost = two_sum(b, error, lost)
        rest = b.add(rest, lost)
    total, error = two_sum(b, total, error)
    error = b.add(error, rest)
    total, error = fast_two_sum(b, total, error)
    half_pi, half_pi_low, _ = HALF_PI[b.dtype]
    r, r_error = two_product(b, total, b.const(half_pi))
    r_error = b.fma(error, b.const(half_pi), b.fma(total, b.const(half_pi_low), r_error))
    return b.add(r, r_error), b.bits(b.add(n, magic(b)))
