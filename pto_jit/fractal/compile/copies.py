# SPDX-License-Identifier: MIT
"""Rows of batches, copied from and to where leaves lie: segments at once, else row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import constant, index
from pto_jit.codegen.values import Tensor, Tile, static_extent
from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.expr import Binary, Expr, Symbol, Writer, binary, of, operand
from pto_jit.fractal.compile.layout import leaf_of, place
from pto_jit.fractal.compile.lists import (
    Access,
    Choose,
    Computed,
    Filled,
    Leaf,
    Read,
    ReadLeaf,
    WriteLeaf,
)
from pto_jit.fractal.compile.sequential import name_of
from pto_jit.fractal.compile.wavefront import Cells, Planes, Wavefront
from pto_jit.ir.nodes import If, Operand
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.slotted import field, frozen, replace

if TYPE_CHECKING:
    from pto_jit.codegen.emit import Emitter


@frozen(eq=False)
class Buffer:
    """Rows of one read or write: a tensor, from a column on (reads that are concatenated share one).

    base: the row at which those of the batch begin.
    """

    tensor: Tensor
    column: Operand
    base: Operand = field(default_factory=lambda: index(0))

    def absolute(self, e: Emitter, row: Operand) -> Operand:
        return e.op("add", [self.base, row])[0]

    def at(self, e: Emitter, row: Operand) -> list[Operand]:
        """The offsets of a row of the batch."""
        return [self.absolute(e, row), *([index(0)] * (self.tensor.rank - 2)), self.column]

    def store(self, e: Emitter, rows: Operand, row: Operand) -> None:
        """Store rows from a row of the batch on: these are there, and are read by the batch or in the next plane."""
        e.op("store", [rows, self.tensor.var, *self.at(e, row)], {"inside": True, "reused": True})


@frozen(eq=False)
class Segment:
    """Cells [low, high) of the segment loop, or a part of them; `symbol`: its index; that of row `row` is `first`."""

    symbol: Symbol
    low: Expr
    high: Expr
    row: Operand
    first: Expr

    def part(self, low: Expr, high: Expr) -> Segment:
        """Other cells of it."""
        return replace(self, low=low, high=high)


class Copies(Wavefront):
    """A nest whose cells are rows; `local`: the buffers of the batch that is being written."""

    local: dict[str, Buffer]

    def gather(self, planes: Planes, writer: Writer, segment: Segment, items: Sequence[ReadLeaf]) -> None:
        for item in items:
            self.copy_in(planes, writer, segment, item.read, item.leaf, self.local[name_of(item.value)])

    def copy_in(self, planes: Planes, writer: Writer, segment: Segment, read: Read, leaf: Leaf, buffer: Buffer) -> None:
        """The rows of a segment from where they are."""
        e = self.e
        low, high = segment.low, segment.high

        def part(read: Read, low: Expr, high: Expr) -> Callable[[], None]:
            return lambda: self.copy_in(planes, writer, segment.part(low, high), read, leaf, buffer)

        if isinstance(read, Choose):
            step = read.condition.value.coefficient(segment.symbol)
            if step == 0:
                cond = writer.condition(read.condition)
                with e.block() as then:
                    part(read.then, low, high)()
                with e.block() as otherwise:
                    part(read.otherwise, low, high)()
                e.append(If(cond, tuple(then), tuple(otherwise), e.loc))
                return
            if read.condition.kind == "zero" and step in (1, -1):
                at = (of(segment.symbol) * step - read.condition.value) * step
                before = binary("min", high, binary("max", low, at))
                after = binary("max", low, binary("min", high, at + 1))
                if at_least(low, at):
                    before = low
                else:
                    self.if_any(writer, low, before, part(read.otherwise, low, before))
                if at_most(high, at + 1):
                    after = high
                self.if_any(writer, before, after, part(read.then, before, after))
                if after != high:
                    self.if_any(writer, after, high, part(read.otherwise, after, high))
                return
        elif (
            isinstance(read, (Access, Filled, Computed))
            and leaf.extents
            and self.copy_at_once(planes, writer, segment, read, leaf, buffer)
        ):
            return
        cells = Cells(self.g, planes)
        self.row_by_row(planes, writer, segment, lambda w, row: self.store_row(buffer, row, cells, read, leaf, w))

    def if_any(self, writer: Writer, low: Expr, high: Expr, body: Callable[[], None]) -> None:
        start, stop = writer.expr(low), writer.expr(high)
        (some,) = self.e.op("lt", [start, stop])
        self.guarded(some, body)

    def row_by_row(
        self, planes: Planes, writer: Writer, segment: Segment, body: Callable[[Writer, Operand], None]
    ) -> None:
        start = writer.expr(segment.low)

        def one(w: Writer) -> None:
            past = w.op("sub", w.values[segment.symbol], writer.expr(segment.first))
            body(w, w.op("add", segment.row, past))

        if segment.symbol == planes.single:  # a segment of one cell, whose index is fixed
            body(writer, segment.row)
            return
        self.counted(writer, segment.symbol, writer.expr(segment.high), one, start=start)

    def store_row(self, buffer: Buffer, row: Operand, cells: Cells, read: Read, leaf: Leaf, writer: Writer) -> None:
        e = self.e
        var = e.fresh("cell", variable_of_type(leaf))
        cells.read(read, leaf, var, writer)
        if not leaf.extents:
            e.op("setelem", [var, buffer.tensor.var, *buffer.at(e, row)])
            return
        extents = row_extents(leaf.extents)
        (tile,) = e.op("reshape", [var, index(1), *extents])
        buffer.store(e, tile, row)

    def copy_at_once(
        self, planes: Planes, writer: Writer, segment: Segment, read: Read, leaf: Leaf, buffer: Buffer
    ) -> bool:
        """Rows that lie one after the other, or are all the same; False where neither is known."""
        e = self.e
        extents = row_extents(leaf.extents)
        count = writer.expr(segment.high - segment.low)
        target = writer.expr(operand(segment.row) + segment.low - segment.first)
        if isinstance(read, Filled):
            rows = e.op("full", [constant(read.value, leaf.dtype), count, *extents])[0]
            buffer.store(e, rows, target)
            return True
        if isinstance(read, Computed):
            assert isinstance(read.value, Tile)
            (one,) = e.op("reshape", [read.value.var, index(1), *extents])
            rows = e.op("broadcast_to", [one, count, *extents])[0]
            buffer.store(e, rows, target)
            return True
        assert isinstance(read, Access)
        ring = planes.rings.get(id(read.array.root))
        if segment.symbol == planes.single:
            tensor, row = self.source(planes, writer, read)
        else:
            root = read.array.root
            where = ring.row(read.index) if ring else read.index[0] if root.argument else root.layout.row(read.index)
            if where.coefficient(segment.symbol) != 1:
                return False
            at = where.replace({segment.symbol: segment.low})
            tensor = ring.tensor if ring else root.argument[0] if root.argument else root.tensor
            row = writer.expr(at)
        part = view_of(self.g, tensor, [row, *([index(0)] * (tensor.rank - 1))], [count, *tensor.extents[1:]])
        rows = load_all(self.g, part).var
        if tuple(tensor.extents[1:]) != extents:
            (rows,) = e.op("reshape", [rows, count, *extents])
        buffer.store(e, rows, target)
        return True

    def source(self, planes: Planes, writer: Writer, read: Access) -> tuple[Tensor, Operand]:
        ring = planes.rings.get(id(read.array.root))
        if ring is not None:
            return ring.tensor, writer.expr(ring.row(read.index))
        return place(writer, read.array, read.index)

    def scatter(
        self, planes: Planes, writer: Writer, segment: Segment, item: WriteLeaf, own: tuple[Expr, ...], uniform: bool
    ) -> None:
        """The rows of a segment to the memory behind the nest; `uniform`: they are known to be the last of folds."""
        root = item.array.root
        buffer = self.local[target_of(item)]
        if uniform:
            self.copy_out(planes, writer, segment, buffer, root.tensor, root.layout.row(own), root.leaf)
        else:
            self.if_last_row(planes, root, own, writer, segment, buffer)

    def if_last_row(
        self, planes: Planes, root: Any, at: tuple[Expr, ...], writer: Writer, segment: Segment, buffer: Buffer
    ) -> None:
        where = root.layout.row(at)
        varying = [k for k in root.folded if at[k].coefficient(segment.symbol) != 0]
        if not varying:
            self.if_last(
                root, at, writer, lambda: self.copy_out(planes, writer, segment, buffer, root.tensor, where, root.leaf)
            )
            return

        def one(w: Writer, row: Operand) -> None:
            self.if_last(root, at, w, lambda: self.copy_row(buffer, row, root.tensor, w.expr(where), root.leaf))

        self.row_by_row(planes, writer, segment, one)

    def copy_out(
        self, planes: Planes, writer: Writer, segment: Segment, buffer: Buffer, tensor: Tensor, where: Expr, leaf: Leaf
    ) -> None:
        e = self.e
        if leaf.extents and (segment.symbol == planes.single or where.coefficient(segment.symbol) == 1):
            count = writer.expr(segment.high - segment.low)
            row = writer.expr(
                where.replace({segment.symbol: segment.low}) if segment.symbol != planes.single else where
            )
            own = buffer.tensor
            zeros = [index(0)] * (own.rank - 1)
            source = writer.expr(operand(segment.row) + segment.low - segment.first)
            part = view_of(self.g, own, [buffer.absolute(e, source), *zeros], [count, *own.extents[1:]], inside=True)
            rows = load_all(self.g, part).var
            if tuple(own.extents[1:]) != tuple(tensor.extents[1:]):
                (rows,) = e.op("reshape", [rows, count, *tensor.extents[1:]])
            e.op("store", [rows, tensor.var, row, *([index(0)] * (tensor.rank - 1))], {"inside": True})
            return
        self.row_by_row(planes, writer, segment, lambda w, row: self.copy_row(buffer, row, tensor, w.expr(where), leaf))

    def copy_row(self, buffer: Buffer, row: Operand, tensor: Tensor, where: Operand, leaf: Leaf) -> None:
        e = self.e
        if not leaf.extents:
            (value,) = e.op("getelem", [buffer.tensor.var, *buffer.at(e, row)])
            e.op("setelem", [value, tensor.var, where])
            return
        tile = load_all(self.g, leaf_of(self.g, buffer.tensor, buffer.absolute(e, row), inside=True))
        (shaped,) = e.op("reshape", [tile.var, *leaf.extents])
        self.store(tensor, where, shaped, leaf)


def at_least(e: Expr, bound: Expr) -> bool:
    """Whether `e >= bound` shows in the expressions."""
    step = (e - bound).constant
    parts = _parts(e, "max")
    return (step is not None and step >= 0) or any(at_least(p, bound) for p in parts)


def at_most(e: Expr, bound: Expr) -> bool:
    """Whether `e <= bound` shows in the expressions."""
    step = (bound - e).constant
    parts = _parts(e, "min")
    return (step is not None and step >= 0) or any(at_most(p, bound) for p in parts)


def _parts(e: Expr, op: str) -> tuple[Expr, ...]:
    """The operands of a `min` or `max`."""
    if e.const or len(e.terms) != 1:
        return ()
    atom, times = e.terms[0]
    return (atom.left, atom.right) if isinstance(atom, Binary) and atom.op == op and times == 1 else ()


def variable_of_type(leaf: Leaf) -> Any:
    return (
        TileType(leaf.dtype, tuple(static_extent(x) for x in leaf.extents)) if leaf.extents else ScalarType(leaf.dtype)
    )


def target_of(item: WriteLeaf) -> str:
    return f"{item.array.root.name} written"
