# SPDX-License-Identifier: MIT
"""The tile operations of the IR on tile values: elementwise, structure, axes, matrix product, order.

Operands have their final dtypes.  Scalars are NumPy scalars.  Every function returns new values and never writes to
an operand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.dtypes import DType
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.language import _numpy_axes as axes_ops
from pto_jit.language import _numpy_ops as ops
from pto_jit.language import _subscript as subscript
from pto_jit.language._tile_value import (
    PAD_HELP,
    ExtentError,
    HoleError,
    Shape,
    TileValue,
    fitted,
    joint,
    joint_marks,
    need_complete,
    outside,
    tile,
)

Value = Any  # a TileValue or a NumPy scalar


def elementwise(name: str, *operands: Value, dtype: DType | None = None) -> Value:
    """`name` over tiles and scalars that broadcast; `dtype` for cast and bitcast."""
    tiles = [o for o in operands if isinstance(o, TileValue)]
    if not tiles:
        return np.asarray(_compute(name, operands, dtype))[()]
    shape, unit, valid = joint(tiles)
    data = _compute(name, [fitted(o, valid) if isinstance(o, TileValue) else o for o in operands], dtype)
    if data.shape != valid:
        data = np.broadcast_to(data, valid).copy()
    return TileValue(data, shape, unit, joint_marks(tiles))


def _compute(name: str, arrays: Sequence[Any], dtype: DType | None) -> Any:
    if name == "select":
        return ops.select(arrays[0], arrays[1], arrays[2])
    if name in ("cast", "bitcast"):
        assert dtype is not None
        return (ops.cast if name == "cast" else ops.bitcast)(arrays[0], dtype)
    return ops.evaluate(name, *arrays)


# -- generated tiles --------------------------------------------------------------------------------------------


def full(value: Any, shape: Shape) -> TileValue:
    """A generated tile of one scalar."""
    _check_extents(shape)
    return tile(np.full(shape, value, dtype=value.dtype), shape, generated=True)


def arange(start: Any, step: Any, count: int) -> TileValue:
    """start + i * step, i = 0..count-1."""
    return tile(axes_ops.arange(start, step, max(0, count)), generated=True)


def rand(name: str, seed: int, offset: int, shape: Shape) -> TileValue:
    """`rand` or `randn` with counters offset + k in row-major order."""
    from pto_jit.language import _philox  # for programs with random numbers

    _check_extents(shape)
    return tile(_random(name, seed, _philox.sequence(offset, shape)), shape, generated=True)


def rand_at(name: str, seed: int, counters: TileValue) -> TileValue:
    """`rand` or `randn` at the given counters; generated when they are."""
    with np.errstate(all="ignore"):
        wide = counters.data.astype(np.int64).astype(np.uint64) if counters.data.dtype.kind == "i" else counters.data
    return counters.with_data(_random(name, seed, wide.astype(np.uint64)))


def _random(name: str, seed: int, counters: Any) -> Any:
    from pto_jit.language import _philox

    return _philox.uniform(seed, counters) if name == "rand" else _philox.normal(seed, counters)


def _check_extents(shape: Sequence[int]) -> None:
    if any(n < 0 for n in shape):
        raise ExtentError(
            f"a tile of shape {tuple(shape)}: an extent is negative", code="PTO-H203", hint="extents are at least 0"
        )


# -- structure --------------------------------------------------------------------------------------------------


def tile_slice(t: TileValue, starts: Sequence[int], extents: Sequence[int], drop: Sequence[int] = ()) -> TileValue:
    """The part of `extents` at `starts`, clipped at the valid part; axes in `drop` (of extent 1) are removed."""
    for start, extent in zip(starts, extents, strict=True):
        if start < 0 or extent < 0:
            raise outside(f"a slice of a tile at {tuple(starts)} with extents {tuple(extents)}: negative", "PTO-B004")
    for axis in drop:
        if starts[axis] >= t.valid[axis]:
            raise outside(
                f"index {starts[axis]} is outside the {t.valid[axis]} valid elements of axis {axis}", "PTO-B005"
            )
    clipped = [max(0, min(e, n - s)) for s, e, n in zip(starts, extents, t.shape, strict=True)]
    part = t.data[tuple(slice(s, s + e) for s, e in zip(starts, clipped, strict=True))].copy()
    result = tile(part, extents, t.generated)
    return squeeze(result, drop) if drop else result


def extract(t: TileValue, indices: Sequence[int]) -> Any:
    """One element as a scalar."""
    for axis, (index, n) in enumerate(zip(indices, t.valid, strict=True)):
        if not 0 <= index < n:
            raise outside(f"index {index} is outside the {n} valid elements of axis {axis}", "PTO-B005")
    return t.data[tuple(indices)]


def squeeze(t: TileValue, gone: Sequence[int]) -> TileValue:
    """Remove axes of extent 1."""
    for axis in gone:
        if t.shape[axis] != 1:
            raise ExtentError(
                f"axis {axis} of a tile of shape {t.shape} does not have extent 1",
                code="PTO-H027",
                hint="name axes of extent 1",
            )
        if t.valid[axis] != 1:
            raise HoleError(
                f"axis {axis} of a tile of shape {t.shape} is empty and cannot be removed",
                code="PTO-B007",
                hint=PAD_HELP,
            )
    kept = [a for a in range(t.rank) if a not in gone]
    return TileValue(
        t.data.reshape([t.valid[a] for a in kept]), tuple(t.shape[a] for a in kept),
        tuple(t.unit[a] for a in kept), tuple(t.generated[a] for a in kept) if t.generated else (),
    )  # fmt: skip


def expand_dims(t: TileValue, axes: Sequence[int]) -> TileValue:
    """New axes of extent 1 at the (sorted) positions `axes` of the result."""
    valid, shape, unit, marks = list(t.valid), list(t.shape), list(t.unit), list(t.generated or (False,) * t.rank)
    for axis in axes:
        valid.insert(axis, 1)
        shape.insert(axis, 1)
        unit.insert(axis, True)
        marks.insert(axis, True)
    return TileValue(t.data.reshape(valid), tuple(shape), tuple(unit), tuple(marks))


def reshape(t: TileValue, shape: Shape) -> TileValue:
    """The elements in row-major order in another shape; incomplete tiles may only gain or lose extents of 1."""
    if np.prod(shape, dtype=np.int64) != np.prod(t.shape, dtype=np.int64):
        raise ExtentError(
            f"reshape of a tile of shape {t.shape} to {tuple(shape)}: the numbers of elements differ",
            code="PTO-H204",
            hint="the numbers of elements must be equal",
        )
    same = [n for n in shape if n != 1] == [n for n in t.shape if n != 1]
    if same:
        marks = iter([g for n, g in zip(t.shape, t.generated, strict=True) if n != 1] if t.generated else ())
        kept = tuple(n == 1 or next(marks, False) for n in shape)
    else:
        kept = (bool(t.generated) and all(t.generated),) * len(shape)
    if t.complete:
        return tile(t.data.reshape(shape), shape, kept)
    if tuple(shape) == t.shape:
        return t
    if not same:
        need_complete(t, "reshape")
    if any(n == 1 and v != 1 for n, v in zip(t.shape, t.valid, strict=True)):
        need_complete(t, "reshape")
    rest = iter([v for n, v in zip(t.shape, t.valid, strict=True) if n != 1])
    valid = [1 if n == 1 else next(rest) for n in shape]
    return tile(t.data.reshape(valid), shape, kept)


def transpose(t: TileValue, axes: Sequence[int]) -> TileValue:
    """The axes in another order."""
    return TileValue(
        np.ascontiguousarray(t.data.transpose(axes)), tuple(t.shape[a] for a in axes),
        tuple(t.unit[a] for a in axes), tuple(t.generated[a] for a in axes) if t.generated else (),
    )  # fmt: skip


def broadcast_to(t: TileValue, shape: Shape) -> TileValue:
    """Repeat along the axes of extent 1 and along new leading axes, which then fit any valid extent."""
    if t.rank > len(shape):
        raise ExtentError(
            f"a tile of shape {t.shape} does not broadcast to {tuple(shape)}",
            code="PTO-H202",
            hint="an axis broadcasts when its extent is the constant 1",
        )
    lead = len(shape) - t.rank
    valid = list(shape[:lead])
    for n, v, one, wanted in zip(t.shape, t.valid, t.unit, shape[lead:], strict=True):
        if not one and n != wanted:
            raise ExtentError(
                f"a tile of shape {t.shape} does not broadcast to {tuple(shape)}",
                code="PTO-H202",
                hint="an axis broadcasts when its extent is the constant 1",
            )
        valid.append(wanted if one and v else v)
    marks = [one or (bool(t.generated) and t.generated[axis]) for axis, one in enumerate(t.unit)]
    return tile(np.broadcast_to(t.data, valid).copy(), shape, ((True,) * lead + tuple(marks)))


def flip(t: TileValue, axes: Sequence[int]) -> TileValue:
    """The valid part in reverse order."""
    return t.with_data(np.ascontiguousarray(np.flip(t.data, tuple(axes))))


def concat(tiles: Sequence[TileValue], axis: int) -> TileValue:
    """One after another; all but the last must be complete along `axis`."""
    for t in tiles[:-1]:
        if t.valid[axis] != t.shape[axis]:
            raise HoleError(
                f"concat of a tile before the last that is incomplete along axis {axis}: {t.valid[axis]} of "
                f"{t.shape[axis]} are valid",
                code="PTO-B006",
                hint=PAD_HELP,
            )
    others, valid = _same_extents(tiles, "concat", except_axis=axis)
    data = np.concatenate([_cut(t, valid, axis) for t in tiles], axis)
    shape = list(others)
    shape[axis] = sum(t.shape[axis] for t in tiles)
    return tile(data, shape, _common_marks(tiles))


def stack(tiles: Sequence[TileValue], axis: int) -> TileValue:
    """Along a new axis."""
    shape, valid = _same_extents(tiles, "stack", except_axis=None)
    data = np.stack([_cut(t, valid, None) for t in tiles], axis)
    marks = _common_marks(tiles) or (False,) * len(shape)
    return tile(data, (*shape[:axis], len(tiles), *shape[axis:]), (*marks[:axis], all(marks), *marks[axis:]))


def _common_marks(tiles: Sequence[TileValue]) -> tuple[bool, ...]:
    """The axes along which all tiles of a rank are generated."""
    return tuple(map(all, zip(*(t.generated for t in tiles), strict=True))) if all(t.generated for t in tiles) else ()


def _same_extents(tiles: Sequence[TileValue], what: str, except_axis: int | None) -> tuple[list[int], list[int]]:
    if len({t.rank for t in tiles}) != 1:
        raise ExtentError(f"{what}: tiles of different rank", code="PTO-H025", hint="reshape them first")
    shape, valid = list(tiles[0].shape), []
    for axis in range(len(shape)):
        if axis == except_axis:
            valid.append(-1)
            continue
        firm = {t.valid[axis] for t in tiles if not t.fits(axis)} or {shape[axis]}
        if len({t.shape[axis] for t in tiles}) > 1 or len(firm) > 1:
            extents = ", ".join(f"{t.valid} of {t.shape}" for t in tiles)
            raise ExtentError(f"{what}: axis {axis} differs: {extents}", code="PTO-H202", hint=PAD_HELP)
        valid.append(firm.pop())
    return shape, valid


def _cut(t: TileValue, valid: list[int], except_axis: int | None) -> np.ndarray:
    return t.data[tuple(slice(None) if a == except_axis else slice(0, n) for a, n in enumerate(valid))]


# -- along axes -------------------------------------------------------------------------------------------------


def _reduced(t: TileValue, data: Any, axes: Sequence[int], keepdims: bool) -> Value:
    if not keepdims and len(axes) == t.rank:
        return np.asarray(data)[()]
    kept = [a for a in range(t.rank) if keepdims or a not in axes]
    shape = tuple(1 if a in axes else t.shape[a] for a in kept)
    return TileValue(np.asarray(data), shape, tuple(a in axes or t.unit[a] for a in kept))


def reduce(name: str, t: TileValue, axes: tuple[int, ...], keepdims: bool) -> Value:
    """sum prod max min any all over the valid part; the scalar when no axis is left."""
    return _reduced(t, axes_ops.reduce(name, t.data, axes, keepdims), axes, keepdims)


MOST_PLACES = 2**31 - 1


def _need_places(what: str, t: TileValue, axes: Sequence[int]) -> None:
    """Along the axes that are searched or counted there are as many elements as i32 can tell apart."""
    count = t.valid[axes[0]] * math.prod(t.shape[a] for a in axes[1:])
    if count > MOST_PLACES:
        raise ExtentError(
            f"{what}: {count} elements, and its i32 results count to 2**31 - 1", code="PTO-H208",
            hint="take parts of the line, and add where each begins in i64",
        )  # fmt: skip


def arg_reduce(name: str, t: TileValue, axis: int | None, keepdims: bool) -> Value:
    """argmax, argmin; None: the index in the flattened tile, by its declared shape."""
    gone = tuple(range(t.rank)) if axis is None else (axis,)
    if gone:
        _need_places(name, t, gone)
    data = axes_ops.arg_reduce(name, t.data, axis, keepdims)
    if axis is None and t.data.size and not t.complete:
        where = np.unravel_index(np.asarray(data).reshape(()), t.valid)
        data = np.asarray(np.ravel_multi_index(where, t.shape), np.int32).reshape(np.shape(data))
    return _reduced(t, data, gone, keepdims)


def cumulate(name: str, t: TileValue, axis: int, reverse: bool) -> TileValue:
    """cumsum, cumprod over the valid part."""
    return plain(t.with_data(axes_ops.cumulate(name, t.data, axis, reverse)))


def plain(t: TileValue) -> TileValue:
    """`t` without the mark of a generated tile."""
    return TileValue(t.data, t.shape, t.unit)


def fold(combine: axes_ops.Combine, tiles: Sequence[TileValue], axis: int, inits: Sequence[Any] | None,
         keepdims: bool) -> list[Value]:  # fmt: skip
    """`pl.reduce`: combine along `axis`; an empty valid part gives `inits`."""
    same = _aligned(tiles, "reduce")
    results = axes_ops.fold(combine, [t.data for t in same], axis, inits)
    if results is None:
        raise HoleError("reduce of an empty valid part without an initial value", code="PTO-B008",
                        hint="pass `init=`, the identity of the function")  # fmt: skip
    return [
        _reduced(t, np.expand_dims(r, axis) if keepdims else r, (axis,), keepdims)
        for t, r in zip(same, results, strict=True)
    ]


def scan(combine: axes_ops.Combine, tiles: Sequence[TileValue], axis: int, reverse: bool) -> list[TileValue]:
    """`pl.associative_scan`."""
    same = _aligned(tiles, "associative_scan")
    results = axes_ops.scan(combine, [t.data for t in same], axis, reverse)
    return [plain(t.with_data(r)) for t, r in zip(same, results, strict=True)]


def _aligned(tiles: Sequence[TileValue], what: str) -> list[TileValue]:
    if len({t.shape for t in tiles}) > 1:
        raise ExtentError(f"{what}: tiles of shape {' and '.join(str(t.shape) for t in tiles)}", code="PTO-H202",
                          hint="all tiles have one shape")  # fmt: skip
    _, _, valid = joint(tiles)
    return [t.with_data(fitted(t, valid)) for t in tiles]


def dot(a: TileValue, b: TileValue, acc: TileValue | None, dtype: DType) -> Value:
    """The matrix product with NumPy's batching and 1-D operands; `dtype` is the result's."""
    if a.rank == 0 or b.rank == 0:
        raise TypeMismatchError("dot takes tiles", code="PTO-T011", hint="multiply by a number with `*`")
    second = -2 if b.rank > 1 else -1
    if a.shape[-1] != b.shape[second]:
        raise ExtentError(f"dot of {a.shape} and {b.shape}: the contracted extents differ", code="PTO-H202",
                          hint="the last axis of a and the second last of b must agree")  # fmt: skip
    ka, kb = a.valid[-1], b.valid[second]
    if ka != kb and not (a.fits(-1) or b.fits(second)):
        raise ExtentError(
            f"dot of {a.shape} and {b.shape}: the valid contracted extents {ka} and {kb} differ",
            code="PTO-H201",
            hint=PAD_HELP,
        )
    k = min(ka, kb)
    _, _, lead = joint([_without(a, 2), _without(b, 2)])
    batch, units, _ = joint([_without(a, 2), _without(b, 2)])
    left = _cut_lead(a.data[..., :k], lead, 2)
    right = _cut_lead(b.data[..., :k, :] if b.rank > 1 else b.data[:k], lead, 2)
    ends = [(t, axis) for t, axis in ((a, -2), (b, -1)) if t.rank > 1]
    shape = (*batch, *(t.shape[axis] for t, axis in ends))
    valid = (*lead, *(t.valid[axis] for t, axis in ends))
    if not shape:
        return np.asarray(axes_ops.product(left, right, acc, dtype))[()]
    result = TileValue(np.broadcast_to(np.empty(()), valid), shape, (*units, *(t.unit[axis] for t, axis in ends)))
    if acc is None:
        return result.with_data(np.ascontiguousarray(axes_ops.product(left, right, None, dtype)))
    if acc.shape != shape or joint([result, acc])[2] != valid:
        raise ExtentError(
            f"dot: an accumulator of shape {acc.shape} for a product of shape {shape}", code="PTO-H201", hint=PAD_HELP
        )
    return result.with_data(np.ascontiguousarray(axes_ops.product(left, right, fitted(acc, valid), dtype)))


def _without(t: TileValue, last: int) -> TileValue:
    """The extents of `t` without its last axes (no elements)."""
    keep = max(0, t.rank - last)
    return TileValue(np.broadcast_to(np.empty(()), t.valid[:keep]), t.shape[:keep], t.unit[:keep], t.generated[:keep])


def _cut_lead(data: np.ndarray, valid: Shape, last: int) -> np.ndarray:
    """The leading axes of a generated operand cut to the extents that hold."""
    own = max(0, data.ndim - last)
    return data[tuple(slice(0, n) for n in valid[len(valid) - own :])] if own else data


# -- order ------------------------------------------------------------------------------------------------------


def sort(t: TileValue, descending: bool) -> TileValue:
    order = axes_ops.argsort(t.data, descending)
    return plain(t.with_data(np.take_along_axis(t.data, order.astype(np.int64), -1)))


def argsort(t: TileValue, descending: bool) -> TileValue:
    _need_places("argsort", t, (-1,))
    return plain(t.with_data(axes_ops.argsort(t.data, descending)))


def topk(t: TileValue, k: int) -> tuple[TileValue, TileValue]:
    """The k largest, descending, with their indices; an incomplete tile may hold fewer."""
    if not 1 <= k <= t.shape[-1]:
        raise ShapeError(
            f"topk: k = {k} of {t.shape[-1]} elements", code="PTO-H050", hint="k lies between 1 and the last extent"
        )
    _need_places("topk", t, (-1,))
    order = axes_ops.argsort(t.data, True)[..., :k]
    values = np.take_along_axis(t.data, order.astype(np.int64), -1)
    shape = (*t.shape[:-1], k)
    return tile(values, shape), tile(order, shape)


def histogram(t: TileValue, bins: int) -> TileValue:
    """Counts along the last axis."""
    if bins < 1:
        raise ShapeError(f"histogram: {bins} bins", code="PTO-H051", hint="bins is a positive integer")
    _need_places("histogram", t, (-1,))
    return tile(axes_ops.histogram(t.data, bins), (*t.shape[:-1], bins))


# -- indirect ---------------------------------------------------------------------------------------------------


def check_indices(index: Any, extent: int, what: str) -> Any:
    """Integer indices as i64, all within [0, extent)."""
    if index.dtype.kind not in "iu":
        raise TypeMismatchError(f"{what}: an index tile of {dtypes.from_numpy(index.dtype)}", code="PTO-T037",
                                hint=subscript.for_masks(index, "cast it to pl.i32 or pl.i64"))  # fmt: skip
    wide = index.astype(np.int64)
    if wide.size and (wide.min() < 0 or wide.max() >= extent):
        worst = wide.min() if wide.min() < 0 else wide.max()
        raise outside(f"{what}: index {worst} is outside [0, {extent})", "PTO-B003")
    return wide


def gather(t: TileValue, index: TileValue, axis: int) -> TileValue:
    """np.take_along_axis on the valid part."""
    if t.rank != index.rank:
        raise ExtentError(
            f"gather: a tile of rank {t.rank} with an index of rank {index.rank}",
            code="PTO-H025",
            hint="reshape one of them",
        )
    _, _, valid = joint([_skipping(t, axis), _skipping(index, axis)])
    around = [*valid[:axis], None, *valid[axis:]]
    data, where = (x[tuple(slice(0, n) for n in around)] for x in (t.data, index.data))
    where = check_indices(where, t.valid[axis], "gather")
    return tile(np.take_along_axis(data, where, axis), index.shape)


def _skipping(t: TileValue, axis: int) -> TileValue:
    """The extents of `t` without one axis (no elements)."""

    def rest(items: Any) -> Any:
        return (*items[:axis], *items[axis + 1 :])

    return TileValue(np.broadcast_to(np.empty(()), rest(t.valid)), rest(t.shape), rest(t.unit), rest(t.generated))
