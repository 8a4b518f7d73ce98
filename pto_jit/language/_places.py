# SPDX-License-Identifier: MIT
"""Where in a kernel's source an operation was called from, while the kernel runs as Python."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from types import CodeType, FrameType

from pto_jit.errors import NOWHERE, Loc
from pto_jit.language._updates import followed
from pto_jit.slotted import frozen
from pto_jit.source import SourceFile, load_file

_LANGUAGE = "pto_jit.language"
_OPERATORS = {ast.Add: "add", ast.Mult: "mul"}
_CALLS = {"maximum": "max", "max": "max", "minimum": "min", "min": "min"}


@frozen
class Site:
    """A place in the source; `update`: the reduction that the access there belongs to, "" when it is none; `tensor`:
    what is accessed, as it is written there; `augmented`: it is the target of an augmented assignment; `follows`: the
    targets of the loops around it with which the place of an update changes."""

    loc: Loc
    update: str = ""
    tensor: str = ""
    augmented: bool = False
    follows: frozenset[str] = frozenset()


_sites: dict[tuple[CodeType, int], Site] = {}


def user_frame() -> FrameType | None:
    """The innermost frame that is not of the language itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_LANGUAGE):
        frame = frame.f_back
    return frame


def site() -> Site:
    """The expression that the user's code is evaluating."""
    frame = user_frame()
    if frame is None:
        return Site(NOWHERE)
    key = frame.f_code, frame.f_lasti
    found = _sites.get(key)
    if found is None:
        if len(_sites) > 8192:
            _sites.clear()
        found = _sites[key] = _site(frame)
    return found


def loop_variable(frame: FrameType | None) -> str:
    """The target of the `for` statement whose iterable is being evaluated, "" when that is not to be seen."""
    span = None if frame is None else span_of(frame)
    file = None if frame is None else load_file(frame.f_code.co_filename, frame.f_globals)
    if span is None or file is None:
        return ""
    for node in enclosing(file, span):
        if isinstance(node, ast.For) and _range(node.iter) == span:
            return ast.unparse(node.target)
    return ""


Span = tuple[int, int, int, int]  # line and column of the start, line and column of the end, as `ast` has them


def _site(frame: FrameType) -> Site:
    span = span_of(frame)
    if span is None:
        return Site(Loc(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0))
    line, column, end, end_column = span
    file = load_file(frame.f_code.co_filename, frame.f_globals)
    if file is None:
        return Site(Loc(frame.f_code.co_filename, line, column, end, end_column))
    loc = Loc(file.filename, line, file.column(line, column), end, file.column(end, end_column))
    around = enclosing(file, span)
    update = next(filter(None, [_update(stmt, span) for stmt in around]), "")
    updates = bool(update) or (bool(around) and isinstance(around[0], ast.AugAssign))
    augmented = bool(around) and isinstance(around[0], ast.AugAssign) and _range(around[0].target) == span
    return Site(loc, update, _tensor(around, span), augmented, followed(around) if updates else frozenset())


def _tensor(around: list[ast.stmt], span: Span) -> str:
    """The tensor of the subscript or memory operation that stands at `span`."""
    for node in ast.walk(around[0]) if around else ():
        if not isinstance(node, (ast.Subscript, ast.Call)) or _range(node) != span:
            continue
        if isinstance(node, ast.Subscript):
            return ast.unparse(node.value)
        if _is_call(node, "store") or _is_call(node, "scatter"):
            return ast.unparse(node.args[-1]) if node.args else ""
        return ast.unparse(node.args[0]) if node.args else ""
    return ""


def span_of(frame: FrameType) -> Span | None:
    """What the instruction that the frame is executing stands for in the source."""
    for position, where in enumerate(frame.f_code.co_positions()):
        if position * 2 == frame.f_lasti:
            line, end, column, end_column = where
            if line is None or end is None or column is None or end_column is None:
                return None
            return line, column, end, end_column
    return None


def _range(node: ast.AST) -> Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def enclosing(file: SourceFile, span: Span) -> list[ast.stmt]:
    """The statements around a span, the innermost first."""
    found: list[ast.stmt] = []
    stack: list[ast.AST] = list(file.tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            line, column, end, end_column = _range(node)
            if not ((line, column) <= span[:2] and span[2:] <= (end, end_column)):
                continue
            found.insert(0, node)
        if not isinstance(node, ast.expr):
            stack += ast.iter_child_nodes(node)
    return found


def _update(stmt: ast.stmt, span: Span) -> str:
    """The operation of a statement that combines a value into a place, when `span` is its access to that place.

    The same spellings as in compiled code: `y[i] += e`, `y[i] = y[i] + e`, `y[i] = pl.maximum(y[i], e)`, and
    `pl.store(pl.load(y, i, s) + e, i, y)`, for sums, products, maxima and minima.
    """
    if isinstance(stmt, ast.AugAssign):
        return _OPERATORS.get(type(stmt.op), "") if _range(stmt.target) == span else ""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Subscript):
        target = stmt.targets[0]
        name, own = _combined(stmt.value, lambda e: ast.unparse(e) == ast.unparse(target))
        return name if span in (_range(target), own) else ""
    if isinstance(stmt, ast.Expr) and _is_call(stmt.value, "store"):
        store = stmt.value
        assert isinstance(store, ast.Call)
        if len(store.args) < 2:
            return ""
        place = {ast.unparse(a) for a in store.args[1:]}
        name, own = _combined(
            store.args[0],
            lambda e: isinstance(e, ast.Call) and _is_call(e, "load") and place <= {ast.unparse(a) for a in e.args},
        )
        return name if span in (_range(store), own) else ""
    return ""


def _combined(value: ast.expr, is_place: Callable[[ast.expr], bool]) -> tuple[str, Span | None]:
    """The operation of `place op e` and where its place stands; "" when `value` is something else."""
    name, operands = "", []
    if isinstance(value, ast.BinOp):
        name, operands = _OPERATORS.get(type(value.op), ""), [value.left, value.right]
    elif isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        name, operands = _CALLS.get(called, ""), value.args
    mine = [o for o in operands if is_place(o)]
    return (name, _range(mine[0])) if name and len(mine) == 1 else ("", None)


def _is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
