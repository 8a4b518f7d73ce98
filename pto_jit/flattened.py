# SPDX-License-Identifier: MIT
"""Calls with FractalTensors without the slow path.

A list is its leaves and the offsets of its levels, so a call with lists is one with these in their places, and with the
arrays of tuples of lists and arrays in theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pto_jit.fractal.tensor import FractalTensor
from pto_jit.reading import Arguments
from pto_jit.unpacked import Unpacked

Place = tuple[Any, ...]
"""How an argument stands among arrays: so many, of a list, and the extents of its leaves; OTHER or ONE_ROW, and the
extents of an array but the first one; `tuple`, and the places in it.

A kernel with lists is made for these extents, so calls that differ in them have dispatchers of their own.
"""
OTHER = 0  # an array, or what a dispatcher knows besides
ONE_ROW = -1  # an array whose first extent is 1, for which kernels with lists are made
NO_ARRAY: Place = (OTHER, ())


class Flattened(Unpacked):
    """The dispatchers of one function."""

    def unpack(self, values: Sequence[Any]) -> tuple[tuple[Place, ...], list[Any]]:
        """The place of each argument, and the arguments with the arrays of lists and tuples."""
        flat: list[Any] = []
        return tuple([_place(value, flat) for value in values]), flat

    def plan(self, values: Sequence[Any], flat: Sequence[Any], call: Arguments) -> list[str] | None:
        plan: list[str] = []
        for value, mine in zip(values, call.plan, strict=True):
            if mine is not None:
                plan.append(mine)
                continue
            place = _place(value, [])
            if place[0] in (OTHER, ONE_ROW):
                return None
            for size in _sizes(place):
                lists = flat[len(plan) : len(plan) + max(size, 0)]
                if not all(x.flags.c_contiguous for x in lists):
                    return None  # copies of them are what the kernel gets
                plan += ["tensor"] * max(size, 1)
        return plan

    def again(self, form: tuple[Place, ...], flat: Iterator[Any]) -> tuple[Any, ...]:
        def value(place: Place) -> Any:
            if place[0] is tuple:
                return tuple(map(value, place[1:]))
            if place[0] in (OTHER, ONE_ROW):
                return next(flat)
            return FractalTensor((next(flat),), None, [next(flat) for _ in range(place[0] - 1)])

        return tuple(map(value, form))


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
