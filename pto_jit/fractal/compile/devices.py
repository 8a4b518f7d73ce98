# SPDX-License-Identifier: MIT
"""The plan "wavefront" for a GPU: a plane is one launch, whose blocks have pieces of a few rows.  So are the cells of a
map with products, which are one plane, and those that compute what a nest reads of its inputs alone.

A piece is as many rows as a block multiplies at a time, so that the extents of its tiles have a bound that is known
when the kernel is written, and so that a plane of some hundred cells keeps a device busy.  Where a piece begins does
not depend on the number of rows.  The next plane is the next launch: the order of a stream is the barrier between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Tensor
from pto_jit.fractal.compile.batching import NotBatchable, row_extents
from pto_jit.fractal.compile.blocks import Work
from pto_jit.fractal.compile.copies import Buffer, Segment
from pto_jit.fractal.compile.expr import Expr, Symbol, Writer, binary, number
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Array, Leaf, Read
from pto_jit.fractal.compile.nest import Nest
from pto_jit.fractal.compile.packing import Window
from pto_jit.fractal.compile.rows import Rows
from pto_jit.fractal.compile.wavefront import Planes
from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import TileType
from pto_jit.semantic.table import is_elementwise
from pto_jit.slotted import replace

PIECE = 16
"""Rows of a piece: those of the fragments of a warp, so that the columns of a product are divided among the warps."""

BLOCK = 4 * PIECE
"""Rows of a block of a map, and columns where these do not depend on each other: with so many of both it waits for its
multiply-adds rather than for what it reads."""

NO_PRODUCT = "the cell has no product"

MOST = 64 * 256
"""Sums of a product that a block keeps in registers without running short of them."""


def needs_planes(nest: Nest) -> str:
    """Why the cells of a nest are better in order; "" where they are better as rows.

    Tiles whose extents are known only when the program runs are not given more rows: they might not fit a block then.
    """
    ops = [item for item in nest.cell if isinstance(item, Op)]
    if all(op.op != "dot" for op in ops):
        return NO_PRODUCT
    if any(None in tile.shape for op in ops for tile in _tiles(op)):
        return "extents of tiles are known when the program runs"
    return ""


def in_blocks(nest: Nest, work: Work) -> Work:
    """The cells of a map as rows of as many blocks as a device should have.  Raises NotBatchable where they are better
    in order, a block each: the tiles of a cell that has several rows have work for the threads of a block.
    """
    reason = needs_planes(nest)
    if reason:
        raise NotBatchable(reason)
    leaves = [i.leaf for i in work.reads if not work.shares(i)] + [array.leaf for _, array, _ in work.results]
    if any(len(row_extents(leaf.extents)) > 1 for leaf in leaves):
        raise NotBatchable("a cell has several rows")
    return for_device(work)


def for_device(work: Work) -> Work:
    """The same in blocks of so many rows as leave registers for the widest result of a product, but no more than still
    keep a device busy; all loops are the grid.  Operands go through shared memory in slices, and blocks divide the
    columns, too, where these do not depend on each other."""
    ops = [item for item in work.body if isinstance(item, Op)]
    products = [op for op in ops if op.op == "dot"]
    computed = {r.name for op in ops for r in op.results}
    apart = all(is_elementwise(op.op) or op.op in ("copy", "load", "reshape") for op in ops if op.op != "dot")
    apart = apart and not any(isinstance(op.args[0], Var) and op.args[0].name in computed for op in products)
    widths = [kind.shape[-1] or MOST for op in products if isinstance(kind := op.results[0].type, TileType)]
    apart = apart and all(n % BLOCK == 0 for n in widths)
    rows = BLOCK if apart else min(BLOCK, MOST // max(widths, default=1) // PIECE * PIECE)
    return replace(work, at_once=max(PIECE, rows), inner="parallel")


def is_better_apart(maps: Sequence[tuple[Nest, bool]]) -> tuple[bool, str]:
    """Whether a nest is better without what maps compute of its inputs, with whether their cells can be rows; why.

    Steps that wait for each other are what a nest takes on a device.  A product that moves makes each of them shorter,
    and is one launch of as many blocks as there are rows for, if its cells can be rows.
    """
    if all(needs_planes(nest) == NO_PRODUCT for nest, _ in maps):
        return False, "no product is among it, and it would go through memory"
    if any(not rows and needs_planes(nest) != NO_PRODUCT for nest, rows in maps):
        return False, "its cells would not be rows of products, and go through memory"
    return True, "rows of products, which no step of the nest waits for"


def _tiles(op: Op) -> list[TileType]:
    return [v.type for v in (*op.args, *op.results) if isinstance(v.type, TileType)]


class DeviceRows(Rows):
    """A nest whose cells are rows, for a device whose launches are the planes."""

    measuring = False

    def prepare(self, symbol: Callable[[str], Symbol], *, batched: bool) -> Planes:
        if any(len(self.around(k)) > 1 for k in range(len(self.nest.loops))):
            raise NoSchedule("the host would look for the longest list of lists of lists")
        if any(loop.chains is not None for loop in self.nest.loops):
            raise NoSchedule("the host would look for the largest dilation")
        return super().prepare(symbol, batched=batched)

    def lengths(self, planes: Planes, writer: Writer) -> None:
        self.measuring = True
        super().lengths(planes, writer)
        self.measuring = False

    def kind_of_loop(self, kind: str) -> str:
        return "combine" if self.measuring else kind  # the threads of a block share it

    def strips_of(self, planes: Planes, writer: Writer) -> None:
        """A plane is a launch."""

    def gathered_beside(self, planes: Planes, shared: set[str]) -> dict[str, Array]:
        """Blocks copy the rows of a product to shared memory anyway."""
        return {}

    def said(self, planes: Planes) -> str:
        return ""

    def pieces(self) -> Expr:
        return binary("max", number(1), binary("floordiv", self.room + (PIECE - 1), number(PIECE)))

    def before(self, work: Work) -> Work:
        return for_device(work)

    def divide(self, planes: Planes, writer: Writer) -> None:
        """A block has a piece of a batch."""

    def step(self, planes: Planes, writer: Writer, shared: set[str]) -> None:
        pieces = writer.expr(self.pieces())

        def level(w: Writer, left: Sequence[int], fixed: set[int]) -> None:
            if not left:
                self.piece(planes, w, shared, fixed)
                return
            first, *rest = left
            low, high = self.bounds(planes, first, fixed)
            symbol = self.nest.symbols[first]
            start, stop = w.expr(low), w.expr(high)
            if fixed:
                self.counted(w, symbol, stop, lambda w: level(w, rest, fixed | {first}), start=start, kind="parallel")
                return
            # the first pieces of all batches first
            width = w.op("sub", stop, start)

            def one(w: Writer) -> None:
                unit = w.values[planes.piece]
                at = w.op("add", start, w.op("mod", unit, width))
                level(w.but({symbol: at, planes.piece: w.op("floordiv", unit, width)}), rest, fixed | {first})

            self.counted(w, planes.piece, w.op("mul", width, pieces), one, kind="parallel")

        if planes.group:
            level(writer, planes.group, set())
        else:
            self.counted(writer, planes.piece, pieces, lambda w: self.piece(planes, w, shared, set()), kind="parallel")

    def piece(self, planes: Planes, writer: Writer, shared: set[str], fixed: set[int]) -> None:
        """A piece of a batch: the rows from its number times `PIECE` on."""
        e = self.e
        self.window = None
        rows = self.each_segment(planes, writer, fixed, lambda w, segment: None)
        piece = writer.values[planes.piece]
        self.guarded(writer.op("eq", piece, index(0)), lambda: self.counts(planes, writer, rows))
        start = e.op("mul", [piece, index(PIECE)])[0]
        count = e.op("min", [index(PIECE), e.op("sub", [rows, start])[0]])[0]
        stop = e.op("add", [start, count])[0]
        self.window = Window(start, stop, count, rows)
        self.guarded(writer.op("lt", start, rows), lambda: self.group(planes, writer, shared, fixed))

    # -- copies of at most a piece ---------------------------------------------------------------------------------

    def copy_at_once(
        self, planes: Planes, writer: Writer, segment: Segment, read: Read, leaf: Leaf, buffer: Buffer
    ) -> bool:
        return super().copy_at_once(planes, writer, _bounded(segment), read, leaf, buffer)

    def copy_out(
        self, planes: Planes, writer: Writer, segment: Segment, buffer: Buffer, tensor: Tensor, where: Expr, leaf: Leaf
    ) -> None:
        super().copy_out(planes, writer, _bounded(segment), buffer, tensor, where, leaf)


def _bounded(segment: Segment) -> Segment:
    """The same cells, in expressions that say that they are at most as many as a piece has."""
    count = binary("min", number(PIECE), segment.high - segment.low)
    return segment.part(segment.low, segment.low + count)
