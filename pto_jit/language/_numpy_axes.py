# SPDX-License-Identifier: MIT
"""What operations along axes compute, on NumPy arrays: reductions, scans, sorting, matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType
from pto_jit.language._numpy_ops import cast, evaluate, is_half, widen

Array = Any


def identity(name: str, dtype: Any) -> Any:
    """What `max` or `min` of nothing is."""
    kind = dtypes.from_numpy(dtype)
    assert kind is not None
    if kind.is_float:
        return -np.inf if name == "max" else np.inf
    info = np.iinfo(dtype)
    return info.min if name == "max" else info.max


def reduce(name: str, array: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """sum, prod, max, min in the dtype of `array` (16-bit floats accumulate in f32); any, all give bool_."""
    wide = widen(array)
    with np.errstate(all="ignore"):
        if name in ("any", "all"):
            result = getattr(np, name)(wide != 0, axis=axes, keepdims=keepdims)
        elif wide.dtype == np.bool_:
            chosen = {"max": np.any, "min": np.all, "sum": np.any, "prod": np.all}[name]
            result = chosen(wide, axis=axes, keepdims=keepdims)
        elif name in ("max", "min"):
            first = identity(name, wide.dtype)
            result = getattr(np, name)(wide, axis=axes, keepdims=keepdims, initial=first)
        else:
            result = getattr(np, name)(wide, axis=axes, keepdims=keepdims, dtype=wide.dtype)
        return result if name in ("any", "all") else np.asarray(result).astype(array.dtype)


def arg_reduce(name: str, array: Array, axis: int | None, keepdims: bool) -> Array:
    """argmax or argmin (i32) of the first extreme element or the first NaN; of nothing: 0."""
    wide = widen(array)
    if wide.size == 0 and (axis is None or wide.shape[axis] == 0):
        gone = range(wide.ndim) if axis is None else (axis,)
        shape = [1 if a in gone else n for a, n in enumerate(wide.shape) if keepdims or a not in gone]
        return np.zeros(shape, np.int32)
    return np.asarray(getattr(np, name)(wide, axis=axis, keepdims=keepdims)).astype(np.int32)


def cumulate(name: str, array: Array, axis: int, reverse: bool) -> Array:
    """cumsum or cumprod in the dtype of `array`; 16-bit floats accumulate in f32."""
    wide = widen(array)
    if reverse:
        wide = np.flip(wide, axis)
    with np.errstate(all="ignore"):
        result = getattr(np, name)(wide, axis=axis, dtype=wide.dtype)
    return np.ascontiguousarray(np.flip(result, axis) if reverse else result).astype(array.dtype)


def product(a: Array, b: Array, acc: Array | None, dtype: DType) -> Array:
    """a @ b (+ acc), accumulated in f32 for 16-bit floats and in `dtype` for integers, rounded once to `dtype`."""
    if is_half(a.dtype) or is_half(b.dtype):
        a, b = a.astype(np.float32), b.astype(np.float32)
    elif a.dtype.kind in "iu":
        a, b = a.astype(dtype.numpy), b.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        result = np.matmul(a, b)
        if acc is not None:
            result = result + acc.astype(result.dtype)
    return cast(result, dtype)


def argsort(array: Array, descending: bool) -> Array:
    """Stable order along the last axis (i32); NaN counts as the largest value."""
    keys = widen(array)
    if not descending:
        return np.argsort(keys, axis=-1, kind="stable").astype(np.int32)
    backwards = np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]  # keeps the order of equal elements
    return (keys.shape[-1] - 1 - backwards).astype(np.int32)


def histogram(array: Array, bins: int) -> Array:
    """Counts of 0..bins-1 along the last axis (i32)."""
    rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
    counts = np.zeros((rows.shape[0], bins), np.int32)
    for row, count in zip(rows, counts, strict=True):
        inside = row[(row >= 0) & (row < bins)].astype(np.int64)
        count += np.bincount(inside, minlength=bins).astype(np.int32)
    return counts.reshape(*array.shape[:-1], bins)


Combine = Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]


def fold(combine: Combine, arrays: Sequence[Array], axis: int, inits: Sequence[Any] | None) -> list[Array] | None:
    """Combine the slices along `axis` from the first to the last; None when there is none, and slices have elements.

    `combine` takes and returns one array per operand; they all have the shape of a slice.
    """
    lines = [np.moveaxis(a, axis, 0) for a in arrays]
    count = lines[0].shape[0]
    if inits is None:
        if count == 0 and all(lines[0].shape[1:]):
            return None
        state = [line[0] if count else np.empty(line.shape[1:], line.dtype) for line in lines]
    else:
        state = [np.full(line.shape[1:], init, line.dtype) for line, init in zip(lines, inits, strict=True)]
    for k in range(1 if inits is None else 0, count):
        state = list(combine(state, [line[k] for line in lines]))
    return [np.asarray(s) for s in state]


def scan(combine: Combine, arrays: Sequence[Array], axis: int, reverse: bool) -> list[Array]:
    """Running combinations along `axis`; with `reverse` those of the flipped arrays, flipped back."""
    lines = [np.moveaxis(np.flip(a, axis) if reverse else a, axis, 0) for a in arrays]
    results = [np.empty(line.shape, line.dtype) for line in lines]
    state: Sequence[Array] = []
    for k in range(lines[0].shape[0]):
        here = [line[k] for line in lines]
        state = here if k == 0 else combine(state, here)
        for result, value in zip(results, state, strict=True):
            result[k] = value
    moved = [np.moveaxis(r, 0, axis) for r in results]
    return [np.ascontiguousarray(np.flip(m, axis) if reverse else m) for m in moved]


def arange(start: Any, step: Any, count: int) -> Array:
    """start + i * step in the dtype of `start`, each element rounded once per operation."""
    index = cast(np.arange(count, dtype=np.int64), dtypes.from_numpy(start.dtype) or dtypes.i64)
    return evaluate("add", np.full(count, start), evaluate("mul", index, np.full(count, step)))
