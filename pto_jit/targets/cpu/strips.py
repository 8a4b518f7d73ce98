# SPDX-License-Identifier: MIT
"""Accumulator tiles of run-time extent, a strip of columns at a time in registers.

``acc += x[i, :]`` in a loop over `i` goes through memory for every element of `acc` in every iteration.  Where such a
loop does nothing else, its iterations are taken in blocks.  What the loop computes besides (indices, bounds) is done
for the rows of a block first, which leaves their addresses in a table; then all rows are added for the first few
vectors of columns, then for the next ones: the accumulators are loaded before and stored behind, each element in the
order of the loop.  The rows of a block are read from as many places of memory at a time, which hides its latency.

It is for complete rows: at the first iteration that has less the loop goes on from the start of that block as it is
written for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from pto_jit.ir.nodes import For, Fuse, Op, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.access import load, prefetch, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I32, I64, PTR, Index, Value, i64, number, numbers, storage_type, vector
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import DIVIDE, Inputs, NestWriter, Strided, lanes_of, unrolled
from pto_jit.targets.cpu.values import Tile, TileSlot
from pto_jit.targets.loops.form import Compute, Kept, Memory, Nest, Place, Position, Read, Segment, Write

_FEWEST, _MOST = 8, 64  # rows of a block, which are read from so many places of memory at a time
_LARGEST_STEP = 1 << 32  # of a loop: the indices of a block do not overflow
_NEAR = 32768  # bytes of a block of more than the fewest rows, which stay in the first cache
_AHEAD = 256  # bytes of each row that are fetched while those behind it are looked up


@frozen
class Table:
    """The rows of a block: for each source of the nest where they begin, for each number its values.

    extent: of a complete row.  otherwise: where to go when a row is not complete.  count: of the rows, in memory.
    held: the accumulators, which are no sources.
    """

    extent: Index
    otherwise: ir.Block
    count: Value
    held: dict[Place, Strided]
    sources: dict[Place, tuple[Value, tuple[Index, ...]]]
    numbers: dict[str, tuple[Value, ir.Type]]


def write_strips(w: FunctionWriter, loop: For, start: Index, stop: Index, step: Index) -> bool:
    """Write `loop` by strips, if that is what it consists of; gives whether it was written."""
    fused = _only_group(w, loop)
    if fused is None:
        return False
    nest: Nest = w.plan(fused)
    if not _accumulates(w, nest) or not isinstance(step, int) or not 0 < step <= _LARGEST_STEP:
        return False
    code = w.code
    tiles = [w.tile_named(r.name) for r in nest.results]
    extent = tiles[0].declared[0]
    same = code.all_of([code.compare("==", extent, t.declared[0]) for t in tiles[1:]])
    if same is False:
        return False
    begin = code.alloca(I64, "begin")
    code.b.store(i64(start), begin)
    span = code.sub(stop, start)
    fits = [same, code.compare(">", span, 0)]
    if not w.parallel:
        fits.append(code.compare("<", extent, DIVIDE))  # longer rows are shared among the workers
    by_strips, otherwise, after = (code.block(name) for name in ("strips", "rows", "accumulated"))
    code.b.cbranch(_condition(code.all_of(fits)), by_strips, otherwise)
    code.at(by_strips)
    held: dict[Place, Strided] = {}
    for result, tile in zip(nest.results, tiles, strict=True):
        held[Memory(result.name)] = held[Kept(result.name)] = Strided(tile.pointer, (tile.dtype.bytes,))
    row = code.max(code.mul(extent, max(t.dtype.bytes for t in tiles)), 1)
    size = code.mul(code.max(code.min(code.div(_NEAR, row), _MOST), _FEWEST), step)

    def block(at: Value, _: list[Value]) -> tuple[()]:
        first = code.add(start, at)
        code.b.store(i64(first), begin)
        table = Table(extent, otherwise, code.alloca(I64, "count"), held, {}, {})
        code.b.store(i64(0), table.count)
        w.table = table
        last = code.pick(code.compare("<=", code.sub(span, at), size), stop, code.add(first, size))
        w.sequential(loop, first, last, step)
        w.table = None
        rows = code.b.load(table.count, typ=I64)
        for low, high, lanes, masked in _columns(w, nest.stages[0], extent):
            _write_columns(w, nest, tiles, table, rows, (low, high), lanes, masked)
        return ()

    code.loop(0, span, size, body=block, name="block")
    code.b.branch(after)
    code.at(otherwise)
    w.sequential(loop, code.b.load(begin, typ=I64), stop, step)
    code.go(after)
    code.at(after)
    return True


def write_row(w: FunctionWriter, inputs: Inputs, table: Table) -> None:
    """One iteration's entry of the table."""
    code = w.code
    complete = code.compare("==", inputs.extents[0], table.extent)
    if complete is not True:
        whole = code.block("whole")
        code.b.cbranch(_condition(complete), whole, table.otherwise)
        code.at(whole)
    row = code.b.load(table.count, typ=I64)

    def enter(value: Value, name: str) -> Value:
        entries = code.alloca(value.type, name, count=_MOST)
        code.b.store(value, code.b.gep(entries, [row], source_etype=value.type))
        return entries

    for place, strided in inputs.memory.items():
        if place not in table.held:
            prefetch(code, strided.pointer, _AHEAD)
            table.sources[place] = enter(strided.pointer, place.name), strided.strides
    for name, value in inputs.scalars.items():
        table.numbers[name] = enter(value, name), value.type
    code.b.store(code.b.add(row, i64(1)), table.count)


def _write_columns(
    w: FunctionWriter, nest: Nest, tiles: Sequence[Tile], table: Table, rows: Value, columns: tuple[Index, Index],
    lanes: int, masked: bool,
) -> None:  # fmt: skip
    """The rows of a table, for so many columns at a time."""
    code = w.code

    def strip(column: Value, _: list[Value]) -> tuple[()]:
        mask = _mask(code, code.sub(table.extent, column), lanes) if masked else None
        held: dict[Place, Value] = {}
        places = []
        for result, tile in zip(nest.results, tiles, strict=True):
            place = code.offset(tile.pointer, code.mul(column, tile.dtype.bytes))
            slot = code.alloca(vector(storage_type(tile.dtype), lanes), result.name)
            code.b.store(load(code, place, tile.dtype, lanes, mask), slot)
            held[Memory(result.name)] = held[Kept(result.name)] = slot
            places.append((slot, place, tile.dtype))

        def row(k: Value, _: list[Value]) -> tuple[()]:
            def entry(entries: Value, typ: ir.Type) -> Value:
                return code.b.load(code.b.gep(entries, [k], source_etype=typ), typ=typ)

            memory = dict(table.held)
            for place, (entries, strides) in table.sources.items():
                memory[place] = Strided(entry(entries, PTR), strides)
            scalars = {name: entry(*entries) for name, entries in table.numbers.items()}
            inputs = Inputs((table.extent,), memory, scalars, {})
            writer = NestWriter(code, w.ops, nest, inputs, w.module.host.width, w.scratch, held)
            writer.columns(column, lanes, mask)
            return ()

        code.loop(0, rows, body=row, name="row")
        for slot, place, dtype in places:
            save(code, place, code.b.load(slot, typ=vector(storage_type(dtype), lanes)), dtype, mask)
        return ()

    code.loop(*columns, lanes, body=strip, name="strip")


def _columns(w: FunctionWriter, steps: Segment, extent: Index) -> list[tuple[Index, Index, int, bool]]:
    """The strips of a row: from which column to which, of how many lanes, under a mask or not.

    Masks are for what is left of a row alone: not every processor has them for every width of element, and loads under
    a mask have been seen to take half as long again where they come from memory.
    """
    width = w.module.host.width
    narrow = lanes_of(steps, width)
    wide = narrow * unrolled(steps)
    whole = w.code.floor(extent, wide)
    return [(0, whole, wide, False), (whole, extent, narrow, True)]


def _mask(code: Code, left: Index, lanes: int) -> Value:
    """Which of so many lanes are left."""
    count = code.b.trunc(code.min(left, lanes), I32)
    return code.b.icmp_signed("<", numbers(I32, tuple(range(lanes))), splat(code.b, count, lanes))


def _condition(known: bool | Value) -> Value:
    return number(I1, known) if isinstance(known, bool) else known


def _only_group(w: FunctionWriter, loop: For) -> Fuse | None:
    """The one group of a loop that besides consists of numbers which no iteration hands on."""
    groups = [s for s in loop.body if isinstance(s, Fuse)]
    if len(groups) != 1 or not w.vectors or w.recording or w.module.debug or w.table is not None:
        return None
    for stmt in loop.body:
        if stmt is groups[0]:
            continue
        if not isinstance(stmt, Op) or any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results)):
            return None
        if not (is_elementwise(stmt) or stmt.op in ("getelem", "view", "dim")):
            return None
        if any(r.name in w.mutable for r in stmt.results):
            return None
    return groups[0]


def _accumulates(w: FunctionWriter, nest: Nest) -> bool:
    """Whether a nest does nothing but update rows in memory of run-time extent, from rows whose elements lie side by
    side."""
    if nest.rank != 1 or len(nest.stages) != 1 or any(nest.rows) or nest.stores or nest.views or nest.measures:
        return False
    if not nest.results or any(not isinstance(s, (Read, Compute, Write, Position)) for s in nest.stages[0]):
        return False
    axes = {source.name: source.axes for source in nest.sources}
    for result in nest.results:
        slot = w.env.get(result.name)
        if result.scalar or not isinstance(slot, TileSlot):
            return False
        if axes.get(result.name) != result.axes:
            return False
    loads = {op.results[0].name: op for op in nest.scalars if op.op == "load"}
    return all(source.axes == (0,) and _side_by_side(w, source.name, loads.get(source.name)) for source in nest.sources)


def _side_by_side(w: FunctionWriter, name: str, made_by: Op | None) -> bool:
    """Whether the elements of a row lie so, as far as is known here."""
    if made_by is None:
        known: Any = w.env.get(name)
        return isinstance(known, TileSlot) or (known is not None and known.strides[-1:] == (known.dtype.bytes,))
    tensor = made_by.args[0]
    assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
    copied = made_by.attr("pad") or name in w.hazards or name in w.mutable
    return tensor.type.layout in ("c", "inner") and not copied
