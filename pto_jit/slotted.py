# SPDX-License-Identifier: MIT
"""`@frozen` and `@mutable`: dataclasses whose definition costs a tenth, because every process pays for all of them.

The standard decorator compiles six methods from text for every class.  Here only `__init__` is, when the first instance
is made; the others are functions that all classes share.  `dataclasses.fields`, `replace` and `asdict` work on both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, replace
from operator import attrgetter
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
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr
    if immutable:
        cls.__setattr__ = _setattr
        cls.__delattr__ = _delattr
        cls.__reduce__ = _reduce
    if eq:
        _compare(cls, tuple(f.name for f in fields if f.compare), immutable)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__ = _initialiser(cls, fields, immutable)  # compiled by the first instance, for many there is none
        cls.__init__(self, *args, **kwargs)

    cls.__init__ = __init__
    return cls


def _compare(cls: Any, names: tuple[str, ...], hashable: bool) -> None:
    """Equality and hash of the tuple of the named fields."""
    if len(names) > 1:
        key: Callable[[Any], Any] = attrgetter(*names)
    else:
        key = lambda self: tuple(getattr(self, name) for name in names)  # noqa: E731

    def __eq__(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(key(self))

    if "__eq__" not in cls.__dict__:
        cls.__eq__ = __eq__
    if cls.__dict__.get("__hash__") is None:
        cls.__hash__ = __hash__ if hashable else None


def _initialiser(cls: Any, fields: tuple[Field[Any], ...], immutable: bool) -> Callable[..., None]:
    """The `__init__` that assigns the fields."""
    # the slot's own setter: quicker than `object.__setattr__`, and not stopped by an immutable class
    names: dict[str, Any] = {f"_set_{f.name}": getattr(cls, f.name).__set__ for f in fields} if immutable else {}
    params: list[str] = []
    lines: list[str] = []
    keyword_only = False
    for f in sorted(fields, key=lambda f: bool(f.kw_only)):
        if not f.init:  # set later, by `__post_init__` or whoever owns the object
            continue
        if f.kw_only and not keyword_only:
            params.append("*")
            keyword_only = True
        source = f.name
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
    exec(f"def __init__(self, {', '.join(params)}):\n " + ("\n ".join(lines) or "pass"), names)
    method = names["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__module__ = cls.__module__
    return method


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
