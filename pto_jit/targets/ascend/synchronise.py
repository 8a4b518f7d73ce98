# SPDX-License-Identifier: MIT
"""Flags and barriers between the pipes.

Where an instruction may start before one is done that touched what it touches, that is a hazard (`flow`), which gets

* a barrier of the pipe, when both are of one pipe;
* a flag from one pipe to the other in the innermost block around both: set after the first, waited for before the
  second;
* when the second is of a later iteration, the same, with the flag set once before the outermost loop around it and
  waited for once after.

The same is done where a flag might be raised again before its pipe has seen it.  In a loop whose buffers take turns,
there is a flag for each turn.  Where the flags between two pipes are used up, one that was waited for earlier in the
block is raised again; where there is none, the last of the eight is raised and waited for right before the second,
which then waits for all that the other pipe was given; and if that flag may not be down yet, for all pipes.  This is
repeated until there are no hazards, first as if loops ran and branches were taken: that finds the flags with which most
others need none.
"""

from __future__ import annotations

from pto_jit.errors import InternalError
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.events import Events
from pto_jit.targets.ascend.flow import Flow, Hazard
from pto_jit.targets.ascend.form import Barrier, Branch, Loop, Node, SetFlag, WaitFlag
from pto_jit.targets.ascend.machine import EVENTS, PIPES, TAKEN, Pipe

_ROUNDS = 60
_SPARE = EVENTS - 1
"""The flag of each pair of pipes that is raised and waited for at one place, where others are used up."""


def synchronise(nodes: list[Node]) -> None:
    """Insert what orders the pipes, in place."""
    scarce: set[tuple[Pipe, Pipe]] = set()
    events = Events(nodes)
    while True:
        inserter = _Inserter(nodes, events, frozenset(scarce))
        for _ in range(_ROUNDS):
            if not inserter.round():
                break
        else:
            raise InternalError("the pipes of a kernel cannot be ordered")
        if not inserter.scarce - scarce:
            return
        scarce |= inserter.scarce
        _clear(nodes)


def _clear(nodes: list[Node]) -> None:
    """Without what orders the pipes."""
    nodes[:] = [n for n in nodes if not isinstance(n, (SetFlag, WaitFlag, Barrier))]
    for node in nodes:
        if isinstance(node, Loop):
            _clear(node.body)
        elif isinstance(node, Branch):
            _clear(node.then)
            _clear(node.orelse)


@frozen(eq=False)
class _Where:
    """Where a node is: the loops around it, the blocks from the kernel's body to its own, and its place in each."""

    loops: tuple[Loop, ...]
    blocks: tuple[list[Node], ...]
    places: tuple[int, ...]

    @property
    def block(self) -> list[Node]:
        return self.blocks[-1]


@frozen(eq=False)
class _Plan:
    """A flag: set after `first`, waited for before `second`, statements of `block` at the places `left` and `right`.

    carried: the outermost loop around it, when the second work is of a later iteration; node: what waits.
    """

    source: Pipe
    target: Pipe
    block: list[Node]
    first: Node
    second: Node
    left: int
    right: int
    carried: Loop | None
    turning: Loop | None
    node: Node


def _needed(plans: list[_Plan]) -> list[_Plan]:
    """Plans without those that another one makes true: it tells of more, no later."""
    alike: dict[tuple[object, ...], list[_Plan]] = {}
    for plan in plans:
        key = (plan.source, plan.target, id(plan.block), id(plan.carried), id(plan.turning))
        alike.setdefault(key, []).append(plan)
    kept: set[int] = set()
    for group in alike.values():
        earliest: int | None = None
        for plan in sorted(group, key=lambda p: (-p.left, p.right)):
            if earliest is None or plan.right < earliest:  # before all waits for flags that tell of more
                earliest = plan.right
                kept.add(id(plan))
    return [plan for plan in plans if id(plan) in kept]


class _Inserter:
    """events: of the nodes; scarce: pairs of pipes whose flags are known to be used up; found to be, in the end;
    spare: those whose last flag is raised and waited for at one place."""

    def __init__(self, nodes: list[Node], events: Events, scarce: frozenset[tuple[Pipe, Pipe]]) -> None:
        self.nodes, self.events = nodes, events
        self.spare, self.scarce = set(scarce), set[tuple[Pipe, Pipe]]()
        self.usual = True
        self.answered: set[int] = set()  # flags that might not be down when they are raised, and those that tell so
        self.where: dict[int, _Where] = {}
        self.next_event: dict[tuple[Pipe, Pipe], int] = {}
        self.down: list[tuple[WaitFlag, list[Node]]] = []  # flags that are down behind their waits, and the blocks

    def round(self) -> bool:
        """Look for hazards and remove them; whether there were any."""
        hazards = Flow(self.nodes, self.events, usual=self.usual).hazards()
        if hazards and not self.usual:  # what was inserted since may have made others, which come first
            hazards = Flow(self.nodes, self.events, usual=True).hazards() or hazards
        self.usual = False
        if not hazards:
            return False
        self.where.clear()
        wanted = {id(h.after.node) for h in hazards}.union(id(h.before.node) for h in hazards)
        self._locate(wanted, self.nodes, (), (self.nodes,), ())
        barriers: dict[int, str] = {}  # by the nodes that wait
        plans: list[_Plan] = []
        for hazard in hazards:
            if hazard.before.pipe == hazard.after.pipe:
                barriers[id(hazard.after.node)] = PIPES[hazard.after.pipe]
            else:
                plans.append(self._plan(hazard))
        plans = _needed(plans)
        if not any("S" in (plan.source, plan.target) for plan in plans):  # behind such flags fewer barriers are needed
            _insert_barriers(self.nodes, barriers)
        self._reserve(plans)
        for plan in plans:
            self._apply(plan)
        return True

    def _reserve(self, plans: list[_Plan]) -> None:
        """Keep the last flag where those that nothing else can be told with will not do."""
        wanted: dict[tuple[Pipe, Pipe], int] = {}
        for plan in plans:
            if plan.turning or plan.carried:
                pair = plan.source, plan.target
                wanted[pair] = wanted.get(pair, 0) + (2 if plan.turning else 1)
        for pair, count in wanted.items():
            given = self.next_event.get(pair, int(pair in TAKEN))
            if given < EVENTS < given + count:
                self.spare.add(pair)

    def _locate(self, wanted: set[int], block: list[Node], loops: tuple[Loop, ...], blocks: tuple[list[Node], ...],
                places: tuple[int, ...]) -> None:  # fmt: skip
        for k, node in enumerate(block):
            if id(node) in wanted:
                self.where[id(node)] = _Where(loops, blocks, (*places, k))
            elif isinstance(node, Loop):
                self._locate(wanted, node.body, (*loops, node), (*blocks, node.body), (*places, k))
            elif isinstance(node, Branch):
                self._locate(wanted, node.then, loops, (*blocks, node.then), (*places, k))
                self._locate(wanted, node.orelse, loops, (*blocks, node.orelse), (*places, k))

    def _plan(self, hazard: Hazard) -> _Plan:
        before, after = hazard.before, hazard.after
        a, b = self.where[id(before.node)], self.where[id(after.node)]
        depth = 0
        while depth < min(len(a.blocks), len(b.blocks)) and a.blocks[depth] is b.blocks[depth]:
            depth += 1
        loops = [loop for loop, other in zip(a.loops, b.loops, strict=False) if loop is other]
        carried = a.places[depth - 1] >= b.places[depth - 1]
        common, left, right = a.blocks[depth - 1], a.places[depth - 1], b.places[depth - 1]
        turning = hazard.turning if any(loop is hazard.turning for loop in loops) else None
        if not carried and turning is None:  # a flag for each turn is down earlier
            turning = next((loop for loop in reversed(loops) if loop.turning), None)
        return _Plan(PIPES[before.pipe], PIPES[after.pipe], common, common[left], common[right], left, right,
                     loops[0] if carried and loops else None, turning, after.node)  # fmt: skip

    def _apply(self, plan: _Plan) -> None:
        source, target, turning, outermost = plan.source, plan.target, plan.turning, plan.carried
        event = self._event(source, target, 2 if turning else 1)
        if event is None and turning is None and outermost is None:
            event = self._again(plan)
        if event is None or (outermost is None and plan.first is plan.second):
            again = id(plan.node) in self.answered
            if again or (source, target) not in self.spare:
                if (source, target) not in self.spare:  # else to begin again would give the same
                    self.scarce.add((source, target))
                self._before(plan.node, Barrier("ALL"))
                return
            told = SetFlag(source, target, _SPARE)
            if isinstance(plan.node, SetFlag):
                self.answered |= {id(plan.node), id(told)}
            self._before(plan.node, told)
            self._before(plan.node, WaitFlag(source, target, _SPARE))
            return
        _insert_after(plan.block, plan.left, plan.first, SetFlag(source, target, event, turning))
        wait = WaitFlag(source, target, event, turning)
        _insert_before(plan.block, plan.right, plan.second, wait)
        if outermost is None:
            if turning is None:
                self.down.append((wait, plan.block))
            return
        for which in (0, 1) if turning else (None,):
            _insert_before(self.nodes, 0, outermost, SetFlag(source, target, event, turning, which))
            _insert_after(self.nodes, 0, outermost, WaitFlag(source, target, event, turning, which), last=True)

    def _before(self, node: Node, new: Node) -> None:
        where = self.where[id(node)]
        _insert_before(where.block, where.places[-1], node, new)

    def _event(self, source: Pipe, target: Pipe, count: int) -> int | None:
        known = self.next_event.get((source, target), int((source, target) in TAKEN))
        if known + count > EVENTS - ((source, target) in self.spare):
            return None
        self.next_event[source, target] = known + count
        return known

    def _again(self, plan: _Plan) -> int | None:
        """A flag that was waited for earlier in the same block: of those, the first."""
        at = plan.block.index(plan.first, plan.left)
        for wait, block in self.down:
            if block is plan.block and (wait.source, wait.target) == (plan.source, plan.target) and (
                block.index(wait) <= at
            ):  # fmt: skip
                self.down = [entry for entry in self.down if entry[0] is not wait]
                return wait.event
        return None


def _insert_barriers(block: list[Node], pipes: dict[int, str]) -> None:
    """Insert barriers of pipes before nodes, which are given by their ids."""
    out: list[Node] = []
    for node in block:
        pipe = pipes.get(id(node))
        if pipe is not None:
            out.append(Barrier(pipe))
        elif isinstance(node, Loop):
            _insert_barriers(node.body, pipes)
        elif isinstance(node, Branch):
            _insert_barriers(node.then, pipes)
            _insert_barriers(node.orelse, pipes)
        out.append(node)
    block[:] = out


def _insert_before(block: list[Node], place: int, node: Node, new: Node) -> None:
    """Insert `new` before `node`, which was at `place` and has only moved backwards since."""
    block.insert(block.index(node, place), new)  # nodes are compared by identity


def _insert_after(block: list[Node], place: int, node: Node, new: Node, *, last: bool = False) -> None:
    at = 1 + block.index(node, place)
    while last and at < len(block) and isinstance(block[at], WaitFlag):
        at += 1
    block.insert(at, new)
