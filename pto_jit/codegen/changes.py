# SPDX-License-Identifier: MIT
"""What a call of Python's changes: containers and arrays that it is given, and what objects of the kernel lead to.

A kernel may change its own objects, where it is decided at compile time how often that happens; statements that do are
refused before anything changes.  What functions do is seen afterwards.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen.unshared import WITHOUT_ITEMS, is_compilers

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

CONTAINERS = (list, dict, set, bytearray, deque)
_LARGEST = 1 << 20
"""Bytes of an array that is compared."""


def is_iterator(value: Any) -> bool:
    """Whether a value is an iterator of Python's own, which is another one after it was read."""
    kind = type(value)
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")


class Changes:
    """Objects that a call may reach and must not change, as they are before it."""

    def __init__(self, g: Generator, fn: Any, args: Sequence[Any]) -> None:
        self.before: list[tuple[Any, Any]] = []
        self.read = [a for a in args if is_iterator(a)] if fn is not iter else []
        """Iterators that it may read."""
        owner = getattr(fn, "__self__", None)
        if getattr(fn, "__module__", None) == "builtins" or isinstance(owner, CONTAINERS):
            return  # functions that change nothing, and methods that are known by name
        self._watch(g, [owner, *args])

    def _watch(self, g: Generator, given: list[Any]) -> None:
        todo = [(value, True) for value in given]
        seen: set[int] = set()
        while todo:
            value, direct = todo.pop()
            if isinstance(value, WITHOUT_ITEMS) or is_compilers(value) or id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, tuple):
                todo += [(item, direct) for item in value]
                continue
            owned = g.owns(value)
            if not g.may_change(value) and (owned or (direct and isinstance(value, (*CONTAINERS, np.ndarray)))):
                self.before.append((value, _contents(value)))
            if owned and g.inner is not None:
                todo += [(item, False) for item in _items(value)]

    def first(self) -> Any:
        """The first object that has changed, None if there is none; all containers are as they were again."""
        changed = [(value, before) for value, before in self.before if not _same(before, _contents(value))]
        for value, before in changed:
            _put_back(value, before)
        return changed[0][0] if changed else None


def _contents(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.nbytes <= _LARGEST and not value.dtype.hasobject else b""
    if isinstance(value, bytearray):
        return bytes(value)
    return _items(value)


def _items(value: Any) -> list[Any]:
    """What an object refers to itself: keys before values."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, CONTAINERS):
        return list(value)
    try:
        attributes = object.__getattribute__(value, "__dict__")  # which objects have in two forms
    except AttributeError:
        return gc.get_referents(value)
    return [*attributes, *attributes.values()]


def _put_back(value: Any, before: Any) -> None:
    if isinstance(value, np.ndarray) and value.nbytes == len(before):
        value[...] = np.frombuffer(before, value.dtype).reshape(value.shape)
    elif isinstance(value, (list, bytearray)):
        value[:] = before
    elif isinstance(value, dict):
        half = len(before) // 2
        value.clear()
        value.update(zip(before[:half], before[half:], strict=True))
    elif isinstance(value, set):
        value.clear()
        value.update(before)
    elif isinstance(value, deque):
        value.clear()
        value.extend(before)


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, bytes):
        return before == after
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))
