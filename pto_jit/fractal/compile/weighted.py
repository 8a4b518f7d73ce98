# SPDX-License-Identifier: MIT
"""A reduction that adds up vectors, each times a number of its own, is a product of a row and a matrix.

`ft.reduce(add, ft.map(lambda p: p[0] * p[1], ft.zip(scores, values)))`: the weighted sum of attention.  The numbers
stand side by side in memory, and so do the vectors.  A sum has the order of a product then, which a reduction allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import view as view_of
from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import static_extent
from pto_jit.dtypes import f32, f64
from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.blocks import in_order
from pto_jit.fractal.compile.expr import Writer, of
from pto_jit.fractal.compile.layout import place
from pto_jit.fractal.compile.lists import Access, Array, Compute, Dim, Leaf, Loop, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.ir.nodes import If, Op, Operand, Var
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

FEWEST = 16
"""Vectors that are worth a product, where their number is known."""


@frozen(eq=False)
class Weighted:
    """The sum over `loop` of a number of `factors` times a vector of `vectors`, added to the first value of `state`;
    that is the first term (`started`) where the reduction has no initializer."""

    loop: Loop
    factors: ReadLeaf
    vectors: ReadLeaf
    state: Array
    leaf: Leaf
    started: bool

    def written(self, g: Generator, initial: Var, writer: Writer) -> Operand:
        """The sum."""
        e = g.e
        count = writer.expr(self.loop.length)
        (total,) = e.op("dot", [self.numbers(g, index(1), count, writer), self.matrix(g, count, writer)])
        (total,) = e.op("reshape", [total, *self.leaf.extents])
        return total if self.started else e.op("add", [initial, total])[0]

    def numbers(self, g: Generator, rows: Operand, count: Operand, writer: Writer) -> Operand:
        """The numbers of so many sums, which lie one after the other."""
        elements = count if rows == index(1) else writer.op("mul", rows, count)
        return together(g, self.factors, self.loop, [rows, count], elements, writer)

    def matrix(self, g: Generator, count: Operand, writer: Writer) -> Operand:
        """The vectors, below each other."""
        return together(g, self.vectors, self.loop, [count, *row_extents(self.leaf.extents)], count, writer)


def together(
    g: Generator, item: ReadLeaf, loop: Loop, extents: Sequence[Operand], count: Operand, writer: Writer
) -> Operand:  # fmt: skip
    """What all iterations of a loop read, as a tile of these extents."""
    assert isinstance(item.read, Access)
    tensor, row = place(writer.but({loop.symbol: index(0)}), item.read.array, item.read.index)
    zeros = [index(0)] * (tensor.rank - 1)
    rows = view_of(g, tensor, [row, *zeros], [count, *tensor.extents[1:]], inside=True)
    return g.e.op("reshape", [load_all(g, rows).var, *extents])[0]

def weighted(loop: Loop) -> Weighted | None:
    """What a loop adds up, where it is such a reduction."""
    known = loop.length.constant
    if loop.kind != "reduce" or loop.chains is not None or (known is not None and known < FEWEST):
        return None
    body, started = list(loop.body), False
    branch = next((i for i in body if isinstance(i, If)), None)
    if branch is not None:
        rest = _started(loop, branch)
        if rest is None:
            return None
        body, started = rest, True
    states = [i for i in body if isinstance(i, ReadLeaf) and i.state is not None]
    reads = [i for i in body if isinstance(i, ReadLeaf) and i.state is None and i.final is None]
    writes = [i for i in body if isinstance(i, WriteLeaf)]
    ops = [i for i in body if isinstance(i, Op)]
    if (len(states), len(reads), len(writes), len(ops)) != (1, 2, 1, 2) or len(body) != 6:
        return None
    state = states[0].state
    mul, add = ops
    assert state is not None
    if (mul.op, add.op) != ("mul", "add") or names(mul.args) != {name_of(i.value) for i in reads}:
        return None
    if names(add.args) != {name_of(states[0].value), mul.results[0].name} or writes[0].array is not state:
        return None
    if names([variable_of(writes[0].value)]) != {add.results[0].name}:
        return None
    return _fitting(loop, reads, state, states[0].leaf, started)


def _fitting(loop: Loop, reads: Sequence[ReadLeaf], state: Array, leaf: Leaf, started: bool) -> Weighted | None:
    """The sum, where the types fit and what is read lies side by side."""
    numbers = [i for i in reads if all(static_extent(x) == 1 for x in i.leaf.extents)]
    vectors = [i for i in reads if i.leaf.extents == leaf.extents and i not in numbers]
    if len(numbers) != 1 or len(vectors) != 1 or len(row_extents(leaf.extents)) != 1 or not leaf.extents:
        return None
    if len(numbers[0].leaf.extents) > len(leaf.extents) or leaf.dtype not in (f32, f64):
        return None
    if any(i.leaf.dtype != leaf.dtype or not side_by_side(i, loop) for i in reads):
        return None
    return Weighted(loop, numbers[0], vectors[0], state, leaf, started)


def side_by_side(item: ReadLeaf, loop: Loop) -> bool:
    """Whether what the iterations read lies one after the other."""
    if not isinstance(item.read, Access):
        return False
    root, at = item.read.array.root, item.read.index
    if root.argument is not None:
        return in_order(at[0], (Dim(loop.symbol, loop.length),))
    outer = set().union(*(e.symbols() for e in at[:-1]))
    return at[-1].coefficient(loop.symbol) == 1 and loop.symbol not in outer and len(at) - 1 not in root.folded


def _started(loop: Loop, branch: If) -> list[Any] | None:
    """The body of a loop whose first iteration sets the state, in the other iterations; None where it is another."""
    body = loop.body
    tests = [i for i in body if isinstance(i, Op) and names([branch.cond]) == {v.name for v in i.results}]
    at = [i for i in body if isinstance(i, Compute)]
    if len(tests) != 1 or len(at) != 1 or tests[0].op != "eq" or tests[0].args != (at[0].var, index(0)):
        return None
    if at[0].expr != of(loop.symbol) or len(branch.then) != 1 or not isinstance(branch.then[0], WriteLeaf):
        return None
    first: Any = branch.then[0]
    products = [i for i in body if isinstance(i, Op) and i.op == "mul"]
    if len(products) != 1 or names([variable_of(first.value)]) != {v.name for v in products[0].results}:
        return None
    rest = [i for i in body if i is not branch and i is not tests[0] and i is not at[0]]
    if any(isinstance(i, WriteLeaf) and i.array is not first.array for i in branch.orelse):
        return None
    return [*rest, *branch.orelse]


def names(values: Sequence[Operand]) -> set[str]:
    return {v.name if isinstance(v, Var) else "" for v in values}
