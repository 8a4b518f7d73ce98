# SPDX-License-Identifier: MIT
"""Loops that one of their iterations divides: what it writes all others read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

RNG = np.random.default_rng(7)


@pto.jit(cache=False)
def shortest_paths(d):
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])


@pto.jit(cache=False)
def elimination(a):
    n, m = a.shape
    for k in range(n):
        for j in range(m):
            a[k, j] = a[k, j] / a[k, k]
        for i in range(n):
            if i != k:
                for j in range(m):
                    a[i, j] -= a[i, k] * a[k, j]


@pto.jit(cache=False)
def closure(a):
    n = a.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                a[i, j] = a[i, j] | (a[i, k] & a[k, j])


@pto.jit(cache=False)
def part(x, p, lo, hi):
    for i in range(lo, hi):
        x[i] = x[i] * 0.5 + x[p]


@pto.jit(cache=False)
def two_tensors(x, y, p):
    """x and y may be one tensor."""
    for i in range(x.shape[0]):
        x[i] = x[i] * 0.5 + x[p] + y[i]


@pto.jit(cache=False)
def twice(x, p):
    """Another write hits what is read, too."""
    for i in range(x.shape[0] - 1):
        x[i] = x[i] + x[p]
        x[i + 1] = x[i + 1] - 1.0


@pto.jit(cache=False)
def shifted(x, p):
    """All iterations are connected by their neighbours."""
    for i in range(1, x.shape[0]):
        x[i] = x[i - 1] + x[p]


@pto.jit(cache=False)
def read_later(x, y, p):
    t = 0.0
    for i in range(x.shape[0]):
        t = x[i] + x[p]
        x[i] = t
    y[0] = t


@pto.jit(cache=False)
def summed(x, y, p):
    t = 0.0
    for i in range(x.shape[0]):
        x[i] = x[i] + x[p]
        t += x[i]
    y[0] = t


@pto.jit(cache=False)
def to_the_pivot(a):
    """No iteration reaches it."""
    n = a.shape[0]
    for k in range(n):
        for j in range(k + 1, n):
            a[k, j] = a[k, j] / a[k, k]


def divided(kernel, *args: Any) -> bool:
    return any("divided before and behind it" in d.reason for d in kernel.compile(*args).decisions)


def same(kernel, *args: Any, rtol: float = 1e-5) -> None:
    """Compiled and interpreted code do the same with copies of the arguments."""
    ours = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel(*ours)
    kernel.interpret(*theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(a, b, rtol=rtol)


@pytest.mark.parametrize("n", [1, 2, 19, 70])
def test_shortest_paths(n: int) -> None:
    d = RNG.uniform(0, 1, (n, n)).astype(np.float32)
    d[n // 2, n // 2] = -0.25  # a cycle: the pivot changes while its row is gone through
    want = d.copy()
    for k in range(n):
        for i in range(n):
            for j in range(n):
                want[i, j] = min(want[i, j], want[i, k] + want[k, j])
    assert divided(shortest_paths, d)
    shortest_paths(d)
    np.testing.assert_array_equal(d, want)


def test_elimination_inverts() -> None:
    a = RNG.standard_normal((33, 33)) + 9 * np.eye(33)
    both = np.concatenate([a, np.eye(33)], axis=1)
    assert divided(elimination, both)
    elimination(both)
    # row k is divided by what is left of its pivot, which iteration k makes 1: the text of the program says so
    want = np.concatenate([a, np.eye(33)], axis=1)
    for k in range(33):
        for j in range(66):
            want[k, j] = want[k, j] / want[k, k]
        for i in range(33):
            if i != k:
                for j in range(66):
                    want[i, j] -= want[i, k] * want[k, j]
    np.testing.assert_allclose(both, want, rtol=1e-9, atol=1e-9)


def test_narrow_numbers() -> None:
    a = (RNG.random((150, 150)) < 0.01).astype(np.int8)
    want = a.astype(bool)
    for k in range(150):
        want |= want[:, k : k + 1] & want[k : k + 1, :]
    assert divided(closure, a)
    closure(a)
    np.testing.assert_array_equal(a.astype(bool), want)


@pytest.mark.parametrize("lo", [0, 3])
@pytest.mark.parametrize("hi", [0, 4, 100])
@pytest.mark.parametrize("p", [0, 1, 3, 50, 99])
def test_the_pivot_may_be_anywhere(p: int, lo: int, hi: int) -> None:
    x = RNG.standard_normal(100).astype(np.float32)
    assert divided(part, x, p, lo, hi)
    same(part, x, p, lo, hi)


def test_tensors_that_share_memory_keep_the_order() -> None:
    x = RNG.standard_normal(300).astype(np.float32)
    other = x.copy()
    two_tensors(x[:-1], x[1:], 100)
    two_tensors.interpret(other[:-1], other[1:], 100)
    np.testing.assert_allclose(x, other, rtol=1e-5)
    same(two_tensors, x, np.ones_like(x), 100)


@pytest.mark.parametrize("kernel", [twice, shifted, read_later, summed, to_the_pivot])
def test_other_loops_stay_whole(kernel) -> None:
    x = RNG.uniform(1, 2, (40, 40) if kernel is to_the_pivot else 40)
    args = [x, *([np.zeros(1)] if kernel in (read_later, summed) else []), *([5] if kernel is not to_the_pivot else [])]
    assert not divided(kernel, *args)
    same(kernel, *args)


def test_checked_loops_stay_whole() -> None:
    @pto.jit(cache=False, debug=True)
    def checked(x, p):
        for i in pl.range(x.shape[0]):
            x[i] = x[i] * 0.5 + x[p]

    x = RNG.standard_normal(20)
    want = x.copy()
    for i in range(20):
        want[i] = want[i] * 0.5 + want[3]
    checked(x, 3)
    np.testing.assert_allclose(x, want)
