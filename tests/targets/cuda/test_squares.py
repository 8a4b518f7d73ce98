# SPDX-License-Identifier: MIT
"""Tensors whose neighbours in memory lie along different axes: blocks take squares of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(23)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# -- tensors that were transposed before they were given ----------------------------------------------------------------


@pto.jit
def scaled_sum(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    out[...] = x * 2.0 + y


def squares(fn: Any, *args: Any) -> bool:
    """Whether what is computed of whole tensors is divided into squares."""
    return fn.compile(*args, target="cuda").ir("divided").count("64:idx {kind=parallel}") == 2


TURNED = [
    ((70, 65), floats(65, 70).T, floats(70, 65)),
    ((70, 65), floats(70, 65), floats(65, 70).T),
    ((3, 65, 70), floats(3, 70, 65).transpose(0, 2, 1), floats(3, 65, 70)),
    ((5, 65, 7), floats(65, 7, 5).transpose(2, 0, 1), floats(5, 65, 7)),
]


@pytest.mark.parametrize(("shape", "y", "out"), TURNED)
def test_transposed_tensors_are_divided_into_squares(shape: tuple[int, ...], y: np.ndarray, out: np.ndarray) -> None:
    x = floats(*shape)
    assert squares(scaled_sum, x, y, out)
    _, (_, _, found) = emulated(scaled_sum, x, y, out)
    np.testing.assert_array_equal(found, x * 2.0 + y)


def test_rows_of_which_every_other_element_is_read_stay_rows() -> None:
    @pto.jit
    def halves(x: pl.Tensor, y: pl.Tensor):
        y[...] = x[:, ::2] - x[:, 1::2]

    x, y = floats(40, 130), floats(40, 65)
    assert not squares(halves, x, y)
    _, (_, found) = emulated(halves, x, y)
    np.testing.assert_array_equal(found, x[:, ::2] - x[:, 1::2])


def test_transposed_rows_that_are_reduced_stay_whole() -> None:
    @pto.jit
    def normalised(x: pl.Tensor, y: pl.Tensor):
        y[...] = x / pl.sum(pl.abs(x), axis=1, keepdims=True)

    x, y = floats(90, 70).T, floats(70, 90)
    assert not squares(normalised, x, y)
    _, (_, found) = emulated(normalised, x, y)
    np.testing.assert_allclose(found, x / np.abs(x).sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)
