# SPDX-License-Identifier: MIT
"""Assignments: to names, elements, attributes and several targets at once; plain, annotated and augmented."""

from __future__ import annotations

import ast
import operator
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen import builtins
from pto_jit.codegen.frames import MISSING, Frame
from pto_jit.codegen.merging import is_number
from pto_jit.codegen.operators import is_generated, method_of
from pto_jit.codegen.regions import Status
from pto_jit.codegen.syntax import refuse
from pto_jit.codegen.values import Tensor, is_runtime
from pto_jit.errors import CompilationError, Note

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


class Assignments:
    """Executes assignment statements in the current frame, and binds what loops, calls and patterns assign."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator

    # -- statements ---------------------------------------------------------------------------------------------

    def plain(self, node: ast.Assign) -> Status:
        self.g.wanted = _assigned(node)
        value = self.g.expressions.visit(node.value)
        for target in node.targets:
            self.assign(target, value)
        return None

    def annotated(self, node: ast.AnnAssign) -> Status:
        if node.value is not None:
            self.assign(node.target, self.g.expressions.visit(node.value))
        return None

    def augmented(self, node: ast.AugAssign) -> Status:
        g = self.g
        op, target = type(node.op), node.target
        x = g.expressions
        if isinstance(target, ast.Name):
            old = g.lookup(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            value = x.visit(node.value)
            g.node = node
            if isinstance(old, Tensor):
                g.operators.in_place(op, old, value)
                return None
            result = g.operators.in_place(op, old, value)
            holder = g.frame.owner(target.id) or g.frame
            self.bind_name(holder, target.id, result, node)
        elif isinstance(target, ast.Subscript):
            base, item = x.visit(target.value), x.visit(target.slice)
            g.node = target
            if isinstance(base, Tensor) and builtins.is_mask(item):
                value = x.visit(node.value)
                g.node = node
                builtins.store_masked(g, base, item, value, op)
                return None
            old = x.get_item(base, item)
            value = x.visit(node.value)
            g.node = node
            if isinstance(old, Tensor):
                g.operators.in_place(op, old, value)
            else:
                self.set_item(base, item, g.operators.in_place(op, old, value))
        else:
            base = x.visit(target.value)
            g.node = target
            old = x.get_attribute(base, target.attr)
            value = x.visit(node.value)
            g.node = node
            if isinstance(old, Tensor):
                g.operators.in_place(op, old, value)
            else:
                self.set_attribute(base, target.attr, g.operators.in_place(op, old, value))
        return None

    # -- targets ------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Any) -> None:
        """`target = value` for every form of target."""
        g = self.g
        if isinstance(target, ast.Name):
            holder = g.frame.owner(target.id) or g.frame
            self.bind_name(holder, target.id, value, target)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self._store_item(target, value)
        elif isinstance(target, ast.Attribute):
            self._store_attribute(target, value)
        else:
            raise refuse(g, target)

    def bind_name(self, holder: Frame, name: str, value: Any, node: ast.AST) -> None:
        if holder is not self.g.frame and self.g.inner is not None and holder.region < self.g.inner.depth:
            old = holder.vars.get(name, MISSING)
            if not (_varies(value) and (old is MISSING or _varies(old))) and holder is not self.g.frame.function:
                self._refuse_outer(holder, name, node)
        self.g.bind(holder, name, value, node)

    def _refuse_outer(self, holder: Frame, name: str, node: ast.AST) -> None:
        g = self.g
        assert g.inner is not None
        place = holder.places.get(name)
        notes = [Note("this branch or loop is decided at run time", g.inner.loc)]
        if place is not None:
            notes.insert(0, Note(f"`{name}` belongs to the enclosing function", g.loc(place, holder)))
        raise g.error_at(
            node,
            CompilationError,
            f"`nonlocal {name}` changes a compile-time value under run-time control flow",
            code="PTO-N023",
            hint="return the new value and assign it in the enclosing function",
            notes=notes,
        )

    def _store_item(self, target: ast.Subscript, value: Any) -> None:
        g = self.g
        base, item = g.expressions.visit(target.value), g.expressions.visit(target.slice)
        g.node = target
        self.set_item(base, item, value)

    def set_item(self, base: Any, item: Any, value: Any) -> None:
        g = self.g
        if is_runtime(base):
            builtins.store_subscript(g, base, item, value)
            return
        if isinstance(base, np.ndarray) and g.find_runtime((item, value)) is not None:
            raise g.expressions.array_of_python(base, (item, value))
        function = getattr(type(base), "__setitem__", None)
        if hasattr(function, "__code__"):
            g.inline(function, (base, item, value), {})
            return
        g.static(item, "the index of a compile-time object")
        g.check_mutable(base, "this assignment")
        g.python(operator.setitem, base, item, value)

    def _store_attribute(self, target: ast.Attribute, value: Any) -> None:
        g = self.g
        base = g.expressions.visit(target.value)
        g.node = target
        self.set_attribute(base, target.attr, value)

    def set_attribute(self, base: Any, name: str, value: Any) -> None:
        g = self.g
        if is_runtime(base):
            raise g.error(
                CompilationError,
                f"attributes of a run-time value cannot be assigned (`{name}`)",
                code="PTO-N024",
                hint="tiles and numbers are values: bind the result to a name",
            )
        g.check_mutable(base, f"assigning `{name}`")
        own = g.operators.method(base, "__setattr__", value)
        if own is not None and not is_generated(type(base).__setattr__):
            own(name, value)
            return
        member = next((vars(c)[name] for c in type(base).__mro__ if name in vars(c)), None)
        if member is not None and g.find_runtime((base, value)) is not None:
            if isinstance(member, property) and isinstance(member.fset, types.FunctionType):
                g.inline(member.fset, (base, value))
                return
            setter = method_of(member, "__set__")
            if setter is not None:
                g.inline(setter, (member, base, value))
                return
        g.python(setattr, base, name, value)

    def _unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        g = self.g
        items = g.items.all_of(value, target)
        wanted = target.elts
        starred = [k for k, t in enumerate(wanted) if isinstance(t, ast.Starred)]
        fits = len(items) >= len(wanted) - 1 if starred else len(items) == len(wanted)
        if not fits:
            raise g.error_at(
                target,
                CompilationError,
                f"cannot unpack {len(items)} values into {len(wanted)} names",
                code="PTO-N022",
                hint="use one name per value, or `*rest` for the remaining ones",
            )
        if starred:
            k = starred[0]
            after = len(wanted) - k - 1
            middle = g.own(list(items[k : len(items) - after]))
            items = [*items[:k], middle, *items[len(items) - after :]] if after else [*items[:k], middle]
        for part, item in zip(wanted, items, strict=True):
            self.assign(part.value if isinstance(part, ast.Starred) else part, item)


def _varies(value: Any) -> bool:
    """Whether a variable may hold this after a decision made at run time, which makes run-time values of numbers."""
    return is_runtime(value) or is_number(value)


def _assigned(node: ast.Assign) -> dict[ast.AST, str]:
    """The names that calls on the right are assigned to: `x = f()`, and `x, y = f(), g()` one by one."""
    target, value = node.targets[0], node.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    return {v: t.id for t, v in pairs if isinstance(t, ast.Name) and isinstance(v, ast.Call)}
