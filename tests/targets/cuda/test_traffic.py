# SPDX-License-Identifier: MIT
"""What kernels do to memory, counted on the simulator: sectors of global memory for what is wanted of them, conflicts of
banks of shared memory, and private memory, which nothing should need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.bench_kernels import kernel

from .simulation import SimulatedDevice, Traffic, needs_simulation, simulate, traffic

pytestmark = needs_simulation
RNG = np.random.default_rng(17)


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins where a device's allocations do: at a multiple of 256 bytes."""
    room = np.empty(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    out = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return aligned(RNG.standard_normal(shape).astype(np.float32).astype(dtype))


def numbers(most: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    return aligned(RNG.integers(0, most, shape).astype(dtype))


class Shares(NamedTuple):
    """used: bytes that are wanted of those that are moved; conflicts: accesses of banks of those that there must be."""

    used: float
    conflicts: float
    instructions: int


def counted(fn: Any, *args: Any) -> Shares:
    """What a call does."""
    traffic()
    simulate(fn.compile(*args, target="cuda"), *args)
    return shares_of(traffic())


def shares_of(all_of_it: Traffic) -> Shares:
    by = {space: [a for a in all_of_it.accesses if a.space == space] for space in ("global", "shared", "local")}
    assert not [a for a in by["local"] if ".param" not in a.instruction]  # parameters of calls are registers
    used = sum(a.wanted for a in by["global"]) / sum(a.moved for a in by["global"])
    least = sum(a.least for a in by["shared"])
    return Shares(used, sum(a.moved for a in by["shared"]) / least if least else 1, all_of_it.instructions)


BRAIN = pl.bf16.numpy
SQUARE = (64, 128)
BENCHMARKS: dict[str, Callable[[], list[np.ndarray]]] = {
    "attention.attention": lambda: [floats(1, 128, 64) for _ in range(4)],
    "attention.attention_causal": lambda: [floats(1, 128, 64) for _ in range(4)],
    "elementwise.vector_add": lambda: [floats(8192) for _ in range(3)],
    "elementwise.gelu_tanh": lambda: [floats(16, 512) for _ in range(2)],
    "elementwise.bias_relu": lambda: [floats(16, 512), floats(512), floats(16, 512)],
    "grids.stencil5": lambda: [floats(34, 130), floats(32, 128)],
    "grids.conv3x3": lambda: [floats(4, 34, 64), floats(3, 3, 64, 64), floats(2, 32, 64)],
    "loops.affine": lambda: [floats(8192) for _ in range(2)],
    "loops.uneven_nest": lambda: [floats(16, 256) for _ in range(2)],
    "loops.small_rows": lambda: [floats(64, 64) for _ in range(2)],
    "loops.column_first": lambda: [floats(64, 64) for _ in range(2)],
    "matrix.matmul": lambda: [floats(64, 64), floats(64, 128), floats(64, 128)],
    "matrix.matmul_bias_gelu": lambda: [floats(64, 64), floats(64, 128), floats(128), floats(64, 128)],
    "reductions.column_softmax": lambda: [floats(64, 2048) for _ in range(2)],
    "reductions.vector_sum": lambda: [floats(16384), floats(1)],
    "rows.softmax": lambda: [floats(2, 2048) for _ in range(2)],
    "rows.layer_norm": lambda: [floats(2, 2048), floats(2048), floats(2048), floats(2, 2048)],
    "rows.cross_entropy": lambda: [floats(4, 2048), numbers(2048, 4), floats(4)],
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_kernels_move_what_they_want(name: str) -> None:
    used, conflicts, _ = counted(kernel(name), *BENCHMARKS[name]())
    assert used > 0.83 and conflicts < 1.05


def test_results_of_16_bits_fill_the_sectors_that_a_product_stores() -> None:
    """Four lanes have 4 bytes each of two blocks of 8 columns, and exchange these: they store 32 bytes of a row."""
    a, b, c = floats(128, 128, dtype=BRAIN), floats(128, 256, dtype=BRAIN), floats(128, 256, dtype=BRAIN)
    used, conflicts, instructions = counted(kernel("matrix.matmul_bf16"), a, b, c)
    assert used == 1 and conflicts == 1 and instructions < 35_000


@pto.jit
def counts(x: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        pl.atomic_add(y, [x[i]], 1)


def test_blocks_update_small_tensors_in_shared_memory() -> None:
    x, y = numbers(300, 20_000), numbers(1, 300)
    used, _, instructions = counted(counts, x, y)
    assert (y == np.bincount(x, minlength=300)).all()
    assert instructions < 40 * 20_000 / 32 and used > 0.95  # beside what is read, rows of bins


def test_threads_that_update_elements_of_large_tensors_have_an_iteration_each() -> None:
    x, y = numbers(30_000, 20_000), numbers(1, 30_000)
    used, _, instructions = counted(counts, x, y)
    assert (y == np.bincount(x, minlength=30_000)).all()
    assert instructions < 30 * 20_000 / 32 and used > 0.2  # the places are scattered


@pto.jit
def gradient(dw: pl.Tensor, rows: pl.Tensor, dy: pl.Tensor):
    for i in pl.range(rows.shape[0], parallel=True):
        pl.atomic_add(dw, [rows[i], 0], pl.load(dy, [i, 0], [1, 256]))


@pto.jit
def dequantised(q: pl.Tensor, scale: pl.Tensor, y: pl.Tensor):
    for i in pl.range(q.shape[0], parallel=True):
        y[i, :] = pl.cast(q[i, :], pl.f32) * scale[i]


@pto.jit
def rotated(x: pl.Tensor, cos: pl.Tensor, sin: pl.Tensor, y: pl.Tensor):
    """Rotary embeddings of neighbours."""
    for i in pl.range(x.shape[0], parallel=True):
        a, b = x[i, 0::2], x[i, 1::2]
        y[i, 0::2] = a * cos[i, :] - b * sin[i, :]
        y[i, 1::2] = b * cos[i, :] + a * sin[i, :]


def test_lanes_are_neighbours_where_runs_would_be_apart() -> None:
    """Atomic updates, stores of more bytes than were loaded, and every other element (of which half is not wanted)."""
    assert counted(gradient, floats(50, 256), numbers(50, 64), floats(64, 256)).used > 0.9
    assert counted(dequantised, numbers(100, 16, 1024, dtype=np.int8), floats(16), floats(16, 1024)).used > 0.85
    halves = floats(8, 256), floats(8, 256)
    assert counted(rotated, floats(8, 512), *halves, floats(8, 512)).used > 0.6


def test_the_simulator_counts_what_is_wasted() -> None:
    """Columns: every lane wants 4 bytes of a sector of 32."""

    @pto.jit
    def columns(x: pl.Tensor, y: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            y[i] = x[i, 0]

    used, _, _ = counted(columns, floats(256, 32), floats(256))
    assert used == pytest.approx(8 / 36)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """How many blocks each launch has, and how many instructions its warps execute."""
    found: list[tuple[int, int]] = []
    launch = SimulatedDevice.launch

    def watched(self: SimulatedDevice, version: Any, grid: tuple[int, int, int], *args: Any) -> None:
        traffic()
        launch(self, version, grid, *args)
        found.append((grid[0], traffic().instructions))

    monkeypatch.setattr(SimulatedDevice, "launch", watched)
    return found


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """The macros of each kernel that is prepared."""
    found: list[dict[str, int]] = []
    prepare = SimulatedDevice.prepare

    def watched(self: SimulatedDevice, kernel: Any, spread: Any, shared: int) -> Any:
        found.append(dict(spread.defines))
        return prepare(self, kernel, spread, shared)

    monkeypatch.setattr(SimulatedDevice, "prepare", watched)
    return found


def test_sums_of_vectors_have_enough_blocks_for_large_devices(launches: list[tuple[int, int]]) -> None:
    """And the threads of one block merge what these have."""
    x, total = floats(1 << 19), floats(1)
    simulate(kernel("reductions.vector_sum").compile(x, total, target="cuda"), x, total)
    np.testing.assert_allclose(total, x.sum(dtype=np.float64), rtol=1e-4, atol=0.05)
    (blocks, summing), (one, merging) = launches
    assert (blocks, one) == (256, 1)
    assert summing < (1 << 14) * 100 and merging < 4000  # 32 elements take less than 100 instructions


def test_the_threads_of_a_block_share_what_functions_merge(launches: list[tuple[int, int]]) -> None:
    """In the order of the parts: this function does not commute."""

    @pto.jit
    def merged(x: pl.Tensor, out: pl.Tensor):
        acc = pl.reduction(init=(1.0, 0.0), combine=lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))
        for i in pl.range(x.shape[0], chunk=1):
            acc.update(0.99 + 0.01 * x[i], x[i])
        out[0], out[1] = acc.value

    x, out, expected = floats(1300), floats(2), np.zeros(2, np.float32)
    simulate(merged.compile(x, out, target="cuda"), x, out)
    merged.interpret(x, expected)
    np.testing.assert_allclose(out, expected, rtol=1e-3)
    (blocks, _), (one, merging) = launches
    assert (blocks, one) == (1300, 1)
    assert merging < 32 * 1300  # each warp would take ten times as many instructions for all of them


def test_loops_that_exchange_axes_access_whole_rows_of_both_tensors() -> None:
    @pto.jit
    def transposed(x: pl.Tensor, y: pl.Tensor):
        with pl.incore():
            for i in range(x.shape[0]):
                for j in range(x.shape[1]):
                    y[j, i] = x[i, j] * 2.0

    x, y = floats(128, 64), floats(64, 128)
    used, conflicts, instructions = counted(transposed, x, y)
    assert (y == 2 * x.T).all()
    assert used == 1 and conflicts == 1 and instructions < 24 * y.nbytes * 2 / 128


def test_numbers_of_rows_do_not_keep_threads_from_having_runs(versions: list[dict[str, int]]) -> None:
    """Of a tensor of one column no thread has runs of columns, whatever its strides are."""

    @pto.jit
    def normalised(x: pl.Tensor, mean: pl.Tensor, scale: pl.Tensor, y: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            y[i, :] = (x[i, :] - mean[i, 0]) * scale[i, 0]

    x, mean, scale, y = floats(16, 512), floats(16, 1), floats(16, 1), floats(16, 512)
    assert counted(normalised, x, mean, scale, y).used > 0.95
    np.testing.assert_array_equal(y, (x - mean) * scale)
    assert [v["V"] for v in versions] == [4]
