# SPDX-License-Identifier: MIT
"""Calls like earlier ones enqueue what was recorded of these, and nothing else is done on the host."""

from __future__ import annotations

import ctypes
import gc
import shutil
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit import device_kernel
from pto_jit.bench.kernels import matrix, rows
from pto_jit.targets.cuda.devices import EmulatedDevice
from pto_jit.targets.cuda.host import HostProgram
from pto_jit.targets.cuda.replay import record
from pto_jit.targets.cuda.tensors import DeviceTensor
from tests.differential import compare, kernels

from .test_driver import OnDevice, fake, library  # noqa: F401  (fixtures)
from .test_warpgroups import turned_product

pytestmark = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="needs gcc and g++")
RNG = np.random.default_rng(0)


@pytest.fixture
def runs(fake: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:  # noqa: F811
    """How often host code ran: an item for each time."""
    found: list[int] = []
    run = HostProgram.run

    def counted(self: HostProgram, *args: Any) -> Any:
        found.append(1)
        return run(self, *args)

    monkeypatch.setattr(HostProgram, "run", counted)
    return found


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_third_call_and_later_ones_launch_without_the_host_code(runs: list[int], fake: Any, compiled: bool) -> None:  # noqa: F811
    kernel: Any = pto.jit(rows.softmax.__pto_jit__, target="cuda")
    if compiled:
        kernel = kernel.compile(OnDevice(f32(5, 40)), OnDevice(f32(5, 40)))
    for k in range(5):
        x, y = f32(5, 40), np.zeros((5, 40), np.float32)
        kernel(OnDevice(x), OnDevice(y))
        np.testing.assert_allclose(y, softmax_of(x), rtol=1e-5)
        assert len(runs) == min(k + 1, 2)
    assert fake.fake_record().decode().count("launch on stream 0") == 5


def test_a_setting_that_decides_how_kernels_multiply_is_seen(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    a, b, c = (OnDevice(f32(64, 64).astype(t)) for t in (np.float16, np.float16, np.float32))
    compiled = turned_product(64, 64, False, False).compile(a, b, c, target="cuda")
    expected = a.array.astype(np.float32) @ b.array.astype(np.float32)
    for asked, made_for in ((False, "sm_90"), (True, "sm_90a")):
        monkeypatch.setattr(pto.config, "warpgroups", asked)
        for _ in range(3):
            compiled(a, b, c)
            np.testing.assert_allclose(c.array, expected, rtol=1e-5, atol=1e-4)
        assert fake.architectures[-1] == made_for


def test_a_prepared_launch_is_recorded_by_its_first_run(runs: list[int]) -> None:
    x, y = f32(5, 40), np.zeros((5, 40), np.float32)
    bound = rows.softmax.compile(OnDevice(x), OnDevice(y), target="cuda").bind(OnDevice(x), OnDevice(y))
    for _ in range(3):
        x[...] = f32(5, 40)
        bound()
        np.testing.assert_allclose(y, softmax_of(x), rtol=1e-5)
    assert len(runs) == 1


def test_other_extents_strides_and_alignments_are_other_calls(runs: list[int]) -> None:
    kernel: Any = pto.jit(rows.softmax.__pto_jit__, target="cuda")
    memory = f32(4096)
    views = [memory[:200].reshape(5, 40), memory[1:201].reshape(5, 40), memory[:160].reshape(4, 40),
             memory[:400].reshape(5, 80)[:, ::2], memory[:200].reshape(5, 40)[::-1]]  # fmt: skip
    for _ in range(4):
        for x in views:
            y = np.zeros(x.shape, np.float32)
            kernel(OnDevice(x), OnDevice(y))
            np.testing.assert_allclose(y, softmax_of(x), rtol=1e-5)
    assert len(runs) == 2 * len(views)


def test_in_place_is_another_call_and_memory_in_common_takes_the_slow_path(runs: list[int]) -> None:
    kernel: Any = pto.jit(rows.softmax.__pto_jit__, target="cuda")
    for k in range(4):
        x, y, z = f32(5, 40), f32(5, 40), f32(5, 40)
        expected = softmax_of(z)
        kernel(OnDevice(x), OnDevice(y))
        kernel(OnDevice(z), OnDevice(z))
        np.testing.assert_allclose(y, softmax_of(x), rtol=1e-5)
        np.testing.assert_allclose(z, expected, rtol=1e-5)
        assert len(runs) == 2 * min(k + 1, 2)
    memory = f32(240)
    with pytest.raises(pto.LaunchError, match="PTO-X131"):
        kernel(OnDevice(memory[:200].reshape(5, 40)), OnDevice(memory[40:240].reshape(5, 40)))


@pto.jit(target="cuda")
def moved(x, y):
    n = y.shape[0]
    y[...] = x[1 : n + 1] * 2


def test_what_is_read_is_copied_where_a_repeated_call_would_overwrite_it(fake: Any) -> None:  # noqa: F811
    for _ in range(4):
        x, y = f32(65), f32(64)
        moved(OnDevice(x), OnDevice(y))
        np.testing.assert_array_equal(y, x[1:] * 2)
    memory = f32(66)
    expected = memory[1:65] * 2
    moved(OnDevice(memory[:65]), OnDevice(memory[2:66]))
    np.testing.assert_array_equal(memory[2:66], expected)


def test_temporaries_are_allocated_and_freed_at_each_call(runs: list[int], fake: Any) -> None:  # noqa: F811
    kernel: Any = pto.jit(matrix.swiglu.__pto_jit__, target="cuda")
    for _ in range(4):
        x, gate, up, down = f32(5, 30), f32(30, 20), f32(30, 20), f32(20, 30)
        out = np.zeros((5, 30), np.float32)
        kernel(*map(OnDevice, (x, gate, up, down, out)))
        g = x @ gate
        np.testing.assert_allclose(out, (g / (1 + np.exp(-g)) * (x @ up)) @ down, rtol=1e-3, atol=1e-3)
    gc.collect()
    said = fake.fake_record().decode()
    assert len(runs) == 2 and said.count("allocate 400;") == said.count("free 1;") == 8


@pto.jit(target="cuda")
def parts_of(x, s):
    y = pl.full([x.shape[0], x.shape[1]], 7.0, pl.f32)
    y[1:, :] = x[1:, :] * s
    return y, x[1:], x.shape[1] * 2


def array_of(result: Any) -> np.ndarray:
    shown = result.__cuda_array_interface__
    return np.lib.stride_tricks.as_strided(
        np.ctypeslib.as_array(ctypes.cast(shown["data"][0], ctypes.POINTER(ctypes.c_float)), (1,)),
        shown["shape"], shown["strides"],
    )  # fmt: skip


def test_results_are_new_memory_views_of_arguments_and_numbers(runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_kernel, "_streams", lambda views, ordinal: [7])
    kept = []
    for _ in range(4):
        x = f32(3, 8)
        y, rest, n = parts_of(OnDevice(x), 3.0)
        kept.append((x, y, rest))
        assert n == 16 and y.__cuda_array_interface__["stream"] == 7
    for x, y, rest in kept:
        np.testing.assert_array_equal(array_of(y), np.concatenate([np.full((1, 8), 7, np.float32), x[1:] * 3]))
        np.testing.assert_array_equal(array_of(rest), x[1:])
    assert len(runs) == 2


@pto.jit(target="cuda")
def scaled(x, y, s):
    y[...] = x * s


def test_numbers_that_only_kernels_see_may_be_new(runs: list[int]) -> None:
    x, y = np.array([1.0, -2.0], np.float32), np.zeros(2, np.float32)
    for s in (0.0, -0.0, 1, True, 1.0, float("nan"), 2.5, -7) * 3:
        scaled(OnDevice(x), OnDevice(y), s)
        np.testing.assert_array_equal(y, x * np.float32(s))
        np.testing.assert_array_equal(np.signbit(y), np.signbit(x * np.float32(s)))
    assert len(runs) == 6  # two for each kind: a bool is a compile-time value


@pto.jit(target="cuda")
def stepped(p, g, rate, step, n):
    decay = 1 - 0.5 ** (step + 1)
    for _ in range(n):
        p[...] = p - rate / decay * g


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_what_the_host_computes_of_such_numbers_is_computed_anew(runs: list[int], dtype: Any) -> None:
    kernel: Any = pto.jit(stepped.__pto_jit__, target="cuda")
    g = f32(33).astype(dtype)
    for step in range(6):
        p, rate = np.zeros(33, dtype), 0.25 / (step + 1)
        kernel(OnDevice(p), OnDevice(g), rate, step, 3)
        np.testing.assert_allclose(p, -3 * rate / (1 - 0.5 ** (step + 1)) * g, rtol=1e-2 if dtype == np.float16 else 1e-5)
    assert len(runs) == 2
    for n in (1, 2, 1, 2, 1, 2):  # decides what is launched
        p = np.zeros(33, dtype)
        kernel(OnDevice(p), OnDevice(g), 1.0, 1, n)
        np.testing.assert_allclose(p, -n / 0.75 * g, rtol=1e-2 if dtype == np.float16 else 1e-5)
    assert len(runs) == 6


@pto.jit(target="cuda")
def added(y, *xs, scale=2.0, minus=False):
    total = xs[0] * scale
    for x in xs[1:]:
        total = total + x * scale
    y[...] = -total if minus else total


def test_arguments_by_name_and_any_number_of_them(runs: list[int]) -> None:
    for k in range(4):
        y, xs = np.zeros(9, np.float32), [f32(9) for _ in range(3)]
        added(OnDevice(y), *map(OnDevice, xs))
        np.testing.assert_allclose(y, sum(xs) * 2, rtol=1e-5)
        added(OnDevice(y), *map(OnDevice, xs), scale=k + 0.5, minus=True)
        np.testing.assert_allclose(y, -sum(xs) * (k + 0.5), rtol=1e-5)
        added(OnDevice(y), OnDevice(xs[0]), OnDevice(xs[0]))
        np.testing.assert_allclose(y, xs[0] * 4, rtol=1e-5)
    assert len(runs) == 6


@pto.jit(target="cuda")
def noise(y, seed):
    n, m = y.shape
    with pl.incore():
        for r in pl.range(n, parallel=True):
            pl.store(pl.rand(seed, r * m, [1, m]), [r, 0], y)


def test_a_seed_is_another_one_in_each_call(runs: list[int]) -> None:
    for seed in range(5):
        y, expected = np.zeros((3, 8), np.float32), np.zeros((3, 8), np.float32)
        noise(OnDevice(y), seed)
        noise.interpret(expected, seed)
        np.testing.assert_array_equal(y, expected)
    assert len(runs) == 2


@pto.jit(target="cuda")
def shared_out(x, y, n, parts):
    if parts > 0:
        y[...] = x * (n // parts)
    else:
        y[...] = x * n


def test_numbers_of_branches_that_are_not_taken_are_not_computed(runs: list[int]) -> None:
    x, y = f32(8), np.zeros(8, np.float32)
    for n in range(4):
        for parts in (0, 2):
            shared_out(OnDevice(x), OnDevice(y), n, parts)
            np.testing.assert_array_equal(y, x * (n // parts if parts else n))
    assert len(runs) == 4


@pto.jit(target="cuda")
def windowed(x, y, at, width):
    y[...] = pl.sum(x[at : at + width])


def test_numbers_that_say_what_is_read_decide(runs: list[int]) -> None:
    x, y = f32(64), np.zeros(1, np.float32)
    for at, width in ((0, 8), (3, 8), (0, 8), (3, 9), (3, 8), (0, 8)):
        windowed(OnDevice(x), OnDevice(y), at, width)
        np.testing.assert_allclose(y, x[at : at + width].sum(), rtol=1e-4, atol=1e-5)
    for at in (70, -2, 70, -2, 70, -2):
        try:
            windowed(OnDevice(x), OnDevice(y), at, 8)
        except pto.PtoError as error:
            assert "negative" in str(error) and at < 0
        else:
            assert y[0] == 0 and at > 0


@pto.jit(target="cuda")
def times_over(x, y, n):
    for _ in range(n):
        y[...] = y + x


def test_a_function_whose_numbers_are_always_new_is_left_alone(runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_jit import repeated

    monkeypatch.setattr(repeated, "_MOST", 4)
    kernel: Any = pto.jit(times_over.__pto_jit__, target="cuda")
    x = f32(8)
    for k in range(1, 7):
        kernel(OnDevice(x), OnDevice(np.zeros(8, np.float32)), k)
    read: list[int] = []
    monkeypatch.setattr(repeated, "as_tensor", lambda *args, **options: read.append(1))
    y = np.zeros(8, np.float32)
    kernel(OnDevice(x), OnDevice(y), 2)
    np.testing.assert_array_equal(y, x + x)
    assert len(runs) == 7 and not read


@pto.jit(target="cuda")
def as_often(x, times, y):
    for _ in range(times[0]):
        y[...] = y + x


def test_what_the_host_reads_is_read_anew(runs: list[int]) -> None:
    for k in range(5):
        x, y = f32(16), np.zeros(16, np.float32)
        as_often(OnDevice(x), OnDevice(np.array([k])), OnDevice(y))
        np.testing.assert_allclose(y, x * k, rtol=1e-5)
    assert len(runs) == 5


FACTOR = 2.0


def test_a_rebound_name_and_new_settings_are_seen(runs: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    @pto.jit(target="cuda")
    def times(x, y):
        y[...] = x * FACTOR

    x, y = f32(16), np.zeros(16, np.float32)
    for factor in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(3):
            times(OnDevice(x), OnDevice(y))
            np.testing.assert_array_equal(y, x * np.float32(factor))
    assert len(runs) == 4  # 2.0 came back
    monkeypatch.setattr(pto.config, "debug", True)
    times(OnDevice(x), OnDevice(y))
    assert len(runs) == 5


@pto.jit(target="cuda")
def shifted(x, out, at):
    for r in pl.range(x.shape[0], parallel=True):
        pl.store(pl.load(x, [r, at], [1, 4]), [r, 0], out)


def test_a_failure_of_a_repeated_call_is_raised_by_the_next_one(runs: list[int]) -> None:
    x, out = OnDevice(f32(3, 4)), OnDevice(f32(3, 4))
    for _ in range(3):
        shifted(x, out, -2)
        with pytest.raises(pto.BoundsError, match="a negative offset: -2 along axis 1"):
            shifted(x, out, -2)
    assert len(runs) == 2


def test_a_call_while_another_thread_repeats_it_takes_the_slow_path(runs: list[int]) -> None:
    """What is recorded holds the pointers of one launch at a time."""
    kernel: Any = pto.jit(rows.softmax.__pto_jit__, target="cuda")
    x, y = f32(5, 40), np.zeros((5, 40), np.float32)
    for _ in range(3):
        kernel(OnDevice(x), OnDevice(y))
    (kind,) = kernel._repeated._kinds.values()
    (recorded,) = kind.recorded.values()
    z = f32(5, 40)
    with recorded.busy:
        kernel(OnDevice(z), OnDevice(y))
    np.testing.assert_allclose(y, softmax_of(z), rtol=1e-5)
    kernel(OnDevice(x), OnDevice(y))
    np.testing.assert_allclose(y, softmax_of(x), rtol=1e-5)
    assert len(runs) == 3


def test_a_repeated_call_is_on_the_device_of_its_tensors(fake: Any) -> None:  # noqa: F811
    kernel: Any = pto.jit(rows.softmax.__pto_jit__, target="cuda")
    x, y = f32(3, 8), f32(3, 8)
    fake.fake_two_devices(ctypes.c_void_p(x.ctypes.data))
    for array in (x, x, x, y, y, y, x):
        kernel(OnDevice(array), OnDevice(array))
    words = [word for word in fake.fake_record().decode().split(";") if "of device" in word]
    assert words == [f"of device {k}" for k in (1, 1, 1, 0, 0, 0, 1)]


@pytest.mark.parametrize("seed", [3, 8, 12, 19, 24, 31])
def test_what_is_recorded_of_random_kernels_does_what_their_host_code_does(seed: int) -> None:
    """With other numbers where only kernels see them."""
    kernel, device = kernels.generate(seed), EmulatedDevice()

    def arguments() -> list[Any]:
        return device_kernel._arguments(compiled._matching(tuple(kernel.arguments()[1]), {})[0])

    compiled = compare.build(kernel).compile(*kernel.arguments()[1], target="cuda", cache=False)
    host = compiled._kernel.built.program.host
    host.run(arguments(), device, 0)
    recorded = record(host, device, arguments())
    assert recorded is not None
    expected, actual = arguments(), arguments()
    for place in host.passed.places:
        expected[place] = actual[place] = expected[place] + 1
    results = host.run(expected, device, 0)
    tensors = [a for a in actual if isinstance(a, DeviceTensor)]
    again = recorded.run(actual, [t.pointer for t in tensors], [t.owner for t in tensors], 0)
    for one, other in zip([*expected, *results], [*actual, *(again or ())], strict=True):
        if isinstance(one, DeviceTensor):
            low, high = one.span
            offset = other.pointer - one.pointer
            assert ctypes.string_at(low, high - low) == ctypes.string_at(low + offset, high - low)
        else:
            np.testing.assert_equal(other, one)
