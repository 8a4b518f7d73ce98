# SPDX-License-Identifier: MIT
"""Tiles that in-core functions return inside of parallel loops stay in the kernel, on both kinds of devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.ascend.harness import check_interpreted, ordered

from .harness import emulated, needs_compiler


@pto.incore
def row_max(x):
    return pl.max(x, axis=1, keepdims=True)


@pto.incore
def exp_sub(x, m):
    return pl.exp(x - m)


@pto.incore
def doubled(x, r):
    t = pl.load(x, [r, 0], [4, 64])
    return t * 2.0, pl.max(t, axis=1, keepdims=True)


@pto.jit
def phases(x, y):
    """The softmax of the specification, a function per phase."""
    for t in pl.range(0, (x.shape[0] + 3) // 4, chunk=2):
        r0 = t * 4
        r1 = min(r0 + 4, x.shape[0])
        tile = pl.slice(x, [r1 - r0, x.shape[1]], [r0, 0])
        for phase in pl.range(3):
            if phase == 0:
                m = row_max(tile)
            elif phase == 1:
                e = exp_sub(tile, m)
            else:
                pl.store(e / pl.sum(e, axis=1, keepdims=True), ..., y[r0:r1, :])


@pto.jit
def two_results(x, y):
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t, m = doubled(x, r)
        pl.store(t - m, [r, 0], y)


@pto.jit
def returned_again(x, y):
    """A tile that one function returns and another takes, twice."""
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t, m = doubled(x, r)
        e = exp_sub(t, m)
        pl.store(exp_sub(e, m) + e, [r, 0], y)


@pto.incore
def halved(x):
    return x * 0.5


@pto.jit
def in_loops_and_branches(x, y):
    """Tiles that loops and branches inside of a parallel loop hand to functions, and get from them."""
    for r in pl.range(0, x.shape[0], 4, parallel=True):
        t, m = doubled(x, r)
        for k in range(3):
            t = exp_sub(halved(t), m)
            if k > 0:
                m = halved(m)
        while pl.max(t) > 0.5:
            t = halved(t)
        pl.store(t - m, [r, 0], y)


KERNELS = (phases, two_results, returned_again, in_loops_and_branches)


def close(got: np.ndarray, wanted: np.ndarray, err_msg: str = "") -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=err_msg)


@needs_compiler
@pytest.mark.parametrize("rows", [8, 11])
@pytest.mark.parametrize("fn", KERNELS, ids=lambda fn: fn.__name__)
def test_one_kernel_does_it_all(fn: Callable[..., Any], rows: int) -> None:
    x, y = np.random.default_rng(0).standard_normal((rows, 64), np.float32), np.zeros((rows, 64), np.float32)
    wanted = y.copy()
    fn.interpret(x, wanted)  # type: ignore[attr-defined]
    close(emulated(fn, x, y)[1][1], wanted)
    text = fn.compile(x, y, target="cuda").ir("kernels")  # type: ignore[attr-defined]
    assert text.count("tstore") == 1 and "tile=true" not in text


@pto.jit
def rows_that_meet(x, z, y, s):
    """Loads between operations, outside of loops."""
    with pl.incore():
        t = pl.load(x, [0, 0], [16, 64])
        u = pl.exp(t) * s
        v = pl.load(z, [0, 0], [16, 64])
        r = pl.sum(u, axis=1, keepdims=True)
        if s > 0.25:
            v = v + 1.0
        pl.store(u / r + v, [0, 0], y)


@pto.jit
def parts_that_meet(x, z, y, s):
    y[0:16] = x[0:16] * s + z[0:16]


@needs_compiler
@pytest.mark.parametrize("fn", [rows_that_meet, parts_that_meet], ids=lambda fn: fn.__name__)
def test_a_load_after_an_operation_belongs_to_the_same_kernel(fn: Callable[..., Any]) -> None:
    x, z = np.random.default_rng(0).standard_normal((2, 16, 64), np.float32)
    for s in (0.125, 0.5):
        wanted = np.zeros_like(x)
        fn.interpret(x, z, wanted, s)  # type: ignore[attr-defined]
        close(emulated(fn, x, z, np.zeros_like(x), s)[1][2], wanted)
    text = fn.compile(x, z, wanted, s, target="cuda").ir("kernels")  # type: ignore[attr-defined]
    assert text.count("tstore") == 1


@pto.incore
def scaled(x, y, s):
    pl.store(pl.load(x, [0, 0], [4, 16]) * s, [0, 0], y)


@pto.incore
def element(x, places, k, y):
    y[0, 0] = x[places[k], 0]


@pto.jit
def called_often(x, y, s):
    """Of different parts, by unrolled loops and calls, one of which is of a part of other extents."""
    for k in pl.static_range(4):
        scaled(x[4 * k : 4 * k + 4], y[4 * k : 4 * k + 4], s)
    scaled(x[16:20], y[16:20], s + 1.0)
    scaled(x[20:24, :8], y[20:24], s)
    for k in pl.static_range(2):
        with pl.incore():
            y[24 + k, :] = x[24 + k, :] + 1.0


@needs_compiler
def test_calls_of_one_function_are_launches_of_one_kernel() -> None:
    x = np.random.default_rng(0).standard_normal((26, 16), np.float32)
    wanted = np.zeros_like(x)
    called_often.interpret(x, wanted, 2.0)
    close(emulated(called_often, x, np.zeros_like(x), 2.0)[1][1], wanted)
    compiled = called_often.compile(x, wanted, 2.0, target="cuda")
    kernels = [name for name in compiled.sources if name.endswith(".cu")]
    assert kernels == ["scaled.cu", "called_often_incore_0.cu"]
    assert compiled.ir("kernels").count("CALL @scaled(") == 6


@needs_compiler
def test_a_failure_of_a_kernel_that_is_called_from_several_places_has_its_own_place() -> None:
    @pto.jit
    def fails(x, places, y):
        element(x, places, 0, y)
        element(x, places, 1, y)

    x = np.zeros((4, 4), np.float32)
    for places in ([0, 9], [9, 0]):
        with pytest.raises(pto.BoundsError) as error:
            emulated(fails, x, np.array(places), x.copy(), orders=(0,))
        assert "y[0, 0] = x[places[k], 0]" in str(error.value)


@needs_compiler
def test_a_load_after_a_store_sees_what_is_stored() -> None:
    @pto.jit
    def stored_between(x, y):
        with pl.incore():
            t = pl.load(x, [0, 0], [8, 32])
            pl.store(t * 2.0, [0, 0], y)
            u = pl.load(y, [0, 0], [8, 32])
            pl.store(u + t, [0, 0], x)

    x, y = np.random.default_rng(0).standard_normal((2, 8, 32), np.float32)
    _, (changed, doubled_) = emulated(stored_between, x, y)
    close(doubled_, x * 2)
    close(changed, x * 3)


@needs_compiler
def test_a_tile_is_loaded_again_where_what_was_written_is_another_tensor() -> None:
    @pto.jit
    def by_way_of(x, y):
        between = pl.empty((16, 64), pl.f32)
        with pl.incore():
            t = pl.load(x, [0, 0], [16, 64])
            pl.store(t * 2.0, [0, 0], between)
            pl.store(pl.load(between, [0, 0], [16, 64]) + t, [0, 0], y)

    x = np.random.default_rng(0).standard_normal((16, 64), np.float32)
    close(emulated(by_way_of, x, np.zeros_like(x))[1][1], x * 3)
    kernels = [n for n in by_way_of.compile(x, x.copy(), target="cuda").sources if n.endswith(".cu")]
    assert kernels == ["by_way_of_incore_0.cu", "by_way_of_incore_0_1.cu"]


@needs_compiler
def test_ascend_does_the_same(tmp_path: Path) -> None:
    spec = pto.spec((None, 64), pl.f32)
    programs = ordered({fn.__name__: (fn, (spec, spec)) for fn in KERNELS}, tmp_path)
    x = np.random.default_rng(0).standard_normal((11, 64), np.float32)
    for fn in KERNELS:
        check_interpreted(programs, fn, fn.__name__, {"x": x}, {"y": np.zeros_like(x)}, close)


def test_a_tensor_that_a_parallel_loop_makes_is_refused_with_a_way_out() -> None:
    @pto.jit
    def makes(x, y):
        for r in pl.range(0, x.shape[0], 4, parallel=True):
            t, total = doubled(x, r)[0], pl.zeros([4, 64], pl.f32)
            for _ in range(3):
                total = exp_sub(t, total)
            pl.store(total, [r, 0], y)

    spec = pto.spec((None, 64), pl.f32)
    with pytest.raises(pto.TargetError, match=r"`with pl.incore\(\):`"):
        makes.compile(spec, spec, target="cuda")


@pto.jit
def loaded_before_a_loop(x: pl.Tensor, y: pl.Tensor, n):
    with pl.incore():
        t = pl.load(x, [0, 0], [16, 16])
        for _ in pl.range(n):
            for j in pl.range(2, parallel=True):
                pl.store(pl.load(x, [8 * j, 0], [8, 16]) + 1.0, [8 * j, 0], x)
            pl.store(t + pl.load(y, [0, 0], [16, 16]), [0, 0], y)
        pl.store(t + pl.load(y, [0, 0], [16, 16]), [0, 0], y)


def test_what_a_host_loop_changes_was_loaded_before() -> None:
    """Kernels of the loop overwrite it: each iteration would have read what the one before has left."""
    x, y = np.arange(256, dtype=np.float32).reshape(16, 16), np.zeros((16, 16), np.float32)
    _, (changed, found, _) = emulated(loaded_before_a_loop, x, y, 3)
    np.testing.assert_array_equal(changed, x + 3)
    np.testing.assert_array_equal(found, 4 * x)


@needs_compiler
def test_a_tensor_and_a_part_of_it_are_written_one_after_the_other() -> None:
    """The parameters of one kernel must not share memory."""

    @pto.jit
    def in_order(x: pl.Tensor[[40], pl.i32], y: pl.Tensor[[40], pl.i32]):
        t = pl.max(x, axis=0, keepdims=True)
        y[33:35] = t
        y[...] = t + y[34]
        y[:2] = t

    @pto.jit
    def in_place(y: pl.Tensor[[40], pl.i32]):
        t = pl.max(y, axis=0, keepdims=True)
        y[33:35] = t
        y[...] = t + 1

    x, y = np.arange(40, dtype=np.int32), np.zeros(40, np.int32)
    _, (_, got) = emulated(in_order, x, y)
    np.testing.assert_array_equal(got, [39, 39, *[78] * 38])
    _, (got,) = emulated(in_place, x)
    np.testing.assert_array_equal(got, np.full(40, 40))


@pto.incore
def first_row(tile):
    return tile[0, :]


@needs_compiler
def test_an_in_core_function_returns_a_row_of_a_tile() -> None:
    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor):
        for k in pl.range(x.shape[0], parallel=True):
            tile = pl.load(x, [k, 0], [1, 8])
            pl.store(first_row(tile), [8 * k], y)

    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    _, (_, y) = emulated(kernel, x, np.zeros(24, np.float32))
    np.testing.assert_array_equal(y, x.ravel())
