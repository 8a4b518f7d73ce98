# SPDX-License-Identifier: MIT
"""What a core of the Ascend 910B has: pipes, memories, element types.

A *vector core* computes in its unified buffer (UB); a *cube core* multiplies matrices that come through L1 into L0A and
L0B and adds the products up in L0C.  Both work with queues that run beside each other, the *pipes*; nothing but flags
and barriers orders one pipe with another.
"""

from __future__ import annotations

from typing import Literal

from pto_jit.dtypes import DType

Pipe = Literal["S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"]
PIPES: tuple[Pipe, ...] = ("S", "V", "MTE2", "MTE3", "M", "MTE1", "FIX")
"""Those of a vector core first."""
IN_ORDER: frozenset[Pipe] = frozenset(["S", "M"])
"""Pipes in which an operation sees what the ones before it wrote: the scalar unit, and products that add up in L0C."""

Space = Literal["Vec", "Mat", "Left", "Right", "Acc"]
CAPACITY: dict[Space, int] = {
    "Vec": 184 * 1024,  # of 192 KiB: row broadcasts use the rest as scratch memory, whether a program knows it or not
    "Mat": 512 * 1024,
    "Left": 64 * 1024,
    "Right": 64 * 1024,
    "Acc": 128 * 1024,
}
SCRATCH = (184 * 1024, 8 * 1024)
"""Address and size of what row broadcasts write to in the unified buffer."""
BLOCK = 32
"""Bytes: rows of tiles and addresses are multiples of it."""
MOST_ROWS = 4095
"""Rows that one transfer between global memory and the unified buffer takes."""
EVENTS = 8
"""Flags between two pipes, in one direction."""
TAKEN: frozenset[tuple[Pipe, Pipe]] = frozenset([("V", "S"), ("S", "V")])
"""Pairs of pipes whose flag 0 some instructions (`TROWEXPAND`, `TROWPROD`, `TDIVS`, row reductions of integers) use
themselves."""

_TYPES = {
    "f32": "float", "f16": "half", "bf16": "bfloat16_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "i64": "int64_t",
}  # fmt: skip


def element_type(dtype: DType) -> str | None:
    """The C++ type of an element in memory; None for one that tiles cannot have."""
    return _TYPES.get(dtype.name)


def padded(count: int, size: int, to: int = BLOCK) -> int:
    """`count` elements of `size` bytes, rounded up to whole blocks."""
    per = to // size
    return -(-count // per) * per
