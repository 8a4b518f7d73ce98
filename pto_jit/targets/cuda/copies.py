# SPDX-License-Identifier: MIT
"""Arguments in the memory of the CPU for a launch on a GPU: copied there and back, as they lie in memory.

What overlaps on the CPU overlaps on the GPU, and addresses keep their remainder of 256, so that a kernel takes the same
paths as it would for such tensors of the GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pto_jit.slotted import replace
from pto_jit.targets.cuda.devices import Device
from pto_jit.targets.cuda.tensors import DeviceTensor

_ALIGNED = 256


class Copies:
    """The copies of one launch on the default stream; given: its arguments as they are on the device."""

    def __init__(self, device: Device, arguments: Sequence[Any]) -> None:
        self.device = device
        self.pieces: list[tuple[int, int, int, Any]] = []  # first byte and end on the CPU, first byte there, its memory
        for first, end in joined(a.span for a in arguments if isinstance(a, DeviceTensor)):
            memory = device.allocate(end - first + _ALIGNED, 0)
            there = memory.pointer + (first - memory.pointer) % _ALIGNED
            device.write(there, ctypes.string_at(first, end - first), 0)
            self.pieces.append((first, end, there, memory))
        self.given = [self._there(a) if isinstance(a, DeviceTensor) else a for a in arguments]

    def _there(self, value: DeviceTensor) -> DeviceTensor:
        first, end = value.span
        moved = (there - start for start, stop, there, _ in self.pieces if start <= first < end <= stop)
        return replace(value, pointer=value.pointer + next(moved, 0))

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


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """First byte and end of what spans cover, those that overlap together; empty ones are left out."""
    out: list[tuple[int, int]] = []
    for first, end in sorted(span for span in spans if span[0] < span[1]):
        if out and first < out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((first, end))
    return out
