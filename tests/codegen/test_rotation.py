# SPDX-License-Identifier: MIT
"""Tensors that change places in run-time loops, against the Python functions on NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def heat(a, b, steps):
    for t in range(steps):
        for i in range(1, a.shape[0] - 1):
            b[i] = 0.25 * a[i - 1] + 0.5 * a[i] + 0.25 * a[i + 1] + t
        a, b = b, a


def downwards(a, b, steps):
    last = -1
    for t in range(2 * steps, 0, -2):
        b[...] = a * 2.0 + t
        a, b = b, a
        last = t
    return last


def three_in_turn(a, b, steps):
    c = pl.empty(a.shape, a.dtype)
    c[...] = a + b
    t = 0
    while t < steps:
        c[...] = 2.0 * b - a + 0.5 * t
        spare = a
        a = b
        b = c
        c = spare
        t += 1
        if b[0] > 12.0:
            break
    return t


def until_settled(a, b, steps):
    b[...] = a
    change = 1.0
    count = 0
    while change > 1.0 / (1 << steps):
        change = 0.0
        for i in range(1, a.shape[0] - 1):
            b[i] = 0.5 * (a[i - 1] + a[i + 1])
            change = max(change, abs(b[i] - a[i]))
        a, b = b, a
        count += 1
    return count


def chosen_behind(a, b, steps):
    first, second = a, b
    for _ in range(steps):
        b[...] = a + 1.0
        a, b = b, a
    if steps % 2 == 0:
        second[0] = first[1]
    else:
        first[0] = second[1]


def in_parallel(a, b, steps):
    for t in pl.range(steps):
        for i in pl.range(a.shape[0], parallel=True):
            b[i] = a[a.shape[0] - 1 - i] + t
        a, b = b, a


def known_number(a, b, steps):
    for _ in range(3):
        b[...] = a + steps
        a, b = b, a
    a[0] = 7.0


def left_in_a_scope(a, b, steps):
    count = 0
    for _ in range(steps):
        with pl.incore():
            b[...] = a * 2.0
            if b[0] > 6.0:
                break
        a, b = b, a
        count += 1
    return count


@pto.incore
def smooth(a, b):
    for i in range(1, a.shape[0] - 1):
        b[i] = a[i - 1] + a[i + 1]


def as_tasks(a, b, steps):
    for _ in range(steps):
        smooth(a, b)
        a, b = b, a


PROGRAMS = (heat, downwards, three_in_turn, until_settled, chosen_behind, in_parallel, known_number, left_in_a_scope,
            as_tasks)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_tensors_change_places(program: Callable[..., Any]) -> None:
    kernel = pto.jit(program)
    for steps in range(6):
        mine = [np.random.default_rng(k).random(9) for k in range(2)]
        theirs = [a.copy() for a in mine]
        assert kernel(*mine, steps) == kernel.interpret(*theirs, steps)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)


def test_what_is_only_read_is_a_tile_after_the_loop() -> None:
    @pto.jit
    def kernel(x, y, steps, out):
        a, b = x[0:2], y[0:2]
        for t in range(steps):
            out[t] = a[0]
            a, b = b, a
        out[steps] = a[1]

    a, b, out = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.zeros(4)
    kernel(a, b, 3, out)
    assert out.tolist() == [1.0, 3.0, 1.0, 4.0]


def test_a_name_read_after_an_unknown_number_of_exchanges_is_an_error() -> None:
    @pto.jit
    def kernel(a, b, steps, out):
        for _ in range(steps):
            b[...] = a + 1.0
            a, b = b, a
        out[...] = a

    with pytest.raises(pto.CompilationError, match="which tensor `a` is after this loop depends on") as info:
        kernel(np.zeros(4), np.zeros(4), 3, np.zeros(4))
    assert info.value.code == "PTO-T001" and "first = a" in str(info.value)


@pytest.mark.parametrize(
    "bounds", [(2**63 - 2, 2**63 - 1), (2**63 - 5, 2**63 - 1), (-(2**63), 7 - 2**63), (0, 7), (5, 5)]
)
@pytest.mark.parametrize("down", [False, True])
def test_steps_do_not_pass_the_last_of_the_integers(bounds: tuple[int, int], down: bool):
    def forwards(u, v, seen, start, stop):
        for _ in pl.range(start, stop, 3):
            seen[0] += 1
            u[0] = v[0] + 1.0
            u, v = v, u

    def backwards(u, v, seen, start, stop):
        for _ in pl.range(start, stop, -3):
            seen[0] += 1
            u[0] = v[0] + 1.0
            u, v = v, u

    start, stop = (-bounds[0] - 1, -bounds[1] - 1) if down else bounds
    u, v, seen = np.zeros(1), np.zeros(1), np.zeros(1, np.int64)
    pto.jit(backwards if down else forwards)(u, v, seen, start, stop)
    assert seen[0] == len(range(start, stop, -3 if down else 3))


def test_steps_that_are_no_integer_together_are_refused_by_name():
    def kernel(u, v, start, stop):
        for _ in pl.range(start, stop, 2**62):
            u[0] = v[0]
            u, v = v, u

    with pytest.raises(pto.TypeMismatchError, match="PTO-T038"):
        pto.jit(kernel)(np.zeros(1), np.zeros(1), 0, 5)
