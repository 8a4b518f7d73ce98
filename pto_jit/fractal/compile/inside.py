# SPDX-License-Identifier: MIT
"""Nests that run in order, but for maps inside of them whose cells are better as the rows of blocks.

The layers of a net are a fold over weights around maps over words, and what a cell of a layer multiplies is the same
for all words: in each iteration of the fold that is one product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pto_jit.fractal.compile.batching import NotBatchable
from pto_jit.fractal.compile.blocks import Blocks
from pto_jit.fractal.compile.cost import are_blocks
from pto_jit.fractal.compile.expr import Writer
from pto_jit.fractal.compile.extents import computed_inside
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Array, Loop
from pto_jit.fractal.compile.local import TARGETS
from pto_jit.fractal.compile.nest import Nest, inner_map, outside
from pto_jit.fractal.compile.pairs import cells_of
from pto_jit.fractal.compile.sequential import Sequential
from pto_jit.lower.decisions import Decision

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


class InOrder(Sequential):
    """Writes records in order, and maps inside of loops as blocks of rows where these cost less."""

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
        found = None if self.asked or not self.depth else blocks_inside(self.session, loop)
        self.depth += 1
        if found is None:
            super().loop(loop, writer)
        else:
            nest, blocks, figures = found
            reason = f"rows: in each iteration of the loops around, so many cells at a time as rows\n{figures}"
            names = tuple(map(str, nest.symbols))
            self.g.decisions.append(Decision("schedule", names, True, reason, loop.loc))
            self.e.current.extend(nest.before)
            blocks.prepare(writer)
            blocks.write(writer)
        self.asked, self.depth = around


def blocks_inside(session: Session, loop: Loop) -> tuple[Nest, Blocks, str] | None:
    """The cells of a loop inside of others as rows of blocks, with the figures; None where it is no map of products, or
    where cells cost less one by one."""
    if loop.kind != "parallel":
        return None
    try:
        nest = inner_map(loop)
        good, figures = are_blocks(nest)
        if not good or outside(nest) is not None or computed_inside([loop]):
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
