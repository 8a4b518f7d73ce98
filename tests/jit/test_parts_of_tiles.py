# SPDX-License-Identifier: MIT
"""Parts of tiles that end behind their tile: as NumPy's slices they are as long as what is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.arange(1, 6, dtype=np.float32)
M = np.arange(12, dtype=np.float32).reshape(3, 4)

CASES: dict[str, tuple[Any, Any, Any]] = {
    "loaded": (lambda x: pl.load(x)[2:8], X, X[2:]),
    "behind the end": (lambda x: pl.load(x)[6:8], X, X[6:8]),
    "computed": (lambda x: pl.exp(x)[2:8], X, np.exp(X)[2:]),
    "computed with": (lambda x: pl.exp(pl.load(x)[2:8]) + 1, X, np.exp(X[2:]) + 1),
    "by pl.slice": (lambda x: pl.slice(pl.load(x), [4], [3]), X, X[3:]),
    "of a part": (lambda x: pl.load(x)[1:9][2:7], X, X[3:]),
    "rows and columns": (lambda x: pl.load(x)[1:5, 2:], M, M[1:, 2:]),
    "a column": (lambda x: pl.load(x)[1:5, 2], M, M[1:, 2]),
    "a product": (lambda x: pl.dot(pl.load(x)[1:5], pl.load(x).T), M, M[1:] @ M.T),
    "in order": (lambda x: pl.sort(pl.load(x)[2:8], descending=True), X, X[:1:-1]),
    "a scan": (lambda x: pl.cumsum(pl.load(x)[2:8]), X, np.cumsum(X[2:])),
    "chosen": (lambda x: pl.where(pl.load(x)[2:8] > 3, 1.0, x[0]), X, np.where(X[2:] > 3, np.float32(1), X[0])),
    "of another dtype": (lambda x: pl.load(x)[2:8].to(pl.i32), X, X[2:].astype(np.int32)),
    "without its first": (lambda x: pl.load(x)[1:], X, X[1:]),
    "without its last": (lambda x: pl.load(x)[:-1], X, X[:-1]),
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_part_of_a_tile_ends_where_the_tile_does(case: str, debug: bool) -> None:
    function, x, expected = CASES[case]
    kernel = pto.jit(debug=debug)(function)
    for result in (kernel(x), kernel.interpret(x)):
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), [(0, 3), (2, 8), (3, 1), (5, 5), (4, 5), (7, 9)])
def test_a_part_between_run_time_bounds_ends_where_the_tile_does(low: int, high: int) -> None:
    kernel = pto.jit(lambda x, low, high: pl.load(x)[low:high])
    np.testing.assert_array_equal(kernel(X, low, high), X[low:high])


def test_a_part_that_goes_from_scope_to_scope_ends_where_its_tile_does() -> None:
    @pto.incore
    def part(x):
        return pl.load(x)[2:8] * 3

    @pto.jit
    def kernel(x):
        with pl.incore():
            t = pl.load(x)[2:8] * 3
        u = part(x)
        with pl.incore():
            s = pl.sum(t + 1), pl.sum(u * 2)
        return s

    assert kernel(X) == (39.0, 72.0)


def _clips(kernel: Any, *args: Any) -> bool:
    """Whether the program has a branch for a result that is shorter than it was declared."""
    return "valid" in kernel.compile(*args).ir("source")


def test_what_is_known_to_lie_in_the_tile_needs_no_branch() -> None:
    inside = pto.jit(lambda x, n: (pl.load(x)[1:], pl.load(x)[: x.shape[0]], pl.load(x)[1:-1], pl.arange(9)[2:9] + n,
                                   pl.load(x, [n], [8], pad=0.0)[4:8]))  # fmt: skip
    assert not _clips(inside, X, 2)
    assert _clips(pto.jit(lambda x: pl.load(x)[1:4]), X)
    assert _clips(pto.jit(lambda x, n: pl.load(x)[:n]), X, 2)


def test_a_tile_that_is_an_operand_many_times_is_looked_at_once() -> None:
    def powers(x):
        t = pl.load(x)
        for _ in pl.static_range(35):
            t = t * t
        return t

    kernel = pto.jit(powers)
    np.testing.assert_array_equal(kernel(np.ones(3, np.float32)), np.ones(3, np.float32))


@pto.jit
def first_ones(x, y, z):
    h = x.shape[0]
    y[0] = 1.0
    pl.store(x[:-2] * 2.0, [1], y)
    pl.store(x[0 : h - 2] + 1.0, [1], z)


@pto.jit
def carried_ones(x, y, z):
    k = x.shape[0] - 2
    acc = pl.load(x[0:k])
    for _ in range(3):
        acc = x[0:k] * 2.0 + float(1)
    pl.store(acc, [1], z)
    x[:-2] = 5.0
    y[0] = x[:-2].shape[0]


@pytest.mark.parametrize("rows", [5, 3, 2, 1, 0])
@pytest.mark.parametrize("target", ["interpret", "cpu", "c"])
def test_a_slice_that_ends_before_it_begins_is_empty(rows: int, target: str) -> None:
    x, y, z = np.arange(rows, dtype=np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32)

    def run(kernel: Any, *args: Any) -> None:
        (kernel.interpret if target == "interpret" else kernel.compile(*args, target=target))(*args)

    run(first_ones, x, y, z)
    n = max(rows - 2, 0)
    np.testing.assert_array_equal(y, [1, *x[:n] * 2, *[0] * (7 - n)])
    np.testing.assert_array_equal(z[1 : 1 + n], x[:n] + 1)
    assert not z[1 + n :].any()
    if rows >= 2:
        part = x[:n].copy()
        run(carried_ones, x, y, z)
        np.testing.assert_array_equal(z[1 : 1 + n], part * 2 + 1)
        assert y[0] == n and (x[:n] == 5).all()
