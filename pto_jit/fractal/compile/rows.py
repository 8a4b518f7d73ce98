# SPDX-License-Identifier: MIT
"""The plan "wavefront" with batches: gather the cells of a plane as rows, compute them at once, scatter the results.

The rows run over the batched loops in their order.  Along the innermost of them (the segment) what cells read and write
mostly lies one after the other, so that segments are copied at once, split where a condition (the first cell of a scan)
changes; what does not lie so is copied row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.codegen.emit import I64, constant, index
from pto_jit.codegen.values import Tensor, Tile, static_extent
from pto_jit.fractal.compile.batching import Batch, row_extents
from pto_jit.fractal.compile.copies import Buffer, Segment, target_of
from pto_jit.fractal.compile.dividing import Cut, Dividing
from pto_jit.fractal.compile.expr import Condition, Expr, Writer, number, of, operand
from pto_jit.fractal.compile.inputs import Product, products
from pto_jit.fractal.compile.lists import (
    Access,
    Choose,
    Compute,
    Filled,
    Read,
    ReadLeaf,
    WriteLeaf,
    replaced,
)
from pto_jit.fractal.compile.packing import Packed, Window
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.fractal.compile.strips import SPAN, Strips, can_have, kept, strips_of
from pto_jit.fractal.compile.wavefront import Cells, Planes
from pto_jit.ir.nodes import If, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import replace


class Rows(Dividing):
    """A nest whose cells are rows (with `write_rows`; with `write_cells` it is any nest).

    bases: where the rows of reads `beside` rings begin.
    """

    bases: dict[str, Var]

    def trial(self, planes: Planes, writer: Writer) -> None:
        """Write the operations of a batch, to see whether they can be.  Raises NotBatchable."""
        shared = self.shared(planes)
        rows: dict[str, Var] = {}
        once: dict[str, Operand] = {}
        count = self.e.fresh("cells", I64)
        for item in self.nest.cell:
            if isinstance(item, ReadLeaf):
                name = name_of(item.value)
                if name in shared:
                    once[name] = variable_of(item.value)
                else:
                    shape = (None, *(static_extent(x) for x in row_extents(item.leaf.extents)))
                    rows[name] = self.e.fresh(name, TileType(item.leaf.dtype, shape))
        batch = Batch(self.e, count, rows, once)
        batch.run(self.nest.cell)
        for item in self.nest.cell:
            if isinstance(item, WriteLeaf):
                batch.value(item.value)

    def write_rows(self, planes: Planes, writer: Writer) -> None:
        self.packed = True
        self.tables = {}
        self.lengths(planes, writer)
        room = groups = number(1)
        for k in planes.batch:
            room = room * planes.longest[k]
        for k in planes.group:
            groups = groups * planes.longest[k]
        self.room, self.groups = room, groups
        self.exact = bool(planes.batch) and self.is_exact(planes, planes.batch[-1])
        shared = self.shared(planes)
        self.products = products(self, planes, writer, shared)
        self.alone = {p.source: p for p in self.products.values() if p.alone}
        self.lent = self.lending(planes, shared)
        self.beside = self.gathered_beside(planes, shared)
        self.strips = self.strips_of(planes, writer)
        self.memory(planes, writer)
        self.buffers: dict[str, Buffer] = {}
        rows = writer.expr(groups * room)
        self.joined = self.concatenated(shared)
        for result, parts in self.joined.items():
            leaves = {name_of(i.value): i.leaf for i in self.nest.cell if isinstance(i, ReadLeaf)}
            widths = [number(0)]
            for part in parts:
                widths.append(widths[-1] + operand(row_extents(leaves[part].extents)[-1]))
            tensor = self.buffer([rows, writer.expr(widths[-1])], leaves[parts[0]], result)
            self.buffers[result] = Buffer(tensor, index(0))
            self.buffers |= {p: Buffer(tensor, writer.expr(w)) for p, w in zip(parts, widths[:-1], strict=True)}
        for item in self.nest.cell:
            name = _buffered(item, shared)
            if name is not None and name not in self.buffers and self.is_buffered(planes, item, name):
                leaf = item.leaf if isinstance(item, ReadLeaf) else item.array.root.leaf
                tensor = self.buffer([rows, *row_extents(leaf.extents)], leaf, name)
                self.buffers[name] = Buffer(tensor, index(0))
        for name, product in self.products.items():
            leaf = product.array.leaf
            self.buffers[name] = Buffer(self.buffer([rows, *leaf.extents], leaf, name), index(0))

        if planes.group:
            self.divide(planes, writer)
        if self.strips is None:
            self.planes(planes, writer, lambda w: self.step(planes, w, shared))
        else:
            steps = writer.expr(self.strips.steps)
            self.counted(writer, planes.strip, steps, lambda w: self.step(planes, w, shared))

    def strips_of(self, planes: Planes, writer: Writer) -> Strips | None:
        """How many planes of a group a worker has at a time."""
        from pto_jit.fractal.compile.cost import cell_of

        cell = cell_of(self.nest.cell, self.nest.symbols[-1]).in_order()
        return strips_of(planes, self.room, self.distances, cell, writer)

    @property
    def distances(self) -> list[tuple[Expr, ...]]:
        return [d for found in self.nest.exact.values() for d in found]

    def said(self, planes: Planes) -> str:
        """What planes are for the decision, besides their rows."""
        return f", narrow planes in strips of up to {SPAN}" if can_have(planes, self.distances) else ""

    def depth(self, planes: Planes, distances: Sequence[tuple[Expr, ...]], writer: Writer) -> Expr:
        least = super().depth(planes, distances, writer)
        if self.strips is None:
            return least
        return operand(writer.expr(kept(self.strips, least - 1, distances, planes.group[0])))

    def batch(self, planes: Planes, writer: Writer, shared: set[str], fixed: set[int], rows: Cut | None) -> None:
        e = self.e
        self.window = None
        count = self.each_segment(planes, writer, fixed, lambda w, segment: None)
        start = index(0) if rows is None else rows[0]
        stop = count if rows is None else e.op("min", [rows[1], count])[0]
        if rows is None:
            self.counts(planes, writer, count)
        else:
            self.guarded(writer.op("eq", start, index(0)), lambda: self.counts(planes, writer, count))
        self.window = Window(start, stop, stop if rows is None else e.op("sub", [stop, start])[0], count)
        self.guarded(writer.op("lt", start, stop), lambda: self.group(planes, writer, shared, fixed))

    def counts(self, planes: Planes, writer: Writer, rows: Operand) -> None:
        """Write down how many rows a batch has."""
        for depth, (_, counts) in self.tables.items():
            self.e.op("setelem", [rows, counts, writer.expr(self.batch_number(planes, depth, self.own(planes)))])

    def group(self, planes: Planes, writer: Writer, shared: set[str], fixed: set[int]) -> None:
        """One batch: the cells of a plane with one choice of the shared operands."""
        e = self.e
        own = self.own(planes)
        mapping = self.eliminated(planes)
        base = number(0)
        for k in planes.group:
            base = base * planes.longest[k] + of(self.nest.symbols[k])
        start = writer.expr(base * self.room)
        self.local = {name: replace(buffer, base=start) for name, buffer in self.buffers.items()}
        reads = [
            replace(i, read=replaced(i.read, mapping))
            for i in self.nest.cell
            if isinstance(i, ReadLeaf) and _buffered(i, shared)
        ]
        writes = [i for i in self.nest.cell if isinstance(i, WriteLeaf)]
        for item in writes:
            ring = planes.rings.get(id(item.array.root))
            if isinstance(ring, Packed):
                self.local[target_of(item)] = Buffer(ring.tensor, index(0), writer.expr(ring.base(own)))
        for name, root in self.beside.items():
            ring = planes.rings[id(root)]
            self.local[name] = Buffer(ring.tensor, index(0), writer.expr(ring.gathered(own)))
        once: list[tuple[Condition | None, bool, ReadLeaf, Read, Buffer]] = []  # reads where a condition is so
        plain: list[ReadLeaf] = []
        for item in reads:
            name = name_of(item.value)
            alone = self.alone.get(name)
            if alone is not None and alone.condition is None:
                continue
            choice = self.lent.get(name)
            if choice is not None:
                ring = planes.rings[id(choice.otherwise.array.root)]  # type: ignore[union-attr]
                lent = Buffer(ring.tensor, index(0), writer.expr(ring.lent(own)))
                if alone is None:
                    once.append((choice.condition, True, item, choice.then, lent))
            elif alone is not None:
                assert isinstance(item.read, Choose)
                once.append((item.read.condition, False, item, item.read.otherwise, self.local[name]))
            elif name in self.local:
                plain.append(item)
        for name, product in self.products.items():
            what = ReadLeaf(self.nest_value(name), replaced(product.index, mapping), product.array.leaf, e.loc)
            once.append((product.condition, True, what, what.read, self.local[name]))
        at_once = [i for i in plain if self.is_together(planes, i, own)]
        one_by_one = [i for i in plain if i not in at_once]
        conditions = {c: writer.condition(c) for c, *_ in once if c is not None}

        window = self.window
        assert window is not None

        def first_pass(w: Writer, segment: Segment) -> None:
            def begins() -> None:
                for depth, (starts, _) in self.tables.items():
                    e.op("setelem", [segment.row, starts, w.expr(self.segment_number(planes, depth, own))])

            if window.is_part and self.tables:
                self.guarded(e.op("ge", [segment.row, window.start])[0], begins)
            else:
                begins()
            self.gather(planes, w, segment, one_by_one)
            for condition, holds in dict.fromkeys((c, h) for c, h, *_ in once):
                with e.block() as block:
                    for c, h, item, read, buffer in once:
                        if (c, h) == (condition, holds):
                            self.copy_in(planes, w, segment, read, item.leaf, buffer)
                if condition is None:
                    e.current.extend(block)
                else:
                    e.append(If(conditions[condition], *((tuple(block), ()) if holds else ((), tuple(block))), e.loc))

        self.each_segment(planes, writer, fixed, first_pass)
        self.bases = {name: e.fresh("base", I64) for name in self.beside}
        for item in at_once:
            self.together(planes, writer, item.read, item, fixed)
        self.computed(planes, writer, shared, fixed, reads, window)

    def computed(
        self,
        planes: Planes,
        writer: Writer,
        shared: set[str],
        fixed: set[int],
        reads: Sequence[ReadLeaf],
        window: Window,
    ) -> None:
        """The results of a batch whose inputs have been gathered, and what becomes of them.

        The groups whose products are there already have code of their own: in that of the others a sum of products
        stays where it is computed.
        """
        gathered = self.local
        self.local = {name: self.part_of(buffer) for name, buffer in gathered.items()}
        condition = next((p.condition for p in self.products.values() if p.condition is not None), None)
        if condition is None:
            self.compute(planes, writer, shared, reads, window, {})
        else:
            cond = writer.condition(condition)
            with self.e.block() as then:
                self.compute(planes, writer, shared, reads, window, {condition: True})
            with self.e.block() as otherwise:
                self.compute(planes, writer, shared, reads, window, {condition: False})
            self.e.append(If(cond, tuple(then), tuple(otherwise), self.e.loc))
        self.local = gathered
        self.leave(planes, writer, fixed, self.own(planes))

    def nest_value(self, name: str) -> Tile:
        """The variable of a result of the cell."""
        var = next(v for i in self.nest.cell if isinstance(i, Op) for v in i.results if v.name == name)
        return Tile(var, self.e.extents_of(var) or ())

    def compute(
        self,
        planes: Planes,
        writer: Writer,
        shared: set[str],
        reads: Sequence[ReadLeaf],
        window: Window,
        known: dict[Condition, bool],
    ) -> None:
        """The operations of a batch; `known`: the conditions that hold or do not for its group."""
        e = self.e
        count = window.count
        own = self.own(planes)
        mapping = self.eliminated(planes)
        inside = {name for parts in self.joined.values() for name in parts}
        tiles = {name: self.rows_of(self.local[name], count, inside=True) for name in self.joined}
        rings: dict[str, Tensor] = {}  # the reads of rows in rings
        for item in reads:
            name = name_of(item.value)
            alone = self.alone.get(name)
            if name in inside or (alone is not None and self.is_there(alone, known)):
                continue
            if name in self.bases:
                rings[name] = self.local[name].tensor
                tiles[name] = self.rows_of(Buffer(rings[name], index(0), self.bases[name]), count, inside=True)
                continue
            choice = self.lent.get(name)
            at = self.in_place(planes, choice.otherwise if choice is not None else item.read, own)
            if at is None:
                tiles[name] = self.rows_of(self.local[name], count, inside=True)
                continue
            ring = planes.rings[id(at[0])]
            rings[name] = ring.tensor
            base = writer.expr(ring.base(at[1]))
            if choice is not None and alone is None:
                lent, holds = writer.expr(ring.lent(own)), known.get(choice.condition)
                base = self.either(writer.condition(choice.condition), lent, base) if holds is None else (
                    lent if holds else base)  # fmt: skip
            tiles[name] = self.rows_of(self.part_of(Buffer(ring.tensor, index(0), base)), count)
        once: dict[str, Operand] = {}
        cells = Cells(self.g, planes)
        for item in self.nest.cell:
            if isinstance(item, ReadLeaf) and name_of(item.value) in shared:
                var = e.fresh(name_of(item.value), variable_of(item.value).type)
                if item.leaf.extents:
                    e.extents[var.name] = item.leaf.extents
                cells.read(replaced(item.read, mapping), item.leaf, var, writer)
                once[name_of(item.value)] = var
            elif isinstance(item, Compute):  # of loops that all cells of the batch share
                self.plain.assign(item.var, writer.expr(item.expr.replace(mapping)))
        batch = Batch(e, count, tiles, once)
        ops = [i for i in self.nest.cell if isinstance(i, Op) and not _is(i, self.joined)]
        due = self.due(ops, rings)
        for k, op in enumerate([None, *ops]):
            product = self.products.get(op.results[0].name) if isinstance(op, Op) and op.results else None
            if product is not None and self.is_there(product, known):
                name = op.results[0].name  # type: ignore[union-attr]
                batch.rows[name] = self.rows_of(self.local[name], count, inside=True)
            elif op is not None:
                batch.run([op])
            for item in due.get(k, ()):
                self.keep(batch, item)

    def part_of(self, buffer: Buffer) -> Buffer:
        """The rows of the window."""
        window = self.window
        if window is None or not window.is_part:
            return buffer
        return replace(buffer, base=buffer.absolute(self.e, window.start))

    def is_there(self, product: Product, known: dict[Condition, bool]) -> bool:
        """Whether a product has been computed before the nest, for this group."""
        return product.condition is None or known[product.condition]

    def due(self, ops: Sequence[Any], rings: dict[str, Tensor]) -> dict[int, list[WriteLeaf]]:
        """The results by the number of operations after which they are stored: when they are there, and the rows of the
        same ring are not read any more, so that the loop that computes one can store it."""
        found: dict[int, list[WriteLeaf]] = {}
        for item in self.nest.cell:
            if not isinstance(item, WriteLeaf):
                continue
            tensor = self.local[target_of(item)].tensor
            wanted = {name for name, t in rings.items() if t is tensor}
            value = variable_of(item.value)
            own = value.name if isinstance(value, Var) else ""
            last = 0
            for k, op in enumerate(ops, 1):
                made = {v.name for v in getattr(op, "results", ())}
                if own in made or (isinstance(op, Op) and {a.name for a in op.args if isinstance(a, Var)} & wanted):
                    last = k
            found.setdefault(last, []).append(item)
        return found

    def keep(self, batch: Batch, item: WriteLeaf) -> None:
        """Store the rows of a result."""
        buffer = self.local[target_of(item)]
        buffer.store(self.e, batch.value(item.value), index(0))

    def either(self, condition: Operand, then: Operand, otherwise: Operand) -> Var:
        """One of two integers."""
        var = self.e.fresh("base", I64)
        with self.e.block() as first_block:
            self.plain.assign(var, then)
        with self.e.block() as second_block:
            self.plain.assign(var, otherwise)
        self.e.append(If(condition, tuple(first_block), tuple(second_block), self.e.loc))
        return var

    def leave(self, planes: Planes, writer: Writer, fixed: set[int], own: tuple[Expr, ...]) -> None:
        """Copy the rows of results that are read behind the nest to where they lie."""
        chosen = {self.nest.symbols[k] for k in planes.group} | {planes.plane}
        together: dict[tuple[int, ...], list[WriteLeaf]] = {}
        for item in self.nest.cell:
            if isinstance(item, WriteLeaf) and self.escaping(item.array.root):
                together.setdefault(item.array.root.folded, []).append(item)
        for folded, items in together.items():
            uniform = all(own[k].symbols() | self.nest.loops[k].length.symbols() <= chosen for k in folded)

            def every(w: Writer, segment: Segment, items: list[WriteLeaf] = items, uniform: bool = uniform) -> None:
                for item in items:
                    self.scatter(planes, w, segment, item, own, uniform)

            def copy(every: Callable[[Writer, Segment], None] = every) -> None:
                self.each_segment(planes, writer, fixed, every)

            if uniform:
                self.if_last(items[0].array.root, own, writer, copy)
            else:
                copy()

    def together(self, planes: Planes, writer: Writer, read: Read, item: ReadLeaf, fixed: set[int]) -> None:
        """Gather a read for a whole batch; one `beside` a ring says where its rows are.

        The cells that are read are in the nest where the conditions hold, so their batch has at least the rows of this
        one, in the same order: where it has as many, they are the same.
        """
        e, window = self.e, self.window
        assert window is not None
        buffer, base = self.part_of(self.local[name_of(item.value)]), self.bases.get(name_of(item.value))
        if isinstance(read, Choose):
            cond = writer.condition(read.condition)
            with e.block() as then:
                self.together(planes, writer, read.then, item, fixed)
            with e.block() as otherwise:
                self.together(planes, writer, read.otherwise, item, fixed)
            e.append(If(cond, tuple(then), tuple(otherwise), e.loc))
            return
        extents = row_extents(item.leaf.extents)
        if isinstance(read, Filled):
            rows = e.op("full", [constant(read.value, item.leaf.dtype), window.count, *extents])[0]
            buffer.store(e, rows, index(0))
            if base is not None:
                self.plain.assign(base, buffer.base)
            return
        assert isinstance(read, Access)
        ring = planes.rings[id(read.array.root)]
        (before,) = e.op("getelem", [ring.counts, writer.expr(self.batch_number(planes, ring.depth, read.index))])
        (same,) = e.op("eq", [before, window.rows])
        with e.block() as then:
            there = self.part_of(Buffer(ring.tensor, index(0), writer.expr(ring.base(read.index))))
            if base is not None:
                self.plain.assign(base, there.base)
            else:
                buffer.store(e, self.rows_of(there, window.count), index(0))
        with e.block() as otherwise:
            one = replace(item, read=read)
            self.each_segment(planes, writer, fixed, lambda w, s: self.gather(planes, w, s, [one]))
            if base is not None:
                self.plain.assign(base, buffer.base)
        e.append(If(same, tuple(then), tuple(otherwise), e.loc))


def _is(op: Op, results: dict[str, Any]) -> bool:
    return any(v.name in results for v in op.results)


def _buffered(item: Any, shared: set[str]) -> str | None:
    """The name of the buffer of a read or write whose leaves differ from cell to cell."""
    if isinstance(item, WriteLeaf):
        return target_of(item)
    if isinstance(item, ReadLeaf) and name_of(item.value) not in shared:
        return name_of(item.value)
    return None
