# SPDX-License-Identifier: MIT
"""The table of `pl` operations that a kernel may call: language name -> handler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.errors import CompilationError, TypeMismatchError, similar_keyword

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def builtin(name: str) -> Callable[[Handler], Handler]:
    """Register the handler of `pl.<name>`; it takes the generator, then the operation's own parameters."""

    def register(handler: Handler) -> Handler:
        assert name not in HANDLERS, name
        HANDLERS[name] = handler
        return handler

    return register


def call(name: str, cg: Generator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compile a call of `pl.<name>`."""
    handler = HANDLERS.get(name)
    if handler is None and name.startswith("ft."):
        from pto_jit.fractal.compile import handlers  # noqa: F401 - registers them: for kernels with parallel functions

        handler = HANDLERS.get(name)
    if handler is None:
        raise cg.error(
            CompilationError,
            f"`pl.{name}` has no meaning inside a kernel",
            code="PTO-N010",
            hint="see the list of operations in docs/language.md",
        )
    try:
        return handler(cg, *args, **kwargs)
    except TypeError as error:
        if isinstance(error, CompilationError):
            raise
        problem = _binding_problem(handler, cg, args, kwargs)
        if problem is None:
            raise
        spelled = name if "." in name else f"pl.{name}"  # operations on lists are named `ft.map`
        raise cg.error(
            TypeMismatchError,
            f"{spelled}: {problem}",
            code="PTO-T029",
            hint=f"{_meant(handler, problem)}signature: {spelled}{_signature(handler)}",
        ) from None


def _binding_problem(handler: Handler, cg: Generator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    try:
        inspect.signature(handler).bind(cg, *args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _meant(handler: Handler, problem: str) -> str:
    """What an unknown keyword was perhaps meant to be."""
    if problem.endswith(("'mask'", "'other'")):
        return "a tile ends where its tensor does, so no mask is needed; `pad=` is what is read outside; "
    return similar_keyword(problem, list(inspect.signature(handler).parameters)[1:])


def _signature(handler: Handler) -> str:
    parameters = list(inspect.signature(handler).parameters.values())[1:]
    return str(inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters]))
