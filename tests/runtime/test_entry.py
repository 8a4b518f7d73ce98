# SPDX-License-Identifier: MIT
"""Slots in, Python values out: packing, results, buffers, failures, bound launches."""

from __future__ import annotations

import gc
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pto_jit.runtime import Dispatcher, Entry, Runtime, as_tensor, key_of


def slots_of(make: Any, *args: Any) -> tuple[int, ...]:
    """What a kernel gets for these arguments."""
    kinds = [key_of(a)[0] for a in args]
    plan = [{"object": "static", "value": "static"}.get(k, k) for k in kinds]
    count = sum(
        1 + 2 * a.ndim if k == "tensor" else k in ("int", "float", "scalar") for a, k in zip(args, kinds, strict=True)
    )
    d = Dispatcher(["n", *(f"p{i}" for i in range(len(args)))], print)
    assert d.register((count, *args), make("echo", ("int",) * count), ["int", *plan])
    return d(count, *args)


def double(bits: int) -> float:
    return struct.unpack("d", struct.pack("q", bits))[0]


def test_a_contiguous_tensor_is_its_pointer_extents_and_byte_strides(make: Any) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    assert slots_of(make, x) == (x.ctypes.data, 2, 3, 4, 48, 16, 4)


def test_a_contiguous_tensor_has_packed_strides_also_on_axes_that_numpy_does_not_care_about(make: Any) -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(20), (1, 5, 1), (12345, 8, -77))
    assert x.flags.c_contiguous
    assert slots_of(make, x)[1:] == (1, 5, 1, 40, 8, 8)
    empty = np.lib.stride_tricks.as_strided(np.zeros(20), (0, 5), (12345, -8))
    assert slots_of(make, empty)[1:] == (0, 5, 40, 8)


def test_inner_contiguous_and_strided_tensors_keep_their_strides(make: Any) -> None:
    x = np.zeros((4, 6), np.int16)
    assert slots_of(make, x[::2, 1:5]) == (x.ctypes.data + 2, 2, 4, 24, 2)
    assert slots_of(make, x[:, :1]) == (x.ctypes.data, 4, 1, 12, 2)
    assert slots_of(make, x[::-1, ::2]) == (x.ctypes.data + 36, 4, 3, -12, 4)
    column = np.lib.stride_tricks.as_strided(np.zeros(40), (3, 1, 2), (64, -7, 8))
    assert slots_of(make, column)[4:] == (64, 16, 8)


@pytest.mark.parametrize(
    "value",
    [0, 1, -1, 2**30, -(2**31), 2**60 + 1, 2**63 - 1, -(2**63)],
)
def test_integers_are_sign_extended(make: Any, value: int) -> None:
    assert slots_of(make, value) == (value,)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, float("inf"), 5e-324, float("nan")])
def test_floats_are_their_bits(make: Any, value: float) -> None:
    assert slots_of(make, value) == struct.unpack("q", struct.pack("d", value))


FLOATS = [0.0, -0.0, 1.0, -2.5, 65504.0, 6e-8, 1e-4, 0.333, float("inf"), float("-inf")]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_numpy_floats_are_the_bits_of_the_same_double(make: Any, kind: Any) -> None:
    for value in FLOATS:
        scalar = kind(value)
        (slot,) = slots_of(make, scalar)
        assert struct.pack("q", slot) == struct.pack("d", float(scalar))
    assert np.isnan(double(slots_of(make, kind("nan"))[0]))


def test_every_half_is_converted_exactly(make: Any) -> None:
    d = Dispatcher(("n", "x"), print)
    d.register((1, np.float16(0)), make("echo", "float"), ["int", "scalar"])
    halves = np.arange(0, 65536, 37, dtype=np.uint16).view(np.float16)
    got = np.array([d(1, h) for h in halves])
    np.testing.assert_array_equal(got, halves.astype(np.float64))


@pytest.mark.parametrize("kind", "bhilqBHILQ?")
def test_numpy_integers_keep_their_value(make: Any, kind: str) -> None:
    dtype = np.dtype(kind)
    values = [0, 1] if kind == "?" else [0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max]
    for value in values:
        (slot,) = slots_of(make, dtype.type(value))
        assert slot == int(np.array(value, dtype).astype(np.int64 if dtype.kind != "u" else np.uint64).view(np.int64))


def test_the_slow_path_packs_as_the_fast_path_does(make: Any) -> None:
    base = np.zeros((6, 8, 4), np.float32)
    odd = np.lib.stride_tricks.as_strided(base, (1, 5, 1), (12345, 4, -77))
    for x in (base, base[:, :, :3], base[::2, :1], base.T, base[:0], base[1:2, ::-1], odd, base[:, :1, :1]):
        view = as_tensor(x)
        assert view is not None
        assert tuple(view.slots()) == slots_of(make, x)
        assert ("tensor", view.dtype, x.ndim, view.layout, view.writable) == key_of(x)


# ---- results ----


def test_results_are_none_a_value_or_a_tuple(make: Any) -> None:
    assert make("nothing").launch([0]) is None
    assert make("nothing", ()).launch([0]) == ()
    assert make("echo", "int").launch([1, -5]) == -5
    assert make("echo", ("int",)).launch([1, -5]) == (-5,)
    assert make("echo", ("int", ("float", "bool"), ())).launch([3, 2**64 - 2, 2.5, 1]) == (-2, (2.5, True), ())
    assert make("echo", ("int", ("value", None), ("value", "x"))).launch([1, 4]) == (4, None, "x")
    assert make("echo", "bool").launch([1, 0]) is False


def test_a_result_can_be_an_argument(make: Any) -> None:
    x = np.zeros(3)
    assert make("nothing", ("argument", 1)).launch([], (None, x)) is x
    with pytest.raises(IndexError):
        make("nothing", ("argument", 2)).launch([], (None, x))


@pytest.mark.parametrize(
    "plan", ["text", 3, ("tensor", 13, 1), ("tensor", 2, 99), ("argument", -1), ("int", "what"), []]
)
def test_what_is_no_result_plan_is_refused(make: Any, plan: Any) -> None:
    with pytest.raises(ValueError):
        make("nothing", plan)


def test_a_returned_tensor_is_an_ordinary_array(make: Any) -> None:
    filled = make("filled", ("tensor", 3, 1))
    x = filled.launch([5, 2.5])
    assert type(x) is np.ndarray
    assert (x.dtype, x.shape, x.strides) == (np.float64, (5,), (8,))
    assert x.flags.writeable and x.flags.aligned and x.flags.c_contiguous and not x.flags.owndata
    assert x.ctypes.data % 64 == 0
    x += 1
    assert x.tolist() == [3.5] * 5
    assert filled.launch([0, 1.0]).shape == (0,)


def test_returned_tensors_of_every_dtype(make: Any) -> None:
    names = "float16 - float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
    for number, name in enumerate(names):
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "-" else name)
        x = make("filled", ("tensor", number, 1)).launch([3, 0.0])
        assert x.dtype == dtype
        assert x.tolist() == [0, 0, 0]


def test_a_freed_result_is_used_again(make: Any, runtime: Runtime) -> None:
    filled = make("filled", ("tensor", 3, 1))
    x = filled.launch([1_000_000, 1.0])
    first = x.ctypes.data
    view = x[10:20]
    del x
    y = filled.launch([1_000_000, 2.0])
    assert y.ctypes.data != first  # the view keeps the memory
    assert view.tolist() == [1.0] * 10
    assert runtime.statistics().buffers_live == 2
    del view
    gc.collect()
    assert filled.launch([1_000_000, 3.0]).ctypes.data == first
    del y
    assert runtime.statistics().buffers_live == 0
    assert runtime.statistics().buffers_cached == 2
    runtime.trim()
    assert runtime.statistics().bytes_cached == 0


def test_a_result_outlives_its_runtime(kernels: Any) -> None:
    x = kernels.entry(Runtime(1), "filled", ("tensor", 3, 1)).launch([1000, 7.0])
    gc.collect()
    assert x.sum() == 7000.0


def test_a_result_that_cannot_be_built_leaks_nothing(make: Any, runtime: Runtime) -> None:
    with pytest.raises(IndexError):
        make("filled", (("argument", 5), ("tensor", 3, 1))).launch([1000, 7.0])
    with pytest.raises(IndexError):
        make("filled", (("tensor", 3, 1), ("argument", 5))).launch([1000, 7.0])
    assert runtime.statistics().buffers_live == 0


def test_the_cache_stays_within_its_limit(kernels: Any) -> None:
    runtime = Runtime(1, cache_bytes=1_000_000)
    filled = kernels.entry(runtime, "filled", ("tensor", 3, 1))
    held = [filled.launch([n * 1000, 0.0]) for n in range(1, 40)]
    assert runtime.statistics().bytes_live > 6_000_000
    del held
    assert 0 < runtime.statistics().bytes_cached <= 1_000_000


# ---- failures ----


@pytest.mark.parametrize("keep_gil_below", [0, 1000])
def test_a_failure_reaches_on_failure_with_everything_it_needs(make: Any, kernels: Any, keep_gil_below: int) -> None:
    holder = object()
    entry = make("failing", holder=holder, keep_gil_below=keep_gil_below)
    d = Dispatcher(("site", "a", "b", "c"), print)
    d.register((1, 2, 3, 4), entry, ["int"] * 4)
    with pytest.raises(kernels.error) as caught:
        d(12, -3, 2**62, 5)
    assert caught.value.args == (holder, 12, (-3, 2**62, 5), (12, -3, 2**62, 5))


def test_after_a_failure_nothing_is_held_and_the_next_call_works(make: Any, kernels: Any, runtime: Runtime) -> None:
    entry = make("failing")
    for _ in range(3):
        with pytest.raises(kernels.error):
            entry.launch([1, 2, 3, 4])
        assert runtime.statistics().buffers_live == 0
        assert make("echo", "int").launch([1, 7]) == 7


def test_a_status_without_a_record_has_a_site_of_its_own(make: Any, kernels: Any) -> None:
    with pytest.raises(kernels.error) as caught:
        make("silent_failure").launch([])
    assert caught.value.args[1:3] == (-2, (7, 0, 0))


@pytest.mark.parametrize("wanted", [2**45, 2**62, -1])
def test_memory_that_cannot_be_had_is_a_failure_with_the_size(make: Any, kernels: Any, wanted: int) -> None:
    with pytest.raises(kernels.error) as caught:
        make("greedy").launch([wanted])
    assert caught.value.args[1:3] == (-1, (wanted, 0, 0))


def test_an_on_failure_that_returns_is_an_error(make: Any) -> None:
    with pytest.raises(SystemError, match="on_failure"):
        make("failing", on_failure=lambda *args: None).launch([1, 2, 3, 4])


# ---- launch and bind ----


def test_slots_are_integers_and_floats(make: Any) -> None:
    echo = make("echo", "int")
    assert echo.launch((1, 2**64 - 1)) == -1
    assert echo.launch([1, True]) == 1
    with pytest.raises(TypeError):
        echo.launch([1, "2"])
    with pytest.raises(OverflowError):
        echo.launch([1, 2**64])
    with pytest.raises(OverflowError):
        echo.launch([1, -(2**63) - 1])
    with pytest.raises(TypeError):
        echo.launch()
    with pytest.raises(TypeError):
        echo.launch(5)


def test_a_bound_launch_runs_again_on_the_same_memory(make: Any) -> None:
    x, y, z = np.ones(4, np.float32), np.full(4, 2, np.float32), np.zeros(4, np.float32)
    slots = [s for a in (x, y, z) for s in as_tensor(a).slots()]  # type: ignore[union-attr]
    bound = make("add").bind(slots, (x, y, z))
    assert bound() is None
    assert z.tolist() == [3] * 4
    x[:] = 10
    bound()
    assert z.tolist() == [12] * 4
    with pytest.raises(TypeError):
        bound(1)
    with pytest.raises(TypeError):
        bound(a=1)
    assert bound.args == (x, y, z)


def test_a_bound_launch_keeps_its_arguments_alive(make: Any) -> None:
    x = np.full(100_000, 3, np.float32)
    z = np.zeros_like(x)
    bound = make("add").bind([s for a in (x, x, z) for s in as_tensor(a).slots()], (x, z))  # type: ignore[union-attr]
    del x
    gc.collect()
    bound()
    assert (z == 6).all()


def test_a_bound_launch_fails_like_a_call(make: Any, kernels: Any) -> None:
    bound = make("failing").bind([4, 5, 6, 7], ("the", "arguments"))
    for _ in range(2):
        with pytest.raises(kernels.error) as caught:
            bound()
        assert caught.value.args == ("failing", 4, (5, 6, 7), ("the", "arguments"))


def test_an_entry_checks_what_it_is_made_of(runtime: Runtime, kernels: Any) -> None:
    good: dict[str, Any] = {"holder": None, "on_failure": print}
    address = kernels.address("nothing")
    for args, options in [
        ((runtime, 0, None), good),
        ((runtime, "x", None), good),
        ((object(), address, None), good),
        ((runtime, address, None), {"holder": None}),
        ((runtime, address, None), {"on_failure": print}),
        ((runtime, address, None), good | {"on_failure": 3}),
        ((runtime, address, None), good | {"max_threads": -1}),
    ]:
        with pytest.raises((TypeError, ValueError, AttributeError)):
            Entry(*args, **options)
    entry = Entry(runtime, address, None, **good, keep_gil_below=7, max_threads=3)
    assert (entry.address, entry.runtime, entry.keep_gil_below, entry.max_threads) == (address, runtime, 7, 3)
    assert Entry(runtime, address, ("int", ("tensor", 2, 3)), **good).num_result_slots == 5


def test_an_entry_keeps_its_runtime(kernels: Any) -> None:
    entry = kernels.entry(Runtime(2), "count_up")
    gc.collect()
    out = np.zeros(100, np.int64)
    entry.launch([out.ctypes.data, 100, 8, 3, 0, -1, 0])
    assert (out == 1).all()
