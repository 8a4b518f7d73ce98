# SPDX-License-Identifier: MIT
"""The measured limits: that the probes do what they say, never how fast."""

from __future__ import annotations

import numpy as np
import pytest

from pto_jit.bench import limits, probes
from pto_jit.bench.machine import processors_for, without_presets
from pto_jit.bench.native import NativeCode
from pto_jit.bench.record import Reading
from pto_jit.bench.roofline import Roofline
from pto_jit.bench.workload import Work, aligned_empty

CODE = NativeCode()
LANES = CODE.lanes
F32 = np.dtype(np.float32)


def filled(count: int) -> np.ndarray:
    array = aligned_empty((count,), F32)
    array[...] = np.arange(count)
    return array


@pytest.mark.parametrize("streaming", [False, True])
def test_the_copy_probe_copies_every_block(streaming: bool) -> None:
    count = 3
    source = filled(count * probes.block_bytes(LANES) // 4)
    target = aligned_empty(source.shape, F32)
    target.fill(-1.0)
    CODE.function(probes.copy(LANES, streaming=streaming, x86=CODE.x86))(
        target.ctypes.data, source.ctypes.data, count, 2
    )
    assert np.array_equal(source, target)


def test_the_read_probe_combines_every_word() -> None:
    count, words = 5, probes.block_bytes(LANES) // 4
    source = filled(count * words)
    sink = aligned_empty((words,), F32)
    CODE.function(probes.read(LANES))(sink.ctypes.data, source.ctypes.data, count, 3)
    # Read an odd number of times, so that the exclusive or of all readings is that of one.
    assert np.array_equal(sink.view(np.int32), np.bitwise_xor.reduce(source.view(np.int32).reshape(count, words)))


def test_the_arithmetic_probe_does_every_multiply_add() -> None:
    chains = probes.fma_chains(LANES)
    values = np.zeros(1024, np.float32)
    values[: chains * LANES] = np.arange(chains * LANES)
    values[chains * LANES : (chains + 1) * LANES] = 1.0
    values[(chains + 1) * LANES : (chains + 2) * LANES] = 0.5
    out = np.zeros(1024, np.float32)
    CODE.function(probes.fma_f32(LANES))(out.ctypes.data, values.ctypes.data, 4, 5)
    # 4 x 5 times acc = 1 acc + 0.5
    assert np.array_equal(out[: chains * LANES], np.arange(chains * LANES) + 10.0)


@pytest.mark.skipif("avx512bf16" not in CODE.features, reason="no bf16 instruction on this processor")
def test_the_bf16_probe_adds_two_products_per_lane() -> None:
    from pto_jit.bench.workload import dtype_named

    chains = probes.fma_chains(16)
    values = np.zeros(1024, np.float32)
    halves = values.view(dtype_named("bfloat16"))
    start = chains * 32
    halves[start : start + 32] = 2.0
    halves[start + 32 : start + 64] = 3.0
    out = np.zeros(1024, np.float32)
    CODE.function(probes.dot_bf16())(out.ctypes.data, values.ctypes.data, 2, 2)
    assert np.array_equal(out[: chains * 16], np.full(chains * 16, 4 * 12.0, np.float32))


def test_working_sets_grow_from_level_to_level() -> None:
    for threads in (1, 2):
        sizes = [size for _, size in limits.level_sizes(threads)]
        assert sizes == sorted(sizes) and sizes[0] > 0


def reading(name: str, rate: float) -> Reading:
    return Reading(name, "", 1, rate, rate, rate)


def stand_in(function: str, *arguments: object) -> object:
    """A machine of round figures: 100, 800 and 1200 GFLOP/s, 40 GB/s read, 20 and 30 GB/s copied."""
    if function == "arithmetic":
        return [reading("f32 FMA", 100.0), reading("bf16 dot", 800.0), reading("bf16 tiles", 1200.0)]
    return reading(str(arguments[0]), {"read": 40.0, "copy": 20.0, "copy, streaming stores": 30.0}[str(arguments[0])])


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work(10**11, 1, 1), 1.0),
        (Work(10**11, 1, 1, "f32 product"), 0.5),
        (Work(10**11, 1, 1, "bf16"), 1 / 12),
        (Work(0, 15 * 10**9, 15 * 10**9), 1.0),
        (Work(0, 40 * 10**9, 0), 1.0),
        (Work(0, 55 * 10**9, 15 * 10**9), 2.0),
        (Work(10**11, 15 * 10**8, 15 * 10**8), 1.0),
    ],
)
def test_the_least_time_is_that_of_the_scarcest_resource(work: Work, seconds: float) -> None:
    assert Roofline(stand_in).seconds(work, 1) == pytest.approx(seconds)


def test_a_limit_is_measured_once() -> None:
    asked: list[tuple[object, ...]] = []

    def probe(*arguments: object) -> object:
        asked.append(arguments)
        return stand_in(*arguments)  # type: ignore[arg-type]

    roofline = Roofline(probe)
    for _ in range(3):
        roofline.seconds(Work(10, 1 << 20, 1 << 20), 1)
    assert len(asked) == len(set(asked)) == len(roofline.readings) - 2


def test_presets_of_numeric_libraries_are_dropped_and_nothing_else() -> None:
    kept, dropped = without_presets({"OMP_NUM_THREADS": "4", "PATH": "/bin", "OPENBLAS_CORETYPE": "Haswell"})
    assert kept == {"PATH": "/bin"}
    assert dropped == {"OMP_NUM_THREADS": "4", "OPENBLAS_CORETYPE": "Haswell"}


def test_one_thread_gets_one_processor() -> None:
    assert len(processors_for(1)) == 1
