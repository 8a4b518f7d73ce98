# SPDX-License-Identifier: MIT
"""The largest elements of rows: every way of selecting them gives those of a stable sort, NaN before all."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def _largest(x: pl.Tensor, values: pl.Tensor, places: pl.Tensor, k: pl.constexpr) -> None:
    for r in pl.range(x.shape[0], parallel=True):
        v, i = pl.topk(x[r, :], k)
        values[r, :] = v
        places[r, :] = i


def _order(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "f":
        return np.argsort(~x, axis=1, kind="stable")
    nan = np.isnan(x)
    return np.lexsort((np.where(nan, 0, -x), ~nan), axis=1)


def _rows(rng: np.random.Generator, dtype: str, n: int) -> np.ndarray:
    """Spread, equal, few different, rising, and falling elements, with the extremes of the dtype among them."""
    spread = rng.standard_normal((3, n)) * 50
    rows = [spread[0], np.zeros(n), rng.integers(0, 3, n), np.sort(spread[1]), -np.sort(spread[2])]
    x = np.stack([row.astype(np.int64).astype(dtype) for row in rows])
    some = rng.random(x.shape) < 0.05
    if x.dtype.kind == "f":
        x[some] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], dtype), some.sum())
    elif x.dtype.kind in "iu":
        x[some] = rng.choice(np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype), some.sum())
    return x


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "uint32", "int8", "int64"])
@pytest.mark.parametrize("k", [1, 5, 32, 64, 65, 200])
def test_the_largest_are_those_of_a_stable_sort(dtype: str, k: int) -> None:
    rng, largest = np.random.default_rng(k), pto.jit(_largest)
    for n in sorted({k, k + 1, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 500, 3000}):
        if n < k:
            continue
        x = _rows(rng, dtype, n)
        for rows in (x, np.asfortranarray(x)):
            values, places = np.zeros((5, k), dtype), np.zeros((5, k), np.int32)
            largest(rows, values, places, k)
            np.testing.assert_array_equal(places, _order(x)[:, :k])
            np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))


def test_of_incomplete_rows_there_are_as_many_as_they_have() -> None:
    @pto.jit
    def kernel(x: pl.Tensor, values: pl.Tensor):
        t = pl.load(x, [0], [64])
        pl.store(pl.topk(t, 32)[0], [0], values)

    for n in (1, 5, 20, 40):
        x, values = np.arange(n, dtype=np.float32), np.full(32, -1, np.float32)
        kernel(x, values)
        np.testing.assert_array_equal(values, [*x[::-1][:32], *[-1] * (32 - n)])
