# SPDX-License-Identifier: MIT
"""Warnings; those for statements that compute a run-time value and drop it, as `a + b` alone on a line.

Tiles are values and operations have no effect but their result, so such a statement does nothing.  There is no warning
where a call may do something else: functions of the user's, methods of the user's objects.  Stores, prints, atomics
and assertions give nothing that could be dropped.
"""

from __future__ import annotations

import ast
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.intrinsics import STAGED
from pto_jit.codegen.values import is_runtime
from pto_jit.errors import Loc
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def check_unused(g: Generator, node: ast.expr) -> None:
    """Warn when `node`, a statement whose run-time value nothing uses, can have no effect."""
    if not _does_nothing(g, node):
        return
    text = ast.unparse(node)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    warn(g, f"the value of `{shown}` is not used: this statement does nothing", g.loc(node))


def warn(g: Generator, text: str, loc: Loc | None = None) -> None:
    """Warn of something at `loc`, or where the generator stands; every process shows it, so that it gets mended."""
    found = text, replace(loc or g.e.loc, caller=None)
    if found not in g.warnings:  # a helper is compiled at each of its calls
        g.warnings.append(found)
    g.speaks = True  # until it is mended


def _does_nothing(g: Generator, node: ast.expr) -> bool:
    for part in ast.walk(node):
        if isinstance(part, (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)):
            return False
        if isinstance(part, ast.Call) and not _calls_operation(g, part):
            return False
    return True


def _calls_operation(g: Generator, call: ast.Call) -> bool:
    """Whether an operation of `pl`, a method of a run-time value or a function of Python's on numbers is called."""
    match call.func:
        case ast.Attribute(value=ast.Call() as inner):
            return _calls_operation(g, inner)
        case ast.Attribute(value=ast.BinOp() | ast.UnaryOp()):
            return True
        case func:
            return _is_operation(_value(g, func))


def _value(g: Generator, node: ast.expr) -> Any:
    """What a dotted name stands for, as far as looking runs no code of the user's: else MISSING."""
    if isinstance(node, ast.Name):
        value = g.frame.vars.get(node.id, MISSING)
        return g.resolve(g.frame, node.id) if value is MISSING else value
    if isinstance(node, ast.Attribute):
        base = _value(g, node.value)
        if is_runtime(base):
            return base
        if isinstance(base, ModuleType):
            return vars(base).get(node.attr, MISSING)
    return MISSING


def _is_operation(value: Any) -> bool:
    if is_runtime(value):  # a method of it
        return True
    if isinstance(getattr(value, "__pto_builtin__", None), str):
        return True
    try:
        return value in STAGED
    except TypeError:
        return False
