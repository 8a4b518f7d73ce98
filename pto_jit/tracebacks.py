# SPDX-License-Identifier: MIT
"""Tracebacks that end at the lines of the user's program.

An error of the compiler or of a launch is raised inside the library.  `point_at` replaces what the traceback has below
the caller by one frame for each place in the call chain of the error, so that pytest, debuggers and editors jump to the
statement of the kernel (and Python underlines the exact range).  `without_library` leaves out the frames in between;
those of the functions through which every call goes say `__tracebackhide__`, which notebooks and pytest understand.
"""

from __future__ import annotations

import ast
import linecache
from types import CodeType, TracebackType
from typing import TypeVar

from pto_jit.errors import Loc
from pto_jit.source import load_file

E = TypeVar("E", bound=BaseException)


def point_at(error: E, loc: Loc | None) -> E:
    """The error, with a traceback that leads along the calls to `loc`; to be raised."""
    chain: TracebackType | None = None
    place = loc
    while place is not None and place.lineno > 0:
        chain = _frame(place, chain)
        place = place.caller
    return error if chain is None else error.with_traceback(chain)


def without_library(error: E) -> E:
    """The error, with the frames of the user's program alone that `point_at` gave it, if it did; to be raised."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_globals.get("reached") is not _Reached:
        place = place.tb_next
    return error.with_traceback(place)


class _Reached(Exception):
    """Raised and caught to have a frame."""


def _frame(loc: Loc, inner: TracebackType | None) -> TracebackType:
    """A traceback entry of a function that stands where `loc` says, before `inner`."""
    environment: dict[str, object] = {"__name__": "kernel", "__file__": loc.filename, "reached": _Reached}
    exec(_code(loc), environment)
    try:
        environment["kernel"]()  # type: ignore[operator]
    except _Reached as reached:
        entry = reached.__traceback__
        assert entry is not None and entry.tb_next is not None
        entry = entry.tb_next
        return TracebackType(inner, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    raise AssertionError("the statement raises")


def _code(loc: Loc) -> CodeType:
    """The code of a module that defines `kernel`, a function whose one statement, at `loc`, raises."""
    line = linecache.getline(loc.filename, loc.lineno)
    last = line if loc.end_lineno in (0, loc.lineno) else linecache.getline(loc.filename, loc.end_lineno)
    where = {
        "lineno": loc.lineno,
        "col_offset": len(line[: loc.col_offset].encode()),
        "end_lineno": loc.end_lineno or loc.lineno,
        "end_col_offset": len(last[: loc.end_col_offset].encode()),
    }
    name, first = function_at(loc.filename, (loc.lineno, where["col_offset"]))
    define = ast.parse("def kernel(): raise reached").body[0]
    assert isinstance(define, ast.FunctionDef)
    for node in ast.walk(define.body[0]):
        if isinstance(node, (ast.stmt, ast.expr)):  # `ast.Load()` is one object, which all trees of the process share
            for key, value in where.items():
                setattr(node, key, value)
    define.lineno = define.end_lineno = first
    module = compile(ast.Module([define], []), loc.filename, "exec")
    constants = tuple(
        c.replace(co_name=name, co_qualname=name) if isinstance(c, CodeType) else c for c in module.co_consts
    )
    return module.replace(co_consts=constants)


def function_at(filename: str, place: tuple[int, int]) -> tuple[str, int]:
    """Name and first line of the innermost function around a line and byte column."""
    file = load_file(filename, {})
    found = ((0, 0), "<kernel>", place[0])
    known = () if file is None else (*file.functions(False).items(), *file.functions(True).items())
    for first, nodes in known:
        for node in nodes:
            start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
            if found[0] <= start <= place < end:
                found = start, getattr(node, "name", "<lambda>"), first
    return found[1:]
