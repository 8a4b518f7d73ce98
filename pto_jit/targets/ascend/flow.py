# SPDX-License-Identifier: MIT
"""Which work may start without knowing that earlier work on the same bytes is done: a data-flow analysis.

What is known at a place of a kernel is, for each pipe, the set of work that it may not know to be done (`events`), and
for each raised flag the set that it does not tell of.  Work adds its bits to all sets; a flag that is waited for, and a
barrier, take bits out.  Where paths meet (behind branches, at the heads of loops, which may run any number of times) a
set is the union of theirs.  The kernel is gone through until the sets at the ends of loops stay as they are (Kildall,
1973); a few times do (Kam and Ullman, 1976).

Work that is not known to be done and touches what later work touches, one of them writing, is a *hazard*; so is a flag
that might be raised again before its pipe has seen it.  What is found is taken for mended on the way: of two hazards
one is left out if mending the other one mends it.

Most work of a pipe follows other work of it.  Where such a *stretch* meets no work of other pipes, all that matters is
which work of its own before it that it meets is not known to be done: where that is as it was the last time, so is the
rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pto_jit.slotted import frozen, mutable
from pto_jit.targets.ascend.events import NUMBER, UNIT, Event, Events, Moves, moved
from pto_jit.targets.ascend.form import Barrier, Branch, CrossSet, CrossWait, Declaration, Loop, Node, SetFlag, WaitFlag
from pto_jit.targets.ascend.machine import PIPES

_Key = tuple[str, str, int, int]
"""A flag: its pipes, its number; and of one for each turn, whether it is that of the other turn."""
_State = tuple[tuple[int, ...], dict[object, int]]
"""What each pipe does not know, and what each raised flag does not tell."""


_IDLE = "idle"
"""Stands for flags that nothing in a loop touches."""


@frozen(eq=False)
class Hazard:
    """An event, and a later one that may start without knowing it done.

    turning: the loop whose turns choose what both touch.
    """

    before: Event
    after: Event
    turning: Loop | None


@mutable(eq=False)
class _Flag:
    """A flag is raised or waited for. event: the wait, or, of one that is raised, what must not meet waits for it;
    behind: of waits with bits, how many works and waits come before it, and with it."""

    key: _Key
    event: Event
    behind: int = 0


@mutable(eq=False)
class _Repeat:
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
    turns: dict[tuple[str, str, int], tuple[_Key, _Key]]
    ahead: bool
    runs: bool
    inside: int = 0
    used: set[tuple[str, str, int]] | None = None
    back: _State | None = None
    behind: tuple[int, ...] = ()
    settled: tuple[_State, _State] | None = None


@mutable(eq=False)
class _Choice:
    """A branch; middle, works: how many works and waits there are before its other side, and with it; when: as in the
    form."""

    when: str
    then: list[Any]
    middle: int
    orelse: list[Any]
    works: int


@mutable(eq=False)
class _Stretch:
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


class _Text:
    """The steps of a kernel: what of its nodes says something of the order. Waits for flags get bits behind those of
    the works.

    before: the bits that are set before each work and wait, and all of them at the end.
    """

    def __init__(self, nodes: list[Node], events: Events) -> None:
        self.events = events
        self.owner, self.turning = list(events.owner), list(events.turning)
        self.of_pipe = list(events.of_pipe)
        self.waits: dict[_Key, int] = {}
        self.raised: list[_Flag] = []
        self.repeats: dict[Loop, _Repeat] = {}
        self.crossing: set[int] = set()  # flags that are told to other cores
        self.depth = 0  # of loops inside each other
        self.hears = False  # whether the scalar unit waits for others
        self.before: list[int] = [0]
        self._bit = 0  # bits of works so far
        self.steps = self._block(nodes, ())
        for flag in self.raised:
            flag.event.conflicts = self.waits.get(flag.key, 0)

    def _block(self, nodes: list[Node], loops: tuple[Loop, ...]) -> list[Any]:
        out: list[Any] = []
        works = self.events.works
        stretch: _Stretch | None = None
        for node in nodes:
            kind = type(node)
            if kind is Declaration:
                continue
            event = works.get(id(node))
            if event is not None:
                event.meets = None
                event.flag = event.past = len(self.owner)
                if stretch is None or stretch.pipe != event.pipe:
                    stretch = _Stretch(event.pipe, len(self.before) - 1, 0, [])
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
            if kind is Barrier and stretch is not None and PIPES[stretch.pipe] == node.pipe:  # pyright: ignore
                stretch.steps.append(None)
                continue
            step = self._other(node, loops)
            if step is not None:
                stretch = None
                out.append(step)
        return out

    def _other(self, node: Node, loops: tuple[Loop, ...]) -> Any:
        """The step of a node that is no work; None where there is none."""
        match node:
            case SetFlag() | WaitFlag():
                return self._flag(node, loops)
            case Loop():
                return self._repeat(node, loops)
            case Branch():
                then, middle = self._block(node.then, loops), len(self.before) - 1
                orelse = self._block(node.orelse, loops)
                return _Choice(node.when, then, middle, orelse, len(self.before) - 1)
            case CrossSet():
                self.crossing.add(node.flag)
                return node
            case Barrier() | CrossWait():
                return node
            case _:
                return None

    def _repeat(self, loop: Loop, loops: tuple[Loop, ...]) -> _Repeat:
        first = self._bit, len(self.owner)
        moves = dict(self.events.moves.get(id(loop), {}))
        out = self.repeats[loop] = _Repeat([], first, first, 0, moves, {}, loop.ahead, _runs(loop))
        self.depth = max(self.depth, len(loops) + 1)
        if loops:
            self.repeats[loops[-1]].used = None
        out.used = None if loop.ahead else set()
        out.steps = self._block(loop.body, (*loops, loop))
        out.end, out.works = (self._bit, len(self.owner)), len(self.before) - 1
        out.inside = _span(first[0], out.end[0]) | _span(first[1], out.end[1])
        return out

    def _flag(self, node: SetFlag | WaitFlag, loops: tuple[Loop, ...]) -> _Flag:
        turning, which = node.turning, node.which or 0
        name = node.source, node.target, node.event
        pipe = NUMBER[node.target if isinstance(node, WaitFlag) else node.source]
        at = len(self.owner)
        out = _Flag((*name, which), Event(node, pipe, loops, self._bit, self._bit, at, at))
        for loop in loops:
            used = self.repeats[loop].used
            if used is not None:
                used.add(name)
        if turning is not None and node.which is None:
            self.repeats[turning].turns[name] = (*name, 0), (*name, 1)
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
                moves = self.repeats[turning].moves
                for by, bit in ((1, 1 << at), (-1, 2 << at)):
                    moves[by] = moves.get(by, 0) | bit
        return out


class Flow(_Text):
    """The analysis of a kernel with the flags and barriers that it has.

    unknown: of each pipe, the work that it may not know to be done, among the first `upto` ones; told: the same of
    flags that are raised; place: how many works there were so far.
    """

    def __init__(self, nodes: list[Node], events: Events, *, usual: bool = False) -> None:
        super().__init__(nodes, events)
        self.usual = usual
        used = {event.pipe for event in events.works.values()}
        count = len(PIPES) if self.crossing else 1 + max(used, default=UNIT)  # pipes without work may tell other cores
        # A scalar unit that waits for nothing knows of no work to be done: what it does not know is no news to others.
        self.first = UNIT + 1 if not (self.crossing or self.hears or UNIT in used) else UNIT
        self.pipes = range(self.first, count)
        self.unknown, self.upto = [0] * count, [0] * count
        self.told: dict[object, list[int]] = {}
        # of what the scalar unit knows, and what a pipe has learnt of that
        self.version, self.taught = int(self.first == UNIT), [0] * count
        self.place, self.changed = 0, True
        self.left_out, self.again = "", False  # which part an iteration has not, and whether others came before
        self.how: dict[type, Callable[[Any], None]] = {
            _Stretch: self._along, _Flag: self._pass, Barrier: self._wait_for_all,
            CrossSet: self._tell, CrossWait: self._hear, _Repeat: self._loop, _Choice: self._branch,
        }  # fmt: skip

    def hazards(self) -> list[Hazard]:
        """What may start too early, in the order of the text; only if that is nothing, flags raised too early.

        What usually happens is gone through as often as new hazards are found then, which is about once for each loop
        inside another: not all of it need be found, and the last look is one at all that may happen.
        """
        sweeps = 0
        while self.changed and not (self.usual and sweeps >= max(3, self.depth)):
            self.changed, sweeps = False, sweeps + 1
            self._start(((0,) * len(self.pipes), dict.fromkeys(self.crossing, 0)), 0)
            self._go(self.steps)
        works = [event for event in self.events.works.values() if event.meets]
        found = works or [flag.event for flag in self.raised if flag.event.meets]
        return [Hazard(before, after, loop) for after in found for before, loop in after.meets or ()]

    # -- sets -----------------------------------------------------------------------------------------------------

    def _now(self, pipe: int) -> int:
        """What a pipe does not know."""
        upto, place = self.upto[pipe], self.place
        if upto != place:
            before = self.before
            self.unknown[pipe] |= before[place] ^ before[upto]
            self.upto[pipe] = place
        return self.unknown[pipe]

    def _not_told(self, name: object) -> int:
        """What a flag does not tell of."""
        told, before = self.told[name], self.before
        told[0] |= before[self.place] ^ before[told[1]]
        told[1] = self.place
        return told[0]

    def _state(self) -> _State:
        place, before, upto, unknown = self.place, self.before, self.upto, self.unknown
        done = before[place]
        told = {name: known[0] | (done ^ before[known[1]]) for name, known in self.told.items()}
        return tuple([unknown[pipe] | (done ^ before[upto[pipe]]) for pipe in self.pipes]), told

    def _start(self, state: _State, place: int) -> None:
        """Go on at a place with what is not known there."""
        self.place = place
        self.unknown = [0] * self.first + list(state[0])
        self.upto = [place] * len(self.unknown)
        self.told = {name: [bits, place] for name, bits in state[1].items()}
        self.version += self.first == UNIT

    # -- steps ----------------------------------------------------------------------------------------------------

    def _go(self, steps: list[Any]) -> None:
        how = self.how
        for step in steps:
            how[type(step)](step)

    def _along(self, stretch: _Stretch) -> None:
        pipe, place, before = stretch.pipe, stretch.first, self.before
        unknown = self.unknown[pipe]
        upto = self.upto[pipe]
        if upto != place:
            unknown |= before[place] ^ before[upto]
        if self.taught[pipe] != self.version:  # the scalar unit hands the instructions out
            self.place = place
            unknown &= self._now(UNIT)
            self.taught[pipe] = self.version
        met = unknown & stretch.conflicts
        if met & ~self.of_pipe[pipe]:
            unknown = self._step_by_step(stretch, unknown)
        else:
            stretch.entered = unknown
            if met != stretch.met:
                self._work_through(stretch, met)
            if stretch.waits:
                unknown &= ~self.of_pipe[pipe]
            unknown |= stretch.left
        self.unknown[pipe] = unknown
        self.upto[pipe] = self.place = stretch.end

    def _step_by_step(self, stretch: _Stretch, unknown: int) -> int:
        """A stretch that meets work of other pipes: what is not known behind it."""
        stretch.met, stretch.entered = -1, None
        others, again = ~self.of_pipe[stretch.pipe], self.again
        for event in stretch.steps:
            if event is None:
                unknown &= others
                continue
            met = unknown & event.conflicts
            if met:
                unknown = self._meet(event, unknown, met)
            elif event.meets and not again:
                event.meets = None
            event.unknown = unknown
            unknown |= event.bits
        return unknown

    def _unknown_to(self, event: Event) -> int:
        """What a pipe did not know when it started an event."""
        stretch = event.stretch
        if stretch is None or stretch.entered is None:
            return event.unknown
        others = ~self.of_pipe[stretch.pipe]
        unknown = stretch.entered
        for step in stretch.steps:
            if step is None or unknown & step.conflicts:
                unknown &= others
            if step is event:
                break
            unknown |= 0 if step is None else step.bits
        return unknown

    def _work_through(self, stretch: _Stretch, unknown: int) -> None:
        """A stretch after work of its own pipe that is not known to be done."""
        owner, again = self.owner, self.again
        stretch.met = -1 if again else unknown  # what others met in it is not forgotten
        waits, left = False, 0
        for event in stretch.steps:
            if event is None:
                waits, unknown, left = True, 0, 0
                continue
            met = (unknown | left) & event.conflicts
            if met:
                if event.meets is None or not again:
                    event.meets = []
                event.meets.append((owner[met.bit_length() - 1], None))
                waits, unknown, left = True, 0, 0
            elif not again:
                event.meets = None
            left |= event.bits
        stretch.waits, stretch.left = waits, left

    def _pass(self, flag: _Flag) -> None:
        event = flag.event
        pipe = event.pipe
        unknown = self._now(pipe)
        if isinstance(event.node, SetFlag):
            if self.first == UNIT:
                unknown &= self._now(UNIT)
            met = unknown & event.conflicts
            if not self.again:
                event.meets = None
            if met:
                unknown = self._meet(event, unknown, met)
            self.unknown[pipe] = unknown
            self.told[flag.key] = [unknown & ~self.of_pipe[pipe], self.place]
            return
        if flag.key in self.told:
            unknown &= self._not_told(flag.key)
            del self.told[flag.key]
        if pipe == UNIT:
            unknown &= ~self.of_pipe[pipe]
            self.version += 1
        event.unknown = self.unknown[pipe] = unknown
        if event.bits:
            self.place = flag.behind

    def _wait_for_all(self, barrier: Barrier) -> None:
        if barrier.pipe == "ALL":
            self.unknown, self.upto = [0] * len(self.unknown), [self.place] * len(self.unknown)
            self.version += self.first == UNIT
        else:
            pipe = NUMBER[barrier.pipe]  # type: ignore[index]
            self.unknown[pipe] = self._now(pipe) & ~self.of_pipe[pipe]

    def _tell(self, told: CrossSet) -> None:
        pipe = NUMBER[told.pipe]
        self.unknown[pipe] = self._now(pipe) & self._now(UNIT)
        self.told[told.flag] = [self.unknown[pipe] & ~self.of_pipe[pipe], self.place]

    def _hear(self, heard: CrossWait) -> None:
        """Who tells so has heard what was told with the other flag of the slot."""
        if heard.flag ^ 1 in self.told:
            self.unknown[UNIT] = self._now(UNIT) & self._not_told(heard.flag ^ 1)
            self.version += 1

    def _loop(self, loop: _Repeat) -> None:
        """The state behind it is that of any number of iterations, even of none."""
        entry, idle = _without_idle(self._state(), loop)
        if loop.settled is not None and loop.settled[0] == entry:
            self._start(_with_idle(loop.settled[1], idle), loop.works)
            return
        changed, self.changed = self.changed, False
        if loop.ahead:
            out = self._ahead(loop, entry)
        else:
            out = self._iteration(loop, entry if loop.back is None else _either(entry, loop.back), "", self.again)
            self._goes_on(loop, out)
        out = out if self.usual or loop.runs else _either(entry, out)
        loop.settled, loop.behind = None if self.changed else (entry, out), (0,) * self.first + out[0]
        self.changed |= changed
        self._start(_with_idle(out, idle), loop.works)

    def _ahead(self, loop: _Repeat, entry: _State) -> _State:
        """A loop with a part that is ahead: its first iteration is that part's only, and its last the other's."""
        place, again = self.place, self.again
        self._goes_on(loop, self._iteration(loop, entry, "not first", again))
        assert loop.back is not None
        self.place = place
        self._goes_on(loop, self._iteration(loop, loop.back, "", True))
        self.place = place
        return self._iteration(loop, loop.back, "not last", True)

    def _iteration(self, loop: _Repeat, state: _State, left_out: str, again: bool) -> _State:
        """The state behind an iteration."""
        around = self.left_out, self.again
        self.left_out, self.again = left_out, again
        self._start(state, self.place)
        self._go(loop.steps)
        self.left_out, self.again = around
        return _at_end(self._state(), loop)

    def _goes_on(self, loop: _Repeat, state: _State) -> None:
        """An iteration may follow in a state."""
        back = state if loop.back is None else _either(loop.back, state)
        self.changed |= back != loop.back
        loop.back = back

    def _branch(self, branch: _Choice) -> None:
        before = self._state()
        if branch.when and self.left_out == branch.when:
            if not self.again:
                _forget(branch.then)
            self._start(before, branch.works)
            return
        self._go(branch.then)
        self.place = branch.middle
        after = self._state()
        if branch.when or (self.usual and not branch.orelse):
            return
        self._start(before, branch.middle)
        self._go(branch.orelse)
        self.place = branch.works
        self._start(_either(after, self._state()), branch.works)

    # -- hazards --------------------------------------------------------------------------------------------------

    def _meet(self, event: Event, unknown: int, met: int) -> int:
        """Note what an event meets, the latest first, and what is not known when it waits for that."""
        if event.meets is None or not self.again:
            event.meets = []
        own = self.of_pipe[event.pipe]
        if not met & ~own:
            event.meets.append((self.owner[met.bit_length() - 1], None))
            return unknown & ~own
        while met:
            bit = self._latest(event, met).bit_length() - 1
            before = self.owner[bit]
            event.meets.append((before, self.turning[bit]))
            unknown &= ~own if before.pipe == event.pipe else self._not_told_by(before, event, self.turning[bit])
            met &= unknown
        return unknown

    def _latest(self, event: Event, met: int) -> int:
        """Of bits that an event meets, those of work that comes before it; else of the innermost loop around both."""
        some = met & ((1 << event.first) - 1 | (1 << event.flag) - (1 << self.events.count))
        for loop in reversed(event.loops):
            if some:
                break
            some = met & self.repeats[loop].inside
        return some or met

    def _not_told_by(self, before: Event, event: Event, turning: Loop | None) -> int:
        """What a pipe may not know of when it knows an earlier event: what was not known then, and what came since."""
        common = [loop for loop, other in zip(before.loops, event.loops, strict=False) if loop is other]
        told, since, until = self._unknown_to(before), (before.end, before.past), (event.first, event.flag)
        if len(before.loops) > len(common):  # who waits for it waits for the loop that it is in
            inner = self.repeats[before.loops[len(common)]]
            told, since = inner.behind[before.pipe], inner.end
        if len(event.loops) > len(common):  # it may be of a later iteration of a loop that came since
            until = self.repeats[event.loops[len(common)]].end
        told &= ~self.of_pipe[before.pipe]
        if (before.first, before.flag) < (event.first, event.flag):
            return told | _span(since[0], until[0]) | _span(since[1], until[1])
        loop = self.repeats[common[-1] if turning is None else turning]
        out = ~loop.inside  # what comes before the loop is not known in its first iteration
        out |= _span(since[0], loop.end[0]) | _span(loop.first[0], until[0])
        out |= _span(since[1], loop.end[1]) | _span(loop.first[1], until[1])
        if turning is None:
            return out | moved(told, loop.moves)
        return out | told | loop.inside & ~(loop.moves[-1] >> 1)  # a whole iteration came between


def _runs(loop: Loop) -> bool:
    """Whether a loop has constant bounds that it runs between."""
    bounds = (loop.start, loop.stop)
    return not loop.grid and all(b.isdigit() for b in bounds) and int(loop.start) < int(loop.stop)


def _forget(steps: list[Any]) -> None:
    """What was met in steps that are not taken now."""
    for step in steps:
        if isinstance(step, _Repeat):
            _forget(step.steps)
        elif isinstance(step, _Choice):
            _forget(step.then)
            _forget(step.orelse)
        elif isinstance(step, _Stretch):
            step.met = -1
            for event in step.steps:
                if event is not None:
                    event.meets = None
        elif isinstance(step, _Flag):
            step.event.meets = None


def _span(low: int, high: int) -> int:
    return (1 << high) - (1 << low)


def _without_idle(state: _State, loop: _Repeat) -> tuple[_State, dict[object, int]]:
    """A state before a loop with one flag for all that nothing in the loop touches, and these."""
    used = loop.used
    if used is None:
        return state, {}
    told: dict[object, int] = {}
    idle: dict[object, int] = {}
    for name, bits in state[1].items():
        (told if type(name) is not tuple or name[:3] in used else idle)[name] = bits
    if idle:
        told[_IDLE] = 0
    return (state[0], told), idle


def _with_idle(state: _State, idle: dict[object, int]) -> _State:
    """A state behind a loop with the flags that nothing in it touches: they do not tell of its work, in no turn."""
    if not idle:
        return state
    told = dict(state[1])
    new = told.pop(_IDLE)
    for name, bits in idle.items():
        told[name] = bits | new
    return state[0], told


def _at_end(state: _State, loop: _Repeat) -> _State:
    """A state when an iteration ends."""
    bits = tuple([moved(b, loop.moves) for b in state[0]])
    told = {name: moved(b, loop.moves) for name, b in state[1].items()}
    for pair in loop.turns.values():
        now, other = (told.pop(name, None) for name in pair)
        told |= {name: b for name, b in zip(pair, (other, now), strict=True) if b is not None}
    return bits, told


def _either(one: _State, other: _State) -> _State:
    """Where paths meet.  A flag that is raised on one of them only is waited for on that only, too."""
    told = dict(one[1])
    for name, bits in other[1].items():
        told[name] = told.get(name, 0) | bits
    return tuple([a | b for a, b in zip(one[0], other[0], strict=True)]), told
