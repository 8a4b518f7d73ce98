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

from collections.abc import Callable, Collection, Sequence
from math import prod

from pto_jit.dtypes import DType, f32, i32
from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import is_reduction, reduced_axes
from pto_jit.lower.names import Scalars, index, source_name
from pto_jit.lower.reductions.accumulate import identity
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.parted import PROOF, DividedLine, PartLoops
from pto_jit.semantic.failures import MOST_PLACES
from pto_jit.slotted import replace

COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "max", "all": "min"}
EXTREMES = {"argmax": "max", "argmin": "min"}
"""What the places are of that these operations look for."""
MOST = 64
"""Partial results of a line at most: the lines of these fit a block, and so many blocks keep a device busy."""
ROWS, COLUMNS, ROW = 32, 128, 2048
"""The tile of a step: down columns, and along a row."""


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


def divides(op: Op) -> bool:
    """Whether partial results of a reduction can be combined."""
    return is_reduction(op) and op.op in COMBINE


def working(op: Op) -> tuple[str, DType]:
    """The operation and the type of partial results: those of 16 bits are rounded once, and devices merge numbers."""
    dtype = op.results[0].type.dtype  # type: ignore[union-attr]
    if op.op in ("any", "all"):
        return COMBINE[op.op], i32
    return op.op, f32 if dtype.kind == "f" and dtype.bits == 16 and op.op in ("sum", "prod") else dtype


def room(
    loops: PartLoops, ops: Sequence[Op], known: Known, scalars: Scalars, most: tuple[int, int],
    few: Collection[Operand] = (),
) -> tuple[Operand, int] | None:  # fmt: skip
    """How many elements the largest tile of a part has, and how many it may have; None where it fits, or only a row is
    long of which the host does not know how long it may be.

    most: of a tile that is reduced at once, and of a row alone; few: extents that are `MOST` at most.
    """
    parts = {line.axis: line.part for line in loops.chosen}
    best: tuple[int, int, Var] | None = None
    for op in ops:
        tile = op.args[0] if divides(op) or op.op in EXTREMES else None
        own = loops.lines.axes(tile) if tile is not None else {}
        if not isinstance(tile, Var) or all(own.get(k) in (None, *parts) for k in reduced_axes(op)):
            continue
        whole = [axis for axis in own.values() if axis not in parts]
        size = prod(parts.get(axis, 1) for axis in own.values())
        if best is None or (len(whole), size) > best[:2]:
            best = len(whole), size, tile
    if best is None:
        return None
    _, size, tile = best
    own = loops.lines.axes(tile)
    whole = [k for k, axis in own.items() if axis not in parts]
    elements: Operand = index(size)
    for k in whole:
        extent = known.extent(loops.lines, own[k], [op for op in ops if op.results], scalars, anywhere=True)
        if extent is None:
            return None
        elements = scalars.op("mul", elements, index(MOST) if extent in few else extent, "elements")
    row = whole == [list(own)[-1]]
    if isinstance(elements, Const):
        return None if elements.value <= most[row] else (elements, most[row])
    return None if row else (elements, most[0])


def reduced_along(
    op: Op, tile: Var, axis: int, ops: list[Op], loops: PartLoops, counts: tuple[Operand, Operand, Operand],
    memory: Var,
) -> list[Stmt]:  # fmt: skip
    """Loops that store partial results along an axis, of a tile that operations make.

    counts: how many lines the axis has, how many of them a chunk has, how many chunks there are; memory: what has one
    partial result of each chunk.
    """
    names, loc, scalars, scope = loops.names, op.loc, loops.scalars, loops.scope
    kind, work = working(op)
    extent, chunk, parts = counts
    own = loops.lines.axes(tile)
    last = list(own)[-1]
    lines = [DividedLine(line, loops.found[line],
                         (ROW if k == last else ROWS) if k == axis else COLUMNS if k == last else 1)
             for k, line in own.items()]  # fmt: skip
    loops = replace(loops, chosen=lines, at={}, extents={})
    where = names.fresh("chunk")
    head, inner = Scalars(names, loc), Scalars(names, loc)
    for line in lines:
        loops.at[line.axis] = loops.first(ops)
        to = inner if line.axis == own[axis] else head
        loops.extents[line.axis] = index(1)
        if line.part > 1:
            most = index(line.part)
            if loops.bounded:
                most = scalars.op("min", line.extent, most, "most")
            left = to.op("sub", line.extent, loops.at[line.axis], "left")
            loops.extents[line.axis] = to.op("min", left, most, "some")
    inside: list[Stmt] = [*inner.block]
    for made in ops:
        inside += loops.smaller(made)
    part = loops.tile(tile)
    assert isinstance(part, Var) and isinstance(part.type, TileType)
    if part.type.dtype != work:
        wide = names.fresh(source_name(tile.name), TileType(work, part.type.shape))
        inside.append(Op("cast", (wide,), (part,), (("dtype", work),), (), loc))
        part = wide
    shape = tuple(1 if k == axis else n for k, n in enumerate(part.type.shape))  # type: ignore[union-attr]
    extents = [index(1) if k == axis else loops.extents.get(own[k], index(1)) if k in own else index(1)
               for k in range(len(shape))]  # fmt: skip
    total, more, some = (names.fresh(source_name(hint), TileType(work, shape)) for hint in (tile.name, "more", "part"))
    start = Const(0.0, ScalarType(work)) if kind == "sum" and work.kind == "f" else identity(_combining(kind), work)
    inside += [
        Op(kind, (some,), (part,), (("axes", (axis,)), ("keepdims", True)), (), loc),
        Op(_combining(kind), (more,), (total, some), (), (), loc),
        Op("copy", (total,), (more,), (), (), loc),
    ]
    at = loops.at[own[axis]]
    first = head.op("mul", where, chunk, "first")
    stop = head.op("min", head.op("add", first, chunk, "end"), extent, "end")
    step = next(line.part for line in lines if line.axis == own[axis])
    places = [where if k == axis else loops.at[own[k]] if k in own else index(0) for k in range(len(shape))]
    body: Block = (
        *head.block,
        Op("full", (total,), (start, *extents), (), (), loc),
        For("sequential", at, first, stop, index(step), tuple(inside), loc=loc),
        Op("store", (), (total, memory, *places), (), (), loc),
    )
    block: Block = body if scope.named else (Scope(scope.name, body, False, scope.loc),)
    for line in reversed(lines):
        if line.axis != own[axis]:
            block = (For("parallel", loops.at[line.axis], index(0), line.extent, index(line.part), block, proof=PROOF,
                         loc=loc),)  # fmt: skip
    chunks = For("parallel", where, index(0), parts, index(1), block, proof=PROOF, loc=loc)
    return [*scalars.block, chunks]


def _combining(kind: str) -> str:
    return COMBINE.get(kind, kind)


def chunks_of(extent: Operand, step: int, scalars: Scalars) -> tuple[Operand, Operand]:
    """How many lines a chunk has, and how many chunks there are."""
    steps = scalars.op("floordiv", scalars.op("add", extent, index(step - 1)), index(step), "steps")
    share = scalars.op("floordiv", scalars.op("add", steps, index(MOST - 1)), index(MOST), "share")
    chunk = scalars.op("mul", scalars.op("max", share, index(1)), index(step), "chunk")
    below = scalars.op("sub", scalars.op("add", extent, chunk), index(1))
    return chunk, scalars.op("max", scalars.op("floordiv", below, chunk), index(0), "parts")

