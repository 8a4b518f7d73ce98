# SPDX-License-Identifier: MIT
"""Access operations: they make other access maps, and move nothing.

Each gives a list whose elements are those of others at other indices: an index is an expression over the new list's
dimensions, two lists become one by a condition, padding is a condition with a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import describe
from pto_jit.codegen.merging import is_number
from pto_jit.codegen.values import Tensor
from pto_jit.dtypes import i64
from pto_jit.errors import CompilationError, ShapeError, TypeMismatchError
from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, Symbol, binary, number, of
from pto_jit.fractal.compile.lists import (
    Access,
    Choose,
    Dim,
    Filled,
    Index,
    Leaf,
    Lists,
    Read,
    Spread,
    View,
    map_views,
    views_of,
)
from pto_jit.fractal.compile.session import Session, session_of

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
    others = list(views_of(b.items))
    same = a.around == b.around and len(others) == len(list(views_of(a.items)))
    rest = iter(others)

    def view(left: View) -> View:
        right = next(rest)
        if len(left.dims) != len(right.dims) or not left.leaf.same(right.leaf):
            raise g.error(
                TypeMismatchError,
                f"ft.join of lists of depth {len(left.dims)} of {left.leaf} and of depth "
                f"{len(right.dims)} of {right.leaf}",
                code="PTO-F132",
                hint="join lists of one type",
            )
        k = session.symbol(left.dims[0].symbol.name)
        x, y = left.at(of(k)), right.at(of(k) - n)
        inner = tuple(of(d.symbol) for d in x.dims)
        for e, d in zip(inner, x.dims, strict=True):
            length = y.dims[0].length
            if length != d.length:
                _equal_inner(session, d.length, length)
            y = y.at(e)
        read = Choose(Condition("negative", of(k) - n), x.read, y.read)
        return View((Dim(k, total), *x.dims), read, left.leaf)

    if not same:
        raise g.error(
            TypeMismatchError, "ft.join of lists of different structure", code="PTO-F132", hint="join lists of one type"
        )
    return Lists(session, map_views(a.items, view), a.around)


def _equal_inner(session: Session, a: Expr, b: Expr) -> None:
    if a.symbols() or b.symbols():
        raise session.g.error(
            CompilationError,
            "ft.join of lists whose elements are lists of different lengths, as far as the compiler can tell",
            code="PTO-F133",
            hint="join lists of leaves, or of lists of one length; eager code joins any lists",
        )
    same_length(session, a, b, "ft.join: elements that are lists")


# -- one list, other indices ---------------------------------------------------------------------------------------


def index_(g: Generator, x: Any, i: Any, *rest: Any) -> Any:
    session = session_of(g)
    lists = session.lists(x, "ft.index")
    at = session.expr(i, "an index")
    known, length = at.constant, lists.length
    if known is not None and known < 0:
        at = at + length
    if known is not None and length.constant is not None and not -length.constant <= known < length.constant:
        raise g.error(
            ShapeError,
            f"index {known} of a list of length {length.constant}",
            code="PTO-F134",
            hint="indices run from 0 to the length, less one; negative ones from the end",
        )
    if g.options.debug and at.symbols() | {a for a in at.atoms() if not isinstance(a, Symbol)}:
        for condition in (Condition("positive", at), Condition("negative", at - length)):
            hint = "compute it so that it stays inside"
            session.check(condition, "index {} of a list of length {}", hint, at, length)
    found = session.element(lists, at)
    return index_(g, found, *rest) if rest else found


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
        low = number(0) if start is None else _clamped(session, start, n)
        high = n if stop is None else _clamped(session, stop, n)
        length = binary("floordiv", high - low + by - 1, number(by)) if by != 1 else high - low
    else:
        low = n - 1 if start is None else binary("min", _clamped(session, start, n), n - 1)
        high = number(-1) if stop is None else _clamped(session, stop, n)
        length = binary("floordiv", low - high - by - 1, number(-by))
    if length.constant is None and not (start is None and stop is None):
        length = binary("max", length, number(0))
    elif length.constant is not None:
        length = number(max(length.constant, 0))
    return reindexed(session, lists, length, lambda k: low + k * by)


def _clamped(session: Session, bound: Any, n: Expr) -> Expr:
    at = session.expr(bound, "a bound of a slice")
    known, size = at.constant, n.constant
    if known is None:
        return binary("max", number(0), binary("min", at, n))
    if known < 0:
        return binary("max", number(0), n + known) if size is None else number(max(0, size + known))
    if known == 0:
        return at
    return binary("min", at, n) if size is None else number(min(known, size))


def gather(g: Generator, x: Any, indices: Any) -> Any:
    """The elements at the positions that an integer list, tensor or tuple of integers has."""
    session = session_of(g)
    lists = session.lists(x, "ft.gather")
    indices = session.normal(indices)
    if isinstance(indices, Tensor) and indices.rank == 1 and indices.dtype.is_integer:
        array = indices.var
        return reindexed(session, lists, session.operand(indices.extents[0]), lambda k: of(Fetch(array, (k,), False)))
    if isinstance(indices, Lists) and not isinstance(indices.items, tuple):
        view = indices.first
        read = view.read
        if len(view.dims) == 1 and not view.leaf.extents and view.leaf.dtype.is_integer:
            if isinstance(read, Access) and read.array.argument is not None:
                table = read.array.argument[0].var
                place = view.dims[0].symbol
                return reindexed(
                    session,
                    lists,
                    indices.length,
                    lambda k: of(Fetch(table, tuple(e.replace({place: k}) for e in read.index), fixed=False)),
                )
            if isinstance(read, Index):
                return reindexed(session, lists, indices.length, lambda k: read.value.replace({view.dims[0].symbol: k}))
    raise g.error(
        TypeMismatchError,
        f"the indices of ft.gather are {describe(indices)}",
        code="PTO-F136",
        hint="give an argument: a list of integers of depth 1, or a tensor of integers of rank 1",
    )


def first(g: Generator, x: Any) -> Any:
    return index_(g, x, 0)


def last(g: Generator, x: Any) -> Any:
    return index_(g, x, -1)


def reverse(g: Generator, x: Any) -> Any:
    session = session_of(g)
    lists = session.lists(x, "ft.reverse")
    return reindexed(session, lists, lists.length, lambda k: lists.length - 1 - k)


def repeat(g: Generator, x: Any, times: Any) -> Any:
    """A list of `times` times the same, a list or a tensor."""
    session = session_of(g)
    k = session.expr(times, "the count of ft.repeat")
    if k.constant is not None and k.constant < 0:
        raise g.error(TypeMismatchError, f"ft.repeat {k.constant} times", code="PTO-F137", hint="a count is at least 0")
    value = session.normal(x)

    def view(v: View) -> View:
        return View((Dim(session.symbol("i"), k), *v.dims), v.read, v.leaf)

    if isinstance(value, Lists):
        return Lists(session, map_views(value.items, view), value.around + 1)
    return Lists(session, view(session.computed(value, "what ft.repeat repeats")))


# -- windows -------------------------------------------------------------------------------------------------------


def slide(
    g: Generator, x: Any, window: Any, stride: Any = 1, dilation: Any = 1, padding: Any = 0, value: Any = 0
) -> Any:
    """Windows of a list; outside of it stands `value`."""
    session = session_of(g)
    lists = session.lists(x, "ft.slide")
    w, s, d, p = (
        session.expr(v, f"the {n} of ft.slide")
        for v, n in ((window, "window"), (stride, "stride"), (dilation, "dilation"), (padding, "padding"))
    )
    span = lists.length + p * 2 - d * (w - 1) - 1
    count = binary("max", binary("floordiv", span, s) + 1, number(0))
    return _windows(session, lists, count, w, lambda i, k: i * s + k * d - p, value, padded=p.constant != 0)


def window(g: Generator, x: Any, i: Any, width: Any, dilation: Any = 1, value: Any = 0) -> Any:
    """The window of `width` elements centred at i; outside of the list stands `value`."""
    session = session_of(g)
    lists = session.lists(x, "ft.window")
    at, w, d = (session.expr(v, "an argument of ft.window") for v in (i, width, dilation))
    whole = _windows(
        session, lists, number(1), w, lambda _, k: at + (k - binary("floordiv", w, number(2))) * d, value, padded=True
    )
    return session.element(whole, number(0))


def shifted_slide(g: Generator, x: Any, window: Any, dilation: Any = 1) -> Any:
    """A window centred at every element, around the ends of the list."""
    session = session_of(g)
    lists = session.lists(x, "ft.shifted_slide")
    w, d = session.expr(window, "the window"), session.expr(dilation, "the dilation")
    n = lists.length
    return nested(session, lists, n, w, lambda i, k: binary("mod", i + (k - binary("floordiv", w, number(2))) * d, n))


def shifted_window(g: Generator, x: Any, i: Any, width: Any, dilation: Any = 1) -> Any:
    session = session_of(g)
    lists = session.lists(x, "ft.shifted_window")
    at, w, d = (session.expr(v, "an argument of ft.shifted_window") for v in (i, width, dilation))
    n = lists.length
    return reindexed(session, lists, w, lambda k: binary("mod", at + (k - binary("floordiv", w, number(2))) * d, n))


def _windows(
    session: Session,
    lists: Lists,
    count: Expr,
    width: Expr,
    at: Callable[[Expr, Expr], Expr],
    value: Any,
    *,
    padded: bool,
) -> Lists:
    found = nested(session, lists, count, width, at)
    if not padded:
        return found
    if not is_number(value):
        raise session.g.error(
            TypeMismatchError,
            f"a list is padded with {describe(value)}",
            code="PTO-F138",
            hint="give a number known at compile time",
        )
    n = lists.length

    def view(v: View) -> View:
        if len(v.dims) != 2:
            raise session.g.error(
                CompilationError,
                "a list of lists is padded",
                code="PTO-F138",
                hint="windows with padding are of lists of tensors",
            )
        i = at(of(v.dims[0].symbol), of(v.dims[1].symbol))
        fill: Read = Filled(value)
        inside = Choose(Condition("negative", i - n), v.read, fill)
        return View(v.dims, Choose(Condition("negative", i), fill, inside), v.leaf)

    return Lists(session, map_views(found.items, view), found.around)


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
    "slide": slide,
    "window": window,
    "shifted_slide": shifted_slide,
    "shifted_window": shifted_window,
}
