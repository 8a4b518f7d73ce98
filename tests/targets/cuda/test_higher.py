# SPDX-License-Identifier: MIT
"""Tiles of more than two axes: each operation against the interpreter, at extents around powers of two, and partial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler


def reduced(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    pl.store(t - pl.max(t, axis=0, keepdims=True) + pl.sum(t, axis=1, keepdims=True), [0, 0, 0], o)


def without_axes(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    line = pl.sum(t, axis=(0, 1)) + pl.min(pl.max(t, axis=2), axis=0)[0] + pl.sum(t, axis=(0, 2))[0]
    pl.store(t * pl.max(t, axis=1)[0, 0] + line, [0, 0, 0], o)


def places(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    where = pl.argmax(t, axis=1, keepdims=True) + pl.argmin(t, axis=0, keepdims=True) * 8
    pl.store(t + where.to(pl.f32) + pl.argmax(t), [0, 0, 0], o)


def turned(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    there = pl.exp(pl.transpose(t, (2, 0, 1)) * 0.25)
    pl.store(pl.transpose(there, (1, 2, 0)) + t, [0, 0, 0], o)


def scanned(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    down = pl.cumsum(t, axis=0) - pl.cumsum(t, axis=1, reverse=True)
    pl.store(down + pl.sort(t) + pl.associative_scan(t, 1, pl.maximum), [0, 0, 0], o)


def broadcast(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    row = pl.load(x, [0, 0, 0], [1, 1, 32])
    plane = pl.load(x, [0, 0, 0], [1, 16, 32])
    column = pl.load(x, [0, 0, 0], [4, 1, 1])
    pl.store((t + row) * column - plane * pl.arange(0, 32, dtype=pl.f32), [0, 0, 0], o)


def moved(x, y, o):
    t = pl.load(x, [0, 0, 0], [2, 4, 8])
    wide = pl.concat([t, pl.flip(t, 1)], axis=0)[1:3, :, 2:7]
    pl.store(pl.reshape(pl.stack([t[0, :, :], t[1]], axis=1), [8, 4, 2]), [0, 0, 0], o)
    pl.store(pl.concat([wide, wide[:, :, 1:4]], axis=2), [0, 8, 2], o)
    pl.store(pl.broadcast_to(t[:, :, 3:4], [2, 4, 5]) * t[1, 2, 3], [2, 0, 20], o)


def looked_up(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    pl.store(pl.gather(t, pl.argsort(t), 2), [0, 0, 0], o)
    planes = pl.clip(pl.argsort(pl.load(x, [0, 0, 0], [1, 4, 4])), 0, x.shape[0] - 1)
    pl.store(x[planes[0, 0], :, :][:, 0:4, 3:9] + x[0, :, :][planes[0], :][0, 0:4, 3:9], [0, 0, 0], o)


def four(x, y, o):
    t = pl.reshape(pl.load(x, [0, 0, 0], [2, 4, 8]), [2, 2, 2, 8])
    total = pl.sum(pl.transpose(t, (0, 2, 1, 3)), axis=2) + pl.max(t, axis=(0, 3), keepdims=True)[0]
    pl.store(total, [0, 0, 0], o)


def changed(x, y, o):
    t = pl.load(x, [0, 0, 0], [4, 16, 32])
    for k in pl.range(x.shape[0]):
        if k == 1:
            t = t * 2.0 - pl.load(x, [0, 0, 0], [4, 16, 32])
        else:
            t = pl.maximum(t, -t)
    pl.store(t, [1, 0, 0], o)
    pl.atomic_add(o, [0, 0, 1], t)


def padded(x, y, o):
    t = pl.load(x, [1, 2, 3], [4, 16, 32], pad=0.5)
    pl.store(t + pl.sum(t, axis=1, keepdims=True), [0, 0, 0], o)


OPERATIONS = [reduced, without_axes, places, turned, scanned, broadcast, moved, looked_up, four, changed, padded]
WHOLE = (without_axes, moved, looked_up, four)  # which take apart what has to be whole for that


def check(fn: Callable[..., Any], shape: tuple[int, ...], order: int, dtype: Any = np.float32) -> None:
    rng = np.random.default_rng(sum(shape))
    x = rng.permutation(np.arange(np.prod(shape)) % 61 - 30).reshape(shape).astype(dtype)
    y = rng.integers(-3, 4, shape).astype(dtype)
    expected = np.zeros((5, 20, 36), dtype)
    with np.errstate(all="ignore"):
        pto.jit(fn).interpret(x, y, expected)
    _, (*_, actual) = emulated(pto.jit(fn), x, y, np.zeros_like(expected), orders=(order,))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("shape", [(4, 16, 32), (3, 15, 33), (4, 17, 31), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("fn", OPERATIONS, ids=lambda f: f.__name__)
def test_operations_mean_what_they_mean_elsewhere(fn: Callable[..., Any], shape: tuple[int, ...]) -> None:
    shape = (4, 16, 32) if fn in WHOLE else shape
    check(fn, shape, sum(shape) % 3)


@pytest.mark.parametrize("dtype", ["f8", "i1", "u2", "i4", "i8", "f2", "?"])
def test_elements_of_any_type(dtype: str) -> None:
    x = (np.arange(2 * 5 * 9) % 7 - 3).reshape(2, 5, 9).astype(dtype)

    @pto.jit
    def kernel(x, o):
        t = pl.load(x, [0, 0, 0], [2, 8, 9])
        pl.store(pl.transpose(pl.concat([t, pl.flip(t, 2)], axis=0), (2, 1, 0)), [0, 0, 0], o)
        pl.store(pl.transpose(pl.max(t, axis=1, keepdims=True), (2, 1, 0)), [0, 5, 0], o)

    expected = np.zeros((9, 6, 4), dtype)
    kernel.interpret(x, expected)
    _, (_, actual) = emulated(kernel, x, np.zeros_like(expected), orders=(1,))
    np.testing.assert_array_equal(actual, expected)


def batches(x, y, o):
    for b in pl.range(0, x.shape[0], 4, parallel=True):
        product = pl.load(x, [b, 0, 0], [4, 32, 48]) @ pl.load(y, [b, 0, 0], [4, 48, 16])
        pl.store(product * 2.0, [b, 0, 0], o)


def batches_that_meet(x, y, o):
    for b in pl.range(0, x.shape[0], 4, parallel=True):
        product = pl.dot(pl.load(x, [b, 0, 0], [4, 32, 48]), pl.load(y, [b, 0, 0], [4, 48, 16]))
        pl.store(product - pl.max(product, axis=0, keepdims=True), [b, 0, 0], o)


@pytest.mark.parametrize("count", [8, 7])
@pytest.mark.parametrize(("fn", "kind"), [(batches, "fragments"), (batches_that_meet, "rows")])
def test_batched_products(fn: Callable[..., Any], kind: str, count: int) -> None:
    """A block for each product where they do not meet: on tensor cores for 16-bit floats."""
    rng = np.random.default_rng(count)
    for dtype in (np.float32, np.float16):
        x = rng.integers(-4, 5, (count, 32, 48)).astype(dtype)
        y = rng.integers(-4, 5, (count, 48, 16)).astype(dtype)
        expected = np.zeros((count, 32, 16), np.float32)
        pto.jit(fn).interpret(x, y, expected)
        compiled = pto.jit(fn).compile(x, y, expected, target="cuda")
        (kernel,) = compiled._kernel.built.program.host.kernels.values()
        assert (kernel.kind, kernel.tensor_cores) == (kind, kind == "fragments" and dtype == np.float16)
        _, (*_, actual) = emulated(pto.jit(fn), x, y, np.zeros_like(expected), orders=(count % 3,))
        np.testing.assert_array_equal(actual, expected)


def test_a_block_has_one_line_of_leading_axes() -> None:
    """Softmax of batches of matrices: batches and rows do not depend on each other, and need no shared memory."""

    @pto.jit
    def softmax(x, y):
        for b in pl.range(0, x.shape[0], 4, parallel=True):
            t = pl.exp(pl.load(x, [b, 0, 0], [4, 32, 64]))
            pl.store(t / pl.sum(t, axis=2, keepdims=True), [b, 0, 0], y)

    x = np.random.default_rng(0).standard_normal((8, 32, 64)).astype(np.float32)
    compiled = softmax.compile(x, x, target="cuda")
    (kernel,) = compiled._kernel.built.program.host.kernels.values()
    assert len(kernel.chain) == 2 and not kernel.shared
    _, (_, actual) = emulated(softmax, x, np.zeros_like(x))
    np.testing.assert_allclose(actual, np.exp(x) / np.exp(x).sum(2, keepdims=True), rtol=1e-5)


def test_extents_that_do_not_agree_are_found() -> None:
    @pto.jit
    def kernel(x, y, o):
        pl.store(pl.load(x, [0, 0, 0], [2, 4, 8]) + pl.load(y, [0, 0, 0], [2, 4, 8]), [0, 0, 0], o)

    x, y = np.ones((2, 4, 8), np.float32), np.ones((2, 3, 8), np.float32)
    with pytest.raises(pto.LaunchError, match="4 and 3 valid elements"):
        emulated(kernel, x, y, np.zeros_like(x), orders=(0,))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 16, 33), (4, 15, 31)], ids=str)
def test_elements_are_scattered_and_of_those_for_one_place_the_last_stays(axis: int, shape: tuple[int, ...]) -> None:
    @pto.jit
    def kernel(x, at, o):
        pl.scatter(pl.load(x, [0, 0, 0], [4, 16, 33]), pl.load(at, [0, 0, 0], [4, 16, 33]), axis, o)

    rng = np.random.default_rng(axis)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    at = rng.integers(0, (5, 16, 40)[axis] // 2, shape).astype(np.int32)
    o = np.zeros((5, 16, 40), np.float32)[::-1, :, :]  # with a negative stride
    expected = o.copy()
    kernel.interpret(x, at, expected)
    emulated(kernel, x, at, o, orders=(axis,))
    np.testing.assert_array_equal(o, expected)


def test_one_long_line_is_scattered() -> None:
    @pto.jit
    def kernel(x, at, o):
        pl.scatter(pl.load(x, [0], [4096]), pl.load(at, [0], [4096]), 0, o)

    rng = np.random.default_rng(0)
    x = np.arange(4000, dtype=np.float32)
    for places in (1, 700, 5000):
        at = rng.integers(0, places, 4000) * (2 if places == 700 else 1)
        expected = np.zeros(5000, np.float32)
        expected[at] = x
        _, (*_, o) = emulated(kernel, x, at, np.zeros_like(expected), orders=(1,))
        np.testing.assert_array_equal(o, expected)


@pytest.mark.parametrize("known", [True, False])
def test_rows_that_become_blocks_of_a_tensor_whose_extents_are_known(known: bool) -> None:
    @pto.jit
    def kernel(x, y, o):
        rows = pl.reshape(pl.load(y, [0, 0, 0], [4, 2, 8]), [8, 8])
        pl.store(pl.reshape(pl.load(x, [0, 0], [8, 8]) + rows, [8, 1, 8]), [0, 0, 0], o)

    x, y = np.arange(64, dtype=np.float32).reshape(8, 8), np.ones((4, 2, 8), np.float32)
    o = np.zeros((8, 1, 8), np.float32)
    specs = [pto.spec(a.shape if known else (None,) * a.ndim, pl.f32) for a in (x, y, o)]
    emulate(kernel.compile(*specs, target="cuda"), x, y, o)
    np.testing.assert_array_equal(o[:, 0], x + 1)


@pytest.mark.parametrize("shape", [(1, 8, 16), (8, 1, 16), (8, 16, 1), (1, 1, 16)], ids=str)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_lines_along_axes_of_extent_1(axis: int, shape: tuple[int, ...]) -> None:
    @pto.jit
    def kernel(x, o):
        t = pl.load(x, [0, 0, 0], list(shape))
        folded = pl.reduce(t, axis, lambda p, q: p + q, keepdims=True)
        pl.store(pl.cumsum(t, axis=axis, reverse=True) + pl.sum(t, axis=axis, keepdims=True) - folded, [0, 0, 0], o)

    x = (np.arange(np.prod(shape)) % 5 - 2).reshape(shape).astype(np.float32)
    kernel.interpret(x, expected := np.zeros_like(x))
    _, (_, o) = emulated(kernel, x, np.zeros_like(x), orders=(1,))
    np.testing.assert_array_equal(o, expected)


def test_columns_that_are_reduced_leave_rows_as_the_last_axis() -> None:
    @pto.jit
    def kernel(x, o):
        t = pl.load(x, [0, 0, 0], [1, 8, 16])
        pl.store(pl.sum(t, axis=2) + pl.reduce(t, 2, lambda p, q: p + q) + pl.argmax(t, axis=2), [0, 0], o)

    x = (np.arange(128) % 7 - 2).reshape(1, 8, 16).astype(np.float32)
    kernel.interpret(x, expected := np.zeros((1, 8), np.float32))
    _, (_, o) = emulated(kernel, x, np.zeros_like(expected), orders=(1,))
    np.testing.assert_array_equal(o, expected)


@pto.jit
def running_sums(x, index, y):
    for i in pl.range(x.shape[0], parallel=True):
        y[i] = pl.cumsum(pl.gather(x[i], index[i], 2), axis=0)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8])
def test_short_lines_that_threads_exchange_take_little_shared_memory(dtype: Any) -> None:
    """Lines of two elements, of which shared memory has as many as the tile has others."""
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, (1, 2, 64, 64)).astype(dtype)
    index = rng.integers(0, 64, x.shape).astype(np.int32)
    _, (_, _, found) = emulated(running_sums, x, index, np.zeros_like(x), orders=(0,))
    np.testing.assert_array_equal(found, np.cumsum(np.take_along_axis(x, index, 3), axis=1, dtype=dtype))
