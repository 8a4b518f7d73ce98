# SPDX-License-Identifier: MIT
"""The marks by which the compiler recognises the language's functions, kernels and in-core functions."""

from __future__ import annotations

import types
from typing import Any


def mark(value: Any, name: str) -> Any:
    """What the package marked a value with under a name such as `__pto_builtin__`, or None.

    Objects of the user's may answer any question in their `__getattr__`: they are not asked.
    """
    kind = type(value)
    if kind is types.FunctionType:
        return value.__dict__.get(name)
    if kind is types.MethodType:
        return mark(value.__func__, name)
    if isinstance(value, type):
        return _in_classes(value, name)
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        own = {}
    if name in own:
        return own[name]
    return None if _in_classes(kind, name) is None else getattr(value, name)


def _in_classes(cls: type, name: str) -> Any:
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)
