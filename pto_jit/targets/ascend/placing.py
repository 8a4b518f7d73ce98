# SPDX-License-Identifier: MIT
"""Addresses: buffers that are never needed at the same time share memory, and those that data streams through are two.

A buffer lives from its first access to its last; one that is used inside and outside of a loop lives through all of
the loop.  Addresses are given first fit, in the order of first accesses.  Buffers that are filled or emptied by
transfers in a loop get two copies that take turns (ping-pong) if they all fit, or else those of innermost loops: the
transfers of one iteration then run beside the computation of another.  Loops that follow one another inside of another
loop take turns together, with the same copies.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping

from pto_jit.slotted import field, mutable
from pto_jit.targets.ascend.accesses import RESERVED, accesses, pipe_of
from pto_jit.targets.ascend.copies import coalesce
from pto_jit.targets.ascend.form import Branch, Buffer, Declaration, Loop, Node
from pto_jit.targets.ascend.machine import CAPACITY, EVENTS, Pipe, Space

_TRANSFERS = ("MTE1", "MTE2", "MTE3", "FIX")


_Pair = tuple[Space, int, Loop, frozenset[Pipe], int]
"""Two copies of memory that take turns: where, how large, in which loops, the pipes that fill or empty them, and which
of those they are."""


@mutable(eq=False)
class _Life:
    first: int
    last: int
    loops: list[Loop]  # those around all accesses
    transfers: set[Pipe] = field(default_factory=set)  # the pipes that fill or empty it
    carried: bool = False  # read in a loop before it is written there


def place(nodes: list[Node]) -> dict[Space, int]:
    """Give every buffer its address; how many bytes of each memory are used (more than there are: it does not fit)."""
    order = _order(nodes)
    together = order.lives()
    while one := coalesce(nodes, {b: (life.first, life.last) for b, life in together.items()}, order.places):
        order.join(one)  # one copy may come after another
        together = order.lives()
    ahead = any(loop.ahead for loop in order.loops)
    used: dict[Space, int] = {}
    for apart in (True, False) if ahead else (False,):
        lives = order.lives(apart=True) if apart else together
        doubled = _doubled(lives)
        inner = {buffer: loop for buffer, loop in doubled.items() if loop not in order.outer}
        for chosen in (doubled, inner, {}):
            order.take_turns(chosen)
            for buffer in doubled:
                buffer.copies, buffer.loop = (2, chosen[buffer].turns) if buffer in chosen else (1, None)
            pairs = _pairs(lives, chosen)
            if chosen is not inner and _are_many(pairs):
                continue
            used = _assign(lives, pairs)
            if all(used[space] <= CAPACITY[space] for space in used):
                for loop in chosen.values():
                    loop.turning = True
                return used
    return used


def _pairs(lives: dict[Buffer, _Life], chosen: Mapping[Buffer, Loop]) -> dict[Buffer, _Pair]:
    """Which pair of copies is that of each buffer that takes turns in a loop: loops that take turns together share
    them."""
    count: dict[tuple[object, Loop], int] = {}
    out: dict[Buffer, _Pair] = {}
    for buffer in sorted(chosen, key=lambda b: (lives[b].first, -b.size)):
        loop = chosen[buffer]
        alike = buffer.space, buffer.size, loop.turns, frozenset(lives[buffer].transfers)
        index = count[alike, loop] = count.get((alike, loop), 0) + 1
        out[buffer] = *alike, index
    return out


def _are_many(pairs: dict[Buffer, _Pair]) -> bool:
    """Whether a pipe fills or empties more pairs of copies than there are flags to tell it which are free."""
    of_pipe = Counter(pipe for *_, pipes, _ in set(pairs.values()) for pipe in pipes)
    return max(of_pipe.values(), default=0) > EVENTS


def _assign(lives: dict[Buffer, _Life], pairs: dict[Buffer, _Pair]) -> dict[Space, int]:
    used: dict[Space, int] = {}
    addresses: dict[_Pair, int] = {}
    placed: dict[Space, list[tuple[int, int, int]]] = {}  # from where to where, and until when; in order
    kept: dict[Space, int] = {}  # so much from the beginning is never free again
    given = [b for b in lives if not b.base]
    order = sorted(given, key=lambda b: (b.copies == 1, lives[b].first, -b.size))
    for buffer in order:
        life = lives[buffer]
        size = buffer.size * buffer.copies
        taken = placed.get(buffer.space, [])
        if buffer.copies == 1:  # those to come begin to live later
            taken = placed[buffer.space] = [entry for entry in taken if entry[2] >= life.first]
        at = kept.get(buffer.space, 0)
        if buffer.copies > 1:  # which come first, one pair behind the other
            known = addresses.setdefault(pairs[buffer], at)
            if known == at:
                kept[buffer.space] = at + size
            at = known
        else:
            for low, high, _ in taken:
                if at + size <= low:
                    break
                if high > at:
                    at = high
            insort(taken, (at, at + size, life.last))
        buffer.address = at
        used[buffer.space] = max(used.get(buffer.space, 0), at + size)
    return used


@mutable(eq=False)
class _Order:
    """The accesses of a kernel in the order of the text.

    touched: buffers with their first and last accesses; places: of nodes, by their ids; around: the loops around each
    place, from place 1 on; loops: with their first and last places; outer: those with others inside; beside: of loops
    inside others, by their ids, the id of the block they are in.
    """

    touched: dict[Buffer, _Life] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    around: list[list[Loop]] = field(default_factory=lambda: [[]])
    loops: dict[Loop, tuple[int, int]] = field(default_factory=dict)
    outer: set[Loop] = field(default_factory=set)
    beside: dict[int, int] = field(default_factory=dict)

    def take_turns(self, chosen: dict[Buffer, Loop]) -> None:
        """Of loops that buffers take turns in, those that follow one another inside of a loop go on with the turns of
        the first: their buffers have the same places, and their flags the same numbers."""
        firsts: dict[int, Loop] = {}  # by the ids of blocks
        turning = {id(loop) for loop in chosen.values()}
        for loop in self.loops:
            loop.goes_on = None
            if id(loop) in turning and id(loop) in self.beside:
                first = firsts.setdefault(self.beside[id(loop)], loop)
                loop.goes_on = None if first is loop else first

    def lives(self, *, apart: bool = False) -> dict[Buffer, _Life]:
        """How long buffers live; apart: in a loop with a part ahead, through all of it, so that the parts do not wait
        for memory."""
        return {buffer: self._life(touched, apart) for buffer, touched in self.touched.items()}

    def _life(self, touched: _Life, apart: bool) -> _Life:
        first, last, inner = touched.first, touched.last, touched.loops
        for loop in inner:
            if apart and loop.ahead:
                first, last = min(first, self.loops[loop][0]), max(last, self.loops[loop][1])
        changed = True
        while changed:
            changed = False
            for loop in (*self.around[first], *self.around[last]):
                low, high = self.loops[loop]
                if (low < first or high > last) and all(own is not loop for own in inner):
                    first, last, changed = min(low, first), max(high, last), True
        return _Life(first, last, inner, touched.transfers, touched.carried)

    def join(self, one: Mapping[Buffer, Buffer]) -> None:
        """Buffers go on as others, which live until they begin."""
        for new, old in one.items():
            before, after = self.touched[old], self.touched.pop(new)
            before.first = min(before.first, after.first)
            before.last = max(before.last, after.last)
            before.loops = _common(before.loops, after.loops)
            before.transfers |= after.transfers


def _order(nodes: list[Node]) -> _Order:
    out = _Order()
    places, lives = out.places, out.touched
    count = 0

    def visit(block: list[Node], around: list[Loop]) -> None:
        nonlocal count
        for node in block:
            count += 1
            places[id(node)] = count
            out.around.append(around)
            kind = type(node)
            if kind is Declaration:
                continue
            if isinstance(node, Loop):
                begin = count
                out.loops[node] = begin, begin
                out.outer.update(around[-1:])
                if around and not node.ahead and not around[-1].ahead:
                    out.beside[id(node)] = id(block)
                visit(node.body, [*around, node])
                out.loops[node] = begin, count
            elif isinstance(node, Branch):
                visit(node.then, around)
                visit(node.orelse, around)
            elif (pipe := pipe_of(node)) is not None:
                transfer: set[Pipe] = {pipe} if pipe in _TRANSFERS else set()
                for what, write in accesses(node):
                    if type(what) is Buffer and what is not RESERVED:
                        life = lives.get(what)
                        if life is None:
                            life = lives[what] = _Life(count, count, around, carried=not write)
                        life.last = count
                        life.transfers |= transfer
                        if life.loops is not around:  # which is one list for all of a block
                            life.loops = _common(life.loops, around)

    visit(nodes, [])
    return out


def _common(one: list[Loop], other: list[Loop]) -> list[Loop]:
    """The loops around both."""
    return [a for a, b in zip(one, other, strict=False) if a is b]


def _doubled(lives: dict[Buffer, _Life]) -> dict[Buffer, Loop]:
    """Buffers that can take turns, with the loop whose iterations they alternate in."""
    return {
        buffer: life.loops[-1] for buffer, life in lives.items() if life.transfers and life.loops and not life.carried
    }
