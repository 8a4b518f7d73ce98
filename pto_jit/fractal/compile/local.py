# SPDX-License-Identifier: MIT
"""Arrays that one iteration of the loops around them makes and reads: memory for one iteration, not for all.

A list between two parallel functions of a body (the tensors that `ft.cat` puts side by side, what `ft.map` gives to
`ft.reduce`) is an array over all loops around it.  Where nothing else reads it, the outer dimensions are left out, and
the rest lies in the processor's caches (array contraction: V. Sarkar and G. Gao, Optimization of Array Accesses by
Collective Loop Transformations, 1991).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.values import Scalar
from pto_jit.fractal.compile.expr import Expr, Known, Writer, of
from pto_jit.fractal.compile.layout import Layout, allocate, laid_out
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Block,
    Choose,
    Compute,
    Dim,
    Loop,
    Read,
    ReadLeaf,
    View,
    WriteLeaf,
)
from pto_jit.ir import walk
from pto_jit.ir.nodes import Op, Var
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session

TARGETS = ("cpu", "c", "neon")  # whose loops may allocate


def leaves(session: Session, *views: View) -> None:
    """The arrays of these views are read behind the innermost loop that was open."""
    for view in views:
        for array, _ in _accesses(view.read):
            array.loops = min(array.loops, len(session.loops))


@frozen(eq=False)
class Local(Layout):
    """The layout of an array without its first `outer` dimensions."""

    outer: int = 0

    def row(self, at: tuple[Expr, ...]) -> Expr:
        return Layout.row(self, at[self.outer :])

    def is_whole(self, at: tuple[Expr, ...], own: tuple[Dim, ...]) -> bool:
        return False


def local_arrays(
    session: Session, items: Sequence[Any], later: Sequence[Any], kept: set[int]
) -> dict[int, list[tuple[Array, int]]]:
    """By the identity of a loop the arrays to be allocated in each of its iterations, with the number of dimensions
    that they do without."""
    if session.g.options.target not in TARGETS or session.g.tasks:
        return {}
    outer: dict[int, int] = {}
    roots: dict[int, Array] = {}
    for array in session.arrays:
        root = array.root
        roots[id(root)] = root
        outer[id(root)] = min(outer.get(id(root), array.loops), array.loops)
    places: dict[int, list[tuple[Loop, ...]]] = {}
    made: set[str] = set()
    for path, item in _walk(items, ()):
        made |= _made(item)
        for array, at in _accessed(item):
            root = array.root
            same = 0
            while same < min(outer.get(id(root), 0), len(path)) and (
                at[same] == of(path[same].symbol) and root.dims[same].symbol == path[same].symbol
            ):
                same += 1
            outer[id(root)] = same
            places.setdefault(id(root), []).append(path)
    elsewhere = {id(array.root) for _, item in _walk(later, ()) for array, _ in _accessed(item)}
    found: dict[int, list[tuple[Array, int]]] = {}
    for key, paths in places.items():
        root = roots.get(key)
        if root is None or root.argument is not None or root.tensor is not None or key not in kept or key in elsewhere:
            continue
        count = outer[key]
        while count and any(path[count - 1] is not paths[0][count - 1] for path in paths):
            count -= 1
        if count and min(root.folded, default=count) >= count and not _known(root, count) & made:
            found.setdefault(id(paths[0][count - 1]), []).append((root, count))
    return found


def allocate_local(writer: Writer, array: Array, outer: int) -> None:
    """Memory for one iteration of the first `outer` loops, at the beginning of which this is."""
    own = laid_out(writer, array.dims[outer:], frozenset(k - outer for k in array.folded))
    allocate(writer, array, Local(own.dims, own.folded, own.prefix, own.table, own.rows, outer))


def _known(array: Array, outer: int) -> set[str]:
    """The variables that the lengths of the inner dimensions are made of."""
    return {a.var.name for d in array.dims[outer:] for a in d.length.atoms() if isinstance(a, Known)}


def _made(item: Any) -> set[str]:
    match item:
        case Compute():
            return {item.var.name}
        case ReadLeaf():
            var = item.value.operand if isinstance(item.value, Scalar) else item.value.var
            return {var.name} if isinstance(var, Var) else set()
        case Op():
            return {v.name for v in item.results}
    return set()


def _walk(items: Sequence[Any], path: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Any]]:
    """All records and operations with the loops of the nest around them."""
    for item in items:
        yield path, item
        if isinstance(item, Loop):
            yield from _walk(item.body, (*path, item))
        else:
            for block in walk.blocks(item):
                yield from _walk(block, path)


def _accessed(item: Any) -> Iterator[tuple[Array, tuple[Expr, ...]]]:
    if isinstance(item, WriteLeaf):
        yield item.array, item.index
    elif isinstance(item, ReadLeaf):
        yield from _accesses(item.read)


def _accesses(read: Read) -> Iterator[tuple[Array, tuple[Expr, ...]]]:
    if isinstance(read, Choose):
        yield from _accesses(read.then)
        yield from _accesses(read.otherwise)
    elif isinstance(read, (Access, Block)):
        yield read.array, read.index
