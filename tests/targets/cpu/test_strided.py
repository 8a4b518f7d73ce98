# SPDX-License-Identifier: MIT
"""Rows whose elements lie a few elements apart, and tiles stacked along a new last axis."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

DTYPES = ["float32", "float64", "float16", "int8", "int16", "bool"]
LENGTHS = [1, 2, 15, 16, 17, 33, 64, 65, 200]


def _row(n: int, dtype: str) -> np.ndarray:
    return (np.random.default_rng(n).standard_normal(n) * 5).astype(dtype)


@pto.jit
def stacked(a, b, pairs, fours):
    x, y = pl.load(a), pl.load(b)
    pl.store(pl.stack((x, y), axis=-1), pairs)
    pl.store(pl.stack((x, y, y, x), axis=-1), fours)


@pto.jit
def apart(a, b, out):
    triples = pl.reshape(out, [a.shape[0], 3])
    triples[:, 0] = a[:]
    triples[:, 2] = b[:]


@pto.jit
def together(x, out):
    pairs = pl.reshape(x, [out.shape[0], 2])
    out[:] = pairs[:, 1]
    return pl.max(pairs[:, 0]), pl.argmin(pairs[:, 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_stacked_rows_of_any_length_are_interleaved(dtype: str) -> None:
    for n in LENGTHS:
        a, b = _row(n, dtype), _row(n + 1, dtype)[1:]
        pairs, fours = np.zeros((n, 2), dtype), np.zeros((n, 4), dtype)
        stacked(a, b, pairs, fours)
        np.testing.assert_array_equal(pairs, np.stack((a, b), -1))
        np.testing.assert_array_equal(fours, np.stack((a, b, b, a), -1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_apart_are_read_and_written_and_nothing_between_or_behind_them(dtype: str) -> None:
    for n in LENGTHS:
        a, b = _row(n, dtype), _row(n + 1, dtype)[1:]
        out = np.ones(3 * n + 5, dtype)
        apart(a, b, out[: 3 * n])
        np.testing.assert_array_equal(out[: 3 * n].reshape(n, 3), np.stack((a, np.ones(n, dtype), b), -1))
        assert (out[3 * n :] == 1).all()
        x, second = np.stack((a, b), -1).reshape(-1), np.empty(n, dtype)
        assert together(x, second) == (a.max(), b.argmin())
        np.testing.assert_array_equal(second, b)
