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
