# SPDX-License-Identifier: MIT
"""Loads in the middle of a group: they join it with the operation that says how their axes line up."""

from __future__ import annotations

import numpy as np
import pytest

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


@pto.jit(cache=False)
def joined(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor, out: pl.Tensor):
    """The product has axes of its own until the last sum."""
    rows, cols = x.shape
    a = pl.load(x, [0, 0], [rows, cols]) + pl.load(y, [0, 0], [rows, cols])
    pl.store(a + 2 * pl.load(z, [0, 0], [rows, cols]), [0, 0], out)


@pto.jit(cache=False)
def never_joined(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    rows, cols = x.shape
    a = pl.load(x, [0, 0], [rows, cols]) * 2
    b = pl.load(w, [0], [cols]) + 1
    c = pl.load(w, [0], [cols]) - 1
    pl.store(a + 1, [0, 0], y)
    pl.store(b * c, [0], z)


@pto.jit(cache=False)
def costly(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor):
    """The exponentials of a row are the same for all rows."""
    rows, cols = x.shape
    a = pl.load(x, [0, 0], [rows, cols]) + pl.load(x, [0, 0], [rows, cols])
    pl.store(a * pl.exp(pl.load(w, [0], [cols])), [0, 0], y)


def test_tiles_meet_after_both_were_computed() -> None:
    y = np.empty_like(X)
    assert groups(joined, X, X, X, y) == 1
    joined(X, X * 3, X * 5, y)
    np.testing.assert_allclose(y, X * 14, rtol=1e-6)
    joined.compile(X, X, X, y, target="c")(X, X * 3, X * 5, y)
    np.testing.assert_allclose(y, X * 14, rtol=1e-6)


def test_tiles_of_different_extents_are_refused_in_a_group() -> None:
    with pytest.raises(pto.LaunchError):
        joined(X, X, X[:, :20].copy(), np.empty_like(X))


def test_tiles_that_never_meet_stay_apart() -> None:
    y, z = np.empty_like(X), np.empty_like(W)
    never_joined(X, W, y, z)
    np.testing.assert_allclose(y, X * 2 + 1, rtol=1e-6)
    np.testing.assert_allclose(z, (W + 1) * (W - 1), rtol=1e-6)


def test_what_is_costly_is_not_computed_again_in_each_row() -> None:
    y = np.empty_like(X)
    text = costly.compile(X, W, y).ir("fused")
    assert groups(costly, X, W, y) == 2  # and nothing but the exponentials is kept
    assert "texp" in text.split("FUSE")[1] and "tstore" not in text.split("ENDFUSE")[0]
    costly(X, W, y)
    np.testing.assert_allclose(y, 2 * X * np.exp(W), rtol=1e-5)


@pto.jit(cache=False)
def stencil(x: pl.Tensor, y: pl.Tensor):
    """Slices are made between the sums: all of it is one loop, in which only the halo is read twice."""
    n, m = x.shape
    for i in pl.range(1, n - 1, 4):
        with pl.incore():
            k = min(4, n - 1 - i)
            c = x[i : i + k, 1 : m - 1]
            d = x[i - 1 : i - 1 + k, 1 : m - 1] + x[i + 1 : i + 1 + k, 1 : m - 1] + x[i : i + k, 0 : m - 2]
            pl.store(c + 0.5 * (d + x[i : i + k, 2:m] - 4.0 * c), y[i : i + k, 1 : m - 1])


def test_slices_do_not_end_a_group() -> None:
    y = np.zeros((21, 33), np.float32)
    x = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    assert groups(stencil, x, y) == 1
    stencil(x, y)
    c = x[1:-1, 1:-1]
    want = c + 0.5 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * c)
    np.testing.assert_allclose(y[1:-1, 1:-1], want, rtol=1e-5, atol=1e-5)
    assert not y[0].any() and not y[:, -1].any()


def test_a_stencil_in_place_is_that_of_its_order() -> None:
    """Rows of a block are read before any of them is written, those of the block before as they were left."""
    x = np.random.default_rng(3).standard_normal((21, 33)).astype(np.float32)
    want = x.copy()
    for i in range(1, 20, 4):
        k = min(4, 20 - i)
        c, d = want[i : i + k, 1:-1], want[i - 1 : i - 1 + k, 1:-1] + want[i + 1 : i + 1 + k, 1:-1]
        want[i : i + k, 1:-1] = c + 0.5 * (d + want[i : i + k, :-2] + want[i : i + k, 2:] - 4 * c)
    stencil(x, x)
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-5)


@pto.jit(cache=False)
def norm_of_slices(x, y):
    """Every use of a slice loads it: one tile all the same.  The slice that is stored to is made after the mean."""
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        t = x[r : r + 16]
        d = t - pl.mean(t, axis=1, keepdims=True)
        y[r : r + 16] = d / pl.sqrt(pl.mean(d * d, axis=1, keepdims=True) + 1e-5)


@pto.jit(cache=False)
def moved(x, y, n):
    """The same places after the tensor was written, and other places with the same names, are not loaded yet."""
    r = 0
    for _ in range(n):
        a = pl.load(x, [r, 0], [2, x.shape[1]])
        r = r + 1
        b = pl.load(x, [r, 0], [2, x.shape[1]])
        y[...] = a * pl.sum(b, axis=1, keepdims=True)
        x[0:2] = y + 1.0
        c = pl.load(x, [0, 0], [2, x.shape[1]])
        y[...] = c * 2.0 + pl.load(x, [0, 0], [2, x.shape[1]])


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_a_norm_of_slices_is_one_nest(target: str) -> None:
    x = np.random.default_rng(5).standard_normal((37, 29)).astype(np.float32)
    y = np.empty_like(x)
    assert groups(norm_of_slices, x, y) == 1
    norm_of_slices.compile(x, y, target=target)(x, y)
    d = x - x.mean(1, keepdims=True)
    np.testing.assert_allclose(y, d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "c"])
def test_only_loads_of_the_same_elements_are_one(target: str) -> None:
    x = np.random.default_rng(6).standard_normal((7, 5)).astype(np.float32)
    y = np.zeros((2, 5), np.float32)
    want = x.copy(), y.copy()
    moved.interpret(*want, 3)
    moved.compile(x, y, 3, target=target)(x, y, 3)
    np.testing.assert_allclose(x, want[0], rtol=1e-4)
    np.testing.assert_allclose(y, want[1], rtol=1e-4)
