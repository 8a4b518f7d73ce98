# SPDX-License-Identifier: MIT
"""Products that accumulate: whose memory the sum is kept in, and which accumulators fit."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import LaunchError
from pto_jit.runtime import default_runtime
from pto_jit.targets.cpu import products
from pto_jit.targets.cpu.matmul import library
from pto_jit.targets.cpu.matmul.blocking import Caches, blocking_of
from pto_jit.targets.cpu.matmul.library import Processor
from pto_jit.targets.cpu.matmul.shape import Combo, Machine, scheme_of

RNG = np.random.default_rng(1)


def matrix(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


@pto.jit(cache=False)
def chain(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    m, n = out.shape
    acc = pl.zeros([m, n], pl.f32)
    for _ in pl.static_range(3):
        acc = pl.dot(pl.load(x), pl.load(y), acc)
    pl.store(acc, [0, 0], out)


@pto.jit(cache=False)
def kept(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, first: pl.Tensor):
    a = pl.load(x) @ pl.load(y)
    b = pl.dot(pl.load(x), pl.load(y), a)
    c = pl.dot(pl.load(x), pl.load(y), b)
    pl.store(a, [0, 0], first)
    pl.store(c, [0, 0], out)


@pto.jit(cache=False)
def viewed(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, first: pl.Tensor):
    a = pl.load(x) @ pl.load(y)
    turned = a.T
    b = pl.dot(pl.load(x), pl.load(y), a)
    pl.store(turned, [0, 0], first)
    pl.store(b, [0, 0], out)


@pto.jit(cache=False)
def loaded(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, first: pl.Tensor):
    acc = pl.load(first)
    pl.store(pl.dot(pl.load(x), pl.load(y), acc), [0, 0], out)


@pto.jit(cache=False)
def itself(x: pl.Tensor, out: pl.Tensor):
    a = pl.load(x) + 1
    pl.store(pl.dot(a, a, a), [0, 0], out)


@pytest.mark.parametrize("m, n, k", [(5, 7, 3), (40, 33, 64), (60, 33, 64), (1, 50, 20), (0, 4, 4)])
def test_a_chain_of_products_adds_up(m: int, n: int, k: int) -> None:
    x, y, out = matrix(m, k), matrix(k, n), matrix(m, n)
    chain(x, y, out)
    np.testing.assert_allclose(out, 3 * (x @ y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel, times", [(kept, 3), (viewed, 2)])
def test_an_accumulator_that_is_read_later_keeps_its_value(kernel, times: int) -> None:
    x, y, out, first = matrix(9, 20), matrix(20, 9), matrix(9, 9), matrix(9, 9)
    kernel(x, y, out, first)
    np.testing.assert_allclose(first, (x @ y).T if kernel is viewed else x @ y, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(out, times * (x @ y), rtol=1e-4, atol=1e-4)


def test_an_accumulator_in_a_tensor_is_not_written() -> None:
    x, y, out, first = matrix(9, 20), matrix(20, 11), matrix(9, 11), matrix(9, 11)
    before = first.copy()
    loaded(x, y, out, first)
    np.testing.assert_array_equal(first, before)
    np.testing.assert_allclose(out, x @ y + first, rtol=1e-4, atol=1e-4)


def test_an_accumulator_that_is_an_operand_is_read_before_it_is_written() -> None:
    x, out = matrix(12, 12), matrix(12, 12)
    itself(x, out)
    a = x + 1
    np.testing.assert_allclose(out, a @ a + a, rtol=1e-4, atol=1e-4)


def test_an_accumulator_of_another_size_is_an_error() -> None:
    with pytest.raises(LaunchError, match="declared extents"):
        chain(matrix(5, 3), matrix(3, 7), matrix(4, 7))
    with pytest.raises(LaunchError, match="declared extents"):
        chain(matrix(5, 3), matrix(3, 7), matrix(5, 8))


@pytest.mark.parametrize("threads", [1, 2])
def test_every_way_through_a_product(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small caches, so that small products take the ways of large ones: streamed, near, near with few blocks, far."""
    monkeypatch.setattr(library, "host_caches", lambda: Caches(l1=16 << 10, l2=128 << 10, l3=512 << 10))
    monkeypatch.setattr(products, "_LIBRARIES", {})
    plan = blocking_of(scheme_of(Combo("f32", "f32", "f32"), Machine.of(*_here())), library.host_caches())

    @pto.jit(cache=False, num_threads=threads)
    def product(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
        pl.store(pl.load(x) @ pl.load(y), [0, 0], out)

    n = k = int((plan.far_bytes // 8) ** 0.5) + 13  # B is just larger than half a slab
    heights = [3, 20, 41, plan.rows - 1, plan.rows + 1, 2 * plan.rows + 5, 3 * plan.rows, 3 * plan.rows + 1]
    for m in heights:
        x, y = matrix(m, k), matrix(k, n)
        for b in (y, np.asfortranarray(y)):
            out = np.full((m, n), np.nan, np.float32)
            product(x, b, out)
            np.testing.assert_allclose(out, x.astype(np.float64) @ y, atol=1e-3, err_msg=f"{m} rows")


def _here() -> tuple[str, str]:
    return Processor.host().features, Processor.host().triple


@pto.jit
def repeated(a, b, y):
    """A product that replaces its own operand, outside of any fused group."""
    t = pl.load(a, [0, 0], [8, 8])
    for _ in range(4):
        t = pl.dot(t, pl.load(b, [0, 0], [8, 8]))
    pl.store(t, [0, 0], y)


def test_a_product_may_replace_its_operand_in_a_loop() -> None:
    a, b, y = matrix(8, 8), matrix(8, 8) / 8, np.zeros((8, 8), np.float32)
    repeated(a, b, y)
    np.testing.assert_allclose(y, a @ np.linalg.matrix_power(b, 4), rtol=1e-4, atol=1e-5)
    assert repeated.compile(a, b, y, target="c").sources


# -- right operands that are kept packed ---------------------------------------------------------------------------------


@pto.jit(cache=False)
def by_rows(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, x.shape[0], 64):
        pl.store(pl.load(x, [i, 0], [64, 40]) @ pl.load(y), [i, 0], out)


@pto.jit(cache=False)
def in_parallel(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, x.shape[0], 64, parallel=True, chunk=1):
        with pl.incore():
            pl.store(pl.load(x, [i, 0], [64, 40]) @ pl.load(y), [i, 0], out)


@pto.jit(cache=False)
def changed_between(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, x.shape[0], 64):
        pl.store(pl.load(x, [i, 0], [64, 40]) @ pl.load(y), [i, 0], out)
        pl.store(pl.load(y) + 1, [0, 0], y)


@pytest.mark.parametrize("kernel", [by_rows, in_parallel])
def test_a_repeated_right_operand_is_packed_once_for_each_launch(kernel) -> None:
    x, y, out = matrix(640, 40), matrix(40, 100), matrix(640, 100)
    for _ in range(3):
        kernel(x, y, out)
        np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)
        y += 1  # the launches after this one see it


def test_what_the_program_writes_is_not_kept() -> None:
    x, y, out = matrix(640, 40), matrix(40, 100), matrix(640, 100)
    wanted = np.concatenate([x[i : i + 64] @ (y + i // 64) for i in range(0, 640, 64)])
    before = y.copy()
    changed_between(x, y, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(y, before + 10, rtol=1e-5)


def test_an_operand_that_overlaps_a_result_is_not_kept() -> None:
    """The rows of the results are written over the right operand while it is in use: the program's order counts."""
    memory = matrix(700, 100)
    x, y, out = matrix(640, 40), memory[:40], memory[10:650]
    now = memory.copy()
    for i in range(0, 640, 64):
        now[10 + i : 74 + i] = x[i : i + 64] @ now[:40]
    by_rows(x, y, out)
    np.testing.assert_allclose(memory, now, rtol=1e-3, atol=1e-3)
    turned = np.asfortranarray(y)
    by_rows(x, turned, out)
    np.testing.assert_allclose(out, x @ turned, rtol=1e-4, atol=1e-4)


def test_kept_memory_is_given_back() -> None:
    x, y, out = matrix(640, 40), matrix(40, 100), matrix(640, 100)
    kernel = pto.jit(cache=False, num_threads=1)(by_rows.__wrapped__)
    runtime = default_runtime(1)
    kernel(x, y, out)
    live = runtime.statistics().buffers_live
    runtime.trim()
    kernel(x, y, out)
    assert runtime.statistics().buffers_cached == 1  # the packed copy
    assert runtime.statistics().buffers_live == live


# -- sums of products --------------------------------------------------------------------------------------------------


@pto.jit(cache=False)
def convolution(x: pl.Tensor, weight: pl.Tensor, out: pl.Tensor):
    height, width, channels = out.shape
    with pl.incore():
        for i in pl.range(0, height, parallel=True):
            acc = pl.zeros([width, channels], pl.f32)
            for dy in pl.static_range(2):
                for dx in pl.static_range(2):
                    acc = pl.dot(x[i + dy, dx : dx + width, :], weight[dy, dx], acc)
            out[i, :, :] = acc


@pto.jit(cache=False)
def two(a, b, c, d, start, out):
    """A sum that begins with a tensor, and an operand whose memory could be taken by what comes after it."""
    doubled = pl.load(a) * 2
    acc = pl.dot(doubled, pl.load(b), pl.load(start))
    pl.store(pl.dot(pl.load(c), pl.load(d), acc), [0, 0], out)


@pto.jit(cache=False)
def into_tensor(a, b, c, d, out):
    pl.store(pl.dot(pl.load(c), pl.load(d), pl.load(a) @ pl.load(b)), [0, 0], out)


@pto.jit(cache=False)
def from_zeros(a, b, out, rows: int, cols: int):
    pl.store(pl.dot(pl.load(a), pl.load(b), pl.zeros([rows, cols], pl.f32)), [0, 0], out)


@pytest.mark.parametrize("width, channels, deep", [(56, 64, 64), (112, 40, 17), (49, 3, 100), (12, 32, 8)])
def test_a_convolution_is_a_sum_of_products_for_any_number_of_workers(width: int, channels: int, deep: int) -> None:
    x, weight = matrix(8, width + 1, deep), matrix(2, 2, deep, channels)
    wanted = sum(x[dy : dy + 7, dx : dx + width].astype("f8") @ weight[dy, dx] for dy in range(2) for dx in range(2))
    results = []
    for threads in (1, 2):
        kernel = pto.jit(cache=False, num_threads=threads)(convolution.__wrapped__)
        results.append(np.full((7, width, channels), np.nan, np.float32))
        kernel(x, weight, results[-1])
        np.testing.assert_allclose(results[-1], wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("rows", [7, 60])
def test_a_sum_begins_with_its_accumulator(rows: int) -> None:
    a, b, c, d = matrix(rows, 30), matrix(30, 20), matrix(rows, 11), matrix(11, 20)
    start, out = matrix(rows, 20), matrix(rows, 20)
    two(a, b, c, d, start, out)
    np.testing.assert_allclose(out, 2 * a @ b + c @ d + start, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("place", range(4))
def test_a_sum_that_is_stored_over_one_of_its_operands_reads_them_first(place: int) -> None:
    operands = [matrix(60, 60) for _ in range(4)]
    a, b, c, d = (x.copy() for x in operands)
    into_tensor(*operands, operands[place])
    np.testing.assert_allclose(operands[place], a @ b + c @ d, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows, cols", [(60, 33), (60, 32), (59, 33)])
def test_zeros_that_a_product_starts_from_have_its_extents(rows: int, cols: int) -> None:
    a, b, out = matrix(60, 9), matrix(9, 33), np.full((60, 33), np.nan, np.float32)
    if (rows, cols) == out.shape:
        from_zeros(a, b, out, rows, cols)
        np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
    else:
        with pytest.raises(LaunchError, match="declared extents"):
            from_zeros(a, b, out, rows, cols)
