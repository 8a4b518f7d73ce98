# SPDX-License-Identifier: MIT
"""Names that parts of conditions set: every program runs compiled (reference interpreter) and as plain Python."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit.language as pl
from pto_jit.errors import CompilationError
from tests.codegen.harness import check, ir

X = np.array([3, -1, 4, 1, -5, 9, 2, 6], np.float32)


def out() -> np.ndarray:
    return np.zeros(8, np.float32)


def set_in_a_condition(x, y):
    for i in range(len(x)):
        if x[i] > 0 and (w := x[i] * 2) < 9 and w > 1:
            y[i] = w


def set_in_nested_conditions(x, y):
    for i in range(len(x)):
        if (i > 2 and (w := x[i]) < 6) and (x[0] < 9 and (u := w * 2) > 3):
            y[i] = w + u
        y[i] += w if i > 1 and (w := x[i] + 3) > 5 else -1.0


def set_where_an_or_does_not_hold(x, y):
    for i in range(len(x)):
        if x[i] > 4 or (w := x[i] * 2) < 3:
            y[i] = 7
        else:
            y[i] = w


def set_before_a_guard(x, y):
    for i in range(len(x)):
        if not (x[i] > 1 and (p := (x[i], i))[0] < 6):
            continue
        y[i] = p[0] + p[1]


def set_by_the_condition_of_a_while(x, y):
    i = 0
    while i < len(x) and (v := x[i]) < 5:
        y[i] = v
        i += 1
    y[7] = i


def set_in_a_chain_of_comparisons(x, y):
    for i in range(len(x) - 1):
        if 0 < x[i] < (w := x[i + 1] - 0.5) < 6:
            y[i] = w


def set_in_a_condition_of_a_generator(x, y):
    y[0] = sum(w for i in range(len(x)) if x[i] > 0 and (w := x[i] * 2) < 9)


def set_to_a_tile(x, y):
    for i in range(2):
        if x[i] < 1 and pl.sum(t := pl.load(x, [4 * i], [4])) > 2:
            pl.store(t * 2, [0], y)


@pytest.mark.parametrize(
    "kernel",
    [set_in_a_condition, set_in_nested_conditions, set_where_an_or_does_not_hold, set_before_a_guard,
     set_by_the_condition_of_a_while, set_in_a_chain_of_comparisons, set_in_a_condition_of_a_generator, set_to_a_tile],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_a_condition_has_set_can_be_read_where_it_says_so(kernel):
    check(kernel, X, out())


def set_where_nobody_knows(x, y):
    for i in range(len(x)):
        if x[i] > 0 and (w := x[i] * 2) < 9:
            y[i] = w
        y[i] += w


def set_on_the_other_side(x, y):
    for i in range(len(x)):
        if x[i] > 0 and (w := x[i] * 2) < 9:
            y[i] = 1
        else:
            y[i] = w


def set_in_a_value(x, y):
    for i in range(len(x)):
        if (x[i] > 0 and (w := x[i] * 2) < 9) == (i > 3):
            y[i] = w


@pytest.mark.parametrize(
    "kernel", [set_where_nobody_knows, set_on_the_other_side, set_in_a_value], ids=lambda f: f.__name__
)
def test_what_a_condition_may_have_set_is_refused_elsewhere(kernel):
    with pytest.raises(CompilationError, match=r"PTO-N012.*`w` may be unset"):
        ir(kernel, X, out())
