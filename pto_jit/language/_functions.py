# SPDX-License-Identifier: MIT
"""`pl.reduce`, `pl.associative_scan` and `pl.map` on NumPy values, with functions of scalars or of tiles.

A function is first called on whole tiles; when it cannot take them (it branches on a value, converts to `float`, ...)
it is called once per element on NumPy scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit.errors import PtoError, ShapeError, TypeMismatchError
from pto_jit.language import _eager as eager
from pto_jit.language import _tile_ops as tiles
from pto_jit.language._tile import Tile
from pto_jit.language._tile_value import (
    ExtentError,
    TileValue,
    checked_axes,
    checked_axis,
    fitted,
    joint,
    joint_marks,
    tile,
)

Array = Any


class _NeedsScalars(Exception):
    """The function does not take tiles."""


def reduce(x: Any, axis: Any, fn: Callable[..., Any], init: Any, keepdims: bool) -> Any:
    items, many = _items(x, "reduce")
    rank = items[0].rank
    axes = checked_axes(axis, rank, "reduce")
    inits = None if init is None else list(init) if isinstance(init, (tuple, list)) else [init]
    if inits is not None and len(inits) != len(items):
        raise ShapeError(
            f"reduce: {len(inits)} initial values for {len(items)} tiles", code="PTO-H032", hint="give one per tile"
        )
    starts = None if inits is None else [
        eager.to_dtype(eager.value_of(v, "init"), _strong(t)) for v, t in zip(inits, items, strict=True)
    ]  # fmt: skip
    results: list[Any] = items
    for along in reversed(axes):
        last = starts if along == axes[0] else None
        results = tiles.fold(_combine(fn, many), results, along, last, keepdims)
    shown = [eager.present(r, (x, np.bool_()) if not many else (*x, np.bool_())) for r in results]
    return tuple(shown) if many else shown[0]


def associative_scan(x: Any, axis: Any, fn: Callable[..., Any], reverse: bool) -> Any:
    items, many = _items(x, "associative_scan")
    along = checked_axis(axis, items[0].rank, "associative_scan")
    results = tiles.scan(_combine(fn, many), items, along, bool(reverse))
    shown = [eager.present(r, x if many else (x,)) for r in results]
    return tuple(shown) if many else shown[0]


def map(fn: Callable[..., Any], *operands: Any) -> Any:
    if not operands:
        raise TypeMismatchError("map of no tiles", code="PTO-T052", hint="write `pl.map(fn, tile, ...)`")
    items = [eager.tile_of(x, "map") for x in operands]
    shape, unit, valid = joint(items)
    arrays = [np.broadcast_to(fitted(t, valid), valid) for t in items]
    try:
        results, many = _on_tiles(fn, arrays, valid)
    except _NeedsScalars:
        results, many = _per_element(fn, arrays, valid)
    shown = [eager.present(TileValue(r, shape, unit, joint_marks(items)), operands) for r in results]
    return tuple(shown) if many else shown[0]


def _items(x: Any, what: str) -> tuple[list[TileValue], bool]:
    many = isinstance(x, (tuple, list))
    items = [eager.tile_of(t, what) for t in (x if many else (x,))]
    if not items:
        raise TypeMismatchError(f"{what} of no tiles", code="PTO-H024", hint="give at least one tile")
    return items, many


def _strong(t: TileValue) -> Any:
    return eager.common_dtype([t])


def _combine(fn: Callable[..., Any], many: bool) -> Callable[[Sequence[Array], Sequence[Array]], Sequence[Array]]:
    """`fn` as a function of lists of arrays of one shape; the results have the operands' dtypes."""

    def call(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        result = fn(tuple(left), tuple(right)) if many else fn(left[0], right[0])
        results = list(result) if many and isinstance(result, (tuple, list)) else [result]
        if len(results) != len(left):
            raise TypeMismatchError(
                f"the function returns {len(results)} values for {len(left)} operands",
                code="PTO-T003",
                hint="it returns as many values as each of its arguments has",
            )
        return results

    def combine(left: Sequence[Array], right: Sequence[Array]) -> Sequence[Array]:
        shape = np.shape(left[0])
        kinds = [eager.common_dtype([np.asarray(a).reshape(-1)[:1].dtype.type(0)]) for a in left]
        if shape:
            try:
                values = _attempt(lambda: call([Tile(tile(a)) for a in left], [Tile(tile(a)) for a in right]))
                return [_array(v, kind.numpy, shape) for v, kind in zip(values, kinds, strict=True)]
            except _NeedsScalars:
                pass
        flat = [[np.asarray(a).reshape(-1) for a in side] for side in (left, right)]
        out = [np.empty(int(np.prod(shape)), kind.numpy) for kind in kinds]
        with np.errstate(all="ignore"):
            for k in range(out[0].size):
                values = call([a[k] for a in flat[0]], [a[k] for a in flat[1]])
                for o, value, kind in zip(out, values, kinds, strict=True):
                    o[k] = eager.to_dtype(eager.value_of(value, "the function's result"), kind)
        return [o.reshape(shape) for o in out]

    return combine


def _attempt(call: Callable[[], Any]) -> Any:
    """Call a function on tiles; whatever it raises, it is asked again with scalars, where a true error shows."""
    try:
        with np.errstate(all="ignore"):
            return call()
    except (PtoError, TypeError, ValueError, AttributeError):
        raise _NeedsScalars from None


def _array(value: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    """One result of a call on tiles; a shape of its own means that the function is not elementwise."""
    item = eager.value_of(value, "the function's result")
    kind = eager.dtype_of(dtype) if dtype is not None else eager.common_dtype([item])
    item = eager.to_dtype(item, kind)
    if not isinstance(item, TileValue):
        return np.full(shape, item, kind.numpy)
    if item.data.shape != shape:
        raise _NeedsScalars
    return item.data


def _on_tiles(fn: Callable[..., Any], arrays: Sequence[Array], shape: tuple[int, ...]) -> tuple[list[Array], bool]:
    result = _attempt(lambda: fn(*(Tile(tile(a)) for a in arrays)))
    many = isinstance(result, (tuple, list))
    return [_array(v, None, shape) for v in (result if many else [result])], many


def _per_element(fn: Callable[..., Any], arrays: Sequence[Array], shape: tuple[int, ...]) -> tuple[list[Array], bool]:
    rows = zip(*(np.asarray(a).reshape(-1) for a in arrays), strict=True)
    with np.errstate(all="ignore"):
        calls = [fn(*row) for row in rows] or [fn(*(a.dtype.type(0) for a in arrays))]
    many = isinstance(calls[0], (tuple, list))
    columns = [list(c) for c in zip(*calls, strict=True)] if many else [calls]
    count = int(np.prod(shape, dtype=np.int64))
    results = []
    for column in columns:
        values = [eager.value_of(v, "the function's result") for v in column]
        if any(isinstance(v, TileValue) for v in values):
            raise ExtentError("map: the function returns tiles", code="PTO-T003", hint="it takes and returns scalars")
        kind = eager.common_dtype(values)
        data = np.array([eager.to_dtype(v, kind) for v in values], kind.numpy)
        results.append(data[:count].reshape(shape))
    return results, many
