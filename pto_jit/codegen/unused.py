# SPDX-License-Identifier: MIT
"""Warnings; those for statements that compute a run-time value and drop it, as `a + b` alone on a line, and for calls
that give something else each time, made once.

Tiles are values and operations have no effect but their result, so such a statement does nothing.  There is no warning
where a call may do something else: functions of the user's, methods of the user's objects.  Stores, prints, atomics
and assertions give nothing that could be dropped.
"""

from __future__ import annotations

import ast
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.frames import MISSING
from pto_jit.codegen.intrinsics import STAGED
from pto_jit.codegen.marks import mark
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
    """Warn of something at `loc`, or where the generator stands; every process shows it, so that it gets fixed."""
    found = text, replace(loc or g.e.loc, caller=None)
    if found not in g.warnings:  # a helper is compiled at each of its calls
        g.warnings.append(found)
    g.speaks = True  # until it is fixed


def check_frozen(g: Generator, fn: Any) -> None:
    """Warn when Python calls the clock, or the random numbers that modules share: the kernel keeps what that gave.

    Generators of the user's own (`np.random.default_rng(0)`) have a state that the user chose.
    """
    owner = getattr(fn, "__self__", None)
    if owner is time:
        name, instead = f"time.{fn.__name__}", "pass the time as an argument"
    elif owner is not None and owner is getattr(sys.modules.get("random"), "_inst", None):
        name, instead = f"random.{fn.__name__}", "pass the number as an argument, or call `pl.rand(seed, ...)`"
    elif owner is not None and owner is getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None):
        name, instead = f"np.random.{fn.__name__}", "pass an array as an argument, or call `pl.rand(seed, ...)`"
    else:
        return
    warn(g, f"`{name}` is called once, while the kernel is compiled, and all calls of the kernel use what it gave: "
            f"{instead}")  # fmt: skip


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
    if isinstance(mark(value, "__pto_builtin__"), str):
        return True
    try:
        return value in STAGED
    except TypeError:
        return False
