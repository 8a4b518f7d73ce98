# SPDX-License-Identifier: MIT
"""NumPy's functions of run-time values: what each of them is in the language.

Kernels are compiled with the functions below in place of NumPy's, and so eager code computes with tiles.  They take
NumPy's parameters as far as the language has what these ask for (no `out=`, no `where=`), and have NumPy's names, which
errors mention.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pto_jit import language as pl
from pto_jit.dtypes import DType, from_numpy


def _known(x: Any) -> DType | None:
    """The dtype of what has one: of no Python number."""
    dtype = getattr(x, "dtype", None)
    return dtype if dtype is None or isinstance(dtype, DType) else from_numpy(dtype)


def _floating(x: Any) -> Any:
    """Integers as the floats that NumPy computes with for them."""
    dtype = _known(x)
    if dtype is None or dtype.is_float:
        return x
    return pl.cast(x, pl.f16 if dtype.bits <= 8 else pl.f32 if dtype.bits == 16 else pl.f64)


def _number(x: Any) -> Any:
    """Truth values as the integers that NumPy computes with for them."""
    return pl.cast(x, pl.i8) if _known(x) is pl.bool_ else x


def _beside(x: Any, others: Any) -> Any:
    """An operand beside others: Python's floats make integers f64."""
    dtype = _known(x)
    wide = True in [_known(y) is None and isinstance(y, float) for y in others]
    return pl.cast(x, pl.f64) if wide and dtype is not None and not dtype.is_float else _floating(x)


def of_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `math` of one or two operands."""

    def of_operands(x: Any, *other: Any) -> Any:
        return function(_beside(x, other), *[_beside(y, (x,)) for y in other])

    return of_operands


def flatten(a: Any) -> Any:
    return pl.load(a) if a.ndim == 1 else pl.reshape(pl.load(a), [-1])


def ravel(a: Any) -> Any:
    return pl.reshape(a, [-1])


def fabs(x: Any) -> Any:
    return pl.abs(_floating(x))


def rint(x: Any) -> Any:
    return pl.round(_floating(x))


def round(a: Any) -> Any:
    return pl.cast(a, pl.f16) if _known(a) is pl.bool_ else pl.round(a)


def square(x: Any) -> Any:
    return pl.square(_number(x))


def fmod(x: Any, y: Any) -> Any:
    return pl.fmod(_number(x), _number(y)) if _known(x) is _known(y) else pl.fmod(x, y)


def ldexp(x: Any, i: Any) -> Any:
    return math.ldexp(_floating(x), i)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = pl.i64) -> Any:
    return pl.arange(start, stop, step, dtype)


def sum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return pl.sum(a if dtype is None else a.astype(dtype), axis, keepdims)


def prod(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return pl.prod(a if dtype is None else a.astype(dtype), axis, keepdims)


def mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
    return pl.mean(a if dtype is None else a.astype(dtype), axis, keepdims)


def max(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.max(a, axis, keepdims)


def min(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.min(a, axis, keepdims)


def any(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.any(a, axis, keepdims)


def all(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.all(a, axis, keepdims)


def argmax(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.argmax(a, axis, keepdims)


def argmin(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.argmin(a, axis, keepdims)


def var(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    squares = pl.square(a - pl.mean(a, axis, True))
    if ddof == 0:
        return pl.mean(squares, axis, keepdims)
    total = pl.sum(squares, axis, keepdims)
    axes = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return total / pl.maximum(math.prod([a.shape[k] for k in axes]) - ddof, 0)


def std(a: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
    return pl.sqrt(var(a, axis, ddof=ddof, keepdims=keepdims))


def ptp(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.max(a, axis, keepdims) - pl.min(a, axis, keepdims)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.sum(a != 0, axis, keepdims)


def norm(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    return pl.sqrt(pl.sum(pl.square(x), axis, keepdims))


def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    given = a if dtype is None else a.astype(dtype)
    return pl.cumsum(flatten(given)) if axis is None else pl.cumsum(given, axis)


def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    given = a if dtype is None else a.astype(dtype)
    return pl.cumprod(flatten(given)) if axis is None else pl.cumprod(given, axis)


def _to_the_end(axis: int, rank: int) -> list[int]:
    """The axes with `axis` and the last one exchanged."""
    return [rank - 1 if k == axis % rank else axis % rank if k == rank - 1 else k for k in range(rank)]


def sort(a: Any, axis: int | None = -1) -> Any:
    if axis is None:
        return pl.sort(flatten(a))
    axes = _to_the_end(axis, a.ndim)
    return pl.sort(a) if axis in (-1, a.ndim - 1) else pl.transpose(pl.sort(pl.transpose(a, axes)), axes)


def argsort(a: Any, axis: int | None = -1) -> Any:
    if axis is None:
        return pl.argsort(flatten(a))
    axes = _to_the_end(axis, a.ndim)
    return pl.argsort(a) if axis in (-1, a.ndim - 1) else pl.transpose(pl.argsort(pl.transpose(a, axes)), axes)


def clip(a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    return pl.clip(a, a_min, a_max)


def where(condition: Any, x: Any, y: Any) -> Any:
    return pl.where(condition, x, y)


def concatenate(arrays: Any, axis: int | None = 0) -> Any:
    return pl.concat([flatten(a) for a in arrays]) if axis is None else pl.concat(list(arrays), axis)


def stack(arrays: Any, axis: int = 0) -> Any:
    return pl.stack(list(arrays), axis)


def outer(a: Any, b: Any) -> Any:
    return pl.expand_dims(flatten(a), 1) * pl.expand_dims(flatten(b), 0)


def take_along_axis(arr: Any, indices: Any, axis: int = -1) -> Any:
    return pl.gather(arr, indices, axis)


def logical_and(a: Any, b: Any) -> Any:
    return (a != 0) & (b != 0)


def logical_or(a: Any, b: Any) -> Any:
    return (a != 0) | (b != 0)


def logical_xor(a: Any, b: Any) -> Any:
    return (a != 0) ^ (b != 0)


def logical_not(a: Any) -> Any:
    return a == 0
