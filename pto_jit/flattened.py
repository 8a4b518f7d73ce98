# SPDX-License-Identifier: MIT
"""Calls with FractalTensors without the slow path.

A list is its leaves and the offsets of its levels, so a call with lists is one with these in their places, and with the
arrays of its containers in theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pto_jit.aggregates import Aggregates, Unreadable
from pto_jit.fractal.tensor import FractalTensor

Place = tuple[Any, ...]
"""How an argument, or a value in a container, stands among arrays: so many, of a list, and the extents of its leaves;
OTHER or ONE_ROW, and the extents of an array but the first one.  Containers have the forms of `Aggregates`.

A kernel with lists is made for these extents, so calls that differ in them have dispatchers of their own.
"""
OTHER = 0  # an array, or what a dispatcher knows besides
ONE_ROW = -1  # an array whose first extent is 1, for which kernels with lists are made
NO_ARRAY: Place = (OTHER, ())
_PLACED = frozenset({FractalTensor, np.ndarray})


class Flattened(Aggregates):
    """The dispatchers of one function."""

    def unpack(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
        flat: list[Any] = []
        method = self._method
        try:
            places = [
                _place(value, flat) if type(value) in _PLACED else self._top(value, flat, method and k == 0)
                for k, value in enumerate(values)
            ]
        except Unreadable:
            return None
        return tuple(places), flat

    def again(self, form: tuple[Any, ...], flat: Iterator[Any]) -> tuple[Any, ...]:
        return tuple(_value(place, flat) for place in form)

    def _top(self, value: Any, flat: list[Any], is_self: bool) -> Any:
        if type(value) in _PLACED:
            return _place(value, flat)
        if is_self or self._kind(value).contains:
            return super()._top(value, flat, is_self)
        return _place(value, flat)

    def _form(self, value: Any, flat: list[Any], path: list[Any]) -> Any:
        if type(value) in _PLACED:
            return _place(value, flat)
        if self._is_array(value):  # its extents would be part of the form
            raise Unreadable
        return super()._form(value, flat, path)

    def _is_plain(self, form: Any) -> bool:
        return type(form) is tuple and form[0] in (OTHER, ONE_ROW)


def _place(value: Any, flat: list[Any]) -> Place:
    if type(value) is FractalTensor:
        flat.append(value.leaves)
        flat += value.offsets
        return 1 + len(value.offsets), value.leaves.shape[1:]
    flat.append(value)
    shape = getattr(value, "shape", ())
    return (ONE_ROW if len(shape) > 1 and shape[0] == 1 else OTHER, shape[1:]) if shape else NO_ARRAY


def _value(form: Any, flat: Iterator[Any]) -> Any:
    """What stood there, as far as it is arrays."""
    if not isinstance(form, tuple):
        return next(flat) if isinstance(form, type) else None
    head = form[0]
    if not isinstance(head, int):
        return tuple(_value(part, flat) for part in form[1:])
    if head in (OTHER, ONE_ROW):
        return next(flat)
    return FractalTensor((next(flat),), None, [next(flat) for _ in range(head - 1)])
