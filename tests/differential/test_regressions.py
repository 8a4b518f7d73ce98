# SPDX-License-Identifier: MIT
"""Small programs on which two evaluations once disagreed."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.differential.compare import agree

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_an_augmented_run_time_number_leaves_a_forever_loop() -> None:
    def kernel(x, n):
        k = n
        t = pl.load(x)
        while True:
            k += 1
            if k > 5:
                break
            t = t + 1.0
        pl.store(t, [0, 0], x)

    for n in (0, 3, 9):
        agree(kernel, X, n)


def test_a_number_changed_under_a_run_time_branch_leaves_a_forever_loop() -> None:
    def kernel(x, n):
        k = 0
        i = n
        while True:
            i += 1
            if i % 2 == 0:
                k += 1
            if k > 3:
                break
        x[0, 0] = i

    for n in (0, 3):
        agree(kernel, X, n)


def test_a_method_takes_extents_and_axes_one_by_one() -> None:
    def kernel(x, y):
        t = pl.load(x, [0, 0], [3, 4]).reshape(4, 3).transpose(1, 0)
        pl.store(t.reshape([3, 4]) + t, [0, 0], y)

    agree(kernel, X, np.zeros((3, 4), np.float32))


def test_an_index_that_was_computed_from_tensors_takes_rows() -> None:
    def kernel(x, index):
        return x[pl.clip(index[:] + index, 0, 2), :]

    agree(kernel, X, np.array([0, 1, 5, -3], np.int32))


def test_a_store_of_a_row_beside_an_empty_tile_is_done() -> None:
    def kernel(x, u, out, at):
        row = pl.load(u, [0, 0], [1, 4]) * 2.0
        pl.store(row, [0, 0], out)
        pl.store(pl.load(x, [at, 0], [4, 4]) + row, [1, 0], out)

    for at in (0, 2, 3):
        agree(kernel, X, X[:1] + 1, np.zeros((5, 4), np.float32), at)


def test_a_returned_view_is_clipped_at_the_border() -> None:
    def kernel(x, n):
        view = x[n : n + 2, 1:]
        return view[:, 0], view.T, view.shape[0], len(view), pl.sum(view)

    for n in (0, 2, 3):
        agree(kernel, X, n)


def test_axes_of_extent_one_come_and_go_in_an_incomplete_tile() -> None:
    def kernel(x, out, at, n):
        rows, cols = x.shape
        t = pl.load(x, [at, 0], [4, cols])
        tall = pl.expand_dims(t, 1)
        pl.store(pl.squeeze(tall * 2.0, 1) + pl.reshape(tall, [4, cols]), [0, 0], out)
        turned = pl.reshape(pl.load(x, [at, 0], [n, cols]).T, [cols, 1, n])
        pl.store(pl.squeeze(turned, 1).T, [4, 0], out)

    for at in (0, 1, 3):
        agree(kernel, X, np.zeros((8, 4), np.float32), at, 4)
    agree(kernel, X, np.zeros((8, 4), np.float32), 1, 2)


def test_a_converted_or_cut_view_holds_what_memory_held() -> None:
    def kernel(x, y):
        same = x[0:2, :].to(pl.f32)
        plain = pl.clip(x[2], -100.0, 100.0) * 1.0
        joined = pl.concat([x[0:1, :]], axis=0)
        wide = pl.broadcast_to(x[1:2, :], [2, 4])
        flipped = pl.flip(x[0:2, :], 0)
        column = pl.expand_dims(x[0], 1)
        pl.store(pl.full([3, 4], 9.0, pl.f32), [0, 0], x)
        pl.store(same + flipped + wide, [0, 0], y)
        pl.store(joined * plain + pl.squeeze(column, 1), [2, 0], y)

    agree(kernel, X, np.zeros((3, 4), np.float32))


def test_a_generated_tile_fits_any_extent_in_another_scope() -> None:
    def kernel(x, y, at, n):
        rows, cols = x.shape
        with pl.incore():
            zeros = pl.zeros([4, cols], pl.f32)
            noise = pl.rand(3, n, [4, cols]) + zeros * 2.0
            steps = pl.reshape(pl.arange(n, n + 4), [4, 1])
        for r in pl.range(0, n):
            with pl.incore():
                pl.store(pl.load(x, [at, 0], [4, cols]) + noise * r + steps, [r, 0], y)

    for at in (0, 1, 3):
        agree(kernel, X, np.zeros((8, 4), np.float32), at, 3)


def test_a_number_that_a_scope_changes_starts_with_what_it_was() -> None:
    def kernel(x, w, y):
        rows, cols = x.shape
        k = 0
        for i in range(rows):
            for j in range(cols):
                k += x[i, j]
        y[5] = k
        for r in pl.range(0, rows, 2, chunk=1):
            pl.store(pl.load(w, [r], [2]) * 2, [r], y)

    agree(kernel, X.astype(np.uint16), np.arange(3, dtype=np.uint16), np.zeros(8))


def test_a_number_is_carried_by_a_scope_in_a_loop() -> None:
    def kernel(x, y, n):
        k = 0.0
        for r in pl.range(n):
            with pl.incore():
                k = k * 2.0 + pl.sum(pl.load(x, [r, 0], [1, 4]))
                y[r] = k

    agree(kernel, X, np.zeros(3), 3)


def test_partial_results_of_a_loop_that_leaves_its_scope_are_made_before_it() -> None:
    def kernel(x, y, n):
        for i in range(n):
            with pl.incore():
                y[i] = x[i, 0] * 2.0
                total = 1.0
                for j in pl.range(0, i + 2, chunk=2):
                    total += x[i, j]
                y[i + 4] = total

    for n in (0, 1, 2):
        agree(kernel, X, np.zeros(8), n, rtol=1e-6, threads=(1, 2))


def test_a_reduction_over_nothing_has_no_partial_results() -> None:
    def kernel(x, y, n):
        total = 3.0
        for i in pl.range(0, chunk=5, combine="loop"):
            if n > i:
                total = total + x[i, 0]
        y[0] = total
        for i in pl.range(n, parallel=True):
            for j in pl.range(0, chunk=2, combine="tree"):
                y[1] += x[i, j]

    agree(kernel, X, np.zeros(2), 2, rtol=1e-6)


def test_an_empty_loop_with_aligned_chunks_reduces_nothing() -> None:
    def kernel(x, y, n):
        total = 1.0
        for i in range(3):
            for j in pl.range(0, i - n, 3, chunk=2, chunk_policy="aligned", combine="loop"):
                total = total + x[i, j]
                y[1] += x[j, i]
        y[0] = total

    for n in (0, 2, 9):
        agree(kernel, X, np.zeros(2), n, rtol=1e-6)


def test_a_kept_reshape_of_a_reshape_lies_in_memory_as_both() -> None:
    def kernel(x, y, z, n):
        t = pl.load(x, [0, 0], [3, 1]) * 2.0
        product = pl.prod(t, axis=1)
        wide = pl.load(x, [0, 0], [3, 4])
        turned = t.T
        longest = pl.max(turned, axis=1)
        flat = pl.squeeze(t, 1)
        column = pl.reshape(flat, [3, 1])
        for _ in range(1, n):
            product = product + product
            wide = wide - column
            flat = flat - product
        pl.store(longest, [0], y)
        pl.store(flat, [0], y)
        pl.store(column, [0, 0], z)

    agree(kernel, X, np.zeros(3, np.float32), np.zeros((3, 1), np.float32), 3)


def test_a_tile_assigned_behind_a_break_or_continue_keeps_its_value_there() -> None:
    def left(x, y, n):
        t = pl.load(x)
        for i in pl.range(n):
            new = pl.clip(t * 2.0, -50.0, 50.0)
            if i == 1:
                break
            t = new
        pl.store(t, [0, 0], y)

    def skipped(x, y, n):
        t = pl.load(x)
        i = 0
        while i < n:
            i += 1
            new = pl.load(x) + t
            if i % 2 == 0:
                continue
            t = new * 0.5
        pl.store(t, [0, 0], y)

    for n in (0, 1, 2, 5):
        agree(left, X, np.zeros((3, 4), np.float32), n)
        agree(skipped, X, np.zeros((3, 4), np.float32), n)


def test_a_tile_spread_over_a_region_is_clipped_as_any_other() -> None:
    def kernel(x, y, z):
        t = pl.load(x, [0, 0], [4, 8])
        y[...] = pl.sum(t, axis=0, keepdims=True)
        z[:, 1:3] = pl.max(t, axis=1, keepdims=True)

    for rows, cols in ((4, 8), (3, 5), (1, 1)):
        x = np.arange(float(rows * cols)).reshape(rows, cols)
        agree(kernel, x, np.zeros((2, cols)), np.zeros((rows, 4)))


def test_a_scope_tells_the_extents_of_a_variable_that_it_assigns_beside_others() -> None:
    def kernel(x, y, n):
        with pl.incore():
            t = pl.load(x, [0, 0], [1, 2])
            product = pl.dot(t, t.T)
        with pl.incore():
            if 3 <= n < 5:
                t = t - t
                product = product + product
                kept = product
            else:
                kept = product
            pl.store(pl.clip(kept, -8, 8).to(pl.f64), [0, 0], y)
        with pl.incore():
            wide = pl.broadcast_to(t, [5, 2])
            pl.store(pl.clip(wide, -8, 8).to(pl.f64), [0, 0], y)

    for n in (0, 3):
        agree(kernel, X.astype(np.int32) + 1, np.zeros((7, 4)), n, threads=(1, 2))


def test_a_parallel_loop_of_orchestration_updates_tensors_in_the_scopes_inside_it() -> None:
    def elements(x, y, n):
        for _ in pl.range(3, parallel=True):
            with pl.incore():
                for i in pl.range(n):
                    for j in pl.range(n):
                        y[i, j] += x[0, i]

    def tiles(x, y, n):
        for p in pl.range(3, chunk=2):
            with pl.incore():
                y[0, 0] += x[p, n]
                pl.store(pl.load(y, [1, 0], [2, 4]) + pl.load(x, [0, 0], [2, 4]), [1, 0], y)

    for kernel in (elements, tiles):
        agree(kernel, X, np.ones((3, 4), np.float32), 3, threads=(1, 2))


@pytest.mark.parametrize("debug", [False, True])
def test_a_view_of_a_row_that_is_not_there_is_refused(debug: bool) -> None:
    def row(x, n):
        return pl.load(x[n, :]) + 1

    def column(x, n):
        s = 0.0
        for v in (x[:, n], x[1:, n]):
            s += pl.sum(pl.load(v))
        return s

    for fn, inside, outside, axis in ((row, 2, 3, 0), (column, 3, 4, 1)):
        kernel = pto.jit(fn, debug=debug)
        np.testing.assert_array_equal(kernel(X, inside), kernel.interpret(X, inside))
        for at in (outside, 1 << 40):
            with pytest.raises(pto.BoundsError, match=f"index {at} is outside axis {axis} of {X.shape[axis]} elements"):
                kernel(X, at)
            with pytest.raises(pto.BoundsError):
                kernel.interpret(X, at)


def test_a_padded_tile_assigned_to_whole_rows_ends_where_they_do() -> None:
    def kernel(x, y):
        for i in pl.range(0, x.shape[0], chunk=2):
            with pl.incore():
                y[i : i + 1, :] = pl.load(x, [i, 0], [1, 16], pad=0.0) + 1.0

    agree(kernel, X, np.zeros_like(X))


@pytest.mark.parametrize("shape", [(0, 0, 33), (0, 5, 33), (5, 0, 33), (0, 0, 0)])
def test_the_axes_of_a_tensor_without_elements_change_places(shape: tuple[int, ...]) -> None:
    @pto.jit
    def turned(x: pl.Tensor[list(shape), pl.f32]):
        return pl.transpose(x, (2, 0, 1))

    assert turned(np.zeros(shape, np.float32)).shape == (shape[2], *shape[:2])
