# SPDX-License-Identifier: MIT
"""A kernel as steps for the analysis of `flow`: stretches of work, flags, barriers, loops and branches.

What says nothing of the order, as declarations and numbers, has no step.  Works, and waits for flags, are numbered in
the order of the text: how many come before a step is its *place*.
"""

from __future__ import annotations

from typing import Any

from pto_jit.slotted import mutable
from pto_jit.targets.ascend.events import NUMBER, UNIT, Event, Events, Moves
from pto_jit.targets.ascend.form import Barrier, Branch, CrossSet, CrossWait, Declaration, Loop, Node, SetFlag, WaitFlag

Key = tuple[str, str, int, int]
"""A flag: its pipes, its number; and of one for each turn, whether it is that of the other turn."""
State = tuple[tuple[int, ...], dict[object, int]]
"""What each pipe does not know, and what each raised flag does not tell."""


@mutable(eq=False)
class Flag:
    """A flag is raised or waited for. event: the wait, or, of one that is raised, what must not meet waits for it;
    behind: of waits with bits, how many works and waits come before it, and with it."""

    key: Key
    event: Event
    behind: int = 0


@mutable(eq=False)
class Repeat:
    """A loop.

    first, end: how many bits of works and of waits come before it, and with it; works: how many works and waits; turns:
    flags that change names with each turn; ahead: as in the form; runs: at least once; inside: all bits in it; used:
    the flags that are raised or waited for in it, None if there are loops in it, or parts ahead; back: what is not
    known when an iteration follows another; behind: what the pipes do not know behind it; settled: what was not known
    before the loop, and then behind it, when nothing changed any more.
    """

    steps: list[Any]
    first: tuple[int, int]
    end: tuple[int, int]
    works: int
    moves: Moves
    turns: dict[tuple[str, str, int], tuple[Key, Key]]
    ahead: bool
    runs: bool
    inside: int = 0
    used: set[tuple[str, str, int]] | None = None
    back: State | None = None
    behind: tuple[int, ...] = ()
    settled: tuple[State, State] | None = None


@mutable(eq=False)
class Choice:
    """A branch; middle, works: how many works and waits there are before its other side, and with it; when: as in the
    form."""

    when: str
    then: list[Any]
    middle: int
    orelse: list[Any]
    works: int


@mutable(eq=False)
class Stretch:
    """Work of one pipe; None is a barrier.

    first, end: how many works and waits come before it, and with it; conflicts: of all of it; met: those of its own
    pipe that were not known to be done when it was gone through last, after which `waits` says whether the pipe waited
    for itself on the way, and `left` are the bits since then; entered: what was not known before it, if it met no other
    pipe's work.
    """

    pipe: int
    first: int
    end: int
    steps: list[Event | None]
    conflicts: int = 0
    met: int = -1
    waits: bool = False
    left: int = 0
    entered: int | None = None


class Steps:
    """The steps of a kernel: what of its nodes says something of the order. Waits for flags get bits behind those of
    the works.

    before: the bits that are set before each work and wait, and all of them at the end.
    """

    def __init__(self, nodes: list[Node], events: Events) -> None:
        self.events = events
        self.owner, self.turning = list(events.owner), list(events.turning)
        self.of_pipe = list(events.of_pipe)
        self.waits: dict[Key, int] = {}
        self.raised: list[Flag] = []
        self.repeats: dict[Loop, Repeat] = {}
        self.crossing: set[int] = set()  # flags that are told to other cores
        self.depth = 0  # of loops inside each other
        self.hears = False  # whether the scalar unit waits for others
        self.before: list[int] = [0]
        self._bit = 0  # bits of works so far
        # of loops whose turns end, by the ids of those that stand for them: bits that move, flags that change names
        self._turns = {first: (dict(moves), {}) for first, moves in events.turns.items()}
        self.steps = self._block(nodes, ())
        for loop, repeat in self.repeats.items():
            if loop.turning:
                self._take_turns(repeat, *self._turns[id(loop.turns)])
        for flag in self.raised:
            flag.event.conflicts = self.waits.get(flag.key, 0)

    def _block(self, nodes: list[Node], loops: tuple[Loop, ...]) -> list[Any]:
        out: list[Any] = []
        works = self.events.works
        stretch: Stretch | None = None
        for node in nodes:
            kind = type(node)
            if kind is Declaration:
                continue
            event = works.get(id(node))
            if event is not None:
                event.meets = None
                event.flag = event.past = len(self.owner)
                if stretch is None or stretch.pipe != event.pipe:
                    stretch = Stretch(event.pipe, len(self.before) - 1, 0, [])
                    out.append(stretch)
                event.stretch = stretch
                self.before.append(self.before[-1] | event.bits)
                stretch.steps.append(event)
                stretch.conflicts |= event.conflicts
                rest = event.rest
                if rest is not None:
                    rest.meets, rest.stretch = None, stretch
                    rest.flag = rest.past = event.flag
                    self.before.append(self.before[-1] | rest.bits)
                    stretch.steps += [None, rest]
                    stretch.conflicts |= rest.conflicts
                    event = rest
                stretch.end = len(self.before) - 1
                self._bit = event.end
                continue
            if kind is Barrier and node.pipe != "ALL":  # pyright: ignore[reportAttributeAccessIssue]
                pipe = NUMBER[node.pipe]  # pyright: ignore[reportAttributeAccessIssue]
                if stretch is None or stretch.pipe != pipe:
                    stretch = Stretch(pipe, len(self.before) - 1, len(self.before) - 1, [])
                    out.append(stretch)
                stretch.steps.append(None)
                continue
            step = self._other(node, loops)
            if step is not None:
                stretch = None
                out.append(step)
        return out

    def _other(self, node: Node, loops: tuple[Loop, ...]) -> Any:
        """The step of a node that is not work; None where there is none."""
        match node:
            case SetFlag() | WaitFlag():
                return self._flag(node, loops)
            case Loop():
                return self._repeat(node, loops)
            case Branch():
                then, middle = self._block(node.then, loops), len(self.before) - 1
                orelse = self._block(node.orelse, loops)
                return Choice(node.when, then, middle, orelse, len(self.before) - 1)
            case CrossSet():
                self.crossing.add(node.flag)
                return node
            case Barrier() | CrossWait():
                return node
            case _:
                return None

    def _repeat(self, loop: Loop, loops: tuple[Loop, ...]) -> Repeat:
        first = self._bit, len(self.owner)
        moves = dict(self.events.moves.get(id(loop), {}))
        out = self.repeats[loop] = Repeat([], first, first, 0, moves, {}, loop.ahead, _runs(loop))
        self.depth = max(self.depth, len(loops) + 1)
        if loops:
            self.repeats[loops[-1]].used = None
        out.used = None if loop.ahead else set()
        out.steps = self._block(loop.body, (*loops, loop))
        out.end, out.works = (self._bit, len(self.owner)), len(self.before) - 1
        out.inside = span(first[0], out.end[0]) | span(first[1], out.end[1])
        return out

    def _take_turns(self, repeat: Repeat, moves: Moves, flags: dict[tuple[str, str, int], tuple[Key, Key]]) -> None:
        for by, bits in moves.items():
            repeat.moves[by] = repeat.moves.get(by, 0) | bits
        repeat.turns = flags
        if repeat.used is not None:
            repeat.used |= flags.keys()

    def _flag(self, node: SetFlag | WaitFlag, loops: tuple[Loop, ...]) -> Flag:
        turning, which = node.turning, node.which or 0
        name = node.source, node.target, node.event
        pipe = NUMBER[node.target if isinstance(node, WaitFlag) else node.source]
        at = len(self.owner)
        out = Flag((*name, which), Event(node, pipe, loops, self._bit, self._bit, at, at))
        for loop in loops:
            used = self.repeats[loop].used
            if used is not None:
                used.add(name)
        if turning is not None and node.which is None:
            self._turns[id(turning)][1][name] = (*name, 0), (*name, 1)
        if isinstance(node, SetFlag):
            self.raised.append(out)
        elif pipe == UNIT:
            self.hears = True
        else:  # what the scalar unit waits for is before all that it hands out
            copies = 1 if turning is None else 2
            out.event.bits, out.event.past = 1 << at + which, at + copies
            for turn in range(copies):
                key, bit = (*name, turn), 1 << at + turn
                self.owner.append(out.event)
                self.turning.append(turning)
                self.waits[key] = self.waits.get(key, 0) | bit
                self.of_pipe[pipe] |= bit
            self.before.append(self.before[-1] | out.event.bits)
            out.behind = len(self.before) - 1
            if turning is not None:
                moves = self._turns[id(turning)][0]
                for by, bit in ((1, 1 << at), (-1, 2 << at)):
                    moves[by] = moves.get(by, 0) | bit
        return out


def _runs(loop: Loop) -> bool:
    """Whether a loop has constant bounds that it runs between."""
    bounds = (loop.start, loop.stop)
    return not loop.grid and all(b.isdigit() for b in bounds) and int(loop.start) < int(loop.stop)


def span(low: int, high: int) -> int:
    return (1 << high) - (1 << low)
