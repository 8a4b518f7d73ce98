# SPDX-License-Identifier: MIT
"""Tiles of rank 1 that stand as columns, as sums along rows do, where others lie as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
N = 40
X = np.random.default_rng(3).standard_normal((N, N)).astype(np.float32)
ALONG, DOWN = X.max(axis=1), X.max(axis=0)


@pto.jit
def against_columns(x, out, n):
    t = pl.load(x, [0, 0], [N, N])
    pl.store(t - pl.max(t, axis=1), [0, 0], out)


@pto.jit
def spread_over_rows(x, out, n):
    pl.store(pl.broadcast_to(pl.max(pl.load(x, [0, 0], [N, N]), axis=1), (N, N)), [0, 0], out)


@pto.jit
def both_ways(x, out, n):
    t = pl.load(x, [0, 0], [N, N])
    pl.store(pl.max(t, axis=1) - pl.max(t, axis=0), [0], out)


@pto.jit
def chosen(x, out, n):
    t = pl.load(x, [0, 0], [N, N])
    v = pl.max(t, axis=1)
    if n > 0:
        v = v - pl.max(t, axis=0)
    pl.store(v * 2.0, [0], out)


@pto.jit
def joined(x, out, n):
    t = pl.load(x, [0, 0], [N, N])
    pl.store(pl.concat([pl.max(t, axis=1), pl.max(t, axis=0)], axis=0), [0], out)


CASES: list[tuple[Any, int, np.ndarray]] = [
    (against_columns, 0, X - ALONG),
    (spread_over_rows, 0, np.broadcast_to(ALONG, (N, N))),
    (both_ways, 0, ALONG - DOWN),
    (chosen, 0, 2 * ALONG),
    (chosen, 1, 2 * (ALONG - DOWN)),
    (joined, 0, np.concatenate([ALONG, DOWN])),
]


@pytest.mark.parametrize(("kernel", "n", "wanted"), CASES, ids=[f"{k.__name__}-{n}" for k, n, _ in CASES])
def test_a_column_is_turned_where_it_meets_rows(kernel: Any, n: int, wanted: np.ndarray) -> None:
    _, (_, found, _) = emulated(kernel, X, np.zeros_like(wanted), n)
    np.testing.assert_array_equal(found, wanted)
