# SPDX-License-Identifier: MIT
"""Small pieces every family uses: evaluating polynomials, limiting a range, error-free sums and products."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.targets.vecmath.emitter import Emitter, Value


def horner(b: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with the given coefficients, lowest power first."""
    result = b.const(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = b.fma(result, x, b.const(coefficient))
    return result


def estrin(b: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """The same polynomial in groups of two or four terms that do not wait for each other (Estrin).

    One or two operations more than Horner's rule and half its depth or less: a recipe whose longest chain of
    dependent operations is above some sixty cycles cannot keep two fused multiply-add units busy, however many
    elements are independent, because the processor's scheduler fills up with operations that wait.
    """
    square = b.mul(x, x)
    if len(coefficients) < 8:
        return _horner_of(b, square, [horner(b, x, coefficients[k : k + 2]) for k in range(0, len(coefficients), 2)])
    groups: list[Value] = []
    for k in range(0, len(coefficients), 4):
        low = horner(b, x, coefficients[k : k + 2])
        high = coefficients[k + 2 : k + 4]
        groups.append(b.fma(square, horner(b, x, high), low) if high else low)
    return _horner_of(b, b.mul(square, square), groups)


def _horner_of(b: Emitter, x: Value, terms: Sequence[Value]) -> Value:
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = b.fma(result, x, term)
    return result


def clamp(b: Emitter, x: Value, low: float, high: float) -> Value:
    """x limited to [low, high]; NaN stays NaN."""
    return b.max(b.const(low), b.min(b.const(high), x))


def two_product(b: Emitter, x: Value, y: Value) -> tuple[Value, Value]:
    """(p, e) with p = x * y rounded and p + e = x * y exactly, barring underflow."""
    product = b.mul(x, y)
    return product, b.fma(x, y, b.neg(product))


def two_sum(b: Emitter, x: Value, y: Value) -> tuple[Value, Value]:
    """(s, e) with s = x + y rounded and s + e = x + y exactly (Knuth)."""
    total = b.add(x, y)
    y_part = b.sub(total, x)
    x_part = b.sub(total, y_part)
    return total, b.add(b.sub(x, x_part), b.sub(y, y_part))


def fast_two_sum(b: Emitter, x: Value, y: Value) -> tuple[Value, Value]:
    """`two_sum` for |x| >= |y| (Dekker)."""
    total = b.add(x, y)
    return total, b.sub(y, b.sub(total, x))
