# SPDX-License-Identifier: MIT
"""The plan "wavefront" with batches: gather the cells of a plane as rows, compute them at once, scatter the results.

The rows run over the batched loops in their order.  Along the innermost of them (the segment) what cells read and write
mostly lies one after the other, so that segments are copied at once, split where a condition (the first cell of a scan)
changes; what does not lie so is copied row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import I64, constant, index
from pto_jit.codegen.values import Tensor, static_extent
from pto_jit.dtypes import i64
from pto_jit.fractal.compile.batching import Batch, row_extents
from pto_jit.fractal.compile.copies import Buffer, Copies, Segment, name_of, target_of
from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, Writer, binary, number, of, operand
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Filled,
    Leaf,
    Read,
    ReadLeaf,
    WriteLeaf,
    replaced,
)
from pto_jit.fractal.compile.nest import depends_on
from pto_jit.fractal.compile.sequential import variable_of
from pto_jit.fractal.compile.wavefront import Cells, Planes, Wavefront
from pto_jit.ir.nodes import If, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    pass


@frozen(eq=False)
class Packed:
    """The last planes of an array, the cells of a batch one after the other.

    starts: per plane, group and index of the batched loops but the segment's, at which row of its batch a segment
    begins; counts: per plane and group, the rows of a batch.
    """

    rows: Rows
    planes: Planes
    depth: int
    tensor: Tensor
    starts: Var
    counts: Var

    def base(self, at: Sequence[Expr]) -> Expr:
        """The first row of the batch of a cell."""
        return self.rows.batch_number(self.planes, self.depth, at) * self.rows.room

    def row(self, at: Sequence[Expr]) -> Expr:
        """The row of a cell."""
        planes, rows = self.planes, self.rows
        start = of(Fetch(self.starts, (rows.segment_number(planes, self.depth, at),), fixed=False))
        if not rows.exact:
            return self.base(at) + start
        last = planes.batch[-1]
        fixed = {k for k in range(len(at)) if k not in (last, planes.eliminated)}
        low, _ = rows.bounds(planes, last, fixed)
        own = {rows.nest.symbols[k]: at[k] for k in fixed}
        low = low.replace({**own, planes.plane: rows.plane_of(planes, at)})
        return self.base(at) + start + at[last] - low


class Rows(Copies):
    """A nest whose cells are rows (with `write_rows`; with `write_cells` it is any nest)."""

    packed = False

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
        self.lengths(planes, writer)
        room = groups = number(1)
        for k in planes.batch:
            room = room * planes.longest[k]
        for k in planes.group:
            groups = groups * planes.longest[k]
        self.room, self.groups = room, groups
        self.exact = bool(planes.batch) and self.is_exact(planes, planes.batch[-1])
        self.memory(planes, writer)
        self.buffers: dict[str, Buffer] = {}
        shared = self.shared(planes)
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
            if name is not None and name not in self.buffers:
                leaf = item.leaf if isinstance(item, ReadLeaf) else item.array.root.leaf
                tensor = self.buffer([rows, *row_extents(leaf.extents)], leaf, name)
                self.buffers[name] = Buffer(tensor, index(0))

        def level(w: Writer, left: Sequence[int], fixed: set[int]) -> None:
            if not left:
                self.group(planes, w, shared, fixed)
                return
            first, *rest = left
            low, high = self.bounds(planes, first, fixed)
            start, stop = w.expr(low), w.expr(high)
            symbol = self.nest.symbols[first]
            self.counted(w, symbol, stop, lambda w: level(w, rest, fixed | {first}), start=start, kind="parallel")

        self.planes(planes, writer, lambda w: level(w, planes.group, set()))

    def ring(self, planes: Planes, root: Array, depth: int, writer: Writer) -> Any:
        if not self.packed:
            return Wavefront.ring(self, planes, root, depth, writer)
        shape = [writer.expr(self.groups * self.room * depth), *row_extents(root.leaf.extents)]
        tensor = self.buffer(shape, root.leaf, root.name)
        outer = number(depth)
        for k in planes.batch[:-1] if self.exact else planes.batch:
            outer = outer * planes.longest[k]
        (starts,) = self.e.op("alloc", [writer.expr(outer * self.groups)], {"dtype": i64}, hint="segments")
        (counts,) = self.e.op("alloc", [writer.expr(self.groups * depth)], {"dtype": i64}, hint="counts")
        return Packed(self, planes, depth, tensor, starts, counts)

    def plane_of(self, planes: Planes, at: Sequence[Expr]) -> Expr:
        plane = number(0)
        for c, x in zip(planes.h, at, strict=True):
            plane = plane + x * c
        return plane

    def batch_number(self, planes: Planes, depth: int, at: Sequence[Expr]) -> Expr:
        """Planes and groups in a row, the planes modulo `depth`."""
        number_ = binary("mod", self.plane_of(planes, at), number(depth))
        for k in planes.group:
            number_ = number_ * planes.longest[k] + at[k]
        return number_

    def segment_number(self, planes: Planes, depth: int, at: Sequence[Expr]) -> Expr:
        number_ = self.batch_number(planes, depth, at)
        for k in planes.batch[:-1] if self.exact else planes.batch:
            number_ = number_ * planes.longest[k] + at[k]
        return number_

    def own(self, planes: Planes) -> tuple[Expr, ...]:
        """The index of a cell, the eliminated one by the others."""
        mapping = self.eliminated(planes)
        return tuple(of(x).replace(mapping) for x in self.nest.symbols)

    def buffer(self, shape: list[Operand], leaf: Leaf, name: str) -> Tensor:
        (var,) = self.e.op("alloc", shape, {"dtype": leaf.dtype}, hint=f"{name}_rows")
        return Tensor(var, tuple(shape), self.e.loc)

    def concatenated(self, shared: set[str]) -> dict[str, list[str]]:
        """Concatenations along the last axis of reads that have no other use: they are gathered side by side."""
        reads = {
            name_of(i.value): i.leaf
            for i in self.nest.cell
            if isinstance(i, ReadLeaf) and len(row_extents(i.leaf.extents)) == 1 and i.leaf.extents
        }
        count = Counter(a.name for i in self.nest.cell if isinstance(i, Op) for a in i.args if isinstance(a, Var))
        count.update(v.name for i in self.nest.cell if isinstance(i, WriteLeaf) for v in [variable_of(i.value)])  # type: ignore[union-attr]
        found: dict[str, list[str]] = {}
        for item in self.nest.cell:
            if not isinstance(item, Op) or item.op != "concat":
                continue
            names = [a.name for a in item.args if isinstance(a, Var)]
            (result,) = item.results
            last = item.attr("axis") == len(self.e.extents_of(result) or ()) - 1
            if last and all(n in reads and n not in shared and count[n] == 1 for n in names):
                found[result.name] = names
        return found

    def shared(self, planes: Planes) -> set[str]:
        """The reads that do not differ from cell to cell of a batch."""
        chosen = {self.nest.symbols[k] for k in planes.group}
        return {
            str(getattr(variable_of(i.value), "name", ""))
            for i in self.nest.cell
            if isinstance(i, ReadLeaf) and depends_on(i.read, self.nest.symbols) <= chosen
        }

    def group(self, planes: Planes, writer: Writer, shared: set[str], fixed: set[int]) -> None:
        """One batch: the cells of a plane with one choice of the shared operands.

        What a condition over that choice alone decides (the input of the first layer) is decided around the batch.
        """
        chosen = {self.nest.symbols[k] for k in planes.group}
        conditions: dict[Condition, None] = {}
        for item in self.nest.cell:
            if isinstance(item, ReadLeaf) and isinstance(item.read, Choose):
                condition = item.read.condition
                if condition.value.symbols() and condition.value.symbols() <= chosen:
                    conditions[condition] = None
        if len(conditions) != 1:
            self.one_batch(planes, writer, shared, fixed, {})
            return
        (condition,) = conditions
        cond = writer.condition(condition)
        with self.e.block() as then:
            self.one_batch(planes, writer, shared, fixed, {condition: True})
        with self.e.block() as otherwise:
            self.one_batch(planes, writer, shared, fixed, {condition: False})
        self.e.append(If(cond, tuple(then), tuple(otherwise), self.e.loc))

    def one_batch(
        self, planes: Planes, writer: Writer, shared: set[str], fixed: set[int], known: dict[Condition, bool]
    ) -> None:
        e = self.e
        own = self.own(planes)
        mapping = self.eliminated(planes)
        base = number(0)
        for k in planes.group:
            base = base * planes.longest[k] + of(self.nest.symbols[k])
        first = writer.expr(base * self.room)
        self.local = {name: replace(buffer, base=first) for name, buffer in self.buffers.items()}
        reads = [
            replace(i, read=_decided(replaced(i.read, mapping), known))
            for i in self.nest.cell
            if isinstance(i, ReadLeaf) and _buffered(i, shared)
        ]
        writes = [i for i in self.nest.cell if isinstance(i, WriteLeaf)]
        for item in writes:
            ring = planes.rings.get(id(item.array.root))
            if isinstance(ring, Packed):
                self.local[target_of(item)] = Buffer(ring.tensor, index(0), writer.expr(ring.base(own)))
        inside = {name for parts in self.joined.values() for name in parts}
        direct = {
            name_of(i.value): ring
            for i in reads
            if name_of(i.value) not in inside
            for ring in [self.in_place(planes, i.read, own)]
            if ring is not None
        }
        gathered = [i for i in reads if name_of(i.value) not in direct]
        at_once = [i for i in gathered if self.is_together(planes, i, own)]
        one_by_one = [i for i in gathered if i not in at_once]
        rings = list({id(r): r for r in planes.rings.values() if isinstance(r, Packed)}.values())

        def first_pass(w: Writer, segment: Segment) -> None:
            for ring in rings:
                e.op("setelem", [segment.row, ring.starts, w.expr(self.segment_number(planes, ring.depth, own))])
            self.gather(planes, w, segment, one_by_one)

        count = self.each_segment(planes, writer, fixed, first_pass)
        for ring in rings:
            e.op("setelem", [count, ring.counts, writer.expr(self.batch_number(planes, ring.depth, own))])
        for item in at_once:
            self.together(planes, writer, item.read, item, count, fixed)
        (some,) = e.op("gt", [count, index(0)])

        def compute() -> None:
            names = [*self.joined, *(name_of(i.value) for i in gathered if name_of(i.value) not in inside)]
            tiles = {name: self.rows_of(self.local[name], count) for name in names}
            for name, (ring, at) in direct.items():
                tiles[name] = self.rows_of(Buffer(ring.tensor, index(0), writer.expr(ring.base(at))), count)
            once: dict[str, Operand] = {}
            cells = Cells(self.g, planes)
            for item in self.nest.cell:
                if isinstance(item, ReadLeaf) and name_of(item.value) in shared:
                    var = e.fresh(name_of(item.value), variable_of(item.value).type)
                    if item.leaf.extents:
                        e.extents[var.name] = item.leaf.extents
                    cells.read(replaced(item.read, mapping), item.leaf, var, writer)
                    once[name_of(item.value)] = var
            batch = Batch(e, count, tiles, once)
            batch.run([i for i in self.nest.cell if not (isinstance(i, Op) and _is(i, self.joined))])
            for item in writes:
                buffer = self.local[target_of(item)]
                e.op("store", [batch.value(item.value), buffer.tensor.var, *buffer.at(e, index(0))])
            leaving = [item for item in writes if self.escaping(item.array.root)]
            for item in leaving:
                self.leave(planes, writer, fixed, item, own)

        self.guarded(some, compute)

    def leave(self, planes: Planes, writer: Writer, fixed: set[int], item: WriteLeaf, own: tuple[Expr, ...]) -> None:
        """Copy the rows of a result that is read behind the nest to where it lies."""
        root = item.array.root
        chosen = {self.nest.symbols[k] for k in planes.group} | {planes.plane}

        def every(w: Writer, segment: Segment) -> None:
            self.scatter(planes, w, segment, item, own, uniform)

        def copy() -> None:
            self.each_segment(planes, writer, fixed, every)

        uniform = all(own[k].symbols() | self.nest.loops[k].length.symbols() <= chosen for k in root.folded)
        if uniform:
            self.if_last(root, own, writer, copy)
        else:
            copy()

    # -- reads of the same cells in an earlier plane ---------------------------------------------------------------

    def is_together(self, planes: Planes, item: ReadLeaf, own: Sequence[Expr]) -> bool:
        """Whether a read is of the same batched indices, whatever the cell: then often of the same rows."""
        chosen = {self.nest.symbols[k] for k in planes.group} | {planes.plane}
        read = item.read
        while isinstance(read, Choose):
            if not read.condition.value.symbols() <= chosen or not isinstance(read.then, Filled):
                return False
            read = read.otherwise
        ring = planes.rings.get(id(read.array.root)) if isinstance(read, Access) else None
        if not isinstance(read, Access) or not isinstance(ring, Packed) or not item.leaf.extents:
            return False
        groups = {self.nest.symbols[k] for k in planes.group}
        if any(loop.length.symbols() & groups for loop in self.nest.loops):
            return False
        return all(read.index[k] == own[k] for k in planes.batch)

    def together(
        self, planes: Planes, writer: Writer, read: Read, item: ReadLeaf, count: Operand, fixed: set[int]
    ) -> None:
        """Gather a read for a whole batch.

        The cells that are read are in the nest where the conditions hold, so their batch has at least the rows of this
        one, in the same order: where it has as many, they are the same.
        """
        e = self.e
        buffer = self.local[name_of(item.value)]
        if isinstance(read, Choose):
            cond = writer.condition(read.condition)
            with e.block() as then:
                self.together(planes, writer, read.then, item, count, fixed)
            with e.block() as otherwise:
                self.together(planes, writer, read.otherwise, item, count, fixed)
            e.append(If(cond, tuple(then), tuple(otherwise), e.loc))
            return
        extents = row_extents(item.leaf.extents)
        if isinstance(read, Filled):
            rows = e.op("full", [constant(read.value, item.leaf.dtype), count, *extents])[0]
            e.op("store", [rows, buffer.tensor.var, *buffer.at(e, index(0))])
            return
        assert isinstance(read, Access)
        ring = planes.rings[id(read.array.root)]
        (before,) = e.op("getelem", [ring.counts, writer.expr(self.batch_number(planes, ring.depth, read.index))])
        (same,) = e.op("eq", [before, count])
        with e.block() as then:
            rows = self.rows_of(Buffer(ring.tensor, index(0), writer.expr(ring.base(read.index))), count)
            e.op("store", [rows, buffer.tensor.var, *buffer.at(e, index(0))])
        with e.block() as otherwise:
            one = replace(item, read=read)
            self.each_segment(planes, writer, fixed, lambda w, s: self.gather(planes, w, s, [one]))
        e.append(If(same, tuple(then), tuple(otherwise), e.loc))

    def in_place(self, planes: Planes, read: Read, own: Sequence[Expr]) -> tuple[Packed, tuple[Expr, ...]] | None:
        """The ring of a read whose rows are those of another batch, in the same order, and where that is.

        So it is when the cell that is read differs in the loops that choose shared operands alone.
        """
        ring = planes.rings.get(id(read.array.root)) if isinstance(read, Access) else None
        if not isinstance(read, Access) or not isinstance(ring, Packed):
            return None
        chosen = {self.nest.symbols[k] for k in planes.group}
        others = [k for k in range(len(own)) if k not in planes.group]
        if any(read.index[k] != own[k] or self.nest.loops[k].length.symbols() & chosen for k in others):
            return None
        return ring, read.index

    def rows_of(self, buffer: Buffer, count: Operand) -> Var:
        """The rows of a buffer that one batch has, as a tile."""
        tensor = buffer.tensor
        zeros = [index(0)] * (tensor.rank - 1)
        part = view_of(self.g, tensor, [buffer.base, *zeros], [count, *tensor.extents[1:]])
        return load_all(self.g, part).var

    # -- segments --------------------------------------------------------------------------------------------------

    def each_segment(
        self, planes: Planes, writer: Writer, fixed: set[int], body: Callable[[Writer, Segment], None]
    ) -> Operand:
        """`body` for every segment of the batch, in order; gives the number of rows."""
        e = self.e
        row = e.fresh("row", I64)
        self.plain.assign(row, index(0))

        def advance(by: Operand) -> None:
            (new,) = e.op("add", [row, by])
            self.plain.assign(row, new)

        def one(w: Writer) -> None:
            single = Segment(planes.single, number(0), number(1), row)
            body(w, single)
            advance(index(1))

        def level(w: Writer, left: Sequence[int], fixed: set[int]) -> None:
            if not left:
                cond = self.inside(planes, w)
                if cond is None:
                    one(w)
                else:
                    self.guarded(cond, lambda: one(w))
                return
            k, *rest = left
            low, high = self.bounds(planes, k, fixed)
            start, stop = w.expr(low), w.expr(high)
            symbol = self.nest.symbols[k]
            if not rest and self.exact:
                (span,) = e.op("sub", [stop, start])
                (some,) = e.op("gt", [span, index(0)])
                if planes.eliminated is not None and planes.h[k] == 0:
                    inside = self.inside(planes, w)
                    assert inside is not None
                    some = e.op("and", [some, inside])[0]

                def segment() -> None:
                    body(w, Segment(symbol, operand(start), operand(stop), row))
                    advance(span)

                self.guarded(some, segment)
                return
            self.counted(w, symbol, stop, lambda w: level(w, rest, fixed | {k}), start=start)

        level(writer, planes.batch, fixed)
        return row

    def is_exact(self, planes: Planes, k: int) -> bool:
        """Whether the bounds of loop k, chosen last, leave no cell outside of the nest."""
        symbol = self.nest.symbols[k]
        return all(symbol not in loop.length.symbols() for loop in self.nest.loops) and planes.h[k] in (0, 1)


def _decided(read: Read, known: dict[Condition, bool]) -> Read:
    """Without the choice that `known` makes."""
    if isinstance(read, Choose) and read.condition in known:
        return _decided(read.then if known[read.condition] else read.otherwise, known)
    return read


def _is(op: Op, results: dict[str, Any]) -> bool:
    return any(v.name in results for v in op.results)


def _buffered(item: Any, shared: set[str]) -> str | None:
    """The name of the buffer of a read or write whose leaves differ from cell to cell."""
    if isinstance(item, WriteLeaf):
        return target_of(item)
    if isinstance(item, ReadLeaf) and name_of(item.value) not in shared:
        return name_of(item.value)
    return None
