# SPDX-License-Identifier: MIT
"""Rows and elements of tensors at places that a tile has: `x[index]`, `x[index, :]`, `pl.scatter`.

Places are read by the scalar unit, one after the other, and each row, or element, is a transfer of its own.  An element
is a row of a tile, in a block of 32 bytes, as elements are that lie apart (`strided`)::

    for (int64_t place = 0; place < index_columns; ++place) {
      const int64_t at = index.GetValue(place);
      if (!(at >= 0 && at < table_d0)) trap();
      TLOAD(row, table_here);  // of table + at * table_d1, at 0x0 + place * 0x200
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pto_jit.dtypes import f32, i32, i64, u8
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.targets.ascend.form import Assignment, Loop, Require, Tile
from pto_jit.targets.ascend.machine import MOST_ROWS
from pto_jit.targets.ascend.refusals import too_large, unsupported
from pto_jit.targets.ascend.single import REPEATED
from pto_jit.targets.ascend.sizes import Tensor, product, text, total
from pto_jit.targets.ascend.values import Expr, Size, Value, lying, physical, span_of

if TYPE_CHECKING:
    from pto_jit.targets.ascend.vector import VectorWriter


def write_take(w: VectorWriter, op: Op) -> None:
    """Rows of a tensor of two axes, or elements of one of one axis, at the places of a line."""
    tensor, loc, result = w.tensor(op.args[0]), op.loc, op.results[0].type
    index, offsets = w.value(op.args[1]), [w.size(a) for a in op.args[2:]] or [0] * len(tensor.extents)
    rank = len(tensor.extents)
    assert isinstance(index, Value) and isinstance(result, TileType)
    if w.in_group or rank > 2 or int(op.attr("axis")) != 0 or index.span == "full":  # type: ignore[call-overload]
        raise unsupported("`x[index]` like this", loc, "load one row at a time, in a loop: `pl.load(x[places[i], :])`")
    tensor = _moved_on(tensor, offsets)
    w.checked(u8 if tensor.dtype.kind == "b" else tensor.dtype, loc)
    count, valid = lying(index.span, index.capacity)[1], _count(index)
    if rank == 1:
        apart = _apart(w, tensor, count, valid, loc)
        with _places(w, index, tensor.extents[0], loc) as (place, at):
            _transfer(w, tensor, apart, [at], (place, 32), loc, store=False)
        line = _gathered(w, apart, valid, loc)
        out = w.destination(op.results[0])(line.dtype, index.span, index.capacity, index.valid)
        shown = Value(line.name, line.dtype, index.span, index.capacity, index.valid, line.buffer)
        w.emit("TMOV", w.tile(out, loc=loc), w.tile(shown, loc=loc), loc=loc)
        return
    width, columns = tensor.extents[1], _most(w, op.args[0], loc)
    if columns is None or result.rank != 2 or tensor.dtype.kind == "b" or tensor.strides[1] != 1:
        what = "rows of truth values, of computed extents, or whose elements lie apart, at the places of a tile"
        raise unsupported(what, loc, "load one row at a time, in a loop: `pl.load(x[places[i], :])`")
    if count > MOST_ROWS:
        raise too_large(f"a tile of more than {MOST_ROWS} rows", loc, "use smaller tiles")
    span = span_of(count if result.shape[0] != 1 else 1, columns)
    out = w.destination(op.results[0])(tensor.dtype, span, (count, columns), (valid, width))
    pitch = physical(tensor.dtype, "full", (count, columns))[1] * tensor.dtype.bytes
    if span in ("column", "one"):  # rows of one element lie side by side
        apart = _apart(w, tensor, count, valid, loc)
        with _places(w, index, tensor.extents[0], loc) as (place, at):
            _transfer(w, tensor, apart, [at, 0], (place, 32), loc, store=False)
        line = _gathered(w, apart, valid, loc)
        shown = Value(line.name, line.dtype, span, (count, 1), (valid, 1), line.buffer)
        w.emit("TMOV", w.tile(out, loc=loc), w.tile(shown, loc=loc), loc=loc)
        return
    with _places(w, index, tensor.extents[0], loc) as (place, at):
        _transfer(w, tensor, out, [at, 0], (place, pitch), loc, store=False)


def write_put(w: VectorWriter, op: Op) -> None:
    """`pl.scatter`: elements of a line, or of each row of a tile, to places along one axis, in order."""
    value, index, loc = w.value(op.args[0]), w.value(op.args[1]), op.loc
    tensor, axis = w.tensor(op.args[2]), int(op.attr("axis"))  # type: ignore[call-overload]
    assert isinstance(value, Value) and isinstance(index, Value)
    rank = len(tensor.extents)
    if w.in_group or rank > 2 or value.is_mask or value.dtype.name not in REPEATED:
        hint = "scatter tiles of up to two axes, of f32, i32, f16 or i16, or store one element at a time"
        raise unsupported("`pl.scatter` like this", loc, hint)
    span, capacity, valid, free = w.elementwise.joint([value, index], loc)
    if index.span != span:
        index = w.elementwise.converted(index, i32, w.temp, loc)
    wide = (w.elementwise.broadcast(v, span, capacity, valid, free, w.temp, loc) for v in (value, index))
    value, index = (Value(v.name, v.dtype, span, v.capacity, valid, v.buffer) for v in wide)
    columns = valid[0] if span == "column" else valid[1]
    if rank == 2:
        _fits(w, (valid[0], valid[1])[1 - axis], tensor.extents[1 - axis], loc)
    length = lying(span, value.capacity)[1]
    if length > MOST_ROWS:
        what = f"a tile of more than {MOST_ROWS} elements in a row, which are scattered"
        raise too_large(what, loc, "use smaller tiles")
    if span == "full":
        rows = w.named(valid[0], f"{tensor.root}_rows", loc)
        with _counted(w, "row", rows, loc) as row:
            _scatter_line(w, (value, index), tensor, axis, row, columns, loc)
    else:
        _scatter_line(w, (value, index), tensor, axis, 0, columns, loc)


def _scatter_line(
    w: VectorWriter, pair: tuple[Value, Value], tensor: Tensor, axis: int, row: Size, count: Size, loc: Loc
) -> None:
    """The elements of one row of a tile, or of a line."""
    value, index = pair
    length = lying(value.span, value.capacity)[1]
    wide = w.temp(value.dtype, "full", (length, 32 // value.dtype.bytes), (count, 1))
    pitch = physical(value.dtype, value.span, value.capacity)[1]
    moves = (row.text, pitch * value.dtype.bytes) if isinstance(row, Expr) else None
    tall = -(-length * value.dtype.bytes // 32) * 32 // value.dtype.bytes
    height = w.named(count, f"{tensor.root}_columns", loc)
    column = Tile(w.names.fresh(value.name), value.dtype, tall, 1, (height, 1), "column", value.buffer, moves=moves)
    w.declare(column, loc)
    w.emit("TROWEXPAND", w.tile(wide, loc=loc), column, loc=loc)
    first = product(row, physical(index.dtype, index.span, index.capacity)[1])
    with _places(w, index, tensor.extents[axis], loc, first, count) as (place, at):
        other: Size = place if value.span in ("row", "full") and axis == 0 else row
        if value.span == "column" and axis == 1:
            other = place
        places = [at] if len(tensor.extents) == 1 else [at, other] if axis == 0 else [other, at]
        _transfer(w, tensor, wide, places, (place, 32), loc, store=True)


# -- the parts ----------------------------------------------------------------------------------------------------


def _most(w: VectorWriter, tensor: Operand, loc: Loc) -> int | None:
    """How long the rows of a tensor may be; None where there is no bound."""
    assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
    if tensor.type.shape[-1] is not None:
        return tensor.type.shape[-1]
    extent = w.tensor(tensor).extents[-1]
    if isinstance(extent, Expr) and extent.text in {p.name for p in w.parameters}:
        w.limited[extent.text] = w.sizes[extent.text]
        return w.limited[extent.text]
    view = w.defined.get(tensor.name)
    if view is None or view.op != "view" or view.args[0].type.rank - 1 in (view.attr("drop") or ()):  # type: ignore
        return None
    return w.bound(view.args[-1], loc)


@contextmanager
def _counted(w: VectorWriter, wish: str, count: Size | str, loc: Loc) -> Iterator[Expr]:
    """A loop of the kernel's own."""
    loop = Loop(w.names.fresh(wish), "0", str(count) if not isinstance(count, Expr) else count.text, "1", [], loc=loc)
    w.nodes.append(loop)
    w.loops.append(loop)
    with w.inside(loop.body):
        w.scopes[-1][loop.var] = loop.var
        yield Expr(loop.var, frozenset([loop.var]))
    w.loops.pop()


@contextmanager
def _places(
    w: VectorWriter, index: Value, extent: Size, loc: Loc, first: Size = 0, count: Size | None = None
) -> Iterator[tuple[Expr, Expr]]:
    """A loop over the places in a line, from one on: which one it is, and the place, which lies inside an extent."""
    if index.dtype not in (i32, i64):
        index = w.elementwise.converted(index, i32, w.temp, loc)
    tile = w.tile(index, loc=loc)
    number = w.named(_count(index) if count is None else count, f"{index.name}_count", loc)
    with _counted(w, "place", number, loc) as place:
        at = w.names.fresh("at")
        read = f"{tile.name}.GetValue({text(total(first, place))})"
        w.nodes.append(Assignment("int64_t", at, read, loc, reads=tile))
        w.scopes[-1][at] = at
        w.nodes.append(Require(f"{at} >= 0 && {at} < {text(extent)}", loc))
        yield place, Expr(at, frozenset([at]))


def _transfer(
    w: VectorWriter, tensor: Tensor, value: Value, places: Sequence[Size], moves: tuple[Expr, int], loc: Loc, *,
    store: bool,
) -> None:  # fmt: skip
    """Between a row of a tile, which moves, and what is at a place."""
    columns = physical(value.dtype, "full", value.capacity)[1]
    width = w.named(value.valid[1], f"{value.name}_columns", loc)
    row = Tile(w.names.fresh(value.name), value.dtype, 1, columns, (1, width), "row", value.buffer,
               moves=(moves[0].text, moves[1]))  # fmt: skip
    w.declare(row, loc)
    at: Size = 0
    for place, stride in zip(places, tensor.strides, strict=True):
        at = total(at, product(place, stride))
    pointer = text(total(tensor.pointer, at))
    here = w.rectangle(tensor, f"{tensor.root}_here", pointer, (1, width), value.capacity[1], loc)
    w.emit("TSTORE", here, row, loc=loc) if store else w.emit("TLOAD", row, here, loc=loc)


def _apart(w: VectorWriter, tensor: Tensor, count: int, valid: Size, loc: Loc) -> Value:
    """A tile with a block of 32 bytes for each element."""
    if tensor.dtype.kind == "b":
        raise unsupported("elements of truth values at the places of a tile", loc, "use numbers")
    if count > MOST_ROWS:
        raise too_large(f"a tile of more than {MOST_ROWS} elements, which lie apart", loc, "use smaller tiles")
    return w.temp(tensor.dtype, "full", (count, 32 // tensor.dtype.bytes), (valid, 1))


def _gathered(w: VectorWriter, apart: Value, valid: Size, loc: Loc) -> Value:
    """The elements of a tile that lie in a block each, as a line."""
    reduced = apart.dtype if apart.dtype in (f32, i32) else f32
    wide = w.elementwise.converted(apart, reduced, w.temp, loc)
    column = w.temp(reduced, "column", (apart.capacity[0], 1), (valid, 1))
    scratch = w.temp(reduced, "full", wide.capacity, wide.valid)
    w.emit("TROWMAX", w.tile(column, "column", loc=loc), w.tile(wide, loc=loc), w.tile(scratch, loc=loc), loc=loc)
    return w.elementwise.converted(column, apart.dtype, w.temp, loc)


def _moved_on(tensor: Tensor, offsets: Sequence[Size]) -> Tensor:
    """The part of a tensor behind some offsets."""
    at: Size = tensor.pointer
    for offset, stride in zip(offsets, tensor.strides, strict=True):
        at = total(at, product(offset, stride))
    assert isinstance(at, Expr)
    extents = tuple(total(e, o, "-") for e, o in zip(tensor.extents, offsets, strict=True))
    return Tensor(tensor.root, tensor.dtype, at, extents, tensor.strides)


def _count(index: Value) -> Size:
    return index.valid[0] if index.span in ("column", "one") else index.valid[1]


def _fits(w: VectorWriter, size: Size, limit: Size, loc: Loc) -> None:
    """So many rows, or columns, as there are in a tensor."""
    if not (isinstance(size, int) and isinstance(limit, int) and size <= limit):
        w.nodes.append(Require(f"{text(size)} <= {text(limit)}", loc))
