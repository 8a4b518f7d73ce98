# SPDX-License-Identifier: MIT
"""Tensors on the device: where they lie, which share memory, and which of their elements the host has read.

The host waits for all earlier work when it reads an element (`Elements`).  Where it reads another one of the same
tensor, and nothing that was launched in between may have written that, it gets the whole tensor, if it is small: a loop
over groups (`lo, hi = begins[g], begins[g + 1]`) then waits twice in all, not twice for each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType
from pto_jit.slotted import mutable

if TYPE_CHECKING:
    from pto_jit.targets.cuda.devices import Device

_SMALL = 1 << 16  # bytes of a tensor that is read at once


@mutable(eq=False)
class DeviceTensor:
    """A tensor on the device: strides in bytes; `owner` keeps the memory alive; `words`: what kernels get."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    owner: Any = None
    words: Any = None

    @property
    def span(self) -> tuple[int, int]:
        """The first byte, and one past the last."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        low = high = self.pointer
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                low += (extent - 1) * stride
            else:
                high += (extent - 1) * stride
        return low, high + self.dtype.bytes


def packed(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """The strides in bytes of a tensor whose elements, of so many bytes, lie in rows without gaps."""
    out: list[int] = []
    for extent in reversed(shape):
        out.append(size)
        size *= extent
    return tuple(reversed(out))


def run_of(most: int, args: Sequence[Any]) -> int:
    """How many columns at a time, up to `most`, all tensors of most axes allow (`pto::in_runs`): what others have stays
    in caches, and of one column no thread has runs."""
    run, rank = most, 1
    for x in args:
        if type(x) is not DeviceTensor or len(x.shape) < rank or x.shape[-1] == 1:
            continue
        if len(x.shape) > rank:
            rank, run = len(x.shape), most
        size = x.dtype.bytes
        places = x.pointer
        for n, stride in zip(x.shape[:-1], x.strides[:-1], strict=True):
            places |= stride if n > 1 else 0
        if x.strides[-1] != size:
            run = 1
        elif places & 15:
            run = min(run, max(1, (places & -places) // size))
    return run


def lie_apart(a: DeviceTensor, b: DeviceTensor) -> bool:
    """Whether two tensors are known to share no memory: one is behind the other, or they are other columns, or other
    rows, of the same rows and planes.

    What is between the long strides of both repeats after so many bytes as divide all of these: there, the pieces that
    the short strides span lie beside each other.
    """
    (low, high), (first, last) = a.span, b.span
    if low >= last or first >= high:
        return True
    axes = [[(abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1 and s] for x in (a, b)]
    for long in {s for own in axes for s, _ in own}:
        period = gcd(*(s for own in axes for s, _ in own if s >= long))
        mine, others = (x.dtype.bytes + sum((n - 1) * s for s, n in own if s < long)
                        for x, own in zip((a, b), axes, strict=True))  # fmt: skip
        distance = (first - low) % period
        if mine <= distance and distance + others <= period:
            return True
    return False


def overlap(a: DeviceTensor, b: DeviceTensor, same: bool) -> bool:
    """Whether two tensors share memory; same: and are not one region."""
    if lie_apart(a, b):
        return False
    # one may be a part of the other, as the valid part of a tile is: an element is where it is in both
    return not (same and (a.pointer, a.dtype, len(a.shape)) == (b.pointer, b.dtype, len(b.shape)) and all(
        n == 1 or s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True)
    ))  # fmt: skip


class Elements:
    """Elements that the host reads; one for each run of a program, on a stream of a device."""

    def __init__(self, device: Device, stream: int) -> None:
        self.device, self.stream = device, stream
        self.known: dict[tuple[Any, ...], tuple[DeviceTensor, bytes]] = {}

    def read(self, x: DeviceTensor, address: int) -> bytes:
        """The element of a tensor at an address."""
        key = x.pointer, x.shape, x.strides, x.dtype.name
        low, high = x.span
        if key not in self.known or high - low > _SMALL:
            if high - low <= _SMALL:
                self.known[key] = x, b""
            return self.device.read(address, x.dtype.bytes, self.stream)
        x, data = self.known[key]
        if not data:
            data = self.device.read(low, high - low, self.stream)
            self.known[key] = x, data
        return data[address - low : address - low + x.dtype.bytes]

    def written(self, tensors: Iterable[DeviceTensor]) -> None:
        """What follows is read after these were written."""
        for written in tensors if self.known else ():
            self.known = {key: (x, data) for key, (x, data) in self.known.items() if lie_apart(x, written)}
