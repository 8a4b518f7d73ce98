# SPDX-License-Identifier: MIT
"""`pl.histogram`: how often each number is in a row: some bins at a time are a column, which a row is compared with.

::

    TROWEXPAND(bins, numbers);      // 0 0 0 ..., 1 1 1 ..., ...
    TCOLEXPANDSUB(bins, bins, t);
    TCMPS(same, bins, 0, EQ);
    TSEL(ones, same, 1, 0);
    TROWSUM(counts, ones);
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import f32, i32
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend import scans
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Size, Value, lying, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_AT_ONCE = 4096
"""Elements that are compared at once, about."""
_MOST = 256
"""Comparisons of a histogram: what is written grows with them."""


def write_histogram(w: VectorWriter, op: Op) -> None:
    source, bins, loc = w.value(op.args[0]), int(op.attr("bins")), op.loc  # type: ignore[call-overload]
    typ = op.args[0].type
    assert isinstance(source, Value) and isinstance(typ, TileType)
    numbers = w.elementwise.converted(source, i32, w.temp, loc)
    along = source.span == "row" or (source.span == "column" and typ.rank == 1)
    rows = 1 if along else source.capacity[0]
    columns = lying(source.span, source.capacity)[1] if along or source.span == "full" else 1
    step = min(max(8, _AT_ONCE // columns // 8 * 8), padded(bins, 4))
    if rows * -(-bins // step) > _MOST or (rows > 1 and not isinstance(typ.shape[-2], int)):
        raise unsupported(f"a histogram of {bins} bins of {rows} rows of {columns} elements", op.loc,
                          "take fewer rows or elements at a time")  # fmt: skip
    room = padded(bins, 4)
    whole = w.temp(i32, "full", (padded(rows, 1, 4) if rows > 1 else 1, room), (rows, room))
    valid: Size = source.valid[1] if along or source.span == "full" else 1
    for row in range(rows):
        line = _row(w, numbers, row, columns, valid)
        for first in range(0, bins, step):
            size = min(step, padded(bins - first, 4))
            counts = _counted(w, line, first, size)
            target = Value(whole.name, i32, "row", (1, size), (1, size), whole.buffer)
            at = 4 * (row * physical(i32, whole.span, whole.capacity)[1] + first)
            shown = Value(counts.name, i32, "row", (1, size), (1, size), counts.buffer)
            w.emit("TMOV", w.tile(target, loc=loc, offset=at), w.tile(shown, loc=loc), loc=loc)
    span = "row" if rows == 1 else "full"
    height: Size = 1 if rows == 1 else source.valid[0]
    if bins == 1:
        if rows > 1:
            raise unsupported("a histogram of one bin of several rows", loc, "count with pl.sum")
        span = "one"
    out = Value(whole.name, i32, span, (whole.capacity[0], bins), (height, bins), whole.buffer)
    w.elementwise.unary("TMOV", out, w.destination(op.results[0]), loc)


def _row(w: VectorWriter, numbers: Value, row: int, columns: int, valid: Size) -> Value:
    """A row of a tile as a line; of a column, one element."""
    if numbers.span in ("row", "one") or (numbers.span == "column" and columns > 1):
        return Value(numbers.name, i32, "row", (1, columns), (1, valid), numbers.buffer)
    if numbers.span == "column":
        raise unsupported("a histogram of rows of one element", w.here, "compare with `pl.arange`")
    line = scans.line_of(w, scans.as_tile(numbers, numbers.capacity), row, w.here)
    return Value(line.name, i32, "row", (1, columns), (1, valid), line.buffer)


def _counted(w: VectorWriter, line: Value, first: int, size: int) -> Value:
    """How often each of some numbers is in a line, as a column."""
    loc = w.here
    bins = w.temp(i32, "column", (size, 1), (size, 1))
    w.emit("TCI", w.tile(bins, loc=loc), f"(int32_t){first}", loc=loc)
    same = w.elementwise.compare("EQ", bins, line, w.temp, loc)
    ones = w.elementwise.select(same, "1", "0", f32, w.temp, loc)
    counts = w.reduced("sum", ones, {-1}, 2, None, w.temp, loc)
    return w.elementwise.converted(counts, i32, w.temp, loc)
