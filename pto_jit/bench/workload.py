# SPDX-License-Identifier: MIT
"""What is measured: a workload is a value, its size a tuple of extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Size = tuple[int, ...]
Arrays = dict[str, np.ndarray[Any, Any]]
FlopKind = Literal["f32", "f32 product", "bf16"]


@dataclass(frozen=True, slots=True)
class Work:
    """What one call must do at least: arithmetic, and every tensor byte counted once."""

    flops: int
    bytes_read: int
    bytes_written: int
    flop_kind: FlopKind = "f32"

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written together."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may lie from the reference: `|got - expected| <= absolute + relative * |expected|`.

    `outliers` is the share of elements allowed beyond it: zero, except where rounding decides a branch.
    """

    relative: float
    absolute: float
    outliers: float = 0.0


@dataclass(frozen=True, slots=True)
class Output:
    """The shape and dtype name of one result."""

    shape: Size
    dtype: str


@dataclass(frozen=True, slots=True)
class Workload:
    """One kernel to be measured.

    `make(size, rng)` gives the inputs by name, in the order in which a kernel takes them; `outputs(size)` describes
    the results, which follow them.  `reference` computes the results with NumPy, in f64 where that is more exact.
    `kernels` names the pto kernels as `module:function` by variant; the plain one has the variant `""`.
    """

    name: str
    summary: str
    axes: tuple[str, ...]
    sizes: Mapping[str, Size]
    default: tuple[str, ...]
    unit: Literal["GB/s", "GFLOP/s", "call"]
    dtype: str
    make: Callable[[Size, np.random.Generator], Arrays]
    reference: Callable[[Arrays], Sequence[np.ndarray[Any, Any]]]
    outputs: Callable[[Size], dict[str, Output]]
    work: Callable[[Size, Sequence[np.ndarray[Any, Any]]], Work]
    tolerance: Tolerance
    kernels: Mapping[str, str] = field(default_factory=dict[str, str])
    like: str = ""

    @property
    def implemented_as(self) -> str:
        """The name under which libraries implement it: its own, or that of the workload it is `like`."""
        return self.like or self.name

    def size_of(self, text: str) -> Size:
        """The extents that a size name or `AxBxC` stands for.

        Raises:
            ValueError: neither a size name of this workload nor one positive extent per axis.
        """
        if text in self.sizes:
            return self.sizes[text]
        parts = text.lower().split("x")
        if all(part.isdecimal() and int(part) > 0 for part in parts) and len(parts) == len(self.axes):
            return tuple(int(part) for part in parts)
        names = ", ".join(self.sizes)
        raise ValueError(f"{self.name} has no size {text!r}: give one of {names}, or extents as {'x'.join(self.axes)}")


def size_text(size: Size) -> str:
    """`(4096, 1024)` as `4096x1024`."""
    return "x".join(str(extent) for extent in size)


def dtype_named(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name, `bfloat16` included."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def aligned_empty(shape: Size, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An uninitialised C-contiguous array whose data starts at a cache line.

    Every library gets the same alignment: otherwise the allocator's luck decides rows that fit in a cache.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)
