# SPDX-License-Identifier: MIT
"""Loops of products that iterations or threads leave early, what shares memory with what loops read ahead, and loops of
many or negative iterations."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda.spreads import LARGEST, fit

from .harness import emulated, needs_compiler


def normal(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pto.jit
def skipping(a, b, c, skip):
    for i in pl.range(0, c.shape[0], 64, parallel=True):
        acc = pl.zeros([64, 64], pl.f32)
        for p in pl.range(0, a.shape[1], 64):
            if skip[p // 64] > 0:
                continue
            acc = pl.dot(pl.load(a, [i, p], [64, 64]), pl.load(b, [p, 0], [64, 64]), acc)
        pl.store(acc, [i, 0], c)


@pto.jit
def leaving(a, b, d, c, most):
    for i in pl.range(0, c.shape[0], 64, parallel=True):
        acc = pl.zeros([64, 64], pl.f32)
        for p in pl.range(0, a.shape[1], 64):
            if p >= most[0]:
                break
            acc = pl.dot(pl.load(a, [i, p], [64, 64]), pl.load(b, [p, 0], [64, 64]), acc)
        for p in pl.range(0, a.shape[1], 64):
            acc = pl.dot(pl.load(d, [i, p], [64, 64]), pl.load(d, [p, 0], [64, 64]), acc)
        pl.store(acc, [i, 0], c)


@needs_compiler
def test_iterations_of_a_product_loop_may_be_skipped() -> None:
    a, b, skip = normal(64, 512), normal(512, 64), np.array([0, 1, 0, 1, 1, 0, 0, 0])
    _, (*_, c, _) = emulated(skipping, a, b, np.zeros((64, 64), np.float32), skip)
    kept = np.repeat(skip == 0, 64)
    np.testing.assert_allclose(c, (a.astype(np.float64) * kept) @ b.astype(np.float64), rtol=1e-4, atol=1e-3)


def test_what_is_left_out_has_been_copied_before_memory_is_used_again() -> None:
    spec = pto.spec((None, None), pl.f16)
    sources = leaving.compile(spec, spec, spec, pto.spec((None, None), pl.f32), pto.spec((1,), pl.i64), target="cuda")
    first, second = sources.sources["leaving_incore_0.cu"].split("break;")
    assert "early" not in first and second.index("wait_for_copies<0>") < second.index("Spread::synchronise();  // nobody")


@needs_compiler
@pytest.mark.parametrize("offset", [0, 1])  # 1: rows that asynchronous copies cannot take
def test_a_product_loop_may_be_left(offset: int) -> None:
    a, b, d = normal(256, 256), normal(256, 256), normal(256, 256 + offset)[:, offset:]
    most = np.array([64])
    _, (*_, c, _) = emulated(leaving, a, b, d, np.zeros((64, 64), np.float32), most)
    left, right, wide = (x.astype(np.float64) for x in (a, b, d))
    np.testing.assert_allclose(c, left[:64, :64] @ right[:64, :64] + wide[:64] @ wide[:, :64], rtol=1e-3, atol=1e-2)


@pto.jit
def again(x, w, y):
    for r in pl.range(0, x.shape[0], 32, parallel=True):
        for k in pl.range(0, 3):
            pl.store(pl.dot(pl.load(x, [r, 0], [32, 32]), pl.load(w, [k * 32, 0], [32, 32])).to(x.dtype), [r, 0], y)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_products_in_place(dtype: type) -> None:
    x, w = normal(64, 32, dtype=dtype), normal(96, 32, dtype=dtype) / dtype(6)
    expected = x.copy()
    again(expected, w, expected)
    compiled = again.compile(x, w, x, target="cuda")
    for order in (0, 1, 5):
        mine = x.copy()
        emulate(compiled, mine, w, mine, order=order)
        np.testing.assert_allclose(mine.astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=2e-3)


@pto.jit
def summed_from_below(x, y):
    total, most = 0, 0
    for k in pl.range(-3, x.shape[0] - 3):
        total += x[k + 3]
    for k in pl.range(-8, x.shape[0] - 8, 2):
        most = max(most, x[k + 8])
    y[0] = total
    y[1] = most


@needs_compiler
def test_folds_that_begin_below_zero() -> None:
    x = np.array([9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    _, (_, y) = emulated(summed_from_below, x, np.zeros(2, np.int64))
    assert y.tolist() == [45, 9]


@pto.jit
def far_apart(x, y):
    for i in pl.range(0, 2**32, 2**30, parallel=True):
        pl.store(pl.flip(pl.load(x, [i // 2**30 * 8], [8]), 0), [i // 2**30 * 8], y)


@needs_compiler
def test_strides_of_grids_have_64_bits() -> None:
    x = np.arange(32, dtype=np.int32)
    _, (_, y) = emulated(far_apart, x, np.zeros_like(x))
    assert y.tolist() == x.reshape(4, 8)[:, ::-1].ravel().tolist()


@pto.jit
def running(a, b, c):
    for i in pl.range(0, c.shape[0], 64, parallel=True):
        acc = pl.zeros([64, 512], pl.f32)
        for p in pl.range(0, a.shape[1], 64):
            acc = pl.dot(pl.load(a, [i, p], [64, 64]), pl.load(b, [p, 0], [64, 512]), acc)
        pl.store(pl.cumsum(acc, axis=1), [i, 0], c)


def test_what_threads_exchange_through_counts_as_shared_memory() -> None:
    f16, f32 = pto.spec((None, None), pl.f16), pto.spec((None, None), pl.f32)
    [kernel] = running.compile(f16, f16, f32, target="cuda")._kernel.built.program.host.kernels.values()
    three = kernel.shared_bytes({"STAGES": 3, "WM": 1, "WN": 8, "WARPGROUPS": 0})
    assert three < LARGEST < three + kernel.exchanged_bytes
    _, shared = fit(kernel, {}, [(64, 512)], [10], LARGEST)
    assert shared + kernel.exchanged_bytes <= LARGEST


@needs_compiler
@pytest.mark.parametrize("n", [0, 2, 4])
def test_loops_of_the_host_are_left_and_go_on(n: int) -> None:
    @pto.jit
    def kernel(x, n):
        i = 0
        while True:
            i += 1
            if i == 2:
                continue
            if i >= n:
                break
            with pl.incore():
                pl.store(pl.load(x, [4 * i, 0], [4, x.shape[1]]) * 2.0 + 1.0, [4 * i, 0], x)
        while i < n + 2:
            with pl.incore():
                pl.store(pl.load(x, [i, 0], [1, x.shape[1]]) - 1.0, [i, 0], x)
            i += 1

    x = normal(16, 4, dtype=np.float32)
    expected = x.copy()
    kernel.interpret(expected, n)
    _, (mine, _) = emulated(kernel, x, n)
    np.testing.assert_array_equal(mine, expected)
