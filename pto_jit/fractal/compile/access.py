# SPDX-License-Identifier: MIT
"""Access operations: they make other access maps, and move nothing.

Each gives a list whose elements are those of others at other indices: an index is an expression over the new list's
dimensions, two lists become one by a condition, padding is a condition with a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen.builtins.promote import describe
from pto_jit.codegen.values import Scalar, Tensor
from pto_jit.dtypes import i64
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.fractal.compile.bounds import all_checked, checked, from_the_end, is_index
from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, binary, number, of, pick
from pto_jit.fractal.compile.lists import (
    Access,
    Choose,
    Dim,
    Index,
    Leaf,
    Lists,
    Spread,
    View,
    map_views,
)
from pto_jit.fractal.compile.session import Session, session_of
from pto_jit.fractal.compile.structure import taken_apart, told

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def reindexed(session: Session, lists: Lists, length: Expr, at: Callable[[Expr], Expr]) -> Lists:
    """The list of the elements at `at(k)`, k < length."""

    def view(v: View) -> View:
        k = session.symbol(v.dims[0].symbol.name)
        inner = v.at(at(of(k)))
        return View((Dim(k, length), *inner.dims), inner.read, inner.leaf)

    return Lists(session, map_views(lists.items, view), lists.around)


def nested(session: Session, lists: Lists, length: Expr, width: Expr, at: Callable[[Expr, Expr], Expr]) -> Lists:
    """The list of `length` lists of the `width` elements at `at(i, k)`."""

    def view(v: View) -> View:
        i, k = session.symbol("i"), session.symbol("k")
        inner = v.at(at(of(i), of(k)))
        return View((Dim(i, length), Dim(k, width), *inner.dims), inner.read, inner.leaf)

    return Lists(session, map_views(lists.items, view), lists.around + 1)


# -- several lists -------------------------------------------------------------------------------------------------


def zip_(g: Generator, *values: Any) -> Any:
    session = session_of(g)
    if len(values) == 1 and isinstance(values[0], Spread):
        return _unzipped(session, session.lists(values[0].lists, "ft.zip"))
    if any(isinstance(v, Spread) for v in values) or not values:
        raise g.error(
            TypeMismatchError,
            "ft.zip takes lists, or `*z` of one zipped list",
            code="PTO-F130",
            hint="write `ft.zip(x, y)`, or `ft.zip(*z)` to take pairs apart",
        )
    lists = [session.lists(v, "ft.zip") for v in values]
    first = lists[0]
    for other in lists[1:]:
        same_length(session, first.length, other.length, "ft.zip")
    return Lists(session, tuple(x.items if x.around == 1 else x for x in lists))


def same_length(session: Session, a: Expr, b: Expr, what: str) -> None:
    if a == b:
        return
    condition = Condition("zero", a - b)
    known = condition.known()
    if known is False:
        raise session.g.error(
            ShapeError,
            f"{what} of lists of {a} and {b} elements",
            code="PTO-F131",
            hint="all have one length: `ft.slice` a part of the longer one",
        )
    hint = "all have one length: take a part of the longer ones with `ft.slice`"
    session.check(condition, f"{what} of lists of different lengths: {{}}, {{}}", hint, a, b)


def _unzipped(session: Session, lists: Lists) -> Any:
    if not isinstance(lists.items, tuple) or lists.around != 1:
        raise session.g.error(
            TypeMismatchError,
            "`*` of a list that is not one of tuples",
            code="PTO-F130",
            hint="`ft.zip(*z)` takes a list of tuples apart; parts of other lists are `x[i]`",
        )
    return tuple(x if isinstance(x, Lists) else Lists(session, x) for x in lists.items)


def enumerate_(g: Generator, *values: Any) -> Any:
    session = session_of(g)
    lists = [session.lists(v, "ft.enumerate") for v in values]
    if not lists:
        raise g.error(TypeMismatchError, "ft.enumerate of nothing", code="PTO-F130", hint="give at least one list")
    k = session.symbol("i")
    count = View((Dim(k, lists[0].length),), Index(of(k)), Leaf((), i64, True))
    return zip_(g, Lists(session, count), *lists)


def product(g: Generator, x: Any, y: Any) -> Any:
    """(xs, ys) with xs[i][j] = x[j], ys[i][j] = y[i]."""
    session = session_of(g)
    a, b = session.lists(x, "ft.product"), session.lists(y, "ft.product")
    n, m = b.length, a.length
    return nested(session, a, n, m, lambda i, j: j), nested(session, b, n, m, lambda i, j: i)


def join(g: Generator, *values: Any) -> Any:
    session = session_of(g)
    lists = [session.lists(v, "ft.join") for v in values]
    if not lists:
        raise g.error(TypeMismatchError, "ft.join of nothing", code="PTO-F130", hint="give at least one list")
    joined = lists[0]
    for other in lists[1:]:
        joined = _joined(session, joined, other)
    return joined


def _joined(session: Session, a: Lists, b: Lists) -> Lists:
    g = session.g
    n, total = a.length, a.length + b.length
    (one, lefts), (other, rights) = (taken_apart(session, x, "a list of ft.join") for x in (a, b))
    if one != other or not all(x.leaf.same(y.leaf) for x, y in zip(lefts, rights, strict=True)):
        raise g.error(
            TypeMismatchError,
            f"ft.join of a {told(one, lefts)} and a {told(other, rights)}",
            code="PTO-F132",
            hint="join lists of one type",
        )
    rest = iter(rights)

    def view(left: View) -> View:
        right = next(rest)
        k = session.symbol(left.dims[0].symbol.name)
        x, y = left.at(of(k)), right.at(of(k) - n)
        first = Condition("negative", of(k) - n)
        dims = [Dim(k, total)]
        while y.dims:  # lists, whose lengths are those of the one or the other
            inner = x.dims[len(dims) - 1]
            dims.append(Dim(inner.symbol, pick(first, inner.length, y.dims[0].length)))
            y = y.at(of(inner.symbol))
        return View(tuple(dims), Choose(first, x.read, y.read), left.leaf)

    return Lists(session, map_views(a.items, view), a.around)


# -- one list, other indices ---------------------------------------------------------------------------------------


def index_(g: Generator, x: Any, i: Any, *rest: Any) -> Any:
    session = session_of(g)
    lists = session.lists(x, "ft.index")
    found = session.element(lists, place_of(session, lists, session.expr(i, "an index")))
    return index_(g, found, *rest) if rest else found


def place_of(session: Session, lists: Lists, at: Expr) -> Expr:
    """The position of the element at an index, which may count from the end; it is checked here."""
    known, length = at.constant, lists.length
    if known is not None and length.constant is not None and not -length.constant <= known < length.constant:
        raise session.g.error(
            ShapeError,
            f"index {known} of a list of length {length.constant}",
            code="PTO-F134",
            hint="indices run from 0 to the length, less one; negative ones from the end",
        )
    if known is None or length.constant is None:  # the list may be shorter
        checked(session, at, length)
    return from_the_end(at, length) if known is None or known < 0 else at


def slice_(g: Generator, x: Any, start: Any = None, stop: Any = None, step: Any = None) -> Any:
    """Elements start, start + step, ... before stop, as Python's slices; bounds are clamped to the list."""
    session = session_of(g)
    lists = session.lists(x, "ft.slice")
    n = lists.length
    by = 1 if step is None else g.static(step, "the step of a slice")
    if not isinstance(by, int) or isinstance(by, bool) or by == 0:
        raise g.error(
            TypeMismatchError, f"a slice with the step {by!r}", code="PTO-F135", hint="give an integer, not 0"
        )
    if by > 0:
        low = number(0) if start is None else _clamped(session, start, n, number(0), n)
        high = n if stop is None else _clamped(session, stop, n, number(0), n)
        length = binary("floordiv", high - low + by - 1, number(by)) if by != 1 else high - low
    else:
        low = n - 1 if start is None else _clamped(session, start, n, number(-1), n - 1)
        high = number(-1) if stop is None else _clamped(session, stop, n, number(-1), n - 1)
        length = binary("floordiv", low - high - by - 1, number(-by))
    if length.constant is None and not (start is None and stop is None):
        length = binary("max", length, number(0))
    elif length.constant is not None:
        length = number(max(length.constant, 0))
    return reindexed(session, lists, length, lambda k: low + k * by)


def _clamped(session: Session, bound: Any, n: Expr, least: Expr, most: Expr) -> Expr:
    """A bound of a slice of a list of length n: from the end where it is negative, then from `least` to `most`."""
    at = session.expr(bound, "a bound of a slice")
    known = at.constant
    if known is not None and known < 0:
        return binary("max", least, n + known)
    if known is not None or is_index(at):
        return binary("min", at, most) if known != 0 or most != n else at
    at = pick(Condition("negative", at), at + n, at)
    return binary("max", least, binary("min", at, most))


def gather(g: Generator, x: Any, indices: Any) -> Any:
    """The elements at the positions that an integer list, tensor or tuple of integers has.

    What is an expression where it is read stays one; integers that are computed go to a table before the nest.
    """
    session = session_of(g)
    lists = session.lists(x, "ft.gather")
    indices = session.normal(indices)
    if isinstance(indices, Tensor) and indices.rank == 1 and indices.dtype.is_integer:
        array = indices.var
        return _gathered(session, lists, session.operand(indices.extents[0]), lambda k: of(Fetch(array, (k,), False)))
    if isinstance(indices, tuple) and all(isinstance(i, (int, np.integer, Scalar)) for i in indices):
        return _chosen(session, lists, [session.expr(i, "an index of ft.gather") for i in indices])
    if isinstance(indices, Lists) and not isinstance(indices.items, tuple):
        view = indices.first
        read = view.read
        if len(view.dims) == 1 and not view.leaf.extents and view.leaf.dtype.is_integer:
            if isinstance(read, Access) and read.array.argument is not None:
                table = read.array.argument[0].var
                place = view.dims[0].symbol
                return _gathered(
                    session,
                    lists,
                    indices.length,
                    lambda k: of(Fetch(table, tuple(e.replace({place: k}) for e in read.index), fixed=False)),
                )
            if isinstance(read, Index):
                return _gathered(
                    session, lists, indices.length, lambda k: read.value.replace({view.dims[0].symbol: k})
                )
            from pto_jit.fractal.compile.tables import tabled

            return _gathered(session, lists, indices.length, tabled(session, indices, "ft.gather"))
    raise g.error(
        TypeMismatchError,
        f"the indices of ft.gather are {describe(indices)}",
        code="PTO-F136",
        hint="give a list of integers of depth 1, a tensor of integers of rank 1, or a Python list of integers",
    )


def _gathered(session: Session, lists: Lists, count: Expr, at: Callable[[Expr], Expr]) -> Lists:
    """The list of the elements at the indices `at(k)`, which the data decide."""
    all_checked(session, count, at, lists.length)
    return reindexed(session, lists, count, lambda k: from_the_end(at(k), lists.length))


def _chosen(session: Session, lists: Lists, places: Sequence[Expr]) -> Lists:
    """The list of the elements at places that the program names."""
    inside = [place_of(session, lists, place) for place in places]

    def at(k: Expr) -> Expr:
        found = number(0)
        for n, place in reversed(list(enumerate(inside))):
            found = pick(Condition("zero", k - n), place, found)
        return found

    return reindexed(session, lists, number(len(places)), at)


def first(g: Generator, x: Any) -> Any:
    return index_(g, x, 0)


def last(g: Generator, x: Any) -> Any:
    return index_(g, x, -1)


def reverse(g: Generator, x: Any) -> Any:
    session = session_of(g)
    lists = session.lists(x, "ft.reverse")
    return reindexed(session, lists, lists.length, lambda k: lists.length - 1 - k)


def repeat(g: Generator, x: Any, k: Any) -> Any:
    """A list of `k` times the same, a list or a tensor."""
    session = session_of(g)
    times = at_least(session, 0, k, "the count of ft.repeat")
    value = session.normal(x)

    def view(v: View) -> View:
        return View((Dim(session.symbol("i"), times), *v.dims), v.read, v.leaf if v.dims else v.leaf.listed())

    if isinstance(value, Lists):
        return Lists(session, map_views(value.items, view), value.around + 1)
    return Lists(session, view(session.computed(value, "what ft.repeat repeats")))


def at_least(session: Session, least: int, value: Any, what: str) -> Expr:
    """An integer argument that is not below `least`.  Raises PTO-F137, or lets the program stop."""
    found = session.expr(value, what)
    known = found.constant
    hint = f"it is at least {least}"
    if known is None:
        if not (is_index(found) and found.const >= least):
            session.check(Condition("positive", found - least), f"{what} is {{}}", hint, found)
    elif known < least:
        raise session.g.error(ShapeError, f"{what} is {known}", code="PTO-F137", hint=hint)
    return found


HANDLERS = {
    "zip": zip_,
    "enumerate": enumerate_,
    "product": product,
    "join": join,
    "index": index_,
    "slice": slice_,
    "gather": gather,
    "head": first,
    "first": first,
    "tail": last,
    "last": last,
    "reverse": reverse,
    "repeat": repeat,
}
