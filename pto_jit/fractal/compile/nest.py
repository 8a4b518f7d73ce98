# SPDX-License-Identifier: MIT
"""A perfect nest: its dimensions, what a cell reads and writes, and the distances between cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pto_jit.fractal.compile.drawing import Drawing
from pto_jit.fractal.compile.expr import Expr, Known, Symbol, of
from pto_jit.fractal.compile.hyperplane import NoSchedule, Vector, hyperplane
from pto_jit.fractal.compile.lists import (
    Access,
    Check,
    Choose,
    Compute,
    Computed,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
    sources,
)
from pto_jit.fractal.compile.names import defined, uses
from pto_jit.fractal.compile.sequential import RECORDS, has_effects, name_of, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import Op, Var
from pto_jit.semantic.table import effects
from pto_jit.slotted import frozen


@frozen(eq=False)
class Nest:
    """`loops`, outermost first, around `cell`: reads, writes, integers, and operations of the IR.

    before: operations that are the same in every iteration.  distances: per array that cells write and read, the
    distance vectors over all loops; a component that is known when the program runs, which is positive, is 1 in them,
    and has its value in `exact`.  (A hyperplane without negative components that 1 satisfies is satisfied by more.)
    """

    loops: tuple[Loop, ...]
    before: tuple[Op, ...]
    cell: tuple[Any, ...]
    distances: dict[int, tuple[Vector, ...]]
    exact: dict[int, tuple[tuple[Expr, ...], ...]]

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(loop.symbol for loop in self.loops)

    @property
    def carries(self) -> tuple[int, ...]:
        return tuple(k for k, loop in enumerate(self.loops) if loop.kind != "parallel")

    @property
    def writes(self) -> tuple[WriteLeaf, ...]:
        return tuple(item for item in self.cell if isinstance(item, WriteLeaf))

    @property
    def all_distances(self) -> tuple[Vector, ...]:
        return tuple(dict.fromkeys(d for found in self.distances.values() for d in found))

    def hyperplane(self) -> Vector:
        """The schedule: h . delta >= 1 for every distance; 0 for loops that carry nothing."""
        h = hyperplane(self.all_distances, len(self.loops))
        if any(c < 0 for c in h):
            raise NoSchedule(f"the hyperplane {h} has a negative component")
        return h


def perfect(loop: Loop) -> Nest:
    """The nest that begins with a loop.  Raises NoSchedule when it is not perfect, or a dependence is not uniform."""
    loops, before, cell = flattened(loop)
    exact = _distances(loops, cell)
    return Nest(loops, before, cell, {key: _least(ds) for key, ds in exact.items()}, exact)


def inner_map(loop: Loop) -> Nest:
    """The nest that begins with a loop inside of others, none of whose own loops carries something.

    Raises NoSchedule when it is not perfect, or carries something.
    """
    loops, before, cell = flattened(loop)
    if any(own.kind != "parallel" for own in loops):
        raise NoSchedule(f"a loop inside of that over `{loop.symbol}` carries a state")
    if any(isinstance(item, ReadLeaf) and (item.state is not None or item.final is not None) for item in cell):
        raise NoSchedule("a cell reads a state, which is no memory")
    return Nest(loops, before, cell, {}, {})


def flattened(loop: Loop) -> tuple[tuple[Loop, ...], tuple[Op, ...], tuple[Any, ...]]:
    """The loops of the perfect nest that begins with one, what is the same in every iteration, and the cell.

    Raises NoSchedule when it is not perfect.
    """
    loops: list[Loop] = []
    above: list[Any] = []
    current, quiet = loop, not has_effects(loop.body)
    while True:
        loops.append(current)
        inner = [i for i in current.body if isinstance(i, Loop)]
        if not inner:
            break
        rest = [i for i in current.body if not isinstance(i, Loop)]
        if len(inner) > 1 or not all(isinstance(i, (ReadLeaf, Compute)) or _can_move(i, quiet) for i in rest):
            why = next((f": {i.why}" for i in inner if i.why), "")
            raise NoSchedule(
                f"there is more than one loop, or work between loops, inside the loop over `{current.symbol}`{why}"
            )
        above += rest
        current = inner[0]
    before, cell = invariant((*above, *current.body))
    for item in cell:
        if isinstance(item, Check) or not isinstance(item, (*RECORDS, Op)):
            raise NoSchedule("the body of a cell has a branch, loop or check that is decided while it runs")
    return tuple(loops), before, cell


def _can_move(item: Any, quiet: bool) -> bool:
    """Whether an operation between loops may be one of their cells; `quiet`: nothing in the nest changes memory."""
    return isinstance(item, Op) and (is_pure(item) or (quiet and effects(item.op) == "reads"))


def is_pure(op: Op) -> bool:
    """Whether an operation reads and writes no memory."""
    return effects(op.op) == "none" and op.op not in ("alloc", "copy")


def reads_at_most(op: Op) -> bool:
    """Whether an operation changes neither memory nor a variable that is there before it."""
    return effects(op.op) != "writes" and op.op != "copy"


def invariant(items: Sequence[Any]) -> tuple[tuple[Op, ...], tuple[Any, ...]]:
    """The operations that use nothing that is read or computed in the nest, and the rest."""
    inside: set[str] = set()
    before: list[Op] = []
    rest: list[Any] = []
    for item in items:
        if (
            isinstance(item, Op)
            and is_pure(item)
            and not any(isinstance(a, Var) and a.name in inside for a in item.args)
        ):
            before.append(item)
            continue
        rest.append(item)
        if isinstance(item, ReadLeaf):
            inside.add(name_of(item.value))
        elif isinstance(item, Compute):
            inside.add(item.var.name)
        elif isinstance(item, Op):
            inside |= {v.name for v in item.results}
        elif not isinstance(item, RECORDS):
            inside |= walk.block_defs((item,))
    return tuple(before), tuple(rest)


def _least(distances: Sequence[tuple[Expr, ...]]) -> tuple[Vector, ...]:
    """With 1 for the components that are known when the program runs."""
    return tuple(dict.fromkeys(tuple(1 if x.constant is None else x.constant for x in d) for d in distances))


def _distances(loops: Sequence[Loop], cell: Sequence[Any]) -> dict[int, tuple[tuple[Expr, ...], ...]]:
    written: dict[int, WriteLeaf] = {}
    for item in cell:
        if isinstance(item, WriteLeaf):
            written[id(item.array.root)] = item
    found: dict[int, list[tuple[Expr, ...]]] = {key: [] for key in written}
    for item in cell:
        if not isinstance(item, ReadLeaf):
            continue
        for access in accesses(item.read):
            write = written.get(id(access.array.root))
            if write is not None:
                found[id(access.array.root)].append(distance(loops, write.index, access))
    return {key: tuple(dict.fromkeys(v)) for key, v in found.items()}


def distance(loops: Sequence[Loop], written: Sequence[Expr], access: Access) -> tuple[Expr, ...]:
    """How many iterations before its own a cell reads, per loop.

    Raises NoSchedule when that varies in another way than the chains of a loop do.
    """
    if len(written) != len(loops):
        raise NoSchedule(f"`{access.array.root.name}` is not written by every loop of the nest")
    total: list[Expr] = []
    for loop, w, r in zip(loops, written, access.index, strict=True):
        step = w - r
        if w != of(loop.symbol) or (step.constant is None and step != loop.chains):
            raise NoSchedule(f"`{Drawing().read(access)}` is not at a constant distance along `{loop.symbol}`")
        total.append(step)
    return tuple(total)


def accesses(read: Read) -> Iterator[Access]:
    if isinstance(read, Choose):
        yield from accesses(read.then)
        yield from accesses(read.otherwise)
    elif isinstance(read, Access):
        yield read


def depends_on(read: Read, symbols: Sequence[Symbol]) -> set[Symbol]:
    """The loops of the nest that say which leaf is read."""
    used = set().union(*(e.symbols() for e in expressions(read)))
    return used & set(symbols)


def loops_of(nest: Nest) -> dict[str, set[Symbol]]:
    """The loops that each value of a cell depends on."""
    found: dict[str, set[Symbol]] = {}
    for item in nest.cell:
        used = set().union(*(found.get(name, set()) for name in uses(item)))
        if isinstance(item, ReadLeaf):
            used |= depends_on(item.read, nest.symbols)
        elif isinstance(item, Compute):
            used |= item.expr.symbols() & set(nest.symbols)
        for name in defined(item):
            found[name] = found.get(name, set()) | used
    return found


def outside(nest: Nest) -> str | None:
    """Why a cell cannot be moved: it uses an integer that is computed in the nest by the user's operations."""
    made = {v.name for item in nest.cell if isinstance(item, Op) for v in item.results}
    made |= {item.var.name for item in nest.cell if isinstance(item, Compute)}
    for item in nest.cell:
        if isinstance(item, ReadLeaf):
            made.add(name_of(item.value))
    exprs = [e for item in nest.cell if isinstance(item, ReadLeaf) for e in expressions(item.read)]
    exprs += [loop.length for loop in nest.loops]
    for e in exprs:
        for atom in e.atoms():
            if isinstance(atom, Known) and atom.var.name in made:
                return f"an index or length is computed inside: {e}"
    for item in nest.cell:
        if isinstance(item, ReadLeaf):
            for part in sources(item.read):
                value = variable_of(part.value) if isinstance(part, Computed) else None
                if isinstance(value, Var) and value.name in made:
                    return "a cell starts from a value that is computed in the nest"
                if isinstance(part, Part) and part.source.var.name in made:
                    return "a cell reads a part of a tensor that it computes"
    return None
