# SPDX-License-Identifier: MIT
"""What an in-core function returns is a tensor for the next one: loads and slices take it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.incore
def doubled(x):
    return pl.load(x) * 2


@pto.incore
def whole(x, y):
    y[...] = pl.load(x) + 1


@pto.incore
def rows(x, y, r):
    pl.store(pl.load(x, [r, 0], [2, 4]) + 10, [r, 0], y)


@pto.incore
def part(x, y):
    y[0:2, :] = x[1:3, :] * 3


@pto.jit
def in_one_piece(x, y):
    t = doubled(x)
    whole(t, y)


@pto.jit
def by_rows(x, y):
    t = doubled(x)
    for r in range(0, x.shape[0], 2):
        rows(t, y, r)


@pto.jit
def of_a_part(x, y):
    t = doubled(x)
    part(t, y)


X = np.arange(20, dtype=np.float32).reshape(5, 4)


@pytest.mark.parametrize(("kernel", "expected"), [
    (in_one_piece, 2 * X + 1),
    (by_rows, 2 * X + 10),
    (of_a_part, np.concatenate([6 * X[1:3], np.zeros((3, 4), np.float32)])),
])  # fmt: skip
def test_loads(kernel: Any, expected: np.ndarray) -> None:
    for run in (kernel, kernel.interpret):
        y = np.zeros_like(X)
        run(X, y)
        np.testing.assert_array_equal(y, expected)


def test_a_tile_is_no_place_to_store_to_and_has_nothing_around_it() -> None:
    @pto.jit
    def stored(x):
        t = doubled(x)
        pl.store(pl.load(x), [0, 0], t)

    @pto.jit
    def padded(x):
        return pl.load(doubled(x), [4, 0], [2, 4], pad=0)

    for kernel in (stored, padded):
        with pytest.raises(pto.TypeMismatchError, match="PTO-T031"):
            kernel(X)
