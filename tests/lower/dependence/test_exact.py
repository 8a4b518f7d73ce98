# SPDX-License-Identifier: MIT
"""The Omega test against enumeration of boxes, and systems that need more than projections over the reals."""

from __future__ import annotations

import random
from itertools import product

import pytest

from pto_jit.lower.dependence.exact import Effort, solve, value

Row = tuple[dict[int, int], int]


def holds(equations: list[Row], inequalities: list[Row], point: dict[int, int]) -> bool:
    return all(value(r, point) == 0 for r in equations) and all(value(r, point) >= 0 for r in inequalities)


def test_the_answer_is_right_on_random_systems_in_boxes() -> None:
    rng = random.Random(5)
    given_up = 0
    for _ in range(600):
        count, size = rng.randint(1, 4), rng.randint(1, 4)

        def row(count: int = count) -> Row:
            return {v: k for v in range(count) if (k := rng.randint(-4, 4))}, rng.randint(-8, 8)

        box: list[Row] = [({v: sign}, size) for v in range(count) for sign in (1, -1)]
        equations = [row() for _ in range(rng.randint(0, 2))]
        inequalities = [*box, *(row() for _ in range(rng.randint(0, 4)))]
        points = (dict(enumerate(p)) for p in product(range(-size, size + 1), repeat=count))
        possible = any(holds(equations, inequalities, p) for p in points)
        try:
            solution = solve(equations, inequalities)
        except Effort:
            given_up += 1
            continue
        assert (solution is not None) == possible, (equations, inequalities)
        assert solution is None or holds(equations, inequalities, solution), (equations, inequalities, solution)
    assert given_up <= 2


@pytest.mark.parametrize(
    ("equations", "inequalities"),
    [
        ([({0: 2, 1: 4}, 1)], []),  # the GCD test
        ([({0: 7, 1: 12}, -17), ({0: 7, 1: 12}, -18)], []),
        # Pugh's example: 27 <= 11 x + 13 y <= 45, -10 <= 7 x - 9 y <= 4 has solutions over the reals only
        ([], [({0: 11, 1: 13}, -27), ({0: -11, 1: -13}, 45), ({0: 7, 1: -9}, 10), ({0: -7, 1: 9}, 4)]),
        ([], [({0: 3}, -4), ({0: -3}, 5)]),  # 4 <= 3 x <= 5
    ],
)
def test_systems_without_integer_solution(equations: list[Row], inequalities: list[Row]) -> None:
    assert solve(equations, inequalities) is None


def test_variables_may_be_unbounded() -> None:
    solution = solve([({0: 3, 1: -5, 2: 7}, -1)], [({0: 1}, -1000)])
    assert solution is not None
    assert 3 * solution[0] - 5 * solution[1] + 7 * solution.get(2, 0) == 1 and solution[0] >= 1000


def test_the_effort_is_bounded() -> None:
    rng = random.Random(1)
    rows: list[Row] = [({v: rng.randint(-60, 60) or 1 for v in range(12)}, rng.randint(-9, 9)) for _ in range(40)]
    with pytest.raises(Effort):
        solve([], rows)
