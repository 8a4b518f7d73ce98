# SPDX-License-Identifier: MIT
"""Operations on the structure of tiles: parts, shapes, order of axes."""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.errors import ShapeError
from pto_jit.ir.types import TileType
from pto_jit.semantic import checks
from pto_jit.semantic.memory import index_tile
from pto_jit.semantic.row import SCALAR, Args, Attrs, OpRow, Regions, Types
from pto_jit.semantic.tensor import dropped


def tile_slice(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    checks.count(op, len(args) - 1, 2 * t.rank, "starts and extents")
    starts = args[1 : 1 + t.rank]
    checks.offsets(op, starts)
    shape = checks.extents(op, args[1 + t.rank :])
    for axis, (arg, extent, bound) in enumerate(zip(starts, shape, t.shape, strict=True)):
        start = checks.constant(arg)
        if start is not None and extent is not None and bound is not None and start + extent > bound:
            raise ShapeError(
                f"`{op}`: {start}:{start + extent} is outside axis {axis} of shape {checks.shape_text(t.shape)}",
                code="PTO-H130",
                hint="a slice of a tile lies inside its declared shape",
            )
    drop = dropped(op, attrs, shape)
    return (TileType(t.dtype, tuple(e for axis, e in enumerate(shape) if axis not in drop)),)


def reshape(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t, shape = checks.tile(op, args[0]), checks.extents(op, args[1:])
    checks.rank_at_least(op, shape, 1)
    checks.same_size(op, t.shape, shape)
    if "axes" in attrs:
        checks.kept_axes(op, attrs["axes"], t.shape, shape)
    return (TileType(t.dtype, shape),)


def transpose(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    axes = checks.permutation(op, attrs["axes"], t.rank)
    return (TileType(t.dtype, tuple(t.shape[axis] for axis in axes)),)


def concat(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    tiles = [checks.tile(op, arg) for arg in args]
    dtype, first = checks.one_dtype(op, args), tiles[0]
    axis = checks.axis(op, attrs["axis"], first.rank)
    shape = list(first.shape)
    for t in tiles[1:]:
        checks.count(op, t.rank, first.rank, "axes of every tile")
        for number, extent in enumerate(t.shape):
            if number != axis:
                shape[number] = checks.equal_extents(op, shape[number], extent, f"extents along axis {number}")
            else:
                so_far = shape[axis]
                shape[axis] = None if so_far is None or extent is None else so_far + extent
    return (TileType(dtype, tuple(shape)),)


def stack(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    tiles = [checks.tile(op, arg) for arg in args]
    dtype, shape = checks.one_dtype(op, args), list(tiles[0].shape)
    axis = checks.axis(op, attrs["axis"], len(shape) + 1)
    for t in tiles[1:]:
        checks.count(op, t.rank, len(shape), "axes of every tile")
        for number, extent in enumerate(t.shape):
            shape[number] = checks.equal_extents(op, shape[number], extent, f"extents along axis {number}")
    return (TileType(dtype, (*shape[:axis], len(tiles), *shape[axis:])),)


def broadcast_to(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t, shape = checks.tile(op, args[0]), checks.extents(op, args[1:])
    if len(shape) < t.rank:
        checks.count(op, len(shape), t.rank, "extents")
    old = (1,) * (len(shape) - t.rank) + t.shape
    for axis, (before, after) in enumerate(zip(old, shape, strict=True)):
        if before != 1:
            checks.equal_extents(op, before, after, f"the old and the new extent of axis {axis}")
    return (TileType(t.dtype, shape),)


def flip(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    checks.axis(op, attrs["axis"], t.rank)
    return (t,)


def extract(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    checks.indices(op, args[1:], t.shape)
    return (SCALAR[t.dtype],)


def extent(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    checks.axis(op, attrs["axis"], checks.tile(op, args[0]).rank)
    return (SCALAR[i64],)


def gather(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t, index = checks.tile(op, args[0]), index_tile(op, args[1])
    axis = checks.axis(op, attrs["axis"], t.rank)
    checks.count(op, index.rank, t.rank, "axes of the index")
    for number, (left, right) in enumerate(zip(t.shape, index.shape, strict=True)):
        if number != axis:
            checks.equal_extents(op, left, right, f"the extents of tile and index along axis {number}")
    return (TileType(t.dtype, index.shape),)


ROWS: tuple[OpRow, ...] = (
    OpRow("tile_slice", "tile", "tile_slice(t, *starts, *extents) {drop}", "a part of a tile, without the axes in drop "
          "(extent 1)", tile_slice, 1, None, optional=("drop",)),
    OpRow("reshape", "tile", "reshape(t, *extents) {axes}", "the elements in row-major order with other extents; axes "
          "says which axis of t each is (-1: a new one), where only axes of extent 1 come or go", reshape,
          2, None, optional=("axes",)),
    OpRow("transpose", "tile", "transpose(t) {axes}", "the axes in another order", transpose, 1, 1, required=("axes",)),
    OpRow("concat", "tile", "concat(*tiles) {axis}", "tiles one after the other along an axis", concat, 1, None,
          required=("axis",)),
    OpRow("stack", "tile", "stack(*tiles) {axis}", "tiles along a new axis", stack, 1, None, required=("axis",)),
    OpRow("broadcast_to", "tile", "broadcast_to(t, *extents)", "axes of extent 1 repeated; new axes come first",
          broadcast_to, 2, None),
    OpRow("flip", "tile", "flip(t) {axis}", "an axis in reverse", flip, 1, 1, required=("axis",)),
    OpRow("extract", "tile", "extract(t, *indices)", "one element as a scalar", extract, 1, None),
    OpRow("valid", "tile", "valid(t) {axis}", "the valid extent of an axis", extent, 1, 1, required=("axis",)),
    OpRow("extent", "tile", "extent(t) {axis}", "the declared extent of an axis", extent, 1, 1, required=("axis",)),
    OpRow("gather", "tile", "gather(t, index) {axis}", "np.take_along_axis(t, index, axis); the shape of index",
          gather, 2, 2,
          required=("axis",)),
)  # fmt: skip
