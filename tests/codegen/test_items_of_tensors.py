# SPDX-License-Identifier: MIT
# ruff: noqa: B905 - kernels are written the way the test needs them
"""Loops over tensors and tiles: elements of one axis, rows of more, also with `enumerate`, `zip` and `reversed`."""

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


def elements(x, y):
    total = 0.0
    for v in x:
        if v < -2:
            continue
        if v > 5:
            break
        total += v
    else:
        y[7] = 1
    y[0] = total


def the_last_item(x, y):
    v = 3.0
    for v in x:  # noqa: B007
        pass
    y[0] = v


def numbered(x, y):
    for k, v in enumerate(x):
        y[k] = v
    for k, v in enumerate(x[2:5], start=3):
        y[k] += v * k


def backwards(x, y):
    for k, v in enumerate(reversed(x)):
        y[k] = v


def side_by_side(x, y):
    for a, b in zip(x, x[2:]):
        y[0] += a * b
    for k, (a, b, i) in enumerate(zip(reversed(x), x, range(1, 100, 2))):
        y[k] += a * i - b
    for pair in zip(x, x):
        y[1] += pair[0] * pair[1]


def rows(x, y):
    for i, row in enumerate(x):
        y[i] = pl.max(row)
        for v in row:
            y[i] += v


def columns(x, y):
    for j, column in enumerate(x.T):
        y[j] = sum(column)


def rows_are_views(x, y):
    for row in x:
        row[0] = -1.0
        row[1:3] += 2.0
    for i, row in enumerate(x):
        y[i] = row[0] + row[2]


def items_are_read_when_their_iteration_begins(x, y):
    for k, v in enumerate(x):
        if k + 1 < len(x):
            x[k + 1] += v
        x[k] = 0.0
        y[k] = v


def generators(x, y):
    y[0] = sum(v * v for v in x)
    y[1] = max(v for v in x if v < 5)
    y[2] = sum(a * b for a, b in zip(x, x[2:]))
    y[3] = any(v > 6 for v in x)
    y[4] = all(v > 6 for v in x)
    y[5] = next((k for k, v in enumerate(x) if v < 0), -1)
    y[6] = sum(sum(v for v in row) for row in pl.load(x).reshape([1, 7]))


def every_pair(x, y):
    for a, b in itertools.product(x, x[:3]):
        if a > b:
            y[0] += a - b


def of_nothing(x, y):
    for v in x[4:4]:
        y[0] = v
    for v, w in zip(x, x[:0]):
        y[1] = v + w
    for v in reversed(x[7:]):
        y[2] = v


def a_tile(x, y):
    with pl.incore():
        t = pl.load(x)
        for k, v in enumerate(t):
            y[k] = v * 2
        for v in t[2:4]:
            y[7] += v


KERNELS = {
    elements: X, the_last_item: X, numbered: X, backwards: X, side_by_side: X, rows: W, columns: W, rows_are_views: W,
    items_are_read_when_their_iteration_begins: X, generators: X, every_pair: X, of_nothing: X, a_tile: X,
}  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=[f.__name__ for f in KERNELS])
@pytest.mark.parametrize("turned", [False, True])
def test_loops_over_items(kernel: Any, turned: bool) -> None:
    x = KERNELS[kernel]
    check(kernel, x[::-1] if turned else x, Y)


@pytest.mark.parametrize("kernel", [elements, side_by_side, rows, rows_are_views], ids=lambda f: f.__name__)
def test_they_run_compiled_as_in_python(kernel: Any) -> None:
    x, wanted_x, got, wanted = KERNELS[kernel].copy(), KERNELS[kernel].copy(), Y.copy(), Y.copy()
    pto.jit(kernel)(x, got)
    kernel(wanted_x, wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    np.testing.assert_array_equal(x, wanted_x)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float64", "bool"])
def test_items_have_the_dtype_of_the_tensor(dtype: str) -> None:
    def added(x, y):
        for v, w in zip(x, y):
            y[0] = v + w

    x = np.array([60, 1, 60]).astype(dtype)
    check(added, x, x[::-1].copy())


def test_the_loop_is_the_one_that_one_would_write() -> None:
    @pto.jit
    def together(x, y):
        for i, v in enumerate(x):
            y[i] = v * 2

    @pto.jit
    def written(x, y):
        for i in range(len(x)):
            v = x[i]
            y[i] = v * 2

    texts = [f.compile(X, Y).ir("source") for f in (together, written)]
    assert texts[0].replace("together", "written") == texts[1]


def test_a_tensor_without_axes_has_no_items() -> None:
    @pto.jit
    def kernel(x, y):
        for v in x:
            y[0] = v

    for call in (kernel, kernel.interpret):
        with pytest.raises(pto.TypeMismatchError, match="PTO-T005"):
            call(np.array(1.0), Y.copy())


def test_eager_tiles_have_items() -> None:
    assert [float(v) for v in pl.load(X)] == X.tolist()
    assert [pl.max(row) for row in pl.load(W)] == W.max(axis=1).tolist()
