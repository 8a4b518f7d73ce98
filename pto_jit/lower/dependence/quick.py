# SPDX-License-Identifier: MIT
"""Quick tests of one subscript at a time: they prove most independence there is.

A subscript equation with nothing but a constant is the ZIV test, with one index of both iterations the strong SIV test,
the greatest common divisor of the coefficients is the GCD test, and the extreme values that it takes under the loops'
bounds and the order of the iterations are Banerjee's inequalities (U. Banerjee, "Dependence Analysis for
Supercomputing", 1988; the names are those of Allen and Kennedy, "Optimizing Compilers for Modern Architectures", 2001,
chapter 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import gcd
from typing import Literal

from pto_jit.lower.dependence.accesses import Access, Accesses, Loop, Span

Relation = Literal["<", "=", ">"]
"""The first access's iteration of a loop runs before, is, or runs after the second one's."""
Order = Sequence[tuple[Loop, Relation]]
Row = tuple[dict[int, int], int]
Interval = tuple[int | None, int | None]
FREE: Interval = (None, None)


def distances(found: Accesses, a: Access, b: Access) -> dict[int, int] | None:
    """By how many iterations `b` must be after `a`, by loop, to touch the same element; None: never.

    Only subscripts with one index (strong SIV) or none (ZIV) of both iterations count, so a loop that is not in the
    result may have any distance.  The answer is kept: all questions about a pair begin with it.
    """
    key = (a.order, b.order)
    if key not in found.distances:
        found.distances[key] = _distances(found, a, b)
    return found.distances[key]


def _distances(found: Accesses, a: Access, b: Access) -> dict[int, int] | None:
    out: dict[int, int] = {}
    if a.space.key != b.space.key:
        return out
    atoms = found.values.atoms
    common = {found.loops[n].atom: found.loops[n] for n, m in zip(a.stack, b.stack, strict=False) if n == m}
    for one, other in zip(a.spans, b.spans, strict=True):
        if not (one.point and other.point):
            continue
        assert one.low is not None and other.low is not None
        left = [(n, k) for n, k in one.low.terms if atoms[n].varies]
        right = [(n, k) for n, k in other.low.terms if atoms[n].varies]
        if left != right or len(left) > 1:
            continue
        rest = one.low - other.low
        if rest.terms:
            continue
        if not left:
            if rest.const:
                return None
            continue
        number, k = left[0]
        loop = common.get(number)
        if loop is None or loop.step.terms:
            continue
        if rest.const % k or out.setdefault(loop.number, rest.const // k) != rest.const // k:
            return None
    return out


def apart(found: Accesses, a: Access, b: Access, shared: frozenset[int], order: Order) -> bool:
    """Whether along one axis the spans of `a` and `b` never meet, whatever the bounds of the loops are.

    Their first elements are one linear form but for a constant, in which all has one value for both but the index of at
    most one loop of constant step; what a later iteration is at least beyond an earlier one is enough for the extents.
    Banerjee's inequalities would say the same, of a system of all bounds.
    """
    if a.space.key != b.space.key or not _stays(found, a, shared):
        return False
    along = _Along(found, shared, order)
    return any(along.apart(one, other) for one, other in zip(a.spans, b.spans, strict=True))


def all_apart(found: Accesses, accesses: Sequence[Access], shared: frozenset[int], orders: Sequence[Order]) -> bool:
    """Whether `apart` holds for any two of the accesses of a tensor, and for each with itself, in all of the orders:
    asked of their spans along one axis, of which only few are different."""
    first = accesses[0]
    if any(a.space.key != first.space.key or not _stays(found, a, shared) for a in accesses):
        return False
    rules = [_Along(found, shared, order) for order in orders]
    for spans in zip(*[a.spans for a in accesses], strict=True):
        different = dict.fromkeys(spans)
        if len(different) <= _FEW and all(
            along.apart(one, other) for one in different for other in different for along in rules
        ):
            return True
    return False


_FEW = 8


def _stays(found: Accesses, access: Access, shared: frozenset[int]) -> bool:
    """Whether the coordinates of an access are the same in both iterations."""
    return access.space.key is None or found.values.varies(*access.space.extents) <= shared


class _Along:
    """The question of `apart` along one axis."""

    def __init__(self, found: Accesses, shared: frozenset[int], order: Order) -> None:
        self.atoms = found.values.atoms
        self.shared = shared
        self.relations = {loop.atom: relation for loop, relation in order if not loop.step.terms}

    def apart(self, one: Span, other: Span) -> bool:
        if one.low is None or other.low is None or one.low.terms != other.low.terms:
            return False
        moved = [(number, k) for number, k in one.low.terms if not self.atoms[number].varies <= self.shared]
        if len(moved) > 1 or (moved and moved[0][0] not in self.relations):
            return False
        low = high = other.low.const - one.low.const  # how far the second begins behind the first, at least and at most
        if moved and self.relations[moved[0][0]] != "=":
            k = moved[0][1] if self.relations[moved[0][0]] == "<" else -moved[0][1]
            low, high = (low + k, math.inf) if k > 0 else (-math.inf, high + k)
        return low >= _extent(one) or -high >= _extent(other)


def _extent(span: Span) -> float:
    """How many elements a span has at most."""
    assert span.low is not None
    known = [high.const - span.low.const for high in span.highs if high.terms == span.low.terms]
    return min(known, default=math.inf)


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
