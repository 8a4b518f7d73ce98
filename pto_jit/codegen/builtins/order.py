# SPDX-License-Identifier: MIT
"""Sorting, selection and counting along the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import quoted, tile_of
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Tile, static_extent
from pto_jit.errors import ShapeError, TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@builtin("sort")
def sort(cg: Generator, x: Any, descending: Any = False) -> Tile:
    tile = tile_of(cg, x, "pl.sort")
    return cg.e.tile(
        "sort", [tile.var], {"descending": bool(cg.static(descending, "descending"))}, extents=tile.extents
    )


@builtin("argsort")
def argsort(cg: Generator, x: Any, descending: Any = False) -> Tile:
    tile = tile_of(cg, x, "pl.argsort")
    attrs: dict[str, Any] = {"descending": bool(cg.static(descending, "descending"))}
    return cg.e.tile("argsort", [tile.var], attrs, extents=tile.extents)


@builtin("topk")
def topk(cg: Generator, x: Any, k: Any) -> tuple[Tile, Tile]:
    tile = tile_of(cg, x, "pl.topk")
    count = cg.static(k, "k of pl.topk")
    extent = static_extent(tile.extents[-1])
    if not isinstance(count, int) or count < 1 or (extent is not None and count > extent):
        raise cg.error(ShapeError, f"pl.topk: k = {quoted(count)} of {'?' if extent is None else extent} elements",
                       code="PTO-H050", hint="k is an integer between 1 and the last extent")  # fmt: skip
    extents = (*tile.extents[:-1], index(count))
    values, indices = cg.e.op("topk", [tile.var], {"k": count})
    return Tile(values, extents, False, cg.e.loc), Tile(indices, extents, False, cg.e.loc)


@builtin("histogram")
def histogram(cg: Generator, x: Any, bins: Any) -> Tile:
    tile = tile_of(cg, x, "pl.histogram")
    count = cg.static(bins, "the number of bins")
    if not isinstance(count, int) or count < 1:
        raise cg.error(ShapeError, f"pl.histogram: {quoted(count)} bins", code="PTO-H051",
                       hint="bins is a positive integer")  # fmt: skip
    if not tile.dtype.is_integer:
        raise cg.error(
            TypeMismatchError, f"pl.histogram of {tile.dtype}", code="PTO-T061", hint="cast it to an integer"
        )
    return cg.e.tile("histogram", [tile.var], {"bins": count}, extents=(*tile.extents[:-1], index(count)))
