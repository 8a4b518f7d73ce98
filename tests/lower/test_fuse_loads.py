# SPDX-License-Identifier: MIT
"""Loads in the middle of a group: they join it with the operation that says how their axes line up."""

from __future__ import annotations

import numpy as np

import pto_jit as pto
import pto_jit.language as pl

X = np.random.default_rng(0).standard_normal((5, 33), np.float32)
W = np.random.default_rng(1).standard_normal(33).astype(np.float32)


def groups(kernel, *args) -> int:
    return kernel.compile(*args).ir("fused").count("ENDFUSE")


@pto.jit(cache=False)
def scaled(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor):
    rows, cols = x.shape
    for r in pl.range(rows):
        t = pl.load(x, [r, 0], [1, cols])
        t = t - pl.max(t, axis=1, keepdims=True)
        pl.store(t * pl.load(w, [0], [cols]), [r, 0], y)


@pto.jit(cache=False)
def late(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    """The second load is used only after something that cannot be in the group."""
    rows, cols = x.shape
    t = pl.load(x, [0, 0], [rows, cols])
    v = pl.load(w, [0], [cols])
    pl.store(t * 2, [0, 0], y)
    pl.store(pl.sort(v), [0], z)


def test_a_load_in_the_middle_does_not_end_a_group() -> None:
    y = np.empty_like(X)
    assert groups(scaled, X, W, y) == 1
    scaled(X, W, y)
    np.testing.assert_allclose(y, (X - X.max(1, keepdims=True)) * W, rtol=1e-6)


def test_a_load_that_the_group_does_not_use_stays_outside() -> None:
    y, z = np.empty_like(X), np.empty_like(W)
    text = late.compile(X, W, y, z).ir("fused")
    assert "tload %w" not in text.split("FUSE")[1]
    late(X, W, y, z)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(z, np.sort(W))


@pto.jit(cache=False)
def columns(x: pl.Tensor, a: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    """Sums over rows of tiles with fewer axes than others of the group would have."""
    t = pl.load(x, [0, 0], [5, 33])
    p = pl.load(a, [0, 0, 0], [3, 5, 33]) * t
    pl.store(p, [0, 0, 0], z)
    pl.store(pl.sum(t, axis=0, keepdims=True), [0, 0], y)
    y[1, 0] = pl.sum(t)
    pl.store(pl.max(pl.sum(p, axis=0), axis=0, keepdims=True), [2, 0], y)


def test_a_sum_over_rows_does_not_count_them_again_for_each_of_another_axis() -> None:
    x, a = np.round(X * 8), np.round(np.random.default_rng(2).standard_normal((3, 5, 33)).astype(np.float32) * 8)
    y, z = np.zeros((3, 33), np.float32), np.zeros_like(a)
    columns(x, a, y, z)
    np.testing.assert_array_equal(z, a * x)
    np.testing.assert_array_equal(y[0], x.sum(0))
    assert y[1, 0] == x.sum()
    np.testing.assert_array_equal(y[2], z.sum(0).max(0))
