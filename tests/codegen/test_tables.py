# SPDX-License-Identifier: MIT
"""Items of small tables at run-time indices: compiled (reference interpreter) and as plain Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.errors import CompilationError
from tests.codegen.harness import check, ir

X = np.array([3, -1, 4, 1, -5, 9, 2, 6], np.float32)
WAYS = ((-1, 0), (0, 1), (1, 0), (0, -1))
WEIGHTS = [0.25, 0.5, 0.25]
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.int32)


class Step(NamedTuple):
    scale: float
    shift: int


STEPS = [Step(1.0, 2), Step(0.5, 3)]


def out() -> np.ndarray:
    return np.zeros(8, np.float32)


def weights(x, y):
    for i in range(len(x)):
        y[i] = WEIGHTS[i % 3] * x[i]


def tuples(x, y):
    row = column = 0
    for i in range(len(x)):
        down, right = WAYS[i * 3 % 4]
        row += down
        column += right
        y[i] = row * 10 + column


def from_the_end(x, y):
    for i in range(len(x)):
        y[i] = WEIGHTS[i % 6 - 3] + SOBEL[-1 - i % 3, 2]


def run_time_items(x, y):
    for i in range(len(x)):
        y[i] = [x[i], x[0] * 2, 7][i % 3] + (x[i], -x[i])[1 if x[i] < 0 else 0]


def named_tuples(x, y):
    for i in range(len(x)):
        step = STEPS[i % 2]
        y[i] = x[i] * step.scale + step.shift


def arrays(x, y):
    for i in range(1, 3):
        s = 0.0
        for a in range(3):
            for b in range(3):
                s += SOBEL[a, b] * x[2 * i + a - b]
        y[i] = s + SOBEL[-1, i] + SOBEL[i, 0]


@pytest.mark.parametrize("kernel", [weights, tuples, from_the_end, run_time_items, named_tuples, arrays], ids=lambda f: f.__name__)
def test_the_item_is_that_of_python(kernel):
    check(kernel, X, out())


def test_a_condition_is_an_index():
    def kernel(x, y):
        for i in range(len(x)):
            y[i] = (10.0, 20.0)[x[i] > 2]

    y = out()
    pto.jit(kernel)(X, y)
    np.testing.assert_array_equal(y, np.where(X > 2, 20, 10))


def test_an_index_outside_is_found_by_debugging():
    def kernel(x, y):
        for i in range(len(x)):
            y[i] = WEIGHTS[i]

    with pytest.raises(pto.BoundsError, match="an index outside of 3 items"):
        pto.jit(debug=True)(kernel)(X, out())
    item = pto.jit(debug=True)(lambda x, n: WEIGHTS[n])
    assert item(X, 1) == item(X, -2) == 0.5
    for n in (3, -4):
        with pytest.raises(pto.BoundsError, match="an index outside of 3 items"):
            item(X, n)


@pytest.mark.parametrize(
    "kernel",
    [lambda n: [*range(33)][n], lambda n: ("a", "b")[n] == "a", lambda n: {0: 1.0}[n], lambda n: [1.0, (2.0,)][n],
     lambda n: SOBEL[n][0]],
)  # fmt: skip
def test_other_containers_are_refused(kernel):
    with pytest.raises(CompilationError, match=r"PTO-N018|PTO-N067"):
        ir(kernel, 1)
