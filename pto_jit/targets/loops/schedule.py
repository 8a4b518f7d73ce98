# SPDX-License-Identifier: MIT
"""Which step of a nest runs where: in which stage or row segment, from a register, a row buffer or computed again."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType, f32
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.slotted import field, frozen, mutable
from pto_jit.targets.loops.form import (
    Accumulate,
    Arg,
    Compute,
    Fold,
    Kept,
    Memory,
    Places,
    Position,
    Read,
    Ref,
    Result,
    RowBuffer,
    Segment,
    Source,
    Step,
    Stored,
    Write,
)  # fmt: skip

_RECOMPUTE = 4  # cost up to which a value is computed again rather than written to and read from a row buffer


@frozen
class Node:
    """A value: the step that makes it, its level, the earliest segment (row level) or stage (inner level) where that
    can be, and what computing it for one element costs."""

    step: Step
    inner: bool
    segment: int
    cost: int


@mutable
class Graph:
    """The values of a group and what has to be done with them."""

    rank: int
    nodes: list[Node] = field(default_factory=list)
    stores: list[tuple[Op, Places, Arg]] = field(default_factory=list)
    writes: dict[str, tuple[Places, Arg, DType]] = field(default_factory=dict)
    """Results that need memory, by name: axes, value, dtype."""
    accumulates: dict[str, tuple[str, Places, Arg, DType, bool]] = field(default_factory=dict)
    """Results put together over all rows: reduction, axes, value, dtype, whether for each element of a row."""
    results: dict[str, Result] = field(default_factory=dict)
    tiles: dict[str, Places] = field(default_factory=dict)
    """Every tile from outside and every load."""

    def segment(self, arg: Arg) -> int:
        """Where a value is known at the earliest."""
        return self.nodes[arg].segment if isinstance(arg, int) else 0


class Schedule:
    """Which step runs where, for given times of the stores."""

    def __init__(self, graph: Graph, store_at: Sequence[int]) -> None:
        self.p = graph
        self.nodes = graph.nodes
        self.store_at = store_at
        self.buffers: dict[Ref, RowBuffer] = {}
        self.demanded: dict[Ref, set[int]] = {}
        self.kept = {arg: (name, axes) for name, (axes, arg, _) in graph.writes.items()
                     if isinstance(arg, int) and self.nodes[arg].inner}  # fmt: skip
        self.needed = sorted(self._needed())
        self.folds: dict[int, list[Ref]] = {}  # by the stage that ends with them
        self.of_rows: dict[int, list[Step]] = {}  # by row segment
        for ref in self.needed:
            node = self.nodes[ref]
            if isinstance(node.step, Fold):
                self.folds.setdefault(node.segment - 1, []).append(ref)
            elif not node.inner:
                self.of_rows.setdefault(node.segment, []).append(node.step)
        inner = graph.rank - 1
        last = max(
            [-1, *(self.nodes[r].segment for r in self.needed if self.nodes[r].inner),
             *(at for at, (_, axes, _) in zip(store_at, graph.stores, strict=True) if inner in axes),
             *(graph.segment(arg) for axes, arg, _ in graph.writes.values() if inner in axes),
             *(graph.segment(arg) for _, _, arg, _, of_row in graph.accumulates.values() if of_row),
             *self.folds]
        )  # fmt: skip
        count = last + 1
        stages: list[Segment] = [()] * count
        for stage in reversed(range(count)):
            stages[stage] = self._stage(stage)
        self.stages = tuple(stages)
        self.rows = tuple(self._row(k) for k in range(count + 1))

    def _roots(self) -> list[Arg]:
        p = self.p
        return [
            *(arg for _, _, arg in p.stores), *(arg for _, arg, _ in p.writes.values()),
            *(arg for _, _, arg, _, _ in p.accumulates.values()),
            *(r.ref for r in p.results.values() if r.ref is not None),
        ]  # fmt: skip

    def _needed(self) -> set[Ref]:
        seen: set[Ref] = set()
        work = [r for r in self._roots() if isinstance(r, int)]
        while work:
            ref = work.pop()
            if ref in seen:
                continue
            seen.add(ref)
            work += [a for a in arguments(self.nodes[ref].step) if isinstance(a, int)]
        return seen

    def _stage(self, stage: int) -> Segment:
        p = self.p
        inner = p.rank - 1
        roots: list[Arg] = []
        ends: list[Step] = []
        for ref in self.folds.get(stage, ()):
            step = self.nodes[ref].step
            assert isinstance(step, Fold)
            roots.append(step.arg)
            ends.append(step)
        for number, (at, (op, axes, arg)) in enumerate(zip(self.store_at, p.stores, strict=True)):
            if at == stage and inner in axes:
                roots.append(arg)
                value = op.args[0].type
                assert isinstance(value, TileType)
                ends.append(Write(Stored(number), axes, arg, value.dtype))
        for name, (axes, arg, dtype) in p.writes.items():
            if inner in axes and p.segment(arg) == stage:
                roots.append(arg)
                ends.append(Write(Kept(name), axes, arg, dtype))
        for name, (op, axes, arg, dtype, of_row) in p.accumulates.items():
            if of_row and p.segment(arg) == stage:
                roots.append(arg)
                ends.append(Accumulate(name, op, axes, arg, dtype))
        for ref, buffer in self.buffers.items():
            if self.nodes[ref].segment == stage:
                roots.append(ref)
                ends.append(Write(buffer, (inner,), ref, buffer.dtype))
        steps: dict[Ref, Step] = {}
        for root in roots:
            self._demand(root, stage, steps)
        return (*(steps[r] for r in sorted(steps)), *ends)

    def _demand(self, arg: Arg, stage: int, steps: dict[Ref, Step]) -> None:
        if not isinstance(arg, int) or not self.nodes[arg].inner or arg in steps:
            return
        node = self.nodes[arg]
        self.demanded.setdefault(arg, set()).add(stage)
        if node.segment < stage and not isinstance(node.step, (Read, Position)):
            dtype = node.step.dtype
            if arg in self.kept:
                name, axes = self.kept[arg]
                steps[arg] = Read(arg, Kept(name), axes, dtype)
                return
            if node.cost > _RECOMPUTE:
                buffer = self.buffers.get(arg)
                if buffer is None:
                    held = f32 if dtype.kind == "f" and dtype.bits == 16 else dtype
                    buffer = self.buffers[arg] = RowBuffer(len(self.buffers), held)
                steps[arg] = Read(arg, buffer, (self.p.rank - 1,), buffer.dtype)
                return
        for a in arguments(node.step):
            self._demand(a, stage, steps)
        steps[arg] = node.step

    def _row(self, k: int) -> Segment:
        p = self.p
        inner = p.rank - 1
        steps: list[Step] = [*self.of_rows.get(k, ())]
        for number, (at, (op, axes, arg)) in enumerate(zip(self.store_at, p.stores, strict=True)):
            if at == k and (p.rank == 0 or inner not in axes):
                value = op.args[0].type
                assert isinstance(value, TileType)
                steps.append(Write(Stored(number), axes, arg, value.dtype))
        for name, (axes, arg, dtype) in p.writes.items():
            if (p.rank == 0 or inner not in axes) and p.segment(arg) == k:
                steps.append(Write(Kept(name), axes, arg, dtype))
        for name, (op, axes, arg, dtype, of_row) in p.accumulates.items():
            if not of_row and p.segment(arg) == k:
                steps.append(Accumulate(name, op, axes, arg, dtype))
        return tuple(steps)

    def sources(self) -> tuple[Source, ...]:
        until: dict[tuple[str, Places], int] = {}
        for k, segment in enumerate(_interleaved(self.rows, self.stages)):
            for step in segment:
                if isinstance(step, Read) and isinstance(step.place, Memory):
                    until[step.place.name, step.axes] = k
        read = {name for name, _ in until}
        for name, axes in self.p.tiles.items():
            if name not in read:
                until[name, axes] = -1
        return tuple(Source(name, axes, time) for (name, axes), time in until.items())


def _interleaved(rows: Sequence[Segment], stages: Sequence[Segment]) -> list[Segment]:
    out = [rows[0]]
    for stage, row in zip(stages, rows[1:], strict=True):
        out += [stage, row]
    return out


def arguments(step: Step) -> tuple[Arg, ...]:
    """The values that a step reads."""
    match step:
        case Compute():
            return step.args
        case Fold() | Write() | Accumulate():
            return (step.arg,)
        case _:
            return ()
