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


# -- loops over elements that exchange two axes -------------------------------------------------------------------------


@pto.jit
def transposed(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[j, i] = x[i, j]


@pto.jit
def heads_first(x: pl.Tensor, y: pl.Tensor, s: pl.f32):
    """[tokens, heads, d] as [heads, d, tokens]."""
    tokens, heads, d = x.shape
    for t in pl.range(tokens, parallel=True):
        for h in pl.range(heads, parallel=True):
            for k in pl.range(d, parallel=True):
                y[h, k, t] = pl.cast(pl.cast(x[t, h, k], pl.f32) * s, pl.f16)


@pto.jit
def channels_first(x: pl.Tensor, shift: pl.Tensor, y: pl.Tensor):
    images, rows, columns, channels = x.shape
    with pl.incore():
        for n in range(images):
            for i in range(rows):
                for j in range(columns):
                    for k in range(channels):
                        y[n, k, i, j] = x[n, i, j, k] + shift[k]


@pto.jit
def added(x: pl.Tensor, y: pl.Tensor, r: pl.Tensor, c: pl.Tensor, keep: pl.Tensor):
    n, m = x.shape
    with pl.incore():
        for i in range(1, n - 1):
            for j in range(2, m):
                v = x[i + 1, j - 2] * r[i] + c[j]
                y[j, i] += v if keep[i, j] else -v


@pto.jit
def through_a_view(x: pl.Tensor, y: pl.Tensor):
    t = x.T
    with pl.incore():
        for i in range(x.shape[1]):
            for j in range(x.shape[0]):
                y[i, j] = t[i, j] * 2.0


def numbers(most: int, *shape: int, dtype: Any) -> np.ndarray:
    return RNG.integers(0, most, shape).astype(dtype)


HALVES = floats(70, 3, 66).astype(np.float16)
EXCHANGES: list[tuple[Any, tuple[Any, ...]]] = [
    (transposed, (floats(130, 70), floats(70, 130))),
    (transposed, (floats(33, 200), floats(200, 33))),
    (transposed, (floats(5, 70), floats(70, 5))),  # where threads go over elements
    (transposed, (floats(0, 70), floats(70, 0))),
    (transposed, (numbers(99, 130, 70, dtype=np.int8), numbers(99, 70, 130, dtype=np.int8))),
    (transposed, (numbers(99, 40, 70, dtype=np.int64), numbers(99, 70, 40, dtype=np.int64))),
    (transposed, (numbers(2, 40, 70, dtype=bool), numbers(2, 70, 40, dtype=bool))),
    (heads_first, (HALVES, np.zeros((3, 66, 70), np.float16), np.float32(1.5))),
    (channels_first, (floats(2, 5, 35, 40), floats(40), floats(2, 40, 5, 35))),
    (added, (floats(70, 81), floats(81, 70), floats(70), floats(81), numbers(2, 70, 81, dtype=bool))),
    (through_a_view, (floats(70, 81), floats(81, 70))),
]


@pytest.mark.parametrize(("kernel", "args"), EXCHANGES, ids=[f"{k.__name__}-{a[0].shape}" for k, a in EXCHANGES])
def test_loops_that_exchange_axes_are_on_squares(kernel: Any, args: tuple[Any, ...]) -> None:
    text = kernel.compile(*args, target="cuda").ir("kernels")
    assert "ttranspose" in text and "tload" in text and "IF" in text  # where the loops are long
    _, found = emulated(kernel, *args)
    expected = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel.interpret(*expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_squares_of_known_extents_are_chosen_when_the_program_is_compiled() -> None:
    long, short = pto.spec((64, 40), pl.f32), pto.spec((64, 31), pl.f32)
    for x, out, square in ((long, pto.spec((40, 64), pl.f32), True), (short, pto.spec((31, 64), pl.f32), False)):
        text = transposed.compile(x, out, target="cuda").ir("kernels")
        assert ("ttranspose" in text) == square and ("getelem" in text) != square


@pto.jit
def along_both(x: pl.Tensor, y: pl.Tensor):
    """Nothing is exchanged."""
    with pl.incore():
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] + 1.0


@pto.jit
def where_memory_says(x: pl.Tensor, at: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            for j in pl.range(x.shape[1], parallel=True):
                y[j, at[i]] = x[i, j]


@pto.jit
def with_its_place(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[j, i] = x[i, j] + pl.cast(i, pl.f32)


@pto.jit
def read_again(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    with pl.incore():
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[j, i] = x[i, j]
                z[i, j] = y[j, i] * 2.0


ELEMENTS: list[tuple[Any, tuple[Any, ...]]] = [
    (along_both, (floats(40, 50), floats(40, 50))),
    (where_memory_says, (floats(40, 50), RNG.permutation(40), floats(50, 40))),
    (with_its_place, (floats(40, 50), floats(50, 40))),
    (read_again, (floats(40, 50), floats(50, 40), floats(40, 50))),
]


@pytest.mark.parametrize(("kernel", "args"), ELEMENTS, ids=[k.__name__ for k, _ in ELEMENTS])
def test_other_loops_stay_loops_over_elements(kernel: Any, args: tuple[Any, ...]) -> None:
    assert "ttranspose" not in kernel.compile(*args, target="cuda").ir("kernels")
    _, found = emulated(kernel, *args)
    expected = [a.copy() for a in args]
    kernel.interpret(*expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
