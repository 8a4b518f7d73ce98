# SPDX-License-Identifier: MIT
"""Running sums and products of tiles.

Down the rows of a tile a scan takes one step for each power of two: every row adds the one that is 1, 2, 4, ... rows
above it (Hillis and Steele, 1986).  A shift by rows is a shift by whole blocks of memory, which one along a row is not;
so a scan along rows is one down the rows of the transposed tile.

Rows and columns that are not valid are computed along: nothing that is valid depends on them, as long as the scan runs
from the first one on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import f32, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend.form import Tile
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Value, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

NAMES = {"cumsum": "TADD", "cumprod": "TMUL"}


def write_scan(w: VectorWriter, op: Op) -> None:
    source = w.value(op.args[0])
    typ = op.args[0].type
    assert isinstance(source, Value) and isinstance(typ, TileType)
    axis = int(op.attr("axis"))  # type: ignore[arg-type]
    axis -= typ.rank if axis >= 0 else 0
    rows, columns = source.capacity
    if source.span != "full" or source.dtype not in (f32, i32) or source.free != (False, False) or op.attr("reverse"):
        raise unsupported(f"this `{op.op}`", op.loc,
                          "scan tiles of f32 or i32 with several rows and columns, forwards")  # fmt: skip
    to = w.destination(op.results[0])
    if axis == -2:
        _down(w, NAMES[op.op], source, to, op.loc)
        return
    if rows % 16 or columns % 16:
        raise unsupported(f"a `{op.op}` along rows of a tile of {rows} x {columns}", op.loc,
                          "take tiles whose rows and columns are multiples of 16")  # fmt: skip
    turned = w.temp(source.dtype, "full", (columns, rows), (columns, rows))
    _turn(w, turned, source, op.loc)
    summed = _down(w, NAMES[op.op], turned, w.temp, op.loc)
    out = to(source.dtype, "full", source.capacity, source.valid)
    _turn(w, out, summed, op.loc)


def _down(w: VectorWriter, name: str, source: Value, to: Any, loc: Loc) -> Value:
    """The scan down the rows; each step leaves its operand as it is."""
    rows = source.capacity[0]
    width = w.named(source.valid[1], f"{source.name}_columns", loc)
    now, shift = source, 1
    while shift < rows or now is source:
        make = to if 2 * shift >= rows else w.temp
        out = make(source.dtype, "full", source.capacity, source.valid)
        first = min(shift, rows)
        w.emit("TMOV", _part(w, out, 0, first, width, loc), _part(w, now, 0, first, width, loc), loc=loc)
        if first < rows:
            w.emit(name, _part(w, out, first, rows - first, width, loc), _part(w, now, first, rows - first, width, loc),
                   _part(w, now, 0, rows - first, width, loc), loc=loc)  # fmt: skip
        now, shift = out, 2 * shift
    return now


def _part(w: VectorWriter, value: Value, start: int, count: int, width: int | str, loc: Loc) -> Tile:
    """Some rows of a tile."""
    columns = physical(value.dtype, value.span, value.capacity)[1]
    out = Tile(w.names.fresh(value.name), value.dtype, count, columns, (count, width), "row", value.buffer,
               start * columns * value.dtype.bytes)  # fmt: skip
    w.declare(out, loc)
    return out


def _turn(w: VectorWriter, out: Value, source: Value, loc: Loc) -> None:
    """The transposed tile, of all there is memory for."""
    scratch = w.temp(out.dtype, "full", out.capacity, out.capacity)
    w.emit("TTRANS", w.tile(out, valid=out.capacity, loc=loc), w.tile(source, valid=source.capacity, loc=loc),
           w.tile(scratch, loc=loc), loc=loc)  # fmt: skip
