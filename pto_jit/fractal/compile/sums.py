# SPDX-License-Identifier: MIT
"""A sum of products of two vectors, `pl.sum(a * b)`, is a product of a row and a column.

Where one of the two is chosen by the innermost loops of a nest and the other one by loops around these, the sums over
all pairs are one product of matrices (`pairs.py`).  A cell by itself is better as it was written, which has other
roundings: the nest that is made here is one for the plans that compute many cells at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.emit import index
from pto_jit.codegen.values import static_extent
from pto_jit.dtypes import f32, f64
from pto_jit.fractal.compile.batching import NotBatchable, row_extents
from pto_jit.fractal.compile.blocks import Blocks
from pto_jit.fractal.compile.expr import Symbol
from pto_jit.fractal.compile.names import uses
from pto_jit.fractal.compile.nest import Nest, loops_of
from pto_jit.fractal.compile.pairs import PairBlocks, pairs_of
from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.codegen.emit import Emitter
    from pto_jit.codegen.generator import Generator


def pairs_of_sums(g: Generator, nest: Nest) -> tuple[Nest, Blocks, str] | None:
    """A map whose cells add up such products as one product of matrices, with the figures; None where it is none, or
    better as it is."""
    from pto_jit.fractal.compile.cost import are_pairs

    made = with_products(g.e, nest)
    if made is None:
        return None
    try:
        work = pairs_of(made)
        good, figures = are_pairs(nest, work)
        if not good:
            return None
        blocks = PairBlocks(g, work)
        blocks.trial()
    except NotBatchable:
        return None
    return made, blocks, f"sums of products are one product of matrices\n{figures}"


@frozen(eq=False)
class Sum:
    """`total`, the sum of all elements of `terms`, the products of two vectors of `length` elements: the left one of a
    row, the right one of a column."""

    total: Op
    terms: Op
    left: Var
    right: Var
    length: Operand


def with_products(e: Emitter, nest: Nest) -> Nest | None:
    """A nest with products in place of the sums that can be those of pairs; None where it has no such sum."""
    found = {id(s.total): s for s in _sums(e, nest)}
    if not found:
        return None
    gone = {id(s.terms) for s in found.values()}
    cell: list[Any] = []
    for item in nest.cell:
        if id(item) in found:
            cell += _product(e, found[id(item)])
        elif id(item) not in gone:
            cell.append(item)
    return replace(nest, cell=tuple(cell))


def _sums(e: Emitter, nest: Nest) -> Iterator[Sum]:
    made = {v.name: item for item in nest.cell if isinstance(item, Op) for v in item.results}
    depends = loops_of(nest)
    readers: dict[str, int] = {}
    for item in nest.cell:
        for name in uses(item):
            readers[name] = readers.get(name, 0) + 1
    for item in nest.cell:
        terms = made.get(item.args[0].name) if _is_op(item, "sum") and isinstance(item.args[0], Var) else None
        if terms is None or not _is_op(terms, "mul") or readers[terms.results[0].name] != 1:
            continue
        length = _length(e, item, terms)
        sides = _sides(terms, depends, nest.symbols)
        if length is not None and sides is not None:
            yield Sum(item, terms, *sides, length)


def _is_op(item: Any, name: str) -> bool:
    return isinstance(item, Op) and item.op == name and len(item.results) == 1


def _length(e: Emitter, total: Op, terms: Op) -> Operand | None:
    """How many products are added up; None where it is no sum of all products of two vectors of one type."""
    kinds = [a.type for a in (*terms.args, *terms.results)]
    (result,) = total.results
    dtype = result.type.dtype  # type: ignore[union-attr]
    if dtype not in (f32, f64) or not all(isinstance(k, TileType) and k.dtype == dtype for k in kinds):
        return None
    extents = [e.extents_of(v) for v in (*terms.args, *terms.results)]  # type: ignore[arg-type]
    if any(x is None for x in extents) or len({_vector(x) for x in extents if x is not None}) != 1:
        return None
    own = extents[-1] or ()
    axes = total.attr("axes")
    kept = [] if axes is None else [x for k, x in enumerate(own) if k not in axes]  # type: ignore[operator]
    if any(static_extent(x) != 1 for x in kept):
        return None
    if isinstance(result.type, TileType) and e.extents_of(result) is None:
        return None
    known = [static_extent(x) for x in own]
    unknown = [x for x, n in zip(own, known, strict=True) if n is None]
    size = 1
    for n in known:
        size *= 1 if n is None else n
    if unknown:
        return unknown[0] if len(unknown) == 1 and size == 1 else None
    return index(size)


def _vector(extents: Sequence[Operand]) -> tuple[Operand, ...]:
    """Extents without leading axes of extent 1."""
    while len(extents) > 1 and static_extent(extents[0]) == 1:
        extents = row_extents(extents)
    return tuple(extents)


def _sides(terms: Op, depends: Mapping[str, set[Symbol]], symbols: Sequence[Symbol]) -> tuple[Var, Var] | None:
    """The vector of a row and that of a column; None where all cells share one, or both are of the innermost loop."""
    first, second = terms.args
    for left, right in ((first, second), (second, first)):
        of_left, of_right = (depends.get(v.name, set()) for v in (left, right))  # type: ignore[union-attr]
        if symbols[-1] in of_right - of_left and of_left - of_right:
            return left, right  # type: ignore[return-value]
    return None


def _product(e: Emitter, found: Sum) -> list[Any]:
    (result,) = found.total.results
    with e.at(found.total.loc), e.block() as block:
        row, column = (
            e.tile("reshape", [v, index(1), found.length], extents=(index(1), found.length)).var
            for v in (found.left, found.right)
        )
        turned = e.tile("transpose", [column], {"axes": (1, 0)}, extents=(found.length, index(1))).var
        product = e.tile("dot", [row, turned], extents=(index(1), index(1))).var
    if isinstance(result.type, ScalarType):
        last = Op("extract", (result,), (product, index(0), index(0)), (), (), found.total.loc)
    else:
        extents = e.extents_of(result)
        assert extents is not None
        last = Op("reshape", (result,), (product, *extents), (), (), found.total.loc)
    return [*block, last]
