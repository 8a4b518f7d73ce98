# SPDX-License-Identifier: MIT
"""Arrays that loops, scopes, branches and helpers make with NumPy, and whose elements are assigned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError, TargetError
from tests.codegen.harness import WAYS, as_numpy

X = np.array([0.5, -3.0, 2.0, 4.0, -1.5, 0.25, 7.0, 0.125, -2.0])
W = np.ones(3)


def in_a_loop(x, y):
    for i in range(x.shape[0]):
        v = np.zeros(3)
        v[i % 3] = x[i]
        v[0] += 1
        y[i] = v[0] + 2 * v[1] - v[2]


def in_parallel(x, y):
    for i in pl.range(x.shape[0], parallel=True):
        v = np.zeros(3)
        v[i % 3] = x[i]
        y[i] = v[0] + 2 * v[1]


def in_chunks(x, y):
    for i in pl.range(x.shape[0], parallel=True, chunk=4):
        v = np.full(2, x[i])
        v[i % 2] = 5
        y[i] = v[0] - v[1]


def in_a_scope(x, y):
    with pl.incore():
        for i in range(x.shape[0]):
            v = np.ones((2, 2))
            v[i % 2, 1] = x[i]
            y[i] = v.sum()


def in_a_branch(x, y):
    for i in range(x.shape[0]):
        if x[i] > 0:
            v = np.ones(4)
            v[i % 4] = x[i]
            y[i] = v.sum()
        else:
            y[i] = -1


def _derivative(s):
    d = np.empty(2)
    d[0] = s[1]
    d[1] = -s[0]
    return d


def of_a_helper(x, y):
    for i in range(x.shape[0]):
        s = np.array([x[i], 1.0])
        for _ in range(5):
            s += 0.1 * _derivative(s + 0.05 * _derivative(s))
        y[i] = s[0] + s[1]


def in_two_loops(x, y):
    for i in range(x.shape[0]):
        s = np.zeros(3)
        for j in range(4):
            t = np.zeros(3)
            for k in range(3):
                t[k] = x[i] * j + k
            for k in range(3):
                s[k] += t[2 - k]
        y[i] = s[0] * 2 + s[1] - s[2]


def of_run_time_extents(x, y):
    for i in range(x.shape[0]):
        t = np.empty(i + 1)
        for k in range(i + 1):
            t[k] = x[i - k]
        y[i] = t[i // 2]


def of_many_elements(x, y):
    for i in range(x.shape[0]):
        t = np.zeros(2000)
        t[i * 200] = x[i]
        y[i] = t.sum()


def of_run_time_numbers(x, y):
    for i in range(x.shape[0]):
        m = np.array([[1, x[i]], [x[i], 2]])
        m[1, i % 2] += 1
        y[i] = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]


def of_python(x, y):
    for i in range(x.shape[0]):
        a = np.eye(3)
        a[0, 2] = x[i]
        y[i] = (a @ a)[0, 2]


def of_operators(x, y):
    w = np.ones(3) / 4
    w[1] = x[0]
    for i in range(3):
        y[i] = w[i]


def counted(x, y):
    v = np.zeros(3)
    for i in range(x.shape[0]):
        v += 1
        if x[i] > 0:
            v[1] = 40.0
    y[0] = v[0] + v[1]


def counted_in_a_view(x, y):
    v = np.zeros((2, 3))
    for _ in range(x.shape[0]):
        row = v[0]
        row += 1
        v.T[1] *= 2
    y[0] = v[0, 0] + v[0, 1] + v[1, 0]


def permuted(x, y):
    p = np.arange(9)
    for i in range(9):
        j = int(abs(x[i]))
        p[i], p[j] = p[j], p[i]
    for i in range(9):
        y[i] = p[i]


def permuted_at_run_time(x, y):
    n = x.shape[0]
    p = np.arange(n)
    for i in range(n):
        p[i] = p[n - 1 - i]
    y[...] = p


def copied(x, y):
    for i in range(x.shape[0]):
        r = x.copy()
        r[i] = 0
        y[i] = r.max()


def sums(x, y):
    total = 0.0
    for i in pl.range(x.shape[0], parallel=True):
        v = np.zeros(3)
        v[i % 3] = x[i]
        total += v.sum()
    y[0] = total


def in_a_list(x, y):
    for i in range(x.shape[0]):
        vs = [np.zeros(2), np.ones(2)]
        vs[0][i % 2] = x[i]
        vs[1][0] = vs[0][0]
        y[i] = vs[1].sum() + vs[0][1]


def of_slices_and_masks(x, y):
    for i in range(x.shape[0]):
        v = np.zeros((2, 3))
        v[1] = x[i]
        v[:, 0] += 1
        v *= 2
        v[v > 3] = 0
        y[i] = v.sum()


def of_truth_values(x, y):
    for i in range(x.shape[0]):
        v = np.zeros(3, np.bool_)
        v[i % 3] = x[i] > 0
        y[i] = v.any() + 2 * v[1]


def stacked(x, y):
    for i in range(x.shape[0]):
        stack = np.zeros(16, np.int64)
        stack[0], n, total = i, 1, 0.0
        while n > 0:
            n -= 1
            u = stack[n]
            total += x[u]
            if 2 * u + 2 < x.shape[0]:
                stack[n], stack[n + 1] = 2 * u + 1, 2 * u + 2
                n += 2
        y[i] = total


def sorted_by_insertion(x, y):
    t = np.empty(x.shape[0])
    for i in range(x.shape[0]):
        t[i] = x[i]
        j = i
        while j > 0 and t[j - 1] > t[j]:
            t[j], t[j - 1] = t[j - 1], t[j]
            j -= 1
    y[:] = t


def of_an_unrolled_loop(x, y):
    for i in range(x.shape[0]):
        total = 0.0
        for k in pl.static_range(24):
            v = np.zeros(500)
            v[i] = x[i] + k
            total += v[(i + k) % 500] + v[i]
        y[i] = total


KERNELS: list[Callable[..., Any]] = [
    in_a_loop, in_parallel, in_chunks, in_a_scope, in_a_branch, of_a_helper, in_two_loops, of_run_time_extents,
    of_many_elements, of_run_time_numbers, of_python, of_operators, counted, counted_in_a_view, permuted,
    permuted_at_run_time, copied, sums, in_a_list, of_slices_and_masks, of_truth_values, stacked, sorted_by_insertion,
    of_an_unrolled_loop,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_arrays_are_numpys(kernel: Callable[..., Any], way: str) -> None:
    as_numpy(kernel, X, way)


def test_small_arrays_take_no_memory() -> None:
    assert "pto_buffer_alloc" not in pto.jit(in_a_loop).compile(X, X).ir("llvm")
    assert "double v[3];" in pto.jit(in_a_loop).compile(X, X, target="c").sources["in_a_loop_incore_0.c"]
    assert "pto_buffer_alloc" in pto.jit(of_many_elements).compile(X, X).ir("llvm")
    many = pto.jit(of_an_unrolled_loop).compile(X, X).ir("llvm")  # of which 16 have room on the stack
    assert [many.count(text) for text in ("alloca [4000 x i8]", 'call ptr @"pto_buffer_alloc"')] == [16, 8]


def of_the_module(x, y):
    v = W
    v += 1
    y[0] = v[0]


def exchanged(x, y):
    v = np.zeros(2)
    for i in range(x.shape[0]):
        w = np.zeros(2)
        w[0] = x[i]
        v = w
    y[0] = v[0]


@pytest.mark.parametrize(("kernel", "code"), [(of_the_module, "PTO-N007"), (exchanged, "PTO-T001")])
def test_what_would_not_be_numpys_is_an_error(kernel: Callable[..., Any], code: str) -> None:
    with pytest.raises(CompilationError) as caught:
        pto.jit(kernel)(X, np.zeros(9))
    assert caught.value.code == code and (W == 1).all()


@pytest.mark.parametrize("target", ["cuda", "ascend"])
def test_devices_have_no_arrays_of_iterations(target: str) -> None:
    with pytest.raises(TargetError, match="a new tensor inside a parallel loop"):
        _ = pto.jit(in_parallel).compile(X.astype(np.float32), X.astype(np.float32), target=target).sources
