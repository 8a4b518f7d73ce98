# SPDX-License-Identifier: MIT
"""Reductions over loops: recognising them in the source, and the explicit form `pl.reduction`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.iteration import static_value
from pto_jit.codegen.names import LoopNames, uses
from pto_jit.codegen.regions import Target
from pto_jit.errors import CompilationError, TypeMismatchError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

_OPERATORS = {ast.Add: "add", ast.Mult: "mul"}
_CALLS = {"maximum": "max", "minimum": "min"}


def is_reduction(g: Generator, loop: ast.For | ast.While, name: str) -> ast.AST | None:
    """None when every use of `name` in the loop is one reduction; else the first place that is not."""
    kinds: set[str] = set()
    allowed: set[int] = set()
    for node in _nodes(loop.body):
        kind, own = _update(g, node, name)
        if kind is not None:
            kinds.add(kind)
            allowed |= own
            if len(kinds) > 1:
                return node
    for node in _nodes(loop.body):
        if isinstance(node, ast.Name) and node.id == name and id(node) not in allowed:
            return node
    return None if kinds else loop


def _nodes(stmts: list[ast.stmt]) -> Iterator[ast.AST]:
    for stmt in stmts:
        yield from ast.walk(stmt)


def _update(g: Generator, node: ast.AST, name: str) -> tuple[str | None, set[int]]:
    """The operation of `name op= e` in any of its spellings, and the uses of `name` that belong to it."""
    if isinstance(node, ast.AugAssign) and _is(node.target, name):
        kind = _OPERATORS.get(type(node.op))
        return (None, set()) if kind is None or name in uses(node.value) else (kind, {id(node.target)})
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and _is(node.targets[0], name)):
        return None, set()
    target, value = node.targets[0], node.value
    pair: list[ast.expr] = []
    kind = None
    if isinstance(value, ast.BinOp):
        kind, pair = _OPERATORS.get(type(value.op)), [value.left, value.right]
    elif isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        function = static_value(g, value.func)
        kind = _CALLS.get(getattr(function, "__pto_builtin__", ""))
        if function is max or function is min:
            kind = "max" if function is max else "min"
        pair = value.args
    mine = [p for p in pair if _is(p, name)]
    if kind is None or len(mine) != 1 or any(name in uses(p) for p in pair if p is not mine[0]):
        return None, set()
    return kind, {id(target), id(mine[0])}


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


class ReductionState:
    """`pl.reduction(init=, combine=)`: a state that `update` combines into, carried by loops like a variable."""

    __slots__ = ("combine", "generator", "holder", "single")

    def __init__(self, g: Generator, init: Any, combine: Callable[..., Any]) -> None:
        self.generator = g
        self.combine = combine
        self.single = not isinstance(init, tuple)
        self.holder = Target("value", g.depth, len(g.loops))
        self.holder.vars["value"] = init

    @property
    def value(self) -> Any:
        return self.holder.vars["value"]

    def update(self, *values: Any) -> None:
        g = self.generator
        state = self.holder.vars["value"]
        count = 1 if self.single else len(state)
        if len(values) != count:
            raise g.error(
                TypeMismatchError,
                f"`update` takes {count} value{'s' if count > 1 else ''} like `init`, not {len(values)}",
                code="PTO-T008",
                hint="give one new value per item of `init`",
            )
        new = g.inline(self.combine, (state, values[0] if self.single else tuple(values)), {})
        if not self.single and (not isinstance(new, tuple) or len(new) != count):
            raise g.error(
                TypeMismatchError,
                f"the combine function returns no tuple of {count} values",
                code="PTO-T009",
                hint="it takes two states and returns one",
            )
        g.bind(self.holder, "value", new, g.node)

    update.__pto_native__ = True  # type: ignore[attr-defined]


def reduction(g: Generator, init: Any = None, combine: Any = None) -> ReductionState:
    """The handler of `pl.reduction`."""
    if init is None or not callable(combine):
        raise g.error(
            CompilationError,
            "pl.reduction takes `init=` and `combine=`, a function of two states",
            code="PTO-N016",
            hint="pl.reduction(init=(m0, l0), combine=fn)",
        )
    return ReductionState(g, init, combine)


def updated_reductions(g: Generator, names: LoopNames) -> list[ReductionState]:
    """The reductions that a loop body updates."""
    found: list[ReductionState] = []
    for node in names.updates:
        value = static_value(g, node)
        if isinstance(value, ReductionState) and value not in found:
            found.append(value)
    return found
