# SPDX-License-Identifier: MIT
"""Kernels of scalar code: every thread has iterations of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import grids, loops, reductions
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(8)


def test_a_stencil_and_a_loop_that_ends_at_run_time() -> None:
    x = RNG.standard_normal((12, 45)).astype(np.float32)
    _, (_, out) = emulated(grids.stencil5, x, np.zeros((10, 43), np.float32))
    near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    np.testing.assert_allclose(out, 0.2 * (x[1:-1, 1:-1] + near), rtol=1e-5, atol=1e-6)
    re, im = np.linspace(-2, 0.6, 40, dtype=np.float32), np.linspace(-1.2, 1.2, 9, dtype=np.float32)
    _, (*_, counts) = emulated(grids.mandelbrot, re, im, np.zeros((9, 40), np.int32))
    expected = np.zeros((9, 40), np.int32)
    grids.mandelbrot(re, im, expected)
    assert np.mean(counts != expected) <= 0.02


@pto.jit
def cubes(x: pl.Tensor, out: pl.Tensor, bias):
    a, b, c, d = x.shape
    for i in pl.range(a, parallel=True):
        for j in pl.range(b, parallel=True):
            for k in pl.range(1, c, 2, parallel=True):
                for m in pl.range(d, parallel=True):
                    if (i + j) % 2 == 0:
                        out[i, j, k, m] = x[i, j, k, m] * 2 + bias
                    else:
                        total = 0
                        for n in pl.range(m, -1, -1):
                            total += x[i, j, k, n]
                        out[i, j, k, m] = total


def test_four_loops_branches_and_a_loop_downwards() -> None:
    x = RNG.integers(-50, 50, (3, 4, 5, 6))
    _, (_, out, _) = emulated(cubes, x, np.zeros_like(x), 3)
    expected = np.zeros_like(x)
    for i, j in np.ndindex(3, 4):
        expected[i, j, 1::2] = x[i, j, 1::2] * 2 + 3 if (i + j) % 2 == 0 else np.cumsum(x[i, j, 1::2], axis=-1)
    np.testing.assert_array_equal(out, expected)


def test_sequential_loops_whose_iterations_are_independent_are_shared_by_threads() -> None:
    x = RNG.standard_normal((37, 50)).astype(np.float32)
    compiled = loops.column_first_kept.compile(x, np.zeros_like(x), target="cuda")
    text = compiled.sources["column_first_kept_incore_0.cu"]
    inner = next(line for line in text.splitlines() if "blockDim.x + threadIdx.x" in line)
    assert "int64_t j = " in inner and "out.data[i * out.stride[0] + j]" in text  # neighbours along memory
    _, (_, out) = emulated(loops.column_first_kept, x, np.zeros_like(x), orders=(0, 1))
    np.testing.assert_array_equal(out, x * 2 + 1)
    same = x.copy()
    emulate(compiled, same, same)  # every element is read before it is written, by one thread
    np.testing.assert_array_equal(same, out)
    memory = np.zeros(1851, np.float32)
    with pytest.raises(pto.LaunchError, match="PTO-X131"):
        emulate(compiled, memory[:-1].reshape(37, 50), memory[1:].reshape(37, 50))


@pto.jit
def recurrence(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        for i in pl.range(1, x.shape[0]):
            y[i] = y[i - 1] + x[i]


@pto.jit
def last_wins(x: pl.Tensor, y: pl.Tensor):
    with pl.incore():
        last = 0.0
        for i in pl.range(x.shape[0]):
            last = x[i]
        y[0] = last


@pytest.mark.parametrize("fn", [recurrence, last_wins])
def test_loops_whose_iterations_depend_on_each_other_are_refused(fn: Any) -> None:
    vector = pto.spec((None,), pl.f32)
    with pytest.raises(pto.TargetError, match="PTO-X100: the cuda target does not do a sequential loop over elements"):
        fn.compile(vector, vector, target="cuda")


@pto.jit
def folded(x: pl.Tensor, out: pl.Tensor):
    total, largest = 0, -(2**31)
    for i in pl.range(x.shape[0], parallel=True):
        total += x[i]
        largest = pl.maximum(largest, x[i] * 3)
    out[0] = total
    out[1] = largest


def test_numbers_folded_over_elements_are_shared_by_the_threads_of_blocks() -> None:
    x = RNG.standard_normal(9001).astype(np.float32)
    _, (_, total) = emulated(reductions.vector_sum, x, np.zeros(1, np.float32), orders=(0, 1))
    np.testing.assert_allclose(total[0], x.astype(np.float64).sum(), rtol=1e-5)
    whole = RNG.integers(-1000, 1000, 9001)
    _, (_, out) = emulated(folded, whole, np.zeros(2, np.int64), orders=(5,))
    assert out[0] == whole.sum() and out[1] == 3 * whole.max()
    texts = [t for n, t in folded.compile(whole, out, target="cuda").sources.items() if n.endswith(".cu")]
    assert len(texts) == 2 and all("threadIdx.x" in t and "reduce_columns" in t for t in texts)


@pto.jit
def gathered(x: pl.Tensor, out: pl.Tensor):
    for i in pl.range(x.shape[0], chunk=64, combine="tree"):
        out[0] += x[i]
        out[1] = pl.maximum(out[1], x[i])
    total = 0.0
    for i in pl.range(x.shape[0] // 3, chunk=7, combine="loop"):
        for j in range(3):
            total += x[3 * i + j]
    out[2] = total


@needs_compiler
def test_numbers_are_merged_by_one_kernel_whatever_combine_says() -> None:
    x = np.arange(900, dtype=np.float32) - 400
    _, (_, out) = emulated(gathered, x, np.float32([1, 1e6, 1]), orders=(0, 1))
    np.testing.assert_array_equal(out, [1 + x.sum(), 1e6, x.sum()])


@pto.jit
def running_totals(x, s):
    rows, columns = x.shape
    with pl.incore():
        total = 0.0
        for i in range(rows):
            for j in range(1, columns):
                total += x[i, j]
            s[i] = total
        s[2] += total


@pto.jit
def of_some(x, s):
    rows, columns = x.shape
    with pl.incore():
        count, most = 0, -5
        for i in range(rows):
            for j in range(0, columns, 3):
                most = max(most, x[i, j])
                if x[i, j] > 1:
                    count += x[i, j]
        s[0] = count * most


@pto.jit
def beside_tiles(x, s):
    with pl.incore():
        t = pl.load(x, [0, 0], [1, 8])
        product, most = 0.0, -1.0
        for j in range(x.shape[1]):
            product += x[0, j] * x[1, j]
            most = max(most, x[0, j])
        s[9] = product * most
        pl.store(pl.reshape(t * product + most, [8]), [0], s)


@pytest.mark.parametrize("kernel", [running_totals, of_some, beside_tiles])
@pytest.mark.parametrize("columns", [1, 2, 300, 2100])
def test_sequential_loops_that_fold_elements_are_one_block_which_keeps_the_order_of_sums(kernel: Any, columns: int) -> None:
    dtype = np.int32 if kernel is of_some else np.float32
    x = (np.random.default_rng(columns).standard_normal((5, columns)) * 3).astype(dtype)
    expected = np.zeros(12, dtype)
    kernel.interpret(x, expected)
    _, (_, found) = emulated(kernel, x, np.zeros(12, dtype), orders=(0, 1))
    np.testing.assert_array_equal(found, expected)


@pto.jit
def of_rows_that_end(x, s):
    rows, columns = x.shape
    with pl.incore():
        total, count = 0.0, 0
        for i in range(rows):
            for j in range(0, columns, 3):
                if x[i, j] > 8:
                    break
                if x[i, j] < 0:
                    continue
                total += x[i, j]
                count += 1
            if total > 1000:
                break
            s[i] = total
        s[7] += total * count


@pto.jit
def up_to_a_zero(x, s):
    with pl.incore():
        most = -100
        for k in range(pl.cast(s[1], pl.i64)):
            last = x[0, k] == 0
            most = max(most, x[0, k])
            if last:
                break
        s[0] = most


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("columns", [1, 40, 2100])
def test_loops_that_fold_may_leave_iterations_and_end(dtype: type, columns: int) -> None:
    x = (np.random.default_rng(columns).standard_normal((5, columns)) * 3).astype(dtype)
    expected = np.zeros(8, dtype)
    of_rows_that_end.interpret(x, expected)
    _, (_, found) = emulated(of_rows_that_end, x, np.zeros(8, dtype), orders=(0, 1, 5))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("columns", [1, 300, 1030])
def test_no_thread_reads_outside_of_a_tensor_beyond_what_ends_a_loop(columns: int) -> None:
    x = np.random.default_rng(columns).integers(1, 99, (1, columns)).astype(np.int32)
    x[0, -1] = 0
    _, (_, found) = emulated(up_to_a_zero, x, np.array([0, 5000], np.int32), orders=(0, 5))
    assert found[0] == x.max()


@pto.jit
def far_apart(x, s):
    with pl.incore():
        total = 0
        for i in range(0, x.shape[0], 5_000_000):
            total += x[i] + 1
        s[0] = total


def test_elements_that_are_far_apart_are_folded_once() -> None:
    _, (_, found) = emulated(far_apart, np.zeros(20_000_000, np.int8), np.zeros(1, np.int64), orders=(0,))
    assert found[0] == 4  # 859 * 5_000_000 is 32704 in 32 bits: an iteration more


@pto.jit
def recurrence(x, s):
    with pl.incore():
        for i in range(1, x.shape[0]):
            s[i] = s[i - 1] * 0.5 + x[i]


@pto.jit
def stopped(x, s):
    with pl.incore():
        total = 0.0
        for i in range(x.shape[0]):
            if total > 1:
                break
            total += x[i]
        s[0] = total


@pto.jit
def two_that_meet(x, s):
    with pl.incore():
        a, b = 0.0, 0.0
        for i in range(x.shape[0]):
            a += x[i]
            b += a
        s[0] = b


@pytest.mark.parametrize("kernel", [recurrence, stopped, two_that_meet])
def test_sequential_loops_whose_iterations_need_each_other_are_refused(kernel: Any) -> None:
    vector = pto.spec((None,), pl.f32)
    with pytest.raises(pto.TargetError, match="a sequential loop over elements"):
        kernel.compile(vector, vector, target="cuda")
