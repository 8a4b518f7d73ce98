# SPDX-License-Identifier: MIT
"""NumPy's functions of run-time values that take arrays apart or weigh them."""

from __future__ import annotations

import math
from typing import Any

from pto_jit import language as pl
from pto_jit.language._numpy_functions import _floating, flatten, mean, sort


def _along(axis: int, rank: int, item: Any) -> tuple[Any, ...]:
    """An index that takes all of the other axes."""
    return tuple([item if k == axis % rank else slice(None) for k in range(rank)])


def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    for _ in [None] * n:
        size = a.shape[axis % a.ndim]
        a = a[_along(axis, a.ndim, slice(1, size))] - a[_along(axis, a.ndim, slice(0, size - 1))]
    return a


def roll(a: Any, shift: Any, axis: int | None = None) -> Any:
    if axis is None:
        rolled = roll(flatten(a), shift, 0)
        return rolled if a.ndim == 1 else pl.reshape(rolled, a.shape)
    size = a.shape[axis % a.ndim]
    by = shift % pl.maximum(size, 1)
    ahead, behind = (slice(size - by, size), slice(0, size - by))
    return pl.concat([a[_along(axis, a.ndim, ahead)], a[_along(axis, a.ndim, behind)]], axis % a.ndim)


def _below(a: Any, k: Any) -> Any:
    """Which elements of matrices lie on the diagonal `k` or below it."""
    rows, columns = a.shape[-2], a.shape[-1]
    return pl.expand_dims(pl.arange(0, columns), 0) - pl.expand_dims(pl.arange(0, rows), 1) <= k


def tril(m: Any, k: Any = 0) -> Any:
    return pl.where(_below(m, k), m, pl.cast(0, m.dtype))


def triu(m: Any, k: Any = 0) -> Any:
    return pl.where(_below(m, k - 1), pl.cast(0, m.dtype), m)


def trace(a: Any, offset: Any = 0) -> Any:
    return pl.sum(triu(tril(a, offset), offset))


def diag(v: Any) -> Any:
    if v.ndim == 1:
        square = pl.broadcast_to(pl.expand_dims(v, 1), (v.shape[0], v.shape[0]))
        return triu(tril(square))
    size = pl.minimum(v.shape[0], v.shape[1])
    return pl.cast(pl.sum(triu(tril(v[0:size, 0:size])), 1), v.dtype)


def median(a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    given = flatten(a) if axis is None else a
    along = 0 if axis is None else axis
    values, size = _floating(sort(given, along)), given.shape[along % given.ndim]
    low, high, last = [values[_along(along, given.ndim, k)] for k in ((size - 1) // 2, size // 2, size - 1)]
    found = pl.where(pl.isnan(last), last, (low + high) / 2)
    if not keepdims:
        return found
    return pl.expand_dims(found, along % a.ndim) if axis is not None else pl.full([1] * a.ndim, found, values.dtype)


def average(a: Any, axis: int | None = None, weights: Any = None) -> Any:
    if weights is None:
        return mean(a, axis)
    if axis is not None and weights.ndim < a.ndim:
        weights = pl.reshape(pl.load(weights), [weights.shape[0] if k == axis % a.ndim else 1 for k in range(a.ndim)])
    total = pl.sum(_floating(a * weights), axis)
    return total / pl.sum(_floating(weights + pl.zeros(a.shape, weights.dtype)), axis)


def inner(a: Any, b: Any) -> Any:
    return a @ b if b.ndim == 1 else a @ pl.transpose(b)


def vdot(a: Any, b: Any) -> Any:
    return pl.sum(flatten(a) * flatten(b))


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    one, other = axis1 % a.ndim, axis2 % a.ndim
    return pl.transpose(a, [other if k == one else one if k == other else k for k in range(a.ndim)])


def moveaxis(a: Any, source: int, destination: int) -> Any:
    axes = [k for k in range(a.ndim) if k != source % a.ndim]
    axes.insert(destination % a.ndim, source % a.ndim)
    return pl.transpose(a, axes)


def vstack(tup: Any) -> Any:
    return pl.concat([pl.expand_dims(a, 0) if a.ndim == 1 else a for a in tup], 0)


def hstack(tup: Any) -> Any:
    arrays = list(tup)
    return pl.concat(arrays, 0 if arrays[0].ndim == 1 else 1)


def nansum(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return pl.sum(pl.where(pl.isnan(a), pl.cast(0, a.dtype), a) if a.dtype.is_float else a, axis, keepdims)


def nanmean(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    if not a.dtype.is_float:
        return mean(a, axis, keepdims=keepdims)
    return nansum(a, axis, keepdims=keepdims) / pl.cast(pl.sum(~pl.isnan(a), axis, keepdims), a.dtype)


def logaddexp(x1: Any, x2: Any) -> Any:
    a, b = _floating(x1), _floating(x2)
    apart = pl.maximum(a, b) + pl.log1p(pl.exp(-pl.abs(a - b)))
    return pl.where(a == b, a + math.log(2), apart)  # two infinities


def heaviside(x1: Any, x2: Any) -> Any:
    x, at_zero = _floating(x1), _floating(x2)
    return pl.where(x == 0, at_zero, pl.where(x < 0, 0.0, pl.where(x > 0, 1.0, x)))
