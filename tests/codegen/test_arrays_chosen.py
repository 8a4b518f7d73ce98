# SPDX-License-Identifier: MIT
"""Names that get other arrays in run-time loops and branches: as in NumPy, or an error where that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError
from tests.codegen.harness import WAYS, as_numpy

X = np.random.default_rng(1).random(9)


def multiplied_in_a_branch(x, y):
    v = np.zeros(3)
    for i in range(x.shape[0]):
        w = np.ones(3)
        if x[i] > 0.5:
            w = w * 2
        v = v + w * x[i]
    y[:3] = v


def counted(x, y):
    v = np.zeros(3)
    for _i in range(x.shape[0]):
        v = v + 1
    y[0] = v[0]


def powers_of_a_matrix(x, y):
    m = np.eye(3)
    r = np.array([[0.5, 0.1, 0], [0, 0.5, 0.2], [0.3, 0, 0.5]])
    for _i in range(x.shape[0]):
        m = m @ r
    y[0] = m[0, 0]
    y[1] = m[1, 2]


def chosen(x, y):
    v = np.zeros(3)
    if x[0] > 0.5:
        v = np.ones(3)
    y[:3] = v


def made_in_a_loop(x, y):
    v = np.zeros(2)
    for i in range(x.shape[0]):
        w = np.zeros(2)
        w[0] = v[1] + x[i]
        w[1] = v[0]
        v = w
        y[i] = v[0]


def the_best(x, y):
    best = np.zeros(2)
    for i in range(x.shape[0]):
        c = np.array([x[i], 1.0*i])
        if c[0] > best[0]:
            best = c
    y[0] = best[0]
    y[1] = best[1]


def stepped(x, y):
    for k in range(x.shape[0]):
        s = np.zeros(2)
        s[0] = x[k]
        for _i in range(4):
            d = np.empty(2)
            d[0] = s[1]
            d[1] = -s[0]
            s = s + 0.1 * d
        y[k] = s[0]


def exchanged_in_a_branch(x, y):
    for i in range(x.shape[0]):
        a = np.array([x[i], 2.0])
        b = np.array([1.0, x[i]])
        if x[i] > 0.5:
            a, b = b, a
        y[i] = a[0] - b[1]


def the_two_best(x, y):
    best = np.zeros(2)
    second = np.zeros(2)
    for i in range(x.shape[0]):
        c = np.array([x[i], 1.0 * i])
        if c[0] > best[0]:
            second = best
            best = c
        elif c[0] > second[0]:
            second = c
    y[0] = best[0]
    y[1] = best[1]
    y[2] = second[0]
    y[3] = second[1]


def left_early(x, y):
    v = np.zeros(2)
    for i in range(x.shape[0]):
        w = np.array([x[i], v[0]])
        if x[i] < 0.3:
            continue
        if x[i] > 0.9:
            break
        v = w
    y[0] = v[0]
    y[1] = v[1]


def changed_after_it_was_taken(x, y):
    v = np.zeros(2)
    i = 0
    while i < 3:
        w = np.array([x[i], 1.0])
        v = w
        i += 1
        if i == 5:
            v = np.ones(2)
        w[0] = 9
    y[0] = v[0]


def changed_after_the_branch(x, y):
    best = np.zeros(2)
    for i in range(x.shape[0]):
        c = np.array([x[i], 1.0])
        if c[0] > best[0]:
            best = c
        c[1] = 7.0
    y[0] = best[0]
    y[1] = best[1]


def of_two_names(x, y):
    v = np.zeros(2)
    u = v
    if x[0] > 0.2:
        v = np.ones(2)
    u[0] = 5
    y[0] = v[0]
    y[1] = u[0]


def changed_by_another_name(x, y):
    v = np.zeros(2)
    if x[0] > 0.9:
        v = np.ones(2)
    w = v
    w[0] = 3
    y[0] = v[0]


def read_after_the_loop(x, y):
    v = np.zeros(2)
    for i in range(3):
        w = np.array([x[i], 1.0])
        v = w
    w[0] = 50
    y[0] = v[0]


def read_after_a_break(x, y):
    v = np.zeros(2)
    i = 0
    while True:
        w = np.array([x[i], 1.0])
        v = w
        i += 1
        if x[i] > 0.5:
            break
    w[0] = 50
    y[0] = v[0]


def of_both_after_the_loop(x, y):
    v = np.zeros(2)
    w = np.zeros(2)
    for i in range(x.shape[0]):
        w = np.array([x[i], 1.0])
        v = w
    w[0] = 50
    y[0] = v[0]


def made_outside_of_the_loop(x, y):
    v = np.zeros(2)
    for i in range(3):
        w = np.array([x[i], 1.0])
        for _j in range(2):
            v = w
            w[1] += 1
        y[i] = v[1]


def _made(x, i):
    v = np.zeros(2)
    v[0] = x[i]
    return v


def _chosen(v, c):
    if c > 0.9:
        v = np.ones(2)
    return v


def the_best_of_a_helper(x, y):
    best = np.zeros(2)
    for i in range(9):
        c = _made(x, i)
        if c[0] > best[0]:
            best = c
    y[0] = best[0]


def of_a_function_inside(x, y):
    def g():
        return np.array([x[0], 2.0])
    v = np.zeros(2)
    if x[0] > 0.2:
        v = g()
    y[0] = v[0] + v[1]


def held_by_a_list(x, y):
    a = np.zeros(2)
    box = [a]
    if x[0] > 0.9:
        a = np.ones(2)
    box[0][0] = 5
    y[0] = a[0]


def of_the_caller(x, y):
    a = np.zeros(2)
    w = _chosen(a, x[0])
    a[0] = 9
    y[0] = w[0]


def held_by_a_dict(x, y):
    a = np.zeros(2)
    d = {"k": a}
    for i in range(3):
        if x[i] > 2:
            a = np.ones(2)
        d["k"][0] += 1
    y[0] = a[0]


def of_two_names_in_a_loop(x, y):
    a = np.zeros(2)
    b = a
    for i in range(3):
        if x[i] > 2:
            a = np.ones(2)
        b[0] += 1
    y[0] = a[0]


def tensor_of_two_names(x, y):
    a = pl.zeros((2,), pl.f64)
    b = a
    for i in range(3):
        if x[i] > 2:
            a = a + 1
        b[0] += 1
    y[0] = a[0]


def changed_by_the_other_name(x, y):
    a = np.zeros(2)
    b = a
    for _i in range(3):
        b[0] += 1
        a = a + 1
    y[0] = a[0]
    y[1] = b[0]


AGREE: list[Callable[..., Any]] = [
    multiplied_in_a_branch, counted, powers_of_a_matrix, chosen, made_in_a_loop, the_best, stepped,
    exchanged_in_a_branch, the_two_best, left_early, changed_after_it_was_taken,
    the_best_of_a_helper, of_a_function_inside,
]  # fmt: skip
REFUSED: list[Callable[..., Any]] = [
    changed_after_the_branch, of_two_names, changed_by_another_name, read_after_the_loop, read_after_a_break,
    of_both_after_the_loop, made_outside_of_the_loop,
    held_by_a_list, of_the_caller, held_by_a_dict, of_two_names_in_a_loop, tensor_of_two_names, changed_by_the_other_name,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", AGREE, ids=lambda k: k.__name__)
def test_a_name_has_the_values_of_the_array_it_got(kernel: Callable[..., Any], way: str) -> None:
    as_numpy(kernel, X, way)


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda k: k.__name__)
def test_an_array_of_two_names_is_not_chosen_at_run_time(kernel: Callable[..., Any]) -> None:
    with pytest.raises(CompilationError) as caught:
        pto.jit(kernel)(X, np.zeros(9))
    assert caught.value.code in ("PTO-T001", "PTO-T038", "PTO-N008", "PTO-N014")
