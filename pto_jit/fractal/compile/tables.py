# SPDX-License-Identifier: MIT
"""Tables that are computed before the nest that is open: which elements `ft.filter` keeps, and how many; of which list
an element of a flattened list is.

A length that the data decide is an element of such a table, as that of an argument's list is a difference of offsets,
so nothing else has to know of it.  What decides it has to be there before the nest.  So the table is made for all
iterations of the loops around, and what it needs of their bodies goes along: reads and operations are made again, lists
that are computed as a whole are computed there.  Of a loop with a state that is all but the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import describe
from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Scalar
from pto_jit.dtypes import i64
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.fractal.compile.access import reindexed
from pto_jit.fractal.compile.arranging import pruned
from pto_jit.fractal.compile.expr import Expr, Fetch, Symbol, Writer, number, of
from pto_jit.fractal.compile.functions import asked_of, write
from pto_jit.fractal.compile.layout import Layout, allocate, laid_out, with_loop
from pto_jit.fractal.compile.lists import (
    Array,
    Check,
    Compute,
    Dim,
    Leaf,
    Lists,
    Loop,
    ReadLeaf,
    View,
    WriteLeaf,
    map_views,
)
from pto_jit.fractal.compile.names import defined, uses
from pto_jit.fractal.compile.nest import is_pure
from pto_jit.fractal.compile.schedule import in_memory
from pto_jit.fractal.compile.sequential import RECORDS, Sequential, accessed, records
from pto_jit.fractal.compile.session import Session, session_of
from pto_jit.fractal.compile.told import decided
from pto_jit.ir import walk
from pto_jit.ir.nodes import Op, Var

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


OF_A_STATE = "would let the state of a function around it decide lengths"


def filter_(g: Generator, body: Any, x: Any, **kwargs: Any) -> Any:
    """The elements for which `body` is true: one table has their positions, another one their number."""
    session = session_of(g)
    asked = asked_of(g, "filter", body, kwargs)
    lists = session.lists(x, "ft.filter")
    symbol = session.symbol(session.loop_name())
    loop = Loop(symbol, lists.length, "parallel", g.e.loc, [], "sequential")
    around = session.around()
    mask = Array("kept", (*_loops(session), Dim(symbol, lists.length)), Leaf((), i64))

    def write_mask() -> None:
        value = g.inline(body, (session.element(lists, of(symbol)),), asked.kwargs)
        if isinstance(value, bool):
            value = int(value)
        elif not isinstance(value, Scalar) or value.dtype.kind != "b":
            raise g.error(
                TypeMismatchError,
                f"the body of ft.filter gives {describe(value)}, not a truth value",
                code="PTO-F129",
                hint="compare numbers; reduce a tile with `pl.any` or `pl.all`",
            )
        write(session, mask, (*around, of(symbol)), value)

    session.loop(loop, write_mask)
    assert g.e.current[-1] is loop  # behind the tables of filters in the body, where no loop is around
    g.e.current.pop()
    with _before(session, [loop], "ft.filter") as writer:
        per_list = laid_out(writer, mask.dims[:-1], frozenset()) if around else None
        places, counts = _kept(session, writer, mask, per_list)
    count = of(Fetch(counts, (_number(per_list, around),)))
    first = mask.layout.row((*around, number(0)))
    return reindexed(session, lists, count, lambda k: of(Fetch(places, (first + k,))))


def tabled(session: Session, lists: Lists, what: str) -> Callable[[Expr], Expr]:
    """Integers that are computed, as a table: element k of the list is an element of it."""
    g = session.g
    symbol = session.symbol(session.loop_name())
    loop = Loop(symbol, lists.length, "parallel", g.e.loc, [], "sequential")
    around = session.around()
    table = Array("indices", (*_loops(session), Dim(symbol, lists.length)), Leaf((), i64))
    session.loop(loop, lambda: write(session, table, (*around, of(symbol)), session.element(lists, of(symbol))))
    assert g.e.current[-1] is loop
    g.e.current.pop()
    with _before(session, [loop], what):
        pass
    return lambda k: of(Fetch(table.tensor.var, (table.layout.row((*around, k)),)))


def _kept(session: Session, writer: Writer, mask: Array, per_list: Layout | None) -> tuple[Var, Var]:
    """The positions of the elements whose mask is 1, from the first row of each list on, and how many these are."""
    e = session.g.e
    *around, inner = mask.dims
    at = tuple(of(d.symbol) for d in around)
    (places,) = e.op("alloc", [writer.expr(mask.layout.rows)], {"dtype": i64}, hint="places")
    rows = number(1) if per_list is None else per_list.rows
    (counts,) = e.op("alloc", [writer.expr(rows)], {"dtype": i64}, hint="counts")

    def level(w: Writer, k: int) -> None:
        if k < len(around):
            with_loop(w, around[k], lambda w: level(w, k + 1))
            return
        count = e.fresh("count", I64)
        e.append(Op("copy", (count,), (index(0),), (), (), e.loc))
        first = w.expr(mask.layout.row((*at, number(0))))

        def one(w: Writer) -> None:
            """Written in any case: what is not kept gives its place to the next one."""
            (row,) = e.op("add", [first, count])
            e.op("setelem", [w.values[inner.symbol], places, row])
            (kept,) = e.op("getelem", [mask.tensor.var, w.expr(mask.layout.row((*at, of(inner.symbol))))])
            (more,) = e.op("add", [count, kept])
            e.append(Op("copy", (count,), (more,), (), (), e.loc))

        with_loop(w, inner, one)
        e.op("setelem", [count, counts, w.expr(_number(per_list, at))])

    level(writer, 0)
    return places, counts


def _number(per_list: Layout | None, at: tuple[Expr, ...]) -> Expr:
    """Which list it is, of those of all iterations of the loops around."""
    return number(0) if per_list is None else per_list.row(at)


def flattened(session: Session, lists: Lists) -> Lists:
    """A list of jagged lists with one level less: a table says of which of them each element is."""
    outer, inner = lists.first.dims[:2]
    dims = (*_loops(session), outer, inner)
    around = session.around()
    e = session.g.e
    lengths = [Compute(e.fresh("n", I64), d.length) for d in (outer, inner)]  # what has to be known before
    with _before(session, [], "ft.flatten", needs=set().union(*map(uses, lengths))) as writer:
        layout = laid_out(writer, dims, frozenset())
        (owners,) = e.op("alloc", [writer.expr(layout.rows)], {"dtype": i64}, hint="owners")

        def level(w: Writer, k: int) -> None:
            if k < len(dims):
                with_loop(w, dims[k], lambda w: level(w, k + 1))
                return
            at = tuple(of(d.symbol) for d in dims)
            e.op("setelem", [w.values[outer.symbol], owners, w.expr(layout.row(at))])

        level(writer, 0)
    zero = number(0)
    first = layout.row((*around, zero, zero))
    total = layout.row((*around, outer.length, zero)) - first

    def view(v: View) -> View:
        k: Symbol = session.symbol("i")
        owner = of(Fetch(owners, (first + of(k),)))
        found = v.at(owner).at(first + of(k) - layout.row((*around, owner, zero)))
        return View((Dim(k, total), *found.dims), found.read, found.leaf)

    return Lists(session, map_views(lists.items, view), max(lists.around - 1, 1))


# -- before the nest -----------------------------------------------------------------------------------------------


def _loops(session: Session) -> tuple[Dim, ...]:
    """The loops that are open, as dimensions."""
    return tuple(Dim(loop.symbol, loop.length) for loop in session.loops)


def _refused(session: Session, message: str) -> CompilationError:
    return session.g.error(
        CompilationError,
        message,
        code="PTO-F106",
        hint="a kernel knows all lengths before a nest begins: let elements and lists alone decide them, or do it "
        "eagerly; or keep all elements and use `pl.where` on what they give",
    )


@contextmanager
def _before(session: Session, made: Sequence[Any], what: str, needs: set[str] | None = None) -> Iterator[Writer]:
    """A writer of what comes before the outermost open loop, after the records `made` with the loops around them.

    needs: variables that what is written there uses.
    """
    e = session.g.e
    outside = session.outside if session.loops else e.current
    items = _brought(session, made, what)
    session.complete_before(outside)
    _known(session, items, needs or set(), outside, what)
    e.push(outside)
    try:
        writer = Writer(e)
        if items:
            _in_order(session, pruned(items), writer)
        yield writer
    finally:
        e.pop(outside)


def _brought(session: Session, made: Sequence[Any], what: str) -> list[Any]:
    """Records with the loops around them, and what they need of the bodies of these."""
    items = list(made)
    if not items:
        return []
    for loop in reversed(session.loops):
        wanted = set().union(*map(uses, items))
        read = _read(items)
        mine: list[Any] = []
        for other in reversed(list(loop.body)):
            written = {id(r.array.root) for r in records([other]) if isinstance(r, WriteLeaf)}
            needed = bool(defined(other) & wanted or written & read) or isinstance(other, Check)
            behind = isinstance(other, Loop) and any(
                isinstance(r, ReadLeaf) and r.final is not None and id(r.final.root) in written for r in mine
            )
            if not needed and not behind:
                continue
            if isinstance(other, ReadLeaf) and other.state is not None:
                raise _refused(session, f"{what} {OF_A_STATE}")
            if not isinstance(other, RECORDS) and not (isinstance(other, Op) and is_pure(other)):
                raise _refused(session, f"{what} needs what an `if` or a loop of the function around it computes")
            if isinstance(other, (Loop, WriteLeaf)) and not behind:  # a list, which is computed here and not again
                loop.body[:] = [item for item in loop.body if item is not other]
            mine.append(other)
            wanted |= uses(other)
            read |= _read([other])
        items = [Loop(loop.symbol, loop.length, "parallel", loop.loc, [*mine[::-1], *items], "sequential")]
    return items


def _read(items: Sequence[Any]) -> set[int]:
    """The arrays without memory that records read."""
    found = {a.root for item in records(items) if isinstance(item, ReadLeaf) for a in accessed(item.read)}
    return {id(a) for a in found if a.argument is None and a.tensor is None}


def _known(session: Session, items: Sequence[Any], needs: set[str], outside: list[Any], what: str) -> None:
    """Refuse what uses values of open blocks that do not go along.  Raises CompilationError (PTO-F106)."""
    blocks = session.g.e.inside_of(outside)
    there = {name for block in blocks for item in block for name in defined(item)}
    written = {id(r.array.root) for r in records(items) if isinstance(r, WriteLeaf)}
    if (set().union(needs, *map(uses, items)) & there) - _defined(items):
        raise _refused(session, f"{what} needs what the functions around it compute")
    if _read(items) - written:  # lists that are not made yet: those of earlier iterations
        raise _refused(session, f"{what} {OF_A_STATE}")


def _defined(items: Sequence[Any]) -> set[str]:
    """The names of all variables that are defined in records, at any depth."""
    return set().union(*(_defined(i.body) if isinstance(i, Loop) else defined(i) for i in items))


def _in_order(session: Session, items: Sequence[Any], writer: Writer) -> None:
    """Write records with the memory that they need; variables get other names, as some are defined again later."""
    g = session.g
    e = g.e
    for item in items:
        decided(session, item, "sequential", "lengths that the data decide are known before the nest", None)
    kept = in_memory(items)
    for item in records(items):
        if isinstance(item, WriteLeaf) and item.array.root.tensor is None and id(item.array.root) in kept:
            allocate(writer, item.array.root)
    with e.block() as block:
        Sequential(g, kept).block(items, writer)
    names = {v.name: e.fresh(v.name, v.type).name for s in walk.statements(tuple(block)) for v in walk.defs(s)}
    e.current.extend(walk.rename(tuple(block), names))
