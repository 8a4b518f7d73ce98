# SPDX-License-Identifier: MIT
"""Calls with tuples, lists, dicts and objects without the slow path.

The arrays in them are arguments of a kernel and everything else is known at compile time.  So the form of such a call
is the kinds of its containers, their keys and attributes, and the numbers and strings in them by value; functions and
objects of C classes are told by their identity, classes by the guards that the slow path found.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Iterator, Sequence
from inspect import Signature
from typing import Any

import numpy as np

from pto_jit.codegen.fingerprint import slots_of
from pto_jit.dtypes import DType
from pto_jit.objects import is_opaque
from pto_jit.reading import Arguments
from pto_jit.runtime.tensors import is_torch
from pto_jit.slotted import frozen
from pto_jit.source import METHODS
from pto_jit.unpacked import Unpacked

_PLAIN = frozenset({int, bool, str, bytes, types.NoneType})
_IDENTICAL = (DType, enum.Enum, np.dtype, type, types.FunctionType, types.BuiltinFunctionType, functools.partial,
              np.ufunc)  # fmt: skip
_UNKNOWN = (*METHODS, types.ModuleType, np.generic, np.ndarray, str, bytes, bytearray, int, float, complex, set,
            frozenset, range, slice)  # fmt: skip
_TOP = None
"""The form of an argument that is not a container."""


@frozen
class _Kind:
    """What a class says about its objects.  how: "array", "same" (told by identity), "items", "mapping", "attributes"
    (of which `fields` come first), or "unknown"."""

    how: str
    fields: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()

    @property
    def contains(self) -> bool:
        return self.how in ("items", "mapping", "attributes")


class Unreadable(Exception):
    """The slow path has to read this."""


class Aggregates(Unpacked):
    """The dispatchers of one function; `method`: its first argument is `self`, an object by its attributes."""

    def __init__(self, signature: Signature, method: bool) -> None:
        super().__init__(signature)
        self._method = method
        self._kinds: dict[type, _Kind] = {}

    def unpack(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
        flat: list[Any] = []
        try:
            return tuple([self._top(value, flat, self._method and k == 0) for k, value in enumerate(values)]), flat
        except Unreadable:
            return None

    def plan(self, values: Sequence[Any], flat: Sequence[Any], call: Arguments) -> list[str] | None:
        plan: list[str] = []
        for k, (value, mine) in enumerate(zip(values, call.plan, strict=True)):
            inside: list[Any] = []
            form = self._top(value, inside, self._method and k == 0)
            if self._is_plain(form) != (mine is not None):
                return None  # read otherwise than it is here
            plan += [mine] if mine is not None else ["tensor" if self._is_array(v) else "static" for v in inside]
        arrays = [v for v, mine in zip(flat, plan, strict=True) if mine == "tensor"]
        owners = call.owners
        same = len(arrays) == len(owners) and all(a is b for a, b in zip(arrays, owners, strict=True))
        return plan if same else None

    def again(self, form: tuple[Any, ...], flat: Iterator[Any]) -> tuple[Any, ...]:
        return ()  # the sizes of arguments are told of what has a name, and these are many or none

    def _is_plain(self, form: Any) -> bool:
        """Whether an argument of this form is passed as it is."""
        return form is _TOP

    def _is_array(self, value: Any) -> bool:
        return type(value) is np.ndarray or self._kind(value).how == "array"

    def _top(self, value: Any, flat: list[Any], is_self: bool) -> Any:
        """The form of an argument."""
        kind = type(value)
        if kind in (np.ndarray, float, int) or not (is_self or self._kind(value).contains):
            flat.append(value)
            return _TOP
        if is_self and not is_opaque(value):
            return self._attributes(value, _attributes(kind), flat, [value])
        return self._form(value, flat, [])

    def _form(self, value: Any, flat: list[Any], path: list[Any]) -> Any:
        """The form of something in the containers of `path`."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind is float:  # -0.0 equals 0.0, and NaN nothing
            return kind, value if value and value == value else repr(value)
        if kind is np.ndarray:
            flat.append(value)
            return kind
        what = self._kind(value)
        if what.how == "unknown" or any(around is value for around in path):
            raise Unreadable
        if not what.contains:
            flat.append(value)
            return kind
        path.append(value)
        if what.how == "attributes":
            form = self._attributes(value, what, flat, path)
        elif what.how == "items":
            form = (kind, *[self._form(item, flat, path) for item in value])
        else:
            form = (kind, *[self._form(part, flat, path) for item in value.items() for part in item])
        path.pop()
        return form

    def _attributes(self, value: Any, what: _Kind, flat: list[Any], path: list[Any]) -> Any:
        """The form of an object: its attributes in the order of `objects.attributes_of`."""
        found: list[Any] = [type(value)]
        for name in what.fields:
            if hasattr(value, name):
                found += name, self._form(getattr(value, name), flat, path)
        for name, item in getattr(value, "__dict__", {}).items():
            if name not in what.fields:
                found += name, self._form(item, flat, path)
        for name in what.slots:
            if hasattr(value, name):
                found += name, self._form(getattr(value, name), flat, path)
        return tuple(found)

    def _kind(self, value: Any) -> _Kind:
        cls = type(value)
        known = self._kinds.get(cls)
        if known is None:
            known = self._kinds[cls] = _read_kind(value, cls)
        return known


def _read_kind(value: Any, cls: type) -> _Kind:
    """How `reading.Reader` reads the objects of a class."""
    if isinstance(value, _IDENTICAL):
        return _Kind("same")
    lists = sys.modules.get("pto_jit.fractal.tensor")
    if isinstance(value, _UNKNOWN) or (lists is not None and cls is lists.FractalTensor):
        return _Kind("unknown")
    if isinstance(value, (tuple, list)):
        return _Kind("items")
    if isinstance(value, dict):
        return _Kind("mapping")
    if is_torch(cls):
        return _Kind("array")
    if _may_be_tensor(value, cls):
        return _Kind("unknown")
    if is_opaque(value) or (callable(value) and not dataclasses.is_dataclass(value)):
        return _Kind("same")
    return _attributes(cls)


def _attributes(cls: type) -> _Kind:
    fields = tuple(f.name for f in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else ()
    return _Kind("attributes", fields, tuple(dict.fromkeys(n for n in slots_of(cls) if n not in fields)))


def _may_be_tensor(value: Any, cls: type) -> bool:
    """Whether the slow path might take something for a tensor."""
    if any(hasattr(cls, name) for name in ("__array_interface__", "__array_struct__", "__dlpack__")):
        return True
    try:
        memoryview(value)
    except (TypeError, BufferError, ValueError):
        return False
    return True
