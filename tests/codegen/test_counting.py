# SPDX-License-Identifier: MIT
# ruff: noqa: B905 - kernels are written the way the test needs them
"""Loops over `enumerate`, `zip`, `itertools.product` and `np.ndindex` of run-time ranges."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.codegen.harness import check

X = np.array([0.5, -3.0, 2.0, 4.0, -1.5, 0.25, 7.0], np.float32)
Y = np.zeros(8, np.float32)
W = np.arange(28, dtype=np.float32).reshape(4, 7) % 5 - 1.5


def enumerated(x, y):
    for k, i in enumerate(range(2, len(x))):
        y[k] = x[i]


def enumerated_from_one_in_steps(x, y):
    for k, i in enumerate(range(len(x) - 1, 0, -2), 1):
        y[k] = x[i] * k
    for k, i in enumerate(range(1, len(x), 3), start=-1):
        y[i] += k


def zipped(x, y):
    for i, j in zip(range(len(x)), range(len(x) - 1, -1, -1)):
        y[i] = x[j]
    for i, j, k in zip(range(3), range(1, len(x)), range(0, 100, 2)):
        y[i] += x[j] * k


def zipped_of_nothing(x, y):
    n = 0
    for _i, _j in zip(range(len(x), 0), range(len(x))):
        n += 1
    y[0] = n


def enumerated_pairs(x, y):
    for k, (i, j) in enumerate(zip(range(len(x)), range(0, 2 * len(x), 2))):
        if k > 4:
            break
        y[k] = x[i] + j
    else:
        y[7] = 99
    for pair in zip(range(len(x)), range(len(x))):
        y[pair[0]] += x[pair[1]]


def product(x, y):
    for i, j in itertools.product(range(x.shape[0]), range(x.shape[1])):
        if x[i, j] < 0:
            continue
        y[j] += x[i, j] * (i + 1)
    for i, j in itertools.product(range(x.shape[0]), repeat=2):
        y[i] -= x[i, j]


def product_with_known_items(x, y):
    for i, j, (k, w) in itertools.product(range(x.shape[0]), range(x.shape[1] - 2), enumerate((1.0, 2.0, 1.0))):
        y[j] += w * x[i, j + k]


def ndindex(x, y):
    total = 0.0
    for i, j in np.ndindex(x.shape):
        total += x[i, j] * (i - j)
    for i, j in np.ndindex(*x.shape):
        total += x[i, j]
    y[0] = total


def left(x, y):
    n = 0
    for i, j, k in itertools.product(range(len(x)), range(len(x)), (1, 2)):
        n += k
        for q in range(3):
            if q == 1:
                break
        if j == 5:
            continue
        if i > 3 and x[j] < -1.0:
            break
    else:
        n = -1
    y[0] = n


def not_left(x, y):
    n = 0
    for i, j in itertools.product(range(len(x)), range(len(x))):
        n += 1
        if x[i] * x[j] > 50.0:
            break
    else:
        n = -n
    y[0] = n


def found(x, y):
    for i, j in np.ndindex(len(x), len(x)):
        if x[i] + x[j] == 2.5:
            return i * 10 + j
    return -1


def whole_places(x, y):
    at_0 = 5.0
    for place in np.ndindex(len(x), 3):
        y[place[0]] += x[place[1]] * at_0
    for i, *rest in np.ndindex(len(x), 3, 2):
        y[i] += x[rest[0]] + rest[1]


def in_generators(x, y):
    y[0] = sum(k * x[i] for k, i in enumerate(range(2, len(x))))
    y[1] = max(x[i] - x[j] for i, j in itertools.product(range(len(x)), range(3, len(x))))


KERNELS: dict[Any, np.ndarray] = {
    enumerated: X, enumerated_from_one_in_steps: X, zipped: X, zipped_of_nothing: X, enumerated_pairs: X, product: W,
    product_with_known_items: W, ndindex: W, left: X, not_left: X, found: X, whole_places: X, in_generators: X,
}  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=[f.__name__ for f in KERNELS])
def test_loops_over_several_counters(kernel: Any) -> None:
    check(kernel, KERNELS[kernel], Y)


@pytest.mark.parametrize("kernel", [enumerated, zipped, product, left], ids=lambda f: f.__name__)
def test_they_run_compiled(kernel: Any) -> None:
    got, wanted = Y.copy(), Y.copy()
    pto.jit(kernel)(KERNELS[kernel], got)
    kernel(KERNELS[kernel], wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_the_loops_are_those_that_one_would_write() -> None:
    @pto.jit
    def together(x, y):
        for i, j in np.ndindex(x.shape):
            y[i, j] = x[i, j] * 2

    @pto.jit
    def written(x, y):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] * 2

    texts = [f.compile(W, W.copy()).ir("source") for f in (together, written)]
    assert texts[0].replace("together", "written") == texts[1]


def test_explain_shows_them() -> None:
    @pto.jit
    def kernel(x, y):
        for i, j in itertools.product(range(x.shape[0]), pl.range(x.shape[1], parallel=True)):
            y[j] = x[i, j]

    text = str(kernel.explain(W, Y))
    assert "sequential loop over i" in text and "parallel loop over j" in text
