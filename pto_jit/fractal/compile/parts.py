# SPDX-License-Identifier: MIT
"""Tensors as lists of their parts, lists as tensors, and lists of lists as lists."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import axis_of
from pto_jit.codegen.builtins.promote import describe, tile_of, with_extents
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime, static_extent
from pto_jit.errors import CompilationError, ShapeError, TypeMismatchError
from pto_jit.fractal.compile.access import at_least, nested
from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, binary, number, of
from pto_jit.fractal.compile.lists import (
    Access,
    Dim,
    Leaf,
    Lists,
    Part,
    View,
    map_views,
    views_of,
)
from pto_jit.fractal.compile.session import Session, session_of
from pto_jit.fractal.compile.windows import width_unless_empty

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

FEW = 16
"""Elements of a list of known length that are put together one by one, without a loop."""


def slices(g: Generator, x: Any, axis: Any = 0) -> Any:
    """The parts of a tensor along an axis, which stays with extent 1."""
    return _parts(g, "slices", x, axis, 1)


def split(g: Generator, x: Any, n: Any, axis: Any = 0) -> Any:
    """A tensor in n equal parts along an axis, or a list in n lists."""
    session = session_of(g)
    value = session.normal(x)
    if isinstance(value, Lists):
        parts = at_least(session, 1, n, "the number of parts of ft.split")
        size = binary("floordiv", value.length, parts)
        fits = Condition("zero", binary("mod", value.length, parts))
        message, hint = "ft.split of {} elements in {} parts", "the number of parts divides the length"
        if fits.known() is False:
            raise g.error(ShapeError, message.format(value.length, parts), code="PTO-F139", hint=hint)
        if fits.known() is None:
            session.check(fits, message, hint, value.length, parts)
        return nested(session, value, parts, size, lambda i, k: i * size + k)
    tensor = _tensor(g, "split", value)
    along = axis_of(g, axis, tensor.rank, "ft.split")
    parts = g.static(n, "the number of parts of ft.split")
    extent = static_extent(tensor.extents[along])
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1 or (extent is not None and extent % parts):
        raise g.error(
            ShapeError,
            f"ft.split of an axis of extent {'?' if extent is None else extent} into {parts} parts",
            code="PTO-F139",
            hint="give a number of parts that divides the extent",
        )
    if extent is not None:
        return _parts(g, "split", tensor, along, extent // parts)
    whole = session.operand(tensor.extents[along])
    size = session.scalar(binary("floordiv", whole, number(parts)))
    fits = Condition("zero", binary("mod", whole, number(parts)))
    message = f"ft.split: the extent {{}} of axis {along} is not a multiple of {parts}"
    session.check(fits, message, "give a number of parts that divides the extent", whole)
    session.complete()
    return _parts(g, "split", tensor, along, size, number(parts))


def _tensor(g: Generator, name: str, x: Any) -> Tensor | Tile:
    if not isinstance(x, (Tensor, Tile)) or not x.rank:
        raise g.error(
            TypeMismatchError,
            f"ft.{name} takes a tensor, got {describe(x)}",
            code="PTO-F140",
            hint="give a tensor; parts of a list are `ft.slice` and `ft.split`",
        )
    return x


def _parts(g: Generator, name: str, x: Any, axis: Any, size: Any, count: Expr | None = None) -> Lists:
    """The parts of extent `size` along an axis; `count`: how many, if it is known."""
    session = session_of(g)
    tensor = _tensor(g, name, x)
    along = axis_of(g, axis, tensor.rank, f"ft.{name}")
    k = session.symbol("i")
    step = session.expr(size, "the size of a part")
    length = count or binary("floordiv", session.operand(tensor.extents[along]), step)
    starts = tuple(of(k) * step if a == along else number(0) for a in range(tensor.rank))
    extent = g.e.as_index(size)
    extents = tuple(extent if a == along else e for a, e in enumerate(tensor.extents))
    leaf = Leaf(extents, tensor.dtype)
    return Lists(session, View((Dim(k, length),), Part(tensor, starts, extents, len(session.loops)), leaf))


def flatten(g: Generator, x: Any) -> Any:
    """All leaves of a list of lists as one list; of a zipped list, all tuples."""
    session = session_of(g)
    lists = session.lists(x, "ft.flatten")
    while (lists.around if isinstance(lists.items, tuple) else len(lists.first.dims)) > 1:
        lists = _flattened(session, lists)
    return lists


def _flattened(session: Session, lists: Lists) -> Lists:
    outer, inner = lists.first.dims[:2]
    if outer.symbol in inner.length.symbols():
        views = list(views_of(lists.items))
        found = _in_memory_order(session, views[0]) if len(views) == 1 else None
        if found is None:
            from pto_jit.fractal.compile.tables import flattened

            return flattened(session, lists)
        return Lists(session, map_views(lists.items, lambda v: found), lists.around)

    def view(v: View) -> View:
        k = session.symbol("i")
        size = inner.length
        found = v.at(binary("floordiv", of(k), size)).at(binary("mod", of(k), size))
        return View((Dim(k, outer.length * size), *found.dims), found.read, found.leaf)

    return Lists(session, map_views(lists.items, view), max(lists.around - 1, 1))


def _in_memory_order(session: Session, v: View) -> View | None:
    """The leaves of an argument of depth 2 (or of its lists from one on), which lie one after the other."""
    read = v.read
    if not isinstance(read, Access) or read.array.argument is None or len(v.dims) != 2:
        return None
    outer, inner = v.dims
    start = read.index[0] - of(inner.symbol)
    atoms = [a for a, times in start.terms if times == 1]
    if start.const or len(start.terms) != 1 or not atoms or not isinstance(atoms[0], Fetch):
        return None
    table, at = atoms[0].array, atoms[0].at
    after = of(Fetch(table, (at[0] + 1,)))
    if at[0].coefficient(outer.symbol) != 1 or inner.length != after - start:
        return None
    first = start.replace({outer.symbol: number(0)})
    end = start.replace({outer.symbol: outer.length})
    k = session.symbol("i")
    return View((Dim(k, end - first),), Access(read.array, (first + of(k),)), v.leaf)


def stack(g: Generator, x: Any) -> Any:
    """A list of tensors as one tensor with a leading axis."""
    from pto_jit.fractal.compile.returning import in_a_row, stacked

    session = session_of(g)
    lists = session.lists(x, "ft.stack")
    if isinstance(lists.items, tuple) or len(lists.first.dims) != 1:
        raise g.error(
            TypeMismatchError,
            "ft.stack of lists of lists or of tuples",
            code="PTO-F142",
            hint="stack a list of tensors or numbers; `ft.flatten` it before",
        )
    view = lists.first
    count = view.dims[0].length.constant
    known = all(static_extent(x) is not None for x in view.leaf.extents)
    if count is not None and 0 < count <= FEW and view.leaf.extents and known and not in_a_row(view):
        return _side_by_side(session, lists, count)
    return stacked(session, view)


def _side_by_side(session: Session, lists: Lists, count: int) -> Tile:
    """The elements of a short list, which do not lie side by side, as one tensor: no loop, so that cells of a nest with
    it can be rows."""
    from pto_jit.codegen.builtins.structure import concat

    g, leaf = session.g, lists.first.leaf.extents
    row = (index(1), index(prod(static_extent(x) or 1 for x in leaf)))
    parts = [with_extents(g, tile_of(g, session.element(lists, number(k)), "ft.stack"), row) for k in range(count)]
    return with_extents(g, concat(g, parts, 1), (index(count), *leaf))


def unbind(g: Generator, x: Any, axis: Any = 0) -> Any:
    """The parts of a tensor along an axis, without that axis."""
    session = session_of(g)
    tensor = _tensor(g, "unbind", session.normal(x))
    along = axis_of(g, axis, tensor.rank, "ft.unbind")
    whole = _parts(g, "unbind", tensor, along, 1)
    view = whole.first
    kept = tuple(e for a, e in enumerate(view.leaf.extents) if a != along)
    part = view.read
    assert isinstance(part, Part)
    return Lists(
        session, View(view.dims, Part(part.source, part.starts, part.extents, part.depth), Leaf(kept, view.leaf.dtype))
    )


def length(g: Generator, x: Any) -> Any:
    session = session_of(g)
    return session.length(session.lists(x, "ft.length"))


def depth(g: Generator, x: Any) -> Any:
    session = session_of(g)
    value = session.normal(x)
    return len(value.first.dims) if isinstance(value, Lists) else 0


# -- tensors -------------------------------------------------------------------------------------------------------


def zeros(g: Generator, *shape: Any, dtype: Any = None) -> Any:
    from pto_jit.codegen.builtins.elementwise import dtype_of
    from pto_jit.codegen.builtins.memory import shape_of
    from pto_jit.dtypes import f32
    from pto_jit.ir.nodes import Const
    from pto_jit.ir.types import ScalarType

    items = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    extents = shape_of(g, list(items), "the shape of ft.zeros")
    kind = f32 if dtype is None else dtype_of(g, dtype)
    fill = Const(False if kind.kind == "b" else 0.0 if kind.is_float else 0, ScalarType(kind))
    if not extents:
        return Scalar(fill)
    return g.e.tile("full", [fill, *extents], extents=extents, generated=True)


def cat(g: Generator, *tensors: Any, axis: Any = -1) -> Any:
    from pto_jit.codegen.builtins.structure import concat

    session = session_of(g)
    items = tensors[0] if len(tensors) == 1 and not is_runtime(tensors[0]) else tensors
    items = session.normal(items)
    if isinstance(items, Lists):
        return _concatenated(session, items, axis)
    return concat(g, list(items), axis)


def _concatenated(session: Session, lists: Lists, axis: Any) -> Any:
    """The tensors of a list in a row: an axis of the stacked tensor."""
    g = session.g
    view = lists.first
    if isinstance(lists.items, tuple) or len(view.dims) != 1 or not view.leaf.extents:
        raise g.error(
            TypeMismatchError,
            "ft.cat of a list of lists, of tuples or of numbers",
            code="PTO-F142",
            hint="concatenate a list of tensors",
        )
    count = view.dims[0].length.constant
    window = width_unless_empty(view.dims[0].length)
    if window is not None:
        count, n = window
        session.check(Condition("positive", n - 1), "ft.cat of an empty list", "give it an element")
    if count is not None and count <= FEW:
        from pto_jit.codegen.builtins.structure import concat

        return concat(g, [session.element(lists, number(k)) for k in range(count)], axis)
    along = axis_of(g, axis, len(view.leaf.extents), "ft.cat")
    if along != 0:
        raise g.error(
            CompilationError,
            "ft.cat of a list whose length is a run-time value, along an inner axis",
            code="PTO-F143",
            hint="concatenate along axis 0, or give the list a constant length",
        )
    from pto_jit.fractal.compile.returning import stacked

    return stacked(session, view, joined=True)


def from_list(g: Generator, items: Any, *, leaf: Any = None) -> Any:
    raise _made_before(g, "from_list")


def from_flat(g: Generator, leaves: Any, offsets: Any = ()) -> Any:
    raise _made_before(g, "from_flat")


def _made_before(g: Generator, name: str) -> CompilationError:
    """The error for a function that makes lists of what kernels do not have."""
    return g.error(
        CompilationError,
        f"`ft.{name}` in a kernel",
        code="PTO-F144",
        hint="make the list before the call and pass it; in a kernel `ft.slices(x)` makes a list of the parts of a "
        "tensor, `ft.join` one of several lists, and `ft.repeat` one of a tensor again and again",
    )


HANDLERS = {
    "from_list": from_list,
    "from_flat": from_flat,
    "slices": slices,
    "split": split,
    "flatten": flatten,
    "stack": stack,
    "unbind": unbind,
    "length": length,
    "depth": depth,
    "zeros": zeros,
    "cat": cat,
}
