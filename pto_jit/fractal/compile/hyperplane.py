# SPDX-License-Identifier: MIT
"""Schedules of a nest with uniform dependences: hyperplanes for wavefronts, skewing for tiles.

A nest of n loops is a set of points of Z^n; a distance vector is a point less one that it depends on.  A schedule is
a row vector h with h . delta >= 1 for every distance delta: the points x with one value of h . x (a plane) are
independent (L. Lamport, 1974).  A unimodular matrix is a change of loops; one that makes no distance negative lets
rectangles of the new loops be tiles (M. Wolf and M. Lam, 1991).

Vectors are tuples of ints; nothing here knows of programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
