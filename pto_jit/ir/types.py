# SPDX-License-Identifier: MIT
"""Types of the loop IR: scalars, tiles and tensors.

An extent is an `int` when it is known at compile time and `None` when it is a run-time value.
"""

from __future__ import annotations

from typing import Literal

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen

Extent = int | None
Layout = Literal["c", "inner", "strided"]


@frozen
class ScalarType:
    """One run-time number."""

    dtype: DType

    def __str__(self) -> str:
        return str(self.dtype)


@frozen
class TileType:
    """A value of in-core code with a declared shape; each axis also has a run-time *valid* extent, at most as large."""

    dtype: DType
    shape: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"!pto.tile<{format_shape(self.shape)}x{self.dtype}>" if self.shape else f"!pto.tile<{self.dtype}>"


@frozen
class TensorType:
    """An array in global memory, or a view of one.

    `layout`: "c" contiguous row-major, "inner" last axis contiguous, "strided" anything.
    """

    dtype: DType
    shape: tuple[Extent, ...]
    layout: Layout = "c"

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        shape = f",{format_shape(self.shape)}" if self.shape else ""
        layout = "" if self.layout == "c" else f",{self.layout}"
        return f"!pto.memref<gm{shape},{self.dtype}{layout}>"


Type = ScalarType | TileType | TensorType


def format_shape(shape: tuple[Extent, ...]) -> str:
    return "x".join("?" if extent is None else str(extent) for extent in shape)
