# SPDX-License-Identifier: MIT
"""Objects as compile-time arguments: their attributes, their classes, and references back to what contains them."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.fingerprint import Fingerprint, fingerprint, holds, slots_of
from pto_jit.errors import TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.reading import Arguments


class BackReference:
    """What the compiler gets for a reference from an object to one that contains it (`layer.model`).

    Plain values of the object can be read through it; what may be a tensor cannot, since the tensors of a call are
    those found on the way down.
    """

    __slots__ = ("_target",)

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(object.__getattribute__(self, "_target"), name)
        if isinstance(value, (bool, int, float, complex, str, bytes, types.NoneType, types.FunctionType)):
            return value
        raise TypeMismatchError(
            f"`{name}` is reached through a reference back to an object that contains this one",
            code="PTO-A014",
            hint="tensors and objects are found on the way down: pass it as an argument, or make it an attribute here",
        )


def is_opaque(value: Any) -> bool:
    """Whether there is nothing to compare but identity: objects of C classes and of Python's own library.

    Looking into a logger or a lock would find the whole process.
    """
    cls = type(value)
    if isinstance(value, types.SimpleNamespace):
        return False
    in_python = hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in cls.__mro__)
    return not in_python or cls.__module__.split(".")[0] in sys.stdlib_module_names - {"__main__"}


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes an object holds itself, by name: fields, `__dict__` and slots."""
    seen: set[str] = set()
    if dataclasses.is_dataclass(value):
        for item in dataclasses.fields(value):
            if hasattr(value, item.name):
                seen.add(item.name)
                yield item.name, getattr(value, item.name)
    for name, item in list(getattr(value, "__dict__", {}).items()):
        if name not in seen:
            yield name, item
    for name in slots_of(type(value)):
        if name not in seen and hasattr(value, name):
            seen.add(name)
            yield name, getattr(value, name)


_classes: dict[type, Fingerprint] = {}


def class_print(cls: type, call: Arguments) -> Any:
    """The key of a class, whose methods and attributes a kernel may use; remembered while nothing in it changes."""
    found = _classes.get(cls)
    if found is None or found.mutable or not holds(found.guards):
        if len(_classes) >= 256:
            _classes.clear()
        found = _classes[cls] = fingerprint(cls)
    call.prints.append(found)
    call.local |= found.local
    return ("class", found.digest)
