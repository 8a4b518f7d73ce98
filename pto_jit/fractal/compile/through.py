# SPDX-License-Identifier: MIT
"""A map whose cells have loops of their own, many cells at a time: the rows of tiles go through these loops together.

`ft.map(lambda window: ft.reduce(add, ft.map(lambda p: p[0] @ p[1], ft.zip(window, kernel))), windows)`: an iteration of
the inner loop multiplies the words of all windows at one place by the part of the kernel for it, which is one product.
A state is a tile of rows, and what is written goes to the elements of all cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import I64, constant, index
from pto_jit.codegen.values import Tensor, static_extent
from pto_jit.fractal.compile.batching import Batch, NotBatchable, demanded, row_extents
from pto_jit.fractal.compile.blocks import OWN_ROWS, reads_in_order
from pto_jit.fractal.compile.expr import Expr, Writer, binary, number, operand
from pto_jit.fractal.compile.gathering import Gathering
from pto_jit.fractal.compile.layout import extent
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Compute,
    Computed,
    Dim,
    Filled,
    Leaf,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
    sources,
)
from pto_jit.fractal.compile.sequential import Sequential, accessed, has_effects, name_of, own_records, variable_of
from pto_jit.fractal.compile.weighted import Weighted, weighted
from pto_jit.ir.nodes import For, If, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

AT_ONCE = 64
"""Rows of products of a block: reading the right operand hardly shows, and workers have several of a short list."""


def flat(items: Sequence[Any]) -> Iterator[Any]:
    """The records and operations of bodies, those of loops and branches in their places."""
    for item in items:
        if isinstance(item, Loop):
            yield from flat(item.body)
        elif isinstance(item, If):
            yield from flat(item.then)
            yield from flat(item.orelse)
        else:
            yield item


class Through:
    """Writes the iterations of `loop`, a map around loops, as rows; `kept`: the arrays that are read from memory.

    Raises NotBatchable where they cannot be rows.
    """

    def __init__(self, g: Generator, loop: Loop, kept: set[int]) -> None:
        self.g = g
        self.e = g.e
        self.loop = loop
        self.symbol = loop.symbol
        self.plain = Sequential(g, set())
        self.kept = kept
        self.carriers: dict[int, Var] = {}  # states that are tiles of rows
        self._check()
        block = self.e.push()
        try:
            self._block(None, index(0), self.e.fresh("cells", I64))
        finally:
            self.e.pop(block)

    def _check(self) -> None:
        loop, items = self.loop, list(flat(self.loop.body))
        if has_effects(loop.body):
            raise NotBatchable("a cell acts on something besides lists")
        inner = list(loops(loop.body))
        computed = [i.expr for i in items if isinstance(i, Compute)]
        if any(self.symbol in x.symbols() for x in (*(i.length for i in inner), *computed)):
            raise NotBatchable("what a cell does depends on its number")
        if any(i.chains is not None or i.schedule != "auto" or i.tile is not None for i in inner):
            raise NotBatchable("a loop of a cell asks for a plan")
        reads = [i for i in items if isinstance(i, ReadLeaf)]
        wanted = demanded(items)
        if any(name_of(i.value) in wanted and self._differs(i.read) for i in reads):
            raise NotBatchable("a product whose right operand differs from cell to cell")
        states = [i.state for i in reads if i.state is not None]
        if any(not a.temporary or a.elements is not None for a in states):
            raise NotBatchable("the states of a cell are read from memory")
        made = {id(i.array.root) for i in items if isinstance(i, WriteLeaf)} - {id(a.root) for a in states}
        if any(id(a) in made for i in reads for a in accessed(i.read)):
            raise NotBatchable("a cell makes a list and reads it")

    def _differs(self, read: Read) -> bool:
        return any(self.symbol in e.symbols() for e in expressions(read))

    # -- blocks ----------------------------------------------------------------------------------------------------

    def write(self, writer: Writer) -> None:
        e, size = self.e, self.at_once()
        count = writer.expr(self.loop.length)
        blocks = writer.expr(binary("floordiv", self.loop.length + (size - 1), number(size)))
        block = e.fresh("block", I64)
        with e.block() as body:
            start = writer.op("mul", block, index(size))
            self._block(writer, start, writer.op("min", index(size), writer.op("sub", count, start)))
        e.append(For("parallel", block, index(0), blocks, index(1), tuple(body), loc=e.loc, proof=OWN_ROWS))

    def at_once(self) -> int:
        """The rows of a block: fewer where the left operands of products have several."""
        ops = [i for i in flat(self.loop.body) if isinstance(i, Op) and i.op == "dot"]
        high = [static_extent((self.e.extents_of(op.args[0]) or ())[-2]) or AT_ONCE for op in ops  # type: ignore[arg-type]
                if len(self.e.extents_of(op.args[0]) or ()) > 1]  # type: ignore[arg-type]  # fmt: skip
        return max(AT_ONCE // max(high, default=1), 1)

    def _block(self, writer: Writer | None, start: Operand, count: Operand) -> None:
        """Rows [start, start + count); without a writer only what their operations are."""
        self.start, self.count = start, count
        self.gathering = Gathering(self.g)
        self.hidden: set[str] = set()  # what loops and branches made
        self.batch = Batch(self.e, count, {}, {})
        self._items(self.loop.body, writer)

    def _items(self, items: Sequence[Any], writer: Writer | None) -> None:
        pending: list[tuple[Var, Operand]] = []
        for item in items:
            match item:
                case Loop():
                    self._inner(item, writer)
                case ReadLeaf():
                    self._read_leaf(item, writer)
                case WriteLeaf():
                    carrier = self.carriers.get(id(item.array))
                    if carrier is not None:
                        pending.append((carrier, self._value(item.value)))
                    else:
                        self._stored(item, self._value(item.value), writer)
                case Compute():
                    if writer is not None:
                        self.plain.assign(item.var, writer.expr(item.expr))
                case If():
                    self._branch(item, writer)
                case Op():
                    self._seen(item.args)
                    self.batch.run([item])
                case _:
                    raise NotBatchable("the body has a loop that is decided while it runs")
        self.plain.together(pending)

    def _apart(self, items: Sequence[Any], writer: Writer | None) -> list[Any]:
        """The statements of a block, whose values are not seen behind it."""
        rows, shared = dict(self.batch.rows), dict(self.batch.shared)
        with self.e.block() as block:
            self._items(items, writer)
        for before, now in ((rows, self.batch.rows), (shared, self.batch.shared)):
            if any(now[name] is not value for name, value in before.items()):
                raise NotBatchable("a variable is assigned on several paths")
            self.hidden |= now.keys() - before.keys()
        self.batch.rows, self.batch.shared = rows, shared
        return block

    def _seen(self, values: Sequence[Operand]) -> None:
        """Refuse what a branch or loop made, behind it."""
        if any(isinstance(v, Var) and v.name in self.hidden for v in values):
            raise NotBatchable("a value of a branch is used behind it")

    def _value(self, value: Any) -> Var:
        self._seen([variable_of(value)])
        return self.batch.value(value)

    def _branch(self, item: If, writer: Writer | None) -> None:
        if isinstance(item.cond, Var) and item.cond.name in self.batch.rows:
            raise NotBatchable("the body has a branch that is decided while it runs")
        self._seen([item.cond])
        cond = self.batch.shared.get(item.cond.name, item.cond) if isinstance(item.cond, Var) else item.cond
        then, otherwise = (self._apart(block, writer) for block in (item.then, item.orelse))
        self.e.append(If(cond, tuple(then), tuple(otherwise), item.loc))

    def _inner(self, loop: Loop, writer: Writer | None) -> None:
        e = self.e
        added = added_up(self.loop, loop)
        if added is not None:
            self._added_up(added, writer)
            self._leave(loop, writer)
            return
        for item in own_records(loop.body):
            if isinstance(item, ReadLeaf) and item.state is not None:
                self._carry(item, writer)
        var = e.fresh(loop.symbol.name, I64)
        inside = None if writer is None else writer.but({loop.symbol: var})
        block = self._apart(loop.body, inside)
        stop = index(1) if writer is None else writer.expr(loop.length)
        e.append(For("sequential", var, index(0), stop, index(1), tuple(block), loc=loop.loc))
        self._leave(loop, writer)

    def _leave(self, loop: Loop, writer: Writer | None) -> None:
        """Store the last states of all rows that are read from memory behind their loop, if it had an iteration."""
        with self.e.block() as block:
            for item in _last_states(loop, self.kept):
                at = tuple(x.replace({loop.symbol: loop.length - 1}) for x in item.index)
                self._stored(replace(item, index=at), self.carriers[id(item.array)], writer)
        if block and writer is not None:
            some = writer.op("gt", writer.expr(loop.length), index(0))
            self.e.append(If(some, tuple(block), (), loop.loc))

    def _added_up(self, found: Weighted, writer: Writer | None) -> None:
        """The sums of all rows: one product of matrices."""
        e = self.e
        for item in own_records(found.loop.body):
            if isinstance(item, ReadLeaf) and item.state is not None:
                self._carry(item, writer)
        state = self.carriers[id(found.state)]
        if writer is None:
            return
        count = writer.expr(found.loop.length)
        with e.block() as block:
            inside = writer.but({self.symbol: self.start})
            factors = found.numbers(self.g, self.count, count, inside)
            (total,) = e.op("dot", [factors, found.matrix(self.g, count, inside)])
            rest = row_extents(found.leaf.extents)
            (total,) = e.op("reshape", [total, self.count, *rest])
            self.plain.assign(state, total if found.started else e.op("add", [state, total])[0])
        some = writer.op("gt", count, index(0))
        e.append(If(some, tuple(block), (), found.loop.loc))

    def _carry(self, item: ReadLeaf, writer: Writer | None) -> None:
        """A tile for the rows of a state, with their initial values."""
        assert item.state is not None and isinstance(item.read, Choose)
        extents = (self.count, *row_extents(item.leaf.extents))
        var = self.e.fresh("state", TileType(item.leaf.dtype, (None, *map(static_extent, extents[1:]))))
        self.e.extents[var.name] = extents
        self.carriers[id(item.state)] = var
        self.plain.assign(var, self._rows(item.read.then, item.leaf, writer))

    # -- leaves ----------------------------------------------------------------------------------------------------

    def _read_leaf(self, item: ReadLeaf, writer: Writer | None) -> None:
        name = name_of(item.value)
        for array in (item.state, item.final):
            if array is not None and id(array) in self.carriers:
                self.batch.rows[name] = self.carriers[id(array)]
                return
        if self._differs(item.read) or _named(item.read) & self.batch.rows.keys():
            self.batch.rows[name] = self._rows(item.read, item.leaf, writer)
        elif writer is None:
            self.batch.shared[name] = variable_of(item.value)
        else:
            self.batch.shared[name] = variable_of(self.plain.value_of(item.read, item.leaf, writer))

    def _rows(self, read: Read, leaf: Leaf, writer: Writer | None) -> Var:
        """What is read for each row."""
        rest = row_extents(leaf.extents)
        if isinstance(read, Computed):
            var = variable_of(read.value)
            if not isinstance(var, Var) or var.type.dtype != leaf.dtype:  # type: ignore[union-attr]
                raise NotBatchable("a state starts from a number")
            return self._value(read.value)
        if isinstance(read, Filled):
            return self.e.op("full", [constant(read.value, leaf.dtype), self.count, *rest])[0]
        if _named(read) & (self.batch.rows.keys() | self.hidden):
            raise NotBatchable("cells read parts of what they compute")
        if writer is None:
            return self.e.fresh("x", TileType(leaf.dtype, (None, *map(static_extent, rest))))
        if not self._differs(read):
            return self.batch.value(self.plain.value_of(read, leaf, writer))
        if not isinstance(read, Access) or self._stride(read.array.root, read.index) is None:
            part = self.gathering.rows(writer, self.symbol, read, leaf, self.start, self.count)
        else:
            part = self._part(read.array.root, read.index, writer)
        return self.e.op("reshape", [load_all(self.g, part).var, self.count, *rest])[0]

    def _stored(self, item: WriteLeaf, rows: Var, writer: Writer | None) -> None:
        """Put what each row writes to its place."""
        root = item.array.root
        if self._stride(root, item.index) is None:
            raise NotBatchable("what cells write does not lie at a constant distance")
        if writer is None:
            return
        if root.leaf.extents != row_extents(root.leaf.extents):
            (rows,) = self.e.op("reshape", [rows, self.count, *root.leaf.extents])
        part = self._part(root, item.index, writer)
        self.e.op("store", [rows, part.var, *([index(0)] * part.rank)], {"inside": True})

    def _stride(self, root: Array, at: Sequence[Expr]) -> Expr | None:
        """How many rows behind each other the leaves of neighbours are; None where that is not the same for all."""
        if root.argument is not None:
            return number(1) if at[0].coefficient(self.symbol) == 1 else None
        places = [k for k, x in enumerate(at) if self.symbol in x.symbols()]
        if len(places) != 1 or at[places[0]].coefficient(self.symbol) != 1 or places[0] in root.folded:
            return None
        (own,) = places
        inner = root.dims[own + 1 :]
        if any(d.length.symbols() & {x.symbol for x in root.dims[own:]} for d in inner):
            return None
        mapping = {d.symbol: x for d, x in zip(root.dims, at, strict=True)}
        stride = number(1)
        for k in range(own + 1, len(root.dims)):
            stride = stride * extent(root.dims, frozenset(root.folded), k).replace(mapping)
        return stride

    def _part(self, root: Array, at: Sequence[Expr], writer: Writer) -> Tensor:
        """The leaves of all rows."""
        e = self.e
        stride = self._stride(root, at)
        assert stride is not None
        tensor = root.argument[0] if root.argument is not None else root.tensor
        row = at[0] if root.argument is not None else root.layout.row(tuple(at))
        first = writer.expr(row.replace({self.symbol: operand(self.start)}))
        leaf = tensor.extents[1:]
        zeros = [index(0)] * len(leaf)
        if stride.constant == 1:
            return view_of(self.g, tensor, [first, *zeros], [self.count, *leaf], inside=True)
        step = writer.expr(stride)
        many = writer.op("floordiv", tensor.extents[0], step)
        (var,) = e.op("tensor_reshape", [tensor.var, many, step, *leaf], hint=tensor.var.name)
        apart = Tensor(var, (many, step, *leaf), e.loc)
        place = [writer.op("floordiv", first, step), writer.op("mod", first, step)]
        return view_of(self.g, apart, [*place, *zeros], [self.count, index(1), *leaf], (1,), inside=True)


def _last_states(loop: Loop, kept: set[int]) -> list[WriteLeaf]:
    """What writes the states of a loop that are read from memory behind it."""
    states = {id(i.state) for i in own_records(loop.body) if isinstance(i, ReadLeaf) and i.state is not None}
    writes = [i for i in own_records(loop.body) if isinstance(i, WriteLeaf) and id(i.array) in states]
    return list({id(i.array): i for i in writes if id(i.array.root) in kept}.values())


def added_up(around: Loop, loop: Loop) -> Weighted | None:
    """The sum of vectors times numbers that a loop is, where all iterations of one around it have the same vectors: one
    product of matrices."""
    found = weighted(loop)
    if found is None or any(around.symbol in e.symbols() for e in expressions(found.vectors.read)):
        return None
    dims = (Dim(around.symbol, around.length), Dim(loop.symbol, loop.length))
    return found if reads_in_order(found.factors.read, dims) else None


def _named(read: Read) -> set[str]:
    """The computed values that are read."""
    values = [variable_of(p.value) for p in sources(read) if isinstance(p, Computed)]
    parts = {p.source.var.name for p in sources(read) if isinstance(p, Part)}
    return parts | {v.name for v in values if isinstance(v, Var)}


def loops(items: Sequence[Any]) -> Iterator[Loop]:
    for item in items:
        if isinstance(item, Loop):
            yield item
            yield from loops(item.body)

