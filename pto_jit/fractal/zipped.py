# SPDX-License-Identifier: MIT
"""`Zipped`: a list of tuples that is not materialised, and `ft.zip`, which makes it and takes it apart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from opcode import opmap
from types import CodeType, FrameType
from typing import Any

import numpy as np

from pto_jit.errors import CompilationError, ShapeError, TypeMismatchError
from pto_jit.fractal.marking import operation
from pto_jit.fractal.places import failure
from pto_jit.fractal.tensor import Array, FractalTensor, position, sliced
from pto_jit.fractal.trial import trying
from pto_jit.fractal.types import ElementType, ListType, TupleType

# what to do with lists that a kernel cannot take as they are
PASS_LISTS = "pass FractalTensors to the kernel, and zip them there: `ft.zip(a, b)`"


class Zipped:
    """A list whose elements are tuples: lists of one length side by side, none of them copied.

    Made by `ft.zip` and `ft.enumerate`, and by access operations on such lists; every operation on lists takes it.
    `ft.zip(*z)` gives the tuple of the lists.
    """

    __slots__ = ("_levels", "_parts")

    def __init__(self, parts: tuple[FractalTensor | Zipped, ...], levels: int = 1) -> None:
        """For this package.  levels: how many levels of lists stand around the tuples; they are alike in all parts."""
        self._parts = parts
        self._levels = levels

    @property
    def parts(self) -> tuple[FractalTensor | Zipped, ...]:
        """The lists side by side."""
        return self._parts

    @property
    def levels(self) -> int:
        """Levels of lists around the tuples: 1, more for lists of zipped lists (`ft.slide` of one)."""
        return self._levels

    @property
    def depth(self) -> int:
        """Levels of lists down to the tensors of the first part."""
        return self._parts[0].depth

    @property
    def kind(self) -> ListType:
        """The type: a list of tuples."""
        items: list[ElementType] = []
        for part in self._parts:
            kind: ElementType = part.kind
            for _ in range(self._levels):
                assert isinstance(kind, ListType)
                kind = kind.element
            items.append(kind)
        found: ElementType = TupleType(tuple(items))
        for _ in range(self._levels):
            found = ListType(found)
        assert isinstance(found, ListType)
        return found

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, index: Any) -> Any:
        """The tuple (or zipped list) at `index`; for a slice, the list of those."""
        if isinstance(index, slice):
            return self.take(sliced(index, len(self)))
        if not len(self) and trying():
            return self.sample()
        return self.element(position(index, len(self)))

    def __pto_refuse_item__(self, generator: Any) -> CompilationError:
        return of_the_surrounding_code(generator, self, "a run-time index of")

    def __iter__(self) -> Iterator[Any]:
        _note(self, sys._getframe(1))
        return map(self.element, range(len(self)))

    def element(self, i: int) -> Any:
        """Element `i`, which is in range."""
        items = tuple(part.element(i) for part in self._parts)
        return items if self._levels == 1 else Zipped(items, self._levels - 1)

    def sample(self) -> Any:
        """A value like the elements: the first one, or for an empty list a stand-in."""
        items = tuple(part.sample() for part in self._parts)
        return items if self._levels == 1 else Zipped(items, self._levels - 1)

    def take(self, index: Array) -> Zipped:
        """The elements at the positions `index` (int64, in range), in that order: a view."""
        return Zipped(tuple(part.take(index) for part in self._parts), self._levels)

    def nest(self, offsets: Array, sample: Any = None) -> Zipped:
        """The elements as the elements of lists that start and end at `offsets`: a view, one level deeper."""
        samples = (None,) * len(self._parts) if sample is None else sample.parts
        parts = tuple(part.nest(offsets, samples[k]) for k, part in enumerate(self._parts))
        return Zipped(parts, self._levels + 1)

    def flat(self, levels: int) -> Zipped:
        """The outermost `levels` levels as one: a view."""
        return Zipped(tuple(part.flat(levels) for part in self._parts), self._levels - levels + 1)

    def joined(self, others: Any) -> Zipped:
        """The elements of this list, then those of others of the same type."""
        parts = tuple(part.joined([o.parts[k] for o in others]) for k, part in enumerate(self._parts))
        return Zipped(parts, self._levels)

    def tolist(self) -> list[Any]:
        """Nested Python lists of tuples."""
        return [_plain(self.element(i)) for i in range(len(self))]

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self._parts))
        return f"Zipped({inner}{f', levels={self._levels}' if self._levels > 1 else ''})"


def _plain(item: Any) -> Any:
    if isinstance(item, tuple):
        return tuple(map(_plain, item))
    if isinstance(item, (FractalTensor, Zipped)):
        return item.tolist()
    return np.array(item) if isinstance(item, np.ndarray) else item


# -- zip ----------------------------------------------------------------------------------------------------------
#
# `ft.zip(*z)` must give the parts of `z` whatever its length, and an empty one leaves no arguments.  Python iterates
# over `z` within the very instruction that makes the call; the iteration is noted with its frame and instruction, and a
# call from the same place takes the parts of what was noted.

_noted: ContextVar[tuple[Zipped, int, CodeType, int] | None] = ContextVar("the zipped list iterated last", default=None)


_CALL_WITH_STAR = opmap.get("CALL_FUNCTION_EX")


def _note(z: Zipped, frame: FrameType) -> None:
    """Note an iteration by the call with `*` at which the frame stands; other iterations, of loops, are not noted."""
    if frame.f_code.co_code[frame.f_lasti] == _CALL_WITH_STAR:
        _noted.set((z, id(frame), frame.f_code, frame.f_lasti))


def _spread(frame: FrameType, count: int) -> Zipped | None:
    """The zipped list that is spread over all the arguments of the call made at the frame's present instruction."""
    noted = _noted.get()
    _noted.set(None)
    if noted is None:
        return None
    z, *place = noted
    here = place == [id(frame), frame.f_code, frame.f_lasti]
    return z if here and len(z) == count and z.levels == 1 else None


@operation
def zip(*lists: Any) -> Any:
    """The list of tuples of the elements of `lists`, which have one length; nothing is copied.

    `ft.zip(*z)` of a zipped list of any length gives its lists, as a tuple.

    Raises ShapeError for lists of different lengths (PTO-F020), TypeMismatchError for what is not a list (PTO-F021).

    >>> import numpy as np, pto_jit.fractal as ft
    >>> z = ft.zip(ft.from_list([1, 2]), ft.from_list([0.5, 1.5]))
    >>> z[1]
    (np.int64(2), np.float64(1.5))
    >>> [x.tolist() for x in ft.zip(*z)]
    [[np.int64(1), np.int64(2)], [np.float64(0.5), np.float64(1.5)]]
    """
    spread = _spread(sys._getframe(1), len(lists))
    if spread is not None:
        return spread.parts
    if not lists:
        raise failure(TypeMismatchError, "PTO-F021", "ft.zip of nothing", "give lists, or `*z` of one zipped list")
    if all(isinstance(x, tuple) for x in lists):
        from pto_jit.fractal.elements import stack_tuples

        return stack_tuples(lists)
    return zipped(lists, "ft.zip")


def zipped(lists: tuple[Any, ...], what: str) -> Zipped:
    """Lists side by side.  Raises as `zip`."""
    for k, x in enumerate(lists):
        checked_list(x, f"argument {k + 1} of {what}")
    lengths = [len(x) for x in lists]
    if len(set(lengths)) > 1:
        shown = ", ".join(map(str, lengths))
        raise failure(ShapeError, "PTO-F020", f"{what} of lists of different lengths: {shown}",
                      "all have one length: take a part of the longer ones with `ft.slice`")  # fmt: skip
    return Zipped(lists)


def checked_list(x: Any, what: str) -> Any:
    """A list argument.  Raises TypeMismatchError (PTO-F021)."""
    if isinstance(x, (FractalTensor, Zipped)):
        return x
    hint = "give a FractalTensor: `ft.slices(x, axis)` of a tensor, `ft.from_list(x)` of Python's list"
    if isinstance(x, tuple):
        hint = "a tuple of lists becomes a list of tuples by `ft.zip(*x)`"
    raise failure(TypeMismatchError, "PTO-F021", f"{what} is {_described(x)}, not a FractalTensor", hint)


def _described(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"a tensor of shape {list(x.view(np.ndarray).shape)}"
    if isinstance(x, tuple):
        return f"a tuple of {len(x)}"
    return "a Python list" if isinstance(x, list) else f"{x!r:.60}"


def of_the_surrounding_code(generator: Any, value: FractalTensor | Zipped, what: str) -> CompilationError:
    """The error for a list that a kernel captures; arguments are `Lists`."""
    text = f"{what} a {type(value).__name__} of the surrounding code"
    return generator.error(TypeMismatchError, text, code="PTO-F100", hint=PASS_LISTS)
