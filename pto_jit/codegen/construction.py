# SPDX-License-Identifier: MIT
"""Instances of the user's classes that hold run-time values."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import TYPE_CHECKING, Any

from pto_jit.errors import TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def construct(g: Generator, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)` with run-time values among the arguments: `__init__` or `__post_init__` is compiled."""
    init = cls.__init__
    if type(cls).__call__ is not type.__call__:  # what it does besides is Python's
        return g.made(cls, *args, **kwargs)
    if dataclasses.is_dataclass(cls) and getattr(init, "__qualname__", "").endswith("__create_fn__.<locals>.__init__"):
        return _dataclass(g, cls, args, kwargs)
    if (
        dataclasses.is_dataclass(cls)
        and isinstance(init, types.FunctionType)
        and init.__code__.co_filename == "<string>"
    ):
        return _dataclass(g, cls, args, kwargs)
    if isinstance(init, types.FunctionType) and cls.__new__ is object.__new__:
        instance = g.own(object.__new__(cls))
        g.inline(init, (instance, *args), kwargs)
        return instance
    return g.made(cls, *args, **kwargs)


def _dataclass(g: Generator, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a generated `__init__` does, with `__post_init__` compiled."""
    try:
        bound = inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise g.error(TypeMismatchError, f"`{cls.__name__}`: {error}", code="PTO-T047",
                      hint="check the arguments of the call") from None  # fmt: skip
    instance = g.own(object.__new__(cls))
    extra: list[Any] = []
    for name, field in cls.__dataclass_fields__.items():  # type: ignore[attr-defined]
        kind = field._field_type.name
        if kind == "_FIELD_CLASSVAR":
            continue
        if name in bound.arguments:
            value = bound.arguments[name]
        elif field.default_factory is not dataclasses.MISSING:
            value = g.made(field.default_factory)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        else:
            continue
        if kind == "_FIELD_INITVAR":
            extra.append(value)
        else:
            object.__setattr__(instance, name, value)
    post = getattr(cls, "__post_init__", None)
    if post is not None:
        g.inline(post, (instance, *extra), {})
    return instance
