# SPDX-License-Identifier: MIT
"""The emulation itself: mistakes that a GPU would punish now and then are seen every time."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pto_jit.errors import LaunchError
from pto_jit.targets.cuda.devices import EmulatedDevice
from pto_jit.targets.cuda.kernels import Kernel
from pto_jit.targets.cuda.spreads import Spread

from .harness import needs_compiler

pytestmark = needs_compiler

SHIFT = """
#include "pto_products.cuh"
extern "C" __global__ void shift(const pto::Tensor<int32_t, 1> x, pto::Failure* failure) {
  __shared__ int32_t kept[64];
  const int t = int(threadIdx.x);
  kept[t] = x.data[t];
  BARRIER
  x.data[t] = kept[(t + 1) % 64];
}
"""
COPY = """
#include "pto_products.cuh"
extern "C" __global__ void copy(const pto::Tensor<int32_t, 1> x, pto::Failure* failure) {
  PTO_SHARED_MEMORY(memory);
  int32_t* const kept = reinterpret_cast<int32_t*>(memory);
  const int t = int(threadIdx.x);
  if (t < 16) pto::copy_async(kept + 4 * t, x.data + 4 * t, true);
  pto::commit_copies();
  WAIT
  __syncthreads();
  x.data[t] = kept[t] + 1;
}
"""
STUCK = """
#include "pto_cuda.cuh"
extern "C" __global__ void stuck(const pto::Tensor<int32_t, 1> x, pto::Failure* failure) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  else __syncwarp();
}
"""


def run(source: str, order: int) -> np.ndarray:
    name = source.split("void ")[1].split("(")[0]
    kernel: Any = Kernel(name, None, source, "rows", False, (), (), (), 1, (), 0, ())  # type: ignore[arg-type]
    device = EmulatedDevice(order)
    x = np.arange(64, dtype=np.int32)
    tensor = (ctypes.c_int64 * 3)(x.ctypes.data, 64, 1)
    version = device.prepare(kernel, Spread((), (64, 1, 1), 1), 256)
    device.launch(version, (1, 1, 1), (64, 1, 1), 256, [tensor, ctypes.c_void_p(device.failure_slot().address)], 0)
    return x


def test_a_missing_barrier_shows_in_some_order_of_the_threads() -> None:
    right = SHIFT.replace("BARRIER", "__syncthreads();")
    wrong = SHIFT.replace("BARRIER", "")
    expected = np.roll(np.arange(64), -1)
    assert all((run(right, order) == expected).all() for order in (0, 1, 5))
    assert not all((run(wrong, order) == expected).all() for order in (0, 1, 5))


def test_a_missing_wait_for_copies_shows() -> None:
    expected = np.arange(64) + 1
    assert (run(COPY.replace("WAIT", "pto::wait_for_copies<0>();"), 0) == expected).all()
    assert not (run(COPY.replace("WAIT", "pto::wait_for_copies<1>();"), 0) == expected).all()
    assert not (run(COPY.replace("WAIT", ""), 0) == expected).all()


def test_threads_that_wait_for_ever_are_reported() -> None:
    with pytest.raises(LaunchError, match="wait for each other for ever"):
        run(STUCK, 0)
