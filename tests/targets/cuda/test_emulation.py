# SPDX-License-Identifier: MIT
"""The emulation itself: mistakes that a GPU would punish now and then are seen every time."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pto_jit.errors import LaunchError
from pto_jit.targets import toolchain
from pto_jit.targets.cuda.devices import EmulatedDevice
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import Spread

from .harness import needs_compiler

pytestmark = needs_compiler

HEAD = """
#include "pto_products.cuh"
extern "C" __global__ void kernel(const pto::Tensor<int32_t, 1> x, pto::Failure* failure) {
  PTO_SHARED_MEMORY(memory);
  int32_t* const kept = reinterpret_cast<int32_t*>(memory);
  __shared__ int32_t own[64];
  const int t = int(threadIdx.x), place = int(blockIdx.x) * 64 + t;
"""
RIGHT = {
    "shift": "kept[t] = x.data[place]; __syncthreads(); x.data[place] = kept[(t + 1) % 64];",
    "shift in memory of its own": "own[t] = x.data[place]; __syncthreads(); x.data[place] = own[(t + 1) % 64];",
    "shift in a warp": """kept[t] = x.data[place]; __syncwarp();
        x.data[place] = kept[t % 32 == 31 ? t : t + 1];""",
    "one value by several": "kept[t / 2] = 7; __syncthreads(); x.data[place] = kept[t / 2];",
    "updates": """if (t < 8) kept[t] = 0; __syncthreads(); atomicAdd(&kept[t % 8], 1); __syncthreads();
        x.data[place] = kept[t % 8];""",
    "updates of blocks": "atomicAdd(&x.data[t], 1);",
    "copy": """if (t < 16) pto::copy_async(kept + 4 * t, x.data + (place - t) + 4 * t, true); pto::commit_copies();
        pto::wait_for_copies<0>(); __syncthreads(); x.data[place] = kept[t] + 1;""",
    "an access of 16 bytes": """const uint4 four = {1, 2, 3, 4}; __syncthreads();
        if (t < 16) reinterpret_cast<uint4*>(kept)[t] = four; __syncthreads(); x.data[place] = kept[t];""",
    "a loop": "for (int k = 0; k < 3; ++k) { kept[t] = k; __syncthreads(); } x.data[place] = kept[t];",
    "a failure": "if (t < 64) pto::fail(failure, 1, 0, 0); x.data[place] = kept[t];",
}
UNORDERED = "another thread has written what is read|read before it is written"
WRONG = [
    ("shift", "__syncthreads();", "", UNORDERED),
    ("shift", "__syncthreads();", "__syncwarp();", UNORDERED),
    ("shift in memory of its own", "__syncthreads();", "", UNORDERED),
    ("shift in a warp", "__syncwarp();", "(void)__shfl_sync(0xffffffffu, t, 0);", UNORDERED),
    ("shift", "kept[(t + 1) % 64]", "kept[t]; kept[(t + 1) % 64] = t", "another thread has"),
    ("shift", "kept[t] =", "if (t != 9) kept[t] =", "read before it is written"),
    ("one value by several", "= 7", "= t", "two threads write one element"),
    ("updates", "atomicAdd(&kept[t % 8], 1)", "kept[t % 8] += 1", "has written what is read"),
    ("updates of blocks", "atomicAdd(&x.data[t], 1)", "x.data[t] += 1", "another block has written what is read"),
    ("updates of blocks", "atomicAdd(&x.data[t], 1)", "x.data[t] = place", "two blocks write one element"),
    ("copy", "pto::wait_for_copies<0>();", "", "an asynchronous copy is under way"),
    ("copy", "pto::wait_for_copies<0>();", "pto::wait_for_copies<1>();", "an asynchronous copy is under way"),
    ("copy", "pto::commit_copies();", "pto::copy_async(kept + 4 * (t % 16), x.data, true);", "another asynchronous copy"),
    ("copy", "__syncthreads();", "", f"an asynchronous copy is under way|{UNORDERED}"),
    ("copy", "kept + 4 * t, x", "kept + 4 * t + 1, x", "not a multiple of 16"),
    ("copy", "+ 4 * t, true", "+ 4 * t + 1, true", "not a multiple of what is accessed"),
    ("an access of 16 bytes", "(kept)[t]", "(kept + 2)[t % 15]", "not a multiple of what is accessed"),
    ("shift", "x.data[place];", "x.data[place + 1];", "outside of all tensors"),
    ("shift", "x.data[place] =", "x.data[place - 64] =", "outside of all tensors|another block has"),
    ("shift", "__syncthreads();", "if (t < 32) __syncthreads(); else __syncthreads();", "different places"),
    (
        "shift",
        "__syncthreads();",
        "if (t < 32) __syncthreads();",
        f"others have ended|end where others meet|{UNORDERED}",
    ),
    ("a loop", "k < 3;", "k < 2 + (t < 5);", "others have ended|end where others meet"),
]
STUCK = """
#include "pto_cuda.cuh"
extern "C" __global__ void stuck(const pto::Tensor<int32_t, 1> x, pto::Failure* failure) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  else __syncwarp();
}
"""


def run(
    source: str, order: int, blocks: int = 1, grid: tuple[int, int, int] | None = None, device: Any = None
) -> np.ndarray:
    name = source.split("void ")[1].split("(")[0]
    kernel: Any = Kernel(name, None, source, "rows", False, (), (), (), 1, (), 0, ())  # type: ignore[arg-type]
    device = device or EmulatedDevice(order)
    slot = device.failure_slot()
    memory = device.allocate(4 * 64 * blocks, 0)
    x = np.ctypeslib.as_array((ctypes.c_int32 * (64 * blocks)).from_address(memory.pointer))
    x[:] = np.arange(64 * blocks)
    tensor = (ctypes.c_int64 * 3)(memory.pointer, 64 * blocks, 1)
    version = device.prepare(kernel, Spread((), (64, 1, 1), 1), 256)
    device.launch(version, grid or (blocks, 1, 1), (64, 1, 1), 256, [tensor, ctypes.c_void_p(slot.address)], 0)
    return x.copy()


GROUPED = """
#include "pto_products.cuh"
extern "C" __global__ void kernel(const pto::Tensor<int32_t, 1> x, pto::Failure* failure) {
  const pto::Place place = pto::grouped_place<16>();
  (void)failure;
  if (threadIdx.x == 0) x.data[place.y * gridDim.x + place.x] = blockIdx.y * gridDim.x + blockIdx.x;
}
"""


@pytest.mark.parametrize(("across", "down"), [(5, 3), (7, 16), (4, 39), (1, 17), (33, 1)])
def test_blocks_take_places_by_groups_of_16_rows(across: int, down: int) -> None:
    """Every place once; in a group of rows, one column after the other."""
    numbers = run(GROUPED, 0, across * down, (across, down, 1))[: across * down].reshape(down, across)
    counted = np.arange(across * down).reshape(down, across)
    for first in range(0, down, 16):
        group = counted[first : first + 16]
        np.testing.assert_array_equal(numbers[first : first + 16], group.ravel().reshape(across, -1).T)


def test_what_a_device_does_is_done() -> None:
    whole = np.arange(128)
    expected = {
        "shift": np.roll(whole.reshape(2, 64), -1, 1), "shift in memory of its own": np.roll(whole.reshape(2, 64), -1, 1),
        "shift in a warp": np.where(whole % 32 == 31, whole, whole + 1), "one value by several": 0 * whole + 7,
        "updates": 0 * whole + 8, "updates of blocks": whole + 2 * (whole < 64), "copy": whole + 1,
        "an access of 16 bytes": whole % 4 + 1, "a loop": 0 * whole + 2,
    }  # fmt: skip
    for name, body in RIGHT.items():
        for order in (0, 1, 5):
            found = run(f"{HEAD}{body}\n}}", order, 2)
            assert name not in expected or (found == expected[name].reshape(-1)).all(), (name, order)


@pytest.mark.parametrize(("name", "right", "wrong", "said"), WRONG)
def test_what_a_device_may_fail_at_is_a_fault(name: str, right: str, wrong: str, said: str) -> None:
    assert RIGHT[name].count(right) == 1
    for order in (0, 1, 5):
        with pytest.raises(LaunchError, match=f"PTO-X147: the emulated kernel kernel failed: .*({said})"):
            run(f"{HEAD}{RIGHT[name].replace(right, wrong)}\n}}", order, 2)


def test_threads_that_wait_for_ever_are_reported() -> None:
    with pytest.raises(LaunchError, match=r"wait for each other for ever|end where others meet"):
        run(STUCK, 0)


def test_what_all_kernels_call_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Any] = []
    compiled = toolchain.run
    monkeypatch.setattr(toolchain, "run", lambda todo, *rest: commands.extend(todo) or compiled(todo, *rest))
    for number in (1, 2):
        run(f"{HEAD}x.data[place] = kept[t] = {number};\n}}", 0)
    assert sum("launch.cpp" in command for command in commands) == 2 and len(commands) <= 3
