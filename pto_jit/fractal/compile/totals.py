# SPDX-License-Identifier: MIT
"""A reduction of numbers that stand side by side in memory is one of a vector: `ft.reduce(pl.maximum, scores)`.

The numbers are combined in the order of a reduction of a tile then, which `ft.reduce` allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.codegen.values import static_extent
from pto_jit.dtypes import f32, f64
from pto_jit.fractal.compile.expr import Writer
from pto_jit.fractal.compile.lists import Array, Loop, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.sequential import name_of, variable_of
from pto_jit.fractal.compile.weighted import FEWEST, names, side_by_side, together
from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

OF_TILES = {"add": "sum", "max": "max", "min": "min", "mul": "prod"}


@frozen(eq=False)
class Total:
    """What `loop` makes of the numbers of `read` and the first value of `state`, by `op` of two."""

    loop: Loop
    read: ReadLeaf
    state: Array
    op: str

    def written(self, g: Generator, initial: Var, writer: Writer) -> Operand:
        e = g.e
        count = writer.expr(self.loop.length)
        row = together(g, self.read, self.loop, [count], count, writer)
        (total,) = e.op(OF_TILES[self.op], [row], {"axes": (0,), "keepdims": False})
        if not isinstance(initial.type, ScalarType):
            (total,) = e.op("full", [total, *self.read.leaf.extents])
        return e.op(self.op, [initial, total])[0]


def total_of(loop: Loop) -> Total | None:
    """What a loop makes of numbers, where it is such a reduction."""
    known = loop.length.constant
    if loop.kind != "reduce" or loop.chains is not None or (known is not None and known < FEWEST):
        return None
    states = [i for i in loop.body if isinstance(i, ReadLeaf) and i.state is not None]
    reads = [i for i in loop.body if isinstance(i, ReadLeaf) and i.state is None and i.final is None]
    writes = [i for i in loop.body if isinstance(i, WriteLeaf)]
    ops = [i for i in loop.body if isinstance(i, Op)]
    if (len(states), len(reads), len(writes), len(ops)) != (1, 1, 1, 1) or len(loop.body) != 4:
        return None
    (held,), (read,), (write,), (op,) = states, reads, writes, ops
    state, leaf = held.state, read.leaf
    if op.op not in OF_TILES or names(op.args) != {name_of(held.value), name_of(read.value)} or len(op.args) != 2:
        return None
    if write.array is not state or names([variable_of(write.value)]) != names(op.results) or state is None:
        return None
    if leaf.dtype not in (f32, f64) or held.leaf.dtype != leaf.dtype or held.leaf.extents != leaf.extents:
        return None
    alone = all(static_extent(x) == 1 for x in leaf.extents)
    return Total(loop, read, state, op.op) if alone and side_by_side(read, loop) else None
