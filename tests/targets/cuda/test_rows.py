# SPDX-License-Identifier: MIT
"""Kernels of tiles spread over teams of threads: reductions, valid extents, layouts, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import elementwise, rows
from pto_jit.device_kernel import emulate
from pto_jit.targets.cuda.devices import EmulatedDevice
from pto_jit.targets.cuda.spreads import choose

from .harness import emulated, needs_compiler, of_the_emulation

pytestmark = needs_compiler
RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("shape", [(70, 33), (2, 5001)])
def test_softmax_of_rows_of_any_length(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    _, (_, y) = emulated(rows.softmax, x, np.full_like(x, 7))
    np.testing.assert_allclose(y, softmax_of(x), rtol=2e-6, atol=1e-9)


def test_softmax_in_place() -> None:
    x = normal(5, 100)
    expected = softmax_of(x)
    emulate(rows.softmax.compile(x, x, target="cuda"), x, x)
    np.testing.assert_allclose(x, expected, rtol=2e-6, atol=1e-9)


def test_norms_and_losses_agree_with_numpy() -> None:
    x, weight, bias = normal(9, 200), normal(200), normal(200)
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide**2).mean(axis=1, keepdims=True) + rows.EPSILON)
    _, (*_, y) = emulated(rows.rms_norm, x, weight, np.zeros_like(x), orders=(0, 1))
    np.testing.assert_allclose(y, wide * scale * weight, rtol=2e-5, atol=1e-6)
    centred = wide - wide.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + rows.EPSILON)
    _, (*_, y) = emulated(rows.layer_norm, x, weight, bias, np.zeros_like(x), orders=(0, 1))
    np.testing.assert_allclose(y, centred * scale * weight + bias, rtol=2e-5, atol=1e-5)
    labels = RNG.integers(0, 200, 9).astype(np.int32)
    _, (*_, loss) = emulated(rows.cross_entropy, x, labels, np.zeros(9, np.float32), orders=(0, 1))
    expected = np.log(np.exp(wide).sum(axis=1)) - wide[np.arange(9), labels]
    np.testing.assert_allclose(loss, expected, rtol=2e-5, atol=2e-5)


@pto.jit
def turned(x: pl.Tensor, y: pl.Tensor, largest: pl.Tensor):
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [r, 0], [16, 48])
        pl.store((t * 2).T, [0, r], y)
        pl.store(pl.max(t, axis=1, keepdims=True).T, [0, r], largest)


def test_transposes_of_tiles() -> None:
    x = normal(37, 41).astype(np.float16)
    _, (_, y, largest) = emulated(turned, x, np.zeros((41, 37), np.float16), np.zeros((1, 37), np.float16))
    np.testing.assert_array_equal(y, (x * 2).T)
    np.testing.assert_array_equal(largest[0], x.max(axis=1))


def test_a_tile_loaded_outside_the_loops_is_read_in_them() -> None:
    x, bias = normal(20, 70), normal(70)
    _, (*_, out) = emulated(elementwise.bias_relu, x, bias, np.zeros_like(x))
    np.testing.assert_array_equal(out, np.maximum(x + bias, 0))


@pto.jit
def scaled(x: pl.Tensor, y: pl.Tensor, s):
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, 8, chunk=2):
            pl.store(pl.load(x, [r, 0], [8, cols]) * s, [r, 0], y)


@pytest.mark.parametrize("dtype", [np.float16])
def test_tensors_of_any_layout_and_alignment(dtype: type) -> None:
    whole = (RNG.standard_normal((40, 161)) * 50).astype(dtype)
    for x in (whole[:37], whole[1:37, 3:100], whole[::2, :97], whole.T[:, 1:37], whole[:, ::3]):
        y = np.zeros(x.shape, dtype)
        emulate(scaled.compile(x, y, 2, target="cuda"), x, y, 2)
        np.testing.assert_array_equal(y, x * dtype(2))


@pto.jit
def both_ways(x: pl.Tensor, rows_out: pl.Tensor, cols_out: pl.Tensor, all_out: pl.Tensor, index: pl.Tensor):
    n, m = x.shape
    for b in pl.range(0, n, 24, parallel=True):
        t = pl.load(x, [b, 0], [24, 40])
        total = pl.sum(t, axis=1)
        pl.store(total, [b], rows_out)
        pl.store(pl.max(t, axis=0, keepdims=True), [b // 24, 0], cols_out)
        all_out[b // 24] = pl.sum(pl.abs(t)) + pl.min(t)
        pl.store(pl.argmax(t, axis=1), [b], index)
        pl.store(pl.argmin(t, axis=0), [n + b // 24 * 40], index)


@pytest.mark.parametrize("shape", [(50, 33)])
def test_reductions_along_both_axes_look_at_the_valid_part_only(shape: tuple[int, int]) -> None:
    n, m = shape
    x = np.round(normal(n, m) * 3)
    tiles = -(-n // 24)
    args = (x, np.full(n, 7, np.float32), np.full((tiles, m), 7, np.float32), np.full(tiles, 7, np.float32),
            np.full(n + 40 * tiles, -1, np.int32))  # fmt: skip
    _, (_, rows_out, cols_out, all_out, index) = emulated(both_ways, *args)
    np.testing.assert_array_equal(rows_out, x.sum(axis=1))
    np.testing.assert_array_equal(index[:n], x.argmax(axis=1))
    for k in range(tiles):
        part = x[24 * k : 24 * k + 24]
        np.testing.assert_array_equal(cols_out[k], part.max(axis=0))
        assert all_out[k] == np.abs(part).sum() + part.min()
        np.testing.assert_array_equal(index[n + 40 * k : n + 40 * k + m], part.argmin(axis=0))


@pto.jit
def along_rows(x: pl.Tensor, top: pl.Tensor, at: pl.Tensor, total: pl.Tensor):
    n, m = x.shape
    for r in pl.range(0, n, 8, parallel=True):
        t = pl.load(x, [r, 0], [8, m])
        pl.store(pl.max(t, axis=1), [r], top)
        pl.store(pl.argmin(t, axis=1), [r], at)
        pl.store(pl.sum(t, axis=0), [r // 8 * m], total)


@pytest.mark.parametrize("columns", [127, 128, 129, 256, 1025])
def test_rows_that_fill_all_slots_are_not_masked(columns: int) -> None:
    """Numbers below 0, so that a slot of none would be seen; the last rows of the last tile are not there."""
    x = -1 - np.abs(np.round(normal(20, columns) * 5))
    args = (x, np.zeros(20, np.float32), np.zeros(20, np.int32), np.zeros(3 * columns, np.float32))
    _, (_, top, at, total) = emulated(along_rows, *args, orders=(0, 1))
    np.testing.assert_array_equal(top, x.max(axis=1))
    np.testing.assert_array_equal(at, x.argmin(axis=1))
    np.testing.assert_array_equal(total, np.concatenate([x[k : k + 8].sum(axis=0) for k in (0, 8, 16)]))
    source = along_rows.compile(*args, target="cuda").sources["along_rows_incore_0.cu"]
    assert source.count("if (Spread::fills_columns(int(x_d1), Spread::columns(MOST_X_D1)))") == 2
    assert "fills_rows" not in source


@pto.jit
def counted(x: pl.Tensor, sums: pl.Tensor, flags: pl.Tensor):
    n, m = x.shape
    for r in pl.range(n, parallel=True):
        t = pl.load(x, [r, 0], [1, m])
        sums[r] = pl.sum(t)
        flags[r, 0] = pl.any(t > 100)
        flags[r, 1] = pl.all(t >= -128)


def test_small_integers_are_summed_in_wide_ones() -> None:
    x = RNG.integers(-128, 128, (6, 300)).astype(np.int8)
    x[2] = 100
    _, (_, sums, flags) = emulated(counted, x, np.zeros(6, np.int64), np.zeros((6, 2), bool))
    np.testing.assert_array_equal(sums, x.sum(axis=1))
    np.testing.assert_array_equal(flags[:, 0], (x > 100).any(axis=1))
    assert flags[:, 1].all()


@pto.jit
def running(x: pl.Tensor, out: pl.Tensor):
    n, m = x.shape
    for b in pl.range(0, m, 16, parallel=True):
        top = pl.full([1, 16], -100.0, pl.f32)
        total = pl.zeros([1, 16], pl.f32)
        for r in pl.range(0, n):
            t = pl.load(x, [r, b], [1, 16])
            if r % 2 == 0:
                total = total + t
            top = pl.maximum(top, t)
        pl.store(total * 10.0 + top, [0, b], out)


def test_tiles_carried_by_a_sequential_loop_with_a_branch() -> None:
    x = np.round(normal(9, 37) * 4)
    _, (_, out) = emulated(running, x, np.zeros((1, 37), np.float32))
    np.testing.assert_array_equal(out[0], x[::2].sum(axis=0) * 10 + x.max(axis=0))


@pto.jit
def returned(x: pl.Tensor):
    n, m = x.shape
    doubled = pl.empty([n, m], pl.f32)
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.load(x, [r, 0], [1, m]) * 2.0, [r, 0], doubled)
    first = doubled[0, 1]
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.load(doubled, [r, 0], [1, m]) + first, [r, 0], doubled)
    return doubled, first


def test_the_host_makes_tensors_reads_elements_and_returns_both() -> None:
    x = normal(4, 10)
    (doubled, first), _ = emulated(returned, x)
    assert first == x[0, 1] * 2
    np.testing.assert_array_equal(doubled, x * 2 + first)


@pto.jit
def in_two_kernels(x: pl.Tensor, out: pl.Tensor, sums: pl.Tensor, at):
    """A tile that is complete or not is made by one kernel and read by another; its sum decides what that does."""
    with pl.incore():
        t = pl.load(x, [at], [16]) * 2.0
        total = pl.sum(t)
    sums[0] = total
    if total > 0.0:
        with pl.incore():
            pl.store(t + total, [0], out)


def test_tiles_between_kernels_keep_what_is_valid_of_them_and_numbers_are_read_by_the_host() -> None:
    x = np.arange(1, 21, dtype=np.float32)
    for at, valid in ((0, 16), (12, 8), (19, 1), (20, 0)):
        _, (_, out, sums, _) = emulated(in_two_kernels, x, np.full(32, 7, np.float32), np.zeros(1, np.float32), at,
                                        orders=(0,))  # fmt: skip
        tile = x[at : at + 16] * 2
        assert sums[0] == tile.sum()
        np.testing.assert_array_equal(out, np.concatenate([tile + tile.sum(), np.full(32 - valid, 7)]))


@pto.jit
def leading(x: pl.Tensor, out: pl.Tensor, sums: pl.Tensor, best: pl.Tensor, at):
    for b in pl.range(2, parallel=True):
        t = pl.load(x, [at + b, 0, 0], [1, 4, 16])
        pl.store(t + 1.0, [b, 0, 0], out)
        sums[b] = pl.sum(t)
        pl.store(pl.argmax(t, axis=0), [4 * b, 0], best)


@pto.jit
def planes(x: pl.Tensor, sums: pl.Tensor, at):
    for b in pl.range(2, parallel=True):
        sums[b] = pl.sum(pl.reshape(pl.load(x, [at + b, 0, 0], [1, 4, 16]), [4, 16]))


def test_axes_of_extent_1_in_front_may_lie_outside_of_the_tensor() -> None:
    x = normal(3, 4, 16)
    out, best = np.full((2, 4, 16), 7, np.float32), np.full((8, 16), -1, np.int32)
    _, (_, out, sums, best, _) = emulated(leading, x, out, np.ones(2, np.float32), best, 2, orders=(0,))
    np.testing.assert_array_equal(out, np.stack([x[2] + 1, np.full((4, 16), 7, np.float32)]))
    np.testing.assert_allclose(sums, [x[2].sum(dtype=np.float64), 0], rtol=1e-5)
    assert (best[:4] == 0).all()
    _, (_, sums, _) = emulated(planes, x, np.ones(2, np.float32), 1, orders=(0,))
    np.testing.assert_allclose(sums, x[1:].sum((1, 2), dtype=np.float64), rtol=1e-5)
    for run in (planes, lambda *args: emulate(planes.compile(*args, target="cuda"), *args)):
        with pytest.raises(pto.BoundsError, match="reshape of an incomplete tile"):
            run(x, np.ones(2, np.float32), 2)


@pto.jit
def triangle(out: pl.Tensor):
    n, _ = out.shape
    for i in pl.range(n, parallel=True):
        for j in pl.range(i, parallel=True):
            out[i, j] = i + j


def test_inner_loops_that_are_empty_in_the_first_iteration_run_in_others() -> None:
    _, (out,) = emulated(triangle, np.zeros((9, 9), np.int32), orders=(0,))
    np.testing.assert_array_equal(out, np.tril(np.add.outer(np.arange(9), np.arange(9)), -1))


@pto.jit
def padded(x: pl.Tensor, out: pl.Tensor):
    n, m = x.shape
    for r in pl.range(0, n, 4, parallel=True):
        t = pl.load(x, [r, 0], [4, 32], pad=-1.0)
        pl.store(pl.sum(t, axis=1, keepdims=True), [r, 0], out)


def test_padding_counts_as_valid() -> None:
    x = np.abs(np.round(normal(6, 20) * 3))
    _, (_, out) = emulated(padded, x, np.zeros((6, 1), np.float32))
    np.testing.assert_array_equal(out[:, 0], x.sum(axis=1) - 12)


@pto.jit
def positions(out: pl.Tensor):
    n, m = out.shape
    for r in pl.range(0, n, 8, parallel=True):
        row = r + pl.reshape(pl.arange(0, 8), [8, 1])
        col = pl.reshape(pl.arange(0, 32, 2), [1, 16])
        pl.store(pl.where(col < row, row * 100 + col, -1), [r, 0], out)


def test_generated_tiles_stand_as_rows_and_columns() -> None:
    _, (out,) = emulated(positions, np.zeros((13, 16), np.int32))
    r, c = np.arange(13)[:, None], np.arange(0, 32, 2)[None]
    np.testing.assert_array_equal(out, np.where(c < r, r * 100 + c, -1))


@pto.jit
def shifted(x: pl.Tensor, scale: pl.Tensor, y: pl.Tensor, m: pl.Tensor):
    """Tiles larger than a block holds: their rows do not depend on each other, the columns of the second ones do."""
    for r in pl.range(0, x.shape[0], 64, parallel=True):
        t = pl.load(x, [r, 0], [64, 300]) * pl.load(scale, [r, 0], [64, 1])
        pl.store(pl.exp(t - pl.max(t, axis=1, keepdims=True)), [r, 0], y)
        pl.store(pl.sum(t, axis=1), [r], m)


def test_tiles_too_large_for_a_block_are_divided_where_lines_are_independent() -> None:
    x, scale = normal(70, 300), normal(70, 1)
    y, m = np.zeros_like(x), np.zeros(70, np.float32)
    _, (_, _, y, m) = emulated(shifted, x, scale, y, m, orders=(0, 1))
    t = x * scale
    np.testing.assert_allclose(y, np.exp(t - t.max(axis=1, keepdims=True)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(m, t.sum(axis=1), rtol=1e-4, atol=1e-4)
    [kernel] = shifted.compile(x, scale, y, m, target="cuda")._kernel.built.program.host.kernels.values()
    assert len(kernel.chain) == 2 and "Spread::rows(16)" in kernel.source


@pto.jit
def top_rows(x: pl.Tensor, y: pl.Tensor, m: pl.Tensor):
    """What is folded over the columns, for as many rows as there are: how many is a question to the whole tile."""
    for r in pl.range(0, x.shape[0], 64):
        state = pl.reduction(init=pl.zeros([64, 1], pl.f32), combine=pl.maximum)
        for c in pl.range(0, x.shape[1], 300, chunk=1):
            state.update(pl.max(pl.load(x, [r, c], [64, 300]), axis=1, keepdims=True))
        pl.store(state.value, [r, 0], m)
        pl.store(pl.load(x, [r, 0], [64, 300]) - state.value, [r, 0], y)


def test_parts_know_how_much_of_the_whole_tile_is_valid() -> None:
    x = normal(105, 700)
    y, m = np.zeros((105, 300), np.float32), np.zeros((110, 1), np.float32)
    _, (_, y, m) = emulated(top_rows, x, y, m, orders=(0, 1))
    wanted = np.maximum(x.max(axis=1, keepdims=True), 0)
    np.testing.assert_array_equal(m, np.concatenate([wanted, np.zeros((5, 1), np.float32)]))
    np.testing.assert_array_equal(y, x[:, :300] - wanted)
    first = top_rows.compile(x, y, m, target="cuda").sources["top_rows_incore_0.cu"]
    assert "Spread::rows(16)" in first and "_whole = 64" in first


def test_a_thread_holds_fewer_elements_of_each_where_several_rows_are_read() -> None:
    spec = pto.spec((None, None), pl.f32)
    for fn, count, macros in (
        (elementwise.silu_mul, 3, {"TR": 1, "TC": 512, "V": 4}),
        (elementwise.gelu_tanh, 2, {"TR": 1, "TC": 256, "V": 4}),
        (top_rows, 3, {"TR": 4, "TC": 128, "V": 4}),  # one warp after the other has the columns of a row
    ):
        kernel = next(iter(fn.compile(*[spec] * count, target="cuda")._kernel.built.program.host.kernels.values()))
        bounds = {macro: 4096 for macro, _ in kernel.capacities}
        chosen = dict(choose(kernel, bounds, [(4, 2048) if fn is top_rows else (1, 4096)], [99, 99]).defines)
        assert {macro: chosen[macro] for macro in macros} == macros


def test_no_thread_of_a_warp_is_without_columns_where_shorter_runs_give_it_some() -> None:
    spec = pto.spec((None, None), pl.f32)
    (kernel,) = elementwise.gelu_tanh.compile(spec, spec, target="cuda")._kernel.built.program.host.kernels.values()
    found = {n: dict(choose(kernel, {}, [(1, n)], [99, 99]).defines)["V"] for n in (32, 33, 34, 64, 96, 128, 4096)}
    assert found == {32: 1, 33: 1, 34: 2, 64: 2, 96: 4, 128: 4, 4096: 4}


@pto.jit
def symmetric(x: pl.Tensor, y: pl.Tensor):
    t = pl.load(x, [0, 0], [160, 160])
    pl.store(t + pl.transpose(t), [0, 0], y)


def test_a_tile_that_meets_its_transpose_is_not_divided() -> None:
    """Its rows and columns are one axis: parts of both would be blocks of the diagonal."""
    x = normal(160, 160)
    _, (_, y) = emulated(symmetric, x, np.zeros_like(x), orders=(0, 1))
    np.testing.assert_array_equal(y, x + x.T)


def test_tiles_whose_lines_depend_on_each_other_are_not_divided() -> None:
    @pto.jit
    def both(x: pl.Tensor, y: pl.Tensor):
        for r in pl.range(0, x.shape[0], 64, parallel=True):
            t = pl.load(x, [r, 0], [64, 300])
            pl.store(t / pl.sum(t, axis=0, keepdims=True) / pl.sum(t, axis=1, keepdims=True), [r, 0], y)

    @pto.jit
    def read_again(x: pl.Tensor, y: pl.Tensor):
        for r in pl.range(0, x.shape[0], 128, parallel=True):
            pl.store(pl.load(x, [r, 0], [64, 300]), [r, 0], y)
            pl.store(pl.load(y, [r + 1, 0], [64, 300]), [r, 0], x)

    x = normal(64, 300)
    for fn in (both, read_again):
        for kernel in fn.compile(x, x, target="cuda")._kernel.built.program.host.kernels.values():
            assert "Spread::rows(64)" in kernel.source


def test_the_place_of_the_extreme_of_an_incomplete_tile_counts_declared_columns() -> None:
    @pto.jit
    def kernel(x, o):
        o[0] = pl.argmax(pl.load(x, [0, 0], [16, 32]))

    x = np.zeros((17, 31), np.float32)
    x[3, 5] = 1
    _, (_, o) = emulated(kernel, x, np.zeros(1, np.int64))
    kernel.interpret(x, expected := np.zeros(1, np.int64))
    assert o[0] == expected[0] == 3 * 32 + 5


@pto.jit
def scaled_by(x: pl.Tensor, factors: pl.Tensor, y: pl.Tensor):
    n, m = x.shape
    for r in pl.range(0, n, 8, parallel=True):
        for c in pl.range(0, m, 256, parallel=True):
            pl.store(pl.load(x, [r, c], [8, 256]) * pl.load(factors, [c], [256]), [r, c], y)


@of_the_emulation
def test_lanes_have_neighbours_where_runs_cannot_be_accessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By extents that are no multiples of a run, by strides, and by addresses; what has fewer axes is not asked."""
    prepared: list[dict[str, int]] = []
    prepare = EmulatedDevice.prepare
    monkeypatch.setattr(EmulatedDevice, "prepare", lambda self, kernel, spread, shared: (
        prepared.append(dict(spread.defines)), prepare(self, kernel, spread, shared))[1])  # fmt: skip
    wide, factors = normal(12, 516), normal(516)
    for x, run in ((wide[:, :512], 4), (wide[:, 2:514], 2), (wide[:, 1:513], 1), (wide[:, :510:2], 1),
                   (np.ascontiguousarray(wide[:, :510]), 2), (np.ascontiguousarray(wide[:, :509]), 1)):  # fmt: skip
        y, prepared[:] = np.zeros_like(x, order="C"), []
        emulate(scaled_by.compile(x, factors[1 : 1 + x.shape[1]], y, target="cuda"), x, factors[1 : 1 + x.shape[1]], y)
        np.testing.assert_array_equal(y, x * factors[1 : 1 + x.shape[1]])
        assert [defines["V"] for defines in prepared] == [run]
    for columns, run in ((4096, 4), (4094, 2), (4095, 1)):
        x, prepared[:] = normal(2, columns), []
        emulate(rows.softmax.compile(x, np.zeros_like(x), target="cuda"), x, y := np.zeros_like(x))
        np.testing.assert_allclose(y, softmax_of(x), rtol=2e-6, atol=1e-9)
        assert [defines["V"] for defines in prepared] == [run]


@pto.jit
def divided(x: pl.Tensor, by: pl.Tensor, y: pl.Tensor):
    n, m = x.shape
    for r in pl.range(0, n, 4, parallel=True):
        pl.store(pl.load(x, [r, 0], [4, m]) / pl.load(by, [r, 0], [4, 1]), [r, 0], y)


def close_to_the_middle(divisor: int) -> list[int]:
    """Numbers of 24 bits whose quotients by one of as many bits, an odd one, are nearest to the middle of two floats."""
    found: list[int] = []
    for k in (24, 25):  # for quotients between 1 and 2, and below 1
        for rest in range(-7, 8, 2):
            middle = -rest * pow(divisor, -1, 1 << k) % (1 << k)
            for m in (middle, middle + (1 << k)):
                if m & 1 and 1 << 24 <= m < 1 << 25 and 1 << 23 <= (m * divisor + rest) >> k < 1 << 24:
                    found.append((m * divisor + rest) >> k)
    return found


def test_rows_divided_by_one_number_are_rounded_as_divisions_are() -> None:
    """Hard quotients, all exponents, and special values: by divisors within the range of the fast way, and outside."""
    special = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1.17549435e-38, 3.4028235e38,
               -3.4028235e38, 2.0**-20, 2.0**100, 2.0**101, 2.0**-21, 1e30, 1e-30, 9.999999e-25]  # fmt: skip
    columns, lines, divisors = 256, [], []
    for _ in range(150):
        odd = int(RNG.integers(1 << 22, 1 << 23)) * 2 + 1
        hard = np.array(close_to_the_middle(odd), np.float64) * 2.0 ** RNG.integers(-30, 31)
        divisors.append(np.float32(odd * 2.0 ** int(RNG.integers(-43, 60))))
        lines.append(np.resize(np.concatenate([hard, RNG.uniform(1 << 23, 1 << 24, 40)]), columns))
    for divisor in (*special, *RNG.uniform(0.1, 5000, 29)):
        bits = RNG.integers(0, 1 << 32, columns - len(special), dtype=np.uint64).astype(np.uint32)
        lines.append(np.concatenate([np.float32(special), bits.view(np.float32)]))
        divisors.append(np.float32(divisor))
    for divisor in (3.0, 7.77, 12345.678):  # nothing but zeros, which need no division
        lines.append(np.resize([0.0, -0.0, 1.0], columns))
        divisors.append(np.float32(divisor))
    x, by = np.array([np.float32(line) for line in lines]), np.array(divisors, np.float32)[:, None]
    _, (_, _, y) = emulated(divided, x, by, np.zeros_like(x), orders=(0,))
    with np.errstate(all="ignore"):
        exact = x / by
    np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
    numbers = ~np.isnan(exact)
    np.testing.assert_array_equal(y.view(np.uint32)[numbers], exact.view(np.uint32)[numbers])
    source = divided.compile(x, by, y, target="cuda").sources["divided_incore_0.cu"]
    assert source.count("pto::divide_row(") == 1 and " / " not in source


@pto.jit
def scaled_down(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    n, m = x.shape
    for r in pl.range(0, n, parallel=True):
        t = pl.load(x, [r, 0], [1, m])
        pl.store(t / 3.0, [r, 0], y)
        for _ in pl.range(3):
            t = t / pl.max(t, axis=1, keepdims=True) / 4.0 + t / t
        pl.store(t, [r, 0], z)


def test_rows_are_divided_in_place_and_by_constants() -> None:
    x = 1 + np.abs(normal(5, 300))
    _, (_, y, z) = emulated(scaled_down, x, np.zeros_like(x), np.zeros_like(x), orders=(0,))
    t = x
    for _ in range(3):
        t = t / t.max(axis=1, keepdims=True) / np.float32(4) + 1
    np.testing.assert_array_equal(y, x / np.float32(3))
    np.testing.assert_array_equal(z, t)
    source = scaled_down.compile(x, y, z, target="cuda").sources["scaled_down_incore_0.cu"]
    assert source.count("pto::divide_row(") == 2 and " / 4.0f" in source


@pto.jit
def extreme_places(x: pl.Tensor, rows_out: pl.Tensor, cols_out: pl.Tensor, all_out: pl.Tensor):
    for _ in pl.range(1, parallel=True):
        t = pl.load(x, [0, 0], [9, 140])
        pl.store(pl.argmax(t, axis=1), [0], rows_out)
        pl.store(pl.argmin(t, axis=1), [9], rows_out)
        pl.store(pl.argmax(t, axis=0), [0], cols_out)
        pl.store(pl.argmin(t, axis=0), [140], cols_out)
        all_out[0] = pl.argmax(t)
        all_out[1] = pl.argmin(t)


@pytest.mark.parametrize("columns", [140, 133])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint16, np.int64, np.float64])
def test_places_of_extremes_where_nothing_is_better_than_nothing(dtype: type, columns: int) -> None:
    """Rows and columns of the lowest and highest number alone, the first of equals, and the first NaN."""
    if np.issubdtype(dtype, np.floating):
        low, high = -np.inf, np.inf
    else:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = RNG.integers(0, 5, (9, columns)).astype(dtype)
    x[0], x[1], x[:, 3], x[:, 4] = low, high, low, high
    x[2, :50], x[3, 60:] = low, high
    if np.issubdtype(dtype, np.floating):
        x[4, 77], x[4, 99], x[5, 0], x[6:, 21], x[7, 2:] = np.nan, np.nan, np.nan, np.nan, -np.inf
    args = (x, np.full(18, -1, np.int32), np.full(280, -1, np.int32), np.full(2, -1, np.int32))
    _, (_, along_rows_out, along_columns, whole) = emulated(extreme_places, *args, orders=(0, 1))
    np.testing.assert_array_equal(along_rows_out, np.concatenate([x.argmax(axis=1), x.argmin(axis=1)]))
    np.testing.assert_array_equal(along_columns[:columns], x.argmax(axis=0))
    np.testing.assert_array_equal(along_columns[140 : 140 + columns], x.argmin(axis=0))
    places = [k // columns * 140 + k % columns for k in (x.argmax(), x.argmin())]
    assert list(whole) == places
    assert "FirstExtreme" in extreme_places.compile(*args, target="cuda").sources["extreme_places_incore_0.cu"]


@needs_compiler
@pytest.mark.parametrize("shape", [(64, None), (70001, None)])
def test_a_known_number_of_rows_of_unknown_extents(shape: tuple[int, None]) -> None:
    """Each has a block of its own, whatever there are."""

    @pto.jit
    def softmax(x, y):
        e = pl.exp(x - pl.max(x, axis=1, keepdims=True))
        y[...] = e / pl.sum(e, axis=1, keepdims=True)

    spec = pto.spec(shape, pl.f32)
    compiled = softmax.compile(spec, spec, target="cuda")
    short, _ = compiled._kernel.built.program.host.kernels.values()  # and one for rows that do not fit
    assert short.teamed
    if shape[0] < 1000:
        x = np.random.default_rng(3).standard_normal((64, 33), np.float32)
        y, wanted = np.zeros_like(x), np.zeros_like(x)
        emulate(compiled, x, y)
        softmax.interpret(x, wanted)
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
