# SPDX-License-Identifier: MIT
"""Reductions, scans, and the operations that take a scalar function as a region.

All run over the valid part.  Reducing the last axis without keeping it gives a scalar; there is no tile of rank 0.
"""

from __future__ import annotations

from pto_jit.dtypes import DType, i32
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.nodes import Region
from pto_jit.ir.types import Extent, ScalarType, TileType, Type
from pto_jit.semantic import checks
from pto_jit.semantic.elementwise import joint_shape
from pto_jit.semantic.row import SCALAR, Args, Attrs, OpRow, Regions, Rule, Types


def reduced(dtype: DType, shape: tuple[Extent, ...], axes: tuple[int, ...], keepdims: bool) -> Type:
    """The type left when `axes` are reduced."""
    if keepdims:
        return TileType(dtype, tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)))
    kept = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
    return TileType(dtype, kept) if kept else SCALAR[dtype]


def reduction(kinds: str) -> Rule:
    def rule(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
        t = checks.tile(op, args[0])
        checks.kind(op, t.dtype, kinds)
        axes = checks.axes(op, attrs["axes"], t.rank)
        if not axes:
            raise TypeMismatchError(f"`{op}`: no axis is named", code="PTO-T150", hint="name at least one axis")
        return (reduced(t.dtype, t.shape, axes, checks.flag(op, attrs, "keepdims")),)

    return rule


def arg_reduction(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    axes = tuple(range(t.rank)) if attrs["axes"] is None else checks.axes(op, attrs["axes"], t.rank)
    if attrs["axes"] is not None and len(axes) != 1:
        raise TypeMismatchError(
            f"`{op}` takes one axis, got {axes!r}", code="PTO-T156",
            hint="name one axis, or None for the flattened tile",
        )
    return (reduced(i32, t.shape, axes, checks.flag(op, attrs, "keepdims")),)


def scan(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    t = checks.tile(op, args[0])
    checks.kind(op, t.dtype, "fiu")
    checks.axis(op, attrs["axis"], t.rank)
    checks.flag(op, attrs, "reverse")
    return (t,)


def region_types(op: str, region: Region, params: tuple[DType, ...]) -> tuple[DType, ...]:
    """The dtypes a region returns, after checking what it takes."""
    if len(region.params) != len(params):
        raise TypeMismatchError(
            f"`{op}`: the function takes {len(region.params)} values, it is given {len(params)}",
            code="PTO-T151",
            hint="one parameter for each tile (for reduce and scans: left ones, then right ones)",
        )
    for param, dtype in zip(region.params, params, strict=True):
        if not isinstance(param.type, ScalarType) or not checks.same(param.type.dtype, dtype):
            raise TypeMismatchError(
                f"`{op}`: the function's parameter %{param.name} is {checks.describe(param.type)}, it is given a "
                f"scalar of {dtype}",
                code="PTO-T152",
                hint="the function works on single elements of the tiles",
            )
    return tuple(checks.scalar(op, result, "function's result").dtype for result in region.results)


def map_(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    tiles = [checks.tile(op, arg) for arg in args]
    shape = joint_shape(op, args)
    assert shape is not None
    results = region_types(op, regions[0], tuple(t.dtype for t in tiles))
    if not results:
        raise TypeMismatchError(f"`{op}`: the function returns nothing", code="PTO-T153", hint="return a number")
    return tuple(TileType(dtype, shape) for dtype in results)


def equal_shapes(op: str, tiles: list[TileType]) -> tuple[Extent, ...]:
    """The one declared shape of several tiles."""
    shape = tiles[0].shape
    for t in tiles[1:]:
        checks.count(op, t.rank, len(shape), "axes of every tile")
        shape = tuple(
            checks.equal_extents(op, a, b, f"extents along axis {axis}")
            for axis, (a, b) in enumerate(zip(shape, t.shape, strict=True))
        )
    return shape


def combined(op: str, tiles: list[TileType], region: Region) -> tuple[DType, ...]:
    """The dtypes of a combining function's state, after checking that it maps two states to one."""
    state = tuple(t.dtype for t in tiles)
    results = region_types(op, region, state + state)
    if len(results) != len(state) or not all(map(checks.same, results, state)):
        raise TypeMismatchError(
            f"`{op}`: the function returns ({', '.join(map(str, results))}), "
            f"the tiles hold ({', '.join(map(str, state))})",
            code="PTO-T154",
            hint="return one value per tile, of its dtype",
        )
    return state


def fold(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    n = checks.positive(op, attrs["n"], "n")
    wanted = 2 * n if checks.flag(op, attrs, "init") else n
    if len(args) != wanted:
        raise TypeMismatchError(
            f"`{op}` of {n} tiles takes {wanted} operands here, got {len(args)}",
            code="PTO-T155",
            hint="give the tiles, then one initial value for each when init is True",
        )
    tiles = [checks.tile(op, arg) for arg in args[:n]]
    for t, init in zip(tiles, args[n:], strict=False):
        checks.scalar(op, init, "initial value", t.dtype)
    shape = equal_shapes(op, tiles)
    axis, keepdims = checks.axis(op, attrs["axis"], len(shape)), checks.flag(op, attrs, "keepdims")
    return tuple(reduced(dtype, shape, (axis,), keepdims) for dtype in combined(op, tiles, regions[0]))


def assoc_scan(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    tiles = [checks.tile(op, arg) for arg in args]
    shape = equal_shapes(op, tiles)
    checks.axis(op, attrs["axis"], len(shape))
    checks.flag(op, attrs, "reverse")
    return tuple(TileType(dtype, shape) for dtype in combined(op, tiles, regions[0]))


def _reduction(name: str, kinds: str, doc: str) -> OpRow:
    return OpRow(name, "reduction", f"{name}(t) {{axes, keepdims}}", doc, reduction(kinds), 1, 1, required=("axes",),
                 optional=("keepdims",))  # fmt: skip


ROWS: tuple[OpRow, ...] = (
    _reduction("sum", "fiu", "the sum; 0 of nothing"),
    _reduction("prod", "fiu", "the product; 1 of nothing"),
    _reduction("max", "fiu", "the maximum, NaN if one is; of nothing -inf or the lowest integer"),
    _reduction("min", "fiu", "the minimum, NaN if one is; of nothing inf or the highest integer"),
    _reduction("any", "b", "whether one is true; False of nothing"),
    _reduction("all", "b", "whether all are true; True of nothing"),
    OpRow("argmax", "reduction", "argmax(t) {axes, keepdims}", "i32 index of the first maximum (of the first NaN if "
          "there is one) along the one axis in axes; None: in the flattened tile", arg_reduction, 1, 1,
          required=("axes",),
          optional=("keepdims",)),
    OpRow("argmin", "reduction", "argmin(t) {axes, keepdims}", "i32 index of the first minimum (of the first NaN if "
          "there is one) along the one axis in axes; None: in the flattened tile", arg_reduction, 1, 1,
          required=("axes",),
          optional=("keepdims",)),
    OpRow("cumsum", "reduction", "cumsum(t) {axis, reverse}", "running sums along an axis", scan, 1, 1,
          required=("axis",),
          optional=("reverse",)),
    OpRow("cumprod", "reduction", "cumprod(t) {axis, reverse}", "running products along an axis", scan, 1, 1,
          required=("axis",), optional=("reverse",)),
    OpRow("map", "reduction", "map(*tiles) with one region", "a scalar function of the elements; one tile per result",
          map_, 1, None, regions=1),
    OpRow("fold", "reduction", "fold(*tiles, *inits) {axis, keepdims, n, init} with one region", "an axis of n tiles "
          "combined by an associative function (left..., right...) of states", fold, 1, None, required=("axis", "n"),
          optional=("keepdims", "init"), regions=1),
    OpRow("assoc_scan", "reduction", "assoc_scan(*tiles) {axis, reverse} with one region", "running combinations "
          "along an axis by an associative function", assoc_scan, 1, None, required=("axis",), optional=("reverse",),
          regions=1),
)  # fmt: skip
