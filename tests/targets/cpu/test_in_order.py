# SPDX-License-Identifier: MIT
"""Loops that keep their order, computed several iterations at a time where nobody can see it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import host


def product(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


def column_sums(a, b, c):
    for j in range(a.shape[1] - 1, -1, -2):
        s = b[0, j]
        for i in range(a.shape[0]):
            s = s * 0.5 + a[i, j]
        c[0, j] = s


def row_sums(a, b, c):
    for i in range(a.shape[0]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * b[k, 0]
        c[i, 0] = s


def farthest(a, b, c):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            m = -1e30
            for k in range(a.shape[1]):
                v = a[i, k] + b[k, j]
                if v > m:
                    m = v
            c[i, j] = m


def halvings(a, b, c):
    for j in range(a.shape[1]):
        n = 0
        v = a[0, j] * 100.0
        while v > b[0, 0] and n < 40:
            v *= 0.5
            n += 1
        c[0, j] = n


def triangle(a, b, c):
    for j in range(a.shape[0]):
        for i in range(j, a.shape[0]):
            s = a[i, j]
            for k in range(j):
                s -= c[i, k] * c[j, k]
            c[i, j] = s + b[0, 0]


KERNELS = [product, column_sums, row_sums, farthest, halvings, triangle]
LANES = [product, column_sums, farthest, halvings]


def groups(text: str) -> bool:
    return re.search(r"^groups", text, flags=re.M) is not None


def squares(rng: np.random.Generator, n: int, dtype: Any) -> list[np.ndarray]:
    return [rng.standard_normal((n, n)).astype(dtype) for _ in range(3)]


def check(kernel: Callable[..., Any], compiled: Any, arrays: list[np.ndarray]) -> None:
    """The compiled kernel gives bit for bit what Python makes of the source, in every array."""
    base = arrays[0] if arrays[0].base is None else arrays[0].base
    before = base.copy(), [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        kernel(*arrays)
    want = base.copy(), [a.copy() for a in arrays]
    base[...] = before[0]
    for a, old in zip(arrays, before[1], strict=True):
        a[...] = old
    compiled(*arrays)
    np.testing.assert_array_equal(base, want[0])
    for a, expected in zip(arrays, want[1], strict=True):
        np.testing.assert_array_equal(a, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_sum_is_the_one_that_is_written(kernel: Callable[..., Any], dtype: Any) -> None:
    rng, compiled = np.random.default_rng(1), pto.jit(kernel)
    for n in (1, 2, 3, 7, 8, 9, 16, 19, 33):
        check(kernel, compiled, squares(rng, n, dtype))


@pytest.mark.parametrize("kernel", KERNELS)
def test_tensors_that_share_memory_see_the_order_of_the_program(kernel: Callable[..., Any]) -> None:
    rng, compiled, n = np.random.default_rng(2), pto.jit(kernel), 17
    for shift in (0, 1, n - 1, n, 2 * n + 3, n * n - 1, n * n):
        memory = rng.standard_normal(2 * n * n + n)

        def square(at: int, memory: np.ndarray = memory) -> np.ndarray:
            return memory[at : at + n * n].reshape(n, n)

        other = rng.standard_normal((n, n))
        check(kernel, compiled, [square(0), other, square(shift)])
        check(kernel, compiled, [square(shift), other, square(0)])
        check(kernel, compiled, [square(0), square(shift), square(shift)])


@pytest.mark.parametrize("kernel", LANES)
def test_lanes_are_iterations_where_elements_lie_side_by_side(kernel: Callable[..., Any]) -> None:
    kernel_ = pto.jit(kernel)
    arrays = squares(np.random.default_rng(3), 9, np.float32)
    compiled = kernel_.compile(*arrays)
    assert groups(compiled.ir("llvm"))
    (told,) = [d for d in compiled.decisions if d.kind == "schedule" and d.loops == ("j",)]
    assert told.applied and "share memory" in told.reason


def test_rows_are_summed_next_to_each_other_unless_the_optimiser_may_reorder_them() -> None:
    arrays = squares(np.random.default_rng(4), 9, np.float64)
    assert groups(pto.jit(row_sums).compile(*arrays).ir("llvm"))
    assert not groups(pto.jit(fastmath=True)(row_sums).compile(*arrays).ir("llvm"))


@pto.jit
def running(a, c):
    for j in range(1, a.shape[1]):
        s = c[0, j - 1]
        for i in range(a.shape[0]):
            s += a[i, j]
        c[0, j] = s


@pto.jit
def scattered(a, at, c):
    for j in range(a.shape[1]):
        s = 0.0
        for i in range(a.shape[0]):
            s += a[i, j]
        c[0, at[j]] = s


def test_iterations_that_need_each_other_stay_apart() -> None:
    a, c = np.random.default_rng(5).standard_normal((5, 21)), np.zeros((1, 21))
    assert not groups(running.compile(a, c).ir("llvm"))
    running(a, c)
    np.testing.assert_allclose(c[0, 1:], np.cumsum(a.sum(axis=0)[1:]))
    at = np.zeros(21, np.int64)
    assert not groups(scattered.compile(a, at, c).ir("llvm"))
    scattered(a, at, c)
    assert math.isclose(c[0, 0], a[:, 20].sum()), "the last one wins"


@pto.jit
def least(cost, out):
    for x in range(cost.shape[0]):
        best, at = 1e30, 0
        for z in range(cost.shape[1]):
            if cost[x, z] < best:
                best = cost[x, z]
                at = z
        out[x] = at


@pto.jit
def window(x, y):
    for j in range(y.shape[0]):
        s = 0.0
        for k in range(5):
            s += x[j + k]
        y[j] = s


def test_what_the_optimiser_does_better_is_left_to_it() -> None:
    rng = np.random.default_rng(6)
    cost, out = rng.random((40, 7)), np.zeros(40, np.int32)
    assert groups(least.compile(cost, out).ir("llvm")) == (host().width == 64), "rows are read by squares, or not at all"
    least(cost, out)
    np.testing.assert_array_equal(out, cost.argmin(axis=1))
    x, y = rng.random(44), np.zeros(40)
    assert not groups(window.compile(x, y).ir("llvm")), "it unrolls five iterations and takes the loop around them"
    window(x, y)
    np.testing.assert_allclose(y, np.convolve(x, np.ones(5), "valid"))


@pto.jit
def looked_up(table, at, y):
    for i in range(y.shape[0]):
        v = table[at[i]]
        if i >= 1 and at[i] != at[i - 1]:
            v = max(v, table[at[i - 1]])
        y[i] = pl.exp(-v)


@pto.jit
def moved(table, at, y):
    for i in range(y.shape[0]):
        y[i] = table[at[i]]


def test_functions_of_elements_at_indices_read_from_memory() -> None:
    """The optimiser does not know where these lie, so it would compute one `exp` at a time."""
    rng = np.random.default_rng(7)
    for n in (1, 5, 16, 53):
        table, at, y = rng.random(n), rng.integers(0, n, n).astype(np.int32), np.zeros(n)
        looked_up(table, at, y)
        before = np.maximum(table[at], table[np.roll(at, 1)])
        np.testing.assert_allclose(y[1:], np.exp(-before)[1:], rtol=1e-14)
        np.testing.assert_allclose(y[0], np.exp(-table[at[0]]), rtol=1e-14)
        shared = np.append(0.5, rng.random(n))
        want = shared.copy()
        looked_up.interpret(want, np.arange(n, dtype=np.int32), want[1:])
        looked_up(shared, np.arange(n, dtype=np.int32), shared[1:])  # each reads what the one before wrote
        np.testing.assert_allclose(shared, want, rtol=1e-13)
    assert groups(looked_up.compile(table, at, y).ir("llvm"))
    assert not groups(moved.compile(table, at, y).ir("llvm")), "nothing but reads and writes: no gain"
