# SPDX-License-Identifier: MIT
"""The memory operations of the IR: between tensors (NumPy arrays) and tile values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.dtypes import DType
from pto_jit.errors import ShapeError
from pto_jit.language import _numpy_ops as ops
from pto_jit.language import _races as races
from pto_jit.language._subscript import ROW_BY_ROW
from pto_jit.language._tile_ops import check_indices, reshape
from pto_jit.language._tile_value import PAD_HELP, ExtentError, OffsetError, Shape, TileValue, joint, outside, tile


def region(x: np.ndarray, offsets: Sequence[int], extents: Sequence[int], what: str) -> tuple[slice, ...]:
    """The slices of `x` that [offsets, offsets + extents) covers, clipped at its bounds."""
    if len(offsets) != x.ndim or len(extents) != x.ndim:
        raise ShapeError(
            f"{what}: {len(offsets)} offsets and {len(extents)} extents for a tensor of rank {x.ndim}",
            code="PTO-H003",
            hint="give one offset and one extent per axis of the tensor",
        )
    for offset, extent in zip(offsets, extents, strict=True):
        if offset < 0:
            raise OffsetError(f"{what}: the offset {offset} is negative", code="PTO-B001",
                              hint="offsets count from the start of the axis")  # fmt: skip
        if extent < 0:
            raise ExtentError(
                f"{what}: the extent {extent} is negative", code="PTO-H203", hint="extents are at least 0"
            )
    spans = zip(offsets, extents, x.shape, strict=True)
    return tuple(slice(min(o, n), min(o + e, n)) for o, e, n in spans)


def load(x: np.ndarray, offsets: Sequence[int], shape: Shape, pad: Any = None) -> TileValue:
    """A copy of the part of `x`, clipped at its bounds; with `pad` (a scalar of x's dtype) filled up to `shape`."""
    part = x[region(x, offsets, shape, "load")]
    races.access("read", part)
    if pad is None:
        return tile(part.copy(), shape)
    data = np.full(tuple(shape), pad, x.dtype)
    data[tuple(slice(0, n) for n in part.shape)] = part
    return tile(data, shape)


def store(t: TileValue, x: np.ndarray, offsets: Sequence[int]) -> None:
    """Write the valid part, clipped at the bounds of `x`."""
    place, part = _meeting(t, x, offsets, "store")
    races.access("write", x[place])
    x[place] = part


def _meeting(t: TileValue, x: np.ndarray, offsets: Sequence[int], what: str) -> tuple[tuple[slice, ...], np.ndarray]:
    if t.rank != x.ndim:
        raise ShapeError(f"{what}: a tile of rank {t.rank} and a tensor of rank {x.ndim}", code="PTO-H006",
                         hint="use `pl.reshape`, or index the tensor so that the ranks agree")  # fmt: skip
    place = region(x, offsets, t.valid, what)
    return place, t.data[tuple(slice(0, s.stop - s.start) for s in place)]


def assign(x: np.ndarray, declared: Shape, t: TileValue, update: str = "", whole: Sequence[bool] = ()) -> None:
    """`view[...] = tile`: broadcast as NumPy's assignment does, then written like `store`.

    `declared` are the extents the view was asked for; they may reach beyond the tensor.  `update`: the reduction that
    this is part of, "" to look at the source for it.  `whole`: the axes that the view takes whole; larger tiles end
    where the tensor does.
    """
    if t.rank > x.ndim and all(t.unit[: t.rank - x.ndim]):
        t = reshape(t, t.shape[t.rank - x.ndim :])
    if t.rank > x.ndim:
        raise ShapeError(f"a tile of rank {t.rank} assigned to a region of rank {x.ndim}", code="PTO-H006",
                         hint="use `pl.reshape`, or index the tile")  # fmt: skip
    lead = x.ndim - t.rank
    for axis, (n, v, one) in enumerate(zip(t.shape, t.valid, t.unit, strict=True), lead):
        ends = n >= x.shape[axis] and (t.fits(axis - lead) or (axis < len(whole) and whole[axis]))
        if not one and n != declared[axis] and v != x.shape[axis] and not ends:
            raise ExtentError(
                f"a tile of shape {t.shape} (valid {t.valid}) assigned to a region of shape {tuple(declared)}: "
                f"axis {axis} differs",
                code="PTO-H012",
                hint="an axis broadcasts when its extent is the constant 1",
            )
    data = t.data.reshape((1,) * lead + t.valid)
    wide = [one and declared[axis] != 1 for axis, one in enumerate((*(True,) * lead, *t.unit))]
    meet = [n if w and v else min(n, v) for n, v, w in zip(x.shape, data.shape, wide, strict=True)]
    place = x[tuple(slice(0, n) for n in meet)]
    if update:
        races.touch("update", place, update)
    else:
        races.access("write", place)
    place[...] = data[tuple(slice(0, n) for n in meet)]


def atomic(name: str, t: TileValue, x: np.ndarray, offsets: Sequence[int]) -> None:
    """`name` is add, max or min: combine the valid part into `x`, clipped at its bounds."""
    place, part = _meeting(t, x, offsets, f"atomic_{name}")
    on_bool = {"add": "or", "max": "or", "min": "and"}
    races.touch("update", x[place], name)
    x[place] = ops.evaluate(on_bool[name] if x.dtype.kind == "b" else name, x[place], part)


def view(x: np.ndarray, offsets: Sequence[int], extents: Sequence[int], drop: Sequence[int] = ()) -> np.ndarray:
    """A view clipped at the bounds of `x`; axes in `drop` are removed."""
    part = x[region(x, offsets, extents, "a view")]
    for axis in drop:
        if part.shape[axis] != 1:
            raise outside(f"index {offsets[axis]} is out of bounds for an axis of extent {x.shape[axis]}")
    return part.reshape([n for a, n in enumerate(part.shape) if a not in drop]) if part.size == 0 else np.squeeze(
        part, tuple(drop))  # fmt: skip


def take(x: np.ndarray, index: TileValue, axis: int) -> TileValue:
    """np.take(x, index, axis)."""
    where = check_indices(index.data, x.shape[axis], "x[index]")
    if races.is_noting():
        for k in np.unique(where):
            races.access("read", x[(*(slice(None),) * axis, slice(k, k + 1))])
    return tile(np.take(x, where, axis), (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def put(t: TileValue, index: TileValue, x: np.ndarray, axis: int) -> None:
    """np.put_along_axis(x, index, t, axis): of two elements with one index the later one stays."""
    if t.rank != x.ndim or index.rank != x.ndim:
        raise ShapeError(f"scatter: a tile of rank {t.rank} and an index of rank {index.rank} for a tensor of rank "
                         f"{x.ndim}", code="PTO-H003",
                         hint="each element of the tile has its own index; for whole rows, " + ROW_BY_ROW)  # fmt: skip
    where = check_indices(index.data, x.shape[axis], "scatter")
    shape, _, valid = joint([t, index])
    cut = tuple(slice(0, n) for n in valid)
    values, where = np.broadcast_to(t.data[cut], valid), np.broadcast_to(where[cut], valid)
    if any(n > x.shape[a] for a, n in enumerate(valid) if a != axis):
        raise ExtentError(
            f"scatter: a tile of shape {shape} into a tensor of shape {x.shape}", code="PTO-H206", hint=PAD_HELP
        )
    part = x[tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(valid))]
    if races.is_noting():
        for at in np.ndindex(*valid):
            spot = tuple(where[at] if a == axis else i for a, i in enumerate(at))
            races.access("write", part[tuple(slice(i, i + 1) for i in spot)])
    np.put_along_axis(part, where, values, axis)


def unspecified(dtype: DType) -> Any:
    """What a new tensor holds before it is written: a value that shows (NaN, or bytes of 0xA5)."""
    if dtype.is_float:
        return ops.constant(float("nan"), dtype)
    return ops.constant(int.from_bytes(b"\xa5" * dtype.bytes, "little"), dtype)


def element(x: np.ndarray, indices: Sequence[int]) -> tuple[int, ...]:
    """Indices checked against the bounds of `x`."""
    for axis, (index, n) in enumerate(zip(indices, x.shape, strict=True)):
        if not 0 <= index < n:
            raise outside(f"index {index} is out of bounds for axis {axis} with extent {n}")
    return tuple(indices)
