# SPDX-License-Identifier: MIT
"""Elements that a loop updates again and again are in registers where nothing else can be their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def matvec(y, a, x):
    for i in pl.range(a.shape[0]):
        for j in pl.range(a.shape[1]):
            y[i] += a[i, j] * x[j]


@pto.jit
def backwards(y, a, x):
    for i in pl.range(a.shape[0], parallel=True):
        for j in pl.range(a.shape[1] - 1, -1, -2):
            y[i] = y[i] - a[i, j] * x[j]


@pto.jit
def both(y, a, x):
    for i in pl.range(a.shape[0] - 1):
        for j in pl.range(a.shape[1]):
            x[j] = x[j] + y[i] * a[i, j]
            y[i] = y[i] + a[i, j] * x[j]


@pto.jit
def pairs(y, a, x):
    for i in pl.range(a.shape[0] - 1):
        for j in pl.range(a.shape[1]):
            y[0] += a[i, j] * x[j]
            y[1] = max(y[1], a[i, j])


KERNELS = [matvec, backwards, both, pairs]


def plain(kernel: Any, y: np.ndarray, a: np.ndarray, x: np.ndarray) -> None:
    """What the kernel does, element by element in its order."""
    m, n = a.shape
    match KERNELS.index(kernel):
        case 0:
            for i in range(m):
                for j in range(n):
                    y[i] += a[i, j] * x[j]
        case 1:
            for i in range(m):
                for j in range(n - 1, -1, -2):
                    y[i] -= a[i, j] * x[j]
        case 2:
            for i in range(m - 1):
                for j in range(n):
                    x[j] = x[j] + y[i] * a[i, j]
                    y[i] = y[i] + a[i, j] * x[j]
        case 3:
            for i in range(m - 1):
                for j in range(n):
                    y[0] += a[i, j] * x[j]
                    y[1] = max(y[1], a[i, j])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint8])
def test_arguments_may_lie_anywhere(kernel: Any, dtype: Any) -> None:
    """`y` and `x` are parts of the memory of `a`, of each other, or beside them, at every distance."""
    m, n = 4, 5
    whole = np.random.default_rng(0).integers(1, 5, 40).astype(dtype)
    for at_y in range(36):
        for at_x in (0, 3, 22, 35):
            memory, expected = whole.copy(), whole.copy()
            for run, part in ((kernel, memory), (lambda *v: plain(kernel, *v), expected)):
                with np.errstate(over="ignore"):
                    run(part[at_y : at_y + m], part[2 : 2 + m * n].reshape(m, n), part[at_x : at_x + n])
            np.testing.assert_array_equal(memory, expected, err_msg=f"y at {at_y}, x at {at_x}")


@pytest.mark.parametrize("turned", [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::-2], lambda a: a[::2]])
def test_the_memory_of_views_is_all_that_they_span(turned: Any) -> None:
    for kernel in KERNELS:
        for at in range(62):
            memory = np.random.default_rng(1).integers(1, 4, 70).astype(np.float64)
            expected = memory.copy()
            for run, part in ((kernel, memory), (lambda *v: plain(kernel, *v), expected)):
                a = turned(part[8:57].reshape(7, 7))
                with np.errstate(over="ignore", invalid="ignore"):
                    run(part[at : at + 7], a, part[60:67])
            np.testing.assert_array_equal(memory, expected, err_msg=f"{kernel.__name__}, y at {at}")


def test_elements_overlap_by_bytes() -> None:
    @pto.jit
    def add(y, a):
        for j in pl.range(a.shape[0] - 1, -1, -1):
            y[0] += a[j]

    for at in range(30):
        memory = np.zeros(8, np.int64)
        memory.view(np.uint8)[at : at + 24] = 100  # sums reach the second byte
        expected = memory.copy()
        add(memory[3:4], memory.view(np.uint8)[at : at + 24])
        for j in range(at + 23, at - 1, -1):
            expected[3] += expected.view(np.uint8)[j]
        np.testing.assert_array_equal(memory, expected, err_msg=f"at {at}")


def test_a_loop_that_does_not_run_touches_nothing() -> None:
    @pto.jit
    def beyond(y, a, k):
        for j in pl.range(a.shape[0]):
            y[k] += a[j]

    y = np.ones(3)
    beyond(y, np.ones(0), 1 << 44)  # would not be memory at all
    np.testing.assert_array_equal(y, 1)


def test_sums_stay_in_registers() -> None:
    """Sums of integers are vectors where they need not be in memory after each addition."""
    rng = np.random.default_rng(2)
    a, x = rng.integers(-9, 9, (5, 70)).astype(np.int32), rng.integers(-9, 9, 70).astype(np.int32)
    y = np.zeros(5, np.int32)
    matvec(y, a, x)
    np.testing.assert_array_equal(y, a @ x)
    assert "@kept" in matvec.compile(y, a, x).ir("llvm")
