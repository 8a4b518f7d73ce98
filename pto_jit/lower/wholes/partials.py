# SPDX-License-Identifier: MIT
"""Reductions along an axis that is longer than a block has room for: partial results in memory, then these.

Before, of 100,000 rows::

    %s = tsum %x.1 {axes=(0,), keepdims=false} : !pto.tile<?xf32>

After::

    %s.partials = talloc [%parts, %m] {dtype=f32} : !pto.memref<gm,?x?,f32>
    FOR %chunk:idx, 0:idx, %parts:idx, 1:idx {kind=parallel}
      FOR %x_at:idx, 0:idx, %m:idx, 128:idx {kind=parallel}
        %sum = tfull 0.0:f32, [1, %some] : !pto.tile<1x?xf32>
        FOR %row:idx, %first:idx, %last:idx, 32:idx {kind=sequential}
          %x.2 = tload %x[%row, %x_at] [%rows, %some] : !pto.tile<?x?xf32>
          %part = tsum %x.2 {axes=(0,), keepdims=true} : !pto.tile<1x?xf32>
          %sum = tadd %sum, %part : !pto.tile<1x?xf32>
        ENDFOR
        tstore %sum, %s.partials[%chunk, %x_at]
      ENDFOR
    ENDFOR
    %s.1 = tload %s.partials[0, 0] [%parts, %m] : !pto.tile<?x?xf32>
    %s = tsum %s.1 {axes=(0,), keepdims=false} : !pto.tile<?xf32>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from pto_jit.dtypes import DType, f32, i8, i32
from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import rewrite_block, statements
from pto_jit.lower.groups.axes import is_reduction, reduced_axes
from pto_jit.lower.names import Names, Scalars, index, source_name
from pto_jit.lower.reductions.accumulate import identity
from pto_jit.lower.wholes.chunks import ChunkLoops, Chunks
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.lines import SCANS, Axis, Lines
from pto_jit.lower.wholes.parted import DividedLine, PartLoops
from pto_jit.semantic.failures import MOST_PLACES
from pto_jit.slotted import frozen, replace

COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "max", "all": "min"}
EXTREMES = {"argmax": "max", "argmin": "min"}
"""What the places are of that these operations look for."""
MOST = 64
"""Partial results of a line at most: the lines of these fit a block, and so many blocks keep a device busy."""
ROW = 2048
"""The elements of a step along a row."""


def places_in_numbers(func: Func) -> Func:
    """A function that looks for the places of extremes among numbers: truth values are 0 and 1 there."""
    if not any(map(_looks_in_truths, statements(func.body))):
        return func
    names = Names(func)

    def visit(stmt: Stmt) -> Block | None:
        if not _looks_in_truths(stmt):
            return None
        assert isinstance(stmt, Op)
        tile = stmt.args[0]
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        numbers = names.fresh(source_name(tile.name), replace(tile.type, dtype=i8))
        cast = Op("cast", (numbers,), (tile,), (("dtype", i8),), (), stmt.loc)
        return cast, replace(stmt, args=(numbers,))

    return replace(func, body=rewrite_block(func.body, visit))


def _looks_in_truths(stmt: Stmt) -> bool:
    if not isinstance(stmt, Op) or stmt.op not in EXTREMES:
        return False
    kind = stmt.args[0].type
    return isinstance(kind, TileType) and kind.dtype.kind == "b"


def where_it_is(made: Callable[..., Var], tile: Var, best: Operand, numbers: Operand) -> Var:
    """The places of the elements of a tile that are equal to an extreme, and `MOST_PLACES` of the others.

    made: the result of an operation on operands; numbers: all places, which are below `MOST_PLACES`. Those of NaNs lie
    before all others, whether or not a device's extreme is a NaN where there is one: the smallest is then `unmarked`.
    """
    none = Const(MOST_PLACES, ScalarType(i32))
    places = made("select", made("eq", tile, best), numbers, none)
    if not is_marked(tile):
        return places
    return made("select", made("ne", tile, tile), made("add", numbers, _MARK), places)


def is_marked(tile: Var) -> bool:
    """Whether places in a tile may be those of NaNs."""
    return tile.type.dtype.kind == "f"  # type: ignore[union-attr]


def unmarked(place: Operand) -> tuple[str, Operand, Operand]:
    """The operation that gives the place itself, which `where_it_is` may have marked."""
    return "and", place, Const(MOST_PLACES, ScalarType(i32))


_MARK = Const(-(2**31), ScalarType(i32))
assert MOST_PLACES == 2**31 - 1  # all bits but that of the mark


def looked_for(op: Op, extent: Operand, made: Callable[..., Var]) -> Op:
    """The operation that gives the place of an extreme along an axis with so many lines: the first one where a NaN is,
    or else where that is; made: the result of an operation on operands, with attributes."""
    tile, (result,) = op.args[0], op.results
    assert isinstance(tile, Var) and isinstance(tile.type, TileType)
    (axis,) = reduced_axes(op)
    best = made(EXTREMES[op.op], tile, axes=(axis,), keepdims=True)
    numbers = made("arange", Const(0, ScalarType(i32)), Const(1, ScalarType(i32)), extent)
    if tile.type.rank > 1:
        numbers = made("reshape", numbers, *(extent if k == axis else index(1) for k in range(tile.type.rank)))
    places = where_it_is(made, tile, best, numbers)
    attrs = (("axes", (axis,)), ("keepdims", bool(op.attr("keepdims"))))
    if not is_marked(tile):
        return Op("min", (result,), (places,), attrs, (), op.loc)
    name, *args = unmarked(made("min", places, **dict(attrs)))
    return Op(name, (result,), tuple(args), (), (), op.loc)


ROOM = "fits.room"
"""The name of a comparison of a row with what a kernel has room for, which is an estimate until that is written."""


def divides(op: Op) -> bool:
    """Whether partial results of a reduction can be combined."""
    return is_reduction(op) and op.op in COMBINE


def working(op: Op) -> tuple[str, DType]:
    """The operation and the type of partial results: those of 16 bits are rounded once, and devices merge numbers."""
    dtype = op.results[0].type.dtype  # type: ignore[union-attr]
    if op.op in ("any", "all"):
        return COMBINE[op.op], i32
    return op.op, f32 if dtype.kind == "f" and dtype.bits == 16 and op.op in ("sum", "prod") else dtype


def along(op: Op) -> tuple[int, ...]:
    """The axes that an operation runs along whose lines may be too long; none of other operations."""
    if op.op in SCANS:
        return (int(op.attr("axis")),)  # type: ignore[call-overload]
    return reduced_axes(op) if divides(op) or op.op in EXTREMES else ()


@frozen
class Limits:
    """How many elements a block has room for: of a tile that is reduced at once, of a row, of one of unknown extent
    beside other rows or truth values, of a row that is scanned."""

    tile: int
    row: int
    beside: int
    scanned: int


@frozen
class Room:
    """How many elements the largest tile of a part has, and how many it may have, or how many lines if that is the only
    extent which is not known; row: a row that is reduced, of unknown extent."""

    elements: Operand
    most: int
    row: Axis | None = None


def room(
    lines: Lines, chosen: Sequence[DividedLine], ops: Sequence[Op], known: Known, scalars: Scalars,
    limits: Limits,
) -> Room | None:  # fmt: skip
    """How large tiles may be; None where they fit.

    chosen: what is divided.
    """
    parts = {line.axis: line.part for line in chosen}
    best: tuple[int, int, int, Var] | None = None
    for op in ops:
        over = along(op)
        own = lines.axes(op.args[0]) if over else {}
        if all(own.get(k) in (None, *parts) for k in over):
            continue
        whole = [axis for axis in own.values() if axis not in parts]
        size = prod(parts.get(axis, 1) for axis in own.values())
        words = _words(op)
        if best is None or (len(whole), size * words) > (best[0], best[1] * best[2]):
            best = len(whole), size, words, op.args[0]  # type: ignore[assignment]
    if best is None:
        return None
    _, size, words, tile = best
    running = any(op.op in SCANS and op.args[0] == tile for op in ops)
    own = lines.axes(tile)
    whole = [k for k, axis in own.items() if axis not in parts]
    unknown: list[Operand] = []
    for k in whole:
        extent = known.extent(lines, own[k], [op for op in ops if op.results], scalars, anywhere=True)
        if extent is None:
            return None
        bound = known.most(extent)
        size *= bound or 1
        unknown += [extent] if bound is None else []
    row = whole == [list(own)[-1]]
    limit = (limits.tile if not row else limits.scanned if running else
             limits.beside if unknown and _beside(ops, lines) else limits.row) // words  # fmt: skip
    if not unknown:
        return None if size <= limit else Room(index(size), limit)
    elements = unknown[0]
    for extent in unknown[1:]:
        elements = scalars.op("mul", elements, extent, "elements")
    return Room(elements, limit // size, own[whole[0]] if row and not running else None)


def _beside(ops: Sequence[Op], lines: Lines) -> bool:
    """Whether operations have more to hold than a row that is loaded and what is made of it."""
    loads = {op.args for op in ops if op.op == "load" and len(lines.axes(op.results[0])) > 1}
    return len(loads) > 1 or any(op.op in (*EXTREMES, "any", "all") for op in ops)


def _words(op: Op) -> int:
    """How many registers a thread needs for an element of what an operation runs along: a scan has all in registers."""
    if op.op not in SCANS:
        return 1
    return max(1, sum(a.type.dtype.bits for a in op.args) // 32)  # type: ignore[union-attr]


def reduced_along(op: Op, tile: Var, axis: int, ops: list[Op], loops: PartLoops, chunks: Chunks, memory: Var) -> (
        list[Stmt]):  # fmt: skip
    """Loops that store partial results along an axis, of a tile that operations make; memory: what has one partial
    result of each chunk."""
    names, loc = loops.names, op.loc
    kind, work = working(op)
    own = loops.lines.axes(tile)
    chunked = ChunkLoops(loops, ops, tile, own[axis], chunks, loc)
    parts = chunked.parts
    inside: list[Stmt] = []
    for made in ops:
        inside += parts.smaller(made)
    part = parts.tile(tile)
    assert isinstance(part, Var) and isinstance(part.type, TileType)
    if part.type.dtype != work:
        wide = names.fresh(source_name(tile.name), TileType(work, part.type.shape))
        inside.append(Op("cast", (wide,), (part,), (("dtype", work),), (), loc))
        part = wide
    line = TileType(work, chunked.line_of(tile, axis).shape)
    total, more, some = (names.fresh(source_name(hint), line) for hint in (tile.name, "more", "part"))
    inside += [
        Op(kind, (some,), (part,), (("axes", (axis,)), ("keepdims", True)), (), loc),
        Op(combining(kind), (more,), (total, some), (), (), loc),
        Op("copy", (total,), (more,), (), (), loc),
    ]
    begin = Op("full", (total,), (starting(op), *chunked.extents(tile, axis)), (), (), loc)
    end = Op("store", (), (total, memory, *chunked.places(tile, axis, chunked.where)), (), (), loc)
    return chunked.around([begin], inside, [end])


def combining(kind: str) -> str:
    """The operation that combines two of what a reduction gives."""
    return COMBINE.get(kind, kind)


def starting(op: Op) -> Const:
    """What the partial results of a reduction begin with."""
    kind, work = working(op)
    return Const(0.0, ScalarType(work)) if kind == "sum" and work.kind == "f" else identity(combining(kind), work)
