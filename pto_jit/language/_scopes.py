# SPDX-License-Identifier: MIT
"""Where interpret mode stands: in orchestration, whose new tensors are tensors, or in in-core code, whose are tiles.

The difference shows when one of them is changed in place: `acc = pl.zeros(...)` with `acc += t` makes a new value of a
tile, and changes the memory of a tensor that other names may stand for.
"""

from __future__ import annotations

import ast
from contextvars import ContextVar
from types import CodeType, FrameType

from pto_jit.language._places import enclosing, span_of, user_frame
from pto_jit.source import load_file

entered: ContextVar[int] = ContextVar("pto_scopes", default=0)
"""How many in-core scopes and calls of in-core functions are under way."""

kernel: ContextVar[tuple[CodeType, bool] | None] = ContextVar("pto_kernel", default=None)
"""The code of the function that is interpreted, and whether it has scopes; None: nothing is interpreted."""

_LOOPS = (ast.For, ast.While)


def in_orchestration() -> bool:
    """Whether a tensor made here is one of orchestration.

    A function without scopes is in-core code as a whole, but for what it does outside of loops and of other functions.
    """
    running = kernel.get()
    if running is None or entered.get():
        return False
    code, scoped = running
    if scoped:
        return True
    frame = user_frame()
    return frame is not None and frame.f_code is code and not _in_loop(frame)


def _in_loop(frame: FrameType) -> bool:
    span = span_of(frame)
    file = None if span is None else load_file(frame.f_code.co_filename, frame.f_globals)
    if span is None or file is None:
        return False
    for stmt in enclosing(file, span):
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if isinstance(stmt, _LOOPS):
            return True
    return False
