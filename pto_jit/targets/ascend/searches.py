# SPDX-License-Identifier: MIT
"""Where the largest or smallest element is, and whether any or all elements of a mask are true.

Places are found with what every row reduction has: the extreme of each line, a comparison of all elements with it, and
the smallest index among those that are equal.  A NaN is found before all others, whatever the core's maximum makes of
it: its index counts from -2**24 on, and the bits above 2**24 are shifted out at the end.

Truth values are reduced as the numbers 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import f32, i16, i32
from pto_jit.dtypes import u32 as _u32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import reduced_axes
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_BITS = 24
_FAR = str(2**30)
_ALONG = {"full": {-1, -2}, "row": {-1}, "column": {-2}, "one": set[int]()}


def write_index(w: VectorWriter, op: Op) -> None:
    """`argmax` and `argmin`: i32 indices along an axis, or in the whole tile as it was declared."""
    source, loc = w.value(op.args[0]), op.loc
    typ = op.args[0].type
    assert isinstance(source, Value) and isinstance(typ, TileType)
    name = op.op[3:]
    axes = op.attr("axes")
    along = _ALONG[source.span]
    searched = along if axes is None else along & {a - typ.rank for a in axes}  # type: ignore[union-attr]
    if not searched:  # one element
        zeros = w.temp(i32, source.span, source.capacity, source.valid)
        w.fill(zeros, "0", loc)
        give(w, op, zeros)
        return
    if source.dtype not in (f32, i32):
        source = w.elementwise.converted(source, f32, w.temp, loc)
    if len(searched) == 1:
        (axis,) = searched
        places, _ = _along(w, name, source, axis, loc)
    else:
        places = _in_all(w, name, source, typ, loc)
    if source.dtype == f32:
        places = _without_mark(w, places, loc)
    give(w, op, places)


def largest(w: VectorWriter, source: Value, loc: Loc) -> tuple[Value, Value]:
    """The largest element of each row, the first of equal ones and NaNs before all others, and its place.

    It is what is left when all others are the lowest number: the extreme itself may be the zero of the other sign.
    """
    chosen, _ = _along(w, "max", source, -1, loc)
    floats = source.dtype == f32
    places = _without_mark(w, chosen, loc) if floats else chosen
    here = w.elementwise.compare("EQ", _counted(w, source, -1, "0", loc), places, to=w.temp, loc=loc)
    lowest = "-__builtin_inff()" if floats else "(-2147483647 - 1)"
    left = w.elementwise.select(here, source, lowest, source.dtype, w.temp, loc)
    out = w.reduced("max", left, {-1}, 2, None, w.temp, loc)
    if floats:
        unordered = w.elementwise.compare("LT", chosen, "0", to=w.temp, loc=loc)
        out = w.elementwise.select(unordered, '__builtin_nanf("")', out, f32, w.temp, loc)
    return out, places


def write_truth(w: VectorWriter, op: Op) -> None:
    """`any` and `all` of a mask."""
    source = w.value(op.args[0])
    typ = op.args[0].type
    assert isinstance(source, Value) and isinstance(typ, TileType)
    ones = w.elementwise.select(source, "1", "0", f32, w.temp, op.loc)
    axes = {a - typ.rank for a in reduced_axes(op)}
    name = "max" if op.op == "any" else "min"
    out = w.reduced(name, ones, axes, typ.rank, None, w.temp, op.loc)
    give(w, op, w.elementwise.compare("NE", out, "0", to=w.temp, loc=op.loc))


def give(w: VectorWriter, op: Op, value: Value) -> None:
    """A result that lies in memory of its own; a column whose axis is dropped is a row."""
    var = op.results[0]
    span, capacity, valid = w.result_shape(var, value.span, value.capacity, value.valid)
    shown = Value(value.name, value.dtype, span, capacity, valid, value.buffer)
    if var.name not in w.facts.mutable:
        w.hold(var, shown)
        return
    out = w.destination(var)(value.dtype, span, capacity, valid)
    words = i16 if value.is_mask else None
    w.emit("TMOV", w.tile(out, dtype=words, loc=op.loc), w.tile(shown, dtype=words, loc=op.loc), loc=op.loc)


def _along(w: VectorWriter, name: str, source: Value, axis: int, loc: Loc) -> tuple[Value, Value]:
    """Indices (those of NaNs marked) and extremes of the lines along an axis."""
    best = w.reduced(name, source, {axis}, 2, None, w.temp, loc)
    same = w.elementwise.compare("EQ", source, best, to=w.temp, loc=loc)
    chosen = w.elementwise.select(same, _counted(w, source, axis, "0", loc), _FAR, i32, w.temp, loc)
    if source.dtype == f32:
        unordered = w.elementwise.compare("NE", source, source, to=w.temp, loc=loc)
        marked = _counted(w, source, axis, str(-(2**_BITS)), loc)
        chosen = w.elementwise.select(unordered, marked, chosen, i32, w.temp, loc)
    return w.reduced("min", chosen, {axis}, 2, None, w.temp, loc), best


def _in_all(w: VectorWriter, name: str, source: Value, typ: TileType, loc: Loc) -> Value:
    """Indices in the flattened tile: the first row that has the extreme, and the place in it."""
    width = typ.shape[-1]
    if width is None:
        raise unsupported(f"`arg{name}` of a whole tile of run-time extents", loc, "search along an axis")
    inside, best = _along(w, name, source, -1, loc)
    rows = _counted(w, inside, -2, "0", loc)
    before = w.elementwise.scaled("TMULS", rows, str(width), w.temp, loc)
    places = w.elementwise.binary("ADD", inside, before, w.temp, loc)
    top = w.reduced(name, best, {-2}, 2, None, w.temp, loc)
    same = w.elementwise.compare("EQ", best, top, to=w.temp, loc=loc)
    chosen = w.elementwise.select(same, places, _FAR, i32, w.temp, loc)
    if source.dtype == f32:
        marked = w.elementwise.compare("LT", places, "0", to=w.temp, loc=loc)
        chosen = w.elementwise.select(marked, places, chosen, i32, w.temp, loc)
    return w.reduced("min", chosen, {-2}, 2, None, w.temp, loc)


def _counted(w: VectorWriter, like: Value, axis: int, start: str, loc: Loc) -> Value:
    """start, start + 1, ... along an axis of a tile."""
    shape = (1, like.capacity[1]) if axis == -1 else (like.capacity[0], 1)
    out = w.temp(i32, "row" if axis == -1 else "column", shape, shape, (True, True))
    w.emit("TCI", w.tile(out, loc=loc), f"(int32_t){start}", loc=loc)
    return out


def _without_mark(w: VectorWriter, places: Value, loc: Loc) -> Value:
    """The lower bits of indices."""
    up = w.elementwise.scaled("TSHLS", places, str(32 - _BITS), w.temp, loc)
    out = w.temp(i32, places.span, places.capacity, places.valid)
    as_words = [Value(v.name, _u32, v.span, v.capacity, v.valid, v.buffer) for v in (out, up)]
    w.emit("TSHRS", *(w.tile(v, loc=loc) for v in as_words), str(32 - _BITS), loc=loc)
    return out
