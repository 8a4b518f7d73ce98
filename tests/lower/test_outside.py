# SPDX-License-Identifier: MIT
"""Elements that lie before their tensor whatever the arguments are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import ShapeError

V, X = np.zeros(10, np.float32), np.zeros((5, 6), np.float32)


def from_the_end(v, y):
    for i in range(len(v)):
        y[i] = v[-i - 1]


def from_the_end_by_the_extent(v, y):
    for i in range(len(v)):
        y[i - len(v)] = v[i]


def under_a_condition(v, y):
    for i in range(len(v)):
        if v[i] > 3:
            y[-1 - i] = v[i]


def in_parallel(v, y):
    for i in pl.range(len(v), chunk=4):
        y[i] = v[-2 * i - 3]


def below_twice_an_extent(v, y):
    y[0] = v[-len(v) - 1]


ALWAYS = [from_the_end, from_the_end_by_the_extent, under_a_condition, in_parallel, below_twice_an_extent]


def neighbour(v, y):
    for i in range(len(v)):
        y[i] = v[i] - v[i - 1]


def neighbour_downwards(v, y):
    for i in range(len(v) - 1, -1, -1):
        y[i] = v[i] - v[i - 1]


def in_steps(v, y):
    for i in range(0, len(v), 3):
        y[i] = v[i - 2]


def triangle(x, y):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            x[i, j] = x[i, i - j - 1]


def in_a_window(x, y):
    for i in range(x.shape[0]):
        for k in range(-1, 2):
            y[i] += x[i + k, 0]


ONCE = [neighbour, neighbour_downwards, in_steps, triangle, in_a_window]


@pytest.mark.parametrize("kernel", ALWAYS + ONCE, ids=lambda f: f.__name__)
def test_what_lies_before_the_tensor_is_refused(kernel: Any) -> None:
    args = X if kernel in (triangle, in_a_window) else V, V.copy()
    with pytest.raises(ShapeError, match="PTO-H060") as caught:
        pto.jit(kernel).compile(*args)
    when = "in an iteration" if kernel in ONCE else "always" if kernel is below_twice_an_extent else "in every iteration"
    assert f"is below 0 {when}" in str(caught.value)


def begins_later(v, y):
    for i in range(1, len(v)):
        y[i] = v[i] - v[i - 1]


def guarded(v, y):
    for i in range(len(v)):
        if i > 0:
            y[i] = v[i - 1]
        y[i] += v[i - 2] if i > 1 else 0.0


def left_out(v, y):
    for i in range(len(v)):
        if i == 0:
            continue
        y[i] = v[i - 1]


def left(v, y):
    for i in range(len(v)):
        if i < 2:
            break
        y[i - 2] = v[i]


def left_in_a_loop(v, y):
    for i in range(len(v)):
        for j in range(3):
            if v[j] > i:
                return
        y[i] = v[i - 1]


def by_an_argument(v, y, k=0):
    for i in range(len(v)):
        y[i] = v[i - k]


def wrapped(v, y):
    for i in range(len(v)):
        y[i] = v[max(i - 1, 0)] + v[(i - 1) % len(v)] + v[-1]


def turned(v, y):
    n = len(v)
    for i in range(n):
        y[i] = v[n - 1 - i]


def looked_at_while_inside(v, y):
    for i in range(1, len(v)):
        j = i - 1
        while j >= 0 and v[j] > 3:
            y[j] = v[j]
            j -= 1


def smaller_triangle(x, y):
    for i in range(x.shape[0]):
        for j in range(i):
            x[i, j] = x[i, i - j - 1]


def without_iterations(v, y):
    for i in range(3, 3):
        y[i] = v[-1 - i]


def backwards_in_steps(v, y):
    for i in range(len(v) - 1, 0, -2):
        y[i] = v[i - 1]


def chosen(v, y):
    """As masks of other languages are written: what is read before the tensor is not what is stored."""
    for i in range(len(v)):
        y[i] = pl.where(i > 0, 2 * v[i - 1] + 1, 0.0)


def chosen_at_the_end_of_a_long_chain(v, y):
    for i in range(len(v)):
        s = 0.0
        for k in pl.static_range(400):
            s = s + v[i - 1] * k
        y[i] = pl.where(i > 0, s, 0.0)


def chosen_with_many_ways_to_it(v, y):
    for i in range(len(v)):
        s = v[i - 1]
        for _ in pl.static_range(40):
            s = s * s
        y[i] = pl.where(i > 0, s, 0.0)


@pytest.mark.parametrize(
    "kernel",
    [chosen, chosen_at_the_end_of_a_long_chain, chosen_with_many_ways_to_it, begins_later, guarded, left_out, left, left_in_a_loop, by_an_argument, wrapped, turned, looked_at_while_inside,
     smaller_triangle, without_iterations, backwards_in_steps],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_may_be_inside_is_believed(kernel: Any) -> None:
    pto.jit(kernel).compile(X if kernel is smaller_triangle else V, V.copy())


def guarded_by_the_index(v, y):
    for k in range(-3, 0):
        if k >= 0:
            y[k] = v[k]


def guarded_together(v, y):
    for k in range(-3, 0):
        if k >= 0 and v[0] > 1:
            y[k] = v[k]


def guarded_by_what_changes(v, y):
    more = v[0] > 1
    for k in range(-3, 0):
        if more:
            y[k] = v[k]
        more = more and k > 5


@pytest.mark.parametrize("kernel", [guarded_by_the_index, guarded_together, guarded_by_what_changes], ids=lambda f: f.__name__)
def test_a_decision_about_integers_may_be_the_guard(kernel: Any) -> None:
    pto.jit(kernel).compile(V, V.copy())


@pytest.mark.parametrize("kernel", [neighbour, from_the_end], ids=lambda f: f.__name__)
def test_programs_that_are_debugged_check_their_elements_themselves(kernel: Any) -> None:
    with pytest.raises(pto.BoundsError, match="PTO-B002"):
        pto.jit(kernel, debug=True)(V, V.copy())
