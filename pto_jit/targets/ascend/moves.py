# SPDX-License-Identifier: MIT
"""Tiles put together and taken apart: `concat`, slices, and reshapes that move elements.

What begins at a whole block of 32 bytes is copied on chip: rows among rows, and pieces of one row.  Anything else goes
by way of global memory (in practice L2), where transfers put elements to any place: a piece of memory for each core,
which the host takes for the launch, a *relay*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.targets.ascend.form import RELAY, Parameter, Require
from pto_jit.targets.ascend.machine import element_type, padded
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.sizes import Tensor, product, text, total
from pto_jit.targets.ascend.values import Expr, Size, Span, Value, physical, span_of

if TYPE_CHECKING:
    from pto_jit.targets.ascend.transfers import TransferWriter
    from pto_jit.targets.ascend.vector import VectorWriter

_CONSTANT = "give the tiles constant extents that divide those of the tensors they are loaded from"


def write_concat(w: VectorWriter, op: Op) -> None:
    """`concat`: tiles one after the other."""
    loc, typ = op.loc, op.results[0].type
    assert isinstance(typ, TileType)
    parts = [_numbers(w.value(a), op) for a in op.args]
    axis = int(op.attr("axis")) % typ.rank - typ.rank  # type: ignore[call-overload]
    if axis < -2:
        raise unsupported("`concat` along another axis than the last two", loc, "put them together along one of these")
    span, extents = _declared(typ, loc)
    counts = [_whole(p, loc)[axis] for p in parts]
    places = [sum(counts[:k]) for k in range(len(counts))]
    target = w.destination(op.results[0])
    room = _room(extents)
    stride = physical(typ.dtype, span, room)[1]  # elements of a row on chip
    if axis == -2 and span == "full" and all(p.span in ("row", "full") for p in parts):
        out = target(typ.dtype, span, room, extents)
        for part, place, count in zip(parts, places, counts, strict=True):
            _copy(w, _rows(part, count), 0, _rows(out, count), place * stride * typ.dtype.bytes, loc)
        return
    if span == "row" and all(place * typ.dtype.bytes % 32 == 0 for place in places):
        out = target(typ.dtype, span, room, extents)
        for part, place, count in zip(parts, places, counts, strict=True):
            _copy(w, part, 0, Value(out.name, typ.dtype, "row", (1, count), (1, count), out.buffer),
                  place * typ.dtype.bytes, loc)  # fmt: skip
        return
    memory = relay(w, op.results[0].name, typ.dtype, extents, loc)
    for part, place in zip(parts, places, strict=True):
        at = place * (extents[1] if axis == -2 else 1)
        w.transfer(part, memory, _pointer(memory, at), extents[1], loc, store=True)
    w.transfer(target(typ.dtype, span, room, extents), memory, memory.pointer.text, extents[1], loc, store=False)


def write_slice(w: VectorWriter, op: Op) -> None:
    """`tile_slice`: a part of a tile."""
    loc, typ, old = op.loc, op.results[0].type, op.args[0].type
    assert isinstance(typ, TileType) and isinstance(old, TileType)
    source = _numbers(w.value(op.args[0]), op)
    span, extents = _declared(typ, loc)
    if old.rank != 2 or typ.rank > 2:
        raise unsupported("a slice of a tile that has not two axes", loc, "reshape it to two axes")
    starts = [w.size(a) for a in op.args[1:3]]
    lengths = [w.size(a) for a in op.args[3:5]]
    limits = _whole(source, loc)
    for start, length, limit in zip(starts, lengths, limits, strict=True):
        _check_inside(w, start, length, limit, loc)
    assert all(isinstance(n, int) for n in lengths)
    part: Span = span_of(*lengths)  # type: ignore[arg-type]
    rows, columns = starts
    size, stride = typ.dtype.bytes, physical(source.dtype, source.span, source.capacity)[1]
    room = _room(extents)
    target = w.destination(op.results[0])
    if part == span and isinstance(rows, int) and isinstance(columns, int):
        alone = span == "row" and columns * size % 32 == 0
        if alone or (span == "full" and columns == 0 and lengths[1] == limits[1]):
            out = target(typ.dtype, span, room, extents)
            kept = _rows(out, extents[0]) if span == "full" else out
            shown = Value(source.name, source.dtype, span, kept.capacity, extents, source.buffer)
            _copy(w, shown, (rows * stride + columns) * size, kept, 0, loc)
            return
    memory = relay(w, op.results[0].name, typ.dtype, limits, loc)
    w.transfer(source, memory, memory.pointer.text, limits[1], loc, store=True)
    at = total(product(rows, limits[1]), columns)
    out = target(typ.dtype, span, room, extents)
    shown = Value(out.name, out.dtype, part, _turned(room, part, span), tuple(lengths), out.buffer)  # type: ignore[arg-type]
    w.transfer(shown, memory, _pointer(memory, at), limits[1], loc, store=False)


def write_reshape(w: VectorWriter, op: Op) -> None:
    """A reshape that moves elements to other rows."""
    loc, typ = op.loc, op.results[0].type
    assert isinstance(typ, TileType)
    source = _numbers(w.value(op.args[0]), op)
    span, extents = _declared(typ, loc)
    given = _whole(source, loc)
    if given[0] * given[1] != extents[0] * extents[1]:
        raise unsupported("a reshape of a tile whose valid extents are not all of it", loc, _CONSTANT)
    memory = relay(w, op.results[0].name, typ.dtype, extents, loc)
    w.transfer(source, memory, memory.pointer.text, given[1], loc, store=True)
    out = w.destination(op.results[0])(typ.dtype, span, _room(extents), extents)
    w.transfer(out, memory, memory.pointer.text, extents[1], loc, store=False)


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


def _whole(value: Value, loc: Loc) -> tuple[int, int]:
    """Valid extents, which have to be constants."""
    rows, columns = value.valid
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise unsupported("a tile cut at a border that is put together with others", loc, _CONSTANT)
    return rows, columns


def _rows(value: Value, count: int) -> Value:
    """The first rows of a tile."""
    return Value(value.name, value.dtype, "full", (count, value.capacity[1]), (count, value.valid[1]), value.buffer)


def _turned(room: tuple[int, int], part: Span, span: Span) -> tuple[int, int]:
    """Memory of a line as that of another line: a slice whose axis is dropped."""
    return _room((room[1], 1)) if part == "column" and span == "row" else room


def _copy(w: VectorWriter, source: Value, before: int, out: Value, after: int, loc: Loc) -> None:
    """On chip, from so many bytes after the beginning of a value to so many after that of another one."""
    shown = Value(source.name, source.dtype, out.span, out.capacity, out.valid, source.buffer)
    w.emit("TMOV", w.tile(out, loc=loc, offset=after), w.tile(shown, loc=loc, offset=before), loc=loc)


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


