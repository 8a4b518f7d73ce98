# SPDX-License-Identifier: MIT
"""The batches of a plane divided into units of equal work, one after the other in one parallel loop.

A batch is the cells of a group (a layer) in a plane.  Groups differ in what a cell of them costs, and in how many cells
they have, so what is divided is the time of all of them, in their order: a unit is rows of the last part of one batch,
maybe whole batches, and rows of the first part of another one.  Workers begin with equal numbers of units one after
the other, so they get about the same rows, and the same operands (the weights of a layer), in the next plane.

How many units there are depends on the lengths alone, and so do results: never on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from pto_jit.codegen.emit import I64, index
from pto_jit.dtypes import i64
from pto_jit.fractal.compile.expr import Condition, Expr, Writer, binary, number, of, operand, pick
from pto_jit.fractal.compile.inputs import Product
from pto_jit.fractal.compile.placing import Placing
from pto_jit.fractal.compile.strips import Strips, each_plane
from pto_jit.fractal.compile.wavefront import Planes
from pto_jit.ir.nodes import For, If, Op, Operand, Var
from pto_jit.slotted import frozen

UNIT_ROWS = 64
"""Rows of a unit at least, where there are enough: with fewer, reading the right operand of a product would show."""
UNITS = (1, 2, 4, 8, 16, 24, 48)
"""How many units there may be, which most numbers of workers divide well; but at least one for each group."""
LEAST_ROWS = 60
"""A batch is not cut so that a part has fewer: products of few rows are other products."""
TILE_ROWS = 12
"""Batches are cut at multiples of this, which whole register tiles of a product fill."""
WORTH = 32_000.0
"""Nanoseconds of work that are worth another worker."""
WHOLE = 1 << 40
"""A row behind all rows of a batch."""

Cut = tuple[Operand, Operand]
Body = Callable[[Writer, set[int], Operand], None]


@frozen(eq=False)
class Division:
    """Memory for where the time of each group begins, and what that goes by, in tenths of nanoseconds.

    of_row: the time of a row of a group, by its index; of_unit: that of a unit at least; of_strip: that of a group
    where planes are narrow; narrow: whether they are.
    """

    starts: Var
    of_row: Expr
    of_unit: int
    of_strip: Expr
    narrow: Condition | None


class Dividing(Placing):
    """A nest whose cells are rows; `division`: of its planes, where several loops or lists choose shared operands."""

    division: Division
    products: dict[str, Product]
    strips: Strips | None = None

    def batch(self, planes: Planes, writer: Writer, shared: set[str], fixed: set[int], rows: Cut | None) -> None:
        """The rows of a batch between two cuts; None: all of it, which nothing else is beside."""
        raise NotImplementedError

    def divide(self, planes: Planes, writer: Writer) -> None:
        """Memory and weights for `step`."""
        from pto_jit.fractal.compile.cost import cell_of

        def time(items: Sequence[Any]) -> int:
            return max(1, round(10 * cell_of(items, self.nest.symbols[-1]).in_batch(UNIT_ROWS)))

        full = time(self.nest.cell)
        of_row = number(full)
        for condition in {p.condition for p in self.products.values() if p.condition is not None}:
            there = {name for name, p in self.products.items() if p.condition == condition}
            left = [i for i in self.nest.cell if not (isinstance(i, Op) and {v.name for v in i.results} & there)]
            of_row = pick(condition, number(time(left)), number(full))
        (starts,) = self.e.op("alloc", [writer.expr(self.groups + 1)], {"dtype": i64}, hint="starts")
        strips = self.strips
        of_strip = number(0) if strips is None else operand(writer.expr(strips.span * self.room * full))
        narrow = None if strips is None else Condition("positive", strips.span - 2)
        self.division = Division(starts, of_row, max(UNIT_ROWS * full, round(10 * WORTH / 4)), of_strip, narrow)

    def step(self, planes: Planes, writer: Writer, shared: set[str]) -> None:
        """The batches of a plane, or of a strip of planes of each group."""
        if not planes.group:
            self.batch(planes, writer, shared, set(), None)
            return
        e, division = self.e, self.division
        count, total = self.timed(planes, writer)
        few = operand(writer.op("floordiv", total, index(division.of_unit)))
        units = number(UNITS[0])
        for fewer, more in pairwise(UNITS):  # the greatest of them up to `few`
            units = units + binary("min", number(1), binary("floordiv", few, number(more))) * (more - fewer)
        units = binary("max", units, operand(count))
        if division.narrow is not None:
            units = pick(division.narrow, operand(count), units)
        many = writer.expr(units)
        worth = operand(many) * round(10 * WORTH)
        grain = binary("max", number(1), binary("floordiv", worth, binary("max", number(1), operand(total))))
        least = writer.expr(grain)
        unit = e.fresh(planes.piece.name, I64)
        with e.block() as block:
            self.unit(planes, writer, shared, unit, many, total)
        proof, loc = self.proof, self.nest.loops[0].loc
        e.append(For("parallel", unit, index(0), many, index(1), tuple(block), loc=loc, proof=proof, grain=least))

    def each_group(self, planes: Planes, writer: Writer, body: Body, only: Operand | None = None) -> Var:
        """`body` for the groups of a step with their number; gives how many there are.

        only: the number of the one group that a unit has where planes are narrow.
        """
        e, strips = self.e, self.strips
        count = e.fresh("group", I64)
        self.plain.assign(count, index(0))

        def level(w: Writer, left: tuple[int, ...], fixed: set[int]) -> None:
            if not left:
                here = self.now(count)
                body(w, fixed, here)
                self.plain.assign(count, w.op("add", here, index(1)))
                return
            first, *rest = left
            low, high = self.bounds(planes, first, fixed) if strips is None else strips.bounds()
            if strips is not None and only is not None:
                assert self.division.narrow is not None
                one = operand(writer.expr(low)) + operand(only)
                low, high = (pick(self.division.narrow, x, y) for x, y in ((one, low), (one + 1, high)))
                start = w.expr(low)
                self.plain.assign(count, w.op("sub", start, w.expr(strips.bounds()[0])))
            else:
                start = w.expr(low)
            symbol = self.nest.symbols[first]
            self.counted(w, symbol, w.expr(high), lambda w: level(w, tuple(rest), fixed | {first}), start=start)

        level(writer, planes.group, set())
        return count

    def timed(self, planes: Planes, writer: Writer) -> tuple[Var, Var]:
        """Write down where the time of each group begins; gives how many there are, and the time of all."""
        e, division, strips = self.e, self.division, self.strips
        total = e.fresh("time", I64)
        self.plain.assign(total, index(0))

        def one(w: Writer, fixed: set[int], group: Operand) -> None:
            e.op("setelem", [total, division.starts, group])
            more = e.fresh("more", I64)

            def by_rows() -> None:
                plane = {} if strips is None else {planes.plane: w.values[planes.strip]}  # strips are planes here
                self.window = None
                rows = self.each_segment(planes, w.but(plane), fixed, lambda w, segment: None)
                self.plain.assign(more, w.op("mul", rows, w.expr(division.of_row)))

            if division.narrow is None:
                by_rows()
            else:
                with e.block() as then:
                    self.plain.assign(more, w.expr(division.of_strip))
                with e.block() as otherwise:
                    by_rows()
                e.append(If(w.condition(division.narrow), tuple(then), tuple(otherwise), e.loc))
            self.plain.assign(total, e.op("add", [total, more])[0])

        count = self.each_group(planes, writer, one)
        e.op("setelem", [total, division.starts, count])
        return count, total

    def unit(
        self, planes: Planes, writer: Writer, shared: set[str], unit: Operand, many: Operand, total: Operand
    ) -> None:
        """What a worker does at a time."""
        e, strips = self.e, self.strips
        ends = [
            e.op("floordiv", [e.op("mul", [total, at])[0], many])[0] for at in (unit, e.op("add", [unit, index(1)])[0])
        ]

        def one(w: Writer, fixed: set[int], group: Operand) -> None:
            starts = self.division.starts
            first = e.op("getelem", [starts, group])[0]
            behind = e.op("getelem", [starts, w.op("add", group, index(1))])[0]
            row = w.expr(self.division.of_row)
            start, stop = self.cuts(ends, first, e.op("sub", [behind, first])[0], row)

            def batches() -> None:
                if strips is None:
                    self.batch(planes, w, shared, fixed, (start, stop))
                else:
                    (symbol,) = (self.nest.symbols[k] for k in planes.group)
                    each_plane(
                        strips, of(symbol), planes.plane, w, self.counted,
                        lambda w: self.batch(planes, w, shared, fixed, (start, stop)),
                    )  # fmt: skip

            self.guarded(e.op("lt", [start, stop])[0], batches)

        self.each_group(planes, writer, one, unit)

    def cuts(self, ends: Sequence[Operand], first: Operand, whole: Operand, row: Operand) -> list[Operand]:
        """The rows at which a batch is cut at the times `ends`: each 0, `WHOLE`, or far enough from both ends.

        first, whole: when the batch begins, and its time; row: that of a row.
        """

        def op(name: str, *args: Operand) -> Operand:
            return self.e.scalar(name, list(args)).operand

        tile, half = (op("mul", row, index(n)) for n in (TILE_ROWS, TILE_ROWS // 2))
        all_rows = op("floordiv", whole, row)

        def cut(at: Operand) -> Operand:
            past = op("sub", at, first)
            rows = op("mul", op("floordiv", op("add", past, half), tile), index(TILE_ROWS))
            few = op("lt", rows, index(LEAST_ROWS))
            ends = op("lt", op("sub", all_rows, rows), index(LEAST_ROWS))
            nearest = op("select", op("lt", op("add", past, past), whole), index(0), index(WHOLE))
            inside = op("select", ends, op("select", few, nearest, index(WHOLE)), op("select", few, index(0), rows))
            started = op("select", op("le", past, index(0)), index(0), inside)
            return op("select", op("ge", past, whole), index(WHOLE), started)

        return [cut(at) for at in ends]
