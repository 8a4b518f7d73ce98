# SPDX-License-Identifier: MIT
"""Arguments in the memory of the CPU for a launch on a GPU: copied there and back, as they lie in memory.

What overlaps on the CPU overlaps on the GPU, and addresses keep their remainder of 256, so that a kernel takes the same
paths as it would for such tensors of the GPU.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from pto_jit.slotted import replace
from pto_jit.targets.cuda.devices import Device
from pto_jit.targets.cuda.host import DeviceTensor

_ALIGNED = 256


class Copies:
    """The copies of one launch on the default stream."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.pieces: list[tuple[int, int, int, Any]] = []  # first byte and end on the CPU, first byte there, its memory

    def given(self, value: Any) -> Any:
        """An argument as it is on the device; tensors that overlap an earlier one must lie inside it."""
        if not isinstance(value, DeviceTensor):
            return value
        first, end = value.span
        if first == end:
            return value
        for start, stop, there, _ in self.pieces:
            if start <= first and end <= stop:
                return replace(value, pointer=there + value.pointer - start)
        memory = self.device.allocate(end - first + _ALIGNED, 0)
        there = memory.pointer + (first - memory.pointer) % _ALIGNED
        self.device.write(there, ctypes.string_at(first, end - first), 0)
        self.pieces.append((first, end, there, memory))
        return replace(value, pointer=there + value.pointer - first)

    def array(self, tensor: DeviceTensor) -> np.ndarray[Any, Any]:
        """A result, which is contiguous, as an array of the CPU."""
        count = int(np.prod(tensor.shape))
        raw = self.device.read(tensor.pointer, count * tensor.dtype.bytes, 0) if count else b""
        return np.frombuffer(raw, tensor.dtype.numpy).reshape(tensor.shape).copy()

    def back(self) -> None:
        """Wait, and bring the arguments back."""
        for first, end, there, _ in self.pieces:
            data = self.device.read(there, end - first, 0)
            ctypes.memmove(first, data, len(data))
