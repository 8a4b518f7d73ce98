# SPDX-License-Identifier: MIT
"""Extents of tiles that end where tensors do: what they do not exceed is known, and no kernel runs to find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
X = np.random.default_rng(9).standard_normal((100, 70)).astype(np.float32)


@pto.jit
def to_a_minimum(x: pl.Tensor, y: pl.Tensor):
    n, m = x.shape
    for i in pl.range(0, n, 64, parallel=True):
        for j in pl.range(0, m, 32, parallel=True):
            y[i : min(i + 64, n), j : min(m, j + 32)] = x[i : min(n, i + 64), j : min(j + 32, m)] * 2.0


@pto.jit
def by_a_count(x: pl.Tensor, y: pl.Tensor):
    n = x.shape[0]
    for b in pl.range((n + 63) // 64, parallel=True):
        lo = b * 64
        count = min(64, n - lo)
        y[lo : lo + count] = x[lo : lo + count] * 2.0


@pto.jit
def by_the_next_block(x: pl.Tensor, y: pl.Tensor):
    n = x.shape[0]
    for b in pl.range((n + 63) // 64, parallel=True):
        lo, hi = b * 64, min((b + 1) * 64, n)
        rows = hi - lo
        y[lo : lo + rows] = x[lo:hi] * 2.0


@pto.jit
def to_a_choice(x: pl.Tensor, y: pl.Tensor):
    n, m = x.shape
    for i in pl.range(0, n, 64, parallel=True):
        for j in pl.range(0, m, 32, parallel=True):
            end = n if n < i + 64 else i + 64
            columns = 32 if j + 32 <= m else m - j
            y[i:end, j : j + columns] = x[i:end, j : j + columns] * 2.0


@pto.jit
def with_a_border(x: pl.Tensor, y: pl.Tensor):
    """Rows of neighbours that are there."""
    n = x.shape[0]
    for i in pl.range(0, n, 16, parallel=True):
        lo, hi = max(i - 1, 0), min(i + 17, n)
        largest = pl.max(pl.abs(x[lo:hi]), axis=0)
        y[i : min(i + 16, n)] = x[i : min(i + 16, n)] * 2.0 + largest * 0.0


@pto.jit
def of_groups(x: pl.Tensor, y: pl.Tensor, groups: pl.constexpr):
    n, m = x.shape
    per = m // groups
    for i in pl.range(n, parallel=True):
        for g in pl.range(groups, parallel=True):
            y[i, g * per : (g + 1) * per] = x[i, g * per : (g + 1) * per] * 2.0


CASES: list[tuple[Any, tuple[int, ...]]] = [
    (to_a_minimum, ()), (by_a_count, ()), (by_the_next_block, ()), (to_a_choice, ()), (with_a_border, ()),
    (of_groups, (7,)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "more"), CASES, ids=[kernel.__name__ for kernel, _ in CASES])
def test_the_host_need_not_wait_for_the_largest_extent(kernel: Any, more: tuple[int, ...]) -> None:
    _, (_, y, *_) = emulated(kernel, X, np.zeros_like(X), *more)
    np.testing.assert_array_equal(y, X * 2.0)
    host = kernel.compile(X, y, *more, target="cuda").ir("kernels").partition("// Function Type: InCore")[0]
    assert host.count("CALL") == 1 and "getelem" not in host


def not_below(start: Callable[[Any, Any], Any]) -> Any:
    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor):
        n = x.shape[0]
        for i in pl.range(0, n, 16, parallel=True):
            end = start(i, n)
            y[i // 16] = pl.sum(x[i:end])

    return kernel


@pytest.mark.parametrize(
    ("end", "rows"),
    [(lambda i, n: max(i + 16, n), lambda i, n: n), (lambda i, n: min(2 * i + 16, n), lambda i, n: 2 * i + 16),
     (lambda i, n: n if n > i + 16 else i + 16, lambda i, n: n)],
    ids=["maximum", "rises", "choice"],
)  # fmt: skip
def test_extents_that_may_be_larger_are_found(end: Any, rows: Any) -> None:
    x = X[:, 0].copy()
    _, (_, y) = emulated(not_below(end), x, np.zeros(7, np.float32))
    np.testing.assert_allclose(y, [x[i : rows(i, 100)].sum() for i in range(0, 100, 16)], rtol=1e-5, atol=1e-5)
