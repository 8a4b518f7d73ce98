# SPDX-License-Identifier: MIT
"""States that are lists which the body of their loop gives backwards, as that of a layer which is a `scanr` does.

The array of the nest in the body could be the state but for the order of its elements.  So it becomes the state, and
what reads the state at an index reads that array at the mirrored one: element p of n is n - 1 - p.  Where the next
iteration goes backwards, too, it meets its elements in their order, and the distance to the iteration before is the
same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pto_jit.fractal.compile.expr import Expr, of
from pto_jit.fractal.compile.lists import Access, Array, Block, Read, ReadLeaf, View, rewritten, sources
from pto_jit.fractal.compile.sequential import records
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session

Index = tuple[Expr, ...]


@frozen(eq=False)
class Mirror:
    """`array`, a state, as `made`, whose dimensions at some positions are mirrored; by position, their lengths."""

    array: Array
    made: Array
    lengths: dict[int, Expr]

    def index(self, at: Index) -> Index:
        return tuple(self.lengths[k] - 1 - e if k in self.lengths else e for k, e in enumerate(at))

    def read(self, read: Read) -> Read:
        def change(part: Read) -> Read | None:
            if isinstance(part, Access) and part.array.root is self.array:
                return Access(self.made, self.index(part.index))
            return None

        return rewritten(read, change)

    def view(self, view: View) -> View:
        return View(view.dims, self.read(view.read), view.leaf)


def mirrored(session: Session, array: Array, view: View) -> Mirror | None:
    """How the new state stands in an array of the loop that is open; None where it does not stand there mirrored.

    What has been read of the state in this loop is read of that array from now on.
    """
    loop = session.loops[-1]
    found = _found(array, view, session.around())
    body = list(records(loop.body))
    if found is None or any(_is_block_of(item, array) for item in body):
        return None
    for item in body:
        if isinstance(item, ReadLeaf):
            item.read = found.read(item.read)
    for name, read in session.reads.items():
        session.reads[name] = found.read(read)
    return found


def _found(array: Array, view: View, around: Index) -> Mirror | None:
    read, depth = view.read, len(around)
    made = read.array.root if isinstance(read, Access) else None
    if not isinstance(read, Access) or made is None or made is array or made.argument is not None or made.folded:
        return None
    if made.tensor is not None:  # it was computed before the nest
        return None
    if len(made.dims) != len(array.dims) or read.index[:depth] != around:
        return None
    if of(made.dims[depth - 1].symbol) != around[-1]:
        return None
    varying = {d.symbol for d in view.dims} | around[-1].symbols()
    if any(around[-1].symbols() & d.length.symbols() for d in made.dims[depth:]):
        return None
    lengths: dict[int, Expr] = {}
    for k, (e, d) in enumerate(zip(read.index[depth:], view.dims, strict=True)):
        if e == of(d.symbol):
            continue
        if e + of(d.symbol) != d.length - 1 or d.length.symbols() & varying:
            return None
        lengths[depth + k] = d.length
    return Mirror(array, made, lengths) if lengths else None


def _is_block_of(item: object, array: Array) -> bool:
    reads: Callable[[Read], bool] = lambda part: isinstance(part, Block) and part.array.root is array  # noqa: E731
    return isinstance(item, ReadLeaf) and any(map(reads, sources(item.read)))
