# SPDX-License-Identifier: MIT
"""Running sums and products of tiles, and running combinations by functions of the program.

Down the rows of a tile a scan takes one step for each power of two: every row is combined with the one 1, 2, 4, ...
rows above it (Hillis and Steele, 1986), or below it when the scan runs backwards.  A shift by rows is a shift by whole
blocks of memory, which one along a row is not; so a scan along rows is one down the rows of the transposed tile.

A line of elements is a tile of several rows, one after the other in memory: a scan along these, one of what they come
to, and each row combined with what is before it::

    1 2 3 4    1 3 6 10             1  3  6 10
    5 6 7 8 -> 5 11 18 26 ->  10 -> 15 21 28 36
    9 ...      9 ...          36    45 ...

Short ones are a single row of a tile that is transposed.

Rows and columns that are not valid are computed along.  Nothing that is valid depends on them as long as the scan runs
from the first one on; before a sum backwards they are filled with what changes nothing, and what a function backwards
would combine with them stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import f32, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op, Operand, Region
from pto_jit.ir.types import TileType
from pto_jit.slotted import mutable
from pto_jit.targets.ascend.applied import apply
from pto_jit.targets.ascend.form import Tile
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import names, text, total
from pto_jit.targets.ascend.values import Expr, Size, Value, lying, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_SIDE = 16
"""Rows and columns of tiles that are transposed are multiples of it."""
_SHORT = 256
"""Elements of lines that are not seen as several rows."""
_COMBINED = frozenset("f32 i32 f16 bf16 i16".split())


@mutable
class Combination:
    """What tiles, one for each part of a state, are combined by, and in which direction.

    name: the instruction for sums or products; else `region`, a function.  turned: it takes the nearer operand first.
    """

    back: bool
    name: str = ""
    region: Region | None = None
    turned: bool = False

    @property
    def filling(self) -> str | None:
        """What changes nothing, as text; None where that is not known."""
        return {"": None, "TADD": "0", "TMUL": "1"}[self.name]


def write_scan(w: VectorWriter, op: Op) -> None:
    """`pl.cumsum`, `pl.cumprod` and `pl.associative_scan`."""
    by = Combination(bool(op.attr("reverse")))
    if op.op == "assoc_scan":
        by.region = op.regions[0]
    else:
        by.name = "TADD" if op.op == "cumsum" else "TMUL"
    tiles = states_of(w, op, op.args)
    source = tiles[0]
    if by.name and source.dtype not in (f32, i32):
        raise unsupported(f"this `{op.op}`", op.loc, "scan computed tiles of f32 or i32")
    axis, length = axis_of(op), {"full": axis_of(op), "row": -1, "column": -2, "one": 0}[source.span]
    if axis < -2 or axis != length:  # one element
        out = tiles
    elif source.span == "full" and axis == -2:
        out = down(w, _cleaned(w, by, tiles, source.capacity) if by.back else tiles, by, source.valid[0], op.loc)
    elif source.span == "full":
        out = [turned_tile(w, v, op.loc) for v in down(w, turned(w, tiles, by, op.loc), by, source.valid[1], op.loc)]
    else:
        out = of_lines(w, tiles, by, op.loc)
    for value, result, given in zip(out, op.results, tiles, strict=True):
        whole = Value(value.name, value.dtype, given.span, given.capacity, given.valid, value.buffer, given.free)
        to = w.destination(result)
        if _shape(value) == _shape(given):
            w.elementwise.unary("TMOV", whole, to, op.loc)
        else:
            target = to(given.dtype, given.span, given.capacity, given.valid, given.free)
            rows = _valid_rows(given)
            w.elementwise.laid_over(_as_rows(target, rows), _as_rows(value, rows), op.loc)


def states_of(w: VectorWriter, op: Op, operands: Sequence[Operand]) -> list[Value]:
    """The tiles of a state, which have one shape."""
    values = [v for v in map(w.value, operands) if isinstance(v, Value)]
    for v in values:
        if v.dtype.name not in _COMBINED:
            raise unsupported(f"`{_SPOKEN[op.op]}` of tiles of {v.dtype}", op.loc, "combine f32, i32, f16, bf16 or i16")
    span, capacity, valid, free = w.elementwise.joint(values, op.loc)
    out: list[Value] = []
    for v in values:
        if v.span != span or v.capacity != capacity:
            v = w.elementwise.broadcast(v, span, capacity, valid, free, w.temp, op.loc)
        out.append(Value(v.name, v.dtype, span, v.capacity, valid, v.buffer, free))
    return out


_SPOKEN = {"assoc_scan": "pl.associative_scan", "fold": "pl.reduce", "cumsum": "pl.cumsum", "cumprod": "pl.cumprod"}


def axis_of(op: Op) -> int:
    """The axis of an operation, counted from the last one."""
    axis, typ = int(op.attr("axis")), op.args[0].type  # type: ignore[call-overload]
    assert isinstance(typ, TileType)
    return axis - typ.rank if axis >= 0 else axis


# -- rows ---------------------------------------------------------------------------------------------------------


def down(
    w: VectorWriter, tiles: list[Value], by: Combination, valid: Size, loc: Loc, places: Value | None = None
) -> list[Value]:
    """Each row combined with all before it; the tiles stay as they are.  valid: how many rows are; places: of elements
    in a line, if `valid` is of these."""
    rows, shift = tiles[0].capacity[0], 1
    while shift < rows:
        if by.name:
            tiles = [_shifted_sum(w, tiles[0], by, shift, loc)]
        else:
            tiles = _step(w, tiles, by, shift, valid, loc, places)
        shift *= 2
    return tiles


def _shifted_sum(w: VectorWriter, now: Value, by: Combination, shift: int, loc: Loc) -> Value:
    rows = now.capacity[0]
    out = w.temp(now.dtype, "full", now.capacity, now.valid)
    at = rows - shift if by.back else 0  # rows that nothing is added to
    _copy(w, (out, at), (now, at), shift, loc)
    mine, other = (0, shift) if by.back else (shift, 0)
    w.emit(by.name, *(_part(w, v, first, rows - shift, loc) for v, first in ((out, mine), (now, mine), (now, other))),
           loc=loc)  # fmt: skip
    return out


def _step(
    w: VectorWriter, tiles: list[Value], by: Combination, shift: int, valid: Size, loc: Loc, places: Value | None
) -> list[Value]:
    """Rows combined with those `shift` before them, by a function."""
    rows = tiles[0].capacity[0]
    own = rows - shift if by.back else 0  # rows with none before them, which are combined with whatever there is
    whole = [_all_rows(v) for v in tiles]
    before: list[Value] = []
    for v in whole:
        before.append(w.temp(v.dtype, "full", v.capacity, v.valid))
        _copy(w, (before[-1], 0 if by.back else shift), (v, shift if by.back else 0), rows - shift, loc)
    combined = combine(w, by, before, whole, loc)
    if places is not None:
        few = w.elementwise.compare("LT", places, text(total(valid, shift, "-")), w.temp, loc)
        combined = [w.elementwise.select(few, new, old, old.dtype, w.temp, loc)
                    for new, old in zip(combined, whole, strict=True)]  # fmt: skip
    if by.back and valid != rows and places is None:  # what is not valid comes before nothing
        out = [w.elementwise.unary("TMOV", now, w.temp, loc) for now in whole]
        _copy_some(w, out, combined, total(valid, shift, "-"), loc)
    else:
        out = list[Value]()
        for value, now in zip(combined, whole, strict=True):
            used = [v.buffer for v in (*before, *whole, *out)]
            out.append(w.elementwise.unary("TMOV", value, w.temp, loc) if value.buffer in used else value)
            _copy(w, (out[-1], own), (now, own), shift, loc)
    return [_like(v, t) for v, t in zip(out, tiles, strict=True)]


def combine(w: VectorWriter, by: Combination, before: list[Any], now: list[Any], loc: Loc) -> list[Value]:
    """Tiles, or numbers, with those that come after them in the order of the scan."""
    if by.region is None:
        return [w.elementwise.same(by.name, (a, b), w.temp, loc) for a, b in zip(before, now, strict=True)]
    first, second = (now, before) if by.turned else (before, now)
    return apply(w, by.region, [*first, *second], loc)


def turned(w: VectorWriter, tiles: list[Value], by: Combination, loc: Loc) -> list[Value]:
    """The transposed tiles, or rows, after they were given a shape that can be."""
    shape = _square(lying(tiles[0].span, tiles[0].capacity))
    if (by.name and by.back) or _shape(tiles[0]) != shape:
        tiles = _cleaned(w, by, tiles, shape)
    return [turned_tile(w, v, loc) for v in tiles]


# -- lines --------------------------------------------------------------------------------------------------------


def of_lines(w: VectorWriter, lines: list[Value], by: Combination, loc: Loc) -> list[Value]:
    """Along lines; the results are rows of at least as many elements."""
    valid, shape = _valid_rows(lines[0])[1], folded(lines[0])
    if shape is None:
        across = down(w, turned(w, lines, by, loc), by, valid, loc)
        return [_first_row(turned_tile(w, v, loc)) for v in across]
    across, ends = in_rows(w, lines, by, shape, loc)
    wide: list[Value] = []
    for end in of_lines(w, ends, by, loc):
        column = Value(end.name, end.dtype, "column", (shape[0], 1), (shape[0], 1), end.buffer)
        wide.append(w.elementwise.broadcast(column, "full", shape, shape, (False, False), w.temp, loc))
    out = _joined(w, wide, [turned_tile(w, v, loc) for v in across], by, valid, loc)
    return [as_tile(v, (1, prod(shape))) for v in out]


def in_rows(
    w: VectorWriter, lines: list[Value], by: Combination, shape: tuple[int, int], loc: Loc
) -> tuple[list[Value], list[Value]]:
    """Lines as tiles of several rows, scanned along these and transposed, and what each row comes to, as lines."""
    valid, columns = _valid_rows(lines[0])[1], shape[1]
    places = None
    if prod(shape) != valid:
        lines = _cleaned(w, by, lines, (1, prod(shape)))
        if by.back and not by.name:
            places = _places(w, shape, loc)
    tall = [turned_tile(w, as_tile(v, shape), loc) for v in lines]
    across = down(w, tall, by, columns if places is None else valid, loc, places)
    ends = [line_of(w, v, 0 if by.back else columns - 1, loc) for v in across]
    if places is not None:
        count = _whole_rows(valid, columns, columns - 1)
        ends = [Value(v.name, v.dtype, "row", v.capacity, (1, count), v.buffer) for v in ends]
    return across, ends


def _whole_rows(valid: Size, columns: int, more: int) -> Size:
    """How many rows of a tile so many elements are, and some more."""
    if isinstance(valid, int):
        return (valid + more) // columns
    return Expr(f"({text(total(valid, more))}) / {columns}", names(valid))


def _places(w: VectorWriter, shape: tuple[int, int], loc: Loc) -> Value:
    """Where elements of the transposed tile are in a line."""
    rows, columns = shape
    across = w.temp(i32, "row", (1, rows), (1, rows))
    along = w.temp(i32, "column", (columns, 1), (columns, 1))
    for line in (across, along):
        w.emit("TCI", w.tile(line, loc=loc), "(int32_t)0", loc=loc)
    first = w.elementwise.scaled("TMULS", across, str(columns), w.temp, loc)
    return w.elementwise.binary("ADD", along, first, w.temp, loc)


def _joined(
    w: VectorWriter, before: list[Value], rows: list[Value], by: Combination, valid: Size, loc: Loc
) -> list[Value]:
    """Rows, each combined with what those before it come to, which is repeated in the row before."""
    count, columns = rows[0].capacity[0] - 1, rows[0].capacity[1]
    mine, other = (0, 1) if by.back else (1, 0)
    if by.name:
        (now,), (end,) = rows, before
        w.emit(by.name, *(_part(w, v, first, count, loc) for v, first in ((now, mine), (now, mine), (end, other))),
               loc=loc)  # fmt: skip
        return rows
    moved: list[Value] = []
    for v in before:
        moved.append(w.temp(v.dtype, "full", v.capacity, v.valid))
        _copy(w, (moved[-1], mine), (v, other), count, loc)
    used = [v.buffer for v in rows]
    combined = [w.elementwise.unary("TMOV", v, w.temp, loc) if v.buffer in used else v
                for v in combine(w, by, moved, rows, loc)]  # fmt: skip
    if by.back:
        _copy_some(w, rows, combined, _whole_rows(valid, columns, -1), loc)
    else:
        for value, now in zip(combined, rows, strict=True):
            _copy(w, (now, mine), (value, mine), count, loc)
    return rows


def folded(line: Value) -> tuple[int, int] | None:
    """Rows and columns of a line as a tile that can be transposed, about as many: as many elements, or few more; None
    of a short one."""
    length = lying(line.span, line.capacity)[1]
    if length <= _SHORT:
        return None
    side = isqrt(length)
    exact = [k for k in range(_SIDE, side + _SIDE, _SIDE) if length % (k * _SIDE) == 0 and 4 * k >= side]
    rows = exact[-1] if exact else padded(side, 1, _SIDE)
    return rows, padded(-(-length // rows), 1, _SIDE)


# -- tiles --------------------------------------------------------------------------------------------------------


def _shape(value: Value) -> tuple[int, int]:
    return physical(value.dtype, value.span, value.capacity)


def _square(capacity: tuple[int, int]) -> tuple[int, int]:
    return padded(capacity[0], 1, _SIDE), padded(capacity[1], 1, _SIDE)


def _valid_rows(value: Value) -> tuple[Size, Size]:
    """Valid rows and columns of the row-major tile over a value."""
    return (1, value.valid[0]) if value.span in ("column", "one") else value.valid


def _as_rows(value: Value, valid: tuple[Size, Size]) -> Value:
    return Value(value.name, value.dtype, "full", lying(value.span, value.capacity), valid, value.buffer)


def _all_rows(value: Value) -> Value:
    return Value(value.name, value.dtype, "full", value.capacity, (value.capacity[0], value.valid[1]), value.buffer)


def as_tile(value: Value, shape: tuple[int, int]) -> Value:
    """What lies one after the other, as a tile of a shape; all of it counts."""
    return Value(value.name, value.dtype, "full", shape, shape, value.buffer)


def _first_row(value: Value) -> Value:
    return as_tile(value, (1, value.capacity[1]))


def _like(value: Value, other: Value) -> Value:
    return Value(value.name, value.dtype, "full", other.capacity, other.valid, value.buffer)


def _cleaned(w: VectorWriter, by: Combination, tiles: list[Value], shape: tuple[int, int]) -> list[Value]:
    """Copies in tiles of a shape, with zeros or ones where nothing is valid; of functions, which know no such numbers,
    only if they have not that shape."""
    out: list[Value] = []
    for source in tiles:
        given = _as_rows(source, _valid_rows(source))
        if by.filling is None and _shape(source) == shape:
            out.append(given)
            continue
        copy = w.temp(source.dtype, "full", shape, shape)
        if by.filling is not None:
            w.fill(copy, by.filling, w.here)
        w.elementwise.laid_over(copy, given, w.here)
        out.append(Value(copy.name, copy.dtype, "full", shape, given.valid, copy.buffer))
    return out


def _part(w: VectorWriter, value: Value, start: int, count: int | str, loc: Loc, rows: int = 0) -> Tile:
    """Some rows of a tile."""
    columns = _shape(value)[1]
    width = w.named(value.valid[1], f"{value.name}_columns", loc)
    out = Tile(w.names.fresh(value.name), value.dtype, rows or int(count), columns, (count, width), "row", value.buffer,
               start * columns * value.dtype.bytes)  # fmt: skip
    w.declare(out, loc)
    return out


def _copy(w: VectorWriter, to: tuple[Value, int], source: tuple[Value, int], count: int | str, loc: Loc) -> None:
    """Some rows of a tile, from one on, to those of another from one on."""
    rows = count if isinstance(count, int) else to[0].capacity[0]
    w.emit("TMOV", *(_part(w, v, first, count, loc, rows) for v, first in (to, source)), loc=loc)


def _copy_some(w: VectorWriter, to: list[Value], sources: list[Value], count: Size, loc: Loc) -> None:
    """The first rows of tiles, if there are any."""
    known = isinstance(count, int)
    if not known or count > 0:
        with w.where([] if known else [f"{text(count)} > 0"], loc):
            rows = w.named(count, f"{to[0].name}_rows", loc)
            for target, source in zip(to, sources, strict=True):
                _copy(w, (target, 0), (source, 0), rows, loc)


def line_of(w: VectorWriter, value: Value, row: int, loc: Loc) -> Value:
    """A row of a tile as a line of its own."""
    out = w.temp(value.dtype, "row", (1, value.capacity[1]), (1, value.capacity[1]))
    _copy(w, (out, 0), (value, row), 1, loc)
    return out


def turned_tile(w: VectorWriter, source: Value, loc: Loc) -> Value:
    """The transposed tile, of all there is memory for."""
    shape = source.capacity[1], source.capacity[0]
    out, scratch = (w.temp(source.dtype, "full", shape, shape) for _ in range(2))
    w.emit("TTRANS", w.tile(out, loc=loc), w.tile(source, valid=source.capacity, loc=loc), w.tile(scratch, loc=loc),
           loc=loc)  # fmt: skip
    return out
