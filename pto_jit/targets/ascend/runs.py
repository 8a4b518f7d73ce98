# SPDX-License-Identifier: MIT
"""A kernel run in thought: which work of which pipe is known to be done when other work starts.

For each pipe a vector clock is kept (Mattern, 1989): how much of every pipe's work its next instruction knows to be
done.  Work that touches what earlier work touched, one of them writing, without knowing it done is a *hazard*; so is a
flag that might be raised again before its pipe has seen it.

Of the work of one pipe on the same bytes only the last is remembered: who knows that to be done knows all before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.slotted import frozen, mutable
from pto_jit.targets.ascend.accesses import Access, accesses, pipe_of, walk
from pto_jit.targets.ascend.form import (
    RELAY,
    SLOT,
    Barrier,
    Branch,
    CrossSet,
    CrossWait,
    Declaration,
    Flush,
    Loop,
    Node,
    Require,
    SetFlag,
    WaitFlag,
)
from pto_jit.targets.ascend.machine import IN_ORDER, PIPES

NUMBER = {pipe: k for k, pipe in enumerate(PIPES)}
_UNIT = NUMBER["S"]
_SILENT = frozenset([Declaration, Require, Flush])
_CHOICES = (0b1111, 0b0000, 0b0101, 0b1010, 0b0110, 0b1001)
_ORDERED = tuple(pipe in IN_ORDER for pipe in PIPES)
_NOTHING = (0,) * len(PIPES)


@mutable(eq=False)
class Done:
    """A piece of work: the node, its pipe and its number there, and the iterations of the loops around it.

    told: how much of each pipe's work a flag set after it says to be done; time: its number among all work.
    """

    node: Node
    pipe: int
    number: int
    at: tuple[int, ...]
    told: Sequence[int]
    time: int


Hazard = tuple[Done, Done, Access]
"""Work, later work that does not know it done, and what both touch."""


@frozen(eq=False)
class _Touch:
    """A region on chip, of either turn of `loop` (the same one twice without), and how it is touched."""

    regions: tuple[int, int]
    loop: int | None
    access: Access
    write: bool


@frozen(eq=False)
class _Fact:
    """Of a node that does work: its pipe, what it touches on chip, in which regions, and which tensors."""

    pipe: int
    touches: tuple[_Touch, ...]
    tensors: tuple[Access, ...]
    fixed: list[tuple[int, bool, Access]] | None  # region, whether it is written, and access, if nothing takes turns


class Facts:
    """What the nodes of a kernel do, told once; the regions of the memories on chip that they touch have numbers.

    works: of nodes that do work, by id; overlaps: of each region, those that share bytes with it, itself included;
    inside: those that lie in it.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.works: dict[int, _Fact] = {}
        self.numbers: dict[tuple[str, int, int], int] = {}
        self.overlaps: list[list[int]] = []
        self.inside: list[list[int]] = []
        for node in walk(nodes):
            fact = self._told(node)
            if fact is not None:
                self.works[id(node)] = fact

    def _told(self, node: Node) -> _Fact | None:
        pipe = pipe_of(node)
        if pipe is None:
            return None
        touches: list[_Touch] = []
        tensors: list[Access] = []
        for access in accesses(node):
            what = access.what
            if isinstance(what, str):
                if not what.startswith(SLOT):  # flags between the cores keep accesses to slots apart
                    tensors.append(access)
                continue
            low = what.address or 0
            one = other = self._region(what.space, low, low + what.size)
            if what.loop is not None:
                other = self._region(what.space, low + what.size, low + 2 * what.size)
            loop = None if what.loop is None else id(what.loop)
            touches.append(_Touch((one, other), loop, access, access.write))
        turning = any(t.loop is not None for t in touches)
        fixed = None if turning else [(t.regions[0], t.write, t.access) for t in touches]
        return _Fact(NUMBER[pipe], tuple(touches), tuple(tensors), fixed)

    def _region(self, space: str, low: int, high: int) -> int:
        key = (space, low, high)
        known = self.numbers.get(key)
        if known is not None:
            return known
        new = self.numbers[key] = len(self.overlaps)
        self.overlaps.append([])
        self.inside.append([])
        for (other_space, first, last), other in self.numbers.items():
            if other_space != space or first >= high or low >= last:
                continue
            self.overlaps[new].append(other)
            if low <= first and last <= high:
                self.inside[new].append(other)
            if other == new:
                continue
            self.overlaps[other].append(new)
            if first <= low and high <= last:
                self.inside[other].append(new)
        return new


def enough(loop: Loop) -> int:
    """Iterations after which nothing new happens."""
    alone = sum(isinstance(n, Loop) for n in loop.body) == 1 and not any(
        pipe_of(n) is not None or isinstance(n, Branch) for n in loop.body
    )
    return 1 if alone else 3 if loop.turning or loop.ahead else 2


def trips_of(
    nodes: list[Node], pattern: tuple[int, int, int, int], depth: int = 0, turning: bool = False
) -> dict[int, int]:
    """How often the loops of a block run, by their ids.

    pattern: how often outer and innermost ones do at most, from which depth on they do not run at all, and how often
    others do at most inside of a loop in which buffers take turns; turning: these are inside of one.
    """
    out: dict[int, int] = {}
    for node in nodes:
        if isinstance(node, Branch):
            out |= trips_of(node.then, pattern, depth, turning) | trips_of(node.orelse, pattern, depth, turning)
        elif isinstance(node, Loop):
            innermost = depth > 0 and not any(isinstance(n, Loop) for n in node.body)
            most = pattern[1 if innermost else 3 if turning else 0]
            out[id(node)] = min(enough(node), most) + node.ahead if depth < pattern[2] else 0
            out |= trips_of(node.body, pattern, depth + 1, turning or node.turning)
    return out


class Run:
    """One run.

    trips: how often each loop runs, by its id; branch: which branches are taken (0: the first ones, 1: the others, 2
    and 3: in turns, 4 and 5: two and two).
    """

    def __init__(self, trips: dict[int, int], branch: int, facts: Facts) -> None:
        self.trips, self.branch, self.choices = trips, branch, 0
        self.facts = facts
        count = len(PIPES)
        self.clocks = [[0] * count for _ in PIPES]
        self.learnt = [[0] * count for _ in PIPES]  # what the scalar unit knew when a pipe learnt it last
        self.count = [0] * count
        self.time = 0
        self.flags: dict[tuple[str, str, int], list[Sequence[int]]] = {}
        self.seen: dict[tuple[str, str, int], Done] = {}
        self.told: dict[int, list[int]] = {}  # with flags between cores
        self.turns: dict[int, int] = {}
        regions = len(facts.overlaps)
        self.writes: list[dict[int, Done]] = [{} for _ in range(regions)]  # by pipe
        self.reads: list[dict[int, Done]] = [{} for _ in range(regions)]
        self.tensors: dict[str, list[tuple[Done, bool]]] = {}
        self.independent: list[bool] = []  # of the loops around, from the outermost
        self.at_end: list[tuple[bool, bool]] = []  # of the loops around: whether this is the first, the last iteration
        self.hazards: list[Hazard] = []
        self.reuses: list[Hazard] = []

    def block(self, nodes: list[Node], at: tuple[int, ...]) -> None:
        works = self.facts.works
        for node in nodes:
            if type(node) in _SILENT:
                continue
            fact = works.get(id(node))
            if fact is not None:
                self._work(node, fact, at)
            elif isinstance(node, SetFlag):
                self._set(node, at)
            elif isinstance(node, WaitFlag):
                told = self.flags.get(self._flag(node))
                if told:
                    _learn(self.clocks[NUMBER[node.target]], told.pop(0))
                self._see(node, at)
            elif isinstance(node, CrossSet):
                pipe = NUMBER[node.pipe]
                _learn(self.clocks[pipe], self.clocks[_UNIT])
                self.told[node.flag] = [*self.clocks[pipe]]
                self.told[node.flag][pipe] = self.count[pipe]
            elif isinstance(node, CrossWait):  # who tells so has heard what was told with the other flag of the slot
                _learn(self.clocks[_UNIT], self.told.get(node.flag ^ 1, _NOTHING))
            elif isinstance(node, Barrier):
                if node.pipe == "ALL":
                    self.clocks = [list(self.count) for _ in PIPES]
                else:
                    k = NUMBER[node.pipe]  # type: ignore[index]
                    self.clocks[k][k] = self.count[k]
            elif isinstance(node, Loop):
                self._loop(node, at)
            elif isinstance(node, Branch):
                if node.when:
                    taken = not self.at_end[-1][node.when == "not last"]
                else:
                    self.choices += 1
                    taken = bool(_CHOICES[self.branch] >> self.choices % 4 & 1)
                self.block(node.then if taken else node.orelse, at)

    def _loop(self, loop: Loop, at: tuple[int, ...]) -> None:
        count = self.trips[id(loop)]
        self.independent.append(loop.independent)
        for k in range(count):
            self.at_end.append((k == 0, k == count - 1))
            self.block(loop.body, (*at, k))
            self.at_end.pop()
            if loop.turning:
                self.turns[id(loop)] = 1 - self.turns.get(id(loop), 0)
        self.independent.pop()

    # -- flags ----------------------------------------------------------------------------------------------------

    def _flag(self, node: SetFlag | WaitFlag) -> tuple[str, str, int]:
        event = node.event
        if node.turning is not None:
            event += node.which if node.which is not None else self.turns.get(id(node.turning), 0)
        return node.source, node.target, event

    def _set(self, node: SetFlag, at: tuple[int, ...]) -> None:
        pipe, key = NUMBER[node.source], self._flag(node)
        mine = self.clocks[pipe]
        _learn(mine, self.clocks[_UNIT])
        last = self.seen.get(key)
        if last is not None and mine[last.pipe] < last.number:  # it must be down before it is raised again
            new = Done(node, pipe, self.count[pipe], at, _NOTHING, self.time)
            self.reuses.append((last, new, Access("flag", True)))
            _learn(mine, last.told)
        told = list(mine)
        told[pipe] = self.count[pipe]
        self.flags.setdefault(key, []).append(told)

    def _see(self, node: WaitFlag, at: tuple[int, ...]) -> None:
        """A flag is down when its pipe has come to the wait."""
        pipe = NUMBER[node.target]
        self.count[pipe] += 1
        self.time += 1
        told = list(self.clocks[pipe])
        told[pipe] = self.count[pipe]
        if pipe == _UNIT:
            self.clocks[pipe] = list(told)
        self.seen[self._flag(node)] = Done(node, pipe, self.count[pipe], at, told, self.time)

    # -- work -----------------------------------------------------------------------------------------------------

    def _work(self, node: Node, fact: _Fact, at: tuple[int, ...]) -> None:
        pipe = fact.pipe
        mine = self.clocks[pipe]
        unit = self.clocks[_UNIT]
        if self.learnt[pipe] != unit and pipe != _UNIT:
            _learn(mine, unit)  # the scalar unit hands the instructions out
            self.learnt[pipe] = list(unit)
        self.time += 1
        self.count[pipe] = number = self.count[pipe] + 1
        turns = self.turns
        touched = fact.fixed
        if touched is None:
            touched = [(t.regions[turns.get(t.loop, 0)], t.write, t.access) for t in fact.touches]  # pyright: ignore
        found = self._unknown(mine, pipe, touched)
        for access in fact.tensors:
            found += self._unknown_in_memory(mine, pipe, access, at)
        if len(found) > 1:
            found.sort(key=lambda pair: -pair[0].time)  # what is known of later work says most
        for done, access in found:
            if mine[done.pipe] < done.number:
                self.hazards.append((done, Done(node, pipe, number, at, _NOTHING, self.time), access))
                _learn(mine, done.told)
        told = list(mine)
        told[pipe] = number
        new = Done(node, pipe, number, at, told, self.time)
        writes, reads, inside = self.writes, self.reads, self.facts.inside
        for region, write, _ in touched:
            if write:  # what it overwrites was looked at
                for inner in inside[region]:
                    if writes[inner]:
                        writes[inner].clear()
                    if reads[inner]:
                        reads[inner].clear()
                writes[region][pipe] = new
            else:
                reads[region][pipe] = new
        for access in fact.tensors:
            entries = self.tensors.setdefault(str(access.what), [])
            if not access.write:
                entries[:] = [e for e in entries if e[1] or e[0].node is not node]
            entries.append((new, access.write))

    def _unknown(
        self, mine: list[int], pipe: int, touched: list[tuple[int, bool, Access]]
    ) -> list[tuple[Done, Access]]:
        """Earlier work on the same bytes on chip that a pipe does not know to be done."""
        found: list[tuple[Done, Access]] = []
        writes, reads, overlaps = self.writes, self.reads, self.facts.overlaps
        own = pipe if _ORDERED[pipe] else -1  # a pipe that works in order knows what it did itself
        for region, write, access in touched:
            for other in overlaps[region]:
                if writes[other]:
                    for by, done in writes[other].items():
                        if by != own and mine[by] < done.number:
                            found.append((done, access))
                if write and reads[other]:
                    for by, done in reads[other].items():
                        # what the scalar unit reads it has read before it hands out what follows
                        if by != own and by != _UNIT and mine[by] < done.number:
                            found.append((done, access))
        return found

    def _unknown_in_memory(
        self, mine: list[int], pipe: int, access: Access, at: tuple[int, ...]
    ) -> list[tuple[Done, Access]]:
        """The same for a tensor, where iterations of independent loops do not meet."""
        found: list[tuple[Done, Access]] = []
        for done, write in self.tensors.get(str(access.what), ()):
            if mine[done.pipe] >= done.number or not (write or access.write):
                continue
            if not str(access.what).startswith(RELAY) and self._apart(done, at):
                continue
            if (done.pipe == pipe and _ORDERED[pipe]) or (done.pipe == _UNIT and not write):
                continue
            found.append((done, access))
        return found

    def _apart(self, done: Done, at: tuple[int, ...]) -> bool:
        """Whether work is of other iterations of an independent loop."""
        return any(
            independent and k < len(done.at) and done.at[k] != at[k] for k, independent in enumerate(self.independent)
        )


def _learn(clock: list[int], told: Sequence[int]) -> None:
    clock[:] = map(max, clock, told)
