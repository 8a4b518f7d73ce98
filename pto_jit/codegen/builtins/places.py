# SPDX-License-Identifier: MIT
"""Tiles of places: what `x[index]`, `pl.gather` and `pl.scatter` take as an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import tile_of, with_extents
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Tile
from pto_jit.dtypes import place_dtype
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.nodes import Const, Operand

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def index_tile(cg: Generator, value: Any, what: str, hint: str = "cast it to pl.i32 or pl.i64") -> Tile:
    """A tile of indices, of i32 or i64; other integers are converted."""
    chosen = tile_of(cg, value, what)
    if not chosen.dtype.is_integer:
        raise cg.error(TypeMismatchError, f"{what} is a tile of {chosen.dtype}", code="PTO-T037", hint=hint)
    wanted = place_dtype(chosen.dtype)
    return chosen if chosen.dtype == wanted else cg.e.cast(chosen, wanted)


def look_up(cg: Generator, table: Tile, chosen: Tile) -> Tile:
    """`table[chosen]` of a tile with one axis, in the shape of the index."""
    if chosen.rank == 1:
        return cg.e.tile("gather", [table.var, chosen.var], {"axis": 0}, extents=chosen.extents)
    flat = with_extents(cg, chosen, [_count(cg, chosen)])
    found = cg.e.tile("gather", [table.var, flat.var], {"axis": 0}, extents=flat.extents)
    return with_extents(cg, found, chosen.extents)


def _count(cg: Generator, tile: Tile) -> Operand:
    """The number of elements a tile is declared with."""
    total: Operand = index(1)
    for extent in tile.extents:
        if isinstance(total, Const) and isinstance(extent, Const):
            total = index(int(total.value) * int(extent.value))
        else:
            total = cg.e.scalar("mul", [total, extent]).operand
    return total
