# SPDX-License-Identifier: MIT
"""Accumulator tiles of run-time extent, a strip of columns at a time in registers.

``acc += table[index[i], :]`` in a loop over `i` goes through memory for every element of `acc` in every iteration.
Where such a loop does nothing else, all of it is done for the first few vectors of columns, then for the next ones: the
accumulators are loaded before the loop and stored behind it.  What the loop computes besides (indices, bounds) is done
again for each strip, so it is for rows that are short when the program runs: of one strip where rows may follow each
other in memory, which is read fastest in its order, of several where they are at indices that come from memory.  And it
is for complete rows: at the first iteration that has less the loop begins anew, as it is written for all others.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from pto_jit.ir.nodes import For, Fuse, Op, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.lower.axes import is_elementwise
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import I1, I32, Index, Value, number, numbers, storage_type, vector
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import Inputs, NestWriter, lanes_of, unrolled
from pto_jit.targets.cpu.values import TileSlot
from pto_jit.targets.loops.form import Compute, Kept, Memory, Nest, Place, Position, Read, Write

_LONGEST = 2048  # bytes of a row, at an index from memory, that is short


@frozen
class Strip:
    """The columns from `first` on that a loop is written for; held: vectors of accumulators, in memory that becomes
    registers.  extent: of a complete row.  otherwise: where to go when a row is not complete."""

    first: Value
    mask: Value
    lanes: int
    held: dict[Place, Value]
    extent: Index
    otherwise: ir.Block


def write_strips(w: FunctionWriter, loop: For, start: Index, stop: Index, step: Index) -> bool:
    """Write `loop` by strips, if that is what it consists of; gives whether it was written."""
    fused = _only_group(w, loop)
    if fused is None:
        return False
    nest: Nest = w.plan(fused)
    if not _accumulates(w, nest):
        return False
    code, steps = w.code, nest.stages[0]
    names = [r.name for r in nest.results]
    tiles = [w.tile_named(name) for name in names]
    extent = tiles[0].declared[0]
    lanes = lanes_of(steps, w.module.host.width) * unrolled(steps)
    scattered = any(isinstance(s, Op) and s.op == "getelem" for s in loop.body)
    most = max(lanes, _LONGEST // max(t.dtype.bytes for t in tiles)) if scattered else lanes
    conditions = [code.compare("<=", extent, most), code.compare("<", 0, extent)]  # no strip would check no index
    conditions += [code.compare("==", extent, t.declared[0]) for t in tiles[1:]]
    short = code.all_of(conditions)
    if short is False:
        return False
    by_strips, otherwise, after = (code.block(name) for name in ("strips", "rows", "accumulated"))
    code.b.cbranch(_condition(short), by_strips, otherwise)

    def strip(first: Value, _: list[Value]) -> tuple[()]:
        left = code.b.trunc(code.min(code.sub(extent, first), lanes), I32)
        mask = code.b.icmp_signed("<", numbers(I32, tuple(range(lanes))), splat(code.b, left, lanes))
        held: dict[Place, Value] = {}
        places = []
        for name, tile in zip(names, tiles, strict=True):
            place = code.offset(tile.pointer, code.mul(first, tile.dtype.bytes))
            slot = code.alloca(vector(storage_type(tile.dtype), lanes), name)
            code.b.store(load(code, place, tile.dtype, lanes, mask), slot)
            held[Memory(name)] = held[Kept(name)] = slot
            places.append((slot, place, tile.dtype))
        w.strip = Strip(first, mask, lanes, held, extent, otherwise)
        w.sequential(loop, start, stop, step)
        w.strip = None
        for slot, place, dtype in places:
            value = code.b.load(slot, typ=vector(storage_type(dtype), lanes))
            save(code, place, value, dtype, mask)
        return ()

    code.at(by_strips)
    code.loop(0, extent, lanes, body=strip, name="strip")
    code.b.branch(after)
    code.at(otherwise)
    w.sequential(loop, start, stop, step)
    code.go(after)
    code.at(after)
    return True


def _condition(known: bool | Value) -> Value:
    return number(I1, known) if isinstance(known, bool) else known


def _only_group(w: FunctionWriter, loop: For) -> Fuse | None:
    """The one group of a loop that besides consists of numbers which no iteration hands on."""
    groups = [s for s in loop.body if isinstance(s, Fuse)]
    if len(groups) != 1 or not w.vectors or w.recording or w.module.debug or w.strip is not None:
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


def write_strip(w: FunctionWriter, nest: Nest, inputs: Inputs, strip: Strip) -> None:
    """One iteration for the columns of a strip."""
    code = w.code
    complete = code.compare("==", inputs.extents[0], strip.extent)
    if complete is not True:
        whole = code.block("whole")
        code.b.cbranch(_condition(complete), whole, strip.otherwise)
        code.at(whole)
    writer = NestWriter(code, w.ops, nest, inputs, w.module.host.width, w.scratch, strip.held)
    writer.columns(strip.first, strip.lanes, strip.mask)
