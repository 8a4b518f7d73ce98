# SPDX-License-Identifier: MIT
"""Cells over all pairs of two lists whose products are of one element of each: the scores of attention, the matrix of
Gram, `ft.map(lambda a: ft.map(lambda b: a @ b.T, ys), xs)`.

Neither operand is the same for all cells of a block, but the left one depends on the outer loops alone and the right
one on the inner ones: over these, the columns, the right operands stand below each other as they lie in memory, and
exchanged they are the right operand of one product, whose rows are cells of the outer loops.  What depends on one side
alone is computed once for it, and spread where a value of a pair needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import static_extent
from pto_jit.dtypes import i64
from pto_jit.fractal.compile.batching import Batch, NotBatchable, demanded, row_extents
from pto_jit.fractal.compile.blocks import AT_ONCE, Blocks, Work, dims_of, reads_in_order, results_of, work_of
from pto_jit.fractal.compile.expr import Symbol, Writer, binary, number, operand
from pto_jit.fractal.compile.gathering import Gathering
from pto_jit.fractal.compile.lists import Compute, Dim, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.names import defined, uses
from pto_jit.fractal.compile.nest import Nest, depends_on
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.ir.nodes import If, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

PAIRS = 65_536
"""Pairs of a block at most, so that what is computed of them stays in the caches; but `FEWEST` rows."""
FEWEST = 8


@frozen(eq=False)
class Pairs(Work):
    """Work whose last loops, `columns`, choose the right operands of products, each once for all rows."""

    columns: tuple[Dim, ...] = ()

    @property
    def inner_dims(self) -> tuple[Dim, ...]:
        return self.dims[self.chosen : len(self.dims) - len(self.columns)]

    def side(self, item: ReadLeaf) -> tuple[Dim, ...]:
        """The loops that say what is read: those of the rows, of the columns, or both."""
        return self._side(depends_on(item.read, [d.symbol for d in self.own_dims]))

    def counted(self, item: Compute) -> tuple[Dim, ...]:
        """The loops that say what an integer is."""
        return self._side(item.expr.symbols())

    @property
    def sides(self) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        return self.inner_dims, self.columns

    def is_gathered(self, item: ReadLeaf, side: Sequence[Dim]) -> bool:
        """Whether what is read does not lie in the order of these loops."""
        return bool(side) and not reads_in_order(item.read, side)

    def parts(self) -> tuple[list[Any], list[Any], list[Any]]:
        """What is computed for each row, for each column, and for each pair."""
        found: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        sides: dict[str, tuple[Dim, ...]] = {}
        for item in self.body:
            used = {d.symbol for name in uses(item) for d in sides.get(name, ())}
            if isinstance(item, ReadLeaf):
                used |= {d.symbol for d in self.side(item)}
            elif isinstance(item, Compute):
                used |= item.expr.symbols()
            side = self._side(used)
            sides |= dict.fromkeys(defined(item), side)
            if side:
                found[self.sides.index(side) if side in self.sides else 2].append(item)
        return found

    def _side(self, used: set[Symbol]) -> tuple[Dim, ...]:
        rows, columns = (used & {d.symbol for d in dims} for dims in (self.inner_dims, self.columns))
        return (*(self.inner_dims if rows else ()), *(self.columns if columns else ()))


def cells_of(g: Generator, nest: Nest) -> Blocks:
    """What writes the cells of a nest that carries nothing as rows, or as pairs.  Raises NotBatchable."""
    try:
        blocks = Blocks(g, work_of(nest))
        blocks.trial()
    except NotBatchable as problem:
        with suppress(NotBatchable):
            blocks = PairBlocks(g, pairs_of(nest))
            blocks.trial()
            return blocks
        raise problem
    return blocks


def pairs_of(nest: Nest) -> Pairs:
    """The cells of a nest that carries nothing, as pairs.  Raises NotBatchable when they cannot be."""
    symbols = nest.symbols
    dims = dims_of(nest)
    results = results_of(nest, dims)
    wanted = demanded(nest.cell)
    reads = [i for i in nest.cell if isinstance(i, ReadLeaf)]
    choosing = set().union(*(depends_on(i.read, symbols) for i in reads if name_of(i.value) in wanted))
    first = len(dims)
    while first and symbols[first - 1] in choosing:
        first -= 1
    chosen = first
    while chosen and symbols[chosen - 1] not in choosing:
        chosen -= 1
    if first == len(dims):
        raise NotBatchable("every loop chooses shared operands")
    body = tuple(i for i in nest.cell if not isinstance(i, WriteLeaf))
    problems: list[str] = []
    for k in range(chosen, max(first, chosen + 1)):  # the fewer loops choose what a block shares, the more rows it has
        work = Pairs(dims, body, results, k, AT_ONCE, columns=dims[first:])
        problem = _problem(work)
        if problem is None:
            return work
        problems.append(problem)
    raise NotBatchable(problems[0])


def _problem(work: Pairs) -> str | None:
    """Why the cells cannot be pairs."""
    inner = {d.symbol for d in work.own_dims}
    if any(d.length.symbols() & inner for d in work.dims):
        return "the length of a loop depends on one whose cells would be rows"
    sides = [(i, work.side(i)) for i in work.reads]
    if any(work.is_gathered(i, side) and (len(side) > 1 or side not in work.sides) for i, side in sides):
        return "what is read lies in another order than that of the loops"
    if any(isinstance(i, Compute) and not _counts(work.counted(i), i) for i in work.body):
        return "a cell computes with its number"
    return None


def _counts(side: Sequence[Dim], item: Compute) -> bool:
    """Whether an integer goes on by the same from each row to the next, or from each column."""
    return not side or (len(side) == 1 and item.expr.coefficient(side[0].symbol) is not None)


class PairBlocks(Blocks):
    """Writes the cells of `Pairs`."""

    work: Pairs

    def prepare(self, writer: Writer) -> None:
        self.memory(writer)

    def trial(self) -> None:
        block = self.e.push()
        try:
            rows, columns = (self.e.fresh(name, index(0).type) for name in ("cells", "columns"))
            batch = PairBatch(self, rows, columns)
            for item in self.work.body:
                if isinstance(item, Compute) and self.work.counted(item):
                    rows_of = batch.of(self.work.counted(item)).rows
                    rows_of[item.var.name] = self.e.fresh("at", TileType(i64, (None, 1)))
                if not isinstance(item, ReadLeaf):
                    continue
                side = self.work.side(item)
                if not side:
                    batch.shared[name_of(item.value)] = variable_of(item.value)
                    continue
                shape = (None, *map(static_extent, row_extents(item.leaf.extents)))
                batch.of(side).rows[name_of(item.value)] = self.e.fresh("x", TileType(item.leaf.dtype, shape))
            batch.run(self.work.body)
            for value, *_ in self.work.results:
                batch.value(value)
        finally:
            self.e.pop(block)

    def size(self, writer: Writer) -> Operand:
        """The rows of a block: the lengths alone decide."""
        columns = operand(writer.expr(self.count(self.work.columns)))
        fitting = binary("floordiv", number(PAIRS), binary("max", columns, number(1)))
        return writer.expr(binary("max", number(FEWEST), binary("min", number(AT_ONCE), fitting)))

    def count(self, dims: Sequence[Dim]) -> Any:
        rows = number(1)
        for dim in dims:
            rows = rows * dim.length
        return rows

    def block(self, writer: Writer, start: Operand, count: Operand) -> None:
        e, columns = self.e, writer.expr(self.count(self.work.columns))
        with e.block() as body:
            self._pairs(writer, start, count, columns)
        e.append(If(writer.op("gt", columns, index(0)), tuple(body), (), e.loc))

    def _pairs(self, writer: Writer, start: Operand, count: Operand, columns: Operand) -> None:
        work = self.work
        batch = PairBatch(self, count, columns)
        pairs, gathering = batch.both.count, Gathering(self.g)
        for item in work.body:
            if isinstance(item, Compute):
                self._integer(writer, item, start, batch)
            elif isinstance(item, ReadLeaf):
                side, name = work.side(item), name_of(item.value)
                if not side:
                    batch.shared[name] = variable_of(self.plain.value_of(item.read, item.leaf, writer))
                    continue
                first = start if side == work.inner_dims else index(0)
                if side == work.own_dims and work.columns != work.own_dims:
                    first = writer.op("mul", start, columns)
                part = batch.of(side)
                if work.is_gathered(item, side):
                    lying = gathering.rows(writer, side[0].symbol, item.read, item.leaf, first, part.count)
                    part.rows[name] = load_all(self.g, lying).var
                else:
                    part.rows[name] = self.read(writer, item.read, item.leaf, first, part.count)
        batch.run(work.body)
        for result in work.results:
            self.keep(writer, result, batch.value(result[0]), writer.op("mul", start, columns), pairs)

    def _integer(self, writer: Writer, item: Compute, start: Operand, batch: PairBatch) -> None:
        """An integer, or the integers of the rows or the columns."""
        side = self.work.counted(item)
        if not side:
            self.plain.assign(item.var, writer.expr(item.expr))
            return
        (dim,) = side
        part = batch.of(side)
        first = index(0) if part is batch.right else start
        step = item.expr.coefficient(dim.symbol)
        assert step is not None
        (numbers,) = self.e.op("arange", [writer.but({dim.symbol: first}).expr(item.expr), index(step), part.count])
        part.rows[item.var.name] = self.e.op("reshape", [numbers, part.count, index(1)])[0]


class PairBatch:
    """Writes the operations of a cell for `rows` times `columns` cells; `shared`: what does not differ among these."""

    def __init__(self, blocks: PairBlocks, rows: Operand, columns: Operand) -> None:
        e = self.e = blocks.e
        self.work = blocks.work
        self.shared: dict[str, Operand] = {}
        both = e.scalar("mul", [rows, columns]).operand
        self.left, self.right, self.both = (Batch(e, n, {}, self.shared) for n in (rows, columns, both))
        self.turned: dict[str, Var] = {}  # what is a value of columns with its two axes exchanged
        self.spreads: dict[str, Var] = {}

    def of(self, side: Sequence[Dim]) -> Batch:
        """The batch of what depends on these loops."""
        if tuple(side) == self.work.columns:
            return self.right
        return self.left if tuple(side) == self.work.inner_dims else self.both

    def run(self, cell: Sequence[Any]) -> None:
        for item in cell:
            if isinstance(item, (ReadLeaf, Compute)):
                continue
            if not isinstance(item, Op):
                raise NotBatchable("the body has a branch or loop that is decided while it runs")
            self.operation(item)

    def operation(self, op: Op) -> None:
        values = [a for a in op.args if isinstance(a, Var)]
        parts = self.left, self.right, self.both
        of_left, of_right, of_both = ([v for v in values if v.name in part.rows] for part in parts)
        if op.op == "transpose" and of_right and op.attr("axes") == (1, 0):
            self.turned[op.results[0].name] = of_right[0]
        elif any(v.name in self.turned for v in values):
            self.product(op)
        elif of_both or (of_left and of_right):
            spread = {v.name: self.spread(v) for v in (*of_left, *of_right)}
            self.both.rows |= spread
            self.both.run([op])
            for name in spread:
                del self.both.rows[name]
        else:
            (self.right if of_right else self.left).run([op])

    def product(self, op: Op) -> None:
        """All products of a left operand of a row and a right one of a column."""
        left, right = op.args[:2]
        column = self.turned.get(right.name) if isinstance(right, Var) else None
        if op.op != "dot" or column is None or len(op.args) > 2:
            raise NotBatchable(f"`{op.op}` of values that differ from cell to cell")
        if left.name in self.right.rows.keys() | self.both.rows.keys() | self.turned.keys():  # type: ignore[union-attr]
            raise NotBatchable("a product whose right operand differs from cell to cell")
        if len(self.left.rest(left)) != 1:
            raise NotBatchable("a product of pairs whose left operand has several rows")
        columns = self.right.flat(self.right.rows[column.name], self.right.rest(column))
        (turned,) = self.e.op("transpose", [columns], {"axes": (1, 0)})
        (found,) = self.e.op("dot", [self.left.value_of(left), turned], dict(op.attrs))
        (result,) = op.results
        (rows,) = self.e.op("reshape", [found, self.both.count, *self.both.rest(result)])
        self.both.rows[result.name] = rows

    def spread(self, var: Var) -> Var:
        """A value of rows or of columns for each pair."""
        if var.name not in self.spreads:
            part, place = (self.left, 0) if var.name in self.left.rows else (self.right, 1)
            rest = part.rest(var)
            counts: list[Operand] = [index(1), index(1)]
            counts[place] = part.count
            (rows,) = self.e.op("reshape", [part.rows[var.name], *counts, *rest])
            (rows,) = self.e.op("broadcast_to", [rows, self.left.count, self.right.count, *rest])
            (self.spreads[var.name],) = self.e.op("reshape", [rows, self.both.count, *rest])
        return self.spreads[var.name]

    def value(self, value: Any) -> Var:
        """A result of the cell, as rows over all pairs."""
        var = variable_of(value)
        if isinstance(var, Var) and (var.name in self.left.rows or var.name in self.right.rows):
            return self.spread(var)
        if isinstance(var, Var) and var.name in self.turned:
            raise NotBatchable("`transpose` of values that differ from cell to cell")
        return self.both.value(value)
