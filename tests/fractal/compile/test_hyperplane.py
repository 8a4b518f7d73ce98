# SPDX-License-Identifier: MIT
"""The mathematics of wavefronts against enumeration."""

from __future__ import annotations

import itertools
import random

import pytest

from pto_jit.fractal.compile.hyperplane import (
    NoSchedule,
    dot,
    hyperplane,
    is_lexicographically_positive,
    skew,
)

UNITS = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_a_grid_is_scheduled_along_the_diagonal() -> None:
    assert hyperplane(UNITS, 3) == (1, 1, 1)


def test_a_dimension_without_dependence_has_coefficient_zero() -> None:
    assert hyperplane([(0, 1, 0), (0, 0, 1)], 3) == (0, 1, 1)
    assert hyperplane([], 2) == (0, 0)


def test_negative_components_are_skewed() -> None:
    distances = [(1, -1), (0, 1)]
    assert hyperplane(distances, 2) == (2, 1)
    rows = skew(distances, 2)
    assert rows == ((1, 0), (1, 1))
    assert all(dot(row, d) >= 0 for row in rows for d in distances)


def test_a_distance_backwards_is_refused_with_its_reason() -> None:
    with pytest.raises(NoSchedule, match=r"\(0, -1\) is not lexicographically positive"):
        hyperplane([(0, -1)], 2)


def random_distances(rng: random.Random, dims: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    while len(found) < rng.randrange(1, 4):
        d = tuple(rng.randrange(-2, 3) for _ in range(dims))
        if is_lexicographically_positive(d):
            found.append(d)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_hyperplanes_are_the_smallest(seed: int) -> None:
    rng = random.Random(seed)
    dims = rng.randrange(1, 4)
    distances = random_distances(rng, dims)
    h = hyperplane(distances, dims)
    assert all(dot(h, d) >= 1 for d in distances)
    size = sum(map(abs, h))
    if size <= 7:
        for other in itertools.product(range(1 - size, size), repeat=dims):
            if sum(map(abs, other)) < size:
                assert not all(dot(other, d) >= 1 for d in distances), other
    rows = skew(distances, dims)
    assert all(row[k] == 1 and not any(row[k + 1 :]) for k, row in enumerate(rows)), "lower triangular and unimodular"
    assert all(dot(row, d) >= 0 for row in rows for d in distances)
