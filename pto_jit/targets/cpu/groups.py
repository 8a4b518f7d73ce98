# SPDX-License-Identifier: MIT
"""A group of tile operations: where its tiles lie, what has to hold, and how its nest runs.

Loads are views: the nest reads global memory where it stands.  Stores go straight to global memory, unless part of
the stored tile lies outside the tensor, or the stored region overlaps memory that the nest reads (or stores) elsewhere
in another order; then, decided when the code runs, they go to scratch memory first and are copied when the nest is
done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Fuse, Op, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import is_reduction, reduced_axes
from pto_jit.semantic import failures
from pto_jit.slotted import replace
from pto_jit.targets.cpu.constants import I64, Index, Value, number, register_type, storage_type
from pto_jit.targets.cpu.elementwise import from_memory, to_memory
from pto_jit.targets.cpu.extents import Extents
from pto_jit.targets.cpu.folds import reduce_identity
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import DIVIDE, Inputs, NestWriter, Strided
from pto_jit.targets.cpu.stores import Stores
from pto_jit.targets.cpu.structure import need_complete, write_reshape
from pto_jit.targets.cpu.tiles import (
    assign_tile,
    fill_tile,
    given_fits,
    load_tile,
    materialise,
    set_valid,
    tile_slot,
)
from pto_jit.targets.cpu.turned import turned
from pto_jit.targets.cpu.values import Tile, TileSlot
from pto_jit.targets.loops.form import (
    Accumulate,
    Kept,
    Memory,
    Nest,
    Places,
    Position,
    Read,
    Result,
    RowBuffer,
    Source,
    Write,
)
from pto_jit.targets.loops.schedule import arguments

SHORT = 256  # bytes of a row, four vectors, up to which a tile may be small
SMALL = 1024  # elements of a small tile


def write_group(w: FunctionWriter, fused: Fuse) -> None:
    """Write a group formed by `lower.groups`."""
    _Group(w, fused, w.plan(fused)).write()


class _Group(Extents):
    def __init__(self, w: FunctionWriter, fused: Fuse, nest: Nest) -> None:
        super().__init__(w, fused, nest)
        self.memory: dict[Any, Strided] = {}
        self.final: dict[str, Tile] = {}

    # -- preparations ---------------------------------------------------------------------------------------------

    def write(self) -> None:
        w, nest = self.w, self.nest
        self.writer: NestWriter | None = None
        after: list[Op] = []
        measured = {name for name, _, _ in nest.measures}
        for op in nest.scalars:
            if op.op == "load":
                self._load(op)
            elif op.op in ("valid", "extent"):
                after.append(op)
            elif any(isinstance(a, Var) and a.name in measured for a in op.args):
                after.append(op)
                measured.update(r.name for r in op.results)
            else:
                w.elementwise(op)
        for op in nest.views:
            write_reshape(w, op)
        self.tiles = {s.name: w.tile_named(s.name) for s in nest.sources}
        self._extents()
        for op in after:
            if op.op in ("valid", "extent"):
                self._measure(op)
            else:
                w.elementwise(op)
        self._reshapes()
        if not nest.stores and not nest.results:
            return
        for source in nest.sources:
            tile = self.tiles[source.name]
            self.memory[Memory(source.name)] = self._source(source, tile)
        self._results()
        stores = Stores(w, nest, self.tiles, self.extents, self.has)
        self.memory |= stores.place()
        self._run(stores.streams())
        stores.finish()
        self._finish()

    def _reshapes(self) -> None:
        """A reshape inside the group needs its axes of extent 1 to hold something."""
        w = self.w
        for op in self.fused.body:
            if not isinstance(op, Op) or op.op != "reshape" or op in self.nest.views:
                continue
            source = op.args[0]
            assert isinstance(source, Var) and isinstance(source.type, TileType)
            tile = self.tiles.get(source.name)
            kept = op.attr("axes") or ()
            units = [k for k, n in enumerate(source.type.shape) if n == 1 and k not in kept]  # type: ignore[operator]
            if tile is not None and units:
                need_complete(w, op, tile, "reshape", units)
            elif units:
                fits = self._fitting(source.name)
                generated = [self.code.compare("!=", fits[k], 0) if fits else False for k in units]  # and complete
                site = w.module.site(*failures.UNIT.at(), op.loc)
                there = self.code.all_of([self._there(source.name, k) for k in units])
                self.code.check(self.code.any_of([there, self.code.all_of(generated)]), site)

    def _load(self, op: Op) -> None:
        w = self.w
        tile = load_tile(w, op)
        name = op.results[0].name
        if name in w.hazards:
            tile = materialise(w, name, tile)
        if name in w.mutable:
            assign_tile(w, op.results[0], tile)
        else:
            w.env[name] = tile

    def _measure(self, op: Op) -> None:
        """`valid` and `extent` of a tile of the group."""
        w = self.w
        tile, axis = op.args[0], op.attr("axis")
        assert isinstance(tile, Var) and isinstance(axis, int)
        body = self.fused.body
        before = body[: next(k for k, one in enumerate(body) if one is op)]
        makers = [one for one in before if isinstance(one, Op) and any(r.name == tile.name for r in one.results)]
        here = bool(makers) and makers[-1].op != "load" and makers[-1] not in self.nest.views
        if not here and isinstance(w.env.get(tile.name), (Tile, TileSlot)):  # a variable still has its old value here
            now = w.tile(tile)
            w.define(op.results[0], now.valid[axis] if op.op == "valid" else now.declared[axis])
            return
        declared = self._declared(tile.name)[axis]
        if op.op == "extent":
            w.define(op.results[0], declared)
            return
        reduced = bool(makers) and is_reduction(makers[-1]) and axis in reduced_axes(makers[-1])
        places = None if reduced else self._places_of(tile.name)
        w.define(op.results[0], declared if places is None else self._valid(tile.name, places, axis, declared))

    def _valid(self, name: str, places: Places, axis: int, declared: Index) -> Index:
        """The valid extent of an axis of a tile that the group makes: 0 where what it is made of has nothing along an
        axis of extent 1."""
        place = places[axis]
        given = declared if place is None else self.given[place]
        if self.alive is True and not self.along:
            return given
        units = self.units_of_tiles()
        empty = units.of.get(name)
        if empty is None or frozenset[tuple[str, int]]().union(*empty) != units.every:
            return self.code.pick(self.has(name, axis), given, 0)
        return self.code.pick(self._there(name, axis), given, 0)

    def _there(self, name: str, axis: int) -> bool | Value:
        """Whether what a tile of the group is made of has something along all axes of extent 1 that this axis is of."""
        empty = None if self.alive is True and not self.along else self.units_of_tiles().of.get(name)
        if empty is None:
            return self.alive
        return self.code.all_of([self.there.get(unit, self.alive) for unit in sorted(empty[axis])])

    def _source(self, source: Source, tile: Tile) -> Strided:
        """Where a source is read; some valid memory when the tile has nothing valid, where elements are read all the
        same, and not used: single ones, and lines of what is reduced along an axis that it was repeated along."""
        mine = [self.there[u] for u in ((source.name, k) for k in range(len(tile.valid))) if u in self.along]
        if mine:
            return self._line(tile, self.code.all_of(mine))
        if self.alive is True or self.nest.rank > 1:
            return Strided(tile.pointer, tile.strides)
        spare = self._spare()
        pointer = self.code.b.select(self.alive, tile.pointer, spare) if self.alive is not False else spare
        return Strided(pointer, tile.strides)

    def _spare(self) -> Value:
        spare = self.code.alloca(I64)
        with self.code.at_entry():
            self.code.b.store(number(I64, 0), spare)
        return spare

    def _line(self, tile: Tile, there: bool | Value) -> Strided:
        """The memory of a tile, or where it is not there that of one line, which stands for all of its lines."""
        code = self.code
        size = code.mul(tile.strides[-1], tile.declared[-1])
        line = self.w.scratch(size if isinstance(size, int) else code.pick(there, 0, size))
        pointer = tile.pointer if there is True else line if there is False else (
            code.b.select(there, tile.pointer, line))  # fmt: skip
        outer = tuple(code.pick(there, s, 0) for s in tile.strides[:-1])
        return Strided(pointer, (*outer, tile.strides[-1]))

    # -- results --------------------------------------------------------------------------------------------------

    def _results(self) -> None:
        """Memory for what is read after the group."""
        code = self.code
        self.late: dict[str, tuple[Value, DType]] = {}
        self.copies: list[tuple[Var, Tile]] = []
        for result in self.nest.results:
            var = self.types[result.name]
            if result.scalar:
                if result.late is not None:
                    typ = storage_type(result.dtype)
                    slot = code.alloca(typ, result.name)
                    first = to_memory(code.b, reduce_identity(result.late, result.dtype, register_type(result.dtype)),
                                      result.dtype)  # fmt: skip
                    code.b.store(first, slot)
                    self.late[result.name] = (slot, result.dtype)
                    self.memory[Kept(result.name)] = Strided(slot, ())
                continue
            declared = self._declared(result.name)
            valid = tuple(self._valid(var.name, result.axes, k, 1) for k in range(len(declared)))
            tile = self._result_tile(var, declared, valid, result.axes)
            self.memory[Kept(result.name)] = Strided(tile.pointer, tile.strides)
            if result.late is not None:
                self._identity(result, tile)

    def _identity(self, result: Result, tile: Tile) -> None:
        """The value that a reduction over all rows begins with, in every element of its result."""
        fill_tile(self.w, tile, reduce_identity(str(result.late), result.dtype, register_type(result.dtype)))

    def _result_tile(self, var: Var, declared: tuple[Index, ...], valid: tuple[Index, ...], axes: Places) -> Tile:
        w = self.w
        assert isinstance(var.type, TileType)
        dtype = var.type.dtype
        fits = self._fitting(var.name)
        if var.name not in w.mutable:
            pointer, strides = w.buffer(var.name, dtype, declared)
            tile = Tile(dtype, pointer, declared, valid, strides, fits=fits)
            self.final[var.name] = tile
            return tile
        read = any(s.name == var.name for s in self.nest.sources)
        if not read or (isinstance(w.env.get(var.name), TileSlot) and self._may_overwrite(var.name, axes)):
            if read:
                self._same_extents(var, declared)
            tile = self.tiles[var.name] if read else w.read_slot(tile_slot(w, var, declared))
            out = Tile(dtype, tile.pointer, declared, valid, w.strides(dtype, declared), fits=fits)
            self.final[var.name] = out
            return out
        pointer = w.scratch(self.code.bytes(dtype.bytes, declared))
        tile = Tile(dtype, pointer, declared, valid, w.strides(dtype, declared), fits=fits)
        self.copies.append((var, tile))
        return tile

    def _same_extents(self, var: Var, declared: tuple[Index, ...]) -> None:
        """A variable that is written in place lies as it did: its axes are those of the tile that it was."""
        for axis, (now, before) in enumerate(zip(declared, self.tiles[var.name].declared, strict=True)):
            if now is not before:
                same = self.code.compare("==", now, before)
                if same is not True:
                    self.code.check(same, self.w.module.site(*failures.DECLARED.at(axis=axis), self.loc), now, before)

    def _fitting(self, name: str) -> tuple[Index, ...]:
        """`fits` of a tile as the group leaves it."""
        w = self.w
        found: dict[str, tuple[Index, ...]] = {}
        for op in self.fused.body if name in w.generated else ():
            if not isinstance(op, Op):
                continue
            for r in op.results:
                if r.name not in w.generated:
                    found[r.name] = ()
                else:
                    found[r.name] = given_fits(w, op, [
                        () if not isinstance(a, Var) or not isinstance(a.type, TileType)
                        else found[a.name] if a.name in found else self.tiles[a.name].fits for a in op.args
                    ])  # fmt: skip
        return found.get(name, ())

    def _may_overwrite(self, name: str, axes: Places) -> bool:
        """Whether a variable that the nest reads can be written in place: read at the same indices, not later."""
        when = [k for k, s in enumerate(_segments(self.nest)) for step in s
                if isinstance(step, (Write, Accumulate)) and _kept_name(step) == name]  # fmt: skip
        if any(isinstance(step, Accumulate) and step.name == name for s in _segments(self.nest) for step in s):
            return False
        for source in self.nest.sources:
            if source.name == name and (source.axes != axes or source.until > min(when, default=0)):
                return False
        return True

    def _finish(self) -> None:
        w = self.w
        for result in self.nest.results:
            var = self.types[result.name]
            if result.scalar:
                if result.late is not None:
                    slot, dtype = self.late[result.name]
                    w.define(var, from_memory(w.b, w.b.load(slot, typ=storage_type(dtype)), dtype))
                else:
                    assert isinstance(var.type, ScalarType)
                    assert self.writer is not None and result.ref is not None
                    w.define(var, self.writer.scalar(result.ref))
            elif var.name in w.mutable:
                if var.name in self.final:
                    set_valid(w, w.env[var.name], self.final[var.name])
            else:
                w.env[var.name] = self.final[var.name]
        for var, tile in self.copies:
            assign_tile(w, var, tile)

    # -- running --------------------------------------------------------------------------------------------------

    def _inputs(self, streams: dict[int, Any]) -> Inputs:
        """What the nest takes; the numbers among it in the order of their names."""
        nest = self.nest
        read = [a for segments in (nest.rows, nest.stages) for steps in segments for s in steps for a in arguments(s)]
        read += [r.ref for r in nest.results]
        numbers = {a.name: a for a in read if isinstance(a, Var)}
        scalars = {name: self.w.scalar(numbers[name]) for name in sorted(numbers)}
        flat, total = self._flat(self.nest, self.extents, self.memory)
        return Inputs(self.extents, self.memory, scalars, streams, flat, total, self.longest)

    def _flat(self, nest: Nest, extents: tuple[Index, ...], memory: dict[Any, Strided]) -> tuple[Any, Index]:
        """Whether a nest can run as one long row: nothing but elements, all of its memory contiguous.

        A single row is one already: it is taken apart only where workers can share it.
        """
        code = self.code
        if not nest.flat or nest.rank == 0 or (nest.rank == 1 and self.w.parallel):
            return False, 0
        if any(r.scalar and r.late is None for r in nest.results):
            return False, 0
        conditions: list[bool | Value] = []
        for step in nest.stages[0]:
            if isinstance(step, Position):
                return False, 0
            if isinstance(step, (Read, Write)) and not isinstance(step.place, RowBuffer):
                strides = {a: s for s, a in zip(memory[step.place].strides, step.axes, strict=True) if a is not None}
                if len(strides) < nest.rank:
                    return False, 0
                size: Index = step.dtype.bytes
                for axis in reversed(range(nest.rank)):
                    stride = strides[axis]
                    if isinstance(stride, int) and isinstance(size, int):
                        if stride != size:
                            return False, 0
                    elif axis == nest.rank - 1:
                        return False, 0
                    else:
                        conditions.append(code.compare("==", stride, size))
                    if axis:
                        size = code.mul(size, extents[axis])
        return code.all_of(conditions), code.mul(*extents)

    def _run(self, streams: dict[int, Any]) -> None:
        inputs = self._inputs(streams)
        if self.w.table is not None:
            from pto_jit.targets.cpu.strips import write_row  # for loops over accumulators only

            write_row(self.w, inputs, self.w.table)
            return
        if self._small(inputs):
            self._run_small(inputs)
            return
        other = turned(self.code, self.fused, self.nest, inputs) if self.w.vectors else None
        if other is None:
            self.writer = self._write(self.nest, inputs)
            return

        def first_axis_inside() -> Sequence[Value]:
            assert other is not None
            flat, total = self._flat(other.nest, other.inputs.extents, other.inputs.memory)
            with self.w.passing():
                for result in other.nest.results:
                    if result.late is not None and not result.scalar:
                        self._identity(result, self.final[result.name])
                self._write(other.nest, replace(other.inputs, flat=flat, total=total))
            return ()

        def last_axis_inside() -> Sequence[Value]:
            with self.w.passing():
                self._write(self.nest, inputs)
            return ()

        self.code.choose(other.when, first_axis_inside, last_axis_inside)

    def _small(self, inputs: Inputs) -> bool:
        """Whether rows of a tile are short and known but for what of it lies inside of the tensors.

        Masks, and what longer rows gain from, cost more than the work then.
        """
        whole = [e for e in self.whole if e is not None]
        if not self.w.vectors or inputs.flat is True or len(whole) < self.nest.rank or inputs.extents == self.whole:
            return False
        if any(r.scalar and r.late is None for r in self.nest.results):
            return False
        dtypes = [s.dtype.bytes for stage in self.nest.stages for s in stage if not isinstance(s, Position)]
        return math.prod(whole) <= SMALL and whole[-1] * max(dtypes, default=1) <= SHORT

    def _run_small(self, inputs: Inputs) -> None:
        """The nest for a whole tile, all of it constants, and for parts of one."""
        code, whole = self.code, tuple(e for e in self.whole if e is not None)
        conditions = [code.compare("==", have, all_) for have, all_ in zip(inputs.extents, whole, strict=True)]
        part = replace(inputs, flat=False, total=0, streams={})

        def write(inputs: Inputs) -> Sequence[Value]:
            with self.w.passing():
                self.w.write_nest(self.fused, self.nest, inputs, None)
            return ()

        code.choose(code.all_of(conditions), lambda: write(replace(part, extents=whole)), lambda: write(part))

    def _write(self, nest: Nest, inputs: Inputs) -> NestWriter:
        divided = self._accumulated(nest) if self._divisible(inputs) else None
        return self.w.write_nest(self.fused, nest, inputs, divided)

    def _accumulated(self, nest: Nest) -> list[tuple[Result, Index]]:
        """The results that all rows of a nest contribute to, with their numbers of elements."""
        late = [r for r in nest.results if r.late is not None]
        return [(r, 1 if r.scalar else self.code.mul(*self._declared(r.name))) for r in late]

    def _divisible(self, inputs: Inputs) -> bool:
        """Whether the rows may and should be divided among the workers."""
        if self.w.parallel or self.nest.rank == 0 or (self.nest.rank == 1 and inputs.flat is False):
            return False
        if any(r.scalar and r.late is None for r in self.nest.results):
            return False  # a number of the one row
        total = self.code.mul(*self.extents)
        return not (isinstance(total, int) and total < DIVIDE)


def _segments(nest: Nest) -> list[Any]:
    out: list[Any] = [nest.rows[0]]
    for stage, row in zip(nest.stages, nest.rows[1:], strict=True):
        out += [stage, row]
    return out


def _kept_name(step: Write | Accumulate) -> str | None:
    if isinstance(step, Accumulate):
        return step.name
    return step.place.name if isinstance(step.place, Kept) else None
