# SPDX-License-Identifier: MIT
"""States of scans that only the next iteration reads: they are those of a fold, which has no memory for all of them.

`ft.scan(step, xs, initializer=(s, y))[1]`: the states s are read by nothing else; and those of a scan that is one loop
with the map that read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.fractal.compile.lists import Array, Loop, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.sequential import accessed, own_records, records

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


def states_of_folds(session: Session, items: Sequence[Any]) -> None:
    """Let such states be kept for one iteration."""
    readers: dict[int, list[ReadLeaf]] = {}
    for item in records(items):
        if isinstance(item, ReadLeaf):
            for array in {id(a): a for a in accessed(item.read)}.values():
                readers.setdefault(id(array), []).append(item)
    for array, around, reads in _states(items, 0):
        read = readers.get(id(array), [])
        if array.folded or array.elements is not None or array.root is not array or array.tensor is not None:
            continue
        if any(a.loops < around for a in session.arrays if a.root is array):
            continue
        if all(any(r is own for own in reads) for r in read):
            array.folded = (around,)
            array.temporary = len(array.dims) == around + 1


def _states(items: Sequence[Any], around: int) -> Iterator[tuple[Array, int, list[ReadLeaf]]]:
    """The states of loops, how many loops are around these, and the reads of the state before."""
    for loop in items:
        if not isinstance(loop, Loop):
            continue
        yield from _states(loop.body, around + 1)
        reads = [i for i in own_records(loop.body) if isinstance(i, ReadLeaf) and i.state is not None]
        written = {id(i.array) for i in own_records(loop.body) if isinstance(i, WriteLeaf)}
        for state in {id(i.state): i.state for i in reads}.values():
            if state is not None and id(state) in written and loop.chains is None:
                yield state, around, [i for i in reads if i.state is state]
