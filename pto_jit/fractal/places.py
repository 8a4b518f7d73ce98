# SPDX-License-Identifier: MIT
"""Errors of the eager operations: at the user's line, with the index path of the element that was computed.

The index path is a stack of the positions at which the parallel functions stand, outermost first: `[2][0]` is the first
element of the third.  It belongs to the thread (or the asynchronous task) that runs them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, TypeVar

from pto_jit.errors import CompilationError, LaunchError, Loc, Note, PtoError, callers, excerpt
from pto_jit.source import locate

E = TypeVar("E", bound=PtoError)

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_path: ContextVar[tuple[int, ...]] = ContextVar("index path", default=())


def show_path(path: tuple[int, ...]) -> str:
    """`[2][0]`; "" outside of all parallel functions."""
    return "".join(f"[{i}]" for i in path)


@contextmanager
def element(index: int) -> Iterator[None]:
    """Everything inside belongs to that element of the innermost parallel function.

    An exception that is not one of pto_jit's gets a note with the path, once.
    """
    token = _path.set((*_path.get(), index))
    try:
        yield
    except Exception as error:
        if not isinstance(error, PtoError) or (isinstance(error, CompilationError) and error.loc is None):
            _remark(error)
        raise
    finally:
        _path.reset(token)


def _remark(error: Exception) -> None:
    notes: list[str] = getattr(error, "__notes__", [])
    if not any(note.startswith("at element ") for note in notes):
        error.add_note(f"at element {show_path(_path.get())}")


def user_place() -> Loc | None:
    """The expression in the user's program that is being evaluated; None when there is no such frame."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else _place_in(frame.f_code, frame.f_lasti, frame.f_lineno)


def _place_in(code: CodeType, instruction: int, line: int) -> Loc:
    start, end, column, end_column = next(islice(code.co_positions(), instruction // 2, None), (line,) * 2 + (0,) * 2)
    if start is None or end is None or column is None or end_column is None:
        return Loc(code.co_filename, line, 0, line, 1 << 30)
    return Loc(code.co_filename, start, column, end, end_column)


def definition(fn: Callable[..., Any]) -> Loc | None:
    """Where a callable is defined; None for what is not written in Python."""
    while isinstance(fn, partial):
        fn = fn.func
    if not isinstance(fn, FunctionType):
        fn = getattr(fn, "__func__", None) or type(fn).__call__  # a method, or an object that is called
    code = getattr(fn, "__code__", None)
    if not isinstance(fn, FunctionType) or not isinstance(code, CodeType):
        return None
    try:
        found = locate(fn)
    except CompilationError:  # there is no source, or it was edited
        pass
    else:
        return found.file.loc(found.node)
    return Loc(code.co_filename, code.co_firstlineno, 0, code.co_firstlineno, 1 << 30)


def failure(cls: type[E], code: str, message: str, hint: str, *, body: Callable[..., Any] | None = None,
            path: tuple[int, ...] | None = None) -> E:  # fmt: skip
    """An error at the user's line.

    body: the callable that is to blame, which gets a note.  path: the offending place inside a value; by default that
    of the element that is computed.
    """
    where = (*_path.get(), *(path or ()))
    if where:
        message = f"{message}, at element {show_path(where)}"
    loc = user_place()
    defined = None if body is None else definition(body)
    notes = () if defined is None else (Note("the body is here", defined),)
    if issubclass(cls, CompilationError):
        return cls(message, loc, code=code, hint=hint, notes=notes)
    lines = [f"{code}: {message}"]
    if loc is not None:
        lines += [*(excerpt(loc) or [f"  --> {loc}"]), *callers(loc)]
    error = cls("\n".join([*lines, *(f"note: {n.message}  {n.loc}" for n in notes), f"help: {hint}"]))
    if isinstance(error, LaunchError):
        error.code, error.loc = code, loc
    return error
