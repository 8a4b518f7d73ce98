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


def canonical(value: Any, what: str, body: Body | None = None, *, weak: bool = False) -> Any:
    """A value as bodies take it: lists, tuples, tensors (read-only `pl.Tensor`) and NumPy scalars.

    weak: Python's numbers stay what they are.

    Raises TypeMismatchError (PTO-F022) for anything else, e.g. None of a body without `return`.
    """
    if isinstance(value, (FractalTensor, Zipped)):
        return value
    if isinstance(value, tuple):
        return like(type(value), [canonical(v, what, body, weak=weak) for v in value])
    if weak and is_weak(value):
        return value
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
        verb = "return" if body is not None else "give"
        hint = f"{verb} a tensor, a number, a FractalTensor or a tuple of them"
        if isinstance(value, list):
            hint = f"{verb} a tuple, or a FractalTensor: `ft.from_list(...)`"
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
    """The type of a canonical value; Python's numbers have those that they get alone."""
    if isinstance(value, (FractalTensor, Zipped)):
        return value.kind
    if isinstance(value, tuple):
        return TupleType(tuple(map(kind_of, value)), type(value))
    array = value.view(np.ndarray) if isinstance(value, np.ndarray) else np.asarray(value)
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
        return materialised(joined) if materialise else joined
    kind = kind_of(first)
    assert isinstance(kind, TensorType)
    buffer: Array = np.empty((len(values), *kind.shape), kind.dtype.numpy)
    for k, value in enumerate(values):
        buffer[k] = value
    return whole(buffer, ())


def materialised(x: Any) -> Any:
    """The same list over a buffer of its own, in order."""
    if isinstance(x, Zipped):
        return Zipped(tuple(materialised(part) for part in x.parts), x.levels)
    assert isinstance(x, FractalTensor)
    return x if x.tried else whole(x.leaves, x.offsets)


def retyped(value: Any, kind: ElementType) -> Any:
    """The value as one of that type, where it differs only in what a trial said of lists without leaves; else None."""
    if kind_of(value) == kind:
        return value
    if isinstance(value, tuple):
        if not isinstance(kind, TupleType) or type(value) is not kind.cls or len(value) != len(kind.items):
            return None
        items = [retyped(v, k) for v, k in zip(value, kind.items, strict=True)]
        return None if any(item is None for item in items) else kind.make(items)
    around, inner = _unwrapped(kind)
    if isinstance(value, Zipped):
        if around != value.levels or not isinstance(inner, TupleType) or len(inner.items) != len(value.parts):
            return None
        parts = [retyped(v, _wrapped(k, around)) for v, k in zip(value.parts, inner.items, strict=True)]
        return None if any(part is None for part in parts) else Zipped(tuple(parts), around)
    if not isinstance(value, FractalTensor) or not value.tried or value.depth != around:
        return None
    if not isinstance(inner, TensorType):
        return None
    none: Array = np.empty((0, *inner.shape), inner.dtype.numpy)
    return whole(none, value.offsets)


def _unwrapped(kind: ElementType) -> tuple[int, TensorType | TupleType]:
    """How many lists stand around the innermost element, and that element's type."""
    around = 0
    while isinstance(kind, ListType):
        kind, around = kind.element, around + 1
    return around, kind


def _wrapped(kind: ElementType, around: int) -> ElementType:
    for _ in range(around):
        kind = ListType(kind)
    return kind


def agreed(values: Sequence[Any]) -> list[Any] | None:
    """Canonical values of one type, where only trials say something against it; None when there is no such type."""
    first = values[0]
    if isinstance(first, tuple):
        if any(type(v) is not type(first) or len(v) != len(first) for v in values):
            return None
        if not first:
            return list(values)
        columns = [agreed([v[k] for v in values]) for k in range(len(first))]
        if any(column is None for column in columns):
            return None
        return [like(type(first), row) for row in zip(*columns, strict=True)]  # type: ignore[arg-type]
    if isinstance(first, Zipped) and all(isinstance(v, Zipped) for v in values):
        parts = agreed([v.parts for v in values])
        alike = parts is not None and all(v.levels == first.levels for v in values)
        return [Zipped(p, first.levels) for p in parts] if alike else None  # type: ignore[union-attr]
    for kind in dict.fromkeys(map(kind_of, values)):
        found = [retyped(v, kind) for v in values]
        if all(v is not None for v in found):
            return found
    return None


def stack_tuples(tuples: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The lists of the first items, the second items, ... of tuples: what `ft.zip(*z)` means.

    Raises TypeMismatchError for tuples of different types (PTO-F023).
    """
    values = [canonical(t, f"argument {k + 1} of ft.zip") for k, t in enumerate(tuples)]
    alike = agreed(values)
    if alike is None:
        kinds = ", ".join(map(str, dict.fromkeys(map(kind_of, values))))
        raise failure(TypeMismatchError, "PTO-F023", f"ft.zip of tuples of different types: {kinds}",
                      "all tuples have one type")  # fmt: skip
    return tuple(zip_up(column) for column in stack(alike, materialise=False))


def empty_list(kind: ElementType, sample: Any, tried: bool) -> Any:
    """A list without elements, whose elements would be of that type and like `sample`; a tuple of lists for tuples.

    tried: the type is known from a trial.
    """
    if isinstance(kind, TupleType):
        return kind.make([empty_list(k, s, tried) for k, s in zip(kind.items, sample, strict=True)])
    around, inner = _unwrapped(kind)
    if isinstance(inner, TupleType):
        parts = zip(inner.items, sample.parts, strict=True)
        return Zipped(tuple(empty_list(_wrapped(k, around), s, tried) for k, s in parts), around + 1)
    none = np.zeros(1, np.int64)
    leaves: Array = np.empty((0, *inner.shape), inner.dtype.numpy)
    return FractalTensor((leaves,), none[:0], (none,) * around, sample=sample if around else None, tried=tried)


def stand_in(kind: ElementType, number: int = 0) -> Any:
    """A value of that type to try a body on: zeros, or such numbers, and lists of one element."""
    if isinstance(kind, TensorType):
        return canonical(np.full(kind.shape, number, kind.dtype.numpy), "a stand-in")
    if isinstance(kind, TupleType):
        return kind.make([stand_in(item, number) for item in kind.items])
    return zip_up(stack([stand_in(kind.element, number)], materialise=False))


def zip_up(value: Any) -> Any:
    """Tuples of lists as lists of tuples, at every level of tuples."""
    return Zipped(tuple(map(zip_up, value))) if isinstance(value, tuple) else value
