# SPDX-License-Identifier: MIT
"""Whether regions of memory overlap, asked of `pto_clash` when the code runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType
from pto_jit.targets.c.values import CValue, lift
from pto_jit.targets.cpu.code import I1, Index

if TYPE_CHECKING:
    from pto_jit.targets.c.function import CFunctionWriter


def region_text(pointer: Any, size: int, shape: Sequence[Index], strides: Sequence[Index]) -> str:
    """A `pto_region` for the call of a function that looks at it; strides in bytes."""
    extents = ", ".join(lift(e).text for e in shape)
    steps = ", ".join(lift(s).text for s in strides)
    return f"&(pto_region){{{lift(pointer).text}, {size}, {len(shape)}, {{{extents}}}, {{{steps}}}}}"


def clash(
    w: CFunctionWriter, dtype: DType, pointer: Any, strides: Sequence[Index], shape: Sequence[Index],
    stored: Any, store_shape: Sequence[Index], same: bool,
) -> Any:  # fmt: skip
    """As `Stores._clash`: `stored` is what a store writes, `same` that equal regions go element by element."""
    size = stored.tensor.dtype.bytes
    if same and dtype.bytes == size and lift(pointer).text == lift(stored.pointer).text and len(strides) == len(
        stored.strides
    ) and all(lift(a).text == lift(b).text for a, b in zip(strides, stored.strides, strict=True)):
        return False
    one = region_text(pointer, dtype.bytes, shape, strides)
    other = region_text(stored.pointer, size, store_shape, stored.strides)
    function = "pto_clash" if same and dtype.bytes == size else "pto_overlap"
    return CValue(I1, f"{function}({one}, {other})")
