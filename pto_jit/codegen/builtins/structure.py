# SPDX-License-Identifier: MIT
"""Operations that move or rename elements: reshape, transpose, concat, slices, generated index tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.elementwise import dtype_of
from pto_jit.codegen.builtins.memory import axis_of, index_of, layout_is_contiguous, shape_of, tile_view
from pto_jit.codegen.builtins.places import index_tile
from pto_jit.codegen.builtins.promote import (
    common_dtype,
    describe,
    shape_text,
    tile_of,
    to_dtype,
    value_of,
    with_axes,
    with_extents,
    with_rank,
    without_axes,
)
from pto_jit.codegen.builtins.reduction import axes_of
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tensor, Tile, static_extent
from pto_jit.dtypes import i32, i64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Const, Op, Operand
from pto_jit.semantic.failures import SPLIT

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def _count(extents: tuple[Operand, ...]) -> int | None:
    total = 1
    for extent in extents:
        known = static_extent(extent)
        if known is None:
            return None
        total *= known
    return total


@builtin("reshape")
def reshape(cg: Generator, x: Any, shape: Any) -> Tile | Tensor:
    items = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    value = x if isinstance(x, (Tensor, Tile)) else tile_of(cg, x, "pl.reshape")
    if any(isinstance(i, int) and not isinstance(i, bool) and i == -1 for i in items):
        items = _solve(cg, value, items)
    extents = shape_of(cg, items, "the shape of pl.reshape")
    before, after = _count(value.extents), _count(extents)
    if before is not None and after is not None and before != after:
        raise cg.error(ShapeError, f"pl.reshape: {shape_text(value.extents)} has {before} elements, "
                       f"{shape_text(extents)} has {after}", code="PTO-H020",
                       hint="-1 computes one extent")  # fmt: skip
    if not extents and value.extents:
        raise cg.error(ShapeError, "pl.reshape to the shape ()", code="PTO-H029",
                       hint="index the one element, as in `t[0]`: it is a number")  # fmt: skip
    if isinstance(value, Tensor):
        source = value.memory
        if not layout_is_contiguous(source):
            raise cg.error(ShapeError, "pl.reshape of a view that is not contiguous", code="PTO-H021",
                           hint="load it and reshape the tile")  # fmt: skip
        (var,) = cg.e.op("tensor_reshape", [source, *extents], hint=source.name)
        return Tensor(var, extents, cg.e.loc)
    if extents == value.extents:
        return value
    return with_extents(cg, value, extents)


def _solve(cg: Generator, value: Tile | Tensor, items: list[Any]) -> list[Any]:
    """Replace the one -1 of a shape by what remains."""
    if sum(isinstance(i, int) and i == -1 for i in items) > 1:
        raise cg.error(ShapeError, "pl.reshape: more than one -1", code="PTO-H022", hint="at most one extent can be -1")
    total: Any = Scalar(index(1), True)
    for extent in value.extents:
        total = _times(cg, total, extent)
    rest: Any = Scalar(index(1), True)
    for item in items:
        if not (isinstance(item, int) and item == -1):
            rest = _times(cg, rest, index_of(cg, item, "the shape of pl.reshape"))
    if isinstance(total.operand, Const) and isinstance(rest.operand, Const):
        if rest.operand.value == 0 or total.operand.value % rest.operand.value:
            raise cg.error(ShapeError, f"pl.reshape: {shape_text(value.extents)} does not divide into {items}",
                           code="PTO-H020", hint="the extents must multiply to the same count")  # fmt: skip
        solved: Any = int(total.operand.value) // int(rest.operand.value)
    else:
        solved = cg.e.scalar("floordiv", [total.operand, rest.operand])
    return [solved if isinstance(i, int) and i == -1 else i for i in items]


def _times(cg: Generator, a: Scalar, extent: Operand) -> Scalar:
    if isinstance(a.operand, Const) and isinstance(extent, Const):
        return Scalar(index(int(a.operand.value) * int(extent.value)), True)
    return a if extent == index(1) else Scalar(extent, True) if a.operand == index(1) else cg.e.scalar(
        "mul", [a.operand, extent])  # fmt: skip


@builtin("transpose")
def transpose(cg: Generator, x: Any, axes: Any = None) -> Tile | Tensor:
    value = x if isinstance(x, (Tensor, Tile)) else tile_of(cg, x, "pl.transpose")
    rank = value.rank
    order = tuple(range(rank))[::-1] if axes is None else tuple(axis_of(cg, a, rank, "pl.transpose") for a in axes)
    if sorted(order) != list(range(rank)):
        raise cg.error(ShapeError, f"pl.transpose: {order} is not a permutation of the axes of rank {rank}",
                       code="PTO-H023", hint="name every axis once")  # fmt: skip
    extents = tuple(value.extents[a] for a in order)
    if order == tuple(range(rank)):
        return value
    if isinstance(value, Tensor):
        (var,) = cg.e.op("tensor_transpose", [value.var], {"axes": order}, hint=value.var.name)
        return Tensor(var, extents, cg.e.loc)
    return cg.e.tile("transpose", [value.var], {"axes": order}, extents=extents)


def _same(cg: Generator, tiles: Any, what: str) -> list[Tile]:
    if not isinstance(tiles, (tuple, list)):
        raise cg.error(TypeMismatchError, f"{what} takes a list of tiles, got {describe(tiles)}", code="PTO-T011",
                       hint=f"write `{what}([a, b])`")  # fmt: skip
    items = [tile_of(cg, t, what) for t in tiles]
    if not items:
        raise cg.error(ShapeError, f"{what} of no tiles", code="PTO-H024", hint="give at least one tile")
    dtype, _ = common_dtype(items)
    ranks = {t.rank for t in items}
    if len(ranks) > 1:
        raise cg.error(ShapeError, f"{what}: tiles of different rank", code="PTO-H025", hint="reshape them first")
    result = [to_dtype(cg, t, dtype) for t in items]
    return [t for t in result if isinstance(t, Tile)]


@builtin("concat")
def concat(cg: Generator, tiles: Any, axis: Any = 0) -> Tile:
    items = _same(cg, tiles, "pl.concat")
    along = axis_of(cg, axis, items[0].rank, "pl.concat")
    if len(items) == 1:
        return items[0]
    total = Scalar(index(0), True)
    for item in items:
        extent = item.extents[along]
        if isinstance(total.operand, Const) and isinstance(extent, Const):
            total = Scalar(index(int(total.operand.value) + int(extent.value)), True)
        else:
            total = cg.e.scalar("add", [total.operand, extent])
    extents = (*items[0].extents[:along], total.operand, *items[0].extents[along + 1 :])
    return cg.e.tile("concat", [t.var for t in items], {"axis": along}, extents=extents)


@builtin("stack")
def stack(cg: Generator, tiles: Any, axis: Any = 0) -> Tile:
    items = _same(cg, tiles, "pl.stack")
    along = axis_of(cg, axis, items[0].rank + 1, "pl.stack")
    extents = (*items[0].extents[:along], index(len(items)), *items[0].extents[along:])
    return cg.e.tile("stack", [t.var for t in items], {"axis": along}, extents=extents)


@builtin("split")
def split(cg: Generator, x: Any, n: Any, axis: Any = -1) -> tuple[Tile, ...]:
    tile = tile_of(cg, x, "pl.split")
    parts = cg.static(n, "the number of parts")
    along = axis_of(cg, axis, tile.rank, "pl.split")
    whole = tile.extents[along]
    extent = static_extent(whole)
    if isinstance(parts, bool) or not isinstance(parts, int) or parts < 1 or (extent is not None and extent % parts):
        there = "?" if extent is None else extent
        raise cg.error(ShapeError, f"pl.split: an axis of extent {there} into {parts} parts",
                       code="PTO-H026", hint="the parts must divide the extent")  # fmt: skip
    if extent is None:
        size = cg.e.scalar("floordiv", [whole, index(parts)]).operand
        even = cg.e.scalar("eq", [cg.e.scalar("mod", [whole, index(parts)]).operand, index(0)])
        message, told = SPLIT.assertion(parts=parts)
        attrs = (("always", True), ("error", SPLIT.error.__name__), ("message", message), ("told", told))
        cg.e.append(Op("assert", (), (even.operand, whole), attrs, (), cg.e.loc))
    else:
        size = index(extent // parts)
    shape = (*tile.extents[:along], size, *tile.extents[along + 1 :])
    out: list[Tile] = []
    for k in range(parts):
        start = _times(cg, Scalar(index(k), True), size).operand if k else index(0)
        out.append(tile_view(cg, tile, [start if a == along else index(0) for a in range(tile.rank)], shape, ()))
    return tuple(out)


@builtin("broadcast_to")
def broadcast_to(cg: Generator, x: Any, shape: Any) -> Tile:
    value = value_of(cg, x, "pl.broadcast_to")
    extents = shape_of(cg, shape, "the shape of pl.broadcast_to")
    if isinstance(value, Scalar):
        return cg.e.tile("full", [value.operand, *extents], extents=extents, generated=True)
    if value.rank < len(extents):
        value = with_rank(cg, value, len(extents))
    return cg.e.tile("broadcast_to", [value.var, *extents], extents=extents, generated=value.generated)


@builtin("expand_dims")
def expand_dims(cg: Generator, x: Any, axis: Any) -> Tile:
    tile = tile_of(cg, x, "pl.expand_dims")
    given = axis if isinstance(axis, (tuple, list)) else [axis]
    axes = sorted(axis_of(cg, a, tile.rank + len(given), "pl.expand_dims") for a in given)
    if len(set(axes)) != len(axes):
        raise cg.error(ShapeError, "pl.expand_dims: an axis is named twice", code="PTO-H030",
                       hint="name each axis once")  # fmt: skip
    return with_axes(cg, tile, axes)


@builtin("squeeze")
def squeeze(cg: Generator, x: Any, axis: Any = None) -> Tile | Scalar:
    tile = tile_of(cg, x, "pl.squeeze")
    if axis is None:
        gone = tuple(a for a, e in enumerate(tile.extents) if static_extent(e) == 1)
    else:
        axes = axis if isinstance(axis, (tuple, list)) else [axis]
        gone = tuple(axis_of(cg, a, tile.rank, "pl.squeeze") for a in axes)
    for a in gone:
        if static_extent(tile.extents[a]) != 1:
            raise cg.error(ShapeError, f"pl.squeeze: axis {a} does not have the constant extent 1", code="PTO-H027",
                           hint="only axes of extent 1 can be removed")  # fmt: skip
    if len(gone) == tile.rank:
        return cg.e.scalar("extract", [tile.var, *(index(0) for _ in tile.extents)])
    return without_axes(cg, tile, gone)


@builtin("flip")
def flip(cg: Generator, x: Any, axis: Any = None) -> Tile:
    tile = tile_of(cg, x, "pl.flip")
    for along in axes_of(cg, axis, tile.rank, "pl.flip"):
        tile = cg.e.tile("flip", [tile.var], {"axis": along}, extents=tile.extents)
    return tile


@builtin("gather")
def gather(cg: Generator, t: Any, index: Any, axis: Any) -> Tile:
    tile, where = tile_of(cg, t, "pl.gather"), index_tile(cg, index, "the index of pl.gather")
    along = axis_of(cg, axis, tile.rank, "pl.gather")
    return cg.e.tile("gather", [tile.var, where.var], {"axis": along}, extents=where.extents)


@builtin("arange")
def arange(cg: Generator, start: Any, stop: Any = None, step: Any = 1, dtype: Any = i32) -> Tile:
    if stop is None:
        start, stop = 0, start
    wanted = dtype_of(cg, dtype)
    static = [v for v in (start, stop, step) if isinstance(v, (int, float))]
    if len(static) == 3:
        if step == 0:
            raise cg.error(ShapeError, "pl.arange with step 0", code="PTO-H028", hint="use a step other than 0")
        try:
            length = max(0, -int((start - stop) // step))
        except (OverflowError, ValueError):  # infinities, NaN
            raise cg.error(TypeMismatchError, f"pl.arange from {start} to {stop} has no length", code="PTO-T030",
                           hint="use finite numbers") from None  # fmt: skip
        count = index_of(cg, length, "the extent of pl.arange")
    else:
        lo, hi, by = (index_of(cg, v, "pl.arange") for v in (start, stop, step))
        count = _steps(cg, lo, hi, by)
    first, stride = (cg.e.cast(value_of(cg, v, "pl.arange"), wanted) for v in (start, step))
    if not isinstance(first, Scalar) or not isinstance(stride, Scalar):
        raise cg.error(TypeMismatchError, "pl.arange takes numbers, got a tile", code="PTO-T030",
                       hint="add the range to the tile: `t + pl.arange(n)`")  # fmt: skip
    return cg.e.tile("arange", [first.operand, stride.operand, count], extents=(count,), generated=True)


def _steps(cg: Generator, lo: Operand, hi: Operand, by: Operand) -> Operand:
    """How many numbers there are from `lo` to below `hi` by steps of `by`."""
    if by == index(1):
        known = cg.e.known_difference(hi, lo)
        if known is not None:
            return index(max(known, 0))
        if lo == index(0):
            return hi if cg.e.is_extent(hi) else cg.e.scalar("max", [hi, index(0)]).operand
    span = cg.e.scalar("sub", [lo, hi]).operand
    up = cg.e.scalar("floordiv", [span, by]).operand
    return cg.e.scalar("max", [cg.e.scalar("neg", [up]).operand, index(0)]).operand


@builtin("valid_shape")
def valid_shape(cg: Generator, t: Any) -> tuple[Any, ...]:
    tile = tile_of(cg, t, "pl.valid_shape")
    return tuple(Scalar(cg.e.scalar("valid", [tile.var], {"axis": a}).operand, True) for a in range(tile.rank))


def _random(cg: Generator, op: str, seed: Any, offset: Any, shape: Any) -> Tile:
    given = value_of(cg, seed, "the seed")
    if not isinstance(given, Scalar) or given.dtype.is_float:
        raise cg.error(TypeMismatchError, f"pl.{op}: the seed is {describe(seed)}", code="PTO-T042",
                       hint="the seed is an integer, the counters an offset and a shape or a tile")  # fmt: skip
    key = cg.e.cast(given, i64)
    if shape is None:
        counters = tile_of(cg, offset, f"the counters of pl.{op}")
        if not counters.dtype.is_integer:
            raise cg.error(TypeMismatchError, f"pl.{op}: counters of {counters.dtype}", code="PTO-T042",
                           hint="counters are integers")  # fmt: skip
        counters = cg.e.cast(counters, i64)
        return cg.e.tile(f"{op}_at", [key.operand, counters.var], extents=counters.extents)
    extents = shape_of(cg, shape, f"the shape of pl.{op}")
    start = index_of(cg, offset, f"the offset of pl.{op}")
    return cg.e.tile(op, [key.operand, start, *extents], extents=extents, generated=True)


@builtin("rand")
def rand(cg: Generator, seed: Any, offset: Any, shape: Any = None) -> Tile:
    return _random(cg, "rand", seed, offset, shape)


@builtin("randn")
def randn(cg: Generator, seed: Any, offset: Any, shape: Any = None) -> Tile:
    return _random(cg, "randn", seed, offset, shape)
