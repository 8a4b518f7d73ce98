# SPDX-License-Identifier: MIT
"""Quick tests of one subscript at a time: they prove most independence there is.

A subscript equation with nothing but a constant is the ZIV test, with one index of both iterations the strong SIV test,
the greatest common divisor of the coefficients is the GCD test, and the extreme values that it takes under the loops'
bounds and the order of the iterations are Banerjee's inequalities (U. Banerjee, "Dependence Analysis for
Supercomputing", 1988; the names are those of Allen and Kennedy, "Optimizing Compilers for Modern Architectures", 2001,
chapter 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from pto_jit.lower.dependence.exact import Row

Interval = tuple[int | None, int | None]
FREE: Interval = (None, None)


def impossible(
    equations: Sequence[Row],
    inequalities: Sequence[Row],
    ranges: Mapping[int, Interval],
    differences: Mapping[tuple[int, int], Interval],
) -> bool:
    """Whether one equation or inequality alone cannot hold.

    `ranges` bounds variables; `differences[a, b]` bounds `b - a` of the indices a and b of one loop.
    """
    for coefficients, const in equations:
        if not coefficients:
            if const:
                return True
            continue
        if const % gcd(*coefficients.values()):
            return True
        low, high = _extremes(coefficients, ranges, differences)
        if (low is not None and low + const > 0) or (high is not None and high + const < 0):
            return True
    for coefficients, const in inequalities:
        _, high = _extremes(coefficients, ranges, differences)
        if high is not None and high + const < 0:
            return True
    return False


def _extremes(
    coefficients: dict[int, int],
    ranges: Mapping[int, Interval],
    differences: Mapping[tuple[int, int], Interval],
) -> Interval:
    """Bounds of `sum(coefficient * variable)`.

    For a pair `a * x + b * y` with `y = x + d`: `(a + b) * x + b * d`.
    """
    total: Interval = (0, 0)
    rest = dict(coefficients)
    for (x, y), distance in differences.items():
        if x in rest and y in rest:
            a, b = rest.pop(x), rest.pop(y)
            total = _sum(total, _times(distance, b))
            if a + b:
                total = _sum(total, _times(ranges.get(x, FREE), a + b))
    for v, k in rest.items():
        total = _sum(total, _times(ranges.get(v, FREE), k))
    return total


def _sum(a: Interval, b: Interval) -> Interval:
    low = None if a[0] is None or b[0] is None else a[0] + b[0]
    high = None if a[1] is None or b[1] is None else a[1] + b[1]
    return low, high


def _times(a: Interval, k: int) -> Interval:
    low = None if a[0] is None else a[0] * k
    high = None if a[1] is None else a[1] * k
    return (low, high) if k >= 0 else (high, low)
