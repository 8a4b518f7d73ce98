# SPDX-License-Identifier: MIT
"""The values that bodies take and give: their types, and many of them put together as a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit.dtypes import from_numpy
from pto_jit.errors import TypeMismatchError
from pto_jit.fractal.places import failure
from pto_jit.fractal.tensor import Array, FractalTensor, from_counts, whole
from pto_jit.fractal.types import ElementType, ListType, TensorType, TupleType, like
from pto_jit.fractal.zipped import Zipped
from pto_jit.language._tile import Tensor, Tile

Body = Callable[..., Any]


def is_weak(value: Any) -> bool:
    """A number of Python's, which takes the element type of what it meets."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def canonical(value: Any, what: str, body: Body | None = None) -> Any:
    """A value as bodies take it: lists, tuples, tensors (read-only `pl.Tensor`) and NumPy scalars.

    Raises TypeMismatchError (PTO-F022) for anything else, e.g. None of a body without `return`.
    """
    if isinstance(value, (FractalTensor, Zipped)):
        return value
    if isinstance(value, tuple):
        return like(type(value), [canonical(v, what, body) for v in value])
    if isinstance(value, Tile):
        array: Any = value.value.data
        _whole(array, value.value.shape, what, body)
    elif isinstance(value, np.ndarray):
        array = value.view(np.ndarray)
        if isinstance(value, Tensor):
            _whole(array, value.declared, what, body)
    elif is_weak(value) or (hasattr(value, "__array__") and not isinstance(value, type)):
        array = np.asarray(value)
    else:
        hint = "return a tensor, a number, a FractalTensor or a tuple of them"
        if isinstance(value, list):
            hint = "return a tuple, or a FractalTensor: `ft.from_list(...)`"
        raise failure(TypeMismatchError, "PTO-F022", f"{what} is {value!r:.60}", hint, body=body)
    if from_numpy(array.dtype) is None:
        raise failure(TypeMismatchError, "PTO-F022", f"{what} has elements of {array.dtype}",
                      "cast it to one of the language's element types", body=body)  # fmt: skip
    if array.ndim == 0:
        return array[()]
    tensor = array.view(Tensor)
    tensor.flags.writeable = False
    return tensor


def _whole(array: Array, declared: tuple[int, ...], what: str, body: Body | None) -> None:
    """Refuse what a load past the end of a tensor gives: lists have no partial tiles."""
    if array.shape != tuple(declared):
        raise failure(TypeMismatchError, "PTO-F022", f"{what} is a partial tile, {list(array.shape)} of "
                      f"{list(declared)}", "load within the bounds of the tensor", body=body)  # fmt: skip


def kind_of(value: Any) -> ElementType:
    """The type of a canonical value."""
    if isinstance(value, (FractalTensor, Zipped)):
        return value.kind
    if isinstance(value, tuple):
        return TupleType(tuple(map(kind_of, value)), type(value))
    array = value.view(np.ndarray) if isinstance(value, np.ndarray) else value
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    return TensorType(array.shape, dtype)


def stack(values: Sequence[Any], materialise: bool = True) -> Any:
    """Canonical values of one type, at least one, as a list; tuples as a tuple of lists.

    materialise: lists of lists get a buffer of their own, in order; else they are views of the buffers of `values`.
    """
    first = values[0]
    if isinstance(first, tuple):
        return like(type(first), [stack([v[k] for v in values], materialise) for k in range(len(first))])
    if isinstance(first, Zipped):
        parts = [stack([v.parts[k] for v in values], materialise) for k in range(len(first.parts))]
        return Zipped(tuple(parts), first.levels + 1)
    if isinstance(first, FractalTensor):
        joined = first.joined(values[1:]).nest(from_counts(np.array([len(v) for v in values], np.int64)))
        return whole(joined.leaves, joined.offsets) if materialise else joined
    kind = kind_of(first)
    assert isinstance(kind, TensorType)
    buffer: Array = np.empty((len(values), *kind.shape), kind.dtype.numpy)
    for k, value in enumerate(values):
        buffer[k] = value
    return whole(buffer, ())


def stack_tuples(tuples: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The lists of the first items, the second items, ... of tuples: what `ft.zip(*z)` means.

    Raises TypeMismatchError for tuples of different types (PTO-F023).
    """
    values = [canonical(t, f"argument {k + 1} of ft.zip") for k, t in enumerate(tuples)]
    kind = kind_of(values[0])
    for k, value in enumerate(values):
        if kind_of(value) != kind:
            raise failure(TypeMismatchError, "PTO-F023", f"ft.zip of tuples of different types: {kind} and "
                          f"{kind_of(value)}, argument {k + 1}", "all tuples have one type")  # fmt: skip
    return stack(values, materialise=False)


def empty_list(kind: ElementType) -> Any:
    """A list without elements, whose elements would have that type; a tuple of lists for tuples."""
    if isinstance(kind, TupleType):
        return kind.make([empty_list(item) for item in kind.items])
    return empty_of(ListType(kind))


def empty_of(kind: ListType) -> FractalTensor | Zipped:
    """The list of that type without elements."""
    levels = 0
    inner: ElementType = kind
    while isinstance(inner, ListType):
        inner, levels = inner.element, levels + 1
    if isinstance(inner, TupleType):
        parts = []
        for item in inner.items:
            for _ in range(levels):
                item = ListType(item)
            assert isinstance(item, ListType)
            parts.append(empty_of(item))
        return Zipped(tuple(parts), levels)
    none = np.zeros(1, np.int64)
    return whole(np.empty((0, *inner.shape), inner.dtype.numpy), (none,) * (levels - 1))


def stand_in(kind: ElementType) -> Any:
    """A value of that type to try a body on: zeros, and lists of one element."""
    if isinstance(kind, TensorType):
        return canonical(np.zeros(kind.shape, kind.dtype.numpy), "a stand-in")
    if isinstance(kind, TupleType):
        return kind.make([stand_in(item) for item in kind.items])
    return zip_up(stack([stand_in(kind.element)], materialise=False))


def zip_up(value: Any) -> Any:
    """Tuples of lists as lists of tuples, at every level of tuples."""
    return Zipped(tuple(map(zip_up, value))) if isinstance(value, tuple) else value
