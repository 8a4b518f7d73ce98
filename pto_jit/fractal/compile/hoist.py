# SPDX-License-Identifier: MIT
"""Work of a nest that does not depend on what it carries, computed before it (loop fission).

Before: `scan(lambda s, x: s * a + tanh(x @ w + b), xs)`.  After: a list of what `tanh(x @ w + b)` gives, by a map over
the loops that this depends on, and the scan that reads it.  The cells of the map are rows of products, or divided over
the workers, and there are fewer of them than cells of the nest where the value depends on fewer loops.  What moves are
the largest parts of the body that are made of inputs alone and are worth the memory that they are written to and read
from; where one is not, what it is made of may be.  `cost.is_better_apart` says whether both nests together are better.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.fractal.compile.blocks import in_order
from pto_jit.fractal.compile.cost import is_worth_storing
from pto_jit.fractal.compile.expr import Expr, Fetch, Symbol, number, of, operand
from pto_jit.fractal.compile.lists import (
    Access,
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
    replaced,
    rewritten,
    sources,
)
from pto_jit.fractal.compile.names import defined, uses
from pto_jit.fractal.compile.nest import Nest, depends_on, is_pure
from pto_jit.fractal.compile.sequential import has_effects, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.semantic.table import effects
from pto_jit.slotted import frozen, replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session

Item = Any  # a record or an operation of a cell


@frozen(eq=False)
class Apart:
    """A nest in two: maps, and the loop that reads what they wrote; `ops`: the operations that the maps do."""

    maps: tuple[Loop, ...]
    rest: Loop
    ops: tuple[str, ...]


def taken_apart(session: Session, loop: Loop, nest: Nest) -> Apart | None:
    """A loop around `nest` without the work that can be done before it; None where that is none.

    Nothing is changed: the maps and the rest have records of their own.
    """
    cell = Cell(session, nest)
    chosen: dict[tuple[Symbol, ...], list[Var]] = {}
    for op in cell.frontier():
        chosen.setdefault(cell.loops_of(op.results[0].name), []).append(op.results[0])
    return _apart(session, loop, cell, chosen)


def starts_in_memory(session: Session, loop: Loop, nest: Nest) -> Apart | None:
    """A loop whose states start from values that it computes under some of its loops, with these computed before it;
    None where there are none, or where they are made of states.

    What cells read is in memory then, whatever the order in which they run.
    """
    cell = Cell(session, nest)
    chosen: dict[tuple[Symbol, ...], list[Var]] = {}
    for name in dict.fromkeys(n for item in cell.items if isinstance(item, ReadLeaf) for n in _started(item)):
        if name not in cell.made:
            continue
        around = cell.around(name)
        if name not in cell.inputs or any(cell.leaf(v) is None for i in cell.cone([name]) for v in _tiles(i)):
            return None
        chosen.setdefault(around, []).append(cell.variables[name])
    return _apart(session, loop, cell, chosen)


def _started(item: ReadLeaf) -> list[str]:
    """The variables that a read gives as they are."""
    values = [variable_of(part.value) for part in sources(item.read) if isinstance(part, Computed)]
    return [v.name for v in values if isinstance(v, Var)]


def _apart(
    session: Session, loop: Loop, cell: Cell, chosen: Mapping[tuple[Symbol, ...], Sequence[Var]]
) -> Apart | None:  # fmt: skip
    """The loop and the maps of values by the loops of these."""
    maps: list[Loop] = []
    reads: dict[str, ReadLeaf] = {}
    for symbols, values in chosen.items():
        made, found = _map(session, cell, symbols, values)
        maps.append(made)
        reads |= found
    done = [i for values in chosen.values() for i in cell.cone([v.name for v in values])]
    names = dict.fromkeys(i.op for i in done if isinstance(i, Op) and is_pure(i))
    return Apart(tuple(maps), _without(loop, reads, cell), tuple(names)) if maps else None


class Cell:
    """The body of a nest: which of its values are made of inputs alone."""

    def __init__(self, session: Session, nest: Nest) -> None:
        self.session = session
        self.nest = nest
        self.items: list[Item] = [*nest.before, *nest.cell]
        self.made = {name: item for item in self.items for name in defined(item)}
        self.variables = {v.name: v for item in self.items for v in _variables(item)}
        self.quiet = not has_effects(nest.cell)  # nothing that is read from memory changes while the nest runs
        own = {id(w.array.root) for w in nest.writes}
        self.inputs: dict[str, set[Symbol]] = {}  # the values that are, and the loops that they depend on
        for item in self.items:
            found = self._input(item, own)
            if found is not None:
                self.inputs |= dict.fromkeys(defined(item), found)

    def _input(self, item: Item, own: set[int]) -> set[Symbol] | None:
        symbols = self.nest.symbols
        if isinstance(item, Compute):
            return {s for s in item.expr.symbols() if s in symbols}
        if isinstance(item, ReadLeaf):
            parts = [p for p in sources(item.read) if isinstance(p, Access)]
            plain = item.state is None and item.final is None and all(id(p.array.root) not in own for p in parts)
            return depends_on(item.read, symbols) if plain else None
        if not isinstance(item, Op) or item.regions or len(item.results) != 1:
            return None
        if not is_pure(item) and not (self.quiet and effects(item.op) == "reads"):
            return None
        names = [a.name for a in item.args if isinstance(a, Var) and a.name in self.made]
        if not all(name in self.inputs for name in names):
            return None
        return set().union(*(self.inputs[name] for name in names))

    def frontier(self) -> list[Op]:
        """The last operations on inputs whose results are worth storing, in the order of the body."""
        found: dict[str, Op] = {}
        todo = [n for item in self.items if not defined(item) & self.inputs.keys() for n in sorted(uses(item))]
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            op = self.made.get(name)
            if name in seen or name not in self.inputs or not isinstance(op, Op):
                continue
            seen.add(name)
            if self._can_move(op):
                found[name] = op
            else:
                todo += uses(op)
        return [op for op in self.items if isinstance(op, Op) and any(found.get(v.name) is op for v in op.results)]

    def around(self, name: str) -> tuple[Symbol, ...]:
        """The loops in whose iterations a value is computed."""
        own = next(k for k, loop in enumerate(self.nest.loops) if any(i is self.made[name] for i in loop.body))
        return self.nest.symbols[: own + 1]

    def cone(self, names: Iterable[str]) -> list[Item]:
        """What computes these values, and what it needs for that, in the order of the body."""
        wanted = set(names)
        found: list[Item] = []
        for item in reversed(self.items):
            if defined(item) & wanted:
                found.append(item)
                wanted |= uses(item)
        return found[::-1]

    def loops_of(self, name: str) -> tuple[Symbol, ...]:
        """The loops that a value depends on, and those that their lengths depend on."""
        wanted = set(self.inputs[name])
        for loop in reversed(self.nest.loops):
            if loop.symbol in wanted:
                wanted |= loop.length.symbols()
        return tuple(s for s in self.nest.symbols if s in wanted)

    def _can_move(self, op: Op) -> bool:
        """Whether the value is worth its memory, of which there is no more than of what it is made of, and nothing is
        read that the nest does not read."""
        (result,) = op.results
        symbols = self.loops_of(result.name)
        leaf = self.leaf(result)
        if not symbols or leaf is None:
            return False
        cone = self.cone([result.name])
        reads = [i for i in cone if not isinstance(i, Compute)]
        if any(self.leaf(v) is None for i in cone for v in _tiles(i)):
            return False
        if symbols == self.nest.symbols:
            if not any(isinstance(i, ReadLeaf) and _is_of_each(i.read, symbols) for i in reads):
                return False
        elif not all(self._is_there(i, symbols) for i in reads):
            return False
        done = [i for i in cone if not isinstance(i, Op) or is_pure(i)]
        return is_worth_storing(done, leaf, symbols[-1], fewer=symbols != self.nest.symbols)

    def leaf(self, var: Var) -> Leaf | None:
        """The type of a value as an element of a list; None where its extents are computed in the cell."""
        if isinstance(var.type, ScalarType):
            return Leaf((), var.type.dtype)
        extents = self.session.g.e.extents_of(var)
        if extents is None or any(isinstance(e, Var) and e.name in self.made for e in extents):
            return None
        return Leaf(tuple(extents), var.type.dtype)  # type: ignore[union-attr]

    def _is_all(self, op: Op) -> bool:
        """Whether a tensor is loaded as a whole."""
        tensor = op.args[0]
        extents = self.session.g.e.extents_of(tensor) if isinstance(tensor, Var) else None
        rank = len(extents or ())
        return extents is not None and op.args[1:] == (*[index(0)] * rank, *extents)

    def _is_there(self, item: ReadLeaf | Op, symbols: Sequence[Symbol]) -> bool:
        """Whether what is read is there for every index of these loops, whatever the other loops do."""
        if isinstance(item, Op):
            tensors = [a for a in item.args if isinstance(a, Var) and isinstance(a.type, TensorType)]
            return not tensors or (item.op == "load" and self._is_all(item))
        used = depends_on(item.read, symbols)
        dims = tuple(Dim(loop.symbol, loop.length) for loop in self.nest.loops if loop.symbol in used)
        if isinstance(item.read, Filled):
            return True
        if isinstance(item.read, Part):
            return not used and isinstance(item.read.source, Tensor) and _is_whole(item.read)
        if not isinstance(item.read, Access) or not dims or any(_symbols(d) - used for d in dims):
            return False
        array = item.read.array.root
        if array.argument is None:
            own = {d.symbol: of(s.symbol) for d, s in zip(array.dims, dims, strict=False)}
            same = [d.length.replace(own) == s.length for d, s in zip(array.dims, dims, strict=False)]
            return item.read.index == tuple(of(d.symbol) for d in dims) and len(array.dims) == len(dims) and all(same)
        leaves, tables = array.argument
        (row,) = item.read.index
        first = row.replace({d.symbol: number(0) for d in dims})
        behind = row.replace({d.symbol: number(0) for d in dims[1:]}).replace({dims[0].symbol: dims[0].length})
        begins = [number(0), *(of(Fetch(t.var, (number(0),))) for t in tables)]
        ends = [operand(leaves.extents[0]), *(of(Fetch(t.var, (operand(t.extents[0]) - 1,))) for t in tables)]
        return in_order(row, dims) and first in begins and behind in ends


def _variables(item: Item) -> list[Var]:
    """The variables that an item of a cell defines."""
    if isinstance(item, Compute):
        return [item.var]
    made = item.results if isinstance(item, Op) else [variable_of(item.value)] if isinstance(item, ReadLeaf) else []
    return [v for v in made if isinstance(v, Var)]


def _tiles(item: Item) -> list[Var]:
    """The tensors that an item defines."""
    return [v for v in _variables(item) if isinstance(v.type, TileType)]


def _symbols(dim: Dim) -> set[Symbol]:
    """The loops that the length of a dimension depends on."""
    return dim.length.symbols()


def _is_whole(part: Part) -> bool:
    """Whether a part is all of its tensor."""
    return all(s.constant == 0 for s in part.starts) and part.extents == tuple(part.source.extents)


def _is_of_each(read: Read, symbols: Sequence[Symbol]) -> bool:
    """Whether each index of the loops has an element of its own, rather than windows and pairs of fewer elements."""
    if depends_on(read, symbols) != set(symbols):
        return False
    if isinstance(read, Part):
        return sum(bool(s.symbols()) for s in read.starts) >= len(symbols)
    if not isinstance(read, Access):
        return False
    root = read.array.root
    return len(symbols) <= (len(root.dims) if root.argument is None else 1 + len(root.argument[1]))


def _map(
    session: Session, cell: Cell, symbols: Sequence[Symbol], values: Sequence[Var]
) -> tuple[Loop, dict[str, ReadLeaf]]:  # fmt: skip
    """The loops that compute values of a cell, and the reads of them for the rest."""
    loops = [loop for loop in cell.nest.loops if loop.symbol in symbols]
    mapping: dict[Symbol, Expr] = {}
    dims: list[Dim] = []
    for loop in loops:
        dims.append(Dim(session.symbol(loop.symbol.name), loop.length.replace(mapping)))
        mapping[loop.symbol] = of(dims[-1].symbol)
    body, names = _renamed(session, cell.cone(v.name for v in values), mapping)
    own, loc = tuple(of(loop.symbol) for loop in loops), loops[-1].loc
    reads: dict[str, ReadLeaf] = {}
    for var in values:
        leaf = cell.leaf(var)
        assert leaf is not None
        array = session.array("inputs", tuple(dims), leaf)
        value = _value(Var(names[var.name], var.type), leaf)
        body.append(WriteLeaf(array, tuple(of(d.symbol) for d in dims), value, loc))
        reads[var.name] = ReadLeaf(_value(var, leaf), Access(array, own), leaf, loc)
    for loop, dim in zip(reversed(loops), reversed(dims), strict=True):
        body = [Loop(dim.symbol, dim.length, "parallel", loop.loc, body)]
    return body[0], reads


def _value(var: Var, leaf: Leaf) -> Scalar | Tile:
    return Tile(var, leaf.extents) if leaf.extents else Scalar(var, False)


def _renamed(
    session: Session, items: Sequence[Item], symbols: Mapping[Symbol, Expr]
) -> tuple[list[Item], dict[str, str]]:
    """A copy of items with variables and loops of its own."""
    e = session.g.e
    names: dict[str, str] = {}
    found: list[Item] = []

    def fresh(var: Var) -> Var:
        new = e.fresh(var.name, var.type)
        names[var.name] = new.name
        if var.name in e.extents:
            e.extents[new.name] = e.extents[var.name]
        return new

    for item in items:
        if isinstance(item, Op):
            for var in item.results:
                fresh(var)
            found += walk.rename((item,), names)
        elif isinstance(item, Compute):
            found.append(Compute(fresh(item.var), item.expr.replace(symbols)))
        else:
            var = variable_of(item.value)
            assert isinstance(var, Var)
            value = _value(fresh(var), item.leaf)
            found.append(replace(item, value=value, read=replaced(item.read, symbols)))
    return found, names


def _without(loop: Loop, reads: Mapping[str, ReadLeaf], cell: Cell) -> Loop:
    """The loop with reads in place of what computes values, and without what nothing uses any more."""

    def from_memory(read: Read) -> Read | None:
        var = variable_of(read.value) if isinstance(read, Computed) else None
        return reads[var.name].read if isinstance(var, Var) and var.name in reads else None

    def new(item: Item) -> Item:
        if isinstance(item, ReadLeaf) and any(name in reads for name in _started(item)):
            return replace(item, read=rewritten(item.read, from_memory))
        return item

    wanted: set[str] = set()
    for item in reversed(cell.items):
        names = defined(item)
        if not names & reads.keys() and (names & wanted or not names & cell.inputs.keys()):
            wanted |= uses(new(item))

    def left(item: Item) -> list[Item]:
        if isinstance(item, Loop):
            return [replace(item, body=[i for old in item.body for i in left(old)])]
        names = defined(item)
        if names & cell.inputs.keys() and not names & wanted:
            return []
        there = next((name for name in names if name in reads), None)
        return [new(item) if there is None else reads[there]]

    return left(loop)[0]
