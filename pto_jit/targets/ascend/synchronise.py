# SPDX-License-Identifier: MIT
"""Flags and barriers between the pipes.

Where an instruction may start before one is done that touched what it touches, that is a hazard (`flow`), which gets

* a barrier of the pipe, when both are of one pipe;
* a flag from one pipe to the other in the innermost block around both: set after the first, waited for before the
  second;
* when the second is of a later iteration, the same, with the flag set once before the outermost loop around it and
  waited for once after.

The same is done where a flag might be raised again before its pipe has seen it.  In a loop whose buffers take turns,
there is a flag for each turn, the same in all loops that take turns together.  Where the flags between two pipes are
used up, one that is not up meanwhile is raised once more; where there is none, one is raised and waited for right
before the second, which then waits for all that the other pipe was given (one that is up nowhere near, else the last of
the eight, which is kept for that); and if that flag may not be down yet, for all pipes.  Where flags would be used up,
what waits in a branch does so there, in this way.  This is repeated until there are no hazards, first as if loops ran
and branches were taken: that finds the flags with which most others need none.
"""

from __future__ import annotations

from pto_jit.errors import InternalError
from pto_jit.slotted import frozen, mutable
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


_Slot = tuple[Pipe, Pipe, Loop, bool, int]
"""Flags for each turn of loops that take turns together: their pipes, the loop that stands for all, whether they are of
later iterations, and which of those it is."""


@mutable(eq=False)
class _Stretch:
    """Where a flag is up: what raises it and waits for it, and the places of those in blocks, and between places."""

    told: SetFlag
    wait: WaitFlag
    low: tuple[float, ...]
    high: tuple[float, ...]


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

    carried: the outermost loop around it, when the second work is of a later iteration, and around: where that loop is;
    turning: the loop whose turns choose between two, and own: that of those that take turns together which it is in;
    node: what waits; path: to the block; branch: whether what waits stands in a branch, in no loop that the other is
    not in.
    """

    source: Pipe
    target: Pipe
    block: list[Node]
    first: Node
    second: Node
    left: int
    right: int
    carried: Loop | None
    around: list[Node]
    turning: Loop | None
    own: Loop | None
    node: Node
    path: tuple[int, ...]
    branch: bool

    @property
    def pair(self) -> tuple[Pipe, Pipe]:
        return self.source, self.target

    @property
    def stretch(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Where the flag is up, if the second work is not of a later iteration."""
        return (*self.path, self.left + 0.5), (*self.path, self.right - 0.5)


def _taking_turns(loops: list[Loop] | tuple[Loop, ...], turning: Loop | None) -> Loop | None:
    """Which of loops takes turns with one."""
    return next((loop for loop in loops if loop.turns is turning), None)


def _is_between(hazard: Hazard) -> bool:
    """Whether a hazard is one between two loops that take turns together."""
    one, other = (_taking_turns(event.loops, hazard.turning) for event in (hazard.before, hazard.after))
    return one is not None and other is not None and one is not other


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
        # How many flags were raised in a row, each to tell that the next is down, up to one, by its id:
        self.answers: dict[int, int] = {}
        self.next_event: dict[tuple[Pipe, Pipe], int] = {}
        self.of_turns: dict[_Slot, int] = {}  # the numbers of flags for each turn
        self.slots: dict[int, _Slot] = {}  # by the ids of the plans of a round
        self.kept: set[int] = set()  # plans of a round whose second work waits in its branch, by their ids
        self.count: dict[tuple[Pipe, Pipe, Loop, bool], int] = {}  # of flags for each turn of a loop
        # Of flags for neither turns nor later iterations, which are down elsewhere:
        self.stretches: dict[tuple[Pipe, Pipe, int], list[_Stretch]] = {}

    def round(self) -> bool:
        """Look for hazards and remove them; whether there were any."""
        hazards = Flow(self.nodes, self.events, usual=self.usual).hazards()
        early = bool(hazards) and type(hazards[0].after.node) is SetFlag  # which is only found where nothing else is
        if hazards and not self.usual and not early:  # what was inserted since may have made others, which come first
            hazards = Flow(self.nodes, self.events, usual=True).hazards() or hazards
        self.usual = False
        if not hazards:
            return False
        self.where.clear()
        wanted = {id(h.after.node) for h in hazards}.union(id(h.before.node) for h in hazards)
        stretches = [stretch for some in self.stretches.values() for stretch in some]
        wanted.update(id(node) for stretch in stretches for node in (stretch.told, stretch.wait))
        self._locate(wanted, self.nodes, (), (self.nodes,), ())
        for stretch in stretches:
            stretch.low, stretch.high = (self.where[id(node)].places for node in (stretch.told, stretch.wait))
        barriers: dict[int, str] = {}  # by the nodes that wait
        plans: list[_Plan] = []
        between: list[Hazard] = []  # loops that take turns together
        for hazard in hazards:
            if hazard.before.pipe == hazard.after.pipe:
                barriers[id(hazard.after.node)] = PIPES[hazard.after.pipe]
            elif _is_between(hazard):
                between.append(hazard)
            else:
                plans.append(self._plan(hazard))
        plans += self._between(between, plans)
        plans = _needed(plans)
        self._number(plans)
        if not any("S" in (plan.source, plan.target) for plan in plans):  # behind such flags fewer barriers are needed
            _insert_barriers(self.nodes, barriers)
        self._reserve(plans)
        for plan in plans:
            self._apply(plan)
        return True

    def _between(self, hazards: list[Hazard], plans: list[_Plan]) -> list[_Plan]:
        """Plans for hazards between loops that take turns together.

        Where both have flags of their own for each turn, to later iterations, these are the same, and are all it takes.
        """
        own = {(plan.pair, plan.own) for plan in plans if plan.carried and plan.own}
        out: list[_Plan] = []
        for hazard in hazards:
            pair = PIPES[hazard.before.pipe], PIPES[hazard.after.pipe]
            ends = (_taking_turns(event.loops, hazard.turning) for event in (hazard.before, hazard.after))
            if any((pair, loop) not in own for loop in ends):
                out.append(self._plan(hazard))
        return out

    def _number(self, plans: list[_Plan]) -> None:
        """Flags for each turn of loops that take turns together are the same: the first of each, the second, ..."""
        self.slots.clear()
        for plan in plans:
            if plan.own is not None and plan.turning is not None:
                key = *plan.pair, plan.own, plan.carried is not None
                index = self.count[key] = self.count.get(key, 0) + 1
                self.slots[id(plan)] = *plan.pair, plan.turning, plan.carried is not None, index

    def _reserve(self, plans: list[_Plan]) -> None:
        """Keep the last flag where those that nothing else can be told with will not do, and where all of them will not
        for what stands in branches.

        What waits in a branch then does so there, at one place: a wait before the branch would have to be answered
        where it is not taken, before its flag is raised again; one in it is by the flag that tells what it waited for.
        """
        pending: dict[tuple[Pipe, Pipe], int] = {}  # how many flags plans want
        lasting: dict[tuple[Pipe, Pipe], int] = {}  # those for turns and for later iterations
        slots = set(self.of_turns)
        for plan in plans:
            slot = self.slots.get(id(plan))
            if slot in slots:
                continue
            slots |= {slot} if slot else set()
            for counts in (pending, lasting) if slot or plan.carried else (pending,):
                counts[plan.pair] = counts.get(plan.pair, 0) + (2 if plan.turning else 1)
        inside = [plan for plan in plans if plan.branch and plan.turning is None and self._is_short(plan.pair, pending)]
        self.kept = {id(plan) for plan in inside}
        self.spare.update(plan.pair for plan in inside)
        self.spare.update(pair for pair in lasting if self._is_short(pair, lasting))

    def _is_short(self, pair: tuple[Pipe, Pipe], wanted: dict[tuple[Pipe, Pipe], int]) -> bool:
        """Whether the flags from one pipe to another will be used up, but are not yet."""
        given = self.next_event.get(pair, int(pair in TAKEN))
        return given < EVENTS < given + wanted[pair]

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
        own = _taking_turns(loops, hazard.turning)
        if not carried and own is None:  # a flag for each turn is down earlier
            own = next((loop for loop in reversed(loops) if loop.turning), None)
        outermost = loops[0] if carried and loops else None
        around = self.nodes if outermost is None else next(
            block for block, at in zip(a.blocks, a.places, strict=True) if block[at] is outermost)  # fmt: skip
        return _Plan(PIPES[before.pipe], PIPES[after.pipe], common, common[left], common[right], left, right,
                     outermost, around, own and own.turns, own, after.node, a.places[: depth - 1],
                     len(b.blocks) > depth and len(b.loops) == len(loops))  # fmt: skip

    def _apply(self, plan: _Plan) -> None:
        if id(plan) in self.kept:
            self._at_one_place(plan)
            return
        source, target, turning, outermost = plan.source, plan.target, plan.turning, plan.carried
        slot = self.slots.get(id(plan))
        known = None if slot is None else self.of_turns.get(slot)
        event = known if known is not None else self._event(source, target, 2 if turning else 1)
        if slot is not None and event is not None:
            self.of_turns[slot] = event
        if event is None and turning is None and outermost is None:
            event = self._again(plan.pair, *plan.stretch)
        if event is None or (outermost is None and plan.first is plan.second) or self._goes_in_circles(plan):
            self._at_one_place(plan)
            return
        told, wait = SetFlag(source, target, event, turning), WaitFlag(source, target, event, turning)
        self.answers[id(told)] = 1 + self.answers.get(id(plan.node), 0)
        _insert_after(plan.block, plan.left, plan.first, told)
        _insert_before(plan.block, plan.right, plan.second, wait)
        if outermost is None:
            if turning is None:
                stretch = _Stretch(told, wait, *plan.stretch)
                self.stretches.setdefault((source, target, event), []).append(stretch)
            return
        if known is not None:
            return
        for which in (0, 1) if turning else (None,):
            _insert_before(plan.around, 0, outermost, SetFlag(source, target, event, turning, which))
            _insert_after(plan.around, 0, outermost, WaitFlag(source, target, event, turning, which), last=True)

    def _goes_in_circles(self, plan: _Plan) -> bool:
        """Whether flags have told of flags in turn, each of them raised again: all pipes wait then."""
        circling = self.answers.get(id(plan.node), 0) > EVENTS and plan.carried is None
        if circling:
            self.answered.add(id(plan.node))
        return circling

    def _before(self, node: Node, new: Node) -> None:
        where = self.where[id(node)]
        _insert_before(where.block, where.places[-1], node, new)

    def _event(self, source: Pipe, target: Pipe, count: int) -> int | None:
        known = self.next_event.get((source, target), int((source, target) in TAKEN))
        if known + count > EVENTS - ((source, target) in self.spare):
            return None
        self.next_event[source, target] = known + count
        return known

    def _at_one_place(self, plan: _Plan) -> None:
        """What waits does so for all that the other pipe was given; if there is no flag for that, for all pipes."""
        where = self.where[id(plan.node)]
        place = *where.places[:-1], where.places[-1] - 0.5
        event = _SPARE if plan.pair in self.spare else self._again(plan.pair, place, place)
        if event is None or id(plan.node) in self.answered:
            if event is None:  # else to begin again would give the same
                self.scarce.add(plan.pair)
            self._before(plan.node, Barrier("ALL"))
            return
        told, wait = SetFlag(*plan.pair, event), WaitFlag(*plan.pair, event)
        if isinstance(plan.node, SetFlag):
            self.answered |= {id(plan.node), id(told)}
            self.answers[id(told)] = 1 + self.answers.get(id(plan.node), 0)
        self._before(plan.node, told)
        self._before(plan.node, wait)
        if plan.pair not in self.spare:
            self.stretches[*plan.pair, event].append(_Stretch(told, wait, place, place))

    def _again(self, pair: tuple[Pipe, Pipe], low: tuple[float, ...], high: tuple[float, ...]) -> int | None:
        """A flag that is not up anywhere between where one is raised and waited for; of those, the one that was waited
        for first of what comes before: it is known soonest that it is down."""
        found: list[tuple[tuple[float, ...], int]] = []
        for (*of, number), stretches in self.stretches.items():
            if (*of,) == pair and all(high < other.low or other.high < low for other in stretches):
                found.append((max((other.high for other in stretches if other.high < low), default=()), number))
        return min(found)[1] if found else None


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
