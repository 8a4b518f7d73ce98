# SPDX-License-Identifier: MIT
"""`@frozen` and `@mutable`: dataclasses whose definition costs a fifth, because every process pays for all of them.

The standard decorator compiles each method of a class by itself.  Here `__init__`, `__eq__` and `__hash__` are compiled
together, and the rest are functions shared by all classes.  `dataclasses.fields`, `replace` and `asdict` work on both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, replace
from typing import Any, TypeVar, dataclass_transform, overload

__all__ = ["field", "frozen", "mutable", "replace"]

T = TypeVar("T")


@overload
def frozen(cls: type[T], /) -> type[T]: ...
@overload
def frozen(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type | None = None, /, *, eq: bool = True) -> Any:
    """A class of immutable, slotted values, compared and hashed by their fields (by identity with `eq=False`)."""
    if cls is None:
        return lambda cls: _define(cls, True, eq)
    return _define(cls, True, eq)


@overload
def mutable(cls: type[T], /) -> type[T]: ...
@overload
def mutable(*, eq: bool = True) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type | None = None, /, *, eq: bool = True) -> Any:
    """A class of slotted, mutable records; `eq=False` compares them by identity and lets them be keys."""
    if cls is None:
        return lambda cls: _define(cls, False, eq)
    return _define(cls, False, eq)


def _define(cls: Any, immutable: bool, eq: bool) -> Any:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise dataclass() computes a signature to put there
    cls = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    fields = dataclasses.fields(cls)
    _methods(cls, fields, immutable, eq)
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr
    if immutable:
        cls.__setattr__ = _setattr
        cls.__delattr__ = _delattr
        cls.__reduce__ = _reduce
    if eq and not immutable:
        cls.__hash__ = None
    return cls


def _methods(cls: type, fields: tuple[Field[Any], ...], immutable: bool, eq: bool) -> None:
    """Compile the methods that name the fields."""
    # the slot's own setter: quicker than `object.__setattr__`, and not stopped by a frozen class
    names: dict[str, Any] = {f"_set_{f.name}": getattr(cls, f.name).__set__ for f in fields} if immutable else {}
    params: list[str] = []
    lines: list[str] = []
    keyword_only = False
    for f in sorted(fields, key=lambda f: bool(f.kw_only)):
        if f.kw_only and not keyword_only:
            params.append("*")
            keyword_only = True
        source = f.name
        if not f.init:  # set later, by `__post_init__` or whoever owns the object
            continue
        if f.default is not MISSING:
            names[f"_default_{f.name}"] = f.default
            params.append(f"{f.name}=_default_{f.name}")
        elif f.default_factory is not MISSING:
            names[f"_make_{f.name}"] = f.default_factory
            names["_missing"] = MISSING
            params.append(f"{f.name}=_missing")
            source = f"_make_{f.name}() if {f.name} is _missing else {f.name}"
        else:
            params.append(f.name)
        lines.append(f"_set_{f.name}(self, {source})" if immutable else f"self.{f.name} = {source}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__(self, {', '.join(params)}):\n " + ("\n ".join(lines) or "pass")
    made = ["__init__"]
    if eq:
        mine = "".join(f"self.{f.name}, " for f in fields if f.compare)
        other = mine.replace("self.", "other.")
        text += "\ndef __eq__(self, other):\n if other.__class__ is not self.__class__: return NotImplemented"
        text += f"\n return ({mine}) == ({other})"
        made.append("__eq__")
        if immutable:
            text += f"\ndef __hash__(self):\n return hash(({mine}))"
            made.append("__hash__")
    exec(text, names)
    for name in made:
        if name == "__init__" or cls.__dict__.get(name) is None:
            method = names[name]
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            method.__module__ = cls.__module__
            setattr(cls, name, method)


def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return _restore, (type(self), tuple(getattr(self, f.name) for f in dataclasses.fields(self)))


def _restore(cls: type, items: tuple[Any, ...]) -> Any:
    return cls(**{f.name: item for f, item in zip(dataclasses.fields(cls), items, strict=True)})
