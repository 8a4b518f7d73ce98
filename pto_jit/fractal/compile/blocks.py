# SPDX-License-Identifier: MIT
"""Cells that do not read each other, so many at a time as the rows of tiles: those of a map, also of one inside of a
nest that runs in order, and what is computed of the inputs of a nest before it.

The results lie in the order of the loops, and so do the rows.  A block of rows is an iteration of a parallel loop.
What it reads is read where it lies if that is in the same order; else it is gathered to rows of memory first.  The
first loops may choose operands that the rows of a block share; then blocks end where one of these loops goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tensor, Tile, static_extent
from pto_jit.fractal.compile.batching import Batch, NotBatchable, demanded, row_extents
from pto_jit.fractal.compile.expr import Expr, Symbol, Writer, binary, number, of, operand
from pto_jit.fractal.compile.layout import allocate, laid_out, with_loop
from pto_jit.fractal.compile.lists import Access, Array, Choose, Compute, Dim, Leaf, Read, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.nest import Nest, depends_on
from pto_jit.fractal.compile.sequential import Sequential, name_of, variable_of
from pto_jit.ir.nodes import For, If, LoopKind, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

OWN_ROWS = "each iteration writes rows of its own"
UNKNOWN = 64  # elements along an axis whose extent is a run-time value
AT_ONCE = 256
"""Rows of products of a block: so many read the right operand once, and stay in caches with what becomes of them."""


Result = tuple[Scalar | Tile, Array, tuple[Expr, ...]]


@frozen(eq=False)
class Work:
    """What each index of `dims` computes of what it reads.

    body: reads, integers and operations; results: values, the arrays that they are elements of, and where, which is at
    the indices of `dims` behind those of the loops around; chosen: how many of the loops choose operands that the cells
    of a block share; at_once: the rows of a block; inner: the kind of the loops inside of the outermost one.
    """

    dims: tuple[Dim, ...]
    body: tuple[Any, ...]
    results: tuple[Result, ...]
    chosen: int = 0
    at_once: int = AT_ONCE
    inner: LoopKind = "sequential"

    @property
    def reads(self) -> list[ReadLeaf]:
        return [i for i in self.body if isinstance(i, ReadLeaf)]

    @property
    def is_inside(self) -> bool:
        """Whether there are loops around."""
        return len(self.results[0][2]) > len(self.dims)

    @property
    def own_dims(self) -> tuple[Dim, ...]:
        """Those of the cells of a group."""
        return self.dims[self.chosen :]

    @property
    def inner_dims(self) -> tuple[Dim, ...]:
        """Those whose cells are the rows of blocks."""
        return self.own_dims

    def shares(self, item: ReadLeaf) -> bool:
        """Whether the cells of a block all read the same."""
        return not depends_on(item.read, [d.symbol for d in self.inner_dims])


def work_of(nest: Nest) -> Work:
    """The cells of a nest that carries nothing.  Raises NotBatchable when they cannot be rows of blocks."""
    symbols = nest.symbols
    dims = dims_of(nest)
    results = results_of(nest, dims)
    wanted = demanded(nest.cell)
    shared = [i.read for i in nest.cell if isinstance(i, ReadLeaf) and name_of(i.value) in wanted]
    choosing = set().union(*(depends_on(read, symbols) for read in shared))
    choosing |= {s for i in nest.cell if isinstance(i, Compute) for s in i.expr.symbols() if s in symbols}
    chosen = 1 + max((symbols.index(s) for s in choosing), default=-1)
    if not any(isinstance(i, Op) and i.op == "dot" for i in nest.cell):
        chosen = _without_gathering(nest, dims, chosen)
    inner = set(symbols[chosen:])
    if not inner:
        raise NotBatchable("every loop chooses shared operands")
    if chosen and any(loop.length.symbols() & inner for loop in nest.loops):
        raise NotBatchable("the length of a loop depends on one whose cells would be rows")
    body = tuple(i for i in nest.cell if not isinstance(i, WriteLeaf))
    high = max((rows_of_product(i) for i in nest.cell if isinstance(i, Op) and i.op == "dot"), default=1)
    return Work(dims, body, results, chosen, max(AT_ONCE // high, 1))


def _without_gathering(nest: Nest, dims: Sequence[Dim], first: int) -> int:
    """How many loops, at least `first`, choose what the cells of a block share so that the rest lies in the order of
    these: without a product, gathering it would take longer than the cells.  Raises NotBatchable where none do."""
    reads = [i.read for i in nest.cell if isinstance(i, ReadLeaf)]
    for chosen in range(first, len(dims)):
        inner = dims[chosen:]
        used = [read for read in reads if depends_on(read, [d.symbol for d in inner])]
        if all(reads_in_order(read, inner) for read in used):
            return chosen
    raise NotBatchable("what is read lies in another order than that of the loops")


def dims_of(nest: Nest) -> tuple[Dim, ...]:
    return tuple(Dim(loop.symbol, loop.length) for loop in nest.loops)


def results_of(nest: Nest, dims: Sequence[Dim]) -> tuple[Result, ...]:
    """What the cells of a map write.  Raises NotBatchable when it does not lie in the order of the loops."""
    own = tuple(map(of, nest.symbols))
    for w in nest.writes:
        alone = w.index == own and w.array.root is w.array and not w.array.folded
        if not alone and not lies_in_order(w.array.root, w.index, dims):
            raise NotBatchable("results lie in another order than that of the loops")
    return tuple((w.value, w.array.root, w.index) for w in nest.writes)


def rows_of_product(op: Op) -> int:
    """How many rows the left operand of a product has in one cell, as far as it is known."""
    kind = op.args[0].type
    shape = kind.shape if isinstance(kind, TileType) else ()
    return 1 if len(shape) < 2 else UNKNOWN if shape[-2] is None else shape[-2]


class Blocks:
    """Writes the cells of `work`: `prepare`, then `write`."""

    def __init__(self, g: Generator, work: Work) -> None:
        self.g = g
        self.e = g.e
        self.work = work
        self.plain = Sequential(g, set())
        self.gathered: dict[str, Tensor] = {}  # by a read: the rows of what does not lie in the order of the loops

    def prepare(self, writer: Writer) -> None:
        """Memory for the results, and for the rows of what does not lie in their order."""
        self.memory(writer)
        work = self.work
        for item in work.reads:
            if not work.shares(item) and not self._in_place(item.read):
                shape = [writer.expr(self.count(work.dims)), *row_extents(item.leaf.extents)]
                (var,) = self.e.op("alloc", shape, {"dtype": item.leaf.dtype}, hint="input_rows")
                self.gathered[name_of(item.value)] = Tensor(var, tuple(shape), self.e.loc)

    def memory(self, writer: Writer) -> None:
        """Memory for the results, unless they are in that of loops around."""
        if not self.work.is_inside:
            layout = laid_out(writer, self.work.dims, frozenset())
            for _, array, _ in self.work.results:
                allocate(writer, array, layout)

    def write(self, writer: Writer) -> None:
        for item in self.work.reads:
            if name_of(item.value) in self.gathered:
                self._gather(writer, item)
        self._level(writer, 0)

    def trial(self) -> None:
        """Write the operations of a block, to see whether they can be.  Raises NotBatchable."""
        rows: dict[str, Var] = {}
        once: dict[str, Operand] = {}
        block = self.e.push()
        try:
            for item in self.work.reads:
                name = name_of(item.value)
                if self.work.shares(item):
                    once[name] = variable_of(item.value)
                else:
                    shape = (None, *map(static_extent, row_extents(item.leaf.extents)))
                    rows[name] = self.e.fresh(name, TileType(item.leaf.dtype, shape))
            batch = Batch(self.e, self.e.fresh("cells", index(0).type), rows, once)
            batch.run(self.work.body)
            for value, *_ in self.work.results:
                batch.value(value)
        finally:
            self.e.pop(block)

    # -- rows ------------------------------------------------------------------------------------------------------

    @property
    def _own_row(self) -> Expr:
        """The row of the first result."""
        _, array, at = self.work.results[0]
        return array.layout.row(at)

    @property
    def _row_inside(self) -> Expr:
        """The row among those of all loops of the work."""
        own = self._own_row
        return own - own.replace(_zeros(self.work.dims)) if self.work.is_inside else own

    def count(self, dims: Sequence[Dim]) -> Expr:
        """How many rows the last loops of the work have."""
        if not self.work.is_inside and len(dims) == len(self.work.dims):
            return self.work.results[0][1].layout.rows
        symbols = {d.symbol for d in dims}
        if any(d.length.symbols() & symbols for d in dims):
            zeros = _zeros(dims)
            return self._own_row.replace({**zeros, dims[0].symbol: dims[0].length}) - self._own_row.replace(zeros)
        rows = number(1)
        for dim in dims:
            rows = rows * dim.length
        return rows

    def _in_place(self, read: Read) -> bool:
        """Whether the rows of a group lie one after the other in memory, or one of two such memories for all of it."""
        inner = self.work.inner_dims
        symbols = {d.symbol for d in inner}
        if isinstance(read, Choose):
            parts = read.then, read.otherwise
            return not read.condition.value.symbols() & symbols and all(map(self._in_place, parts))
        if not isinstance(read, Access):
            return False
        row = _row_of(read)
        beside = not (row - self._own_row).symbols() & symbols
        return beside or in_order(row, inner) or lies_in_order(read.array.root, read.index, inner)

    def _gather(self, writer: Writer, item: ReadLeaf) -> None:
        """Put the leaves of a read in the order of the loops."""
        dims = self.work.dims
        tensor = self.gathered[name_of(item.value)]
        inner = tensor.extents[1:]

        def level(w: Writer, k: int) -> None:
            if k < len(dims):
                kind = self.work.inner if k else "parallel"
                with_loop(w, dims[k], lambda w: level(w, k + 1), kind=kind, proof=OWN_ROWS)
                return
            value = self.plain.value_of(item.read, item.leaf, w)
            at = w.expr(self._row_inside)
            if isinstance(value, Scalar):
                self.e.op("setelem", [value.operand, tensor.var, at, index(0)])
                return
            (row,) = self.e.op("reshape", [value.var, index(1), *inner])
            self.e.op("store", [row, tensor.var, at, *(index(0) for _ in inner)], {"inside": True})

        level(writer, 0)

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _level(self, writer: Writer, k: int) -> None:
        """The loops that choose shared operands, around the blocks."""
        work = self.work
        if k < work.chosen:
            kind = work.inner if k else "parallel"
            with_loop(writer, work.dims[k], lambda w: self._level(w, k + 1), kind=kind, proof=OWN_ROWS)
            return
        e, rows, size = self.e, self.count(work.inner_dims), self.size(writer)
        count = writer.expr(rows)
        blocks = writer.expr(binary("floordiv", rows + operand(size) - 1, operand(size)))
        block = e.fresh("block", index(0).type)
        with e.block() as body:
            start = writer.op("mul", block, size)
            self.block(writer, start, writer.op("min", size, writer.op("sub", count, start)))
        kind = work.inner if work.chosen else "parallel"
        proof = OWN_ROWS if kind == "parallel" else ""
        e.append(For(kind, block, index(0), blocks, index(1), tuple(body), loc=e.loc, proof=proof))

    def size(self, writer: Writer) -> Operand:
        """The rows of a block."""
        return index(self.work.at_once)

    def block(self, writer: Writer, start: Operand, count: Operand) -> None:
        """Rows [start, start + count) of a group."""
        work = self.work
        rows: dict[str, Var] = {}
        once: dict[str, Operand] = {}
        for item in work.body:
            if isinstance(item, Compute):
                self.plain.assign(item.var, writer.expr(item.expr))
            elif isinstance(item, ReadLeaf) and work.shares(item):
                once[name_of(item.value)] = variable_of(self.plain.value_of(item.read, item.leaf, writer))
            elif isinstance(item, ReadLeaf):
                rows[name_of(item.value)] = self._rows(writer, item, start, count)
        batch = Batch(self.e, count, rows, once)
        batch.run(work.body)
        for result in work.results:
            self.keep(writer, result, batch.value(result[0]), start, count)

    def keep(self, writer: Writer, result: Result, rows: Var, start: Operand, count: Operand) -> None:
        """Store the rows of a result from `start` on in the group."""
        _, array, at = result
        inner = array.leaf.extents
        if inner != row_extents(inner):
            (rows,) = self.e.op("reshape", [rows, count, *inner])
        first = writer.op("add", writer.expr(array.layout.row(at).replace(_zeros(self.work.own_dims))), start)
        self.e.op("store", [rows, array.tensor.var, first, *(index(0) for _ in inner)], {"inside": True})

    def _rows(self, writer: Writer, item: ReadLeaf, start: Operand, count: Operand) -> Var:
        """What the cells of a block read, as a tile."""
        gathered = self.gathered.get(name_of(item.value))
        if gathered is not None:
            return self._loaded(writer, gathered, self._row_inside, item.leaf, start, count)
        return self.read(writer, item.read, item.leaf, start, count)

    def read(self, writer: Writer, read: Read, leaf: Leaf, start: Operand, count: Operand) -> Var:
        """So many rows of what lies in order, from `start` on in the group."""
        e = self.e
        if isinstance(read, Choose):
            extents = (count, *row_extents(leaf.extents))
            rows = e.fresh("rows", TileType(leaf.dtype, (None, *map(static_extent, extents[1:]))))
            e.extents[rows.name] = extents
            condition = writer.condition(read.condition)
            with e.block() as then:
                self.plain.assign(rows, self.read(writer, read.then, leaf, start, count))
            with e.block() as otherwise:
                self.plain.assign(rows, self.read(writer, read.otherwise, leaf, start, count))
            e.append(If(condition, tuple(then), tuple(otherwise), e.loc))
            return rows
        assert isinstance(read, Access)
        root = read.array.root
        tensor = root.argument[0] if root.argument is not None else root.tensor
        return self._loaded(writer, tensor, _row_of(read), leaf, start, count)

    def _loaded(
        self, writer: Writer, tensor: Tensor, row: Expr, leaf: Leaf, start: Operand, count: Operand
    ) -> Var:  # fmt: skip
        """The rows of memory from that of the first cell of a group on, and from `start` on in the group."""
        begin = row.replace(_zeros(self.work.own_dims))
        first = writer.op("add", writer.expr(begin), start)
        zeros = [index(0)] * (tensor.rank - 1)
        part = view_of(self.g, tensor, [first, *zeros], [count, *tensor.extents[1:]], inside=True)
        rows = load_all(self.g, part).var
        inner = row_extents(leaf.extents)
        return rows if tuple(tensor.extents[1:]) == inner else self.e.op("reshape", [rows, count, *inner])[0]


def _zeros(dims: Sequence[Dim]) -> dict[Symbol, Expr]:
    return {d.symbol: number(0) for d in dims}


def _row_of(read: Access) -> Expr:
    root = read.array.root
    return read.index[0] if root.argument is not None else root.layout.row(read.index)


def reads_in_order(read: Read, dims: Sequence[Dim]) -> bool:
    """Whether what all indices of these loops read, in their order, lies one after the other."""
    if isinstance(read, Choose):
        decided = read.condition.value.symbols() & {d.symbol for d in dims}
        return not decided and all(reads_in_order(part, dims) for part in (read.then, read.otherwise))
    if not isinstance(read, Access):
        return False
    if read.array.root.argument is not None:
        return in_order(read.index[0], dims)
    return lies_in_order(read.array.root, read.index, dims)


def lies_in_order(array: Array, at: Sequence[Expr], dims: Sequence[Dim]) -> bool:
    """Whether the elements at `at`, over all indices of `dims` in their order, are one after the other because these
    are the last dimensions of the array."""
    around, own = tuple(at[: len(at) - len(dims)]), tuple(at[len(at) - len(dims) :])
    symbols = {d.symbol for d in dims}
    if array.argument is not None or own != tuple(of(d.symbol) for d in dims):
        return False
    if any(e.symbols() & symbols for e in around) or any(k >= len(around) for k in array.folded):
        return False
    mapping = {d.symbol: e for d, e in zip(array.dims, at, strict=True)}
    inside = array.dims[len(around) + 1 :]  # how long the first one is does not matter for the order
    return [d.length.replace(mapping) for d in inside] == [d.length for d in dims[1:]]


def in_order(row: Expr, dims: Sequence[Dim]) -> bool:
    """Whether the rows over all indices of `dims`, in their order, are one after the other.

    So it is when the last index goes on by 1, and the first row of the next index of a loop is the one behind the last
    row of this one, which shows in the expressions: `o[i] + j` for `j < o[i + 1] - o[i]`.
    """
    zeros: dict[Symbol, Expr] = {}
    behind: Expr | None = None
    for dim in reversed(dims):
        here = row.replace(zeros)
        if here.replace({dim.symbol: of(dim.symbol) + 1}) != (here + 1 if behind is None else behind):
            return False
        behind = here.replace({dim.symbol: dim.length})
        zeros[dim.symbol] = number(0)
    return True
