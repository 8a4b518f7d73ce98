# SPDX-License-Identifier: MIT
"""Addresses: buffers that are never needed at the same time share memory, and those that data streams through are two.

A buffer lives from its first access to its last; one that is used inside and outside of a loop lives through all of
the loop.  Addresses are given first fit, in the order of first accesses.  Buffers that are filled or emptied by
transfers in a loop get two copies that take turns (ping-pong) if they all fit, or else those of innermost loops: the
transfers of one iteration then run beside the computation of another.
"""

from __future__ import annotations

from bisect import insort

from pto_jit.slotted import mutable
from pto_jit.targets.ascend.accesses import accesses, pipe_of, walk
from pto_jit.targets.ascend.copies import coalesce
from pto_jit.targets.ascend.form import Branch, Buffer, Loop, Node
from pto_jit.targets.ascend.machine import CAPACITY, Space

_FOREVER = 1 << 62
_TRANSFERS = ("MTE1", "MTE2", "MTE3", "FIX")


@mutable(eq=False)
class _Life:
    first: int
    last: int
    loops: list[Loop] | None = None  # those around all accesses
    transferred: bool = False
    carried: bool = False  # read in a loop before it is written there


def place(nodes: list[Node]) -> dict[Space, int]:
    """Give every buffer its address; how many bytes of each memory are used (more than there are: it does not fit)."""
    while True:  # one copy may come after another
        places: dict[int, int] = {}
        together = _lives(nodes, False, places)
        spans = {buffer: (life.first, life.last) for buffer, life in together.items()}
        if not coalesce(nodes, spans, places):
            break
    ahead = any(isinstance(n, Loop) and n.ahead for n in walk(nodes))
    used: dict[Space, int] = {}
    for apart in (True, False) if ahead else (False,):
        lives = _lives(nodes, True) if apart else together
        doubled = _doubled(lives)
        inner = {buffer: loop for buffer, loop in doubled.items() if _is_innermost(loop)}
        for chosen in (doubled, inner, {}):
            for buffer in doubled:
                buffer.copies, buffer.loop = (2, chosen[buffer]) if buffer in chosen else (1, None)
            used = _assign(lives)
            if all(used[space] <= CAPACITY[space] for space in used):
                for loop in chosen.values():
                    loop.turning = True
                return used
    return used


def _assign(lives: dict[Buffer, _Life]) -> dict[Space, int]:
    used: dict[Space, int] = {}
    placed: dict[Space, list[tuple[int, int, int]]] = {}  # from where to where, and until when; in order
    order = sorted(lives, key=lambda b: (b.copies == 1, lives[b].first, -b.size))
    for buffer in order:
        life = lives[buffer]
        size = buffer.size * buffer.copies
        taken = placed.get(buffer.space, [])
        if buffer.copies == 1:  # those to come begin to live later
            taken = placed[buffer.space] = [entry for entry in taken if entry[2] >= life.first]
        at = 0
        for low, high, _ in taken:
            if at + size <= low:
                break
            at = max(at, high)
        buffer.address = at
        until = life.last if buffer.copies == 1 else _FOREVER
        placed.setdefault(buffer.space, taken)
        insort(taken, (at, at + size, until))
        used[buffer.space] = max(used.get(buffer.space, 0), at + size)
    return used


def _lives(nodes: list[Node], apart: bool, places: dict[int, int] | None = None) -> dict[Buffer, _Life]:
    """apart: in a loop with a part ahead, buffers live through all of it, so that the parts do not wait for memory;
    places: gets the places of nodes, by their ids."""
    places = {} if places is None else places
    lives: dict[Buffer, _Life] = {}
    spans: dict[int, tuple[int, int]] = {}
    count = 0

    def visit(block: list[Node], around: list[Loop]) -> None:
        nonlocal count
        for node in block:
            count += 1
            places[id(node)] = count
            if isinstance(node, Loop):
                begin = count
                visit(node.body, [*around, node])
                spans[id(node)] = (begin, count)
            elif isinstance(node, Branch):
                visit(node.then, around)
                visit(node.orelse, around)
            else:
                pipe = pipe_of(node)
                for access in accesses(node):
                    if isinstance(access.what, Buffer) and access.what.name != "reserved":
                        _touch(lives, access.what, access.write, count, around, pipe)

    visit(nodes, [])
    for life, inner in ((life, life.loops or []) for life in lives.values()):
        for loop in (loop for loop in inner if apart and loop.ahead):
            life.first, life.last = min(life.first, spans[id(loop)][0]), max(life.last, spans[id(loop)][1])
        outside = [span for loop, span in spans.items() if all(id(own) != loop for own in inner)]
        changed = True
        while changed:
            changed = False
            for low, high in outside:
                if life.first <= high and low <= life.last and (low < life.first or high > life.last):
                    life.first, life.last, changed = min(low, life.first), max(high, life.last), True
    return lives


def _touch(
    lives: dict[Buffer, _Life], buffer: Buffer, write: bool, at: int, around: list[Loop], pipe: str | None
) -> None:
    life = lives.get(buffer)
    if life is None:
        life = lives[buffer] = _Life(at, at, around, carried=not write)
    life.last = at
    life.transferred |= pipe in _TRANSFERS
    assert life.loops is not None
    if life.loops is not around:  # which is one list for all of a block
        life.loops = [a for a, b in zip(life.loops, around, strict=False) if a is b]


def _doubled(lives: dict[Buffer, _Life]) -> dict[Buffer, Loop]:
    """Buffers that can take turns, with the loop whose iterations they alternate in."""
    return {
        buffer: life.loops[-1] for buffer, life in lives.items() if life.transferred and life.loops and not life.carried
    }


def _is_innermost(loop: Loop) -> bool:
    return not any(isinstance(n, Loop) for n in walk(loop.body))
