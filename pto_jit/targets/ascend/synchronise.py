# SPDX-License-Identifier: MIT
"""Flags and barriers between the pipes.

The kernel is run in thought (`runs`), every loop a few times; where an instruction touches what another one touched
before without knowing it done, that is a hazard, which gets

* a barrier of the pipe, when both are of one pipe;
* a flag from one pipe to the other in the innermost block around both: set after the first, waited for before the
  second;
* when the second is of a later iteration, the same in the body of the loop, with the flag set once before the outermost
  loop around it and waited for once after.

The same is done where a flag might be raised again before its pipe has seen it.  In a loop whose buffers take turns,
there is a flag for each turn.  Where the flags between two pipes are used up, the last of the eight is raised and
waited for right before the second, which then waits for all that the other pipe was given; and if that flag may not be
down yet, for all pipes.  This is repeated until there are no hazards.
"""

from __future__ import annotations

from pto_jit.errors import InternalError
from pto_jit.slotted import frozen
from pto_jit.targets.ascend.accesses import Access, walk
from pto_jit.targets.ascend.form import Barrier, Branch, Buffer, Loop, Node, SetFlag, WaitFlag
from pto_jit.targets.ascend.machine import EVENTS, PIPES, TAKEN, Pipe
from pto_jit.targets.ascend.runs import Done, Facts, Hazard, Run, trips_of

_ROUNDS = 60
_SPARE = EVENTS - 1
"""The flag of each pair of pipes that is raised and waited for at one place, where others are used up."""
_PATTERNS = ((3, 3, 9, 3), (2, 0, 9, 2), (2, 1, 9, 2), (2, 2, 1, 2), (2, 2, 2, 2))
"""How often outer and innermost loops run in thought, at most, from which depth on they do not run at all, and how
often those run that are neither, inside of a loop in which buffers take turns.  Twice is enough where nothing takes
turns, and once where a loop has nothing but another loop in it."""
_AROUND = ((3, 0, 9, 3), (3, 1, 9, 3), (3, 1, 9, 1), (3, 3, 9, 0))
"""Where buffers take turns in a loop around others, which may run once or not at all; in two, with loops between."""


def synchronise(nodes: list[Node]) -> None:
    """Insert what orders the pipes, in place."""
    scarce: set[tuple[Pipe, Pipe]] = set()
    facts = Facts(nodes)
    while True:
        inserter = _Inserter(nodes, facts, frozenset(scarce))
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
    """facts: of the nodes; scarce: pairs of pipes whose flags are known to be used up; found to be, in the end."""

    def __init__(self, nodes: list[Node], facts: Facts, scarce: frozenset[tuple[Pipe, Pipe]]) -> None:
        self.nodes, self.facts = nodes, facts
        self.spare, self.scarce = scarce, set[tuple[Pipe, Pipe]]()
        self.answered: set[int] = set()  # flags that might not be down when they are raised, and those that tell so
        self.where: dict[int, _Where] = {}
        self.next_event: dict[tuple[Pipe, Pipe], int] = {}
        depth = _depth(nodes)
        patterns = [p for k, p in enumerate(_PATTERNS) if k == 0 or (depth and (p[2] == 9 or p[2] < depth - 1))]
        turning = [n for n in walk(nodes) if isinstance(n, Loop) and n.turning]
        inner = max((_depth(loop.body) for loop in turning), default=0)
        if inner:
            patterns += _AROUND[: 2 if inner == 1 else 4]
        branches = (0,)
        if any(isinstance(n, Branch) and not n.when for n in walk(nodes)):
            branches = (0, 1, 2, 3, 4, 5) if turning else (0, 1, 2)
        runs: dict[tuple[object, ...], tuple[dict[int, int], int]] = {}
        for pattern in patterns:
            trips = trips_of(nodes, pattern)
            for branch in branches if pattern[0] == 3 else branches[:2]:
                runs.setdefault((*trips.values(), branch), (trips, branch))  # several patterns may be one run
        self.runs = list(runs.values())

    def round(self) -> bool:
        """Look for hazards and remove them; whether there were any."""
        hazards: list[Hazard] = []
        for _ in self.runs:
            run = Run(*self.runs[0], self.facts)
            run.block(self.nodes, ())
            hazards = run.hazards or run.reuses
            if hazards:
                break
            self.runs.append(self.runs.pop(0))  # the next round begins with the run that had hazards
        if not hazards:
            return False
        self.where.clear()
        self._locate(self.nodes, (), (self.nodes,), ())
        barriers: dict[int, Done] = {}
        plans: list[_Plan] = []
        for before, after, access in hazards:
            if before.pipe == after.pipe:
                barriers[id(after.node)] = after
            else:
                plans.append(self._plan(before, after, access))
        for after in reversed(barriers.values()):  # the last first: those before them are still where they were
            self._before(after.node, Barrier(PIPES[after.pipe]))
        for plan in _needed(plans):
            self._apply(plan)
        return True

    def _locate(
        self, block: list[Node], loops: tuple[Loop, ...], blocks: tuple[list[Node], ...], places: tuple[int, ...]
    ) -> None:
        for k, node in enumerate(block):
            here = (*places, k)
            self.where[id(node)] = _Where(loops, blocks, here)
            if isinstance(node, Loop):
                self._locate(node.body, (*loops, node), (*blocks, node.body), here)
            elif isinstance(node, Branch):
                self._locate(node.then, loops, (*blocks, node.then), here)
                self._locate(node.orelse, loops, (*blocks, node.orelse), here)

    def _plan(self, before: Done, after: Done, access: Access) -> _Plan:
        a, b = self.where[id(before.node)], self.where[id(after.node)]
        depth = 0
        while depth < min(len(a.blocks), len(b.blocks)) and a.blocks[depth] is b.blocks[depth]:
            depth += 1
        loops = [loop for loop, other in zip(a.loops, b.loops, strict=False) if loop is other]
        same = before.at[: len(loops)] == after.at[: len(loops)]
        if not same and loops:  # one of them may be in a branch of the loop: they meet in the loop's body
            depth = 1 + next(k for k, block in enumerate(a.blocks) if block is loops[-1].body)
        common, left, right = a.blocks[depth - 1], a.places[depth - 1], b.places[depth - 1]
        return _Plan(PIPES[before.pipe], PIPES[after.pipe], common, common[left], common[right], left, right,
                     None if same else loops[0], _turning(loops, access), after.node)  # fmt: skip

    def _apply(self, plan: _Plan) -> None:
        source, target, turning, outermost = plan.source, plan.target, plan.turning, plan.carried
        event = self._event(source, target, 2 if turning else 1)
        if event is None or (outermost is None and plan.first is plan.second):
            again = id(plan.node) in self.answered
            if again or (source, target) not in self.spare:
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
        _insert_before(plan.block, plan.right, plan.second, WaitFlag(source, target, event, turning))
        if outermost is None:
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


def _depth(nodes: list[Node]) -> int:
    """How many loops there are inside each other."""
    inner = [n.body for n in nodes if isinstance(n, Loop)]
    inner += [block for n in nodes if isinstance(n, Branch) for block in (n.then, n.orelse)]
    deepest = max((_depth(block) for block in inner), default=0)
    return deepest + any(isinstance(n, Loop) for n in nodes)


def _turning(loops: list[Loop], access: Access) -> Loop | None:
    """The loop whose turns a flag follows: that of the buffer, or the innermost one around both places."""
    own = access.what.loop if isinstance(access.what, Buffer) else None
    if own is not None and any(loop is own for loop in loops):
        return own
    return next((loop for loop in reversed(loops) if loop.turning), None)


def _insert_before(block: list[Node], place: int, node: Node, new: Node) -> None:
    """Insert `new` before `node`, which was at `place` and has only moved backwards since."""
    block.insert(block.index(node, place), new)  # nodes are compared by identity


def _insert_after(block: list[Node], place: int, node: Node, new: Node, *, last: bool = False) -> None:
    at = 1 + block.index(node, place)
    while last and at < len(block) and isinstance(block[at], WaitFlag):
        at += 1
    block.insert(at, new)
