# SPDX-License-Identifier: MIT
"""Where the rows of the cells of a plane are: batches and segments numbered, rings of packed planes.

A batch is the cells of a plane with one index of the loops that stay loops; its rows run over the batched loops in
their order.  Along the innermost of them (the segment) they are a range of indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Tensor
from pto_jit.dtypes import i64
from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.copies import Buffer, Copies, Segment
from pto_jit.fractal.compile.expr import Expr, Fetch, Writer, binary, number, of, operand
from pto_jit.fractal.compile.lists import Access, Array, Choose, Leaf, Read
from pto_jit.fractal.compile.wavefront import Planes, Wavefront
from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.slotted import frozen


@frozen(eq=False)
class Packed:
    """The last planes of an array, the cells of a batch one after the other.

    Behind the planes there may be rows for one batch per group, of inputs that are read like the rows of another group
    (lends), and as many of cells of other planes that are not together there.

    starts: per plane, group and index of the batched loops but the segment's, at which row of its batch a segment
    begins; counts: per plane and group, the rows of a batch.  Rings of as many planes share both.
    """

    rows: Packing
    planes: Planes
    depth: Expr
    tensor: Tensor
    lends: bool
    starts: Var
    counts: Var

    def base(self, at: Sequence[Expr]) -> Expr:
        """The first row of the batch of a cell."""
        return self.rows.batch_number(self.planes, self.depth, at) * self.rows.room

    def lent(self, at: Sequence[Expr]) -> Expr:
        """The first row of the inputs of a cell's group."""
        return self._behind(at, 0)

    def gathered(self, at: Sequence[Expr]) -> Expr:
        """The first row of what a cell's group gathers of other planes."""
        return self._behind(at, int(self.lends))

    def _behind(self, at: Sequence[Expr], place: int) -> Expr:
        number_ = number(0)
        for k in self.planes.group:
            number_ = number_ * self.planes.longest[k] + at[k]
        return (self.rows.groups * (self.depth + place) + number_) * self.rows.room

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


@frozen(eq=False)
class Window:
    """Rows [start, stop) of a batch of `rows`, `count` of them: what one worker computes."""

    start: Operand
    stop: Operand
    count: Operand
    rows: Operand

    @property
    def is_part(self) -> bool:
        """Whether it may be less than the batch."""
        return self.stop is not self.rows


class Packing(Copies):
    """A nest whose cells are rows.

    room: rows that one batch may have; groups: batches of a plane; window: the rows of the batch that is being written,
    None for all of them.  exact: a segment is a range of indices, else every
    cell is a segment.  tables: the starts and counts of rings, by their number of planes.  lent, beside: see
    `Placing.lending` and `Placing.gathered_beside`.
    """

    packed = False
    room: Expr
    groups: Expr
    exact: bool
    window: Window | None = None
    tables: dict[Expr, tuple[Var, Var]]
    lent: dict[str, Choose]
    beside: dict[str, Array]

    def ring(self, planes: Planes, root: Array, depth: Expr, writer: Writer) -> Any:
        if not self.packed:
            return Wavefront.ring(self, planes, root, depth, writer)
        lent = any(choice.otherwise.array.root is root for choice in self.lent.values())  # type: ignore[union-attr]
        planes_ = depth + lent + any(array is root for array in self.beside.values())
        shape = [writer.expr(self.groups * self.room * planes_), *row_extents(root.leaf.extents)]
        tensor = self.buffer(shape, root.leaf, root.name)
        outer = depth
        for k in planes.batch[:-1] if self.exact else planes.batch:
            outer = outer * planes.longest[k]
        if depth not in self.tables:
            (starts,) = self.e.op("alloc", [writer.expr(outer * self.groups)], {"dtype": i64}, hint="segments")
            (counts,) = self.e.op("alloc", [writer.expr(self.groups * depth)], {"dtype": i64}, hint="counts")
            self.tables[depth] = starts, counts
        return Packed(self, planes, depth, tensor, lent, *self.tables[depth])

    def plane_of(self, planes: Planes, at: Sequence[Expr]) -> Expr:
        plane = number(0)
        for c, x in zip(planes.h, at, strict=True):
            plane = plane + x * c
        return plane

    def batch_number(self, planes: Planes, depth: Expr, at: Sequence[Expr]) -> Expr:
        """Planes and groups in a row, the planes modulo `depth`."""
        number_ = binary("mod", self.plane_of(planes, at), depth)
        for k in planes.group:
            number_ = number_ * planes.longest[k] + at[k]
        return number_

    def segment_number(self, planes: Planes, depth: Expr, at: Sequence[Expr]) -> Expr:
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

    def in_place(self, planes: Planes, read: Read, own: Sequence[Expr]) -> tuple[Array, tuple[Expr, ...]] | None:
        """The array of a read whose rows are those of another batch, in the same order, and where that is.

        So it is when the cell that is read differs in the loops that choose shared operands alone.
        """
        if not isinstance(read, Access) or not self.nest.distances.get(id(read.array.root)):
            return None
        chosen = {self.nest.symbols[k] for k in planes.group}
        others = [k for k in range(len(own)) if k not in planes.group]
        if any(read.index[k] != own[k] or self.nest.loops[k].length.symbols() & chosen for k in others):
            return None
        return read.array.root, read.index

    def rows_of(self, buffer: Buffer, count: Operand, *, inside: bool = False) -> Var:
        """The rows of a buffer that one batch has, as a tile.  inside: there are such rows, whatever is computed."""
        tensor = buffer.tensor
        zeros = [index(0)] * (tensor.rank - 1)
        part = view_of(self.g, tensor, [buffer.base, *zeros], [count, *tensor.extents[1:]], inside=inside)
        return load_all(self.g, part).var

    # -- segments --------------------------------------------------------------------------------------------------

    def each_segment(
        self, planes: Planes, writer: Writer, fixed: set[int], body: Callable[[Writer, Segment], None]
    ) -> Operand:
        """`body` for every segment of the batch that has rows in the window, in order, cut to it; gives the number of
        rows of all segments."""
        e = self.e
        row = e.fresh("row", I64)
        self.plain.assign(row, index(0))

        def advance(by: Operand) -> None:
            (new,) = e.op("add", [row, by])
            self.plain.assign(row, new)

        window = self.window if self.window is not None and self.window.is_part else None

        def one(w: Writer) -> None:
            here = self.now(row)
            single = Segment(planes.single, number(0), number(1), here, number(0))
            if window is None:
                body(w, single)
            else:
                inside = e.op("and", [e.op("ge", [here, window.start])[0], e.op("lt", [here, window.stop])[0]])[0]
                self.guarded(inside, lambda: body(w, single))
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
                    here = self.now(row)
                    if window is None:
                        body(w, Segment(symbol, low, high, here, low))
                    else:
                        from_start, to_stop = (low - operand(here) + operand(x) for x in (window.start, window.stop))
                        first, last = binary("max", low, from_start), binary("min", high, to_stop)
                        cut = Segment(symbol, first, last, here, low)
                        self.if_any(w, first, last, lambda: body(w, cut))
                    advance(span)

                self.guarded(some, segment)
                return
            self.counted(w, symbol, stop, lambda w: level(w, rest, fixed | {k}), start=start)

        level(writer, planes.batch, fixed)
        return row

    def now(self, counter: Var) -> Var:
        """What a variable that is counted up is here, assigned once: arithmetic on it is written once."""
        value = self.e.fresh(f"{counter.name}_here", I64)
        self.e.append(Op("copy", (value,), (counter,), (), (), self.e.loc))
        return value

    def is_exact(self, planes: Planes, k: int) -> bool:
        """Whether the bounds of loop k, chosen last, leave no cell outside of the nest."""
        symbol = self.nest.symbols[k]
        return all(symbol not in loop.length.symbols() for loop in self.nest.loops) and planes.h[k] in (0, 1)
