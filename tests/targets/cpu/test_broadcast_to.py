# SPDX-License-Identifier: MIT
"""Values that `broadcast_to` repeats, met by what looks at every element: reductions, stores, other tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

A = np.random.default_rng(3).uniform(-1, 1, (4, 2, 1))
SHAPE = (4, 2, 5)
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "argmax": np.argmax,
}  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_over_a_repeated_value(name: str, axis: int) -> None:
    reduce = getattr(pl, name)

    @pto.jit
    def kernel(a):
        t = pl.tanh(pl.broadcast_to(pl.load(a, [0, 0, 0], [4, 2, 1]), SHAPE))
        return reduce(t, axis=axis), reduce(pl.broadcast_to(pl.load(a, [0, 0, 0], [1, 1, 1]), SHAPE), axis=axis)

    wide = np.broadcast_to(np.tanh(A), SHAPE)
    one = np.broadcast_to(A[:1, :1], SHAPE)
    for got, want in zip(kernel(A), (REDUCTIONS[name](wide, axis=axis), REDUCTIONS[name](one, axis=axis)), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_a_sum_over_several_axes_of_a_repeated_value(axes: tuple[int, ...]) -> None:
    @pto.jit
    def kernel(a, extent):
        t = pl.broadcast_to(pl.load(a, [0, 0, 0], [4, 2, 1]), [4, 2, extent])
        return pl.sum(t * 2, axis=axes, keepdims=True), pl.sum(t, axis=0) - pl.sum(t, axis=(1, 2))[0]

    wide = np.broadcast_to(A, SHAPE)
    total, difference = kernel(A, 5)
    np.testing.assert_allclose(total, np.sum(wide * 2, axis=axes, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(difference, wide.sum(axis=0) - wide[0].sum(), rtol=1e-12)


def test_an_extent_known_when_run_is_not_repeated_but_compared() -> None:
    @pto.jit
    def kernel(a, extent):
        return pl.sum(pl.broadcast_to(pl.load(a), [4, 2, extent]), axis=-1)

    np.testing.assert_allclose(kernel(A, 1), A[..., 0])
    with pytest.raises(pto.LaunchError, match="axis 2: 1 and 5") as caught:
        kernel(A, 5)
    assert "PTO-H202" in str(caught.value) and "constant 1" in str(caught.value)


@pto.jit
def product_and_bias(h, w, b):
    y = h @ w
    return y + b


def test_the_sum_that_a_product_takes_in_is_named_when_its_extents_differ() -> None:
    h, w = np.ones((4, 8), np.float32), np.ones((8, 6), np.float32)
    with pytest.raises(pto.LaunchError, match=r"PTO-H202[^|]*\n[^|]*\|\n.*return y \+ b"):
        product_and_bias(h, w, np.ones((1, 6), np.float32))
    with pytest.raises(pto.PtoError, match=r"\|\n.*y = h @ w"):
        product_and_bias(h, np.ones((7, 6), np.float32), np.ones((4, 6), np.float32))
