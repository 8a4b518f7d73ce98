# SPDX-License-Identifier: MIT
"""Loops over the chunks of a long axis, and in each over its parts, one after the other::

    FOR %chunk:idx, 0:idx, %parts:idx, 1:idx {kind=parallel}
      FOR %x_at:idx, 0:idx, %m:idx, 128:idx {kind=parallel}
        ...
        FOR %row:idx, %first:idx, %last:idx, 32:idx {kind=sequential}
          ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.names import Scalars, index
from pto_jit.lower.wholes.lines import Axis
from pto_jit.lower.wholes.parted import PROOF, DividedLine, PartLoops
from pto_jit.slotted import frozen, replace

ROWS, COLUMNS = 32, 128
"""The tile of a step down columns."""


@frozen
class Chunks:
    """How many lines an axis has, how many of them a chunk has, how many chunks there are, and the lines of a step."""

    extent: Operand
    lines: Operand
    count: Operand
    step: int


def chunks_of(extent: Operand, step: int, most: int, scalars: Scalars) -> Chunks:
    """At most so many chunks, which is known of their number, too; of steps of so many lines."""
    steps = scalars.op("floordiv", scalars.op("add", extent, index(step - 1)), index(step), "steps")
    share = scalars.op("floordiv", scalars.op("add", steps, index(most - 1)), index(most), "share")
    chunk = scalars.op("mul", scalars.op("max", share, index(1)), index(step), "chunk")
    below = scalars.op("sub", scalars.op("add", extent, chunk), index(1))
    count = scalars.op("max", scalars.op("floordiv", below, chunk), index(0), "parts")
    return Chunks(extent, chunk, scalars.op("min", count, index(most), "parts"), step)


class ChunkLoops:
    """The loops over all axes of a tile, one of them in chunks.

    parts: operations on a part of it; along: the axis of the chunks, by its class; where: the number of a chunk; head:
    numbers of a chunk; backwards: the parts of a chunk come in the other order.
    """

    def __init__(
        self, loops: PartLoops, ops: list[Op], tile: Var, along: Axis, chunks: Chunks, loc: Loc, *,
        backwards: bool = False,
    ) -> None:  # fmt: skip
        own = loops.lines.axes(tile)
        last = list(own)[-1]
        lines = [DividedLine(line, loops.found[line], chunks.step if line == along else COLUMNS if k == last else 1)
                 for k, line in own.items()]  # fmt: skip
        names, self.scalars, self.along, self.loc = loops.names, loops.scalars, along, loc
        self.parts = replace(loops, chosen=lines, at={}, extents={})
        self.chunks, self.backwards = chunks, backwards
        self.where = names.fresh("chunk")
        self.head, self._inner = Scalars(names, loc), Scalars(names, loc)
        for line in lines:
            at = self.parts.at[line.axis] = self.parts.first(ops)
            to = self._inner if line.axis == along else self.head
            self.parts.extents[line.axis] = index(1)
            if line.part > 1:
                most: Operand = index(line.part)
                if loops.bounded:
                    most = self.scalars.op("min", line.extent, most, "most")
                left = to.op("sub", line.extent, at, "left")
                self.parts.extents[line.axis] = to.op("min", left, most, "some")

        self.first = self.head.op("mul", self.where, chunks.lines, "first")
        end = self.head.op("add", self.first, chunks.lines, "end")
        self.stop = self.head.op("min", end, chunks.extent, "end")
        self.var = names.fresh("step") if backwards else self.at

    @property
    def at(self) -> Var:
        """Where a part begins."""
        return self.parts.at[self.along]

    def line_of(self, tile: Operand, axis: int) -> TileType:
        """The type of what a part of a tile comes to along an axis."""
        kind = self.parts.tile(tile).type
        assert isinstance(kind, TileType)
        return TileType(kind.dtype, tuple(1 if k == axis else n for k, n in enumerate(kind.shape)))

    def extents(self, tile: Operand, axis: int) -> list[Operand]:
        """The extents of that."""
        return [self._of_part(tile, k, index(1), self.parts.extents) if k != axis else index(1)
                for k in range(tile.type.rank)]  # type: ignore[union-attr]  # fmt: skip

    def places(self, tile: Operand, axis: int, place: Operand) -> list[Operand]:
        """Where that is in a tensor that has one of each chunk, of the chunk at a `place`."""
        return [place if k == axis else self._of_part(tile, k, index(0), self.parts.at)
                for k in range(tile.type.rank)]  # type: ignore[union-attr]  # fmt: skip

    def _of_part(self, tile: Operand, k: int, other: Operand, numbers: Mapping[Axis, Operand]) -> Operand:
        own = self.parts.lines.axes(tile)
        return numbers.get(own[k], other) if k in own else other

    def around(self, before: Sequence[Stmt], body: Sequence[Stmt], after: Sequence[Stmt]) -> list[Stmt]:
        """The loops around what is done for each part; `before` and `after`: for each chunk."""
        head, chunks, step, loc, scope = self.head, self.chunks, index(self.chunks.step), self.loc, self.parts.scope
        inside = [*self._inner.block, *body]
        if self.backwards:
            below = head.op("sub", head.op("sub", self.stop, self.first, "span"), index(1), "span")
            far = head.op("mul", head.op("floordiv", below, step, "steps"), step, "far")
            ends = head.op("add", head.op("add", self.first, self.first, "ends"), far, "ends")
            inside.insert(0, Op("sub", (self.at,), (ends, self.var), (), (), loc))
        loop = For("sequential", self.var, self.first, self.stop, step, tuple(inside), loc=loc)
        stmts: Block = (*head.block, *before, loop, *after)
        block: Block = stmts if scope.named else (Scope(scope.name, stmts, False, scope.loc),)
        for line in reversed(self.parts.chosen):
            if line.axis != self.along:
                block = (For("parallel", self.parts.at[line.axis], index(0), line.extent, index(line.part), block,
                             proof=PROOF, loc=loc),)  # fmt: skip
        loops = For("parallel", self.where, index(0), chunks.count, index(1), block, proof=PROOF, loc=loc)
        return [*self.scalars.block, loops]
