# SPDX-License-Identifier: MIT
"""Loops along the rows of an array whose lanes are the rows: squares of elements are read at a time and transposed."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.cpu.loading import host


def sums(a, x, y):
    for i in range(a.shape[0]):
        s = x[0]
        for j in range(a.shape[1]):
            s += a[i, j]
        y[i] = s


def products(a, x, y):
    for i in range(a.shape[0]):
        s = x[0]
        for j in range(2, a.shape[1] - 1):
            s = s * x[j] + a[i, j + 1] * a[i, j - 2]
        y[i] = s


def triangle(a, x, y):
    for i in range(a.shape[0]):
        s = x[0]
        for j in range(min(i * 3, a.shape[1])):
            s -= a[i, j] * x[j]
        for j in range(1, min(i, a.shape[1])):
            s = max(s, a[i, j])
        y[i] = s


def ragged(a, x, y):
    for i in range(a.shape[0]):
        s = x[0]
        for j in range(i // 2, min(i * 3, a.shape[1])):
            s -= a[i, j] * x[j]
        y[i] = s


def least(a, x, y):
    for i in range(a.shape[0]):
        best = a[i, 0]
        at = 0
        for j in range(1, a.shape[1]):
            if a[i, j] < best:
                best = a[i, j]
                at = j
        y[i] = at


def signs(a, x, y):
    for i in range(a.shape[0]):
        s = x[0]
        if x[i] > 0:
            for j in range(a.shape[1]):
                if a[i, j] > 0:
                    s += a[i, j]
                else:
                    s = s * x[1]
        y[i] = s


KERNELS = [sums, products, triangle, least, signs]
OTHERS = [ragged]
DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Small whole numbers, so that no intermediate rounds, in Python or elsewhere."""
    return rng.integers(-2, 3, shape).astype(dtype)


def check(kernel: Callable[..., Any], compiled: Any, a: np.ndarray, x: np.ndarray) -> None:
    want, got = np.zeros(len(a), a.dtype), np.zeros(len(a), a.dtype)
    with np.errstate(all="ignore"):
        kernel(a, x, want)
    compiled(a, x, got)
    np.testing.assert_array_equal(got, want)


def by_squares(compiled: Any) -> bool:
    return "pto.squares" in compiled.ir("llvm")


@pytest.mark.parametrize("kernel", [*KERNELS, *OTHERS])
def test_every_sum_is_the_one_that_is_written(kernel: Callable[..., Any]) -> None:
    rng, compiled = np.random.default_rng(1), pto.jit(kernel)
    for dtype in (np.float32, np.float64):
        for shape in ((1, 9), (2, 64), (7, 65), (8, 63), (9, 3), (16, 130), (33, 17), (40, 1), (70, 70)):
            a = rng.standard_normal(shape).astype(dtype)
            x = rng.standard_normal(200).astype(dtype)
            check(kernel, compiled, a, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", [sums, least, signs])
def test_elements_of_every_size(kernel: Callable[..., Any], dtype: Any) -> None:
    rng, compiled = np.random.default_rng(2), pto.jit(kernel)
    for shape in ((5, 20), (37, 75)):
        check(kernel, compiled, numbers(rng, shape, dtype), numbers(rng, (200,), dtype))


def test_rows_of_views() -> None:
    rng = np.random.default_rng(3)
    a, x = rng.standard_normal((60, 90)), rng.standard_normal(200)
    for view in (a[::2], a[::-1], a[3:, 5:80], a[::-3, 7:], np.broadcast_to(a[0], (35, 90))):
        for kernel in KERNELS:
            check(kernel, pto.jit(kernel), view, x)


@pytest.mark.skipif(sys.platform != "linux", reason="the page behind an array is closed by mprotect")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_behind_the_last_row_is_read(dtype: Any) -> None:
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 8 * page)
    bytes_ = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(bytes_.ctypes.data + 7 * page), page, 0) == 0
    try:
        rng = np.random.default_rng(4)
        for rows, columns in ((3, 5), (17, 19), (20, 65), (33, 66)):
            size = rows * columns * np.dtype(dtype).itemsize
            a = bytes_[7 * page - size : 7 * page].view(dtype).reshape(rows, columns)
            a[...] = rng.standard_normal(a.shape)
            for kernel in KERNELS:
                check(kernel, pto.jit(kernel), a, rng.standard_normal(200).astype(dtype))
    finally:
        assert libc.mprotect(ctypes.c_void_p(bytes_.ctypes.data + 7 * page), page, 3) == 0


@pytest.mark.skipif(host().width != 64, reason="squares of 8 f64 want registers of 512 bits")
def test_which_loops_read_squares() -> None:
    a, x, y = np.ones((20, 20)), np.ones(20), np.ones(20)
    for kernel in KERNELS:
        assert by_squares(pto.jit(kernel).compile(a, x, y)), kernel.__name__
    whole = a.astype(np.int64)
    assert by_squares(pto.jit(least).compile(whole, x, y))
    assert not by_squares(pto.jit(sums).compile(whole, x.astype(np.int64), y)), "sums of integers run along the rows"
    assert not by_squares(pto.jit(fastmath=True)(sums).compile(a, x, y)), "and so do sums in any order"


@pto.jit
def first_of(a, x, y):
    for i in pl.range(a.shape[0], parallel=True):
        at = -1
        for j in range(a.shape[1]):
            if a[i, j] > x[0]:
                at = j
                break
        y[i] = at


@pto.jit
def written(a, x, y):
    for i in range(a.shape[0]):
        s = x[0]
        for j in range(a.shape[1] - 1):
            s += a[i, j] * x[j]
            a[i, j + 1] = s


def test_loops_that_break_or_write_read_one_element_at_a_time() -> None:
    rng = np.random.default_rng(5)
    a, x, y = rng.standard_normal((40, 30)), np.ones(30), np.zeros(40)
    assert not by_squares(first_of.compile(a, x, y))
    assert not by_squares(written.compile(a, x, y))
    first_of(a, x, y)
    found = a > 1
    np.testing.assert_array_equal(y, np.where(found.any(axis=1), found.argmax(axis=1), -1))
    want = a.copy()
    written.interpret(want, x, y)
    written(a, x, y)
    np.testing.assert_array_equal(a, want)
