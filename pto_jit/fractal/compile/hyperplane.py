# SPDX-License-Identifier: MIT
"""Wavefronts of a nest with uniform dependences: hyperplanes, unimodular completion, bounds of planes.

A nest of n loops is a set of points of Z^n; a distance vector is a point less one that it depends on.  A schedule is
a row vector h with h . delta >= 1 for every distance delta: the points x with one value of h . x (a plane) are
independent (L. Lamport, 1974).  Completed to a unimodular matrix it is a change of loops whose outermost one carries
every dependence (M. Wolf and M. Lam, 1991).

Vectors are tuples of ints; nothing here knows of programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

Vector = tuple[int, ...]
Matrix = tuple[Vector, ...]


class NoSchedule(Exception):
    """There is no hyperplane; the message says why."""


def dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def is_lexicographically_positive(vector: Vector) -> bool:
    """Whether the first component that is not 0 is positive: what loops in their order satisfy."""
    first = next((x for x in vector if x), 0)
    return first > 0


def is_fully_permutable(distances: Sequence[Vector]) -> bool:
    """Whether the loops may change places and be tiled by rectangles: no component is negative."""
    return all(x >= 0 for d in distances for x in d)


def hyperplane(distances: Sequence[Vector], dims: int) -> Vector:
    """The smallest integer h with h . delta >= 1 for all distances: least sum of |h_i|, then lexicographically least.

    Components are not negative where the distances' are not.  Without distances every point is in one plane: zeros.
    Raises NoSchedule for a distance that the loops in their order do not satisfy.
    """
    for d in distances:
        if not is_lexicographically_positive(d):
            raise NoSchedule(f"the distance {d} is not lexicographically positive: a point would need a later one")
    if not distances:
        return (0,) * dims
    limit = sum(_safe(distances, dims))
    for size in range(1, limit + 1):
        for h in _vectors(dims, size):
            if all(dot(h, d) >= 1 for d in distances):
                return h
    raise AssertionError("the safe hyperplane is among those that were tried")


def _safe(distances: Sequence[Vector], dims: int) -> Vector:
    """Some hyperplane, from the innermost loop outwards: each coefficient outweighs all that is inside of it."""
    h = [0] * dims
    for k in reversed(range(dims)):
        carried = [d for d in distances if d[k] > 0 and not any(d[:k])]
        need = [-(-(1 - dot(h[k + 1 :], d[k + 1 :])) // d[k]) for d in carried]
        h[k] = max([0, *need])
    return tuple(h)


def _vectors(dims: int, size: int) -> Iterator[Vector]:
    """All vectors with that sum of absolute values, lexicographically."""
    if dims == 1:
        yield from ((-size,), (size,)) if size else ((0,),)
        return
    for first in range(-size, size + 1):
        for rest in _vectors(dims - 1, size - abs(first)):
            yield (first, *rest)


def skew(distances: Sequence[Vector], dims: int) -> Matrix:
    """A unimodular lower triangular matrix that makes every component of every distance non-negative.

    Row k adds multiples of outer loops to loop k; it is a unit row where nothing is negative.
    Raises NoSchedule as `hyperplane` does.
    """
    for d in distances:
        if not is_lexicographically_positive(d):
            raise NoSchedule(f"the distance {d} is not lexicographically positive: a point would need a later one")
    rows = [[int(i == k) for i in range(dims)] for k in range(dims)]
    for k in range(1, dims):
        for d in distances:
            if dot(rows[k], d) < 0:
                outer = next(i for i in range(k) if dot(rows[i], d) > 0)
                times = -(dot(rows[k], d) // dot(rows[outer], d))
                rows[k] = [a + times * b for a, b in zip(rows[k], rows[outer], strict=True)]
    return tuple(tuple(row) for row in rows)


def completion(h: Vector) -> Matrix:
    """A unimodular matrix whose first row is h.

    The other rows are unit rows, for all loops but one with |h_i| = 1 (the innermost such); where there is none, they
    come from the extended Euclidean algorithm.  Raises NoSchedule when the components have a common divisor.
    """
    n = len(h)
    left_out = next((k for k in reversed(range(n)) if abs(h[k]) == 1), None)
    if left_out is not None:
        return (h, *(tuple(int(i == k) for i in range(n)) for k in range(n) if k != left_out))
    if gcd(*h) != 1:
        raise NoSchedule(f"the components of {h} have the common divisor {gcd(*h)}")
    # Column operations that turn h to (1, 0, ...) are a matrix U with h U = e_1, so h is the first row of its inverse,
    # on which the inverse operations act from the left.
    row = list(h)
    inverse = [[int(i == k) for i in range(n)] for k in range(n)]
    while sum(1 for x in row if x) > 1:
        a = min((k for k in range(n) if row[k]), key=lambda k: abs(row[k]))
        for k in range(n):
            if k != a and row[k]:
                times = row[k] // row[a]
                row[k] -= times * row[a]  # column k less `times` columns a: row a of the inverse gains `times` rows k
                inverse[a] = [x + times * y for x, y in zip(inverse[a], inverse[k], strict=True)]
    at = next(k for k in range(n) if row[k])
    if row[at] < 0:
        inverse[at] = [-x for x in inverse[at]]
    inverse[0], inverse[at] = inverse[at], inverse[0]
    return tuple(tuple(r) for r in inverse)


def determinant(matrix: Matrix) -> int:
    """By expansion along the first row: matrices here have a handful of rows."""
    if len(matrix) == 1:
        return matrix[0][0]
    total = 0
    for k, x in enumerate(matrix[0]):
        if x:
            minor = tuple((*row[:k], *row[k + 1 :]) for row in matrix[1:])
            total += (-1) ** k * x * determinant(minor)
    return total


def planes(h: Vector, extents: Sequence[int]) -> range:
    """The planes of a box: the values of h . x over 0 <= x_i < extents_i; empty when the box is."""
    if any(n <= 0 for n in extents):
        return range(0)
    low = sum(min(0, c * (n - 1)) for c, n in zip(h, extents, strict=True))
    high = sum(max(0, c * (n - 1)) for c, n in zip(h, extents, strict=True))
    return range(low, high + 1)


def row_bounds(h: Vector, extents: Sequence[int], plane: int, fixed: Sequence[int], k: int) -> range:
    """Values of loop k that have points of the plane behind them, the loops before k being `fixed`.

    The bounds that generated code computes: exact for |h_i| <= 1, else some values may have no point.
    """
    rest = plane - dot(h[:k], fixed)
    low = sum(min(0, c * (n - 1)) for c, n in zip(h[k + 1 :], extents[k + 1 :], strict=True))
    high = sum(max(0, c * (n - 1)) for c, n in zip(h[k + 1 :], extents[k + 1 :], strict=True))
    c = h[k]
    if c == 0:
        return range(extents[k]) if low <= rest <= high else range(0)
    a, b = (rest - high, rest - low) if c > 0 else (rest - low, rest - high)
    return range(max(0, -(-a // c)), min(extents[k], b // c + 1))


def plane_points(h: Vector, extents: Sequence[int], plane: int) -> Iterator[Vector]:
    """The points of a plane of a box, by loops with `row_bounds`; the innermost loop is checked."""

    def inner(fixed: Vector) -> Iterator[Vector]:
        k = len(fixed)
        if k == len(h):
            if dot(h, fixed) == plane:
                yield fixed
            return
        for x in row_bounds(h, extents, plane, fixed, k):
            yield from inner((*fixed, x))

    yield from inner(())


def width(extents: Sequence[int], plane: int) -> int:
    """Points of a plane of a box under h = (1, ..., 1), by inclusion and exclusion over the extents."""
    n = len(extents)

    def simplex(k: int) -> int:
        total = 1
        for i in range(1, n):
            total = total * (k + i) // i
        return total if k >= 0 else 0

    count = 0
    for subset in range(1 << n):
        chosen = [extents[i] for i in range(n) if subset >> i & 1]
        count += (-1) ** len(chosen) * simplex(plane - sum(chosen))
    return count
