# SPDX-License-Identifier: MIT
"""Lists that leave a kernel: their leaves in order, and the offsets of every level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Tensor
from pto_jit.dtypes import i64
from pto_jit.errors import TypeMismatchError
from pto_jit.fractal.compile.expr import Writer, number
from pto_jit.fractal.compile.functions import copied
from pto_jit.fractal.compile.layout import laid_out, with_loop
from pto_jit.fractal.compile.lists import Access, Block, Choose, Leaf, Lists, View, WriteLeaf
from pto_jit.fractal.compile.sequential import Sequential
from pto_jit.fractal.results import FlatResult
from pto_jit.ir.nodes import If, Op, Scope, Var

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


def returned(session: Session, lists: Lists) -> Any:
    """The tensors of a list, in the structure that a launch makes a FractalTensor of."""
    if isinstance(lists.items, tuple):
        raise session.g.error(
            TypeMismatchError,
            "a list of tuples is returned",
            code="PTO-F111",
            hint="return the lists: `ft.zip(*z)` takes a list of tuples apart",
        )
    view = materialised(session, lists.first)
    assert isinstance(view.read, Access)
    leaves = view.read.array.root.tensor
    return FlatResult._make((leaves, *offsets(session, view)))


def materialised(session: Session, view: View) -> View:
    """A list whose leaves lie in memory one after the other: the same one where they do.

    The result of a fold lies so unless there was no iteration; then the initial values are written to the same place.
    """
    session.complete()
    read = view.read
    result = read.otherwise if isinstance(read, Choose) and read.condition.kind == "zero" else read
    if isinstance(result, Access) and result.array.root.argument is None:
        root = result.array.root
        fits = not isinstance(read, Choose) or not (read.condition.value.symbols() & {d.symbol for d in view.dims})
        if fits and root.layout.is_whole(result.index, view.dims) and root.tensor.var.name not in session.given:
            session.given.add(root.tensor.var.name)
            if isinstance(read, Choose):
                _initial(session, view, read, result)
            return View(view.dims, result, view.leaf)
    copy = copied(session, view)
    session.complete()
    assert isinstance(copy.read, Access)
    session.given.add(copy.read.array.root.tensor.var.name)
    return copy


def _initial(session: Session, view: View, read: Choose, result: Access) -> None:
    """Write the initial values of a fold to its result where there was no iteration."""
    g = session.g
    e = g.e
    writer = Writer(e)
    plain = Sequential(g, set())
    cond = writer.condition(read.condition)

    def level(w: Writer, k: int) -> None:
        if k < len(view.dims):
            with_loop(w, view.dims[k], lambda w: level(w, k + 1))
            return
        value = plain.value_of(read.then, view.leaf, w)
        plain.write(WriteLeaf(result.array, result.index, value, e.loc), w)

    with e.block() as block:
        level(writer, 0)
    if g.tasks:  # no task where there is nothing to do
        block = [Scope(f"{result.array.root.name}_initial", tuple(block), True, e.loc)]
    e.append(If(cond, tuple(block), (), e.loc))


def offsets(session: Session, view: View) -> list[Tensor]:
    """Per level but the innermost: where each list starts in the level below, and the end."""
    g = session.g
    e = g.e
    writer = Writer(e)
    found: list[Tensor] = []
    for level in range(len(view.dims) - 1):
        prefix = view.dims[: level + 1]
        count = writer.expr(laid_out(writer, prefix, frozenset()).rows + 1)
        (table,) = e.op("alloc", [count], {"dtype": i64}, hint="offsets")
        e.op("setelem", [index(0), table, index(0)])
        position, total = e.fresh("list", I64), e.fresh("start", I64)
        for var in (position, total):
            e.append(Op("copy", (var,), (index(0),), (), (), e.loc))

        def inner(
            w: Writer,
            k: int,
            table: Var = table,
            position: Var = position,
            total: Var = total,
            prefix: Any = prefix,
            level: int = level,
        ) -> None:
            if k < len(prefix):
                with_loop(w, prefix[k], lambda w: inner(w, k + 1))
                return
            _advance(w, total, w.expr(view.dims[level + 1].length))
            _advance(w, position, index(1))
            w.e.op("setelem", [total, table, position])

        inner(writer, 0)
        found.append(Tensor(table, (count,), e.loc))
    return found


def _advance(writer: Writer, var: Var, by: Any) -> None:
    e = writer.e
    (new,) = e.op("add", [var, by])
    e.append(Op("copy", (var,), (new,), (), (), e.loc))


def in_a_row(view: View) -> bool:
    """Whether the leaves of a list of depth 1 lie one after the other."""
    read, own = view.read, view.dims[0].symbol
    if not isinstance(read, Access) or own in set().union(*(e.symbols() for e in read.index[:-1])):
        return False
    return read.index[-1].coefficient(own) == 1 and len(read.array.root.dims) - 1 not in read.array.root.folded


def stacked(session: Session, view: View, *, joined: bool = False) -> Any:
    """The leaves of a list of depth 1 as one tensor; `joined`: along their first axis, not a new one."""
    e = session.g.e
    count = view.dims[0].length
    found = view if in_a_row(view) else copied(session, view)
    session.complete()
    assert isinstance(found.read, Access)
    if joined:
        first, *rest = view.leaf.extents
        rows = session.scalar(count * session.operand(first))
        extents = (e.as_index(rows), *rest)
    else:
        extents = (e.as_index(session.scalar(count)), *view.leaf.extents)
    start = found.at(number(0)).read
    assert isinstance(start, Access)
    block = Block(start.array, start.index, count)
    return session.leaf(block, Leaf(extents, view.leaf.dtype))
