# SPDX-License-Identifier: MIT
"""Arguments of a call that is compiled into its place: which parameter gets which value, by Python's rules."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.errors import CompilationError, TypeMismatchError, similar, similar_keyword

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def bind(
    g: Generator,
    name: str,
    spec: ast.arguments,
    defaults: Sequence[Any],
    kw_defaults: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> dict[str, Any]:
    """Parameter values of a call of the function `name`; TypeMismatchError where Python raises a TypeError."""
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    values: dict[str, Any] = dict(zip(positional, args, strict=False))
    if spec.vararg is not None:
        values[spec.vararg.arg] = tuple(args[len(positional) :])
    elif len(args) > len(positional):
        raise _bad_call(g, f"`{name}` takes {len(positional)} positional arguments, but {len(args)} are given")
    _by_name(g, name, spec, kwargs, values)
    for key, default in zip(positional[len(positional) - len(defaults) :], defaults, strict=True):
        values.setdefault(key, default)
    for argument in spec.kwonlyargs:
        if argument.arg not in values and argument.arg in kw_defaults:
            values[argument.arg] = kw_defaults[argument.arg]
    missing = [a for a in (*positional, *(k.arg for k in spec.kwonlyargs)) if a not in values]
    if missing:
        raise _bad_call(g, f"`{name}` needs a value for {', '.join(f'`{m}`' for m in missing)}")
    return values


def _by_name(g: Generator, name: str, spec: ast.arguments, kwargs: dict[str, Any], values: dict[str, Any]) -> None:
    """Add the arguments that are given by name to `values`."""
    by_name = {a.arg for a in (*spec.args, *spec.kwonlyargs)}
    rest = dict(kwargs)
    for key in kwargs:
        if key in by_name:
            if key in values:
                raise _bad_call(g, f"`{name}` gets several values for `{key}`")
            values[key] = rest.pop(key)
    if spec.kwarg is not None:
        values[spec.kwarg.arg] = g.own(rest)
    elif rest:
        wrong = next(iter(rest))
        raise _bad_call(g, f"`{name}` has no parameter `{wrong}`", similar(wrong, by_name))


def _bad_call(g: Generator, message: str, meant: str = "") -> CompilationError:
    return g.error(TypeMismatchError, message, code="PTO-T019", hint=f"{meant}check the arguments of the call")


def deep(error: TypeError) -> bool:
    """Whether a TypeError was raised inside the handler rather than by the call of it."""
    trace = error.__traceback__
    depth = 0
    while trace is not None:
        trace, depth = trace.tb_next, depth + 1
    return depth > 2


def meant(fn: Callable[..., Any], error: TypeError) -> str:
    """What an unknown keyword was perhaps meant to be."""
    import inspect

    try:
        return similar_keyword(str(error), inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # a function in C without a signature
        return ""


def reworded(error: TypeError) -> str:
    text, _, _ = str(error).partition(". Did you mean")  # Python 3.14 says so itself
    return text.split("() ", 1)[-1] if "() " in text else text
