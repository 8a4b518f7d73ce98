# SPDX-License-Identifier: MIT
"""The plans of nests that carry nothing: their cells as they are, or as rows of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.fractal.compile.batching import NotBatchable
from pto_jit.fractal.compile.blocks import Blocks, work_of
from pto_jit.fractal.compile.expr import Writer
from pto_jit.fractal.compile.extents import computed_inside
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.lists import Loop
from pto_jit.fractal.compile.nest import Nest, inner_map, outside
from pto_jit.fractal.compile.pairs import cells_of
from pto_jit.fractal.compile.sequential import read_by
from pto_jit.fractal.compile.sums import pairs_of_sums
from pto_jit.fractal.compile.told import Plan, asked_of, decided
from pto_jit.fractal.compile.unrolled import without_short_loops
from pto_jit.ir.nodes import Op
from pto_jit.lower.pipeline import DEVICES
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


def sums_planned(session: Session, loop: Loop, later: Sequence[Any]) -> list[tuple[Any, Plan]] | None:
    """A map whose cells add up products in short loops, as one product of matrices; None where it is none."""
    asked, tiled = asked_of(loop)
    if asked not in ("auto", "wavefront") or tiled or session.g.options.target in DEVICES:
        return None
    made = without_short_loops(session, loop, read_by(later))
    if made is None or computed_inside([loop]):
        return None
    try:
        nest = inner_map(made)
    except NoSchedule:
        return None
    sums = pairs_of_sums(session.g, nest) if outside(nest) is None else None
    return None if sums is None else [(loop, by_blocks(session, *sums))]


def of_map(session: Session, nest: Nest, asked: str) -> Callable[[Writer], None] | None:
    """A nest that carries nothing, as one plane: blocks of rows where these are better, or were asked for."""
    from pto_jit.fractal.compile.cost import are_blocks

    plan = "wavefront" if asked == "wavefront" else "sequential"
    one = "one plane of all cells, as " if asked == "wavefront" else ""
    reason = f"{one}no loop carries a state: its iterations are divided over the workers as they are"
    target = session.g.options.target
    refused = in_order_again(session)
    good, figures = are_blocks(nest) if target not in DEVICES else (not refused, "")
    if refused:
        reason = f"{reason}: {refused}"
    sums = pairs_of_sums(session.g, nest) if target not in DEVICES else None
    if sums is not None:
        return by_blocks(session, *sums)
    if not good:
        return decided(session, nest.loops[0], plan, reason, nest)
    blocks, problem = blocks_of(session, nest)
    if blocks is None:
        return decided(session, nest.loops[0], plan, f"{reason}: {problem}", nest)
    return by_blocks(session, nest, blocks, figures)


@frozen(eq=False)
class ByBlocks:
    """Writes the cells of a map as rows of blocks."""

    session: Session
    nest: Nest
    blocks: Blocks

    @property
    def multiplies(self) -> bool:
        return any(isinstance(i, Op) and i.op == "dot" for i in self.nest.cell)

    def __call__(self, writer: Writer) -> None:
        self.session.g.e.current.extend(self.nest.before)
        self.blocks.prepare(writer)
        self.blocks.write(writer)


def by_blocks(session: Session, nest: Nest, blocks: Blocks, figures: str) -> ByBlocks:
    """A map as rows of blocks, which a decision says."""
    text = f"one plane of all cells, so many at a time as rows\n{figures}".rstrip()
    decided(session, nest.loops[0], "wavefront", text, nest)
    return ByBlocks(session, nest, blocks)


def blocks_of(session: Session, nest: Nest) -> tuple[Blocks | None, str]:
    """What writes the cells of a map as rows of blocks, or why they cannot be."""
    from pto_jit.fractal.compile.devices import in_blocks

    try:
        if session.g.options.target not in DEVICES:
            return cells_of(session.g, nest), ""
        blocks = Blocks(session.g, in_blocks(nest, work_of(nest)))
        blocks.trial()
    except NotBatchable as problem:
        return None, str(problem)
    return blocks, ""


def in_order_again(session: Session) -> str:
    """Why the kernels of rows were refused, when they were tried before; "" where they were not."""
    return getattr(session.g.options, "in_order", "")
