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

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Tensor, Tile
from pto_jit.fractal.compile.batching import Batch, row_extents
from pto_jit.fractal.compile.expr import Condition, Symbol, Writer, binary, number, of
from pto_jit.fractal.compile.layout import allocate, laid_out, with_loop
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
from pto_jit.fractal.compile.sequential import Sequential, name_of, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import For, If, Op, Operand, Var
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.wavefront import Planes, Wavefront

Chain = tuple[Sequence[ReadLeaf], Sequence[Op]]
OWN_ROWS = "each iteration writes rows of its own"


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
    allocate(plan.g, writer, array, laid_out(writer, dims, frozenset()))
    exists = [Condition("positive", nest.loops[symbols.index(s)].length - 1 - v) for s, v in fixed.items()]
    _compute(plan, writer, array, source, left.leaf, (weights, right[1], op.args[1]), exists)
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


def _compute(
    plan: Wavefront,
    writer: Writer,
    array: Array,
    source: Read,
    leaf: Leaf,
    weight: tuple[Sequence[ReadLeaf], Sequence[Op], Operand],
    exists: Sequence[Condition],
) -> None:
    """Gather the inputs to rows, and multiply them block by block."""
    e, g = plan.e, plan.g
    plain = Sequential(g, set())
    rows = writer.expr(array.layout.rows)
    inner = row_extents(leaf.extents)
    size = plan.inputs_at_once(array.leaf)
    (var,) = e.op("alloc", [rows, *inner], {"dtype": leaf.dtype}, hint="input_rows")
    gathered = Tensor(var, (rows, *inner), e.loc)

    def level(w: Writer, k: int) -> None:
        if k < len(array.dims):
            kind = "sequential" if k else "parallel"
            with_loop(w, array.dims[k], lambda w: level(w, k + 1), kind=kind, proof=OWN_ROWS)
            return
        tile = plain.value_of(source, leaf, w)
        assert isinstance(tile, Tile)
        (row,) = e.op("reshape", [tile.var, index(1), *inner])
        at = w.expr(array.layout.row(tuple(of(d.symbol) for d in array.dims)))
        e.op("store", [row, gathered.var, at, index(0)], {"inside": True})

    def multiply(w: Writer, start: Var) -> None:
        count = w.op("min", index(size), w.op("sub", rows, start))
        part = view_of(g, gathered, [start, index(0)], [count, *inner], inside=True)
        reads, ops, right = weight
        once = {name_of(r.value): variable_of(plain.value_of(r.read, r.leaf, w)) for r in reads}
        batch = Batch(e, index(1), {}, once)
        batch.run(ops)
        if isinstance(right, Var):
            right = batch.shared.get(right.name, right)
        (found,) = e.op("dot", [load_all(g, part).var, right])
        e.op("store", [found, array.tensor.var, start, index(0)], {"inside": True})

    with e.block() as block:
        level(writer, 0)
        blocks = writer.expr(binary("floordiv", array.layout.rows + (size - 1), number(size)))
        number_ = e.fresh("block", blocks.type)
        with e.block() as body:
            multiply(writer, writer.op("mul", number_, index(size)))  # type: ignore[arg-type]
        loc = plan.nest.loops[0].loc
        e.append(For("parallel", number_, index(0), blocks, index(1), tuple(body), loc=loc, proof=OWN_ROWS))
    ok = None
    for condition in exists:
        holds = writer.condition(condition)
        ok = holds if ok is None else writer.op("and", ok, holds)
    if ok is None:
        e.current.extend(block)
    else:
        e.append(If(ok, tuple(block), (), e.loc))
