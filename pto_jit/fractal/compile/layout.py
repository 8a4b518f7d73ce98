# SPDX-License-Identifier: MIT
"""Where the leaves of an array lie: the row of a multi-index in its memory.

The rows are in lexicographic order of the indices.  Where lengths depend on outer indices (jagged lists) the rows of
the outer dimensions come from a table of starts, which is computed once, before the nest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Tensor, Tile, static_extent
from pto_jit.dtypes import i64
from pto_jit.fractal.compile.expr import Expr, Fetch, Symbol, Writer, binary, number, of
from pto_jit.fractal.compile.lists import Array, Dim, Part
from pto_jit.ir.nodes import For, Operand, Var
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@frozen(eq=False)
class Layout:
    """`table`: the first row of every index of the first `prefix` dimensions (None: there are none)."""

    dims: tuple[Dim, ...]
    folded: frozenset[int]
    prefix: Layout | None
    table: Var | None
    rows: Expr

    def row(self, at: tuple[Expr, ...]) -> Expr:
        """The row of an index."""
        first = 0
        start = total = number(0)
        if self.prefix is not None:
            assert self.table is not None
            first = len(self.prefix.dims)
            start = of(Fetch(self.table, (self.prefix.row(at[:first]),)))
        mapping = {d.symbol: e for d, e in zip(self.dims, at, strict=True)}
        for k in range(first, len(self.dims)):
            position = binary("mod", at[k], number(2)) if k in self.folded else at[k]
            total = total * extent(self.dims, self.folded, k).replace(mapping) + position
        return start + total

    def is_whole(self, at: tuple[Expr, ...], own: tuple[Dim, ...]) -> bool:
        """Whether the elements at `at`, over all of a list's dimensions `own`, are all rows in their order."""
        return not self.folded and at == tuple(of(d.symbol) for d in own) and self._has_lengths_of(own)

    def _has_lengths_of(self, own: tuple[Dim, ...]) -> bool:
        mine = {d.symbol: of(other.symbol) for d, other in zip(self.dims, own, strict=True)}
        return all(d.length.replace(mine) == other.length for d, other in zip(self.dims, own, strict=True))


def extent(dims: tuple[Dim, ...], folded: frozenset[int], k: int) -> Expr:
    """How many rows dimension k counts for: two planes of a fold, else its length."""
    known = dims[k].length.constant
    return dims[k].length if k not in folded or (known is not None and known <= 2) else number(2)


def laid_out(writer: Writer, dims: tuple[Dim, ...], folded: frozenset[int]) -> Layout:
    """The layout of an array; the tables that it needs are computed here, unless those of a like one are there."""
    positions = {d.symbol: of(Symbol("", k)) for k, d in enumerate(dims)}
    key = ("layout", tuple(d.length.replace(positions) for d in dims), folded)
    return writer.once(key, lambda: _laid_out(writer, dims, folded))


def _laid_out(writer: Writer, dims: tuple[Dim, ...], folded: frozenset[int]) -> Layout:
    symbols = [d.symbol for d in dims]
    dependent = [
        k
        for k, s in enumerate(symbols)
        if any(s in extent(dims, folded, j).symbols() for j in range(k + 1, len(dims)))
    ]
    if not dependent:
        rows = number(1)
        for k in range(len(dims)):
            rows = rows * extent(dims, folded, k)
        return Layout(dims, folded, None, None, rows)
    first = dependent[-1] + 1
    if any(
        k in folded and symbols[k] in extent(dims, folded, j).symbols()
        for k in range(first)
        for j in range(k + 1, len(dims))
    ):
        folded = frozenset(k for k in folded if k >= first)
    prefix = laid_out(writer, dims[:first], frozenset(k for k in folded if k < first))
    table, rows = _starts(writer, dims, folded, prefix)
    return Layout(dims, folded, prefix, table, rows)


def _starts(writer: Writer, dims: tuple[Dim, ...], folded: frozenset[int], prefix: Layout) -> tuple[Var, Expr]:
    """The table of starts of the prefix's rows, and the number of all rows."""
    e = writer.e
    count = writer.expr(prefix.rows + 1)
    (table,) = e.op("alloc", [count], {"dtype": i64}, hint="starts")
    e.op("setelem", [index(0), table, index(0)])
    first = len(prefix.dims)

    def level(k: int, inner: Writer) -> None:
        if k < first:
            with_loop(inner, dims[k], lambda w: level(k + 1, w), length=extent(dims, folded, k))
            return
        size = number(1)
        for j in range(first, len(dims)):
            size = size * extent(dims, folded, j)
        at = prefix.row(tuple(of(d.symbol) for d in dims[:first]))
        row = inner.expr(at)
        start = e.op("getelem", [table, row])[0]
        end = e.scalar("add", [start, inner.expr(size)]).operand
        e.op("setelem", [end, table, inner.expr(at + 1)])

    level(0, writer)
    return table, of(Fetch(table, (prefix.rows,)))


def with_loop(
    writer: Writer, dim: Dim, body, *, length: Expr | None = None, kind: str = "sequential", proof: str = ""
) -> None:
    """A counted loop over a dimension around what `body` writes with a writer that knows its index."""
    e = writer.e
    stop = writer.expr(dim.length if length is None else length)
    var = e.fresh(dim.symbol.name, I64)
    with e.block() as block:
        body(writer.but({dim.symbol: var}))
    e.append(For(kind, var, index(0), stop, index(1), tuple(block), loc=e.loc, proof=proof))  # type: ignore[arg-type]


def allocate(writer: Writer, array: Array, layout: Layout | None = None) -> None:
    """Give an array its memory, at this place."""
    folded = frozenset(k for k in array.folded)
    array.layout = layout or laid_out(writer, array.dims, folded)
    rows = writer.expr(array.layout.rows)
    extents: list[Operand] = [rows, *array.leaf.extents]
    (var,) = writer.e.op("alloc", extents, {"dtype": array.leaf.dtype}, hint=array.name)
    array.tensor = Tensor(var, tuple(extents), writer.e.loc)


def place(writer: Writer, array: Array, at: tuple[Expr, ...]) -> tuple[Tensor, Operand]:
    """The memory of an array, and the row of an index in it."""
    root = array.root
    if root.argument is not None:
        return root.argument[0], writer.expr(at[0])
    assert root.tensor is not None, root.name
    return root.tensor, writer.expr(root.layout.row(at))


def leaf_of(g: Generator, tensor: Tensor, row: Operand, *, inside: bool = False) -> Tensor:
    """A row as a tensor of its own.  inside: there is such a row, whatever the program computes."""
    zeros = [index(0)] * (tensor.rank - 1)
    return view_of(g, tensor, [row, *zeros], [index(1), *tensor.extents[1:]], (0,), inside=inside)


def part_of(
    g: Generator, part: Part, starts: list[Operand], extents: tuple[Operand, ...] | None = None, inside: bool = False
) -> Tensor | Tile:
    """The rectangle, where it is read; without axes of extent 1 where the `extents` that are wanted have none.

    inside: it is known to lie in the tensor.
    """
    drop = _left_out(part.extents, part.extents if extents is None else extents)
    if isinstance(part.source, Tensor):
        return view_of(g, part.source, starts, part.extents, drop, inside=inside)
    from pto_jit.codegen.builtins.memory import tile_view

    return tile_view(g, part.source, starts, part.extents, drop)


def _left_out(extents: tuple[Operand, ...], wanted: tuple[Operand, ...]) -> tuple[int, ...]:
    """The axes of extent 1, from the front, without which `extents` are the wanted ones; none where they never are."""
    count = len(extents) - len(wanted)
    ones = [k for k, e in enumerate(extents) if static_extent(e) == 1][: max(count, 0)]
    kept = tuple(e for k, e in enumerate(extents) if k not in ones)
    return tuple(ones) if kept == wanted else ()
