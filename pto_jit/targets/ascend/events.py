# SPDX-License-Identifier: MIT
"""The work of a kernel in numbered bits: sets of work are integers, and what a piece of work conflicts with is one.

Bits are numbered in the order of the text.  A piece of work has

* one bit for what it touches on chip;
* for each loop whose turns choose what it touches, two: it touched what is the copy of this turn, of the other turn;
* for a tensor, one more than there are independent loops around it, and no others outside of them: it is of this
  iteration of all of them, or of an earlier one of the innermost, of the one around that, and so on; such loops'
  iterations do not meet in memory.

At the end of an iteration bits move: this turn's become the other's, and those of this iteration become old.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from pto_jit.slotted import mutable
from pto_jit.targets.ascend.accesses import Access, accesses, ends_of, pipe_of
from pto_jit.targets.ascend.form import RELAY, SLOT, Branch, Buffer, Declaration, Instruction, Loop, Node
from pto_jit.targets.ascend.instructions import ROWS
from pto_jit.targets.ascend.machine import IN_ORDER, PIPES

NUMBER = {pipe: k for k, pipe in enumerate(PIPES)}
UNIT = NUMBER["S"]
Moves = dict[int, int]
"""What happens to bits at the end of an iteration: how far up (below 0: down), and which."""


def _move(moves: Moves, by: int, bits: int) -> None:
    moves[by] = moves.get(by, 0) | bits


def moved(bits: int, moves: Moves) -> int:
    """Bits after the end of an iteration."""
    if not bits or not moves:
        return bits
    out, rest = 0, bits
    for by, mask in moves.items():
        some = bits & mask
        if some:
            rest ^= some
            out |= some << by if by > 0 else some >> -by
    return rest | out


@mutable(eq=False)
class Event:
    """A piece of work, or a wait for a flag: the node, its pipe, and the loops around it.

    first, end: how many bits of works come before it, and with it; flag, past: how many of waits; bits: those that are
    set when it starts; conflicts: those of what it must not meet; stretch: what it is a part of (`steps`);
    unknown: those of what its pipe did not know to be done when it started; meets: what it does meet, with the loop
    whose turns tell so; rest: of a function that is called, what comes behind its last barrier.
    """

    node: Node
    pipe: int
    loops: tuple[Loop, ...]
    first: int = 0
    end: int = 0
    flag: int = 0
    past: int = 0
    bits: int = 0
    conflicts: int = 0
    stretch: Any = None
    unknown: int = 0
    meets: list[tuple[Event, Loop | None]] | None = None
    rest: Event | None = None


@mutable(eq=False)
class _Region:
    """Bytes on chip, or of what a function is given, of both copies of a buffer if they take turns, and the bits of who
    touches them.

    now: of those that touched what is the copy of this turn, reading and writing; ever: of either turn; meets: what a
    reader and what a writer conflicts with.
    """

    space: str
    low: int
    high: int
    loop: Loop | None
    now: list[int]
    ever: list[int]
    meets: tuple[int, int] = (0, 0)


@mutable(eq=False)
class _OfTensor:
    """Who touches a tensor: the first of its bits, and the independent loops around it, from the outermost."""

    event: Event
    write: bool
    bit: int | None
    loops: tuple[Loop, ...]


class Events:
    """The work of a kernel.

    works: by the ids of nodes; owner, turning: of each bit, whose it is, and the loop whose turns it tells of; of_pipe:
    the bits of each pipe's work; moves: of loops, by their ids; turns: of loops whose turns end, by the ids of those
    that stand for them; count: how many bits there are.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.works: dict[int, Event] = {}
        self.owner: list[Event] = []
        self.turning: list[Loop | None] = []
        self.of_pipe = [0] * len(PIPES)
        self.moves: dict[int, Moves] = {}
        self.turns: dict[int, Moves] = {}
        self._regions: dict[tuple[str, int, int, int], _Region] = {}
        self._tensors: dict[str, list[_OfTensor]] = {}
        self._of_buffer: dict[Buffer, _Region] = {}
        self._first: dict[int, list[tuple[_Region, bool]]] = {}  # what functions touch at once, by the ids of events
        self._touched: list[tuple[Event, list[tuple[_Region, bool]], list[tuple[str, bool]]]] = []
        self._number(nodes, ())
        self.count = len(self.owner)
        self._meet()
        self._conflicts()

    # -- numbers --------------------------------------------------------------------------------------------------

    def _number(self, nodes: list[Node], loops: tuple[Loop, ...]) -> None:
        for node in nodes:
            kind = type(node)
            if kind is Instruction:
                self._work(node, NUMBER[ROWS[node.name].pipe], loops)  # pyright: ignore[reportAttributeAccessIssue]
            elif kind is Declaration:
                continue
            elif isinstance(node, Loop):
                self._number(node.body, (*loops, node))
            elif isinstance(node, Branch):
                self._number(node.then, loops)
                self._number(node.orelse, loops)
            else:
                pipe = pipe_of(node)
                if pipe is not None:
                    self._work(node, NUMBER[pipe], loops)

    def _work(self, node: Node, pipe: int, loops: tuple[Loop, ...]) -> None:
        event = self.works[id(node)] = self._event(node, pipe, loops, accesses(node))
        ends = ends_of(node) if type(node) is Instruction and node.function is not None else None
        if ends is not None:
            self._first[id(event)] = [(self._of_buffer[what], write) for what, write in ends[0]]  # type: ignore[index]
            event.rest = self.works[id(event)] = self._event(node, pipe, loops, ends[1])

    def _event(self, node: Node, pipe: int, loops: tuple[Loop, ...], touched: list[Access]) -> Event:
        owner = self.owner
        first = len(owner)
        event = Event(node, pipe, loops, first)
        regions: list[tuple[_Region, bool]] = []
        tensors: list[tuple[str, bool]] = []
        bits: dict[Loop, int] = {}  # by the loop whose turns they tell of
        bit = 0  # of what takes no turns
        for what, write in touched:
            leaves = write or pipe != UNIT  # what the scalar unit reads it has read before it hands out what follows
            if type(what) is str:
                if not what.startswith(SLOT):  # flags between the cores keep accesses to slots apart
                    self._touch_tensor(event, what, write, leaves)
                    tensors.append((what, write))
                continue
            region = self._of_buffer.get(what) or self._region(what)  # pyright: ignore[reportArgumentType]
            regions.append((region, write))
            if not leaves:
                continue
            loop = region.loop
            if loop is not None:
                turn = bits.get(loop) or bits.setdefault(loop, self._two(event, loop))
                region.now[write] |= turn
                region.ever[write] |= 3 * turn
                continue
            if not bit:
                event.bits |= (bit := 1 << len(owner))
                owner.append(event)
                self.turning.append(None)
            region.now[write] |= bit
        event.end = len(owner)
        self.of_pipe[pipe] |= (1 << event.end) - (1 << first)
        self._touched.append((event, regions, tensors))
        return event

    def _two(self, event: Event, loop: Loop) -> int:
        """A bit for what is touched in this turn of a loop, with another one, after it, of the other turn."""
        bit = 1 << len(self.owner)
        event.bits |= bit
        self.owner += [event, event]
        self.turning += [loop, loop]
        _move(self.turns.setdefault(id(loop), {}), 1, bit)
        _move(self.turns[id(loop)], -1, 2 * bit)
        return bit

    def _touch_tensor(self, event: Event, name: str, write: bool, leaves: bool) -> None:
        shared = not name.startswith(RELAY)
        loops = tuple(takewhile(lambda loop: loop.independent, event.loops)) if shared else ()
        at = len(self.owner)
        if leaves:
            event.bits |= 1 << at
            self.owner += [event] * (len(loops) + 1)
            self.turning += [None] * (len(loops) + 1)
            for inner, loop in enumerate(reversed(loops), 1):
                for age in range(inner):
                    _move(self.moves.setdefault(id(loop), {}), inner - age, 1 << at + age)
        self._tensors.setdefault(name, []).append(_OfTensor(event, write, at if leaves else None, loops))

    def _region(self, buffer: Buffer) -> _Region:
        low, loop = buffer.address or 0, buffer.loop
        high = low + buffer.size * (1 if loop is None else 2)
        space = buffer.base or buffer.space
        key = space, low, high, id(loop)
        known = self._regions.get(key)
        if known is None:
            now = [0, 0]
            known = self._regions[key] = _Region(space, low, high, loop, now, now if loop is None else [0, 0])
        self._of_buffer[buffer] = known
        return known

    # -- conflicts ------------------------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Regions meet others that share bytes with them, and of themselves the copy of this turn."""
        spaces: dict[str, list[_Region]] = {}
        for region in self._regions.values():
            spaces.setdefault(region.space, []).append(region)
        for regions in spaces.values():
            for region in regions:
                reads, writes = region.now
                low, high = region.low, region.high
                for other in regions:
                    if other.low < high and low < other.high and other is not region:
                        reads |= other.ever[0]
                        writes |= other.ever[1]
                region.meets = writes, reads | writes

    def _conflicts(self) -> None:
        """What each piece of work conflicts with."""
        meeting: dict[tuple[str, bool], _Meeting] = {}
        for event, regions, tensors in self._touched:
            out = 0
            for region, write in regions:
                out |= region.meets[write]
            for name, write in tensors:
                met = meeting.get((name, write))
                if met is None:
                    met = meeting[name, write] = _Meeting(o for o in self._tensors[name] if write or o.write)
                out |= met.of(event)
            if PIPES[event.pipe] in IN_ORDER:
                out &= ~self.of_pipe[event.pipe]
            elif event.rest is not None:  # all else comes after the function's own barriers
                own = 0
                for region, write in self._first[id(event)]:
                    own |= region.meets[write]
                out = out & ~self.of_pipe[event.pipe] | own & self.of_pipe[event.pipe]
            event.conflicts = out


class _Meeting:
    """The bits of work that touched a tensor: those of the iteration that an event is in, and for each independent loop
    around the work those of earlier iterations, of which an event in the same loop meets none."""

    def __init__(self, touched: Iterable[_OfTensor]) -> None:
        self.all = 0
        self.earlier: dict[Loop, int] = {}
        for work in touched:
            if work.bit is None:
                continue
            self.all |= (2 << len(work.loops)) - 1 << work.bit
            for age, loop in enumerate(reversed(work.loops), 1):
                self.earlier[loop] = self.earlier.get(loop, 0) | 1 << work.bit + age

    def of(self, event: Event) -> int:
        """The bits where an event meets them."""
        none = 0
        for loop in event.loops:
            none |= self.earlier.get(loop, 0)
        return self.all & ~none
