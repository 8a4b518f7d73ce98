# SPDX-License-Identifier: MIT
"""Tiles whose extents are read from memory, and loads of blocks that are rows of a tile."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(9)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pto.jit
def jagged(x: pl.Tensor, starts: pl.Tensor, y: pl.Tensor):
    """Softmax of rows of different lengths that stand one after the other."""
    for r in pl.range(1, starts.shape[0], parallel=True):
        at = starts[r - 1]
        row = pl.load(x, [0, at], [1, starts[r] - at])
        e = pl.exp(row - pl.max(row, axis=1, keepdims=True))
        pl.store(e / pl.sum(e, axis=1, keepdims=True), [0, at], y)


@pto.jit
def limited(x: pl.Tensor, lengths: pl.Tensor, y: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        n = min(24, lengths[r])
        pl.store(pl.load(x, [r, 0], [1, n]) * 2.0, [r, 0], y)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max())
    return e / e.sum()


def kernels(fn: Any, *args: Any) -> list[Any]:
    return list(fn.compile(*args, target="cuda")._kernel.built.program.host.kernels.values())


def test_extents_read_from_memory_are_bounded_by_kernels_before() -> None:
    lengths = (5, 300, 1, 70)
    starts = np.cumsum([0, *lengths])
    x = normal(1, starts[-1])
    _, (_, _, y) = emulated(jagged, x, starts, np.zeros_like(x))
    for a, b in itertools.pairwise(starts):
        np.testing.assert_allclose(y[0, a:b], softmax(x[0, a:b]), rtol=2e-6)
    assert [k.kind for k in kernels(jagged, x, starts, y)] == ["elements", "folds", "rows"]
    none = np.zeros(1, np.int64)
    emulated(jagged, x, none, y, orders=(0,))  # no rows: nothing is launched


def test_an_extent_below_a_number_of_the_program_needs_no_kernel_before() -> None:
    x, lengths = normal(6, 40), np.array([3, 50, 0, 24, 7, -2])
    _, (_, _, y) = emulated(limited, x, lengths, np.zeros_like(x), orders=(0, 1))
    want = np.zeros_like(x)
    for r, n in enumerate(np.clip(lengths, 0, 24)):
        want[r, :n] = 2 * x[r, :n]
    np.testing.assert_array_equal(y, want)
    assert [k.kind for k in kernels(limited, x, lengths, y)] == ["rows"]


@pto.jit
def rows_of_blocks(x: pl.Tensor, start, y: pl.Tensor):
    n = x.shape[0]
    for _ in pl.range(1, parallel=True):
        tile = pl.load(x, [start, 0], [n, 16]) * 2.0
        pl.store(pl.reshape(tile, [n, 1, 16, 1]), [start, 0, 0, 0], y)


def test_rows_of_a_tile_that_are_blocks() -> None:
    x = normal(5, 16)
    specs = pto.spec((None, 16), pl.f32), 0, pto.spec((None, 1, 16, 1), pl.f32)
    compiled = rows_of_blocks.compile(*specs, target="cuda")
    for start, wanted in ((0, 2 * x), (2, np.concatenate([np.zeros((2, 16)), 2 * x[2:]]))):  # the rest is clipped
        y = np.zeros((5, 1, 16, 1), np.float32)
        emulate(compiled, x, start, y)
        np.testing.assert_array_equal(y[:, 0, :, 0], wanted)


@pto.jit
def blocks(x: pl.Tensor, y: pl.Tensor, rows):
    n = x.shape[0]
    for _ in pl.range(1, parallel=True):
        tile = pl.reshape(pl.load(x, [0, 0, 0], [n, 4, 16]), [rows, 16])
        pl.store(tile @ pl.transpose(tile), [0, 0], y)


def test_blocks_that_are_rows_of_a_tile() -> None:
    x, y = normal(5, 4, 16), np.zeros((20, 20), np.float32)
    compiled = blocks.compile(pto.spec((None, 4, 16), pl.f32), y, 20, target="cuda")
    emulate(compiled, x, y, 20)
    flat = x.reshape(20, 16)
    np.testing.assert_allclose(y, flat @ flat.T, rtol=1e-4, atol=1e-5)
    with pytest.raises(pto.LaunchError, match="PTO-H204: reshape to another number of elements: 20 rows to 24"):
        emulate(compiled, x, y, 24)


@pto.jit
def blocks_of_lists(starts: pl.Tensor, x: pl.Tensor, y: pl.Tensor):
    """Blocks of 4 rows, as many as a list has: `4 * stop - 4 * start` rows."""
    for i in pl.range(starts.shape[0] - 1, parallel=True):
        start, stop = starts[i], starts[i + 1]
        tile = pl.load(x, [start, 0, 0], [stop - start, 4, 16])
        pl.store(pl.sum(pl.reshape(tile, [4 * stop - 4 * start, 16]), axis=0, keepdims=True), [i, 0], y)


def test_blocks_of_lists_are_rows_without_a_check() -> None:
    starts, x, y = np.array([0, 2, 5]), normal(5, 4, 16), np.zeros((2, 16), np.float32)
    specs = pto.spec((None,), pl.i64), pto.spec((None, 4, 16), pl.f32), pto.spec((None, 16), pl.f32)
    compiled = blocks_of_lists.compile(*specs, target="cuda")
    assert "sassert" not in compiled.sources["blocks_of_lists.pto"]
    emulate(compiled, starts, x, y)
    np.testing.assert_allclose(y, [x[:2].sum((0, 1)), x[2:].sum((0, 1))], rtol=1e-4, atol=1e-5)


@pto.incore
def scaled(t, k):
    return t * k


@pto.jit
def clipped_again(x: pl.Tensor, y: pl.Tensor, n):
    """A tile that a loop of the host changes is kept in a tensor, whose valid part the next kernel reads."""
    t = pl.clip(pl.load(x, [0, 2], [4, 8]), -4, 4)
    more = pl.tan(pl.clip(t, -1, 1))
    for i in range(1, n):
        step = scaled(more, 0.5)
        if i == 2:
            t = pl.clip(t - step, -8, 8)
            continue
        t = pl.clip(t + step, -8, 8)
    pl.store(t, [0, 0], y)


def test_a_kernel_reads_the_valid_part_of_the_tile_that_it_writes() -> None:
    x = normal(4, 7)  # five columns of eight are valid
    _, (_, y, _) = emulated(clipped_again, x, np.zeros((4, 8), np.float32), 4, orders=(0, 1))
    first = np.clip(x[:, 2:], -4, 4)
    want = first + np.tan(np.clip(first, -1, 1)) / 2
    np.testing.assert_allclose(y, np.concatenate([want, np.zeros((4, 3), np.float32)], axis=1), rtol=1e-5, atol=1e-6)


@pto.jit
def joined_down(a: pl.Tensor, b: pl.Tensor, o: pl.Tensor):
    with pl.incore():
        t = pl.concat([pl.load(a), pl.load(b) * 2, pl.load(a) + 1], axis=0)
        pl.store(t - pl.max(t, axis=0, keepdims=True), [0, 0], o)


@pto.jit
def joined_across(a: pl.Tensor, b: pl.Tensor, o: pl.Tensor):
    n, m = a.shape[1], b.shape[1]
    for i in pl.range(a.shape[0], parallel=True):
        t = pl.concat([pl.load(a, [i, 0], [1, n]), pl.load(b, [i, 0], [1, m])], axis=1)
        u = pl.concat([t, pl.load(b, [i, 0], [1, 4])], axis=1)
        pl.store(pl.flip(u, 1), [i, 0], o)


@pto.jit
def joined_factors(a: pl.Tensor, b: pl.Tensor, o: pl.Tensor):
    with pl.incore():
        t = pl.concat([pl.load(a), pl.load(b)], axis=0)
        pl.store(t @ t.T, [0, 0], o)


def test_tiles_are_joined_along_axes_of_run_time_extents() -> None:
    n, m, k = 40, 70, 33
    a, b = normal(n, k), normal(m, k)
    _, (*_, down) = emulated(joined_down, a, b, np.zeros((2 * n + m, k), np.float32), orders=(0, 5))
    t = np.concatenate([a, b * 2, a + 1])
    np.testing.assert_array_equal(down, t - t.max(axis=0))
    _, (*_, across) = emulated(joined_across, a.T.copy(), b.T.copy(), np.zeros((k, n + m + min(4, m)), np.float32),
                               orders=(0, 5))  # fmt: skip
    np.testing.assert_array_equal(across, np.concatenate([a, b, b[:4]]).T[:, ::-1])
    _, (*_, product) = emulated(joined_factors, a, b, np.zeros((n + m, n + m), np.float32), orders=(0, 5))
    t = np.concatenate([a, b])
    np.testing.assert_allclose(product, t @ t.T, rtol=1e-5, atol=1e-5)


@pto.jit
def joined_in_a_block(a: pl.Tensor, b: pl.Tensor, o: pl.Tensor):
    for _ in pl.range(1, parallel=True):
        t = pl.concat([pl.load(a), pl.load(b) * 2, pl.load(a) + 1], axis=0)
        pl.store(t - pl.max(t, axis=0, keepdims=True), [0, 0], o)


def test_joined_tiles_count_for_the_shared_memory_of_a_block() -> None:
    a, b = normal(20, 300), normal(100, 300)
    compiled = joined_in_a_block.compile(a, b, np.zeros((140, 300), np.float32), target="cuda")
    with pytest.raises(pto.LaunchError, match=r"PTO-X144: .* its tiles take \d+ bytes of shared memory"):
        emulate(compiled, a, b, np.zeros((140, 300), np.float32))


@pto.jit
def columns_of_rows(x: pl.Tensor, z: pl.Tensor, places: pl.Tensor, y: pl.Tensor):
    index = pl.load(places)
    for c in pl.range(0, x.shape[1], 8, parallel=True):
        y[:, c : c + 8] = x[index, c : c + 8] + z[index, 1, c : c + 8]


def test_rows_taken_of_a_view_end_where_the_tensor_does() -> None:
    x, z, places = normal(5, 21), normal(5, 2, 21), np.array([4, 0, 0], np.int32)
    _, (*_, y) = emulated(columns_of_rows, x, z, places, np.zeros((3, 21), np.float32))
    np.testing.assert_allclose(y, x[places] + z[places, 1], rtol=1e-6)


@pto.jit
def unpacked_products(x: pl.Tensor, packed: pl.Tensor, y: pl.Tensor):
    n = packed.shape[1]
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        acc = pl.zeros([4, n * 2], pl.f32)
        for k in range(0, x.shape[1], 8):
            t = pl.load(packed, [k, 0], [8, n])
            w = pl.reshape(pl.stack([t & 15, t >> 4], axis=2), [8, n * 2]).to(pl.f32)
            acc = pl.dot(pl.load(x, [r, k], [4, 8]), w * pl.arange(0, n * 2, dtype=pl.f32), acc)
        pl.store(acc, [r, 0], y)


def test_extents_computed_in_a_loop_from_parameters_alone_are_known_to_the_host() -> None:
    x, packed = normal(6, 16), RNG.integers(0, 256, (16, 5)).astype(np.uint8)
    w = np.stack([packed & 15, packed >> 4], axis=2).reshape(16, 10) * np.arange(10.0)
    _, (*_, y) = emulated(unpacked_products, x, packed, np.zeros((6, 10), np.float32))
    np.testing.assert_allclose(y, x @ w, rtol=1e-5, atol=1e-3)


@pto.jit
def states(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, o: pl.Tensor):
    """Linear attention with decay, a state of the extents that q and v have, to which products of k and v are added."""
    for h in pl.range(q.shape[0], parallel=True):
        s = pl.zeros([q.shape[2], v.shape[2]], pl.f32)
        for c in range(0, q.shape[1], 4):
            o[h, c : c + 4, :] = q[h, c : c + 4, :] @ s
            s = s * 0.5 + k[h, c : c + 4, :].T @ v[h, c : c + 4, :]


def test_a_tile_that_products_are_added_to_has_the_extents_of_its_first_value() -> None:
    q, k, v = normal(2, 8, 5), normal(2, 8, 5), normal(2, 8, 7)
    _, (*_, o) = emulated(states, q, k, v, np.zeros_like(v))
    s = k[:, :4].transpose(0, 2, 1) @ v[:, :4]
    np.testing.assert_allclose(o[:, 4:], q[:, 4:] @ s, rtol=1e-5, atol=1e-5)
    assert not o[:, :4].any()


@pto.jit
def split(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """A product whose contraction is divided: every part adds to the result."""
    k = a.shape[1]
    per = (k + 2) // 3
    c[...] = 0.0
    for s in pl.range(3, parallel=True):
        end = min(s * per + per, k)
        c[:, :] += a[:, s * per : end] @ b[s * per : end, :]


def test_extents_are_found_in_loops_that_reduce() -> None:
    a, b = normal(9, 20), normal(20, 11)
    _, (*_, c) = emulated(split, a, b, np.zeros((9, 11), np.float32))
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pto.jit
def nothing(x: pl.Tensor, y: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [4, 0]) + 1, [0, 0], y)
    pl.store(pl.load(x, [0, 0], [0, x.shape[1]], pad=2.0), [1, 0], y)
    pl.store(pl.sum(pl.load(x, [0, 0], [4, 0]), axis=1, keepdims=True), [0, 0], y)
    pl.store(pl.concat([pl.load(x, [0, 0], [4, 0]), pl.load(x, [0, 0], [4, 4])], axis=1), [0, 1], y)


@pto.jit
def product_of_nothing(x: pl.Tensor, y: pl.Tensor):
    pl.store(pl.load(x, [0, 0], [4, 0]) @ pl.load(x, [0, 0], [0, 4]), [0, 0], y)


@pytest.mark.parametrize("kernel", [nothing, product_of_nothing])
def test_tiles_may_be_declared_without_elements(kernel: Any) -> None:
    x, y = normal(8, 8), np.full((8, 8), 7, np.float32)
    expected = y.copy()
    kernel.interpret(x, expected)
    np.testing.assert_array_equal(emulated(kernel, x, y)[1][1], expected)


@pytest.mark.parametrize(
    "store, shape",
    [
        (lambda t, k, out: pl.store(pl.sum(t, axis=1), [k], out), (5,)),
        (lambda t, k, out: pl.store(pl.max(t, axis=1) * pl.sum(t, axis=1) + 1.0, [k], out), (5,)),
        (lambda t, k, out: pl.store(pl.cast(pl.argmax(t, axis=1), pl.f32), [k], out), (5,)),
        (lambda t, k, out: pl.store(pl.max(t, axis=1, keepdims=True), [k, 0], out), (5, 1)),
        (lambda t, k, out: pl.store(t[:, 3], [k], out), (5,)),
        (lambda t, k, out: pl.store(pl.broadcast_to(t[:, 3], [4]), [4 * k], out), (20,)),
        (lambda t, k, out: pl.store(pl.sum(pl.transpose(t), axis=0), [k], out), (5,)),
        (lambda t, k, out: pl.store(pl.sum(t, axis=0), [8 * k], out), (40,)),  # of no row: zeros
    ],
)
def test_a_row_beyond_its_tensor_stores_nothing(store: Any, shape: tuple[int, ...]) -> None:
    @pto.jit
    def kernel(x, out):
        for k in pl.range(3, parallel=True):
            store(pl.load(x, [k, 0], [1, 8]), k, out)

    x, out = normal(1, 8), np.full(shape, 7, np.float32)
    _, (_, mine) = emulated(kernel, x, out)
    kernel(x, out)
    np.testing.assert_allclose(mine, out, rtol=1e-6)


def test_a_layer_beyond_its_tensor_stores_nothing() -> None:
    @pto.jit
    def kernel(x, out):
        for k in pl.range(3, parallel=True):
            pl.store(pl.sum(pl.load(x, [0, k, 0], [4, 1, 8]), axis=0), [k, 0], out)

    x = normal(4, 1, 8)
    _, (_, out) = emulated(kernel, x, np.full((5, 8), 7, np.float32))
    np.testing.assert_allclose(out, [x.sum((0, 1)), *np.full((4, 8), 7)], rtol=1e-6)


def test_a_row_beyond_its_tensor_has_no_other_shape() -> None:
    @pto.jit
    def kernel(x, out):
        for k in pl.range(3, parallel=True):
            pl.store(pl.reshape(pl.load(x, [k, 0], [1, 8]), [8]), [8 * k], out)

    x, out = normal(1, 8), np.zeros(24, np.float32)
    with pytest.raises(pto.BoundsError, match="reshape of an incomplete tile"):
        emulate(kernel.compile(x, out, target="cuda"), x, out)


@pto.jit
def tall_and_wide(x: pl.Tensor, y: pl.Tensor, order: pl.Tensor, product: pl.Tensor):
    order.T[...] = pl.sort(pl.transpose(pl.argsort(x[...])))
    v = y[...]
    product[...] = pl.argsort(pl.concat([v, v], axis=0)) * (v @ pl.sort(v))


def test_tall_tiles_beside_wide_ones_are_spread_over_threads_that_hold_both() -> None:
    x, y = normal(300, 20), np.round(normal(300) * 2)
    args = x, y, np.zeros((300, 20), np.int32), np.zeros(600, np.float32)
    _, (*_, order, product) = emulated(tall_and_wide, *args, orders=(0,))
    np.testing.assert_array_equal(order, np.sort(np.argsort(x, axis=1, kind="stable"), axis=0))
    places = np.argsort(np.concatenate([y, y]), kind="stable")
    np.testing.assert_allclose(product, places * (y @ np.sort(y)), rtol=1e-5)


@pto.jit
def one_column(x: pl.Tensor, y: pl.Tensor, order: pl.Tensor, sums: pl.Tensor):
    order[...] = pl.argsort(pl.transpose(x[:, None]) * pl.sort(y[...]))[0]
    sums[...] = pl.sort(x[...]) * pl.sum(pl.stack([x[...], y[...]], axis=0))


def test_few_rows_and_columns_take_little_shared_memory() -> None:
    """A column of 2000 doubles, and two rows of as many, had 15 others beside them."""
    x, y = RNG.standard_normal(2000), RNG.integers(0, 2, 2000).astype(np.float64)
    _, (_, _, order, sums) = emulated(one_column, x, y, np.zeros(2000, np.int32), np.zeros(2000), orders=(0,))
    np.testing.assert_array_equal(order, np.argsort(x * np.sort(y), kind="stable"))
    np.testing.assert_allclose(sums, np.sort(x) * (x.sum() + y.sum()), rtol=1e-12)


def larger_of(a: object, b: object) -> object:
    return pl.maximum(a, b)


@pto.jit
def joined_again(x: pl.Tensor, y: pl.Tensor, o: pl.Tensor):
    t = pl.reduce(x[...], 0, larger_of) - pl.concat([x[...], y[...]], axis=0)
    o[...] = t
    o[...] = o[...] + t


def test_joined_tiles_of_run_time_extents_stand_between_kernels() -> None:
    x, y = normal(37), normal(20)
    _, (_, _, o) = emulated(joined_again, x, y, np.zeros(57, np.float32), orders=(0,))
    np.testing.assert_array_equal(o, 2 * (x.max() - np.concatenate([x, y])))
