# SPDX-License-Identifier: MIT
"""Types of what parallel functions pass around: tensors, lists, tuples.  Lengths are not part of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType, f64, from_numpy, i64
from pto_jit.errors import TypeMismatchError
from pto_jit.language import TensorSpec
from pto_jit.slotted import frozen


@frozen
class TensorType:
    """A tensor (a leaf): extents and element type; extents () is a number."""

    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"Tensor[{list(self.shape)}, {self.dtype}]" if self.shape else f"{self.dtype} number"


@frozen
class ListType:
    """A list: its elements are tensors, lists or (in a zipped list) tuples."""

    element: ElementType

    def __str__(self) -> str:
        return f"FractalTensor[{self.element}]"


@frozen
class TupleType:
    """A tuple of the class `cls`, which is `tuple` or that of a named tuple."""

    items: tuple[ElementType, ...]
    cls: type = tuple

    def make(self, items: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple of that class."""
        return like(self.cls, items)

    def __str__(self) -> str:
        inner = f"({', '.join(map(str, self.items))}{',' if len(self.items) == 1 else ''})"
        return inner if self.cls is tuple else self.cls.__name__ + inner


ElementType = TensorType | ListType | TupleType


def like(cls: type, items: Sequence[Any]) -> tuple[Any, ...]:
    """A tuple of those items, of the class `cls` when that is of named tuples."""
    make = getattr(cls, "_make", None)
    return tuple(items) if make is None else make(items)


@frozen
class FractalSpec:
    """`ft.FractalTensor[pl.Tensor[[1, 64], pl.f32]]`: what an argument is checked against at the call.

    `depth` levels of lists around leaves of `leaf`, whose extents are ints, `pl.dynamic` symbols or None (anything).
    """

    depth: int
    leaf: TensorSpec

    @property
    def __pto_list__(self) -> bool:
        """The mark by which calls of kernels know it, which need not import this module."""
        return True

    def __repr__(self) -> str:
        return "ft.FractalTensor[" * self.depth + repr(self.leaf) + "]" * self.depth


_NUMBERS = {int: i64, float: f64}


def fractal_spec(item: Any) -> FractalSpec:
    """The value of `ft.FractalTensor[item]`: of a `pl.Tensor[...]`, a `pl` dtype, int, float, or another such list."""
    if isinstance(item, FractalSpec):
        return FractalSpec(item.depth + 1, item.leaf)
    if isinstance(item, TensorSpec):
        return FractalSpec(1, item)
    dtype = item if isinstance(item, DType) else _NUMBERS.get(item) if isinstance(item, type) else None
    if dtype is None:
        raise TypeMismatchError(
            f"ft.FractalTensor[...] takes the type of the elements, not {item!r}",
            code="PTO-F001",
            hint="write `ft.FractalTensor[pl.Tensor[[1, 64], pl.f32]]`, `ft.FractalTensor[pl.i64]` or a list of lists",
        )
    return FractalSpec(1, TensorSpec((), dtype))


def number_type(value: Any) -> TensorType | None:
    """The type of an array or number by NumPy's reading of it; None when the language has no such element type."""
    dtype = from_numpy(value.dtype)
    return None if dtype is None else TensorType(tuple(value.shape), dtype)

