# SPDX-License-Identifier: MIT
"""Rows of a block that lie anywhere, read one by one to memory of the block's own.

That memory is made where the block begins: tensors are made outside of in-core scopes, so memory made between the
operations of a block would cut its scope in two, and each tile that is needed behind the cut would go through memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Scalar, Tensor
from pto_jit.fractal.compile.batching import row_extents
from pto_jit.fractal.compile.expr import Symbol, Writer
from pto_jit.fractal.compile.lists import Leaf, Read
from pto_jit.fractal.compile.sequential import Sequential
from pto_jit.ir.nodes import For, Operand

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


class Gathering:
    """What a block gathers, which begins where this is made."""

    def __init__(self, g: Generator) -> None:
        self.e = g.e
        self.plain = Sequential(g, set())
        self.block = g.e.current
        self.place = len(self.block)

    def rows(self, writer: Writer, symbol: Symbol, read: Read, leaf: Leaf, start: Operand, count: Operand) -> Tensor:
        """What so many iterations of a loop read, from `start` on."""
        e, rest = self.e, row_extents(leaf.extents)
        with e.block() as made:
            (rows,) = e.op("alloc", [count, *rest], {"dtype": leaf.dtype}, hint="input_rows")
        self.block[self.place : self.place] = made
        self.place += len(made)
        row = e.fresh("row", I64)
        with e.block() as body:
            value = self.plain.value_of(read, leaf, writer.but({symbol: writer.op("add", start, row)}))
            if isinstance(value, Scalar):
                e.op("setelem", [value.operand, rows, row, index(0)])
            else:
                (one,) = e.op("reshape", [value.var, index(1), *rest])
                e.op("store", [one, rows, row, *(index(0) for _ in rest)], {"inside": True})
        e.append(For("sequential", row, index(0), count, index(1), tuple(body), loc=e.loc))
        return Tensor(rows, (count, *rest), e.loc)
