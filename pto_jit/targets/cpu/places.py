# SPDX-License-Identifier: MIT
"""Index reductions, `argmax` and `argmin`: along an axis, along several, of a tile in one piece as of a long row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType, i32
from pto_jit.errors import InternalError
from pto_jit.ir.nodes import Fuse, Op, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import Axial, is_reduction, reduced_axes
from pto_jit.targets.cpu.constants import I64, PTR, VOID, Index, Value, i64, number, register_type, storage_type
from pto_jit.targets.cpu.elements import address, each, give, need_places, new_tile, read, write
from pto_jit.targets.cpu.elementwise import from_memory
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.groups import write_group
from pto_jit.targets.cpu.nest import DIVIDE
from pto_jit.targets.cpu.sharing import share_lines
from pto_jit.targets.cpu.spmd import argument_writer
from pto_jit.targets.cpu.tiles import fill_tile
from pto_jit.targets.cpu.values import Tensor, Tile

_PIECE = 1 << 15  # elements of one long row that are searched at a time, where workers share it


def write_arg_reduction(w: FunctionWriter, op: Op) -> None:
    """argmax, argmin: as a row nest along the last axis, else element by element."""
    state = Axial()
    if state.admit(op) and not state.late:
        with w.passing_results():
            write_group(w, Fuse((op,), tuple(r.name for r in op.results), op.loc))
        return
    write_reduction(w, op)


def _may_be_better(w: FunctionWriter, sign: str, value: Value, have: Value, dtype: DType) -> Value:
    """Whether a value comes before the one that was best so far, or one of them is NaN: a single comparison."""
    if dtype.kind == "f":
        return w.b.not_(w.b.fcmp_ordered("<=" if sign == "gt" else ">=", value, have))
    if dtype.kind == "b":
        return w.b.and_(value, w.b.not_(have)) if sign == "gt" else w.b.and_(w.b.not_(value), have)
    return w.ops.apply(sign, (value, have), dtype, {}, dtype)


def write_reduction(w: FunctionWriter, op: Op) -> None:
    """An index reduction along any axes: for each kept element the others in order."""
    if op.op not in ("argmax", "argmin") or not is_reduction(op):
        raise InternalError(f"the cpu target cannot do `{op.op}` here  ({op.loc})")
    code = w.code
    tile = w.tile(op.args[0])
    over = reduced_axes(op)
    need_places(w, op, [tile.valid[k] for k in over], [tile.declared[k] for k in over])
    keep = bool(op.attr("keepdims"))
    result = op.results[0]
    typ = register_type(tile.dtype)
    best, place = code.alloca(typ), code.alloca(I64)
    sign = "gt" if op.op == "argmax" else "lt"
    outer = [tile.valid[k] for k in range(tile.rank) if k not in over]
    scalar = isinstance(result.type, ScalarType)
    out: Any = None
    if not scalar:
        declared = [1 if k in over else e for k, e in enumerate(tile.declared) if keep or k not in over]
        valid = [1 if k in over else e for k, e in enumerate(tile.valid) if keep or k not in over]
        out = new_tile(w, result, declared, valid)

    def body(i: list[Index]) -> None:
        w.b.store(number(I64, -1), place)
        w.b.store(number(typ, 0), best)

        def inner(j: list[Index]) -> None:
            fixed, moving = iter(i), iter(j)
            at = [next(moving) if k in over else next(fixed) for k in range(tile.rank)]
            value = read(w, tile, at)
            flat: Index = 0
            for k in over:
                flat = code.add(code.mul(flat, tile.declared[k]), at[k])
            have, was = w.b.load(best, typ=typ), w.b.load(place, typ=I64)
            none = w.b.icmp_signed("<", was, number(I64, 0))
            with code.when(w.b.or_(_may_be_better(w, sign, value, have, tile.dtype), none), likely=False):
                place_now = i64(flat)
                if tile.dtype.kind == "f":  # of two NaN the first
                    better = w.b.or_(none, w.b.fcmp_ordered("ord", have, have))
                    value, place_now = w.b.select(better, value, have), w.b.select(better, place_now, was)
                w.b.store(value, best)
                w.b.store(place_now, place)

        each(w, [tile.valid[k] for k in over], inner)
        found = code.max(w.b.load(place, typ=I64), 0)
        index = w.b.trunc(found, register_type(i32))
        if scalar:
            return
        full = [0 if k in over else None for k in range(tile.rank)]
        rest = iter(i)
        at = [next(rest) if k is None else 0 for k in full] if keep else i
        write(w, out, at, index)

    def by_elements() -> Sequence[Value]:
        each(w, outer, body)
        return (w.b.trunc(code.max(w.b.load(place, typ=I64), 0), register_type(i32)),) if scalar else ()

    if scalar:
        w.define(result, code.choose(_in_one_piece(w, tile), lambda: (_of_one_row(w, op, tile),), by_elements)[0])
    else:
        if not _arguments_in_lanes(w, op, tile, out, over):
            by_elements()
        give(w, result, out)


def _arguments_in_lanes(w: FunctionWriter, op: Op, tile: Tile, out: Tile, over: Sequence[int]) -> bool:
    """Write the indices for several places of the last axis at a time, if that is not one of those searched; gives
    whether it was written."""
    axis = over[0]
    if not w.vectors or w.recording or len(over) > 1 or axis == tile.rank - 1 or tile.dtype.kind == "b":
        return False
    keeps = out.rank == tile.rank
    places = [k for k in range(out.rank) if not keeps or k != axis]
    lines = Tensor(
        out.dtype, out.pointer, tuple(out.declared[k] for k in places), tuple(out.strides[k] for k in places)
    )
    row = argument_writer(w, op, tile, lines, axis)
    if row is None:
        return False
    outer = [v for k, v in enumerate(tile.valid[:-1]) if k != axis]
    w.code.choose(
        w.code.compare("<", 0, tile.valid[axis]),
        lambda: each(w, outer, row) or (),
        lambda: fill_tile(w, out, number(register_type(i32), 0)) or (),
    )
    return True


def _in_one_piece(w: FunctionWriter, tile: Tile) -> bool | Value:
    """Whether a tile is complete and its elements follow each other in memory, for targets with vectors."""
    if not w.module.vector_bytes:
        return False
    packed = w.strides(tile.dtype, tile.declared)
    pairs = [*zip(tile.valid, tile.declared, strict=True), *zip(tile.strides, packed, strict=True)]
    return w.code.all_of([w.code.compare("==", a, b) for a, b in pairs])


def _of_one_row(w: FunctionWriter, op: Op, tile: Tile) -> Value:
    """An index reduction of a tile in one piece, as that of one long row; of pieces of it, for the workers, where it is
    very long."""
    code, size = w.code, tile.dtype.bytes
    total = code.mul(*tile.declared)
    if w.parallel or w.recording or not w.vectors or (isinstance(total, int) and total < DIVIDE):
        return _index_in_row(w, op, tile.pointer, tile.dtype, total)
    sign = "gt" if op.op == "argmax" else "lt"

    def in_pieces() -> Sequence[Value]:
        many = code.div(total, _PIECE)
        room = code.call("pto_scratch_push", PTR, [code.worker, i64(code.mul(many, 4))])
        w.got_memory(room)
        rows = Tile(tile.dtype, tile.pointer, (many, _PIECE), (many, _PIECE), (_PIECE * size, size), view=True)
        places = Tile(i32, room, (many,), (many,), (4,))

        def part(w: FunctionWriter, parts: list[Tile], _: object) -> None:
            rows, places = parts

            def row(i: list[Index]) -> None:
                start = address(w, rows, [*i, 0])
                write(w, places, i, _index_in_row(w, op, start, rows.dtype, _PIECE))

            each(w, rows.valid[:1], row)

        share_lines(w, op, [(rows, 0), (places, 0)], part)

        def better(start: Index, index: Value, state: Sequence[Value]) -> list[Value]:
            """The best so far, with that of one more piece: an earlier one that is as good, or NaN, stays."""
            at = i64(code.add(start, w.b.sext(index, I64)))
            raw = w.b.load(code.offset(tile.pointer, code.mul(at, size)), typ=storage_type(tile.dtype), align=size)
            value, (have, place) = from_memory(w.b, raw, tile.dtype), state
            wins = w.ops.apply(sign, (value, have), tile.dtype, {}, tile.dtype)
            if tile.dtype.kind == "f":
                nan = w.b.fcmp_unordered("uno", value, value)
                wins = w.b.and_(w.b.or_(wins, nan), w.b.fcmp_ordered("ord", have, have))
            return [w.b.select(wins, value, have), w.b.select(wins, at, place)]

        first = from_memory(w.b, w.b.load(tile.pointer, typ=storage_type(tile.dtype), align=size), tile.dtype)
        best = code.loop(
            0, many, init=[first, number(I64, 0)],
            body=lambda k, state: better(code.mul(k, _PIECE), read(w, places, [k]), state), name="pieces",
        )  # fmt: skip
        done = code.mul(many, _PIECE)
        rest = code.sub(total, done)

        def last() -> Sequence[Value]:
            start = code.offset(tile.pointer, code.mul(done, size))
            return better(done, _index_in_row(w, op, start, tile.dtype, rest), best)

        place = code.choose(code.compare(">", rest, 0), last, lambda: best)[1]
        code.call("pto_scratch_pop", VOID, [code.worker, room])
        return (w.b.trunc(place, register_type(i32)),)

    return code.choose(code.compare(">=", total, DIVIDE), in_pieces,
                       lambda: (_index_in_row(w, op, tile.pointer, tile.dtype, total),))[0]  # fmt: skip


def _index_in_row(w: FunctionWriter, op: Op, pointer: Value, dtype: DType, total: Index) -> Value:
    """The index of the best of elements side by side."""
    name = op.results[0].name
    row = Var(f"{name}.row", TileType(dtype, (None,)))
    found = Var(f"{name}.first", ScalarType(i32))
    w.env[row.name] = Tile(dtype, pointer, (total,), (total,), (dtype.bytes,), view=True)
    along = Op(op.op, (found,), (row,), (("axes", (0,)), ("keepdims", False)), loc=op.loc)
    with w.passing_results():
        write_group(w, Fuse((along,), (found.name,), op.loc))
    return w.scalar(found)
