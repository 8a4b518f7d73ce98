# SPDX-License-Identifier: MIT
"""Nests that run in order, but for maps inside or around of them whose cells are better as the rows of blocks.

The layers of a net are a fold over weights around maps over words, and what a cell of a layer multiplies is the same
for all words: in each iteration of the fold that is one product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pto_jit.codegen.emit import index
from pto_jit.fractal.compile.batching import NotBatchable
from pto_jit.fractal.compile.blocks import Blocks
from pto_jit.fractal.compile.cost import are_blocks, goes_through
from pto_jit.fractal.compile.expr import Symbol, Writer
from pto_jit.fractal.compile.extents import computed_inside
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Array, Loop
from pto_jit.fractal.compile.local import TARGETS
from pto_jit.fractal.compile.nest import Nest, inner_map, outside
from pto_jit.fractal.compile.pairs import cells_of
from pto_jit.fractal.compile.sequential import Sequential
from pto_jit.fractal.compile.sums import pairs_of_sums
from pto_jit.fractal.compile.through import Through, added_up, flat, loops
from pto_jit.fractal.compile.totals import Total, total_of
from pto_jit.fractal.compile.weighted import weighted
from pto_jit.ir.nodes import If
from pto_jit.lower.decisions import Decision

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


class InOrder(Sequential):
    """Writes records in order, and maps inside of loops or around them as blocks of rows where these cost less."""

    def __init__(
        self, session: Session, kept: set[int], local: Mapping[int, Sequence[tuple[Array, int]]] | None = None
    ) -> None:
        super().__init__(session.g, kept, local)
        self.session = session
        self.depth = 0  # of loops around, none of which asks for a plan
        self.asked = session.g.options.target not in TARGETS or session.g.tasks

    def loop(self, loop: Loop, writer: Writer) -> None:
        around = self.asked, self.depth
        self.asked = self.asked or loop.schedule != "auto" or loop.tile is not None
        written = not self.asked and any(way(loop, writer) for way in (self._blocks, self._through, self._at_once))
        self.depth += 1
        if not written:
            super().loop(loop, writer)
        self.asked, self.depth = around

    def _blocks(self, loop: Loop, writer: Writer) -> bool:
        """Write a map inside of loops as blocks of rows, if it is better so."""
        found = blocks_inside(self.session, loop) if self.depth else None
        if found is None:
            return False
        nest, blocks, figures = found
        how = "in each iteration of the loops around, so many cells at a time as rows"
        self._told(loop, nest.symbols, f"{how}\n{figures}")
        self.e.current.extend(nest.before)
        blocks.prepare(writer)
        blocks.write(writer)
        return True

    def _through(self, loop: Loop, writer: Writer) -> bool:
        """Write a map around loops as rows that go through these together, if it is better so."""
        inner = list(loops(loop.body))
        if loop.kind != "parallel" or not inner or any(id(i) in self.local for i in (loop, *inner)):
            return False
        sums = [found for i in inner if (found := added_up(loop, i)) is not None]
        good, figures = goes_through(list(flat(loop.body)), loop, sums)
        if not good or computed_inside([loop]) or any(blocks_inside(self.session, i) is not None for i in inner):
            return False
        try:
            rows = Through(self.g, loop, self.kept)
        except NotBatchable:
            return False
        self._told(loop, (loop.symbol,), f"so many iterations at a time as rows, through the loops inside\n{figures}")
        rows.write(writer)
        return True

    def _at_once(self, loop: Loop, writer: Writer) -> bool:
        """Write a reduction that is a product of a row and a matrix, or one of a vector, as that."""
        found = weighted(loop) or total_of(loop)
        if found is None:
            return False
        self.carried(loop, writer)
        state = self.carriers[id(found.state)]
        with self.e.block() as block:
            self.assign(state, found.written(self.g, state, writer))
        some = writer.op("gt", writer.expr(loop.length), index(0))
        self.e.append(If(some, tuple(block), (), self.e.loc))
        self.leave(loop, self.last_values(loop), writer)
        numbers = "what is made of numbers is a reduction of a vector"
        weights = "the sum of vectors times numbers is a product of a row and a matrix"
        self._told(loop, (loop.symbol,), numbers if isinstance(found, Total) else weights)
        return True

    def _told(self, loop: Loop, symbols: Sequence[Symbol], how: str) -> None:
        names = tuple(map(str, symbols))
        self.g.decisions.append(Decision("schedule", names, True, f"rows: {how}", loop.loc))


def blocks_inside(session: Session, loop: Loop) -> tuple[Nest, Blocks, str] | None:
    """The cells of a loop inside of others as rows of blocks, with the figures; None where it is no map of products, or
    where cells cost less one by one."""
    if loop.kind != "parallel":
        return None
    try:
        nest = inner_map(loop)
        if outside(nest) is not None or computed_inside([loop]):
            return None
        sums = pairs_of_sums(session.g, nest)
        if sums is not None:
            return sums
        good, figures = are_blocks(nest)
        if not good:
            return None
        blocks = cells_of(session.g, nest)
    except (NoSchedule, NotBatchable):
        return None
    return nest, blocks, figures


def has_rows(session: Session, nest: Nest) -> bool:
    """Whether cells of a nest that runs in order will be rows: its innermost loops are a map of products."""
    inner = 1 + nest.carries[-1]
    possible = session.g.options.target in TARGETS and inner < len(nest.loops)
    return possible and blocks_inside(session, nest.loops[inner]) is not None
