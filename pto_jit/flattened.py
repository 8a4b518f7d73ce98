# SPDX-License-Identifier: MIT
"""Calls with FractalTensors without the slow path: their arrays are the arguments of dispatchers.

A `Dispatcher` knows arrays and numbers, not lists.  A list is its leaves and the offsets of its levels, so a call with
lists is one with these in their places, and with the arrays of tuples of lists and arrays in theirs; there is a
dispatcher for each way in which these stand among the arguments, which knows the kernels that such calls have found on
the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from pto_jit.failures import fail
from pto_jit.fractal.tensor import FractalTensor
from pto_jit.kernel import Kernel
from pto_jit.reading import Arguments
from pto_jit.runtime import Dispatcher, Entry

Place = tuple[Any, ...]
"""How an argument stands among arrays: so many, of a list, and the extents of its leaves; OTHER or ONE_ROW, and the
extents of an array but the first one; `tuple`, and the places in it.

A kernel with lists is made for these extents, so calls that differ in them have dispatchers of their own.
"""
OTHER = 0  # an array, or what a dispatcher knows besides
ONE_ROW = -1  # an array whose first extent is 1, for which kernels with lists are made
NO_ARRAY: Place = (OTHER, ())


class Flattened:
    """The dispatchers of one function."""

    def __init__(self, signature: Signature) -> None:
        self._known: dict[tuple[Place, ...], Dispatcher] = {}
        self._parameters = tuple(signature.parameters.values())
        self._plain = all(p.kind is Parameter.POSITIONAL_OR_KEYWORD for p in self._parameters)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The result of a call; NotImplemented, and nothing was run, when the slow path has to decide."""
        __tracebackhide__ = True
        values: Sequence[Any] | None = args
        if kwargs or len(args) < len(self._parameters):
            values = self._bound(args, kwargs or {})
            if values is None:
                return NotImplemented
        places, flat = _flat(values)
        known = self._known.get(places)
        return NotImplemented if known is None else known(*flat)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The values of all parameters; None for what `Signature.bind` has to look at."""
        if not self._plain:
            return None
        values, named = list(args), 0
        for p in self._parameters[len(args) :]:
            if p.name in kwargs:
                values.append(kwargs[p.name])
                named += 1
            elif p.default is not Parameter.empty:
                values.append(p.default)
            else:
                return None
        return values if named == len(kwargs) else None

    def register(
        self,
        values: Sequence[Any],
        call: Arguments,
        kernel: Kernel,
        guards: Sequence[Any],
        convert: Callable[[Any], Any] | None,
    ) -> None:
        """Let later calls with such values run `kernel`, where the kinds of the arguments decide everything."""
        if call.extents:
            return  # of symbols in annotations
        places, flat = _flat(values)
        plan: list[str] = []
        for place, mine in zip(places, call.plan, strict=True):
            if mine is not None:
                plan.append(mine)
                continue
            if place[0] in (OTHER, ONE_ROW):
                return
            for size in _sizes(place):
                lists = flat[len(plan) : len(plan) + max(size, 0)]
                if not all(x.flags.c_contiguous for x in lists):
                    return  # copies of them are what the kernel gets
                plan += ["tensor"] * max(size, 1)
        if places not in self._known:
            self._known[places] = Dispatcher([f"a{k}" for k in range(len(flat))], _unknown)
        self._known[places].register(tuple(flat), _entry(kernel, places), plan, tuple(guards), convert)

    def clear(self) -> None:
        """Forget all kernels."""
        for known in self._known.values():
            known.clear()


def _unknown(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    return NotImplemented


def _flat(args: Sequence[Any]) -> tuple[tuple[Place, ...], list[Any]]:
    """The place of each argument, and the arguments with the arrays of lists and tuples."""
    flat: list[Any] = []
    return tuple([_place(value, flat) for value in args]), flat


def _place(value: Any, flat: list[Any]) -> Place:
    if type(value) is FractalTensor:
        flat.append(value.leaves)
        flat += value.offsets
        return 1 + len(value.offsets), value.leaves.shape[1:]
    if type(value) is tuple and _is_of_arrays(value):
        return (tuple, *[_place(item, flat) for item in value])
    flat.append(value)
    shape = getattr(value, "shape", ())
    return (ONE_ROW if len(shape) > 1 and shape[0] == 1 else OTHER, shape[1:]) if shape else NO_ARRAY


def _is_of_arrays(value: tuple[Any, ...]) -> bool:
    """Whether a tuple has nothing but lists, arrays and such tuples: numbers in it would be compile-time values."""
    return all(type(v) in (FractalTensor, np.ndarray) or (type(v) is tuple and _is_of_arrays(v)) for v in value)


def _sizes(place: Place) -> Iterator[int]:
    """The lists and arrays as they follow each other."""
    if place[0] is tuple:
        for item in place[1:]:
            yield from _sizes(item)
    else:
        yield place[0]


def _entry(kernel: Kernel, places: tuple[Place, ...]) -> Entry:
    """The entry of a kernel for flattened arguments: a failure is told of the lists."""
    own = kernel.entry

    def failed(holder: Kernel, site: int, v0: int, v1: int, v2: int, args: tuple[Any, ...], *more: Any) -> None:
        __tracebackhide__ = True
        rest = iter(args)

        def value(place: Place) -> Any:
            if place[0] is tuple:
                return tuple(map(value, place[1:]))
            if place[0] in (OTHER, ONE_ROW):
                return next(rest)
            return FractalTensor((next(rest),), None, [next(rest) for _ in range(place[0] - 1)])

        fail(holder, site, v0, v1, v2, tuple(map(value, places)), *more)

    return Entry(
        own.runtime,
        own.address,
        own.results,
        holder=kernel,
        on_failure=failed,
        keep_gil_below=own.keep_gil_below,
        max_threads=own.max_threads,
    )
