# SPDX-License-Identifier: MIT
"""Arguments that share memory, in every way: the result is that of the program in its order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def whole(x: pl.Tensor, y: pl.Tensor):
    y[...] = pl.load(x) * 2 + 1


@pto.jit
def in_tiles(x: pl.Tensor, y: pl.Tensor):
    for r in pl.range(0, x.shape[0], 3):
        pl.store(pl.load(x, [r], [3]) * 2 + 1, [r], y)


@pto.jit
def by_element(x: pl.Tensor, y: pl.Tensor):
    for r in range(x.shape[0]):
        y[r] = x[r] * 2 + 1


@pto.jit
def twice(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    t = pl.load(x)
    y[...] = t + 1
    u = pl.load(x)
    z[...] = t + u


def expected(x: np.ndarray, y: np.ndarray, step: int) -> None:
    """What `whole`, `in_tiles` and `by_element` do, in pieces of `step` elements."""
    for r in range(0, x.shape[0], step):
        y[r : r + step] = x[r : r + step].copy() * 2 + 1


@pytest.mark.parametrize(("kernel", "step"), [(whole, 99), (in_tiles, 3), (by_element, 1)])
def test_vectors_overlap_at_every_distance_in_every_direction(kernel: Callable[..., None], step: int) -> None:
    views = [slice(low, low + 17) for low in (0, 1, 2, 5, 16, 17)]
    views += [slice(20, 3, -1), slice(0, 34, 2), slice(34, 0, -2)]
    for one, other in itertools.product(views, views):
        memory = np.arange(40, dtype=np.float64)
        wanted = memory.copy()
        kernel(memory[one], memory[other])
        expected(wanted[one], wanted[other], step)
        np.testing.assert_array_equal(memory, wanted, err_msg=f"{one} {other}")


@pytest.mark.parametrize(
    "views",
    [
        lambda m: (m, m), lambda m: (m, m.T), lambda m: (m.T, m), lambda m: (m[::-1], m), lambda m: (m, m[:, ::-1]),
        lambda m: (m[1:], m[:-1]), lambda m: (m[:, :-1], m[:, 1:]), lambda m: (m[1:, 1:], m[:-1, :-1]),
        lambda m: (m[::2], m[1::2]), lambda m: (m[:5, :5], m[::2, ::2]), lambda m: (m[3], m[:, 4]),
    ],
)  # fmt: skip
def test_matrices_overlap(views: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> None:
    memory = np.arange(100, dtype=np.float32).reshape(10, 10)
    wanted = memory.copy()
    whole(*views(memory))
    x, y = views(wanted)
    y[...] = x.copy() * 2 + 1
    np.testing.assert_array_equal(memory, wanted)


def test_a_tile_holds_what_memory_held_when_it_was_loaded() -> None:
    for a, b, c in itertools.product(range(3), repeat=3):
        memory = np.arange(12, dtype=np.int32)
        wanted = memory.copy()
        twice(memory[a : a + 9], memory[b : b + 9], memory[c : c + 9])
        x = wanted[a : a + 9]
        t = x.copy()
        wanted[b : b + 9] = t + 1
        wanted[c : c + 9] = t + x
        np.testing.assert_array_equal(memory, wanted, err_msg=f"{a} {b} {c}")


@pto.jit
def rows_before(x):
    """What an iteration reads was written by the one before it."""
    v = pl.reshape(x, (x.shape[0] * x.shape[1],))
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] = v[(i - 1) * x.shape[1] + j] + 1.0


@pto.jit
def columns_before(x):
    v = pl.reshape(x, (32,))
    for i in range(1, 8):
        x[i, 0] = v[i * 4 - 4] + 1.0


@pto.jit
def halves(x):
    v = pl.reshape(x, (4, 8))
    for i in range(4):
        for j in range(4):
            v[i, j] = x[i, j] * 0.5 + 1.0


@pto.jit
def backwards(x):
    v = pl.reshape(x, (32,))
    for i in range(8):
        for j in range(4):
            v[31 - (i * 4 + j)] = x[i, j] * 0.5 + 1.0


@pto.jit
def beside(x):
    v = pl.reshape(x, (16, 2))
    for i in pl.range(8, parallel=True):
        x[i, 0] = v[i * 2, 1] + 1.0


@pytest.mark.parametrize("kernel", [rows_before, columns_before, halves, backwards, beside])
def test_elements_are_the_same_in_views_of_other_shapes(kernel: Any) -> None:
    given = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    compiled, interpreted = given.copy(), given.copy()
    kernel(compiled)
    kernel.interpret(interpreted)
    np.testing.assert_allclose(compiled, interpreted, rtol=1e-6)


def test_a_promise_that_a_view_of_another_shape_breaks_is_refused_or_found() -> None:
    @pto.jit(debug=True)
    def promised(x):
        v = pl.reshape(x, (16, 2))
        for i in pl.range(7, parallel=True):
            x[i, 0] = v[i * 2 + 2, 0] + 1.0

    for run in (promised, promised.interpret):
        with pytest.raises((pto.RaceError, pto.ScheduleError)):
            run(np.zeros((8, 4), np.float32))
