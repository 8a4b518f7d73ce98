# SPDX-License-Identifier: MIT
"""Tiles put together and taken apart: `concat`, slices, and reshapes that move elements.

What begins at a whole block of 32 bytes is copied on chip: rows among rows, pieces of one row, and slices of several.
Anything else goes by way of global memory (in practice L2), where transfers put elements to any place: a piece of
memory for each core, which the host takes for the launch, a *relay*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op, Operand
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend.form import RELAY, Parameter, Require
from pto_jit.targets.ascend.machine import element_type, padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import Tensor, in_words, least, product, text, total
from pto_jit.targets.ascend.values import Expr, Size, Span, Value, physical, row_axis, span_of

if TYPE_CHECKING:
    from pto_jit.targets.ascend.transfers import TransferWriter
    from pto_jit.targets.ascend.vector import VectorWriter

_CONSTANT = "give the tiles constant extents that divide those of the tensors they are loaded from"
SLICED = "slices begin inside of tiles"


def write_concat(w: VectorWriter, op: Op) -> None:
    """`concat`: tiles one after the other, of which all but the last are complete along the axis."""
    loc, typ = op.loc, op.results[0].type
    assert isinstance(typ, TileType)
    parts = [_numbers(w.value(a), op) for a in op.args]
    axis = int(op.attr("axis")) % typ.rank - typ.rank  # type: ignore[call-overload]
    if axis < -2:
        raise unsupported("`concat` along another axis than the last two", loc, "put them together along one of these")
    across = -3 - axis
    span, extents = _declared(typ, loc)
    sides = [_sides(a, loc) for a in op.args]
    counts = [side[axis] for side in sides]
    places = [sum(counts[:k]) for k in range(len(counts))]
    for part, count in zip(parts[:-1], counts, strict=False):
        w.agree(part.valid[axis], count, loc)
    bound = [part for part in parts if not part.free[across]]
    for part in bound[1:]:
        w.agree(bound[0].valid[across], part.valid[across], loc)
    ends: list[Size] = list(extents)
    ends[axis] = total(places[-1], parts[-1].valid[axis])
    ends[across] = bound[0].valid[across] if bound else extents[across]
    given = ends[0], ends[1]
    target = w.destination(op.results[0])
    room = _room(extents)
    stride = physical(typ.dtype, span, room)[1]  # elements of a row on chip
    rows = axis == -2 and span == "full" and all(p.span in ("row", "full") for p in parts)
    if rows or (span == "row" and all(place * typ.dtype.bytes % 32 == 0 for place in places)):
        out = target(typ.dtype, span, room, given)
        for part, place, count in zip(parts, places, counts, strict=True):
            valid = (part.valid[0], given[1]) if rows else (1, part.valid[1])
            capacity = (count, out.capacity[1]) if rows else (1, count)
            kept = Value(out.name, typ.dtype, span, capacity, valid, out.buffer)
            _copy(w, part, 0, kept, place * (stride if rows else 1) * typ.dtype.bytes, loc)
        return
    memory = relay(w, op.results[0].name, typ.dtype, extents, loc)
    for part, place in zip(parts, places, strict=True):
        at = place * (extents[1] if axis == -2 else 1)
        w.transfer(part, memory, _pointer(memory, at), extents[1], loc, "TSTORE")
    w.transfer(target(typ.dtype, span, room, given), memory, memory.pointer.text, extents[1], loc, "TLOAD")


def write_slice(w: VectorWriter, op: Op) -> None:
    """`tile_slice`: a part of a tile, which ends where the tile does."""
    loc, typ, old = op.loc, op.results[0].type, op.args[0].type
    assert isinstance(typ, TileType) and isinstance(old, TileType)
    source = _numbers(w.value(op.args[0]), op)
    span, extents = _declared(typ, loc)
    if old.rank != 2 or typ.rank > 2:
        raise unsupported("a slice of a tile that has not two axes", loc, "reshape it to two axes")
    starts = [w.size(a) for a in op.args[1:3]]
    lengths = [w.size(a) for a in op.args[3:5]]
    limits = _sides(op.args[0], loc)
    ends: list[Size] = []
    for start, length, limit, valid in zip(starts, lengths, limits, source.valid, strict=True):
        if start == 0 and length == limit:
            ends.append(valid)
        elif isinstance(valid, int):
            _check_inside(w, start, length, valid, loc)
            ends.append(length)
        else:  # which may end before the slice does
            _check_inside(w, start, length, limit, loc)
            w.make_sure(start, valid, loc, SLICED)
            ends.append(1 if length == 1 else least(length, total(valid, start, "-")))
    assert all(isinstance(n, int) for n in lengths)
    part: Span = span_of(*lengths)  # type: ignore[arg-type]
    rows, columns = starts
    size, stride = typ.dtype.bytes, physical(source.dtype, source.span, source.capacity)[1]
    room = _room(extents)
    target = w.destination(op.results[0])
    given = (1, ends[0]) if part == "column" and span == "row" else (ends[0], ends[1])
    if part == span and isinstance(rows, int) and isinstance(columns, int):
        alone = span == "row" and columns * size % 32 == 0
        if alone or (span == "full" and columns == 0 and lengths[1] == limits[1]):
            out = target(typ.dtype, span, room, given)
            capacity = (extents[0], out.capacity[1]) if span == "full" else out.capacity
            kept, shown = (Value(v.name, v.dtype, span, capacity, given, v.buffer) for v in (out, source))
            _copy(w, shown, (rows * stride + columns) * size, kept, 0, loc)
            return
        if span == "full" and columns * size % 32 == 0 and size > 1 and extents[0] > 1:
            out = target(typ.dtype, span, room, given)
            _copy_columns(w, source, (rows * stride + columns) * size, out, extents, loc)
            return
    memory = relay(w, op.results[0].name, typ.dtype, limits, loc)
    w.transfer(source, memory, memory.pointer.text, limits[1], loc, "TSTORE")
    at = total(product(rows, limits[1]), columns)
    out = target(typ.dtype, span, room, given)
    shown = Value(out.name, out.dtype, part, _turned(room, part, span), (ends[0], ends[1]), out.buffer)
    w.transfer(shown, memory, _pointer(memory, at), limits[1], loc, "TLOAD")


def write_reshape(w: VectorWriter, op: Op) -> None:
    """A reshape that moves elements to other rows."""
    loc, typ = op.loc, op.results[0].type
    assert isinstance(typ, TileType)
    source = _numbers(w.value(op.args[0]), op)
    span, extents = _declared(typ, loc)
    given = _sides(op.args[0], loc)
    for valid, extent in zip(source.valid, given, strict=True):
        w.agree(valid, extent, loc)
    memory = relay(w, op.results[0].name, typ.dtype, extents, loc)
    w.transfer(source, memory, memory.pointer.text, given[1], loc, "TSTORE")
    out = w.destination(op.results[0])(typ.dtype, span, _room(extents), extents)
    w.transfer(out, memory, memory.pointer.text, extents[1], loc, "TLOAD")


def _numbers(value: Value | str, op: Op) -> Value:
    assert isinstance(value, Value)
    if value.is_mask:
        raise unsupported(f"`{op.op}` of truth values", op.loc, "choose numbers with pl.where first")
    return value


def _declared(typ: TileType, loc: Loc) -> tuple[Span, tuple[int, int]]:
    """Span and extents of a tile of constant extents."""
    shape = [1, *typ.shape] if typ.rank == 1 else list(typ.shape)
    if any(e is None for e in shape) or any(e != 1 for e in shape[:-2]):
        raise unsupported("a tile of run-time extents, or of more than two axes, that is put together", loc,
                          "give it constant extents and two axes")  # fmt: skip
    rows, columns = int(shape[-2] or 0), int(shape[-1] or 0)
    return ("row" if typ.rank == 1 else span_of(rows, columns)), (rows, columns)


def _room(extents: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns to have memory for: as many rows as the column that a row reduction leaves."""
    rows, columns = extents
    return (padded(rows, 4) if rows > 1 else rows), columns


def _sides(tile: Operand, loc: Loc) -> tuple[int, int]:
    """The declared rows and columns of a tile, which are constants."""
    typ = tile.type
    assert isinstance(typ, TileType)
    rows = typ.shape[row_axis(typ.shape) or 0] if typ.rank > 1 else 1
    columns = typ.shape[typ.rank - 1]
    if rows is None or columns is None:
        raise unsupported("a tile of run-time extents that is put together with others", loc, _CONSTANT)
    return rows, columns


def _turned(room: tuple[int, int], part: Span, span: Span) -> tuple[int, int]:
    """Memory of a line as that of another line: a slice whose axis is dropped."""
    return _room((room[1], 1)) if part == "column" and span == "row" else room


def _copy(w: VectorWriter, source: Value, before: int, out: Value, after: int, loc: Loc) -> None:
    """On chip, from so many bytes after the beginning of a value to so many after that of another one."""
    shown = Value(source.name, source.dtype, out.span, out.capacity, out.valid, source.buffer)
    w.emit("TMOV", w.tile(out, loc=loc, offset=after), w.tile(shown, loc=loc, offset=before), loc=loc)


def _copy_columns(
    w: VectorWriter, source: Value, before: int, out: Value, extents: tuple[int, int], loc: Loc
) -> None:
    """Some columns of some rows, on chip: a tile whose rows are as far apart as those of the source, and the last row,
    behind which there may be no memory for as much."""
    stride = physical(source.dtype, "full", source.capacity)[1]
    rows, width = extents
    before_last = least(out.valid[0], rows - 1)
    some = Value(source.name, source.dtype, "full", (rows - 1, stride), (before_last, out.valid[1]), source.buffer)
    last = Value(source.name, source.dtype, "row", (1, width), (1, out.valid[1]), source.buffer)
    mine = physical(out.dtype, "full", out.capacity)[1]
    kept = Value(out.name, out.dtype, "full", (rows - 1, mine), some.valid, out.buffer)
    kept_last = Value(out.name, out.dtype, "row", (1, width), last.valid, out.buffer)
    size = source.dtype.bytes
    for to, of, here, there in ((kept, some, 0, before), (
        kept_last, last, (rows - 1) * mine * size, before + (rows - 1) * stride * size)):  # fmt: skip
        shown, given = (in_words(v, v.valid) for v in (to, of))
        words = w.tile(given, loc=loc, offset=there)
        w.emit("TOR", w.tile(shown, loc=loc, offset=here), words, words, loc=loc)


def _check_inside(w: VectorWriter, start: Size, length: Size, limit: int, loc: Loc) -> None:
    if isinstance(start, int) and isinstance(length, int):
        if start + length > limit:
            raise unsupported(f"a slice up to {start + length} of {limit} valid elements", loc, _CONSTANT)
        return
    if not isinstance(length, int):
        raise unsupported("a slice of run-time length", loc, "give it a constant length")
    w.nodes.append(Require(f"{text(start)} >= 0 && {text(total(start, length))} <= {limit}", loc))


def relay(w: TransferWriter, name: str, dtype: DType, extents: tuple[int, int], loc: Loc) -> Tensor:
    """Memory of this core for so many elements."""
    if w.in_group:
        raise unsupported("elements that change places in a kernel of both kinds of cores", loc,
                          "use tiles whose rows are multiples of 32 bytes, or do it in a loop of its own")  # fmt: skip
    own = w.names.fresh(f"{name}_relay")
    typ = element_type(dtype)
    assert typ is not None
    count = padded(extents[0] * extents[1], dtype.bytes)
    w.parameters.append(Parameter(own, typ, True, ("slot", count * dtype.bytes)))
    w.scopes[0][own] = own
    here = Expr(f"{own} + get_block_idx() * {count}", frozenset([own]))
    return Tensor(RELAY + own, dtype, here, extents, (extents[1], 1))


def _pointer(memory: Tensor, at: Size) -> str:
    return memory.pointer.text if at == 0 else text(total(memory.pointer, at))


