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

from pto_jit.slotted import frozen
from pto_jit.targets.ascend.events import NUMBER, UNIT, Event, Events, moved
from pto_jit.targets.ascend.form import Barrier, CrossSet, CrossWait, Loop, Node, SetFlag
from pto_jit.targets.ascend.machine import PIPES
from pto_jit.targets.ascend.steps import Choice, Flag, Repeat, State, Steps, Stretch, span

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


class Flow(Steps):
    """The analysis of a kernel with the flags and barriers that it has.

    unknown: of each pipe, the work that it may not know to be done, among the first `upto` ones; told: the same of
    flags that are raised; place: how many works there were so far; changed: whether a loop may go on with more that is
    not known than it was gone through with.
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
        self.place, self.changed, self.late = 0, True, False
        self.left_out, self.again = "", False  # which part an iteration has not, and whether others came before
        self.how: dict[type, Callable[[Any], None]] = {
            Stretch: self._along, Flag: self._pass, Barrier: self._wait_for_all,
            CrossSet: self._tell, CrossWait: self._hear, Repeat: self._loop, Choice: self._branch,
        }  # fmt: skip

    def hazards(self) -> list[Hazard]:
        """What may start too early, in the order of the text; only if that is nothing, flags raised too early.

        What usually happens is gone through as often as new hazards are found then, which is about once for each loop
        inside another: not all of it need be found, and the last look is one at all that may happen.  When little is
        new any more (`late`), loops that hold no others are gone through once more at once where they found some.
        """
        sweeps = 0
        while self.changed and not (self.usual and sweeps >= max(3, self.depth)):
            self.changed, sweeps = False, sweeps + 1
            self.late = sweeps > 2
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

    def _state(self) -> State:
        place, before, upto, unknown = self.place, self.before, self.upto, self.unknown
        done = before[place]
        told = {name: known[0] | (done ^ before[known[1]]) for name, known in self.told.items()}
        return tuple([unknown[pipe] | (done ^ before[upto[pipe]]) for pipe in self.pipes]), told

    def _start(self, state: State, place: int) -> None:
        """Go on at a place with what is not known there."""
        self.place = place
        self.unknown = [0] * self.first + list(state[0])
        self.upto = [place] * len(self.unknown)
        self.told = {name: [bits, place] for name, bits in state[1].items()}
        self.version += self.first == UNIT

    def _join(self, other: State) -> None:
        """Go on where another path ends here, too.

        A flag that is raised on one of them only is waited for on that only, too.
        """
        for pipe, bits in zip(self.pipes, other[0], strict=True):
            self.unknown[pipe] = self._now(pipe) | bits
        for name, bits in other[1].items():
            if name in self.told:
                self.told[name][0] = self._not_told(name) | bits
            else:
                self.told[name] = [bits, self.place]
        self.version += self.first == UNIT

    # -- steps ----------------------------------------------------------------------------------------------------

    def _go(self, steps: list[Any]) -> None:
        how = self.how
        for step in steps:
            how[type(step)](step)

    def _along(self, stretch: Stretch) -> None:
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

    def _step_by_step(self, stretch: Stretch, unknown: int) -> int:
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

    def _work_through(self, stretch: Stretch, unknown: int) -> None:
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

    def _pass(self, flag: Flag) -> None:
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

    def _wait_for_all(self, _barrier: Barrier) -> None:
        self.unknown, self.upto = [0] * len(self.unknown), [self.place] * len(self.unknown)
        self.version += self.first == UNIT

    def _tell(self, told: CrossSet) -> None:
        pipe = NUMBER[told.pipe]
        self.unknown[pipe] = self._now(pipe) & self._now(UNIT)
        self.told[told.flag] = [self.unknown[pipe] & ~self.of_pipe[pipe], self.place]

    def _hear(self, heard: CrossWait) -> None:
        """Who tells so has heard what was told with the other flag of the slot."""
        if heard.flag ^ 1 in self.told:
            self.unknown[UNIT] = self._now(UNIT) & self._not_told(heard.flag ^ 1)
            self.version += 1

    def _loop(self, loop: Repeat) -> None:
        """The state behind it is that of any number of iterations, even of none."""
        entry, idle = _without_idle(self._state(), loop)
        if loop.settled is not None and loop.settled[0] == entry:
            self._start(_with_idle(loop.settled[1], idle), loop.works)
            return
        changed, self.changed, place = self.changed, False, self.place
        if loop.ahead:
            out = self._ahead(loop, entry)
        else:
            out = self._further(loop, entry)
            if self.changed and self.late and loop.used is not None:
                self.changed, self.place = False, place
                out = self._further(loop, entry)
        out = out if self.usual or loop.runs else _either(entry, out)
        loop.settled, loop.behind = None if self.changed else (entry, out), (0,) * self.first + out[0]
        self.changed |= changed
        self._start(_with_idle(out, idle), loop.works)

    def _ahead(self, loop: Repeat, entry: State) -> State:
        """A loop with a part that is ahead: its first iteration is that part's only, and its last the other's."""
        place, again = self.place, self.again
        self._goes_on(loop, self._iteration(loop, entry, "not first", again))
        assert loop.back is not None
        self.place = place
        self._goes_on(loop, self._iteration(loop, loop.back, "", True))
        self.place = place
        return self._iteration(loop, loop.back, "not last", True)

    def _further(self, loop: Repeat, entry: State) -> State:
        """An iteration, the first one or a later one."""
        out = self._iteration(loop, entry if loop.back is None else _either(entry, loop.back), "", self.again)
        self._goes_on(loop, out)
        return out

    def _iteration(self, loop: Repeat, state: State, left_out: str, again: bool) -> State:
        """The state behind an iteration."""
        around = self.left_out, self.again
        self.left_out, self.again = left_out, again
        self._start(state, self.place)
        self._go(loop.steps)
        self.left_out, self.again = around
        return _at_end(self._state(), loop)

    def _goes_on(self, loop: Repeat, state: State) -> None:
        """An iteration may follow in a state."""
        if state == loop.back:
            return
        back = state if loop.back is None else _either(loop.back, state)
        self.changed |= back != loop.back
        loop.back = back

    def _branch(self, branch: Choice) -> None:
        if branch.when and self.left_out == branch.when:
            if not self.again:
                _forget(branch.then)
            self._start(self._state(), branch.works)
            return
        if branch.when or (self.usual and not branch.orelse):
            self._go(branch.then)
            return
        other = self._state()
        self._go(branch.then)
        if branch.orelse:
            then = self._state()
            self._start(other, branch.middle)
            self._go(branch.orelse)
            other = then
        self._join(other)

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
            return told | span(since[0], until[0]) | span(since[1], until[1])
        turned = next((loop for loop in common if loop.turns is turning), None)
        loop = self.repeats[common[-1] if turned is None else turned]
        out = ~loop.inside  # what comes before the loop is not known in its first iteration
        out |= span(since[0], loop.end[0]) | span(loop.first[0], until[0])
        out |= span(since[1], loop.end[1]) | span(loop.first[1], until[1])
        if turned is None:
            return out | moved(told, loop.moves)
        return out | told | loop.inside & ~(loop.moves[-1] >> 1)  # a whole iteration came between


def _forget(steps: list[Any]) -> None:
    """What was met in steps that are not taken now."""
    for step in steps:
        if isinstance(step, Repeat):
            _forget(step.steps)
        elif isinstance(step, Choice):
            _forget(step.then)
            _forget(step.orelse)
        elif isinstance(step, Stretch):
            step.met = -1
            for event in step.steps:
                if event is not None:
                    event.meets = None
        elif isinstance(step, Flag):
            step.event.meets = None


def _without_idle(state: State, loop: Repeat) -> tuple[State, dict[object, int]]:
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


def _with_idle(state: State, idle: dict[object, int]) -> State:
    """A state behind a loop with the flags that nothing in it touches: they do not tell of its work, in no turn."""
    if not idle:
        return state
    told = dict(state[1])
    new = told.pop(_IDLE)
    for name, bits in idle.items():
        told[name] = bits | new
    return state[0], told


def _at_end(state: State, loop: Repeat) -> State:
    """A state when an iteration ends."""
    bits = tuple([moved(b, loop.moves) for b in state[0]])
    told = {name: moved(b, loop.moves) for name, b in state[1].items()}
    for pair in loop.turns.values():
        now, other = (told.pop(name, None) for name in pair)
        told |= {name: b for name, b in zip(pair, (other, now), strict=True) if b is not None}
    return bits, told


def _either(one: State, other: State) -> State:
    """Where paths meet.  A flag that is raised on one of them only is waited for on that only, too."""
    told = dict(one[1])
    for name, bits in other[1].items():
        told[name] = told.get(name, 0) | bits
    return tuple([a | b for a, b in zip(one[0], other[0], strict=True)]), told
