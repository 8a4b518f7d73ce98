# SPDX-License-Identifier: MIT
"""Parallel functions on NumPy values: `map`, `fold`, `scan`, `reduce` and their kin.

Each calls its body once per element, in order; results go to a fresh flat buffer.  The body gets read-only tensors
(`pl.Tensor`, so operators and `pl` functions mean what they mean in kernels), NumPy scalars, FractalTensors or tuples,
and for states what it gave before.  `schedule=` and `tile=` matter to compiled code alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pto_jit.errors import ArgumentError, ShapeError, TypeMismatchError
from pto_jit.fractal import places
from pto_jit.fractal.elements import (
    agreed,
    canonical,
    empty_list,
    is_weak,
    kind_of,
    materialised,
    stack,
    stand_in,
    zip_up,
)
from pto_jit.fractal.literals import has_weak, learned, meeting, takes, typed
from pto_jit.fractal.marking import operation
from pto_jit.fractal.places import failure
from pto_jit.fractal.plans import PLANS, TILE_HINT, tile_sizes
from pto_jit.fractal.tensor import integer
from pto_jit.fractal.trial import trial, trying
from pto_jit.fractal.types import ElementType, ListType, TensorType, TupleType, like
from pto_jit.fractal.zipped import checked_list

Body = Callable[..., Any]


def _checked(name: str, body: Any, x: Any, schedule: Any, tile: Any) -> Any:
    """The list argument of a parallel function.  Raises PTO-F021, F024, F034, F044."""
    if not callable(body):
        raise failure(TypeMismatchError, "PTO-F024", f"the body of ft.{name} is {body!r:.60}, which cannot be called",
                      "the first argument is the body: a function, a lambda, a `functools.partial`")  # fmt: skip
    if schedule not in PLANS:
        raise failure(ArgumentError, "PTO-F034", f"ft.{name}: there is no schedule {schedule!r}",
                      f"the schedules are {', '.join(repr(plan) for plan in PLANS)}")  # fmt: skip
    try:
        tile_sizes(tile)
    except ValueError:
        raise failure(ArgumentError, "PTO-F044", f"ft.{name}: tile={tile!r:.40}", TILE_HINT) from None
    return checked_list(x, f"the list of ft.{name}")


def _call(name: str, body: Body, args: Sequence[Any], kwargs: dict[str, Any], *, weak: bool = False) -> Any:
    return canonical(body(*args, **kwargs), f"what the body of ft.{name} gives", body, weak=weak)


def _tried(name: str, body: Body, call: Callable[[], Any]) -> Any:
    """What a call of the body with stand-ins gives.  Raises TypeMismatchError (PTO-F026) when it fails on them."""
    try:
        with trial():
            return call()
    except Exception as error:
        raise failure(TypeMismatchError, "PTO-F026", f"ft.{name} of an empty list: its body, called with "
                      f"zeros to learn what it gives, fails with {type(error).__name__}: {error}",
                      "let the body take zeros, or call it with elements", body=body) from error  # fmt: skip


# -- without a state ----------------------------------------------------------------------------------------------


@operation
def map(body: Body, x: Any, *, schedule: str = "auto", tile: Any = None, **kwargs: Any) -> Any:
    """The list of `body(element, **kwargs)` for every element of `x`; a body that gives a tuple gives a tuple of lists.

    Of an empty list the body is called once with zeros, to learn the type of the (empty) result.

    schedule: how the loops run in a kernel: "auto", "sequential", "wavefront" or "tasks".  tile: how many elements of
    each loop a task takes.  Outside of kernels neither matters (docs/fractal.md).

    Raises TypeMismatchError for what is not a list (PTO-F021) or cannot be called (PTO-F024), a result that is not a
    value (PTO-F022), results of different types (PTO-F025).

    >>> import pto_jit.fractal as ft
    >>> ft.map(lambda row: ft.map(lambda v: v * 2, row), ft.from_list([[1, 2], [], [3]])).leaves
    array([2, 4, 6])
    """
    x = _checked("map", body, x, schedule, tile)
    if not len(x):
        found = _tried("map", body, lambda: _call("map", body, [x.sample()], kwargs, weak=True))
        found = learned(found, [lambda: _call("map", body, [stand_in(x.kind.element, 1)], kwargs, weak=True)])
        found = canonical(found, "a stand-in")
        return empty_list(kind_of(found), found, tried=True)
    results = _Results("map", body)
    for i in range(len(x)):
        with places.element(i):
            results.add(_call("map", body, [x.element(i)], kwargs, weak=True))

    def attempt(number: int) -> Any:
        return _call("map", body, [stand_in(x.kind.element, number)], kwargs, weak=True)

    results.common = learned(results.common, [partial(attempt, k) for k in (0, 1)])
    return stack(results.alike())


class _Results:
    """What a body gives for one element after the other: values of one type."""

    def __init__(self, name: str, body: Body) -> None:
        self.name, self.body = name, body
        self.values: list[Any] = []
        self.common: Any = None  # a value of the type that all have so far
        self.weak = False  # whether Python's numbers are among them

    def add(self, value: Any) -> None:
        """Raises TypeMismatchError (PTO-F025) for a value of another type."""
        common = meeting(self.common, value) if self.values else value
        if common is None:
            raise failure(TypeMismatchError, "PTO-F025", f"the body of ft.{self.name} gives {kind_of(value)}, before "
                          f"it gave {kind_of(self.common)}", "a body gives one type for all elements",
                          body=self.body)  # fmt: skip
        self.common = common
        self.weak = self.weak or has_weak(value)
        self.values.append(value)

    def alike(self) -> list[Any]:
        """The values, of one type."""
        if self.weak:
            model = canonical(self.common, "the results")
            self.values = [typed(v, model) for v in self.values]
        found = agreed(self.values)
        assert found is not None
        return found


@operation
def filter(body: Body, x: Any, *, schedule: str = "auto", tile: Any = None, **kwargs: Any) -> Any:
    """The elements of `x` for which `body(element, **kwargs)` is true: a view.  schedule, tile: as for `map`.

    Raises as `map`, and TypeMismatchError for a body that does not give a truth value (PTO-F030).

    >>> import pto_jit.fractal as ft
    >>> ft.filter(lambda v: v > 1, ft.from_list([1, 2, 3])).leaves
    array([2, 3])
    """
    x = _checked("filter", body, x, schedule, tile)
    kept: list[int] = []
    for i in range(len(x)):
        with places.element(i):
            value = _call("filter", body, [x.element(i)], kwargs)
            if not isinstance(value, np.bool_):
                raise failure(TypeMismatchError, "PTO-F030", f"the body of ft.filter gives {kind_of(value)}, not a "
                              "truth value", "compare numbers; reduce a tile with `pl.any` or `pl.all`",
                              body=body)  # fmt: skip
        if value:
            kept.append(i)
    return x.take(np.array(kept, np.int64))


@operation
def dilated_map(body: Body, x: Any, dilation: int, *, schedule: str = "auto", tile: Any = None, **kwargs: Any) -> Any:
    """`body` of each of the lists `x[r::dilation]`, and the elements of what it gives put back in their places.

    The body takes a list and gives a list of that length, or a tuple of such; the result has the length of `x`.
    schedule, tile: as for `map`.

    Raises as `map`, ShapeError for a list of another length (PTO-F032) and for a dilation below 1 (PTO-F036).

    >>> import pto_jit.fractal as ft
    >>> ft.dilated_map(lambda part: ft.scan(lambda s, v: s + v, part), ft.from_list([1, 2, 3, 4, 5]), 2).leaves
    array([1, 2, 4, 6, 9])
    """
    x = _checked("dilated_map", body, x, schedule, tile)
    n, d = len(x), at_least(1, dilation, "the dilation of ft.dilated_map")
    if not n:
        part = zip_up(stack([x.sample()], materialise=False))
        found = _tried("dilated_map", body, lambda: _call("dilated_map", body, [part], kwargs))
        return _emptied(found, _element_of(kind_of(found), body))
    results = _Results("dilated_map", body)
    for r in range(min(d, n)):
        with places.element(r):
            part = x.take(np.arange(r, n, d, dtype=np.int64))
            value = _call("dilated_map", body, [part], kwargs)
            _element_of(kind_of(value), body)
            _same_length(value, len(part), body)
            results.add(value)
    order = np.argsort(np.concatenate([np.arange(r, n, d) for r in range(min(d, n))]))
    return _interleaved(results.alike(), order)


def _emptied(found: Any, kind: ElementType) -> Any:
    """Lists without elements, like those that a trial gave."""
    if isinstance(found, tuple):
        assert isinstance(kind, TupleType)
        return kind.make([_emptied(f, k) for f, k in zip(found, kind.items, strict=True)])
    return zip_up(empty_list(kind, found.sample(), tried=True))


def _element_of(kind: ElementType, body: Body) -> ElementType:
    """The type of the elements, when the body gives such a list (or tuple of lists).  Raises PTO-F032."""
    if isinstance(kind, ListType):
        return kind.element
    if isinstance(kind, TupleType):
        return TupleType(tuple(_element_of(item, body) for item in kind.items), kind.cls)
    raise failure(TypeMismatchError, "PTO-F032", f"the body of ft.dilated_map gives {kind}, not a list",
                  "it takes a list and gives a list of the same length", body=body)  # fmt: skip


def _same_length(value: Any, length: int, body: Body) -> None:
    for item in value if isinstance(value, tuple) else [value]:
        if isinstance(item, tuple):
            _same_length(item, length, body)
        elif len(item) != length:
            raise failure(ShapeError, "PTO-F032", f"the body of ft.dilated_map gives a list of {len(item)} for one of "
                          f"{length}", "it takes a list and gives a list of the same length", body=body)  # fmt: skip


def _interleaved(values: Sequence[Any], order: np.ndarray[Any, Any]) -> Any:
    first = values[0]
    if isinstance(first, tuple):
        return like(type(first), [_interleaved([v[k] for v in values], order) for k in range(len(first))])
    return materialised(first.joined(values[1:]).take(order))


def at_least(least: int, value: Any, what: str) -> int:
    """An integer argument that is not below `least`.  Raises PTO-F003, ShapeError (PTO-F036)."""
    number = integer(value, what)
    if number < least:
        raise failure(ShapeError, "PTO-F036", f"{what} is {number}", f"it is at least {least}")
    return number


# -- with a state -------------------------------------------------------------------------------------------------


@operation
def fold(body: Body, x: Any, *, initializer: Any = None, init: Any = None, schedule: str = "auto", tile: Any = None,
         **kwargs: Any) -> Any:  # fmt: skip
    """The last state of `state = body(state, element, **kwargs)` over the elements, from the first to the last.

    initializer (or init): the first state; without it, the first element, and the body is called for the others.  An
    empty list gives the initializer.  States keep their type: tuples, depth, leaf shape, element type; the lengths of
    lists may change.  A Python number takes the element type that the body makes of it.  schedule, tile: as for `map`.

    Raises as `map`, TypeMismatchError when the body gives a state of another type (PTO-F028), ShapeError for an empty
    list without an initializer (PTO-F027).

    >>> import pto_jit.fractal as ft
    >>> ft.fold(lambda s, v: s * 10 + v, ft.from_list([1, 2, 3]), initializer=4)
    np.int64(4123)
    """
    return _carried("fold", body, x, (initializer, init), (schedule, tile), kwargs)


@operation
def foldr(body: Body, x: Any, *, initializer: Any = None, init: Any = None, schedule: str = "auto", tile: Any = None,
          **kwargs: Any) -> Any:  # fmt: skip
    """`fold` from the last element to the first; the body is called as (state, element) here too.

    Arguments and errors are those of `fold`.

    >>> import pto_jit.fractal as ft
    >>> ft.foldr(lambda s, v: s * 10 + v, ft.from_list([1, 2, 3]))
    np.int64(321)
    """
    return _carried("foldr", body, x, (initializer, init), (schedule, tile), kwargs, backwards=True)


@operation
def scan(body: Body, x: Any, *, initializer: Any = None, init: Any = None, schedule: str = "auto", tile: Any = None,
         **kwargs: Any) -> Any:  # fmt: skip
    """All states of a `fold`, as a list of the length of `x`; the initializer is not among them.

    Without an initializer the first state is the first element.  A state that is a tuple gives a tuple of lists.
    Arguments are those of `fold`.

    Raises as `fold`; of an empty list it gives an empty one.

    >>> import pto_jit.fractal as ft
    >>> ft.scan(lambda s, v: s + v, ft.from_list([1, 2, 3])).leaves
    array([1, 3, 6])
    """
    return _carried("scan", body, x, (initializer, init), (schedule, tile), kwargs, every=True)


@operation
def scanr(body: Body, x: Any, *, initializer: Any = None, init: Any = None, schedule: str = "auto", tile: Any = None,
          **kwargs: Any) -> Any:  # fmt: skip
    """`scan` from the last element to the first: state i is that after element i and all behind it.

    Arguments and errors are those of `scan`.

    >>> import pto_jit.fractal as ft
    >>> ft.scanr(lambda s, v: s + v, ft.from_list([1, 2, 3])).leaves
    array([6, 5, 3])
    """
    return _carried("scanr", body, x, (initializer, init), (schedule, tile), kwargs, backwards=True, every=True)


@operation
def reduce(body: Body, x: Any, *, initializer: Any = None, init: Any = None, schedule: str = "auto", tile: Any = None,
           **kwargs: Any) -> Any:  # fmt: skip
    """`fold` with a body that is associative, so that it may be applied to parts of the list first.

    What is passed is a promise, but the types must allow it: initializer, elements and results have one type.
    Arguments are those of `fold`.

    Raises as `fold`, and TypeMismatchError for a body that cannot be associative by its types (PTO-F029).

    >>> import pto_jit.fractal as ft
    >>> ft.reduce(lambda a, b: a + b, ft.from_list([1, 2, 3]))
    np.int64(6)
    """
    return _carried("reduce", body, x, (initializer, init), (schedule, tile), kwargs)


foldl, scanl = fold, scan


def _carried(name: str, body: Body, x: Any, given: tuple[Any, Any], plan: tuple[Any, Any], kwargs: dict[str, Any], *,
             backwards: bool = False, every: bool = False) -> Any:  # fmt: skip
    """All functions with a state.

    every: they give all states; given: `initializer=` and `init=`; plan: `schedule=` and `tile=`.
    """
    x = _checked(name, body, x, *plan)
    order = range(len(x))[:: -1 if backwards else 1]
    states: list[Any] = []
    if given[0] is not None and given[1] is not None:
        raise failure(ArgumentError, "PTO-F033", f"ft.{name}: `initializer=` and `init=` are one thing",
                      "give one of them")  # fmt: skip
    initial = given[1] if given[0] is None else given[0]
    if initial is not None:
        state = _initial(name, initial)
    elif len(x):
        state = canonical(x.element(order[0]), "an element")
        states.append(state)
        order = order[1:]
    elif every:
        return empty_list(x.kind.element, x.sample(), tried=False)
    elif trying():
        return x.sample()
    else:
        raise failure(ShapeError, "PTO-F027", f"ft.{name} of an empty list without an initializer",
                      "give `initializer=`, the value that an empty list has")  # fmt: skip
    if name == "reduce":
        _can_associate(x, state, body)
    settled = not has_weak(state)
    for i in order:
        with places.element(i):
            new = _next(name, body, state, body(state, x.element(i), **kwargs))
        settled = settled or _kinds(new) == _kinds(state)
        state = new
        if every:
            states.append(state)
    if not settled:
        state = _settled(name, body, state, x.sample(), kwargs)
    if has_weak(state):

        def attempt(number: int) -> Any:
            return _next(name, body, state, body(state, stand_in(x.kind.element, number), **kwargs))

        state = _typed(state, learned(state, [partial(attempt, k) for k in (0, 1)]))
    if not every:
        return state
    if not states:
        state = canonical(state, "the initializer")
        return empty_list(kind_of(state), state, tried=False)
    found = agreed([canonical(_typed(s, state), "the state") for s in states[:: -1 if backwards else 1]])
    assert found is not None
    return stack(found)


def _initial(name: str, value: Any) -> Any:
    """An initializer as the body takes it; Python's numbers as they are."""
    if isinstance(value, tuple):
        return like(type(value), [_initial(name, item) for item in value])
    return value if is_weak(value) else canonical(value, f"the initializer of ft.{name}")


def _settled(name: str, body: Body, state: Any, sample: Any, kwargs: dict[str, Any]) -> Any:
    """The last state of a list too short to show the types of all numbers in it, with those that more steps make of it.

    So the types of a result do not depend on lengths.  Raises TypeMismatchError (PTO-F026) when the body fails on
    stand-ins.
    """
    while has_weak(state):
        new = _tried(name, body, lambda s=state: _next(name, body, s, body(s, sample, **kwargs)))
        made = _typed(state, new)
        if _kinds(made) == _kinds(state):
            break
        state = made
    return state


def _kinds(state: Any) -> Any:
    if isinstance(state, tuple):
        return tuple([_kinds(item) for item in state])
    return type(state) if is_weak(state) else kind_of(state)


def _typed(state: Any, model: Any) -> Any:
    """The state, its numbers of Python's having the types of what stands in their places in `model`."""
    if isinstance(state, tuple):
        return like(type(state), [_typed(a, b) for a, b in zip(state, model, strict=True)])
    if not is_weak(state):
        return state
    return type(model)(state) if is_weak(model) else model.dtype.type(state)


def _next(name: str, body: Body, old: Any, given: Any) -> Any:
    """The state that the body gave, which has the type of the old one.  Raises TypeMismatchError (PTO-F028, F029)."""
    given = _taken(old, given)
    new = canonical(given, f"what the body of ft.{name} gives", body)
    kept = _kept(old, new, given)
    if kept is not None:
        return kept
    was = kind_of(canonical(old, "the state"))
    if name == "reduce":
        raise failure(TypeMismatchError, "PTO-F029", f"the body of ft.reduce makes {kind_of(new)} of two {was}, so it "
                      "is not associative", "an associative body gives what it takes; `ft.fold` is for others",
                      body=body)  # fmt: skip
    raise failure(TypeMismatchError, "PTO-F028", f"the body of ft.{name} gives {kind_of(new)}, its state is {was}",
                  "a state keeps its type and shape: cast what the body gives, or start with another initializer",
                  body=body)  # fmt: skip


def _taken(old: Any, given: Any) -> Any:
    """What a body gave, numbers of Python's in it with the types of those that stand in their places in the state."""
    if isinstance(given, tuple) and isinstance(old, tuple) and len(given) == len(old):
        return like(type(given), [_taken(a, b) for a, b in zip(old, given, strict=True)])
    fits = is_weak(given) and isinstance(old, np.generic) and isinstance(given, bool) == isinstance(old, np.bool_)
    return typed(given, old) if fits and takes(old, given) else given


def _kept(old: Any, new: Any, given: Any) -> Any:
    """The new state as one of the old one's type, or None where it has another.

    A number of Python's in a state stays one for as long as the body makes such numbers of it; then it takes the
    element type of what the body gives.
    """
    if not has_weak(old):
        both = agreed([old, new])
        return None if both is None else both[1]
    if not isinstance(old, tuple):
        return (given if is_weak(given) else new) if _takes(old, new) else None
    if type(old) is not type(new) or len(old) != len(new):
        return None
    items = [_kept(*of) for of in zip(old, new, given, strict=True)]
    return None if any(item is None for item in items) else like(type(old), items)


def _takes(old: Any, new: Any) -> bool:
    """Whether a state with numbers of Python's in it can be of the type of `new`."""
    if isinstance(old, tuple):
        return type(old) is type(new) and len(old) == len(new) and all(
            _takes(a, b) for a, b in zip(old, new, strict=True))  # fmt: skip
    if not is_weak(old):
        return kind_of(old) == kind_of(new)
    kind = kind_of(new)
    if not isinstance(kind, TensorType) or kind.shape:
        return False
    return kind.dtype.is_float or kind.dtype.kind in {bool: "b", int: "iu", float: ""}[type(old)]


def _can_associate(x: Any, state: Any, body: Body) -> None:
    """Elements and state of `reduce` are of one type.  Raises TypeMismatchError (PTO-F029)."""
    element = x.kind.element
    sample = canonical(x.sample(), "an element")
    if not _takes(state, sample) and agreed([sample, canonical(state, "the initializer")]) is None:
        raise failure(TypeMismatchError, "PTO-F029", f"ft.reduce of a list of {element} with an initializer of type "
                      f"{kind_of(canonical(state, 'the initializer'))}: no body of these is associative",
                      "an associative body takes two of a kind; `ft.fold` is for others", body=body)  # fmt: skip
