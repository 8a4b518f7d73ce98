# SPDX-License-Identifier: MIT
"""Arguments of `TaskGraph.add`: read, or refused by name before anything has changed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pto_jit.errors import ArgumentError

LEAST, MOST = -(2**63), 2**63 - 1


def refused(message: str, action: str) -> ArgumentError:
    return ArgumentError(f"PTO-A047: {message}\nhelp: {action}")


def integer(value: object, what: str, least: int = LEAST, most: int = MOST) -> int:
    """An integer of any kind (not a bool) between bounds; ArgumentError (PTO-A047) for anything else."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise refused(f"{what} is {value!r}, not an integer", "give an integer") from None
    if not least <= number <= most:
        raise refused(f"{what} is {number}", f"give an integer from {least} to {most}")
    return number


def _sequence(value: object, what: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise refused(f"{what} are {value!r}", "give a list or tuple of integers")
    return tuple(value)


def integers(values: object, what: str) -> list[int]:
    """64-bit integers; ArgumentError (PTO-A047) for anything else."""
    return [integer(value, f"element {k} of {what}") for k, value in enumerate(_sequence(values, what))]


def task_name(name: object) -> str:
    """A name that a dump can hold: printable, on one line, not empty."""
    if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
        raise refused(
            f"the name of a task is {name!r}",
            "give a string of printable characters that neither begins nor ends with a space",
        )
    return name


def task_function(function: object) -> int | Callable[[tuple[int, ...]], object] | None:
    """The address of a function, a Python function, or None."""
    if function is None or callable(function):
        return function
    if isinstance(function, bool) or not hasattr(function, "__index__"):
        raise refused(f"the function of a task is {function!r}", "give a Python function, the address of one, or None")
    return integer(function, "the address of a function", 1)


def boxes(listed: object, word: str) -> list[tuple[Any, Any, Any]]:
    """The accesses of one kind, each (array or tensor number, offsets, extents)."""
    action = f"write `{word}=[(array, offsets, extents), ...]`"
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Iterable):
        raise refused(f"`{word}` is {listed!r}", action)
    found: list[tuple[Any, Any, Any]] = []
    for box in listed:
        if not isinstance(box, (tuple, list)) or len(box) != 3:
            raise refused(f"an element of `{word}` does not have the form (array, offsets, extents)", action)
        found.append((box[0], box[1], box[2]))
    return found
