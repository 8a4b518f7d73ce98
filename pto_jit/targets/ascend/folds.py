# SPDX-License-Identifier: MIT
"""`pl.reduce`: tiles folded along an axis by a function of the program, in the order of their elements.

As in a scan that runs backwards, every row is combined with the one 1, 2, 4, ... rows below it, so that the first one
comes to all of them.  Rows are folded as the columns of the transposed tile, and a line of elements as a tile of
several rows, of which each is folded first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.targets.ascend import scans
from pto_jit.targets.ascend.applied import apply
from pto_jit.targets.ascend.scans import Combination
from pto_jit.targets.ascend.values import Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter


def write_fold(w: VectorWriter, op: Op) -> None:
    count, loc = int(op.attr("n")), op.loc  # type: ignore[call-overload]
    tiles = scans.states_of(w, op, op.args[:count])
    by = Combination(back=True, region=op.regions[0], turned=True)
    source, axis = tiles[0], scans.axis_of(op)
    line = {"column": -2, "row": -1}.get(source.span)
    if axis < -2 or source.span == "one" or (line is not None and axis != line):  # one element
        folded = tiles
    elif source.span == "full" and axis == -2:
        rows = scans.down(w, tiles, by, source.valid[0], loc)
        folded = [Value(v.name, v.dtype, "row", (1, v.capacity[1]), (1, source.valid[1]), v.buffer) for v in rows]
    elif source.span == "full":
        rows = scans.down(w, scans.turned(w, tiles, by, loc), by, source.valid[1], loc)
        column = (source.capacity[0], 1), (source.valid[0], 1)
        folded = [Value(v.name, v.dtype, "column", *column, v.buffer) for v in rows]
    else:
        folded = _of_lines(w, tiles, by, loc)
    if op.attr("init"):
        folded = apply(w, op.regions[0], [*op.args[count:], *folded], loc)
    for value, result in zip(folded, op.results, strict=True):
        span, capacity, valid = w.result_shape(result, value.span, value.capacity, value.valid)
        shown = Value(value.name, value.dtype, span, capacity, valid, value.buffer)
        w.elementwise.unary("TMOV", shown, w.destination(result), loc)


def _of_lines(w: VectorWriter, lines: list[Value], by: Combination, loc: Loc) -> list[Value]:
    """What lines come to, as tiles of one element."""
    shape = scans.folded(lines[0])
    if shape is not None:
        return _of_lines(w, scans.in_rows(w, lines, by, shape, loc)[1], by, loc)
    valid = lines[0].valid[0 if lines[0].span == "column" else 1]
    rows = scans.down(w, scans.turned(w, lines, by, loc), by, valid, loc)
    return [Value(v.name, v.dtype, "one", (1, 1), (1, 1), v.buffer) for v in rows]
