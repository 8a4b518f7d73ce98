# SPDX-License-Identifier: MIT
"""What a call made: the objects that only its result leads to.

A function may return what it made, or what exists anyway: an item of the user's dict, what a cache keeps.  A kernel may
change the first, as nobody else sees it.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from sys import getrefcount
from typing import Any

WITHOUT_ITEMS = (
    int, float, complex, str, bytes, range, slice, type(None), type(...), type(NotImplemented), type,
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip
_MOST = 5000
"""How many objects are looked at: a result that leads to more has parts of something that exists anyway."""


_held_by_list = 0
_held_by_callers = 0
"""References that measuring adds itself: whether passing a value on does is different from one version to the next."""


def unshared(value: Any) -> list[Any]:
    """`value`, which its caller has in a variable and nowhere else, and what it leads to, without what is referred to
    from elsewhere.

    As CPython's garbage collector does, it counts the references that objects have from each other: one that has more
    is reached from elsewhere, and so is whatever it leads to.
    """
    if is_compilers(value):
        return [value]
    found: list[Any] = [value]
    numbers = {id(value): 0}
    inside = [0]  # references from other objects found
    leads: list[list[int]] = []
    for at in _numbers_of(found):
        to: list[int] = []
        for item in gc.get_referents(found[at]):
            if isinstance(item, WITHOUT_ITEMS) or is_compilers(item):
                continue
            number = numbers.get(id(item))
            if number is None:
                number = numbers[id(item)] = len(found)
                found.append(item)
                inside.append(0)
            inside[number] += 1
            to.append(number)
        leads.append(to)
    item = None  # a reference of its own
    if len(leads) < len(found):
        found, leads = [value], [[]]
    inside[0] += _held_by_callers
    outside = [at for at in range(len(found)) if _references(found, at) > inside[at]]
    shared: set[int] = set()
    while outside:
        at = outside.pop()
        if at not in shared:
            shared.add(at)
            outside += leads[at]
    return [found[at] for at in range(len(found)) if at not in shared]


def is_compilers(value: Any) -> bool:
    """Whether an object is of the compiler, all of which it may lead to."""
    return str(type(value).__module__).startswith("pto_jit.")


def _numbers_of(items: list[Any]) -> Iterator[int]:
    """The numbers of the items of a list that grows meanwhile."""
    at = 0
    while at < min(len(items), _MOST):
        yield at
        at += 1


def _references(items: list[Any], at: int) -> int:
    """How many there are to an item, without that of the list."""
    return getrefcount(items[at]) - _held_by_list


def _calibrate() -> None:
    global _held_by_list, _held_by_callers
    _held_by_list = _references([[]], 0)
    value: list[Any] = []
    while not unshared(value):
        _held_by_callers += 1


_calibrate()
