# SPDX-License-Identifier: MIT
"""Lists that leave a kernel: their leaves in order, and the offsets of every level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.structure import reshape
from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Scalar, Tensor
from pto_jit.dtypes import i64
from pto_jit.errors import TypeMismatchError
from pto_jit.fractal.compile.expr import Writer, number, of
from pto_jit.fractal.compile.functions import copied
from pto_jit.fractal.compile.layout import laid_out, with_loop
from pto_jit.fractal.compile.lists import Access, Lists, View
from pto_jit.fractal.results import FlatResult
from pto_jit.ir.nodes import Op, Var

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
    """A list whose leaves lie in memory one after the other: the same one where they do."""
    session.complete()
    read = view.read
    if isinstance(read, Access) and read.array.root.argument is None:
        root = read.array.root
        whole = tuple(of(d.symbol) for d in view.dims)
        if read.index == whole and root.layout.is_lexicographic and root.tensor.var.name not in session.given:
            session.given.add(root.tensor.var.name)
            return view
    copy = copied(session, view)
    session.complete()
    assert isinstance(copy.read, Access)
    session.given.add(copy.read.array.root.tensor.var.name)
    return copy


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


def stacked(session: Session, view: View, *, joined: bool = False) -> Any:
    """The leaves of a list of depth 1 as one tensor; `joined`: along their first axis, not a new one."""
    g = session.g
    found = materialised(session, view)
    assert isinstance(found.read, Access)
    tensor = found.read.array.root.tensor
    if session.loops:
        raise AssertionError("a list is complete where it is stacked")
    if not joined:
        return tensor
    rows = Writer(g.e).expr(session.operand(tensor.extents[0]) * session.operand(tensor.extents[1]))
    return reshape(g, tensor, [Scalar(rows, True), *(Scalar(x, True) for x in tensor.extents[2:])])


__all__ = ["FlatResult", "materialised", "number", "offsets", "returned", "stacked"]
