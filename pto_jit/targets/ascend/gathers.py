# SPDX-License-Identifier: MIT
"""`pl.gather`: elements of a tile at the places that another tile says.

A tile lies row after row, so an element's place among all of them is its row times the length of a row on chip, and its
column; one of the two is the index.  `TGATHER` picks the elements of one row by their places: here all rows are one.
An index outside of the tile, which no core could report, is moved to the first or last element of its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import DType, f32, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Size, Span, Value, physical

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter

_ALONG: dict[Span, tuple[int, ...]] = {"full": (-1, -2), "row": (-1,), "column": (-2,), "one": ()}
_AT_ONCE = 4096
"""Elements that one instruction picks."""


def write_gather(w: VectorWriter, op: Op) -> None:
    """`gather`: in the shape of the index, along one of the last two axes; along others there is one element."""
    loc, typ = op.loc, op.args[0].type
    source, index = w.value(op.args[0]), w.value(op.args[1])
    assert isinstance(source, Value) and isinstance(index, Value) and isinstance(typ, TileType)
    axis = int(op.attr("axis")) % typ.rank - typ.rank  # type: ignore[call-overload]
    if source.is_mask or source.dtype.bits == 64:
        what = "truth values" if source.is_mask else str(source.dtype)
        raise unsupported(f"`pl.gather` of {what}", loc, "gather elements of up to 32 bits")
    if index.dtype != i32:
        index = w.elementwise.converted(index, i32, w.temp, loc)
    if axis < -2:
        for k in _ALONG[source.span] if source.span == index.span else ():
            w.agree(source.valid[k], index.valid[k], loc)
        w.elementwise.unary("TMOV", source, w.destination(op.results[0]), loc)
        return
    across = -3 - axis
    if all(across in _ALONG[v.span] and not v.free[across] for v in (source, index)):
        w.agree(source.valid[across], index.valid[across], loc)
    places = _places(w, source, index, axis, loc)
    if source.dtype.bits == 32:
        word = i32 if source.dtype.kind in "iu" else f32
        out = w.destination(op.results[0])(source.dtype, index.span, index.capacity, index.valid)
        _pick(w, _as(out, word), _as(source, word), places, loc)
        return
    wide = w.elementwise.converted(source, f32, w.temp, loc)  # which holds them all
    picked = w.temp(f32, index.span, index.capacity, index.valid)
    _pick(w, picked, wide, places, loc)
    w.elementwise.converted(picked, source.dtype, w.destination(op.results[0]), loc)


def _places(w: VectorWriter, source: Value, index: Value, axis: int, loc: Loc) -> Value:
    """The places of the elements among all that `source` has memory for; behind those that are valid they are 0."""
    places = w.temp(i32, index.span, index.capacity, index.valid)
    w.emit("TEXPANDS", w.tile(_flat(places), loc=loc), w.scalar("0", i32), loc=loc)  # also what is not valid

    def into(dtype: DType, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size], *_: Any) -> Value:
        return Value(places.name, i32, span, capacity, valid, places.buffer)

    extent = source.valid[axis]
    last = (extent if isinstance(extent, int) else source.capacity[axis]) - 1
    index = w.elementwise.scaled("TMINS", index, str(last), w.temp, loc)
    index = w.elementwise.scaled("TMAXS", index, "0", w.temp, loc)
    other, times = None, 1  # what is added to the index, and how much a step of the index is
    width = physical(i32 if source.dtype.bits == 32 else f32, source.span, source.capacity)[1]
    if source.span == "full":
        times = width if axis == -2 else 1
        other = _count(w, index, -1 if axis == -2 else -2, 1 if axis == -2 else width, loc)
    elif (source.span == "row") == (axis == -2):  # the index is along an axis of one element
        times = 0
        other = _count(w, index, -1 if axis == -2 else -2, 1, loc)
    if times != 1:
        index = w.elementwise.scaled("TMULS", index, str(times), w.temp, loc)
    if other is None:
        w.elementwise.laid_over(places, index, loc)
    else:
        w.elementwise.binary("ADD", index, other, into, loc)
    return places


def _count(w: VectorWriter, like: Value, axis: int, step: int, loc: Loc) -> Value | None:
    """0, step, 2 * step, ... along an axis of a value; None where it has one element along it."""
    if like.span == "one" or like.span == ("column" if axis == -1 else "row"):
        return None
    shape = (1, like.capacity[1]) if axis == -1 else (like.capacity[0], 1)
    out = w.temp(i32, "row" if axis == -1 else "column", shape, shape, (True, True))
    w.emit("TCI", w.tile(out, loc=loc), "(int32_t)0", loc=loc)
    return out if step == 1 else w.elementwise.scaled("TMULS", out, str(step), w.temp, loc)


def _pick(w: VectorWriter, out: Value, source: Value, places: Value, loc: Loc) -> None:
    """out[i] = source[places[i]], of all that there is memory for."""
    out, source, places = _flat(out), _flat(source), _flat(places)
    count = out.capacity[1]
    for start in range(0, count, _AT_ONCE):
        size = min(_AT_ONCE, count - start)
        scratch = w.temp(i32, "row", (1, size), (1, size))
        to, at = (Value(v.name, v.dtype, "row", (1, size), (1, size), v.buffer) for v in (out, places))
        w.emit("TGATHER", w.tile(to, loc=loc, offset=4 * start), w.tile(source, loc=loc),
               w.tile(at, loc=loc, offset=4 * start), w.tile(scratch, loc=loc), loc=loc)  # fmt: skip


def _flat(value: Value) -> Value:
    """All words of a value as one row."""
    rows, columns = physical(value.dtype, value.span, value.capacity)
    count = rows * columns
    return Value(value.name, value.dtype, "row", (1, count), (1, count), value.buffer)


def _as(value: Value, dtype: DType) -> Value:
    """The same words under another type."""
    return Value(value.name, dtype, value.span, value.capacity, value.valid, value.buffer, value.free)
