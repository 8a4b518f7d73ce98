# SPDX-License-Identifier: MIT
"""Products with an axis of extent 1, and tiles that are taken apart and joined."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(8)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pto.jit
def cells(x: pl.Tensor, w: pl.Tensor, u: pl.Tensor, y: pl.Tensor):
    """A recurrent network: two products of one row by matrices that stay in memory."""
    for r in pl.range(x.shape[0], parallel=True):
        h = pl.zeros([1, 40], y.dtype)
        for t in pl.range(x.shape[1]):
            step = pl.reshape(pl.load(x, [r, t, 0], [1, 1, 70]), [1, 70])
            h = pl.tanh(pl.dot(h, pl.load(u, [0, 0], [40, 40]), pl.dot(step, pl.load(w, [0, 0], [70, 40]))))
        pl.store(h, [r, 0], y)


@pytest.mark.parametrize("turned", [False, True])
def test_one_row_by_a_matrix_in_memory(turned: bool) -> None:
    x, w, u = normal(3, 4, 70), normal(70, 40) / 8, normal(40, 40) / 8
    given = (np.ascontiguousarray(w.T).T, u.T) if turned else (w, u)
    _, (*_, y) = emulated(cells, x, *given, np.zeros((3, 40), np.float32), orders=(0, 5))
    h = np.zeros((3, 40))
    for t in range(4):
        h = np.tanh(x[:, t] @ w + h @ given[1])
    np.testing.assert_allclose(y, h, rtol=1e-5, atol=1e-5)
    compiled = cells.compile(x, *given, y, target="cuda")
    assert [k.streams for k in compiled._kernel.built.program.host.kernels.values()] == [True]
    source = next(text for name, text in compiled.sources.items() if name.endswith(".cu"))
    assert source.count("multiply_row<Spread>") == 2


@pto.jit
def thin(a: pl.Tensor, b: pl.Tensor, row: pl.Tensor, column: pl.Tensor, out: pl.Tensor):
    """Beside a product of tiles: a row made here by one, by a column, and a column by a row."""
    for r in pl.range(0, a.shape[0], 16, parallel=True):
        left, right = pl.load(a, [r, 0], [16, 24]), pl.load(b, [0, 0], [24, 16])
        made = left @ right
        by_column = made @ pl.load(column, [0, 0], [16, 1])
        outer = by_column @ pl.load(row, [0, 0], [1, 16])
        by_row = pl.load(row, [0, 0], [1, 16]) @ made
        pl.store(outer + by_row + pl.load(row, [0, 0], [1, 16]) @ pl.load(column, [0, 0], [16, 1]), [r, 0], out)


@pytest.mark.parametrize("dtype", [np.float64, np.int8])
def test_products_with_an_axis_of_one(dtype: type) -> None:
    def some(*shape: int) -> np.ndarray:
        return RNG.integers(-3, 3, shape).astype(dtype)

    if dtype is np.int8:  # sums are i32, which are not multiplied by i8 again
        for columns in (9, 1):
            a, w = some(5, 20), some(20, columns)
            kernel = one_row if columns > 1 else one_column
            _, (*_, y) = emulated(kernel, a, w, np.zeros((5, columns), np.int32), orders=(0, 1))
            np.testing.assert_array_equal(y, a.astype(np.int32) @ w)
        return
    a, b, row, column = some(32, 24), some(24, 16), some(1, 16), some(16, 1)
    _, (*_, out) = emulated(thin, a, b, row, column, np.zeros((32, 16)), orders=(0, 1))
    for r in (0, 16):
        made = a[r : r + 16] @ b
        np.testing.assert_allclose(out[r : r + 16], made @ column @ row + row @ made + row @ column)


@pto.jit
def one_row(a: pl.Tensor, w: pl.Tensor, y: pl.Tensor):
    k, n = w.shape
    for r in pl.range(a.shape[0], parallel=True):
        pl.store(pl.load(a, [r, 0], [1, k]) @ pl.load(w, [0, 0], [k, n]), [r, 0], y)


@pto.jit
def chosen(x: pl.Tensor, w: pl.Tensor, u: pl.Tensor, y: pl.Tensor):
    """What one branch has put into shared memory is not there when the other one was taken."""
    for r in pl.range(x.shape[0], parallel=True):
        row = pl.load(x, [r, 0], [1, 24]) * 2.0
        if r % 2 == 0:
            part = row @ pl.load(w, [0, 0], [24, 16])
        else:
            part = pl.load(x, [r, 0], [1, 24])[:, 4:20] - row[:, 0:16]
        pl.store(part + row[:, 4:20] + row @ pl.load(u, [0, 0], [24, 16]), [r, 0], y)


def test_rows_of_branches() -> None:
    x, w, u = normal(4, 24), normal(24, 16), normal(24, 16)
    _, (*_, y) = emulated(chosen, x, w, u, np.zeros((4, 16), np.float32), orders=(0, 1))
    part = np.where(np.arange(4)[:, None] % 2 == 0, 2 * x @ w, x[:, 4:20] - 2 * x[:, :16])
    np.testing.assert_allclose(y, part + 2 * x[:, 4:20] + 2 * x @ u, rtol=1e-4, atol=1e-4)


@pto.jit
def one_column(a: pl.Tensor, w: pl.Tensor, y: pl.Tensor):
    for r in pl.range(a.shape[0], parallel=True):
        pl.store(pl.load(a, [r, 0], [1, 20]) @ pl.load(w, [0, 0], [20, 1]), [r, 0], y)


def test_a_matrix_that_the_kernel_writes_is_read_before() -> None:
    w = normal(8, 8)
    expected = w.copy()
    for r in range(2):
        expected[r] = expected[r] @ expected

    @pto.jit
    def own(w: pl.Tensor):
        for r in pl.range(2):
            pl.store(pl.load(w, [r, 0], [1, 8]) @ pl.load(w, [0, 0], [8, 8]), [r, 0], w)

    _, (found,) = emulated(own, w, orders=(0, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pto.jit
def parted(x: pl.Tensor, y: pl.Tensor, at):
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        tile = pl.load(x, [r, 0], [4, 30])
        left, right = tile[:, 0:10], tile[:, 10:30]
        swapped = pl.concat([right, left], axis=1)
        rows = pl.concat([swapped[2:4, :], swapped[0:2, :]], axis=0)
        pl.store(rows + pl.concat([tile[0, 0:15], tile[1, 15:30]], axis=0), [r, 0], y)


def test_tiles_are_taken_apart_and_joined() -> None:
    x = normal(8, 30)
    _, (_, y, _) = emulated(parted, x, np.zeros_like(x), 0)
    for r in (0, 4):
        t = x[r : r + 4]
        swapped = np.concatenate([t[:, 10:], t[:, :10]], axis=1)
        want = np.concatenate([swapped[2:], swapped[:2]]) + np.concatenate([t[0, :15], t[1, 15:]])
        np.testing.assert_array_equal(y[r : r + 4], want)


def test_what_a_slice_leaves_out_stays_out_and_holes_are_errors() -> None:
    @pto.jit
    def ends(x: pl.Tensor, y: pl.Tensor, at):
        for r in pl.range(x.shape[0], parallel=True):
            pl.store(pl.load(x, [r, 0], [1, 32])[:, at : at + 8], [r, 0], y)

    @pto.jit
    def holes(x: pl.Tensor, y: pl.Tensor):
        for r in pl.range(x.shape[0], parallel=True):
            row = pl.load(x, [r, 0], [1, 32])
            pl.store(pl.concat([row, row], axis=1), [r, 0], y)

    x = normal(3, 20)
    _, (_, y, _) = emulated(ends, x, np.full((3, 8), 7, np.float32), 15)
    np.testing.assert_array_equal(y, np.concatenate([x[:, 15:], np.full((3, 3), 7)], axis=1))
    with pytest.raises(pto.BoundsError, match="concat of an incomplete tile: 20 of 32 elements"):
        emulated(holes, x, np.zeros((3, 64), np.float32))
    with pytest.raises(pto.BoundsError, match="a slice of a tile starts at -2"):
        emulated(ends, x, y, -2)


@pto.jit
def plus_one(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    c[...] = a @ b + 1.0


@pto.jit
def largest(a: pl.Tensor, b: pl.Tensor, x: pl.Tensor, c: pl.Tensor):
    c[...] = pl.cast(pl.maximum(a @ b, x), c.dtype)


def of_extents(kernel: Any, *given: np.ndarray) -> tuple[list[bool], np.ndarray]:
    """Compiled for the extents of some arrays: which kernels stream matrices, and the last argument after a run."""
    kinds = {np.dtype(np.float32): pl.f32, np.dtype(ml_dtypes.bfloat16): pl.bf16}
    compiled = kernel.compile(*(pto.spec(x.shape, kinds[x.dtype]) for x in given), target="cuda")
    results = []
    for order in (0, 1):
        mine = [x.copy() for x in given]
        emulate(compiled, *mine, order=order)
        results.append(mine[-1])
    np.testing.assert_array_equal(*results)
    return [k.streams for k in compiled._kernel.built.program.host.kernels.values()], results[0]


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 150, 140), (1, 4200, 40), (20, 600, 1), (1, 5000, 1)])
def test_whole_products_with_one_row_or_column(dtype: type, rows: int, depth: int, columns: int) -> None:
    """Beside operations on the result; nothing of a matrix that one row is multiplied by is kept."""
    a, b, x = normal(rows, depth, dtype=dtype), normal(depth, columns, dtype=dtype), normal(1, columns)
    want, c = a.astype(np.float64) @ b.astype(np.float64), np.zeros((rows, columns), np.float32)
    for kernel, given, result in ((plus_one, (a, b, c), want + 1), (largest, (a, b, x, c), np.maximum(want, x))):
        streams, found = of_extents(kernel, *given)
        np.testing.assert_allclose(found, result, rtol=1e-4, atol=1e-3)
        assert streams == [columns > 1]


def test_one_row_that_is_broadcast_to_others() -> None:
    @pto.jit
    def broadcast(a: pl.Tensor, b: pl.Tensor, x: pl.Tensor, c: pl.Tensor):
        c[...] = a @ b + x

    for shape in ((1, 20), (20, 140)), ((160, 20), (20, 1)):
        a, b = (normal(*s) for s in shape)
        x = normal(160, 140)
        _, c = of_extents(broadcast, a, b, x, np.zeros_like(x))
        np.testing.assert_allclose(c, a @ b + x, rtol=1e-4, atol=1e-4)


@pto.jit
def by_vector(a: pl.Tensor, v: pl.Tensor, x: pl.Tensor, c: pl.Tensor):
    c[...] = pl.maximum(a @ v * 2.0, x)


@pto.jit
def twice_by_vector(a: pl.Tensor, v: pl.Tensor, x: pl.Tensor, c: pl.Tensor):
    t = a.T @ v
    c[...] = pl.tanh(a @ t) + pl.sum(t) + x


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("rows", "depth"), [(300, 150), (20, 5000), (1, 300)])
def test_whole_matrices_by_a_vector(dtype: type, rows: int, depth: int) -> None:
    """The vector is read as it is, and operations on the result belong to the product's kernel."""
    a, v = normal(rows, depth, dtype=dtype), normal(depth, dtype=dtype)
    for x in normal(rows), normal(1):
        given = a, v, x, np.zeros(rows, np.float32)
        want = np.maximum(a.astype(np.float64) @ v.astype(np.float64) * 2, x)
        np.testing.assert_allclose(of_extents(by_vector, *given)[1], want, rtol=1e-4, atol=1e-3)
        if len(x) == rows:
            _, (*_, c) = emulated(by_vector, *given, orders=(0, 1))
            np.testing.assert_allclose(c, want, rtol=1e-4, atol=1e-3)


def test_products_by_vectors_that_are_products() -> None:
    a, v, x = normal(300, 140) / 16, normal(300), normal(300)
    _, (*_, c) = emulated(twice_by_vector, a, v, x, np.zeros(300, np.float32), orders=(0, 1))
    t = a.T.astype(np.float64) @ v
    np.testing.assert_allclose(c, np.tanh(a @ t) + t.sum() + x, rtol=1e-4, atol=1e-3)
