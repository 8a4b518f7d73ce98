# SPDX-License-Identifier: MIT
"""Where in the program's order an iteration of a parallel loop stands, while it runs in a shuffled one.

A place is a tuple of pairs: for every parallel loop around, how many had begun before it in this context, and the
position of its iteration in the loop as written; at the end, how many have begun by now.  Places compare as the program
orders them: loops begin in the order of whatever is around them, so only iterations of one loop are out of order, and
their positions tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from pto_jit.slotted import field, mutable

Place = tuple[tuple[int, int], ...]


@mutable(eq=False)
class _Begun:
    """The parallel loops of a context: how many have begun, and those that are being run, from the outside in."""

    count: int = 0
    loops: list[list[int]] = field(default_factory=list)  # number and position


_begun: ContextVar[_Begun | None] = ContextVar("pto_order", default=None)


def placed(iterations: Iterator[Any], positions: Sequence[int]) -> Iterator[Any]:
    """`iterations` of a parallel loop, the position of each being known to `place` while it runs."""
    begun = _begun.get()
    if begun is None:
        begun = _Begun()
        _begun.set(begun)
    loop = [begun.count, 0]
    begun.count += 1
    begun.loops.append(loop)
    depth = len(begun.loops)
    try:
        for loop[1], value in zip(positions, iterations, strict=True):
            yield value
            del begun.loops[depth:]  # of inner loops that were left early
    finally:
        at = next((k for k, one in enumerate(begun.loops) if one is loop), None)
        if at is not None:
            del begun.loops[at:]


def place() -> Place:
    """Where the running iteration stands; empty outside of parallel loops."""
    begun = _begun.get()
    if begun is None or not begun.loops:
        return ()
    return (*((number, position) for number, position in begun.loops), (begun.count, -1))


def loops(place: Place) -> frozenset[int]:
    """The numbers of the parallel loops around a place."""
    return frozenset(number for number, _ in place[:-1])
