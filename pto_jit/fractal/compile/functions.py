# SPDX-License-Identifier: MIT
"""The parallel functions: each becomes a loop of the nest, whose body is compiled in its place.

`map` is a parallel loop; `fold`, `scan` and their mirrors carry a state from one iteration to the next; `reduce` does
so with a body that is promised to be associative.  A state is an array over the loops around, written once per
iteration and read one iteration later: the access map says everything about the dependence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.frames import KernelFunction
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.fractal.compile.expr import Condition, Expr, Fetch, Known, Symbol, binary, number, of, pick
from pto_jit.fractal.compile.extents import made_inside
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Choose,
    Computed,
    Dim,
    Leaf,
    Lists,
    Loop,
    Part,
    Read,
    ReadLeaf,
    View,
    WriteLeaf,
    expressions,
    rewritten,
    sources,
)
from pto_jit.fractal.compile.local import leaves
from pto_jit.fractal.compile.mirrored import Mirror, mirrored
from pto_jit.fractal.compile.session import Session, session_of
from pto_jit.fractal.compile.states import agreement, can_associate, fitted, narrowed
from pto_jit.fractal.compile.structure import Structure, listed, put_together, taken_apart
from pto_jit.fractal.plans import PLANS, TILE_HINT, tile_sizes
from pto_jit.slotted import mutable

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

NONE = object()


@mutable(eq=False)
class Asked:
    """What a call asks for besides its function and list."""

    schedule: str
    tile: tuple[int, ...] | None
    kwargs: dict[str, Any]


def asked_of(g: Generator, name: str, fn: Any, kwargs: dict[str, Any]) -> Asked:
    if not (callable(fn) or isinstance(fn, KernelFunction)):
        raise g.error(
            TypeMismatchError,
            f"ft.{name} of {type(fn).__name__}, which cannot be called",
            code="PTO-F120",
            hint="the first argument is the body: a function, a lambda, a `functools.partial`",
        )
    rest = dict(kwargs)
    schedule = g.static(rest.pop("schedule", "auto"), "`schedule`")
    tile = g.static(rest.pop("tile", None), "`tile`")
    if schedule not in PLANS:
        raise g.error(
            CompilationError,
            f"ft.{name}: there is no schedule {schedule!r}",
            code="PTO-F121",
            hint=f"the schedules are {', '.join(map(repr, PLANS))}",
        )
    try:
        sizes = tile_sizes(tile)
    except ValueError:
        raise g.error(CompilationError, f"ft.{name}: tile={tile!r:.40}", code="PTO-F127", hint=TILE_HINT) from None
    return Asked(schedule, sizes, rest)


def _initial(g: Generator, name: str, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The initial state (NONE: there is none), and the other keywords."""
    rest = dict(kwargs)
    given = [rest.pop(k) for k in ("initializer", "init") if k in rest]
    if len(given) > 1:
        raise g.error(
            TypeMismatchError,
            f"ft.{name}: `initializer=` and `init=` are one thing",
            code="PTO-F122",
            hint="give one of them",
        )
    return (given[0] if given and given[0] is not None else NONE), rest


# -- map -----------------------------------------------------------------------------------------------------------


def map_(g: Generator, body: Any, x: Any, **kwargs: Any) -> Any:
    session = session_of(g)
    asked = asked_of(g, "map", body, kwargs)
    lists = session.lists(x, "ft.map")
    return mapped(session, body, lambda i: session.element(lists, i), lists.length, asked)


def mapped(session: Session, fn: Any, element: Callable[[Expr], Any], length: Expr, asked: Asked) -> Any:
    """A parallel loop over `length` elements: the list of what the body gives."""
    return mapped_or_merged(session, fn, element, length, asked, None, lambda loop, views: None)[0]


def mapped_or_merged(
    session: Session,
    fn: Any,
    element: Callable[[Expr], Any],
    length: Expr,
    asked: Asked,
    check: Callable[[Expr, Any], None] | None,
    merge: Callable[[Loop, list[View]], list[View] | None],
) -> tuple[Any, bool]:
    """The list of what a parallel loop gives, or what `merge` makes of the loop, and whether it did.

    check: gets the index of each element and what the body gives for it.  merge: gets the loop, once it is closed, and
    what its body gives under the dimension of the loop; gives views without that dimension, or None.
    """
    g = session.g
    symbol = session.symbol(session.loop_name())
    loop = Loop(symbol, length, "parallel", g.e.loc, [], asked.schedule, asked.tile)

    def body() -> tuple[Structure, list[View]]:
        result = g.inline(fn, (element(of(symbol)),), asked.kwargs)
        if check is not None:
            check(of(symbol), result)
        structure, views = taken_apart(session, result, "what the body of ft.map gives")
        return structure, [closed(session, view) for view in views]

    structure, views = session.loop(loop, body)
    leaves(session, *views)
    found = [around(session, v, symbol, length) for v in views]
    merged = merge(loop, found)
    session.wait()
    if merged is not None:
        return put_together(session, structure, iter(merged)), True
    return listed(session, structure, iter(found)), False


def around(session: Session, view: View, symbol: Symbol, length: Expr) -> View:
    """A view of the inside of a loop, with the loop as outermost dimension."""
    own = session.symbol(symbol.name)
    inner = view.replace({symbol: of(own)})
    return View((Dim(own, length), *inner.dims), inner.read, inner.leaf.listed())


def closed(session: Session, view: View) -> View:
    """The same leaves, through arrays where they are computed in the innermost open loop."""
    depth = len(session.loops)
    unknown = _unknown(session, view, depth)
    local = [s for s in sources(view.read) if isinstance(s, (Computed, Part)) and s.depth >= depth]
    sized = made_inside(view.leaf, session.loops[-1].body) and not isinstance(view.read, Access)
    if not view.dims:
        return stored(session, view) if local or unknown or sized else view
    if unknown is not None and any(_mentions(d.length, unknown) for d in view.dims):
        raise session.g.error(
            CompilationError,
            "the length of a list that leaves the loop was computed in it",
            code="PTO-F105",
            hint="lengths come from `len` of lists: data may not decide them in a kernel; do it outside, eagerly",
        )
    if unknown is not None or sized or any(isinstance(s, Part) for s in local):
        return copied(session, view)
    made: dict[int, Read] = {}

    def change(read: Read) -> Read | None:
        if not isinstance(read, Computed) or read.depth < depth:
            return None
        if id(read.value) not in made:
            made[id(read.value)] = stored(session, View((), read, view.leaf)).read
        return made[id(read.value)]

    return View(view.dims, rewritten(view.read, change), view.leaf)


def _unknown(session: Session, view: View, depth: int) -> Known | None:
    """An integer of the innermost loop that is not an expression over loops."""
    for e in (*(d.length for d in view.dims), *expressions(view.read)):
        for atom in e.atoms():
            if isinstance(atom, Known) and session.known_depth.get(atom.var.name, 0) >= depth:
                return atom
    return None


def _mentions(e: Expr, atom: Known) -> bool:
    return any(a == atom for a in e.atoms())


def stored(session: Session, view: View) -> View:
    """A leaf written to an array of its own over the open loops."""
    array = session.array("v", (), view.leaf)
    write(session, array, session.around(), session.leaf(view.read, view.leaf))
    return View((), Access(array, session.around()), view.leaf)


def write(session: Session, array: Array, at: tuple[Expr, ...], value: Any) -> None:
    e = session.g.e
    if not isinstance(value, (Scalar, Tile, Tensor)):
        value = e.cast(value, array.leaf.dtype)
    if isinstance(value, Tensor):
        from pto_jit.codegen.builtins.promote import load_all

        value = load_all(session.g, value)
    if isinstance(value, Scalar) and value.dtype != array.leaf.dtype:
        value = e.cast(value, array.leaf.dtype)
    e.append(WriteLeaf(array, at, value, e.loc))  # type: ignore[arg-type]


def copied(session: Session, view: View, into: Array | None = None) -> View:
    """All leaves of a list, copied to an array over the open loops and the list's dimensions."""
    fresh = view.renamed(session.symbol)
    array = into or session.array("c", fresh.dims, view.leaf)
    at = (*session.around(), *(of(d.symbol) for d in fresh.dims))

    def level(k: int) -> None:
        if k == len(fresh.dims):
            write(session, array, at, session.leaf(fresh.read, view.leaf))
            return
        dim = fresh.dims[k]
        session.loop(Loop(dim.symbol, dim.length, "parallel", session.g.e.loc), lambda: level(k + 1))

    level(0)
    own = view.renamed(session.symbol)
    return View(own.dims, Access(array, (*session.around(), *(of(d.symbol) for d in own.dims))), view.leaf)


# -- fold, scan, reduce --------------------------------------------------------------------------------------------


def _carried(name: str, kind: str, *, backwards: bool, every: bool) -> Callable[..., Any]:
    def handler(g: Generator, body: Any, x: Any, **kwargs: Any) -> Any:
        session = session_of(g)
        initial, rest = _initial(g, name, kwargs)
        asked = asked_of(g, name, body, rest)
        lists = session.lists(x, f"ft.{name}")
        n = lists.length

        def element(i: Expr) -> Any:
            return session.element(lists, n - 1 - i if backwards else i)

        return carried(session, name, kind, body, element, n, initial, asked, backwards=backwards, every=every)

    handler.__name__ = name
    return handler


fold = _carried("fold", "carry", backwards=False, every=False)
foldr = _carried("foldr", "carry", backwards=True, every=False)
scan = _carried("scan", "carry", backwards=False, every=True)
scanr = _carried("scanr", "carry", backwards=True, every=True)
reduce = _carried("reduce", "reduce", backwards=False, every=False)


def carried(
    session: Session,
    name: str,
    kind: str,
    fn: Any,
    element: Callable[[Expr], Any],
    n: Expr,
    initial: Any,
    asked: Asked,
    *,
    backwards: bool,
    every: bool,
) -> Any:
    """A loop with a state; `every`: all states are the result, else the last one."""
    g = session.g
    without = initial is NONE
    start = len(g.e.current)
    if without:  # the state starts as the first element, and the loop runs over the others
        if not every:
            message, hint = f"ft.{name} of an empty list without an initializer", "give `initializer=`, its value"
            _check(session, Condition("positive", n - 1), message, hint)
        initial = element(number(0))
        first, count = 1, binary("max", n - 1, number(0))
        known = n.constant
        count = number(max(known - 1, 0)) if known is not None else count
    else:
        first, count = 0, n
    structure, views = taken_apart(session, initial, f"the initializer of ft.{name}")
    if without:  # the views say where it stands
        g.e.current[start:] = _unread(g.e.current[start:], views)
        views = [_if_any(view, n) for view in views]
    mark = len(g.e.current)
    arrays: list[Array] = []
    mirrors: dict[int, Mirror] = {}
    while True:
        symbol = session.symbol(session.loop_name())
        loop = Loop(symbol, count, kind, g.e.loc, [], asked.schedule, asked.tile)
        if first or backwards:
            loop.element = n - 1 - first - of(symbol) if backwards else of(symbol) + first
        arrays.clear()
        mirrors.clear()
        wanted = session.loop(
            loop,
            lambda s=symbol, v=views: _iteration(
                session, name, fn, s, v, structure, arrays, mirrors, lambda i: element(i + first), asked
            ),
        )
        if wanted is None:
            break
        # Again, with numbers of the types that the body makes of Python's, and extents that it knows: at most once for
        # each of them, as a number that has a type keeps it.
        session.undo(mark)
        views = [fitted(session, name, old, new) for old, new in zip(views, wanted, strict=True)]
        mark = len(g.e.current)
    for array in (*arrays, *(m.made for m in mirrors.values())):
        array.loops = min(array.loops, len(session.loops))
    for array in arrays:
        array.elements = n if without and every and n.constant is None else None
    last = [_last(session, v, a, count) for v, a in zip(views, arrays, strict=True)]
    last = [mirrors[k].view(v) if k in mirrors else v for k, v in enumerate(last)]
    if every:
        session.wait()
        made = [_all(session, view, array, n, backwards, without) for view, array in zip(views, arrays, strict=True)]
        made = [mirrors[k].view(v) if k in mirrors else v for k, v in enumerate(made)]
        return listed(session, structure, iter(made))
    for k, array in enumerate(arrays):
        array = mirrors[k].made if k in mirrors else array
        array.folded = (len(session.loops),)
        array.temporary = len(array.dims) == len(session.loops) + 1
    found = _put_last(session, structure, last, arrays)
    session.wait()
    return found


def _if_any(view: View, n: Expr) -> View:
    """An element of a list of `n`, whose lengths are 0 where there is none: they would be read behind the offsets."""
    some = Condition("positive", n - 1)

    def length(e: Expr) -> Expr:
        return pick(some, e, number(0)) if any(isinstance(a, Fetch) for a in e.atoms()) else e

    dims = [Dim(d.symbol, length(d.length)) for d in view.dims]
    return View(tuple(dims), view.read, view.leaf)


def _unread(items: list[Any], views: list[View]) -> list[Any]:
    """Without reads of leaves that are no value of these views."""
    used = {id(s.value) for view in views for s in sources(view.read) if isinstance(s, Computed)}
    return [i for i in items if not isinstance(i, ReadLeaf) or id(i.value) in used]


def _check(session: Session, condition: Condition, message: str, hint: str, *numbers: Expr) -> None:
    known = condition.known()
    if known is False:
        raise session.g.error(CompilationError, message.format(*numbers), code="PTO-F123", hint=hint)
    if known is None:
        session.check(condition, message, hint, *numbers)


def _iteration(
    session: Session,
    name: str,
    fn: Any,
    symbol: Symbol,
    initial: list[View],
    structure: Structure,
    arrays: list[Array],
    mirrors: dict[int, Mirror],
    element: Callable[[Expr], Any],
    asked: Asked,
) -> list[View] | None:
    """The body of one iteration; other initial values when Python numbers in them have to take a type."""
    g = session.g
    i = of(symbol)
    outer = session.around()[:-1]
    states: list[View] = []
    for view in initial:
        own = view.renamed(session.symbol)
        leaf = Leaf(own.leaf.extents, own.leaf.dtype, own.leaf.weak)
        array = session.array("h", own.dims, leaf)
        arrays.append(array)
        before = Access(array, (*outer, i - 1, *(of(d.symbol) for d in own.dims)))
        states.append(View(own.dims, Choose(Condition("zero", i), own.read, before), leaf))
    by_array = iter(arrays)

    def value(view: View) -> Any:
        array = next(by_array)
        return session.leaf(view.read, view.leaf, state=array) if not view.dims else view

    state = put_together(_Values(session, value), structure, iter(states))  # type: ignore[arg-type]
    item = element(i)
    if name == "reduce":
        can_associate(session, structure, initial, item)
    result = g.inline(fn, (state, item), asked.kwargs)
    found, views = taken_apart(session, result, f"what the body of ft.{name} gives")
    if structure == found:
        views = [narrowed(session, name, old, new) for old, new in zip(initial, views, strict=True)]
    typed = agreement(session, name, structure, found, initial, views)
    if typed is not None:
        return typed
    for k, (array, before) in enumerate(zip(arrays, states, strict=True)):
        mirror = _keep(session, name, array, before, views[k], arrays)
        if mirror is not None:
            mirrors[k] = mirror
            views = [mirror.view(v) for v in views]
    return None


class _Values:
    """A session that reads the leaves of a state as its states."""

    def __init__(self, session: Session, value: Callable[[View], Any]) -> None:
        self._session = session
        self._value = value

    def value(self, view: View) -> Any:
        found = self._value(view)
        return Lists(self._session, found) if isinstance(found, View) else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def _keep(session: Session, name: str, array: Array, before: View, view: View, states: list[Array]) -> Mirror | None:
    """The new state goes to its array: the array of a nest in the body becomes it, anything else is written."""
    if not view.dims:
        write(session, array, session.around(), session.leaf(view.read, view.leaf))
        return None
    lengths = {d.symbol: of(b.symbol) for d, b in zip(view.dims, before.dims, strict=True)}
    for new, old in zip(view.dims, before.dims, strict=True):
        if new.length.replace(lengths) == old.length:
            continue
        if new.length.symbols() & set(lengths) or old.length.symbols() & set(lengths.values()):  # type: ignore[operator]
            raise session.g.error(
                CompilationError,
                f"the body of ft.{name} gives lists of other lengths than its state's, as far as the compiler can tell",
                code="PTO-F125",
                hint="a state keeps its lengths in a kernel",
            )
        _check(
            session,
            Condition("zero", new.length - old.length),
            f"ft.{name}: the length of a list in the state changes from {{}} to {{}}",
            "a state keeps its lengths in a kernel; eagerly they may change",
            old.length,
            new.length,
        )
    at = (*session.around(), *(of(d.symbol) for d in view.dims))
    made = view.read.array.root if isinstance(view.read, Access) else None
    if (
        isinstance(view.read, Access)
        and made is not None
        and made.argument is None
        and made.tensor is None
        and made not in states
        and len(made.dims) == len(array.dims)
        and view.read.index == at
        and made.dims[len(session.loops) - 1].symbol == session.loops[-1].symbol
    ):
        made.home = array
        return None
    mirror = mirrored(session, array, view) if made not in states else None
    if mirror is None:
        copied(session, view, array)
    return mirror


def _all(session: Session, initial: View, array: Array, n: Expr, backwards: bool, without: bool) -> View:
    """The list of all states."""
    own = initial.renamed(session.symbol)
    k = session.symbol(session.loop_name())
    at = n - 1 - of(k) if backwards else of(k)
    rest = tuple(of(d.symbol) for d in own.dims)
    if not without:
        return View((Dim(k, n), *own.dims), Access(array, (*session.around(), at, *rest)), array.leaf.listed())
    read = Choose(Condition("zero", at), own.read, Access(array, (*session.around(), at - 1, *rest)))
    return View((Dim(k, n), *own.dims), read, array.leaf.listed())


def _last(session: Session, initial: View, array: Array, count: Expr) -> View:
    """The last state: the initial one when there was no iteration."""
    own = initial.renamed(session.symbol)
    last = Access(array, (*session.around(), count - 1, *(of(d.symbol) for d in own.dims)))
    condition = Condition("zero", count)
    known = condition.known()
    read: Read = Choose(condition, own.read, last) if known is None else own.read if known else last
    return View(own.dims, read, array.leaf)


def _put_last(session: Session, structure: Structure, views: list[View], arrays: list[Array]) -> Any:
    by_array = iter(arrays)

    def value(view: View) -> Any:
        array = next(by_array)
        return session.leaf(view.read, view.leaf, final=array) if not view.dims else view

    return put_together(_Values(session, value), structure, iter(views))  # type: ignore[arg-type]
