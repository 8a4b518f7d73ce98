# SPDX-License-Identifier: MIT
"""`dilated_map`: a body on strided parts of a list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.errors import TypeMismatchError
from pto_jit.fractal.compile.access import at_least, reindexed
from pto_jit.fractal.compile.chains import chained, size_of_part
from pto_jit.fractal.compile.expr import Condition, Expr, binary, of
from pto_jit.fractal.compile.functions import asked_of, mapped_or_merged
from pto_jit.fractal.compile.lists import Dim, Lists, View, map_views, views_of
from pto_jit.fractal.compile.session import session_of

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def dilated_map(g: Generator, body: Any, x: Any, dilation: Any, **kwargs: Any) -> Any:
    """`body` of each of the `dilation` strided parts of a list, put back in their places."""
    session = session_of(g)
    asked = asked_of(g, "dilated_map", body, kwargs)
    lists = session.lists(x, "ft.dilated_map")
    n, d = lists.length, at_least(session, 1, dilation, "the dilation of ft.dilated_map")

    def size(r: Expr) -> Expr:
        return size_of_part(n, d, r)

    def part(r: Expr) -> Any:
        return reindexed(session, lists, size(r), lambda k: k * d + r)

    def check(r: Expr, result: Any) -> None:
        for view in views_of(session.normal(result)):
            if isinstance(view, View) and view.dims:  # others are refused below
                given, wanted = view.dims[0].length, size(r)
                if given == wanted:
                    continue
                message = "the body of ft.dilated_map gives a list of {} for one of {}"
                hint = "it takes a list and gives a list of the same length"
                session.check(Condition("zero", given - wanted), message, hint, given, wanted)

    found, whole = mapped_or_merged(
        session, body, part, binary("min", d, n), asked, check, lambda loop, views: chained(session, loop, views, n, d)
    )
    if whole:
        return found

    def interleaved(result: Any) -> Any:
        if isinstance(result, tuple):
            return tuple(interleaved(r) for r in result)
        if not isinstance(result, Lists) or len(result.first.dims) < 2:
            raise g.error(
                TypeMismatchError,
                "the body of ft.dilated_map gives no list",
                code="PTO-F126",
                hint="it gets a list, and gives one of the same length",
            )

        def view(v: View) -> View:
            k = session.symbol("k")
            inner = v.at(binary("mod", of(k), d)).at(binary("floordiv", of(k), d))
            return View((Dim(k, n), *inner.dims), inner.read, inner.leaf)

        return Lists(session, map_views(result.items, view), max(result.around - 1, 1))

    return interleaved(found)
