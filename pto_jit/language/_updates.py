# SPDX-License-Identifier: MIT
"""With which loops the place of an update changes, as its source says: then it is no reduction over them.

The same as in compiled code: an index that is computed from the variable of a loop, or read from memory.  What a called
function does with the numbers that it is given is not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence


def followed(around: Sequence[ast.stmt]) -> frozenset[str]:
    """The targets of such loops; around: the statements around an update, the innermost, which it is, first."""
    out: set[str] = set()
    place = list(_place(around[0]))
    for loop in around[1:]:
        if isinstance(loop, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if isinstance(loop, ast.For):
            names = _computed(loop)
            if any(_mentions(part, names) or _reads_memory(part) for part in place):
                out.add(ast.unparse(loop.target))
    return frozenset(out)


def _place(stmt: ast.stmt) -> Iterator[ast.expr]:
    """The expressions that say what is updated."""
    if isinstance(stmt, ast.AugAssign):
        yield stmt.target
    elif isinstance(stmt, ast.Assign):
        yield from stmt.targets
    elif isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):  # pl.store(value, offsets, tensor)
        yield from stmt.value.args[1:]


def _mentions(part: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(part))


def _reads_memory(place: ast.expr) -> bool:
    """Whether an index is an element of a tensor, or computed from one: one of a shape is none."""
    return isinstance(place, ast.Subscript) and any(
        isinstance(n, ast.Subscript) and not (isinstance(n.value, ast.Attribute) and n.value.attr == "shape")
        for n in ast.walk(place.slice)
    )


def _computed(loop: ast.For) -> set[str]:
    """The names that change with the variable of a loop: those that its body computes from it."""
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    before = 0
    while before != len(names):
        before = len(names)
        for node in (n for stmt in loop.body for n in ast.walk(stmt)):
            names.update(n.id for target in _following(node, names) for n in _bound(target))
    return names


def _following(node: ast.AST, names: set[str]) -> list[ast.expr]:
    """What a statement or expression assigns that is computed from these names."""
    if isinstance(node, ast.Assign):
        return node.targets if _mentions(node.value, names) else []
    if isinstance(node, ast.For):
        return [node.target] if _mentions(_first(node.iter), names) else []
    if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        return [node.target] if _mentions(node.value, names) else []
    return []


def _first(iterable: ast.expr) -> ast.AST:
    """What says where a loop begins: how far `range(n)` counts makes no other places of those that it has."""
    if isinstance(iterable, ast.Call) and len(iterable.args) == 1:
        return iterable.func
    return iterable


def _bound(target: ast.expr) -> Iterator[ast.Name]:
    """The names that an assignment binds; one to an element binds none."""
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _bound(item)
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value)
