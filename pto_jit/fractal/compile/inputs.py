# SPDX-License-Identifier: MIT
"""What the first cells along the loops that stay loops (the layers) read: the inputs of the nest.

A cell of another layer reads the rows of the layer before where they are, in its ring; those of the first layer are
gathered beside them.  A product of such an input with an operand that all cells share (the input product of the first
layer) often depends on fewer loops than the cell: it is computed once for what it depends on, before the nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.values import Tile
from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.blocks import Blocks, Work
from pto_jit.fractal.compile.expr import Condition, Symbol, Writer, number, of
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Compute,
    Dim,
    Filled,
    Leaf,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    replaced,
    sources,
)
from pto_jit.fractal.compile.nest import depends_on
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import If, Op, Operand, Var
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.wavefront import Planes, Wavefront

Chain = tuple[Sequence[ReadLeaf], Sequence[Op]]


@frozen(eq=False)
class Product:
    """A product of the cell that is computed before the nest where `condition` holds (None: for all cells).

    array: the products by the loops that they depend on; index: the one of a cell.  alone: the input has no other use.
    """

    condition: Condition | None
    array: Array
    index: Access
    source: str
    alone: bool


def products(plan: Wavefront, planes: Planes, writer: Writer, shared: set[str]) -> dict[str, Product]:
    """The products of inputs, by their results; they are computed here."""
    nest = plan.nest
    reads = {name_of(i.value): i for i in nest.cell if isinstance(i, ReadLeaf)}
    uses = Counter(a.name for i in nest.cell if isinstance(i, Op) for a in i.args if isinstance(a, Var))
    written = [variable_of(i.value) for i in nest.cell if isinstance(i, WriteLeaf)]
    uses.update(v.name for v in written if isinstance(v, Var))
    found: dict[str, Product] = {}
    for op in nest.cell:
        if not isinstance(op, Op) or op.op != "dot" or len(op.args) != 2:
            continue
        left = reads.get(op.args[0].name) if isinstance(op.args[0], Var) else None
        right = _chain(nest.cell, op.args[1], reads)
        if left is None or right is None or name_of(left.value) in shared:
            continue
        if any(name_of(r.value) not in shared for r in right[0]):
            continue
        if len(row_extents(left.leaf.extents)) == 1:
            among = [p.condition for p in found.values() if p.condition is not None]
            made = _product(plan, planes, writer, op, left, right, among)
            if made is not None:
                condition, array = made
                at = Access(array, tuple(of(d.symbol) for d in array.dims))
                name = name_of(left.value)
                found[op.results[0].name] = Product(condition, array, at, name, uses[name] == 1)
    return found


def first(read: Read, chosen: set[Symbol]) -> Choose | None:
    """A choice that the loops in `chosen` alone decide."""
    if isinstance(read, Choose):
        used = read.condition.value.symbols()
        if used and used <= chosen:
            return read
    return None


def _product(
    plan: Wavefront,
    planes: Planes,
    writer: Writer,
    op: Op,
    left: ReadLeaf,
    right: Chain,
    among: Sequence[Condition],
) -> tuple[Condition | None, Array] | None:
    """The condition and the array of a product, when it depends on fewer loops than its cell.

    The condition is one of `among`, if these are any.
    """
    nest = plan.nest
    symbols = nest.symbols
    chosen = {symbols[k] for k in planes.group}
    choice = first(left.read, chosen)
    fixed: Mapping[Symbol, int] | None = {}
    if choice is not None:
        fixed = _value(choice.condition)
        if fixed is None or (among and choice.condition not in among):
            return None
    at = {s: number(v) for s, v in fixed.items()}
    source = replaced(choice.then if choice is not None else left.read, at)
    weights = [replace(r, read=replaced(r.read, at)) for r in right[0]]
    own = {id(i.array.root) for i in nest.cell if isinstance(i, WriteLeaf)}
    for part in sources(source):
        if not isinstance(part, (Access, Filled, Part)) or (isinstance(part, Access) and id(part.array.root) in own):
            return None
    for r in weights:
        if depends_on(r.read, symbols) or not all(isinstance(p, (Access, Part)) for p in sources(r.read)):
            return None
    needed = {symbols.index(s) for s in depends_on(source, symbols)}
    for k in sorted(needed, reverse=True):
        needed |= set(plan.around(k))
    if any(symbols[k] in chosen for k in needed) or len(needed) + len(planes.group) >= len(symbols) or not needed:
        return None
    result = op.results[0]
    extents = row_extents(plan.e.extents_of(result) or ())
    dims = tuple(Dim(symbols[k], nest.loops[k].length) for k in sorted(needed))
    array = Array("inputs", dims, Leaf(tuple(extents), result.type.dtype))  # type: ignore[union-attr]
    others = [k for k in range(len(symbols)) if k not in needed and symbols[k] not in fixed]
    exists = [Condition("positive", nest.loops[symbols.index(s)].length - 1 - v) for s, v in fixed.items()]
    exists += [Condition("positive", planes.longest[k] - 1) for k in others if not planes.longest[k].constant]
    body = (replace(left, read=source), *weights, *right[1], op)
    work = Work(dims, body, ((Tile(result, extents), array, tuple(of(d.symbol) for d in dims)),))
    _compute(plan, writer, Blocks(plan.g, plan.before(work)), exists)
    return (choice.condition if choice is not None else None), array


def _chain(cell: Sequence[Any], value: Operand, reads: Mapping[str, ReadLeaf]) -> Chain | None:
    """The reads and operations of a cell that make a value; None when they are not all operations."""
    made = {v.name: item for item in cell if not isinstance(item, (ReadLeaf, WriteLeaf)) for v in _results(item)}
    found: list[ReadLeaf] = []
    wanted: set[int] = set()
    todo = [value]
    while todo:
        name = getattr(todo.pop(), "name", "")
        if name in reads:
            found.append(reads[name])
        elif name in made:
            op = made[name]
            if not isinstance(op, Op):
                return None
            if id(op) not in wanted:
                wanted.add(id(op))
                todo += op.args
    return list({id(r): r for r in found}.values()), [op for op in cell if id(op) in wanted]


def _results(item: Any) -> Sequence[Var]:
    return (item.var,) if isinstance(item, Compute) else item.results if isinstance(item, Op) else walk.defs(item)


def _value(condition: Condition) -> dict[Symbol, int] | None:
    """The loop index that a condition `index == constant` asks for."""
    value = condition.value
    if condition.kind != "zero" or len(value.terms) != 1:
        return None
    atom, times = value.terms[0]
    at = -value.const * times
    return {atom: at} if isinstance(atom, Symbol) and times in (1, -1) and at >= 0 else None


def _compute(plan: Wavefront, writer: Writer, blocks: Blocks, exists: Sequence[Condition]) -> None:
    """Compute what is there, block by block, where all of these conditions hold."""
    e = plan.e
    blocks.prepare(writer)
    with e.block() as block:
        blocks.write(writer)
    ok = None
    for condition in exists:
        holds = writer.condition(condition)
        ok = holds if ok is None else writer.op("and", ok, holds)
    if ok is None:
        e.current.extend(block)
    else:
        e.append(If(ok, tuple(block), (), e.loc))
