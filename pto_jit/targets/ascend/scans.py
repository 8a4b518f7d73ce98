# SPDX-License-Identifier: MIT
"""Running sums and products of tiles.

Down the rows of a tile a scan takes one step for each power of two: every row adds the one 1, 2, 4, ... rows above it
(Hillis and Steele, 1986), or below it when the scan runs backwards.  A shift by rows is a shift by whole blocks
of memory, which one along a row is not; so a scan along rows, and one of a single line, is one down the rows of the
transposed tile.

Rows and columns that are not valid are computed along.  Nothing that is valid depends on them as long as the scan runs
from the first one on; before a scan backwards they are filled with what changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import f32, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend.form import Tile
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Value, lying, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

NAMES = {"cumsum": "TADD", "cumprod": "TMUL"}


def write_scan(w: VectorWriter, op: Op) -> None:
    source = w.value(op.args[0])
    typ = op.args[0].type
    assert isinstance(source, Value) and isinstance(typ, TileType)
    axis = int(op.attr("axis"))  # type: ignore[arg-type]
    axis -= typ.rank if axis >= 0 else 0
    if source.dtype not in (f32, i32):
        raise unsupported(f"this `{op.op}`", op.loc, "scan computed tiles of f32 or i32")
    to, back = w.destination(op.results[0]), bool(op.attr("reverse"))
    length = {"full": axis, "row": -1, "column": -2, "one": 0}[source.span]
    if axis < -2 or axis != length:  # one element
        w.elementwise.unary("TMOV", source, to, op.loc)
    elif source.span == "full" and axis == -2:
        _down(w, op.op, _cleaned(w, op, source) if back else source, to, back, op.loc)
    else:
        _along(w, op, source, to, back)


def _along(w: VectorWriter, op: Op, source: Value, to: Any, back: bool) -> None:
    """Along rows, or along a line: down the rows of the transposed tile."""
    height, width = lying(source.span, source.capacity)
    tall, wide = padded(height, 1, 16), padded(width, 1, 16)
    if source.span == "full" and (tall, wide) != (height, width):
        raise unsupported(f"a `{op.op}` along rows of a tile of {height} x {width}", op.loc,
                          "take tiles whose rows and columns are multiples of 16")  # fmt: skip
    if back or (tall, wide) != (height, width):
        source = _cleaned(w, op, source, (tall, wide))
    turned = w.temp(source.dtype, "full", (wide, tall), (wide, tall))
    _turn(w, turned, source, op.loc)
    summed = _down(w, op.op, turned, w.temp, back, op.loc)
    given = w.value(op.args[0])
    assert isinstance(given, Value)
    if (tall, wide) == (height, width):
        _turn(w, to(source.dtype, given.span, given.capacity, given.valid), summed, op.loc)
        return
    whole = w.temp(source.dtype, "full", (tall, wide), (tall, wide))
    _turn(w, whole, summed, op.loc)
    out = to(source.dtype, given.span, given.capacity, given.valid)
    count = given.valid[0] if given.span == "column" else given.valid[1]
    columns = w.named(count, f"{whole.name}_columns", op.loc)
    shown = w.tile(out, loc=op.loc)
    w.emit("TMOV", shown, _line(w, whole, shown.columns, columns, op.loc), loc=op.loc)


def _cleaned(w: VectorWriter, op: Op, source: Value, shape: tuple[int, int] | None = None) -> Value:
    """A copy in a tile of `shape` (that of the source), with zeros or ones where nothing is valid."""
    height, width = lying(source.span, source.capacity)
    shape = shape or (height, width)
    out = w.temp(source.dtype, "full", shape, shape)
    w.fill(out, "0" if op.op == "cumsum" else "1", op.loc)
    rows, columns = (1, source.valid[0]) if source.span == "column" else source.valid
    given = Value(source.name, source.dtype, "full", (height, width), (rows, columns), source.buffer)
    w.elementwise.laid_over(out, given, op.loc)
    return Value(out.name, out.dtype, "full", shape, (rows, columns), out.buffer)


def _down(w: VectorWriter, name: str, source: Value, to: Any, back: bool, loc: Loc) -> Value:
    """The scan down the rows; each step leaves its operand as it is."""
    rows = source.capacity[0]
    width = w.named(source.valid[1], f"{source.name}_columns", loc)
    now, shift = source, 1
    while shift < rows or now is source:
        make = to if 2 * shift >= rows else w.temp
        out = make(source.dtype, "full", source.capacity, source.valid)
        kept = min(shift, rows)  # rows that nothing is added to
        at = rows - kept if back else 0
        w.emit("TMOV", _part(w, out, at, kept, width, loc), _part(w, now, at, kept, width, loc), loc=loc)
        if kept < rows:
            mine, other = (0, kept) if back else (kept, 0)
            w.emit(NAMES[name], *(_part(w, v, first, rows - kept, width, loc)
                                  for v, first in ((out, mine), (now, mine), (now, other))), loc=loc)  # fmt: skip
        now, shift = out, 2 * shift
    return now


def _part(w: VectorWriter, value: Value, start: int, count: int, width: int | str, loc: Loc) -> Tile:
    """Some rows of a tile."""
    columns = physical(value.dtype, value.span, value.capacity)[1]
    out = Tile(w.names.fresh(value.name), value.dtype, count, columns, (count, width), "row", value.buffer,
               start * columns * value.dtype.bytes)  # fmt: skip
    w.declare(out, loc)
    return out


def _line(w: VectorWriter, value: Value, columns: int, width: int | str, loc: Loc) -> Tile:
    """The beginning of the first row, as wide as what it is copied to."""
    out = Tile(w.names.fresh(value.name), value.dtype, 1, columns, (1, width), "row", value.buffer)
    w.declare(out, loc)
    return out


def _turn(w: VectorWriter, out: Value, source: Value, loc: Loc) -> None:
    """The transposed tile, of all there is memory for."""
    scratch = w.temp(out.dtype, "full", out.capacity, out.capacity)
    w.emit("TTRANS", w.tile(out, valid=out.capacity, loc=loc), w.tile(source, valid=source.capacity, loc=loc),
           w.tile(scratch, loc=loc), loc=loc)  # fmt: skip
