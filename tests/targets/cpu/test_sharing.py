# SPDX-License-Identifier: MIT
"""Sorts, scans, folds, joined tiles and rows taken by indices: large ones are divided among the workers, and have the
bits that one thread gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def sorted_rows(x, s, y):
    y[...] = pl.sort(x)


def order(x, s, y):
    y[...] = pl.argsort(x, descending=True).to(pl.f32)


def largest(x, s, y):
    v, i = pl.topk(x, 3)
    y[:, :3] = v + i.to(pl.f32)


def counted(x, s, y):
    y[:, :2] = pl.histogram((x * 2.0).to(pl.i32), 2).to(pl.f32)


def running_rows(x, s, y):
    y[...] = pl.cumsum(x, axis=1, reverse=True)


def running_columns(x, s, y):
    y[...] = pl.cumsum(x, axis=0)


def scanned(x, s, y):
    """The function uses a number that is known when it runs."""
    a, b = pl.associative_scan((x, x * 0.5), 1, lambda p, q: (p[0] * s + q[0], p[1] + q[1] * s))
    y[...] = a - b


def folded_rows(x, s, y):
    y[:, 0] = pl.reduce(x, 1, lambda p, q: p * s + q, init=0.5)


def folded_columns(x, s, y):
    y[0:1] = pl.reduce(x, 0, lambda p, q: p * s + q, keepdims=True)


def joined(x, s, y):
    y[...] = pl.concat([x[:, 3:], x[:, :3]], axis=1)


def joined_rows(x, s, y):
    y[...] = pl.concat([x[3:], x[:3]], axis=0)


def taken_rows(x, s, y):
    y[...] = x[pl.arange(x.shape[0] - 1, -1, -1), :]


KERNELS = (sorted_rows, order, largest, counted, running_rows, running_columns, scanned, folded_rows, folded_columns, joined,
           joined_rows, taken_rows)  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 5), (700, 301), (3, 90001), (90001, 4)])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_every_number_of_threads_gives_the_same(kernel: Callable[..., Any], shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    out = []
    for threads in (1, 2, 5):
        y = np.zeros_like(x)
        pto.jit(kernel, num_threads=threads)(x, 0.25, y)
        out.append(y)
    np.testing.assert_array_equal(out[0], out[1])
    np.testing.assert_array_equal(out[0], out[2])
    rows = np.zeros_like(x)
    if kernel in (sorted_rows, order, largest, counted, running_rows, folded_rows, joined):  # each row is on its own
        one = pto.jit(kernel, num_threads=1)
        for r in [*range(0, shape[0], max(shape[0] // 50, 1)), shape[0] - 1]:
            one(x[r : r + 1], 0.25, rows[r : r + 1])
            np.testing.assert_array_equal(out[0][r], rows[r])
    elif shape[0] * shape[1] < 1000 or kernel not in (scanned, folded_columns):  # which take a call per element
        pto.jit(kernel).interpret(x, 0.25, rows)
        np.testing.assert_allclose(out[0], rows, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_large_ones_are_given_to_the_workers(kernel: Callable[..., Any]) -> None:
    spec = pto.spec((None, None), pl.f32)
    text = pto.jit(kernel).compile(spec, 0.25, spec).ir("llvm")
    function = kernel.__name__
    assert any(f"{function}_incore_0." in line and "pto_parallel_for" in line and "nest" not in line
               for line in text.splitlines())  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint32"])
def test_the_place_of_the_largest_of_all(dtype: str) -> None:
    """Of pieces, the first of those that are as good, or NaN."""
    rng = np.random.default_rng(0)
    for threads in (1, 3):
        place = pto.jit(lambda x: (pl.argmax(x), pl.argmin(x)), num_threads=threads)
        for shape in ((2, 3), (300, 700), (1024, 1024), (513, 1025)):
            x = (rng.standard_normal(shape) * 9).astype(dtype)
            assert place(x) == (x.argmax(), x.argmin())
            for at in ((0, 0), (shape[0] - 1, 2)) if x.dtype.kind == "f" else ():
                y = x.copy()
                y[at] = y[-1, -1] = np.nan
                assert place(y) == (y.argmax(), y.argmin())
        assert place(np.zeros((0, 5), dtype)) == (0, 0)


def test_small_ones_of_known_extents_have_no_functions_for_ranges() -> None:
    spec = pto.spec((8, 8), pl.f32)
    assert "pto_parallel_for" not in pto.jit(sorted_rows).compile(spec, 0.25, spec).ir("llvm")


def test_an_index_that_is_not_there_is_an_error_in_every_range() -> None:
    @pto.jit(num_threads=3)
    def taken(x, at, y):
        y[...] = x[at, :]

    x = np.ones((1000, 300), np.float32)
    at = np.arange(1000, dtype=np.int32)
    at[777] = 1000
    with pytest.raises(pto.BoundsError, match="1000"):
        taken(x, at, np.zeros_like(x))
    at[777] = 5
    y = np.zeros_like(x)
    taken(x, at, y)
    assert (y == 1).all()
