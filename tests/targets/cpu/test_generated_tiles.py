# SPDX-License-Identifier: MIT
"""Variables that start as generated tiles: what fits them is decided by what they hold when the program runs."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

X = np.random.default_rng(5).uniform(-1, 1, (8, 37)).astype(np.float32)


@pto.jit
def summed(x):
    with pl.incore():
        acc = pl.zeros([8, 16], pl.f32)
        for j in range(0, x.shape[1], 16):
            acc += pl.load(x, [0, j], [8, 16])
    return acc


@pto.jit
def multiplied(x, w):
    with pl.incore():
        acc = pl.zeros([8, 16], pl.f32)
        for k in range(0, x.shape[1], 8):
            acc += pl.dot(pl.load(x, [0, k], [8, 8]), pl.load(w, [k, 0], [8, 16]))
    return acc


@pto.jit
def chosen(x, n):
    with pl.incore():
        acc = pl.full([8, 16], 2.0, pl.f32)
        other = acc * 2
        if n > 0:
            acc = pl.load(x, [0, 32], [8, 16])
        total = pl.load(x, [0, 0], [8, 16]) + acc
        narrow = pl.load(x, [0, 32], [8, 16]) + other
    return total, narrow


@pytest.mark.parametrize("columns", [5, 16, 32])
def test_an_accumulator_takes_the_extents_of_what_is_added(columns: int) -> None:
    x = np.ascontiguousarray(X[:, :columns])
    expected = sum(x[:, j : j + 16] for j in range(0, columns, 16))
    np.testing.assert_allclose(summed(x), expected, rtol=1e-6)


def test_a_narrower_last_tile_does_not_fit_a_wider_accumulator() -> None:
    with pytest.raises(pto.LaunchError, match="axis 1: 5 and 16") as caught:
        summed(X)
    assert "pad=value" in str(caught.value)


@pytest.mark.parametrize(("rows", "columns"), [(8, 16), (3, 16), (8, 7), (2, 3)])
def test_products_accumulate_at_the_border(rows: int, columns: int) -> None:
    x, w = np.ascontiguousarray(X[:rows]), X.T[:, :columns] if columns <= 8 else np.tile(X.T, 2)[:, :columns]
    w = np.ascontiguousarray(w)
    np.testing.assert_allclose(multiplied(x, w), x @ w, rtol=1e-4, atol=1e-5)


def test_a_branch_decides_whether_a_variable_is_a_generated_tile() -> None:
    total, narrow = chosen(X, 0)
    np.testing.assert_allclose(total, X[:, :16] + 2)
    np.testing.assert_allclose(narrow, X[:, 32:] + 4)
    with pytest.raises(pto.LaunchError, match="axis 1: 16 and 5"):
        chosen(X, 1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_a_generated_tile_keeps_its_extents_beside_narrower_ones(rows: int, dtype: str) -> None:
    @pto.jit
    def kernel(x: pl.Tensor, a: pl.Tensor, b: pl.Tensor, c: pl.Tensor, n: pl.i64):
        with pl.incore():
            part = pl.load(x, [0, 0], [16, 3])
            made = pl.rand(7, n, [16, 3]).to(x.dtype) + 1.0
            if n > 100:
                made = made * 2.0
            other = -made
            both = part + other
            pl.store(pl.maximum(other, made), [0, 0], a)
            pl.store(both, [0, 0], b)
            pl.store(other, [0, 0], c)

    x = np.ones((rows, 3), dtype)
    compiled, reference = ([np.zeros((24, 3), dtype) for _ in range(3)] for _ in range(2))
    kernel(x, *compiled, 5)
    kernel.interpret(x, *reference, 5)
    for got, wanted in zip(compiled, reference, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert [np.count_nonzero(t.any(axis=1)) for t in compiled] == [16, rows, 16]
