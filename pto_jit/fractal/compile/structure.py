# SPDX-License-Identifier: MIT
"""Values of bodies taken apart: the leaves and lists in a state, and what holds them together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.errors import TypeMismatchError
from pto_jit.fractal.compile.lists import Lists, View
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


@frozen
class Single:
    """A leaf, or a list without tuples, of that depth."""

    depth: int


@frozen
class Group:
    """A tuple (`around` 0), or a list of tuples under `around` dimensions; `kind`: the class of the tuple."""

    kind: type
    items: tuple[Structure, ...]
    around: int = 0


Structure = Single | Group


def told(structure: Structure, views: Sequence[View]) -> str:
    """The type of what was taken apart, as an error names it; the same as for values outside of kernels."""
    return _told(structure, iter(views), 0)


def _told(structure: Structure, views: Iterator[View], around: int) -> str:
    """`around`: how many dimensions of the views belong to lists that are told already."""
    if isinstance(structure, Single):
        inner, depth = str(next(views).leaf), structure.depth - around
    else:
        items = [_told(item, views, around + structure.around) for item in structure.items]
        inner, depth = f"({', '.join(items)}{',' if len(items) == 1 else ''})", structure.around
        inner = inner if structure.kind is tuple else structure.kind.__name__ + inner
    return f"{'FractalTensor[' * depth}{inner}{']' * depth}"


def taken_apart(session: Session, value: Any, what: str) -> tuple[Structure, list[View]]:
    """The structure of a value of the user's program, and its views in order."""
    views: list[View] = []
    _no_list(session, value, what)
    return _structure(session, session.normal(value), what, views), views


def _no_list(session: Session, value: Any, what: str) -> None:
    """Refuse Python's lists in a value.  Raises TypeMismatchError (PTO-F102)."""
    if isinstance(value, list):
        hint = "write a tuple, or make a FractalTensor with `ft.map` or `ft.join`"
        raise session.g.error(TypeMismatchError, f"{what} is a Python list", code="PTO-F102", hint=hint)
    if isinstance(value, tuple):
        for item in value:
            _no_list(session, item, what)


def _structure(session: Session, value: Any, what: str, views: list[View]) -> Structure:
    if isinstance(value, Lists):
        return _of_items(value.items, value.around, views)
    if isinstance(value, tuple):
        return Group(type(value), tuple(_structure(session, v, what, views) for v in value))
    view = session.computed(value, what)
    views.append(view)
    return Single(0)


def _of_items(items: Any, around: int, views: list[View]) -> Structure:
    if isinstance(items, View):
        views.append(items)
        return Single(len(items.dims))
    if isinstance(items, Lists):
        return _of_items(items.items, items.around, views)
    return Group(type(items), tuple(_of_items(i, 0, views) for i in items), around)


def put_together(session: Session, structure: Structure, views: Iterator[View]) -> Any:
    """The value of the user's program: lists as lists, leaves as `session.value` gives them."""
    if isinstance(structure, Single):
        return session.value(next(views))
    if structure.around:
        return Lists(session, _items(session, structure, views, 0), structure.around)
    return _tuple(structure.kind, [put_together(session, s, views) for s in structure.items])


def _items(session: Session, structure: Structure, views: Iterator[View], extra: int) -> Any:
    if isinstance(structure, Single):
        return next(views)
    return _tuple(
        structure.kind,
        [
            Lists(session, _items(session, s, views, extra), s.around + extra)
            if isinstance(s, Group) and s.around > 1
            else _items(session, s, views, extra)
            for s in structure.items
        ],
    )


def listed(session: Session, structure: Structure, views: Iterator[View]) -> Any:
    """What a parallel function gives whose body gives such values; the views have one dimension more, outermost.

    A body that gives a tuple gives a tuple of lists.
    """
    if isinstance(structure, Single):
        return Lists(session, next(views))
    if structure.around:
        return Lists(session, _items(session, structure, views, 1), structure.around + 1)
    return _tuple(structure.kind, [listed(session, s, views) for s in structure.items])


def _tuple(kind: type, items: Sequence[Any]) -> Any:
    return kind._make(items) if hasattr(kind, "_make") else tuple(items)  # type: ignore[attr-defined]
