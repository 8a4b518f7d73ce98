# SPDX-License-Identifier: MIT
"""Reductions along leading axes whose rows are longer than what the first cache holds."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def columns(x, sums, most):
    t = x[:, :]
    sums[:] = pl.sum(t, axis=0)
    most[:] = pl.max(t * 2, axis=0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("shape", [(1, 5000), (3, 4096), (5, 40001), (60, 9001)])
def test_long_rows_are_taken_in_blocks_of_columns(dtype: str, shape: tuple[int, int]) -> None:
    x = (np.random.default_rng(1).standard_normal(shape) * 9).astype(dtype)
    for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
        sums = np.zeros(shape[1], dtype if dtype.startswith("float") else np.int64)
        most = np.zeros(shape[1], dtype)
        columns(given, sums, most)
        np.testing.assert_allclose(sums, x.sum(axis=0), rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(most, (x * np.dtype(dtype).type(2)).max(axis=0))


def test_blocks_of_columns_of_several_planes_and_what_rows_broadcast() -> None:
    @pto.jit
    def kernel(x, y, out):
        out[:, :] = pl.sum(x[:, :, :] * y[:], axis=1)

    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((2, 3, 9001)).astype(np.float32), rng.standard_normal(9001).astype(np.float32)
    out = np.zeros((2, 9001), np.float32)
    kernel(x, y, out)
    np.testing.assert_allclose(out, (x * y).sum(axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cpu", "c"])
@pytest.mark.parametrize("shape", [(7, 5), (1, 9), (9, 1), (600, 301)])
def test_rows_combined_in_another_way_than_their_elements(shape: tuple[int, int], target: str) -> None:
    """The sum of the largest of each row: the nest is not one long row."""

    @pto.jit(target=target)
    def kernel(x, y):
        t = x[:, :]
        y[0] = pl.sum(pl.max(t, axis=1))
        y[1] = pl.max(pl.sum(t, axis=1))
        y[2] = pl.min(pl.max(t, axis=1))
        y[3] = pl.mean(pl.min(t, axis=1))
        y[4] = pl.sum(pl.sum(t, axis=1))
        y[5] = pl.sum(pl.prod(t, axis=1))

    x = np.random.default_rng(3).integers(-1, 2, shape).astype(np.float64)
    y = np.zeros(6)
    kernel(x, y)
    most, least = x.max(axis=1), x.min(axis=1)
    wanted = [most.sum(), x.sum(axis=1).max(), most.min(), least.mean(), x.sum(), x.prod(axis=1).sum()]
    np.testing.assert_allclose(y, wanted, rtol=1e-14)
