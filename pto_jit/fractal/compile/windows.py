# SPDX-License-Identifier: MIT
"""Windows of lists: access maps with two dimensions for one, and what stands outside of a list where it is padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen.builtins.promote import describe
from pto_jit.codegen.merging import is_number
from pto_jit.codegen.values import Tensor, Tile
from pto_jit.dtypes import from_numpy
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.fractal.compile.access import at_least, nested, reindexed, same_length
from pto_jit.fractal.compile.expr import Binary, Condition, Expr, binary, number, of
from pto_jit.fractal.compile.lists import Choose, Filled, Leaf, Lists, Part, Read, View, map_views
from pto_jit.fractal.compile.session import Session, session_of

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def slide(
    g: Generator, x: Any, window: Any, stride: Any = 1, dilation: Any = 1, padding: Any = 0, value: Any = 0
) -> Any:
    """Windows of a list; outside of it stands `value`."""
    session = session_of(g)
    lists = session.lists(x, "ft.slide")
    n = lists.length
    w = at_least(session, 1, window, "the window of ft.slide")
    s = at_least(session, 1, stride, "the stride of ft.slide")
    d = at_least(session, 1, dilation, "the dilation of ft.slide")
    p = at_least(session, 0, padding, "the padding of ft.slide")
    span = n + p * 2 - d * (w - 1) - 1
    count = binary("max", binary("floordiv", span, s) + 1, number(0))
    alone = (span - n).constant
    if alone is None or alone >= 0:  # padding alone would make a window
        count = of_nonempty(count, n)
    return _windows(session, lists, count, w, lambda i, k: i * s + k * d - p, value, padded=p.constant != 0)


def window(g: Generator, x: Any, i: Any, width: Any, dilation: Any = 1, value: Any = 0) -> Any:
    """The window of `width` elements centred at i; outside of the list stands `value`."""
    session = session_of(g)
    lists = session.lists(x, "ft.window")
    at = session.expr(i, "the position of ft.window")
    w, place = _around(session, width, dilation, "ft.window")
    w = of_nonempty(w, lists.length)
    whole = _windows(session, lists, number(1), w, lambda _, k: at + place(k), value, padded=True)
    return session.element(whole, number(0))


def shifted_slide(g: Generator, x: Any, window: Any, dilation: Any = 1) -> Any:
    """A window centred at every element, around the ends of the list."""
    session = session_of(g)
    lists = session.lists(x, "ft.shifted_slide")
    w, place = _around(session, window, dilation, "ft.shifted_slide")
    n = lists.length
    return nested(session, lists, n, w, lambda i, k: binary("mod", i + place(k), n))


def shifted_window(g: Generator, x: Any, i: Any, width: Any, dilation: Any = 1) -> Any:
    session = session_of(g)
    lists = session.lists(x, "ft.shifted_window")
    at = session.expr(i, "the position of ft.shifted_window")
    w, place = _around(session, width, dilation, "ft.shifted_window")
    n = lists.length
    return reindexed(session, lists, of_nonempty(w, n), lambda k: binary("mod", at + place(k), n))


def _around(session: Session, width: Any, dilation: Any, what: str) -> tuple[Expr, Callable[[Expr], Expr]]:
    """The width of a window, and where its elements stand from its centre."""
    w = at_least(session, 1, width, f"the window of {what}")
    d = at_least(session, 1, dilation, f"the dilation of {what}")
    return w, lambda k: (k - binary("floordiv", w, number(2))) * d


def of_nonempty(count: Expr, n: Expr) -> Expr:
    """`count`, or 0 where a list of length n has no element: an empty list gives empty lists."""
    return count if n.constant else binary("mul", count, binary("min", n, number(1)))


def width_unless_empty(length: Expr) -> tuple[int, Expr] | None:
    """The width of a window whose list has an element, and the list's length, where `of_nonempty` made the length."""
    if len(length.terms) != 1 or length.const:
        return None
    atom, times = length.terms[0]
    if not isinstance(atom, Binary) or atom.op != "min" or atom.right != number(1):
        return None
    return times, atom.left


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
    n = lists.length

    def view(v: View) -> View:
        if any(v.dims[1].symbol in d.length.symbols() for d in v.dims[2:]):
            raise session.g.error(
                CompilationError,
                "a list of lists is padded, whose lengths may differ",
                code="PTO-F138",
                hint="windows with padding are of lists of tensors, or of lists of one length",
            )
        i = at(of(v.dims[0].symbol), of(v.dims[1].symbol))
        fill = _fill(session, value, v.leaf)
        inside = Choose(Condition("negative", i - n), v.read, fill)
        return View(v.dims, Choose(Condition("negative", i), fill, inside), v.leaf)

    return Lists(session, map_views(found.items, view), found.around)


def _fill(session: Session, value: Any, leaf: Leaf) -> Read:
    """What stands outside of a list: a number known at compile time, in all places of a leaf, or a tensor like one."""
    if is_number(value):
        kind = from_numpy(value.dtype) if isinstance(value, np.generic) else None
        weak = leaf.dtype.is_float or bool(np.asarray(value).astype(leaf.dtype.numpy) == value)
        if kind == leaf.dtype or (kind is None and weak):
            return Filled(value.item() if isinstance(value, np.generic) else value)
    elif isinstance(value, (Tensor, Tile, np.ndarray)):
        found = session.computed(value, "the value of a padding")
        read = found.read
        if found.leaf.same(leaf):
            return read
        if isinstance(read, Part) and found.leaf.dtype == leaf.dtype and len(read.extents) == len(leaf.extents):
            for given, wanted in zip(read.extents, leaf.extents, strict=True):
                what = "the value of a padding is not a tensor like the leaves: an extent and theirs"
                same_length(session, session.operand(given), session.operand(wanted), what)
            return Part(read.source, read.starts, leaf.extents, read.depth)
    raise session.g.error(
        TypeMismatchError,
        f"leaves of type {leaf} are padded with {describe(value)}",
        code="PTO-F138",
        hint="give a number known at compile time, or a tensor like the leaves",
    )


HANDLERS = {
    "slide": slide,
    "window": window,
    "shifted_slide": shifted_slide,
    "shifted_window": shifted_window,
}
