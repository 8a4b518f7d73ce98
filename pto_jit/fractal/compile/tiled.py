# SPDX-License-Identifier: MIT
"""The plan "tasks" with `tile=`: a task for every tile of cells.

The host runs over tiles in program order, a task over the cells of its tile in theirs.  That is an order that every
distance allows when tiles, taken as points, depend on tiles before them alone: when no component of a distance is
negative (the loops are fully permutable; M. Wolf and M. Lam, 1991), or when one that comes before it is positive along
a loop that is not tiled, so that the tiles are in order whatever comes after.  Otherwise the loops are skewed first:
tiles are rectangles of y = S x, S unimodular and lower triangular, in which no distance has a negative component.

The runtime compares rectangles.  Rows of an array lie in one row after the other, in which a tile is none; so tasks see
the rows of a jagged list, behind the dimensions on which lengths depend, as a tensor over the other dimensions
(`Box`), of which a tile and its neighbours are boxes.  What conditions over untiled loops choose is chosen on the
host; those over loops that are tiled are decided by the task, cell by cell, and its regions are those of all its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Tensor, static_extent
from pto_jit.fractal.compile.expr import Condition, Expr, Symbol, Writer, binary, number, of
from pto_jit.fractal.compile.hyperplane import Matrix, NoSchedule, Vector, skew
from pto_jit.fractal.compile.layout import Layout, extent
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Leaf,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
)
from pto_jit.fractal.compile.nest import Nest
from pto_jit.fractal.compile.sequential import Sequential, variable_of
from pto_jit.fractal.compile.tasks import MOST_CASES, Tasks, conditions_of, decided
from pto_jit.fractal.compile.wavefront import Last
from pto_jit.ir import walk
from pto_jit.ir.nodes import If, Operand, Scope, Var
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from pto_jit.codegen.generator import Generator

LARGE = 4096  # bytes of a leaf of which copies cost more than the code of another cell
MOST_SPLIT = 2  # conditions that are decided for cells as a whole: at most four of them are written


def sizes(nest: Nest) -> tuple[int, ...] | None:
    """What `tile=` says, a size per loop; None when it is not given.

    An integer is the size along the loop of its call, several are those along that loop and the ones inside of it.
    Where two calls speak of one loop the outer one counts.  Raises NoSchedule for more sizes than loops.
    """
    found: dict[int, int] = {}
    for k, loop in enumerate(nest.loops):
        if loop.tile is None:
            continue
        if len(loop.tile) > len(nest.loops) - k:
            raise NoSchedule(
                f"`tile=` gives {len(loop.tile)} sizes from the loop over `{loop.symbol}` on, where the nest has "
                f"{len(nest.loops) - k} loops: {', '.join(map(str, nest.symbols[k:]))}"
            )
        for j, size in enumerate(loop.tile):
            found.setdefault(k + j, size)
    return tuple(found.get(k, 1) for k in range(len(nest.loops))) if found else None


def refused(nest: Nest, tile: Sequence[int]) -> str | None:
    """Why tiles of those sizes cannot be tasks; None when they can."""
    names = nest.symbols
    for k, size in enumerate(tile):
        inside = nest.loops[k + 1 :]
        dependent = next((x for x in inside if names[k] in x.length.symbols()), None)
        if size > 1 and dependent is not None:
            return (
                f"the length of the loop over `{dependent.symbol}` depends on `{names[k]}`, so that tiles along "
                f"`{names[k]}` are not rectangles: its size is 1"
            )
        outer = next((s for x in inside for s in x.length.symbols() if s in names[k + 1 :]), None)
        if size > 1 and outer is not None:
            return (
                f"the loop over `{outer}`, on which a length depends, stands inside of the loop over `{names[k]}`, so "
                f"that tiles along `{names[k]}` are not rectangles: its size is 1"
            )
    for item in nest.cell:
        if isinstance(item, WriteLeaf) and tuple(item.index) != tuple(of(s) for s in names):
            return f"`{item.array.root.name}` is not written at the indices of the loops"
    return None


def skewing(nest: Nest, tile: Sequence[int]) -> Matrix:
    """S: the identity where tiles of the loops as they are can be in order."""
    dims = len(nest.loops)
    if any(_is_behind(d, tile) for d in nest.all_distances):
        return skew(nest.all_distances, dims)
    return tuple(tuple(int(i == k) for i in range(dims)) for k in range(dims))


def _is_behind(distance: Vector, tile: Sequence[int]) -> bool:
    """Whether a tile could need one behind it: a negative step before any along an untiled loop puts them in order."""
    for step, size in zip(distance, tile, strict=True):
        if step < 0:
            return True
        if step > 0 and size == 1:
            return False
    return False


@frozen(eq=False)
class Box:
    """The rows of an array as a tensor over its last dimensions.

    tensor: [extents of the loops `over`, *leaf]; [1, *leaf] over no loop.  halves: which of these dimensions keep two
    planes, in turn.
    """

    tensor: Tensor
    over: tuple[int, ...]
    halves: frozenset[int]

    def place(self, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the leaf of an index (over all loops) stands."""
        own = tuple(binary("mod", at[k], number(2)) if k in self.halves else at[k] for k in self.over)
        return own or (number(0),)


@frozen(eq=False)
class Range:
    """The indices of a tile along a loop: [low, high) for all its cells, [start, stop) for the outer indices of one."""

    low: Expr
    high: Expr
    start: Expr
    stop: Expr


class Tiled(Tasks):
    """Writes a nest as tasks of several cells; `tile`: how many, per loop."""

    def __init__(self, g: Generator, nest: Nest, escaping: Callable[[Array], bool], tile: Sequence[int]) -> None:
        Tasks.__init__(self, g, nest, escaping)
        self.tile = tuple(tile)
        self.matrix = skewing(nest, tile)
        several = [k for k, row in enumerate(self.matrix) if tile[k] > 1 or any(row[:k])]
        self.inner = tuple(several)  # the loops that a task runs over; the others are the host's
        self.tiled = {nest.symbols[k] for k in several}
        self.ranges: tuple[Range, ...] = ()  # of the task that is being written
        self.boxes: dict[int, Box] = {}  # what cells read of each other, by array
        self.behinds: dict[int, Box] = {}  # what is read behind the nest, where that is apart

    def kept(self, root: Array) -> frozenset[int]:
        """Folds whose state has two planes; with several steps of a fold in a tile its neighbours need all planes."""
        return frozenset(k for k in root.folded if k not in self.inner)

    def conditions(self) -> list[Condition]:
        """Those over the loops of the host; where there are too many, the initial and last steps alone."""
        found = [c for c in Tasks.conditions(self) if not c.value.symbols() & self.tiled]
        if 1 << len(found) > MOST_CASES:
            found = [c for c in found if c.kind == "zero"][: MOST_CASES.bit_length() - 1]
        return found

    def said(self) -> str:
        """How the loops are skewed, for the decision."""
        names = self.nest.symbols
        skewed = [
            " + ".join(f"{c if c > 1 else ''}{s}" for c, s in zip((*row[:k], 1), names, strict=False) if c)
            for k, row in enumerate(self.matrix)
            if any(row[:k])
        ]
        return f", of the skewed loops {', '.join(skewed)}" if skewed else ""

    # -- on the host -----------------------------------------------------------------------------------------------

    def loops(self, writer: Writer, conditions: list[Condition]) -> None:
        roots = {id(i.array.root): i.array.root for i in self.nest.cell if isinstance(i, WriteLeaf)}

        def level(w: Writer, k: int, ranges: tuple[Range, ...]) -> None:
            for root in roots.values():
                self.seen(root, w, k)
            if k == len(self.nest.loops):
                self.ranges = ranges
                self.cases(w, conditions, {})
                return
            loop = self.nest.loops[k]
            if k not in self.inner:
                x = of(loop.symbol)
                own = Range(x, x + 1, x, x + 1)
                self.counted(w, loop.symbol, w.expr(loop.length), lambda w: level(w, k + 1, (*ranges, own)))
                return
            number_of = Symbol(f"{loop.symbol}_tile", loop.symbol.number)
            size, least, most = self.tile[k], number(0), number(0)
            for j, times in enumerate(self.matrix[k][:k]):
                least, most = least + ranges[j].low * times, most + (ranges[j].high - 1) * times
            start = w.expr(binary("floordiv", least, number(size)))
            stop = w.expr(binary("floordiv", loop.length + most + (size - 1), number(size)))

            def one(w: Writer) -> None:
                own = self.range(k, of(number_of) * size, least, most)
                for e in (own.low, own.high):
                    w.expr(e)  # on the host, where the task finds it: `Writer.once`
                level(w, k + 1, (*ranges, own))

            self.counted(w, number_of, stop, one, start=start)

        level(writer, 0, ())

    def range(self, k: int, first: Expr, least: Expr, most: Expr) -> Range:
        """Of the tile that begins at `first`; `least`, `most`: what skewing adds to an index."""
        length, end = self.nest.loops[k].length, first + self.tile[k]
        if not any(self.matrix[k][:k]):
            high = binary("min", end, length)
            return Range(first, high, first, high)
        by = number(0)
        for j, times in enumerate(self.matrix[k][:k]):
            by = by + of(self.nest.symbols[j]) * times
        low, high = binary("max", number(0), first - most), binary("min", end - least, length)
        return Range(low, high, binary("max", number(0), first - by), binary("min", end - by, length))

    def seen(self, root: Array, writer: Writer, depth: int) -> None:
        """Make the boxes of an array where the loops on which its rows depend are open, which `depth` says."""
        state = self.states.get(id(root))
        if state is not None:
            made = self.box(state[0], state[1], root.leaf, writer, depth)
            if made is not None:
                self.boxes[id(root)] = made
        if self.escaping(root) and (state is None or state[1] is not root.tensor):
            made = self.box(root.layout, root.tensor, root.leaf, writer, depth)
            if made is not None:
                self.behinds[id(root)] = made

    def box(self, layout: Layout, tensor: Tensor, leaf: Leaf, writer: Writer, depth: int) -> Box | None:
        """The box of a memory, if it is made at that depth."""
        lost = layout.lost if isinstance(layout, Last) else frozenset[int]()
        loops = [k for k in range(len(self.nest.loops)) if k not in lost]
        first = 0 if layout.prefix is None else len(layout.prefix.dims)
        if depth != (loops[first - 1] + 1 if first else 0):
            return None
        here = {d.symbol: of(self.nest.symbols[k]) for d, k in zip(layout.dims, loops, strict=True)}
        extents = [extent(layout.dims, layout.folded, k).replace(here) for k in range(first, len(layout.dims))]
        extents = extents or [number(1)]  # of a number there would be no axis at all
        shape = [*(writer.expr(x) for x in extents), *leaf.extents]
        rows = number(1)
        for x in extents:
            rows = rows * x
        whole = tensor
        if first:
            at = tuple(of(s) for s in self.nest.symbols)
            start = Layout.row(layout, (*(at[k] for k in loops[:first]), *(number(0) for _ in loops[first:])))
            inner = tensor.extents[1:]
            zeros = [index(0)] * len(inner)
            whole = view_of(self.g, tensor, [writer.expr(start), *zeros], [writer.expr(rows), *inner])
        (var,) = self.e.op("tensor_reshape", [whole.var, *shape], hint=tensor.var.name)
        over = tuple(loops[first:])
        halves = frozenset(loops[k] for k in layout.folded if k >= first)
        return Box(Tensor(var, tuple(shape), self.e.loc), over, halves)

    # -- one task --------------------------------------------------------------------------------------------------

    def task(self, writer: Writer, known: dict[Condition, bool]) -> None:
        """What the host knows of the cells, then a scope with loops over them."""
        e = self.e
        cells = Cells(self, writer, known)
        for item in self.nest.cell:
            cells.fix(item, writer)
        with e.block() as block:
            e.current.extend(self.nest.before)

            def level(w: Writer, left: Sequence[int]) -> None:
                if left:
                    first, *rest = left
                    start, stop = w.expr(self.ranges[first].start), w.expr(self.ranges[first].stop)
                    self.counted(w, self.nest.symbols[first], stop, lambda w: level(w, rest), start=start)
                    return
                self.cells(cells, w, self.split())

            level(writer, self.inner)
        e.append(Scope("tile", self.renamed(block), True, self.nest.loops[-1].loc))

    def split(self) -> list[Condition]:
        """The conditions that a task decides for a cell as a whole, so that nothing is copied to where both of their
        outcomes are read: where that is more than the code of another cell."""
        leaves = [item for item in self.nest.cell if isinstance(item, ReadLeaf) and isinstance(item.read, Choose)]
        if not any(_bytes(item.leaf) >= LARGE for item in leaves):
            return []
        found = [c for c in Tasks.conditions(self) if c.value.symbols() & self.tiled and c.kind == "zero"]
        read = {c for item in leaves for c in conditions_of(item.read)}
        return [c for c in found if c in read][:MOST_SPLIT]

    def cells(self, cells: Cells, writer: Writer, conditions: Sequence[Condition]) -> None:
        """The operations of a cell, for each outcome of the conditions."""
        if not conditions:
            cells.block(self.nest.cell, writer)
            return
        e = self.e
        first, *rest = conditions
        cond = writer.condition(first)
        with e.block() as then:
            self.cells(cells.where(first, True), writer, rest)
        with e.block() as otherwise:
            self.cells(cells.where(first, False), writer, rest)
        e.append(If(cond, self.renamed(then), self.renamed(otherwise), self.nest.loops[-1].loc))

    def renamed(self, block: Sequence[Any]) -> tuple[Any, ...]:
        """A block with names of its own."""
        e, body = self.e, tuple(block)
        names = {v.name: e.fresh(v.name, v.type).name for s in walk.statements(body) for v in walk.defs(s)}
        return walk.rename(body, names)


class Cells(Sequential):
    """Writes the cells of a task; `known`: the conditions that the host decided."""

    def __init__(self, plan: Tiled, writer: Writer, known: dict[Condition, bool]) -> None:
        Sequential.__init__(self, plan.g, set())
        self.plan = plan
        self.known = known
        self.fixed: dict[Expr, Operand] = {}  # places that are the same for all cells of the task

    def where(self, condition: Condition, outcome: bool) -> Cells:
        """The same where a condition is decided."""
        other = Cells(self.plan, Writer(self.e), {**self.known, condition: outcome})
        other.fixed = self.fixed
        return other

    def fix(self, item: object, writer: Writer) -> None:
        """Compute on the host what of a record's indices is the same for all cells, so that its regions are exact."""
        if isinstance(item, ReadLeaf):
            read = decided(item.read, self.known)
            for at in _accesses(read):
                box = self.plan.boxes.get(id(at.array.root))
                self._fix(box.place(at.index) if box is not None else at.index, writer)
            self._fix(tuple(expressions(read)), writer)
        elif isinstance(item, WriteLeaf):
            for boxes in (self.plan.boxes, self.plan.behinds):
                box = boxes.get(id(item.array.root))
                if box is not None:
                    self._fix(box.place(item.index), writer)

    def _fix(self, exprs: Sequence[Expr], writer: Writer) -> None:
        for e in exprs:
            if not e.symbols() & self.plan.tiled:
                self.fixed[e] = writer.expr(e)
                continue
            for atom, _ in e.terms:
                part = of(atom)
                if not isinstance(atom, Symbol) and not part.symbols() & self.plan.tiled:
                    writer.expr(part)  # which is found again: `Writer.once`

    def at(self, e: Expr, writer: Writer) -> Operand:
        found = self.fixed.get(e)
        return writer.expr(e) if found is None else found

    def read(self, read: Read, leaf: Leaf, target: Var, writer: Writer) -> None:
        Sequential.read(self, decided(read, self.known), leaf, target, writer)

    def value(self, read: Read, leaf: Leaf, writer: Writer) -> Operand:
        if isinstance(read, Access):
            box = self.plan.boxes.get(id(read.array.root))
            if box is not None:
                return self.load(box, box.place(read.index), leaf, writer)
        return Sequential.value(self, read, leaf, writer)

    def load(self, box: Box, place: Sequence[Expr], leaf: Leaf, writer: Writer) -> Operand:
        at = [self.at(e, writer) for e in place]
        if not leaf.extents:
            return self.e.scalar("getelem", [box.tensor.var, *at]).operand
        return load_all(self.g, self.one(box, at)).var

    def one(self, box: Box, at: Sequence[Operand]) -> Tensor:
        """A leaf of a box as a tensor of its own."""
        inner = box.tensor.extents[len(at) :]
        ones, zeros = [index(1)] * len(at), [index(0)] * len(inner)
        return view_of(self.g, box.tensor, [*at, *zeros], [*ones, *inner], tuple(range(len(at))))

    def write(self, item: WriteLeaf, writer: Writer) -> None:
        root = item.array.root
        box = self.plan.boxes.get(id(root))
        state = self.plan.states.get(id(root))
        if box is not None and (self.plan.nest.distances[id(root)] or (state and state[1] is root.tensor)):
            self.store(box, item, writer)
        behind = self.plan.behinds.get(id(root))
        if behind is None:
            return
        conditions = self.plan.last(item)
        if not all(self.known.get(c, True) for c in conditions):
            return
        ok: Operand | None = None
        for c in conditions:
            if c not in self.known:
                holds = writer.condition(c)
                ok = holds if ok is None else writer.op("and", ok, holds)
        if ok is None:
            self.store(behind, item, writer)
            return
        with self.e.block() as block:
            self.store(behind, item, writer)
        self.e.append(If(ok, tuple(block), (), self.e.loc))

    def store(self, box: Box, item: WriteLeaf, writer: Writer) -> None:
        at = [self.at(e, writer) for e in box.place(item.index)]
        value = variable_of(item.value)
        if not item.array.root.leaf.extents:
            self.e.op("setelem", [value, box.tensor.var, *at])
            return
        target = self.one(box, at)
        self.e.op("store", [value, target.var, *([index(0)] * target.rank)])


def _bytes(leaf: Leaf) -> int:
    """Of a leaf whose extents are constants; 0 where they are not."""
    total = leaf.dtype.bytes
    for extent_ in leaf.extents:
        total *= static_extent(extent_) or 0
    return total


def _accesses(read: Read) -> list[Access]:
    if isinstance(read, Choose):
        return [*_accesses(read.then), *_accesses(read.otherwise)]
    return [read] if isinstance(read, Access) else []
