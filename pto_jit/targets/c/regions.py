# SPDX-License-Identifier: MIT
"""Regions of memory, of which the support header's functions know more when the code runs: whether they overlap
(`pto_clash`), and whether all of a tile lies inside of its tensor (`pto_padded_f32`, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Op
from pto_jit.targets.c.values import CPointer, CValue, lift, memory_ctype, polynomial_text
from pto_jit.targets.cpu.constants import I1, I64, Index
from pto_jit.targets.cpu.elementwise import to_memory
from pto_jit.targets.cpu.tensors import address, need_offset
from pto_jit.targets.cpu.values import Tensor, Tile

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


def padded(
    w: CFunctionWriter, op: Op, tensor: Tensor, offsets: Sequence[Index], declared: tuple[Index, ...]
) -> Tile | None:
    """A load with a pad value from offsets on: the elements where they stand when all of them are inside of the tensor,
    else a copy.  None: it is known to be inside, or this is none of the tensors that most are."""
    code, dtype = w.code, tensor.dtype
    rank, size = len(declared), dtype.bytes
    if rank not in (1, 2) or tensor.strides[-1] != size:
        return None
    pitch = lift(tensor.strides[0]).poly or {}  # from row to row, in bytes
    left = [code.sub(extent, at) for extent, at in zip(tensor.extents, offsets, strict=True)]
    if all(map(_reaches, declared, left)) or any(c % size for c in pitch.values()):
        return None
    for axis, at in enumerate(offsets):
        need_offset(w, axis, at, op.loc)
    name, element = op.results[0].name, memory_ctype(dtype)
    memory, strides = w.unnamed_buffer(name, dtype, declared)
    arguments = [lift(memory).text, code.typed(address(w, tensor, offsets), element).text]
    if rank == 2:  # of the copy where there is one
        apart = polynomial_text({m: c // size for m, c in pitch.items()})[0]
        stride = code.variable("stride", "int64_t", apart, here=True)
        arguments.append(stride.text)
        strides = (CValue(I64, poly={(stride.variable,): size}), size)
    arguments += [lift(n).text for n in (*declared, *left, to_memory(w.b, w.scalar(op.args[-1]), dtype))]
    call = f"pto_padded{'_row' if rank == 1 else ''}_{dtype}({', '.join(arguments)})"
    pointer = CPointer(code.declare(name, f"{element} *", call, kind="own", keep=True), element)
    return Tile(dtype, pointer, declared, declared, strides, view=True)


def _reaches(extent: Index, left: Index) -> bool:
    """Whether an extent is known to be left of an axis."""
    if isinstance(extent, int) and isinstance(left, int):
        return 0 <= extent <= left
    return extent is left
