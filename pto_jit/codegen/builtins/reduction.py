# SPDX-License-Identifier: MIT
"""Reductions, scans, and the operations that take a user's function: reduce, associative_scan, map."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.elementwise import binary_op
from pto_jit.codegen.builtins.memory import axis_of
from pto_jit.codegen.builtins.promote import Value, tile_of, to_dtype, value_of, wrap
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tile
from pto_jit.dtypes import DType, bool_, f64, i64, u64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Operand
from pto_jit.ir.types import ScalarType

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_IDENTICAL: dict[Any, str] = {operator.add: "sum", operator.mul: "prod", max: "max", min: "min"}


def axes_of(cg: Generator, axis: Any, rank: int, what: str) -> tuple[int, ...]:
    """Sorted non-negative axes of an `axis` argument (None: all)."""
    if axis is None:
        return tuple(range(rank))
    items = axis if isinstance(axis, (tuple, list)) else [axis]
    axes = sorted(axis_of(cg, a, rank, what) for a in items)
    if len(set(axes)) != len(axes):
        raise cg.error(ShapeError, f"{what}: an axis is named twice", code="PTO-H030", hint="name each axis once")
    return tuple(axes)


def reduced(extents: tuple[Operand, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[Operand, ...]:
    if keepdims:
        return tuple(index(1) if a in axes else e for a, e in enumerate(extents))
    return tuple(e for a, e in enumerate(extents) if a not in axes)


def widened(dtype: DType) -> DType:
    """The dtype NumPy sums integers in."""
    if dtype.kind == "b" or (dtype.kind == "i" and dtype.bits < 64):
        return i64
    return u64 if dtype.kind == "u" and dtype.bits < 64 else dtype


def _reduce(cg: Generator, op: str, x: Any, axis: Any, keepdims: Any) -> Value:
    tile = tile_of(cg, x, f"pl.{op}")
    axes = axes_of(cg, axis, tile.rank, f"pl.{op}")
    keep = bool(cg.static(keepdims, "keepdims"))
    if op in ("sum", "prod"):
        tile = cg.e.cast(tile, widened(tile.dtype))
    if op in ("any", "all"):
        tile = cg.e.cast(tile, bool_)
    if op in ("max", "min") and tile.dtype.kind == "b":
        op = "any" if op == "max" else "all"
    (var,) = cg.e.op(op, [tile.var], {"axes": axes, "keepdims": keep}, hint=op)
    return wrap(cg, var, reduced(tile.extents, axes, keep))


def _register(name: str) -> None:
    @builtin(name)
    def handler(cg: Generator, x: Any, axis: Any = None, keepdims: Any = False) -> Value:
        return _reduce(cg, name, x, axis, keepdims)


for _name in ("sum", "prod", "max", "min", "any", "all"):
    _register(_name)


@builtin("mean")
def mean(cg: Generator, x: Any, axis: Any = None, keepdims: Any = False) -> Value:
    tile = tile_of(cg, x, "pl.mean")
    if not tile.dtype.is_float:
        tile = cg.e.cast(tile, f64)
    axes = axes_of(cg, axis, tile.rank, "pl.mean")
    count: Value = Scalar(index(1), True)
    for number, a in enumerate(axes):
        extent = cg.e.scalar("valid", [tile.var], {"axis": a})
        count = binary_op(cg, "mul", count, extent) if number else extent
    total = _reduce(cg, "sum", tile, axis, keepdims)
    return binary_op(cg, "div", total, to_dtype(cg, count, tile.dtype))


def _arg(cg: Generator, op: str, x: Any, axis: Any, keepdims: Any) -> Value:
    tile = tile_of(cg, x, f"pl.{op}")
    axes = axes_of(cg, axis, tile.rank, f"pl.{op}")
    keep = bool(cg.static(keepdims, "keepdims"))
    if axis is not None and len(axes) != 1:
        raise cg.error(ShapeError, f"pl.{op}: one axis or None", code="PTO-H031", hint="reduce one axis at a time")
    attrs: dict[str, Any] = {"axes": None if axis is None and tile.rank > 1 else axes, "keepdims": keep}
    (var,) = cg.e.op(op, [tile.var], attrs, hint=op)
    return wrap(cg, var, reduced(tile.extents, axes, keep))


@builtin("argmax")
def argmax(cg: Generator, x: Any, axis: Any = None, keepdims: Any = False) -> Value:
    return _arg(cg, "argmax", x, axis, keepdims)


@builtin("argmin")
def argmin(cg: Generator, x: Any, axis: Any = None, keepdims: Any = False) -> Value:
    return _arg(cg, "argmin", x, axis, keepdims)


def _cumulative(cg: Generator, op: str, x: Any, axis: Any, reverse: Any) -> Tile:
    tile = tile_of(cg, x, f"pl.{op}")
    tile = cg.e.cast(tile, widened(tile.dtype))
    attrs: dict[str, Any] = {"axis": axis_of(cg, axis, tile.rank, f"pl.{op}"),
                             "reverse": bool(cg.static(reverse, "reverse"))}  # fmt: skip
    return cg.e.tile(op, [tile.var], attrs, extents=tile.extents)


@builtin("cumsum")
def cumsum(cg: Generator, x: Any, axis: Any = -1, reverse: Any = False) -> Tile:
    return _cumulative(cg, "cumsum", x, axis, reverse)


@builtin("cumprod")
def cumprod(cg: Generator, x: Any, axis: Any = -1, reverse: Any = False) -> Tile:
    return _cumulative(cg, "cumprod", x, axis, reverse)


# -- with a user's function -------------------------------------------------------------------------------------


def _tiles(cg: Generator, x: Any, what: str) -> tuple[list[Tile], bool]:
    if isinstance(x, (tuple, list)):
        if not x:
            raise cg.error(TypeMismatchError, f"{what} of no tiles", code="PTO-H024", hint="give at least one tile")
        return [tile_of(cg, t, what) for t in x], True
    return [tile_of(cg, x, what)], False


def _pairs(count: int) -> Callable[..., tuple[Any, ...]]:
    """The arguments of a combine function over tuples: the left tuple and the right one."""
    return lambda *scalars: (scalars[:count], scalars[count:])


def _check_results(cg: Generator, region: Any, types: list[ScalarType], what: str) -> None:
    got = [r.type for r in region.results]
    if got != types:
        raise cg.error(TypeMismatchError,
                       f"{what}: the function returns ({', '.join(map(str, got))}), its arguments are "
                       f"({', '.join(map(str, types))})",
                       code="PTO-T050",
                       hint="a combine function takes two values and returns one of the same dtype; cast with "
                       "`.to(dtype)`")  # fmt: skip


@builtin("reduce")
def reduce(cg: Generator, x: Any, axis: Any, fn: Any, init: Any = None, keepdims: Any = False) -> Any:
    tiles, many = _tiles(cg, x, "pl.reduce")
    rank = tiles[0].rank
    axes = axes_of(cg, axis, rank, "pl.reduce")
    keep = bool(cg.static(keepdims, "keepdims"))
    named = _IDENTICAL.get(fn) if not many and _hashable(fn) else None
    if named is not None and init is None and widened(tiles[0].dtype) == tiles[0].dtype:
        return _reduce(cg, named, tiles[0], axis, keepdims)
    if len(axes) != 1 or axis is None:  # one axis after the other, the last first
        value: Any = tuple(tiles) if many else tiles[0]
        for a in sorted(axes, reverse=True):
            start = init if a == min(axes) else None
            value = reduce(cg, value, a, fn, start, keepdims)
        return value
    types = [ScalarType(t.dtype) for t in tiles]
    region, _ = cg.region(fn, [*types, *types], _pairs(len(tiles)) if many else None)
    _check_results(cg, region, types, "pl.reduce")
    args: list[Operand] = [t.var for t in tiles]
    if init is not None:
        starts = init if isinstance(init, (tuple, list)) else (init,)
        if len(starts) != len(tiles):
            raise cg.error(ShapeError, f"pl.reduce: {len(starts)} initial values for {len(tiles)} tiles",
                           code="PTO-H032", hint="give one initial value per tile")  # fmt: skip
        for start, tile in zip(starts, tiles, strict=True):
            value = cg.e.cast(value_of(cg, start, "init"), tile.dtype)
            if not isinstance(value, Scalar):
                raise cg.error(TypeMismatchError, "pl.reduce: init is a number", code="PTO-T051",
                               hint="combine a tile of starting values afterwards")  # fmt: skip
            args.append(value.operand)
    (along,) = axes
    attrs: dict[str, Any] = {"axis": along, "keepdims": keep, "n": len(tiles), "init": init is not None}
    results = cg.e.op("fold", args, attrs, regions=(region,))
    values = tuple(wrap(cg, var, reduced(tiles[0].extents, axes, keep)) for var in results)
    return values if many else values[0]


def _hashable(fn: Any) -> bool:
    return getattr(type(fn), "__hash__", None) is not None


@builtin("associative_scan")
def associative_scan(cg: Generator, x: Any, axis: Any, fn: Any, reverse: Any = False) -> Any:
    tiles, many = _tiles(cg, x, "pl.associative_scan")
    along = axis_of(cg, axis, tiles[0].rank, "pl.associative_scan")
    types = [ScalarType(t.dtype) for t in tiles]
    region, _ = cg.region(fn, [*types, *types], _pairs(len(tiles)) if many else None)
    _check_results(cg, region, types, "pl.associative_scan")
    attrs: dict[str, Any] = {"axis": along, "reverse": bool(cg.static(reverse, "reverse"))}
    results = cg.e.op("assoc_scan", [t.var for t in tiles], attrs, regions=(region,))
    values = tuple(Tile(var, tiles[0].extents, False, cg.e.loc) for var in results)
    return values if many else values[0]


@builtin("map")
def map_(cg: Generator, fn: Any, *tiles: Any) -> Any:
    from pto_jit.codegen.builtins.promote import joint_extents, with_rank

    items = [tile_of(cg, t, "pl.map") for t in tiles]
    if not items:
        raise cg.error(TypeMismatchError, "pl.map of no tiles", code="PTO-T052", hint="pl.map(fn, tile, ...)")
    rank = max(t.rank for t in items)
    items = [with_rank(cg, t, rank) for t in items]
    region, structure = cg.region(fn, [ScalarType(t.dtype) for t in items])
    extents = joint_extents(cg, items)
    results = cg.e.op("map", [t.var for t in items], regions=(region,))
    values = tuple(Tile(var, extents, False, cg.e.loc) for var in results)
    return values if isinstance(structure, (tuple, list)) else values[0]


def python_reduction(cg: Generator, name: str, values: list[Any]) -> Any:
    """Python's min or max over a compile-time sequence that holds run-time values."""
    from pto_jit.codegen.builtins.registry import call

    total = values[0]
    for value in values[1:]:
        total = call("maximum" if name == "max" else "minimum", cg, (total, value), {})
    return total
