# SPDX-License-Identifier: MIT
"""Whether states keep their types: what a body gives against what it got, and elements against both for `ft.reduce`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.memory import tile_view
from pto_jit.codegen.builtins.promote import to_dtype
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Scalar, Tile, static_extent
from pto_jit.errors import CompilationError, TypeMismatchError
from pto_jit.fractal.compile.expr import Condition
from pto_jit.fractal.compile.lists import Computed, Filled, Leaf, View
from pto_jit.fractal.compile.session import Session
from pto_jit.fractal.compile.structure import Structure, taken_apart, told
from pto_jit.ir.nodes import Const

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

KEEPS = "a state keeps its type and shape (tuples, depth, leaf): cast it, or start with another initializer"


def can_associate(session: Session, structure: Structure, initial: list[View], item: Any) -> None:
    """Elements and state of `reduce` are of one type: with others no body is associative.  Raises PTO-F128."""
    found, views = taken_apart(session, item, "an element")
    if found == structure and all(_alike(a.leaf, b.leaf) for a, b in zip(initial, views, strict=True)):
        return
    state, element = told(structure, initial), told(found, views)
    raise session.g.error(
        TypeMismatchError,
        f"ft.reduce of elements of type {element} with a state of type {state}: no body of these is associative",
        code="PTO-F128",
        hint="an associative body takes two of a kind; `ft.fold` is for others",
    )


def _alike(state: Leaf, element: Leaf) -> bool:
    """Whether they may be of one type; a number of Python's has that of the elements, where it is one of theirs."""
    if state.weak and not state.extents and not element.extents:
        return element.dtype.is_float or _kind(state) == _kind(element)
    return state.same(element) or _may_be(state, element)


def agreement(
    session: Session, name: str, structure: Structure, found: Structure, initial: list[View], views: list[View]
) -> list[View] | None:
    """Check that the new state is like the old one; other initial values when numbers have to take a type, or tensors
    constant extents: see `fitted`."""
    g = session.g
    if structure != found:
        raise _changed(g, name, told(structure, initial), told(found, views))
    typed: list[View] = []
    changed = False
    for old, new in zip(initial, views, strict=True):
        if old.leaf.weak and not new.leaf.extents and new.leaf.dtype != old.leaf.dtype and not old.dims:
            value = session.leaf(old.read, old.leaf)
            number_ = to_dtype(g, g.e.to_scalar(value), new.leaf.dtype)
            fits = new.leaf.dtype.is_float or _kind(new.leaf) == _kind(old.leaf)
            if not fits or not isinstance(number_, Scalar) or not isinstance(number_.operand, Const):
                raise _changed(g, name, told(structure, initial), told(found, views))
            typed.append(View((), Computed(number_, len(session.loops) - 1), Leaf((), new.leaf.dtype)))
            changed = True
            continue
        if old.leaf.same(new.leaf) or _takes(old.leaf, new.leaf):
            typed.append(old)
        elif not old.dims and _may_be(old.leaf, new.leaf):
            typed.append(View((), old.read, new.leaf))
            changed = True
        else:
            raise _changed(g, name, told(structure, initial), told(found, views))
    return typed if changed else None


def _takes(state: Leaf, new: Leaf) -> bool:
    """Whether a number of Python's has the type of the state that it becomes."""
    if not new.weak or state.extents or new.extents:
        return False
    return _kind(state) == _kind(new) or (state.dtype.is_float and _kind(new) == "i")


def _may_be(state: Leaf, new: Leaf) -> bool:
    """Whether a tensor has the type of another one, if its run-time extents are as large as the constants of that."""
    if state.dtype != new.dtype or len(state.extents) != len(new.extents):
        return False
    return all(a == b or static_extent(a) is None for a, b in zip(state.extents, new.extents, strict=True))


def narrowed(session: Session, name: str, initial: View, new: View) -> View:
    """What the body gives with the constant extents of the initial value, where its own are known when the program
    runs: these are compared."""
    old = initial.leaf.extents
    if new.dims or initial.dims or new.leaf.extents == old or not _may_be(new.leaf, initial.leaf):
        return new
    for axis, (have, want) in enumerate(zip(new.leaf.extents, old, strict=True)):
        given, known = session.operand(have), session.operand(want)
        if given != known:
            message = f"what the body of ft.{name} gives has extent {{}} along axis {axis}, its state has {{}}"
            session.check(Condition("zero", given - known), message, KEEPS, given, known)
    value = session.leaf(new.read, new.leaf)
    assert isinstance(value, Tile)
    return session.computed(session.g.e.tile("reshape", [value.var, *old], extents=old), "a state")


def fitted(session: Session, name: str, initial: View, wanted: View) -> View:
    """An initial value of the type that `agreement` wants, in front of the loop; extents that the body knows are
    checked."""
    if wanted.leaf.extents == initial.leaf.extents:
        return wanted
    for axis, (have, want) in enumerate(zip(initial.leaf.extents, wanted.leaf.extents, strict=True)):
        given, known = session.operand(have), session.operand(want)
        if given != known:
            message = f"the initializer of ft.{name} has extent {{}} along axis {axis}, what the body gives has {{}}"
            session.check(Condition("zero", given - known), message, KEEPS, given, known)
    if isinstance(initial.read, Filled):
        return wanted
    value = session.leaf(initial.read, initial.leaf)
    starts = [index(0)] * len(wanted.leaf.extents)
    return session.computed(tile_view(session.g, value, starts, wanted.leaf.extents, ()), "an initializer")


def _kind(leaf: Leaf) -> str:
    """Truth values, integers or floats."""
    return "i" if leaf.dtype.is_integer else leaf.dtype.kind


def _changed(g: Generator, name: str, old: str, new: str) -> CompilationError:
    if name == "reduce":
        return g.error(
            TypeMismatchError,
            f"the body of ft.reduce makes {new} of two of {old}, so it is not associative",
            code="PTO-F128",
            hint="an associative body gives what it takes; `ft.fold` is for others",
        )
    return g.error(
        TypeMismatchError,
        f"the body of ft.{name} gives {new}, its state is {old}",
        code="PTO-F124",
        hint=KEEPS,
    )
