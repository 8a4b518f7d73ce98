# SPDX-License-Identifier: MIT
"""The mathematics of wavefronts against enumeration."""

from __future__ import annotations

import itertools
import random

import pytest

from pto_jit.fractal.compile.hyperplane import (
    NoSchedule,
    completion,
    determinant,
    dot,
    hyperplane,
    is_fully_permutable,
    is_lexicographically_positive,
    plane_points,
    planes,
    skew,
    width,
)

UNITS = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]


def test_a_grid_is_scheduled_along_the_diagonal() -> None:
    assert hyperplane(UNITS, 3) == (1, 1, 1)
    assert completion((1, 1, 1)) == ((1, 1, 1), (1, 0, 0), (0, 1, 0))
    assert is_fully_permutable(UNITS)


def test_a_dimension_without_dependence_has_coefficient_zero() -> None:
    assert hyperplane([(0, 1, 0), (0, 0, 1)], 3) == (0, 1, 1)
    assert hyperplane([], 2) == (0, 0)


def test_negative_components_are_skewed() -> None:
    distances = [(1, -1), (0, 1)]
    assert not is_fully_permutable(distances)
    assert hyperplane(distances, 2) == (2, 1)
    rows = skew(distances, 2)
    assert rows == ((1, 0), (1, 1))
    assert all(dot(row, d) >= 0 for row in rows for d in distances)


def test_a_distance_backwards_is_refused_with_its_reason() -> None:
    with pytest.raises(NoSchedule, match=r"\(0, -1\) is not lexicographically positive"):
        hyperplane([(0, -1)], 2)
    with pytest.raises(NoSchedule, match="common divisor 2"):
        completion((2, 4))


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
    assert abs(determinant(rows)) == 1
    assert all(dot(row, d) >= 0 for row in rows for d in distances)
    matrix = completion(h) if any(h) else None
    if matrix is not None:
        assert matrix[0] == h
        assert abs(determinant(matrix)) == 1


@pytest.mark.parametrize("h", [(2, 3), (6, 10, 15), (-2, 3), (4, -6, 9), (0, 2, 3), (5, 2, 4, 6)])
def test_completion_without_a_unit_component(h: tuple[int, ...]) -> None:
    matrix = completion(h)
    assert matrix[0] == h
    assert abs(determinant(matrix)) == 1


@pytest.mark.parametrize("seed", range(30))
def test_planes_are_those_of_enumeration(seed: int) -> None:
    rng = random.Random(seed)
    dims = rng.randrange(1, 4)
    extents = [rng.randrange(0, 5) for _ in range(dims)]
    h = tuple(rng.randrange(-2, 3) for _ in range(dims))
    by_plane: dict[int, list[tuple[int, ...]]] = {}
    for x in itertools.product(*map(range, extents)):
        by_plane.setdefault(dot(h, x), []).append(x)
    found = planes(h, extents)
    assert set(by_plane) <= set(found)
    assert bool(by_plane) == bool(found)
    for plane in found:
        assert list(plane_points(h, extents, plane)) == sorted(by_plane.get(plane, []))


@pytest.mark.parametrize("extents", [(2, 3, 2), (3, 5, 4), (4, 4), (5,), (2, 3, 4, 2)])
def test_widths_are_the_closed_form(extents: tuple[int, ...]) -> None:
    h = (1,) * len(extents)
    found = planes(h, extents)
    assert len(found) == sum(extents) - len(extents) + 1
    assert [width(extents, p) for p in found] == [sum(1 for _ in plane_points(h, extents, p)) for p in found]


def test_the_profile_of_the_grid_rnn() -> None:
    assert [width((3, 5, 4), p) for p in planes((1, 1, 1), (3, 5, 4))] == [1, 3, 6, 9, 11, 11, 9, 6, 3, 1]
