# SPDX-License-Identifier: MIT
"""What IR variables stand for while a function is written: LLVM values with their compile-time knowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.slotted import frozen, names, replace
from pto_jit.targets.cpu.constants import Index, Value


@frozen
class Tensor:
    """An array in global memory; strides in bytes."""

    dtype: DType
    pointer: Value
    extents: tuple[Index, ...]
    strides: tuple[Index, ...]


@frozen
class Tile:
    """A tile in memory: a buffer of its own, or a `view` of global memory that nothing overwrites while it lives.

    `fits`: per axis, not 0 when it was generated along it, so that it goes with any valid extent when it is complete.
    Numbers known when run for a variable that starts as a generated tile.  Empty: it was along none.
    """

    dtype: DType
    pointer: Value
    declared: tuple[Index, ...]
    valid: tuple[Index, ...]
    strides: tuple[Index, ...]
    view: bool = False
    fits: tuple[Index, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.declared)


@frozen
class Slot:
    """A scalar variable that is assigned more than once: a stack slot."""

    dtype: DType
    pointer: Value


@frozen
class TileSlot:
    """A tile variable that is assigned more than once: stack slots for its pointer, declared and valid extents.

    Valid extents are slots or, along axes where whatever it is assigned is complete, numbers.
    `pointer` is fixed memory when the declared extents are constants (`fixed`), else a slot that holds a pointer to
    memory of `capacity` bytes (a slot too), which grows on demand.  `fits`: per axis a slot, or 0 when it never does;
    empty when it never does along any.
    """

    dtype: DType
    pointer: Value
    declared: tuple[Index, ...]
    valid: tuple[Index, ...]
    capacity: Value | None = None
    fits: tuple[Index, ...] = ()


def remap(obj: Any, change: Callable[[Value], Value]) -> Any:
    """`obj` with every LLVM value in it, at any depth of dataclasses, tuples and dicts, replaced."""
    if isinstance(obj, ir.Constant):
        return obj
    if isinstance(obj, ir.Value):
        return change(obj)
    if isinstance(obj, tuple):
        return tuple(remap(x, change) for x in obj)
    if isinstance(obj, list):
        return [remap(x, change) for x in obj]
    if isinstance(obj, dict):
        return {k: remap(x, change) for k, x in obj.items()}
    if isinstance(obj, (type, DType)):
        return obj
    fields = names(type(obj))
    return obj if fields is None else replace(obj, **{name: remap(getattr(obj, name), change) for name in fields})
