# SPDX-License-Identifier: MIT
"""`@frozen` and `@mutable`: dataclasses that cost almost nothing to define, because every process pays for all of them.

The standard decorator compiles six methods from text for every class.  Here the classes share functions that walk over
the names of the fields; only `__init__` is compiled, and only for a class of which many instances are made.  What
`dataclasses.fields` reads is made when it is asked for, so `fields`, `replace` and `asdict` work on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

__all__ = ["compared", "field", "frozen", "mutable", "names", "replace"]

T = TypeVar("T")

_COMPILED_FROM = 24  # instances: about what compiling `__init__` costs, in calls of the general one


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


def names(cls: type) -> tuple[str, ...] | None:
    """The names of the fields of a class made here, in order; None for any other class."""
    layout = getattr(cls, "_layout", None)
    return None if layout is None else tuple(layout)


def compared(cls: type) -> tuple[str, ...]:
    """The names of the fields by which values of a class made here are compared, in order."""
    return _compared(cls._layout)  # type: ignore[attr-defined]


def _compared(layout: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, default in layout.items() if default.__class__ is not Field or default.compare)


def replace(obj: T, /, **changes: Any) -> T:
    """A copy with other values for some fields: `dataclasses.replace`, for the classes made here."""
    cls: Any = obj.__class__
    for name, default in cls._layout.items():
        if name not in changes and (default.__class__ is not Field or default.init):
            changes[name] = getattr(obj, name)
    return cls(**changes)


def _define(cls: Any, immutable: bool, eq: bool) -> Any:
    namespace = dict(cls.__dict__)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    layout: dict[str, Any] = {}  # name: the default, MISSING, or what `field()` gave
    for base in reversed(cls.__mro__[1:]):
        layout.update(base.__dict__.get("_layout", ()))
    own = namespace.get("__annotations__", {})
    # annotations are text, as every module here says `from __future__ import annotations`
    added = {name: namespace.pop(name, MISSING) for name, kind in own.items() if not kind.startswith("ClassVar")}
    namespace["__slots__"] = tuple(name for name in added if name not in layout)
    layout.update(added)
    namespace["_layout"] = layout
    namespace["__dataclass_fields__"] = _Fields(added)
    namespace.setdefault("__match_args__", tuple(n for n, d in layout.items() if d.__class__ is not Field or d.init))
    namespace.setdefault("__repr__", _repr)
    if immutable:
        namespace["__setattr__"] = _setattr
        namespace["__delattr__"] = _delattr
        namespace["__reduce__"] = _reduce
    if eq:
        _compare(namespace, layout, immutable)
    new: Any = type(cls)(cls.__name__, cls.__bases__, namespace)
    new.__qualname__ = cls.__qualname__
    _initialise(new, immutable)
    return new


class _Fields:
    """`__dataclass_fields__` of a class, made by the standard decorator the first time that somebody looks."""

    def __init__(self, added: dict[str, Any]) -> None:
        self.added = added

    def __set_name__(self, owner: Any, name: str) -> None:
        self.owner = owner

    def __get__(self, instance: Any, cls: type) -> dict[str, Field[Any]]:
        fields: dict[str, Field[Any]] = {}
        for base in reversed(self.owner.__mro__[1:]):
            fields.update(getattr(base, "__dataclass_fields__", ()))
        given = {name: default for name, default in self.added.items() if default is not MISSING}
        annotations = {name: self.owner.__annotations__[name] for name in self.added}
        plain = type("_", (), {"__module__": self.owner.__module__, "__annotations__": annotations, **given})
        fields.update(dataclass(init=False, repr=False, eq=False)(plain).__dataclass_fields__)  # type: ignore[attr-defined]
        self.owner.__dataclass_fields__ = fields
        return fields


def _compare(namespace: dict[str, Any], layout: dict[str, Any], hashable: bool) -> None:
    """Equality and hash of the tuple of the fields that are compared, or of the only one."""
    found = _compared(layout)
    key: Callable[[Any], Any] = attrgetter(*found) if found else lambda self: ()

    def __eq__(self: Any, other: Any) -> Any:
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        mine, its = key(self), key(other)
        return mine is its or mine == its

    def __hash__(self: Any) -> int:
        return hash(key(self))

    namespace.setdefault("__eq__", __eq__)
    if namespace.get("__hash__") is None:
        namespace["__hash__"] = __hash__ if hashable else None


def _initialise(cls: Any, immutable: bool) -> None:
    """Give `cls` an `__init__`: a general one, which makes way for a compiled one when that pays."""
    made = 0
    positional = 0
    given: list[tuple[str, Callable[[Any, Any], None], Any, Callable[[], Any] | None]] = []

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal made, positional
        if not made:
            parameters = _parameters(cls._layout)
            positional = sum(not keyword_only for _, _, _, keyword_only in parameters)
            given.extend((name, getattr(cls, name).__set__, value, make) for name, value, make, _ in parameters)
        made += 1
        if made <= _COMPILED_FROM and len(args) <= positional:
            for i, value in enumerate(args):
                given[i][1](self, value)
            used = 0
            for name, assign, default, make in given[len(args) :]:
                if name in kwargs:
                    assign(self, kwargs[name])
                    used += 1
                elif make is not None:
                    assign(self, make())
                elif default is not MISSING:
                    assign(self, default)
                else:
                    break
            else:
                if used == len(kwargs):
                    if hasattr(cls, "__post_init__"):
                        self.__post_init__()
                    return
        cls.__init__ = _compiled(cls, immutable)
        cls.__init__(self, *args, **kwargs)  # which also says what is wrong with the arguments

    cls.__init__ = __init__


def _parameters(layout: dict[str, Any]) -> list[tuple[str, Any, Callable[[], Any] | None, bool]]:
    """The parameters of `__init__`: name, default or MISSING, what makes the default, whether it is keyword-only."""
    parameters: list[tuple[str, Any, Callable[[], Any] | None, bool]] = []
    for name, default in layout.items():
        if default.__class__ is not Field:
            parameters.append((name, default, None, False))
        elif default.init:  # else it is set later, by `__post_init__` or whoever owns the object
            make = None if default.default_factory is MISSING else default.default_factory
            parameters.append((name, default.default, make, default.kw_only is True))
    return sorted(parameters, key=lambda p: p[3])


def _compiled(cls: Any, immutable: bool) -> Callable[..., None]:
    """The `__init__` that assigns the fields."""
    # the slot's own setter: quicker than `object.__setattr__`, and not stopped by an immutable class
    known: dict[str, Any] = {f"_set_{name}": getattr(cls, name).__set__ for name in cls._layout} if immutable else {}
    known["_missing"] = MISSING
    params: list[str] = []
    lines: list[str] = []
    for name, default, make, keyword_only in _parameters(cls._layout):
        if keyword_only and "*" not in params:
            params.append("*")
        source = name
        if make is not None:
            known[f"_make_{name}"] = make
            params.append(f"{name}=_missing")
            source = f"_make_{name}() if {name} is _missing else {name}"
        elif default is not MISSING:
            known[f"_default_{name}"] = default
            params.append(f"{name}=_default_{name}")
        else:
            params.append(name)
        lines.append(f"_set_{name}(self, {source})" if immutable else f"self.{name} = {source}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__(self, {', '.join(params)}):\n " + ("\n ".join(lines) or "pass"), known)
    method = known["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__module__ = cls.__module__
    return method


def _repr(self: Any) -> str:
    shown = [
        f"{name}={getattr(self, name)!r}"
        for name, default in self._layout.items()
        if default.__class__ is not Field or default.repr
    ]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return _restore, (type(self), tuple(getattr(self, name) for name in self._layout))


def _restore(cls: Any, items: tuple[Any, ...]) -> Any:
    return cls(**dict(zip(cls._layout, items, strict=True)))
