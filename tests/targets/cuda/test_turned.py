# SPDX-License-Identifier: MIT
"""Products of transposed tensors: operands come to shared memory as they lie in global memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import emulated, needs_compiler
from .simulation import SimulatedDevice, needs_simulation, simulate
from .test_traffic import BRAIN, counted, floats

RNG = np.random.default_rng(23)
HALF = np.float16


@pto.jit
def by_transposed(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """As a layer of a network multiplies by its weights."""
    c[...] = pl.cast(pl.dot(a, b.T), c.dtype)


@pto.jit
def transposed_by(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    c[...] = pl.cast(pl.dot(a.T, b), c.dtype)


@pto.jit
def both_transposed(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    c[...] = pl.cast(pl.dot(a.T, b.T), c.dtype)


@pto.jit
def by_itself(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    c[: a.shape[0], : a.shape[0]] = pl.cast(pl.dot(a, a.T), c.dtype)


@pto.jit
def by_part(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """A view of a transposed view."""
    c[:, 1:] = pl.cast(pl.dot(a, b[1:, :].T), c.dtype)


@pto.jit
def in_tiles(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    turned = b.T
    with pl.incore():
        for i in pl.range(0, a.shape[0], 32, chunk=1):
            for j in pl.range(0, b.shape[0], 32, chunk=1):
                acc = pl.zeros([32, 32], pl.f32)
                for k in pl.range(0, a.shape[1], 64):
                    acc = pl.dot(pl.load(a, [i, k], [32, 64]), pl.load(turned, [k, j], [64, 32]), acc)
                pl.store(pl.cast(acc, c.dtype), [i, j], c)


CASES: dict[Any, Callable[[Any, Any, Any], Any]] = {
    by_transposed: lambda a, b, c: a @ b.T,
    transposed_by: lambda a, b, c: a @ b.T,
    both_transposed: lambda a, b, c: a @ b.T,
    by_itself: lambda a, b, c: a @ a.T,
    by_part: lambda a, b, c: a @ b[1:].T,
    in_tiles: lambda a, b, c: a @ b.T,
}


def given(fn: Any, m: int, n: int, k: int, dtype: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """Arguments of a product of `m x k` by `k x n`, and what it is."""
    a, b = (RNG.standard_normal(shape).astype(np.float32).astype(dtype) for shape in ((m, k), (n, k)))
    c = np.zeros((m, max(m, n)) if fn is by_itself else (m, n), dtype)
    expected = c.astype(np.float64)
    exact = CASES[fn](a.astype(np.float64), b.astype(np.float64), c)
    first = int(fn is by_part)
    expected[:, first : first + exact.shape[1]] = exact
    a, b = (np.ascontiguousarray(a.T) if fn in (transposed_by, both_transposed) else a,
            np.ascontiguousarray(b.T) if fn is transposed_by else b)  # fmt: skip
    return [a, b, c], expected


def check(found: np.ndarray, expected: np.ndarray) -> None:
    within = {"float32": 1e-5, "float16": 2e-3}.get(found.dtype.name, 1e-2)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=within, atol=within * np.abs(expected).max())


@needs_compiler
@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 96, 64), (33, 70, 47), (5, 130, 129), (1, 64, 100), (40, 1, 30)])
def test_products_of_transposed_tensors(fn: Any, m: int, n: int, k: int) -> None:
    for dtype in (np.float32, HALF):
        args, expected = given(fn, m, n, k, dtype)
        _, (_, _, found) = emulated(fn, *args)
        check(found, expected)


@needs_simulation
@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize(("dtype", "warpgroups"), [(np.float32, False), (HALF, False), (BRAIN, True)])
def test_the_same_on_the_simulator(fn: Any, dtype: Any, warpgroups: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last slice of the contraction has one row, at no aligned distance from the next."""
    monkeypatch.setattr(SimulatedDevice, "warpgroups", warpgroups)
    for m, n, k in [(64, 64, 64), (5, 130, 129)]:
        args, expected = given(fn, m, n, k, dtype)
        simulate(fn.compile(*args, target="cuda"), *args, seed=5, late=True)
        check(args[2], expected)


@needs_compiler
def test_products_of_batches() -> None:
    @pto.jit
    def batched(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
        c[...] = pl.dot(a, pl.transpose(b, (0, 2, 1)))

    a, b = (RNG.standard_normal((3, n, 50)).astype(np.float32) for n in (20, 70))
    _, (_, _, found) = emulated(batched, a, b, np.zeros((3, 20, 70), np.float32))
    np.testing.assert_allclose(found, a @ b.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)


@needs_simulation
@pytest.mark.parametrize("dtype", [np.float32, HALF])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_nothing_is_read_across_rows(rows: int, dtype: Any) -> None:
    """A transposed view, and a tensor that was transposed before it was given."""
    a, b, c = floats(rows, 256, dtype=dtype), floats(64, 256, dtype=dtype), floats(rows, 64, dtype=dtype)
    used, conflicts, instructions = counted(by_transposed, a, b, c)
    assert used > 0.85 and conflicts < (2 if rows == 1 else 1.1)

    @pto.jit
    def plain(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
        c[...] = pl.cast(pl.dot(a, b), c.dtype)

    assert instructions < 1.3 * counted(plain, a, floats(256, 64, dtype=dtype), c).instructions
    assert counted(plain, a, b.T, c).used > 0.85
