# SPDX-License-Identifier: MIT
"""`sort`, `argsort` and `topk`: the order of a row, by the core's own merge sort.

The core sorts pairs of a key and a number, largest keys first: 32 of them at a time (`TSORT32`), and up to four sorted
runs into one (`TMRGSORT`); equal keys keep their order.  The numbers are the places of the elements; the elements are
gathered by the sorted places, as they were, with the signs of zeros.  Rows are sorted one after the other.

    elements  3  1  2                upwards
    keys     -3 -1 -2  -inf ...      up to runs of 32; what is added comes last, after infinities of the row's own
    places    0  1  2   3   ...
    order     1  2  0   3   ...

A NaN counts as the largest element.  How the core compares one is not documented, so its key is an infinity; where
there is one, places are sorted by that first, so that a NaN stands on the right side of infinities that its key is
equal to.

Keys are f32.  An i32 is two, its lower and its upper 16 bits: places are sorted by the lower ones first, and as equal
keys keep their order, then by the upper ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import DType, f32, i32, u32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.form import Assignment, Branch, Loop, Require, Tile
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.searches import largest
from pto_jit.targets.ascend.values import Size, Span, Value, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_RUN = 32
_MOST = 8192
"""Elements of a row: a list that is merged has fewer than 4096."""
_INFINITY, _LOWEST = "__builtin_inff()", "-__builtin_inff()"
_NAMES = ("sorted", "order")
_EXACT = frozenset(["f32", "f16", "bf16", "i16", "i8", "u8"])
"""Types whose elements f32 holds."""
_HALF = "16"


def write_order(w: VectorWriter, op: Op) -> None:
    """`sort`, `argsort` or `topk`, along the last axis."""
    loc, source = op.loc, w.value(op.args[0])
    assert isinstance(source, Value)
    if source.dtype.name not in _EXACT and source.dtype != i32:
        raise unsupported(f"`{op.op}` of tiles of {source.dtype}", loc, "convert them to f32 or i32, if it holds them")
    if source.span in ("column", "one"):
        _of_one(w, op, source)
        return
    wide = source if source.dtype == i32 else w.elementwise.converted(source, f32, w.temp, loc)
    if wide.capacity[1] > _MOST:
        raise unsupported(f"`{op.op}` of rows of {wide.capacity[1]} elements", loc, f"sort {_MOST} or fewer")
    wanted = _results(op)
    if op.op == "topk" and wide.span == "full" and op.attr("k") == 1:
        _give(w, wanted, largest(w, wide, loc), loc)
        return
    first = _wanted(w, op, wide)
    kinds = (wide.dtype if wanted[0] is not None else None, i32 if wanted[1] is not None else None)
    places = _row(w, "places", i32, padded(wide.capacity[1], 1, _RUN))
    w.emit("TCI", w.tile(places, loc=loc), "(int32_t)0", loc=loc)
    sorts = _Sorts(w, places, op.op == "topk" or bool(op.attr("descending")), loc)
    made = sorts.rows(wide, first, kinds) if wide.span == "full" else sorts.line(wide, first, kinds)
    _give(w, wanted, made, loc)


def _give(w: VectorWriter, wanted: tuple[Var | None, Var | None], made: _Made, loc: Loc) -> None:
    for var, value in zip(wanted, made, strict=True):
        if var is not None:
            assert value is not None
            w.elementwise.converted(value, var.type.dtype, w.destination(var), loc)  # type: ignore[union-attr]


def _results(op: Op) -> tuple[Var | None, Var | None]:
    """Who gets the elements, and who the places."""
    if op.op == "topk":
        return op.results[0], op.results[1]
    return (op.results[0], None) if op.op == "sort" else (None, op.results[0])


def _of_one(w: VectorWriter, op: Op, source: Value) -> None:
    """Rows of one element."""
    values, places = _results(op)
    if values is not None:
        w.elementwise.unary("TMOV", source, w.destination(values), op.loc)
    if places is not None:
        w.fill(w.destination(places)(i32, source.span, source.capacity, source.valid), "0", op.loc)


_First = tuple[Span, int, Size]
"""What a row of a result spans, how many elements it has memory for, and how many there are."""
_Kinds = tuple[DType | None, DType | None]
"""Of elements and places; None: they are not wanted."""
_Made = tuple[Value | None, Value | None]
"""Elements and places."""


def _wanted(w: VectorWriter, op: Op, source: Value) -> _First:
    room, valid = source.capacity[1], source.valid[1]
    if op.op != "topk":
        return "row", room, valid
    count, typ = int(op.attr("k")), op.results[0].type  # type: ignore[call-overload]
    assert isinstance(typ, TileType)
    if count > (valid if isinstance(valid, int) else room):
        raise unsupported(f"`topk` of {count} elements of {valid if isinstance(valid, int) else room}", op.loc,
                          "take fewer")  # fmt: skip
    if not isinstance(valid, int):
        w.nodes.append(Require(f"{count} <= {valid.text}", op.loc))
    return ("one" if typ.rank > 1 and count == 1 else "row"), count, count


def _row(w: VectorWriter, name: str, dtype: DType, width: int) -> Value:
    return w.new(name, dtype, "row", (1, width), (1, width))


def _beginning(w: VectorWriter, value: Value, like: Tile, loc: Loc) -> Tile:
    """As much of a row as another tile has."""
    out = Tile(w.names.fresh(value.name), value.dtype, 1, like.columns, like.valid, "row", value.buffer)
    w.declare(out, loc)
    return out


@frozen
class _Sorts:
    """Writes the sorts of rows. places: 0, 1, ... to whole runs; down: the largest element comes first."""

    w: VectorWriter
    places: Value
    down: bool
    loc: Loc

    def tiles(self, *values: Value) -> list[Tile]:
        return [self.w.tile(v, loc=self.loc) for v in values]

    def emit(self, name: str, *args: Tile | str) -> None:
        self.w.emit(name, *args, loc=self.loc)

    # -- rows -----------------------------------------------------------------------------------------------------

    def rows(self, source: Value, first: _First, kinds: _Kinds) -> _Made:
        """Row after row."""
        w, loc = self.w, self.loc
        _, room, count = first
        shape, valid = (source.capacity[0], room), (source.valid[0], count)
        out = [None if d is None else w.new(n, d, "full", shape, valid) for n, d in zip(_NAMES, kinds, strict=True)]
        stop = w.named(source.valid[0], f"{source.name}_rows", loc)
        w.named(source.valid[1], f"{source.name}_columns", loc)
        loop = Loop(w.names.fresh("row"), "0", str(stop), "1", [], loc=loc)
        w.nodes.append(loop)
        w.loops.append(loop)
        with w.inside(loop.body):
            w.scopes[-1][loop.var] = loop.var
            row = w.new(f"{source.name}_row", source.dtype, "row", (1, source.capacity[1]), (1, source.valid[1]))
            self.emit("TMOV", *self.tiles(row), self.moving(source, loop))
            for whole, made in zip(out, self.line(row, first, kinds), strict=True):
                if whole is not None and made is not None:
                    self.emit("TMOV", self.moving(whole, loop), *self.tiles(made))
        w.loops.pop()
        return out[0], out[1]

    def moving(self, value: Value, loop: Loop) -> Tile:
        """The row of a tile that an iteration of a loop works on."""
        columns = physical(value.dtype, value.span, value.capacity)[1]
        width = self.w.named(value.valid[1], f"{value.name}_columns", self.loc)
        out = Tile(self.w.names.fresh(f"{value.name}_row"), value.dtype, 1, columns, (1, width), "row", value.buffer,
                   moves=(loop.var, columns * value.dtype.bytes))  # fmt: skip
        self.w.declare(out, self.loc)
        return out

    def line(self, row: Value, first: _First, kinds: _Kinds) -> _Made:
        """The first elements of a row in order, and their places."""
        span, room, count = first
        order = self.order(row)
        values, at = (None if d is None else self.w.new(n, d, span, (1, room), (1, count))
                      for n, d in zip(_NAMES, kinds, strict=True))  # fmt: skip
        if values is not None:
            self.gather(values, row, order)
        if at is not None:
            (shown,) = self.tiles(at)
            self.emit("TMOV", shown, _beginning(self.w, order, shown, self.loc))
        return values, at

    def order(self, row: Value) -> Value:
        """The places of all elements in order, and behind them those of what was added."""
        if row.dtype == i32:
            return self.by_halves(row)
        w, loc, down = self.w, self.loc, self.down
        width = self.places.capacity[1]
        unordered = w.elementwise.compare("NE", row, row, to=w.temp, loc=loc)
        signed = row if down else w.elementwise.scaled("TMULS", row, "-1", w.temp, loc)
        infinity = _INFINITY if down else _LOWEST
        keys = self.filled(w.elementwise.select(unordered, infinity, signed, f32, w.temp, loc))
        divided, order = (_row(w, name, i32, width) for name in ("divided", "order"))
        self.emit("TMOV", *self.tiles(divided, self.places))
        branch = Branch(self.any(unordered), [], [], loc)
        w.nodes.append(branch)
        with w.inside(branch.then):
            aside = w.elementwise.select(unordered, "1" if down else "-1", "0", f32, w.temp, loc)
            self.sort(self.filled(aside), divided)
            moved = _row(w, "moved", f32, width)
            self.gather(moved, keys, divided)
            self.emit("TMOV", *self.tiles(keys, moved))
        self.sort_divided(keys, divided, order)
        return order

    def by_halves(self, row: Value) -> Value:
        """The same for integers."""
        w, loc = self.w, self.loc
        upper = w.elementwise.scaled("TSHRS", row, _HALF, w.temp, loc)
        lower = w.elementwise.binary("SUB", row, w.elementwise.scaled("TSHLS", upper, _HALF, w.temp, loc), w.temp, loc)
        low, high = (self.filled(self.signed(half)) for half in (lower, upper))
        width = self.places.capacity[1]
        divided, order, moved = (
            _row(w, n, d, width) for n, d in (("divided", i32), ("order", i32), ("moved", f32))
        )  # fmt: skip
        self.sort(low, divided)
        self.gather(moved, high, divided)
        self.sort_divided(moved, divided, order)
        return order

    def signed(self, half: Value) -> Value:
        """Keys, the largest of which come first."""
        keys = self.w.elementwise.converted(half, f32, self.w.temp, self.loc)
        return keys if self.down else self.w.elementwise.scaled("TMULS", keys, "-1", self.w.temp, self.loc)

    def sort_divided(self, keys: Value, places: Value, out: Value) -> None:
        """Places in the order of their keys; equal ones keep theirs."""
        last = _row(self.w, "last", i32, self.places.capacity[1])
        self.sort(keys, last)
        self.gather(out, places, last)

    def any(self, mask: Value) -> str:
        """Whether an element of a row's mask is true, for the scalar unit."""
        w, loc = self.w, self.loc
        ones = w.elementwise.select(mask, "1", "0", f32, w.temp, loc)
        (tile,) = self.tiles(w.reduced("max", ones, {-1}, 1, None, w.temp, loc))
        name = w.names.fresh("unordered")
        w.nodes.append(Assignment("bool", name, f"{tile.name}.GetValue(0) > 0", loc, reads=tile))
        return name

    def filled(self, given: Value) -> Value:
        """Keys, and the lowest one up to whole runs."""
        keys = _row(self.w, "keys", f32, self.places.capacity[1])
        self.w.fill(keys, _LOWEST, self.loc)
        self.w.elementwise.laid_over(keys, given, self.loc)
        return keys

    def gather(self, out: Value, source: Value, places: Value) -> None:
        """out[i] = source[places[i]]"""
        scratch = self.w.temp(i32, "row", places.capacity, places.capacity)
        self.emit("TGATHER", *self.tiles(out, source, places, scratch))

    # -- runs -----------------------------------------------------------------------------------------------------

    def sort(self, keys: Value, out: Value) -> None:
        """The places, largest keys first."""
        width, places = keys.capacity[1], self.places
        pairs = _row(self.w, "pairs", f32, 2 * width)
        numbers = Value(places.name, u32, "row", places.capacity, places.valid, places.buffer)
        self.emit("TSORT32", *self.tiles(pairs, keys, numbers))
        runs = [_RUN] * (width // _RUN)
        while len(runs) > 1:
            pairs, runs = self.merged(pairs, runs)
        self.emit("TODD", *self.tiles(out, pairs))

    def merged(self, pairs: Value, runs: list[int]) -> tuple[Value, list[int]]:
        """Four sorted runs become one; all have one length, but for a shorter one at the end."""
        out = _row(self.w, "pairs", f32, pairs.capacity[1])
        length = runs[0]
        groups = runs.count(length) // 4
        at = 4 * groups * length
        if groups:
            self.emit("TMRGSORT", self.part(out, 0, at), self.part(pairs, 0, at), str(2 * length))
        rest = runs[4 * groups :]
        total = sum(rest)
        if len(rest) == 1:
            self.emit("TMOV", self.part(out, at, total), self.part(pairs, at, total))
        elif rest:
            lists = [self.part(pairs, at + sum(rest[:k]), n) for k, n in enumerate(rest)]
            scratch = _row(self.w, "scratch", f32, 2 * total)
            self.emit(f"TMRGSORT_{len(rest)}", self.part(out, at, total), *lists, *self.tiles(scratch))
        return out, [4 * length] * groups + [total] * bool(rest)

    def part(self, pairs: Value, start: int, count: int) -> Tile:
        """Some pairs of a row of them."""
        out = Tile(self.w.names.fresh("pairs"), f32, 1, 2 * count, (1, 2 * count), "row", pairs.buffer, 8 * start)
        self.w.declare(out, self.loc)
        return out
