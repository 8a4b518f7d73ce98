# SPDX-License-Identifier: MIT
"""What threads write and others read or write: in one iteration of a loop and the next, in one kernel and the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler

pytestmark = needs_compiler


@pto.jit
def moved_down(x: pto.f32[9, 40]):
    with pl.incore():
        for _ in pl.range(3):
            pl.store(pl.load(x, [0, 0], [8, 40]) + 1.0, [1, 0], x)


def test_an_iteration_reads_what_other_threads_wrote_in_the_one_before() -> None:
    x = np.repeat(np.arange(9, dtype=np.float32)[:, None] * 10, 40, axis=1)
    _, (found,) = emulated(moved_down, x)
    np.testing.assert_array_equal(found[:, 3], [0, 1, 2, 3, 13, 23, 33, 43, 53])


@pto.jit
def rows_over_rows(x: pto.f32[8, 40], y: pto.f32[24, 40]):
    with pl.incore():
        t = pl.load(x)
        for k in pl.range(0, 6, 1):
            pl.store(t + k, [k, 0], y)


def test_an_iteration_writes_over_what_other_threads_wrote_in_the_one_before() -> None:
    x, y = np.zeros((8, 40), np.float32), np.zeros((24, 40), np.float32)
    _, (_, found) = emulated(rows_over_rows, x, y)
    np.testing.assert_array_equal(found[:, 0], [*range(6), *[5] * 7, *[0] * 11])


@pto.jit
def apart(x: pto.f32[8, 40], y: pto.f32[24, 40]):
    with pl.incore():
        t = pl.load(x)
        for k in pl.range(0, 24, 8):
            pl.store(t + k, [k, 0], y)


def test_stores_that_do_not_overlap_need_no_barrier() -> None:
    compiled = apart.compile(pto.spec((8, 40), pl.f32), pto.spec((24, 40), pl.f32), target="cuda")
    (kernel,) = [text for name, text in compiled.sources.items() if name.endswith(".cu")]
    assert "synchronise" not in kernel
    x, y = np.zeros((8, 40), np.float32), np.ones((24, 40), np.float32)
    _, (_, found) = emulated(apart, x, y)
    np.testing.assert_array_equal(found[:, 7], np.repeat([0, 8, 16], 8))


@pto.jit
def turned_between(x, y, z):
    with pl.incore():
        t = (pl.load(x) * 2.0).T
        pl.store(pl.load(x) + 1.0, [0, 0], y)
    with pl.incore():
        pl.store(t, [0, 0], z)


def test_a_turned_tile_keeps_its_extents_from_one_kernel_to_the_next() -> None:
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    y, z = np.zeros((3, 5), np.float32), np.zeros((5, 3), np.float32)
    _, (_, _, found) = emulated(turned_between, x, y, z)
    np.testing.assert_array_equal(found, 2 * x.T)


@pto.jit
def places(x, y):
    t = pl.load(x)
    pl.store(pl.argmax(t, axis=0, keepdims=True).to(pl.i32), [0], y)
    pl.store(pl.argmin(t, axis=0, keepdims=True).to(pl.i32), [1], y)


def test_the_place_of_the_extreme_of_nothing_is_zero() -> None:
    for values, wanted in ([], [0, 0]), ([2, -1, 7, 7], [2, 1]):
        y = np.full(2, 9, np.int32)
        _, (_, found) = emulated(places, np.array(values, np.float32), y)
        np.testing.assert_array_equal(found, wanted)


@pto.jit
def grown(x, y, n):
    v = pl.load(x, [0, 0], [8, 40])
    for _ in pl.range(0, n):
        v = v + 1.0
    w = pl.load(x, [8, 0], [8, 40])
    pl.store(v + w, [0, 0], y)


@pto.jit
def grown_in_kernels(x, y, n):
    v = pl.load(x, [0, 0], [8, 40])
    for _ in pl.range(0, n):
        with pl.incore():
            v = v + 1.0
    w = pl.load(x, [8, 0], [8, 40])
    pl.store(v + w, [0, 0], y)


@pto.jit
def chosen(x, y, n):
    v = pl.load(x, [0, 0], [8, 40])
    if n > 0:
        with pl.incore():
            v = pl.load(x, [0, 0], [8, 40]) + n
    w = pl.load(x, [8, 0], [8, 40])
    pl.store(v + w, [0, 0], y)


@pytest.mark.parametrize("kernel", [grown, grown_in_kernels, chosen])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_tile_that_a_loop_or_branch_changes_before_another_kernel_reads_it(kernel: Any, n: int) -> None:
    x = np.repeat(np.arange(16, dtype=np.float32)[:, None], 40, axis=1)
    _, (_, found, _) = emulated(kernel, x, np.zeros((8, 40), np.float32), n)
    np.testing.assert_array_equal(found, x[:8] + x[8:] + n)


@pto.jit
def read_in_a_branch(x, y, n):
    with pl.incore():
        first = pl.load(x, [0, 0], [8, 40])
        if n > 0:
            for i in pl.range(0, 16, 8, parallel=True):
                pl.store(first + pl.load(x, [i, 0], [8, 40]), [i, 0], y)


@pytest.mark.parametrize("n", [0, 1])
def test_a_tile_that_is_read_in_a_branch_alone_is_not_forgotten_before(n: int) -> None:
    x = np.repeat(np.arange(16, dtype=np.float32)[:, None], 40, axis=1)
    _, (_, found, _) = emulated(read_in_a_branch, x, np.zeros_like(x), n)
    np.testing.assert_array_equal(found, (np.tile(x[:8], (2, 1)) + x) * n)


@pto.jit
def gram(x, y):
    t = pl.load(x, [0, 0], [8, 40])
    pl.store(pl.sum(t @ t.T, axis=1), [0], y)


def test_both_axes_of_a_tile_may_be_the_same() -> None:
    x = np.arange(320, dtype=np.float32).reshape(8, 40) % 7
    _, (_, found) = emulated(gram, x, np.zeros(8, np.float32))
    np.testing.assert_array_equal(found, (x @ x.T).sum(1))


@pto.jit
def updated_rows(x, y, v, w, s, t):
    with pl.incore():
        row = pl.load(v, [0, 0], [1, 40])
        number = s[0]
        pl.store(pl.load(x, [0, 0], [64, 40]) * row + number, [0, 0], y)
        pl.store(row + 1.0, [0, 0], w)
        t[0] = number + 2.0


def test_elements_that_several_threads_read_are_not_written_before_when_memory_is_shared() -> None:
    x = np.ones((64, 40), np.float32)
    v, s = np.arange(40, dtype=np.float32).reshape(1, 40), np.full(1, 3, np.float32)
    compiled = updated_rows.compile(x, x.copy(), v, v, s, s, target="cuda")
    for order in (0, 1, 5):
        y, row, number = np.zeros_like(x), v.copy(), s.copy()
        emulate(compiled, x, y, row, row, number, number, order=order)
        np.testing.assert_array_equal(y, np.repeat(v + 3, 64, 0))
        np.testing.assert_array_equal(row, v + 1)
        assert number == 5


WIDE = pl.Tensor[[96, 512], pl.f32]


def rows_that_overlap(x: WIDE, y: WIDE):
    """The tile is divided among blocks, which have no order."""
    with pl.incore():
        t = pl.load(x, [0, 0], [64, 512])
        pl.store(t, [0, 0], y)
        pl.store(t * 2.0, [1, 0], y)


def rows_of_a_view_that_overlap(x: WIDE, y: WIDE):
    with pl.incore():
        t = pl.load(x, [0, 0], [64, 512])
        for k in pl.range(2):
            pl.store(t * (k + 1.0), [0, 0], y[k:])


def rows_over_rows_of_parts(x: WIDE, y: WIDE):
    with pl.incore():
        t = pl.load(x, [0, 0], [64, 512])
        for k in pl.range(6):
            pl.store(t + k, [k, 0], y)


def rows_in_turn(x: WIDE, y: WIDE, n):
    with pl.incore():
        t = pl.load(x, [0, 0], [64, 512])
        k = 0
        while k < n:
            pl.store(t + k, [k, 0], y)
            k += 3


def updated_in_parts(x: WIDE, y: WIDE):
    """Columns of each row of `y` are those of the same part, whatever the row."""
    with pl.incore():
        t = pl.load(x, [0, 0], [64, 512])
        for k in pl.range(3):
            pl.atomic_add(y, [k, 0], t)


def in_whole_steps(x: WIDE, y: WIDE):
    """Every 48th row belongs to one part, whichever store writes it."""
    with pl.incore():
        t = pl.load(x, [0, 0], [48, 512])
        for k in pl.range(2):
            pl.store(t + k, [k * 48, 0], y)
        pl.store(t * 2.0, [48, 0], y)


@pytest.mark.parametrize(
    "kernel",
    [rows_that_overlap, rows_of_a_view_that_overlap, rows_over_rows_of_parts, rows_in_turn, updated_in_parts, in_whole_steps],
)
def test_what_parts_write_they_write_alone(kernel: Any) -> None:
    x = np.arange(96, dtype=np.float32)[:, None] + np.zeros((1, 512), np.float32)
    y = np.ones_like(x)
    more = (7,) if kernel is rows_in_turn else ()
    wanted = y.copy()
    pto.jit(kernel).interpret(x, wanted, *more)
    _, (_, found, *_) = emulated(pto.jit(kernel), x, y, *more)
    np.testing.assert_array_equal(found, wanted)


def test_tiles_are_still_divided_where_stores_go_in_whole_steps() -> None:
    kernels = pto.jit(in_whole_steps).compile(*[pto.spec((96, 512), pl.f32)] * 2, target="cuda").sources
    assert "part += " in kernels["in_whole_steps_incore_0.cu"] or "PTO_NEXT(part" in kernels["in_whole_steps_incore_0.cu"]
    (source,) = [text for name, text in pto.jit(rows_that_overlap).compile(
        *[pto.spec((96, 512), pl.f32)] * 2, target="cuda").sources.items() if name.endswith(".cu")]  # fmt: skip
    assert "x.data + part," in source, "by columns: rows are written by several"


@pto.jit
def product_stored_twice(x: pl.Tensor[[16, 200], pl.f32], w: pl.Tensor[[200, 200], pl.f32], y: pl.Tensor[[18, 201], pl.f32]):
    p = x @ w
    y[0:16, 0:200] = p
    pl.store(p * 2.0, [2, 1], y)


def test_products_that_are_stored_at_two_places_overlap_in_the_order_of_the_program() -> None:
    rng = np.random.default_rng(0)
    x, w, y = (rng.integers(-3, 4, s).astype(np.float32) for s in ((16, 200), (200, 200), (18, 201)))
    wanted = y.copy()
    wanted[:16, :200] = x @ w
    wanted[2:, 1:] = 2 * x @ w
    _, (_, _, found) = emulated(product_stored_twice, x, w, y)
    np.testing.assert_array_equal(found, wanted)


@pto.jit
def a_row_of_it(x: WIDE, y: WIDE):
    """Views of a tensor are made on the host, where they are two tensors."""
    with pl.incore():
        t = pl.load(x, [0, 0], [32, 40])
        y[2, 0:40] = t[5]
        pl.store(t * 2.0, [1, 0], y)
        y[2, 0:40] = t[4]


@pto.jit
def rows_of_two_views(x: pl.Tensor[[9, 40], pl.f32], y: pl.Tensor[[9, 40], pl.f32]):
    with pl.incore():
        y[0:8] = pl.load(x, [0, 0], [8, 40])
        y[1:9] = pl.load(x, [0, 0], [8, 40]) + 100.0


@pto.jit
def read_before_a_loop(x: pl.Tensor[[9, 40], pl.f32], y: pl.Tensor[[9, 40], pl.f32], n):
    t = y[:-1] - 1.0
    for _ in pl.range(n):
        y[3] = x[0]
        y[:8, :40] = t


@pytest.mark.parametrize(("kernel", "more"), [(a_row_of_it, ()), (rows_of_two_views, ()), (read_before_a_loop, (2,))])
def test_a_kernel_may_write_a_tensor_and_use_a_part_of_it(kernel: Any, more: tuple[int, ...]) -> None:
    rows = 96 if kernel is a_row_of_it else 9
    x, y = np.random.default_rng(0).standard_normal((2, rows, 512 if rows == 96 else 40), np.float32)
    wanted = y.copy()
    kernel.interpret(x, wanted, *more)
    _, (_, found, *_) = emulated(kernel, x, y, *more)
    np.testing.assert_array_equal(found, wanted)
