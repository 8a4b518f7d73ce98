# SPDX-License-Identifier: MIT
"""The plan "tasks": the loops in program order on the host, every cell a task.

The runtime orders tasks by the rows that they read and write, so it discovers the wavefront, for lists of any lengths.
What a condition over indices chooses (an initial value, the last step of a fold) is chosen on the host: a task names
exactly the rows that it touches.  A fold keeps two planes, which its tasks reuse in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.values import Tensor
from pto_jit.fractal.compile.expr import Condition, Writer
from pto_jit.fractal.compile.layout import Layout, laid_out, leaf_of, place
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Compute,
    Leaf,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
)
from pto_jit.fractal.compile.sequential import Sequential, variable_of
from pto_jit.fractal.compile.wavefront import Wavefront
from pto_jit.ir import walk
from pto_jit.ir.nodes import If, Operand, Scope, Var
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

MOST_CASES = 64


@frozen(eq=False)
class Store:
    """Where a row goes: in the planes that cells read, or in the memory behind the nest."""

    tensor: Tensor
    row: Operand
    item: WriteLeaf


class Tasks(Wavefront):
    """Writes a nest as tasks."""

    def write_tasks(self, writer: Writer) -> None:
        self.states: dict[int, tuple[Layout, Tensor]] = {}
        for item in self.nest.cell:
            if isinstance(item, WriteLeaf) and id(item.array.root) not in self.states:
                self.state(item.array.root, writer)
        self.loops(writer, self.conditions())

    def kept(self, root: Array) -> frozenset[int]:
        """The folds whose state has two planes, which its tasks use in turn."""
        return frozenset(root.folded)

    def loops(self, writer: Writer, conditions: list[Condition]) -> None:
        """The loops on the host around the tasks."""

        def level(w: Writer, k: int) -> None:
            if k == len(self.nest.loops):
                self.cases(w, conditions, {})
                return
            loop = self.nest.loops[k]
            self.counted(w, loop.symbol, w.expr(loop.length), lambda w: level(w, k + 1))

        level(writer, 0)

    def state(self, root: Array, writer: Writer) -> None:
        """Memory for what cells read of each other, and for what is read behind the nest (the same without folds)."""
        layout = laid_out(writer, root.dims, self.kept(root))
        if self.escaping(root):
            self.behind(root, writer)
            if not root.folded or not self.nest.distances[id(root)]:
                self.states[id(root)] = root.layout, root.tensor
                return
        shape = [writer.expr(layout.rows), *root.leaf.extents]
        (var,) = self.e.op("alloc", shape, {"dtype": root.leaf.dtype}, hint=f"{root.name}_state")
        self.states[id(root)] = layout, Tensor(var, tuple(shape), self.e.loc)

    # -- cases -----------------------------------------------------------------------------------------------------

    def conditions(self) -> list[Condition]:
        """What is chosen on the host."""
        found: dict[Condition, None] = {}
        for item in self.nest.cell:
            if isinstance(item, ReadLeaf):
                found.update(dict.fromkeys(conditions_of(item.read)))
            elif isinstance(item, WriteLeaf):
                found.update(dict.fromkeys(self.last(item)))
        return list(found)

    def last(self, item: WriteLeaf) -> list[Condition]:
        """The conditions under which a cell writes the result of folds."""
        root = item.array.root
        if not self.escaping(root):
            return []
        loops = self.nest.loops
        return [Condition("zero", item.index[k] - loops[k].length + 1) for k in root.folded]

    def cases(self, writer: Writer, conditions: Sequence[Condition], known: dict[Condition, bool]) -> None:
        """One task for each outcome of the conditions."""
        if not conditions:
            self.task(writer, known)
            return
        first, *rest = conditions
        cond = writer.condition(first)
        with self.e.block() as then:
            self.cases(writer, rest, {**known, first: True})
        with self.e.block() as otherwise:
            self.cases(writer, rest, {**known, first: False})
        self.e.append(If(cond, tuple(then), tuple(otherwise), self.nest.loops[0].loc))

    # -- one task --------------------------------------------------------------------------------------------------

    def task(self, writer: Writer, known: dict[Condition, bool]) -> None:
        """Rows on the host, then a scope that loads, computes and stores."""
        e = self.e
        bodies: list[Callable[[], None]] = []
        for item in self.nest.cell:
            if isinstance(item, ReadLeaf):
                bodies.append(self.loaded(item, decided(item.read, known), writer))
            elif isinstance(item, Compute):
                var = writer.expr(item.expr)
                bodies.append(lambda item=item, var=var: self.plain.assign(item.var, var))
            elif isinstance(item, WriteLeaf):
                bodies.extend(self.stored(item, writer, known))
            else:
                bodies.append(lambda item=item: e.append(item))
        with e.block() as block:
            e.current.extend(self.nest.before)
            for body in bodies:
                body()
        names = {v.name: e.fresh(v.name, v.type).name for s in walk.statements(tuple(block)) for v in walk.defs(s)}
        e.append(Scope("cell", walk.rename(tuple(block), names), True, self.nest.loops[-1].loc))

    def loaded(self, item: ReadLeaf, read: Read, writer: Writer) -> Callable[[], None]:
        target = variable_of(item.value)
        assert isinstance(target, Var)
        if isinstance(read, Access):
            state = self.states.get(id(read.array.root))
            if state is not None:
                tensor, row = state[1], writer.expr(state[0].row(read.index))
            else:
                tensor, row = place(writer, read.array, read.index)
            return lambda: self.plain.assign(target, self.leaf(tensor, row, item.leaf))
        if isinstance(read, Part):
            starts = [writer.expr(x) for x in read.starts]
            return lambda: self.plain.assign(target, _Starts(self.g, starts).value(read, item.leaf, writer))
        return lambda: self.plain.assign(target, self.plain.value(read, item.leaf, writer))

    def leaf(self, tensor: Tensor, row: Operand, leaf: Leaf) -> Operand:
        if not leaf.extents:
            return self.e.scalar("getelem", [tensor.var, row]).operand
        return load_all(self.g, leaf_of(self.g, tensor, row)).var

    def stored(self, item: WriteLeaf, writer: Writer, known: dict[Condition, bool]) -> list[Callable[[], None]]:
        root = item.array.root
        found: list[Store] = []
        state = self.states.get(id(root))
        if state is not None and (self.nest.distances[id(root)] or state[1] is root.tensor):
            found.append(Store(state[1], writer.expr(state[0].row(item.index)), item))
        apart = self.escaping(root) and (state is None or state[1] is not root.tensor)
        if apart and all(known[c] for c in self.last(item)):
            found.append(Store(root.tensor, writer.expr(root.layout.row(item.index)), item))
        return [lambda s=s: self.store(s.tensor, s.row, variable_of(s.item.value), root.leaf) for s in found]


class _Starts(Sequential):
    """Reads a part of a tensor at offsets that were computed before."""

    def __init__(self, g: Generator, starts: list[Operand]) -> None:
        Sequential.__init__(self, g, set())
        self.starts = starts

    def value(self, read: Read, leaf: Leaf, writer: Writer) -> Operand:
        from pto_jit.fractal.compile.expr import operand

        assert isinstance(read, Part)
        at = tuple(operand(s) for s in self.starts)
        return Sequential.value(self, Part(read.source, at, read.extents, read.depth), leaf, writer)


def conditions_of(read: Read) -> list[Condition]:
    """The conditions of a choice, from the outside in."""
    if not isinstance(read, Choose):
        return []
    return [read.condition, *conditions_of(read.then), *conditions_of(read.otherwise)]


def decided(read: Read, known: Mapping[Condition, bool]) -> Read:
    """What is read where the conditions in `known` are decided."""
    if not isinstance(read, Choose):
        return read
    outcome = known.get(read.condition)
    if outcome is None:
        return Choose(read.condition, decided(read.then, known), decided(read.otherwise, known))
    return decided(read.then if outcome else read.otherwise, known)
