# SPDX-License-Identifier: MIT
"""Comprehension statements: assignments to elements at indices that are `pl.axis` objects.

Those that follow each other are compiled together, so that they can share loops.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.marks import mark
from pto_jit.codegen.values import Scalar, Tensor, Tile, is_runtime
from pto_jit.dtypes import DType, f32, i64
from pto_jit.errors import CompilationError
from pto_jit.ir.nodes import Const, Op
from pto_jit.ir.walk import TENSOR_VIEWS
from pto_jit.language._indices import Axis
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator
    from pto_jit.comprehensions.inline import Inlined, Surroundings
    from pto_jit.comprehensions.lowering.checks import Check


@builtin("axis")
def _axis(g: Generator, low: Any = None, high: Any = None) -> Axis:
    g.indexed = True
    return Axis(low, high)


@frozen(eq=False)
class Let:
    """A name for an expression of elements: what it names, and what its names meant."""

    expression: ast.expr
    names: dict[str, Any]


# -- which statements ---------------------------------------------------------------------------------------------


def is_comprehension(g: Generator, stmt: ast.stmt) -> bool:
    """Whether a statement writes elements at indices declared with `pl.axis`, says that elements exist, or names an
    expression of such elements."""
    if not g.indexed:
        return False
    if isinstance(stmt, ast.With):
        return all(_is_exists(g, item.context_expr) for item in stmt.items)
    if isinstance(stmt, ast.Assign) and named(stmt):
        return any(_of_elements(g, node) or _computes(g, node) for _, e in named(stmt) for node in ast.walk(e))
    if not isinstance(stmt, (ast.Assign, ast.AugAssign)):
        return False
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
    return isinstance(target, ast.Subscript) and (
        _of_elements(g, target) or any(_of_elements(g, node) for node in ast.walk(stmt.value))
    )


def named(stmt: ast.stmt) -> list[tuple[str, ast.expr]]:
    """The names that an assignment gives to expressions, one each; empty for other statements."""
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return []
    target, value = stmt.targets[0], stmt.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    found = [(t.id, v) for t, v in pairs if isinstance(t, ast.Name)]
    return found if len(found) == len(pairs) else []


def _of_elements(g: Generator, node: ast.AST) -> bool:
    """Whether a node is an element at indices, or a name for an expression of such elements."""
    if isinstance(node, ast.Name):
        return isinstance(g.frame.vars.get(node.id), Let)
    return isinstance(node, ast.Subscript) and any(_is_index(g, n) for n in ast.walk(node.slice))


def _computes(g: Generator, node: ast.AST) -> bool:
    """Whether a node computes with an index."""
    computes = isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp))
    return computes and any(_is_index(g, n) for n in ast.iter_child_nodes(node))


def _is_index(g: Generator, node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(g.frame.vars.get(node.id), Axis)


def _is_exists(g: Generator, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Attribute, ast.Name)):
        return False
    return mark(g.expressions.visit(node.func), "__pto_builtin__") == "exists"


# -- compiling them -----------------------------------------------------------------------------------------------


def comprehension(g: Generator, stmt: ast.stmt, following: Sequence[ast.stmt]) -> int:
    """Compile `O[i, j] = e`, and those of the following statements that are such, as loops over the inferred ranges
    of their indices.  Gives how many of the following ones are done."""
    run = [stmt, *takewhile(lambda s: is_comprehension(g, s), following)]
    try:
        function, values = _function(g, run)
    except CompilationError:
        if len(run) == 1:
            raise
        run = run[:1]  # each by itself, so that every error is found
        function, values = _function(g, run)
    if function is not None:
        g.node = stmt
        g.warnings += [(f"{g.frame.name}: {text}", g.e.loc) for text in function.warnings]
        g.calls.call(function.function, tuple(values[n] for n in function.arguments), {})
    for node in run:
        lets = [(name, Let(e, {n: g.lookup(at) for n, at in _names(e).items()})) for name, e in named(node)]
        for name, let in lets:
            g.bind(g.frame, name, let, node)
    return len(run) - 1


def _names(node: ast.AST) -> dict[str, ast.Name]:
    """The names that are read in a node."""
    return {n.id: n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _function(g: Generator, run: Sequence[ast.stmt]) -> tuple[Inlined | None, dict[str, Any]]:
    """The function of a run of statements, None where they only name expressions; and its tensors and numbers."""
    from pto_jit.comprehensions.inline import Surroundings, inlined

    around = Surroundings()
    values: dict[str, Any] = {}
    known: set[str] = set()
    for stmt in run:
        _collect(g, stmt, known, around, values)
        known.update(name for name, _ in named(stmt))
    if not any(_writes(stmt) for stmt in run):
        return None, values
    _types(g, run, around, values)
    debug, device = bool(g.options.debug), getattr(g.options, "target", "cpu") == "cuda"
    return inlined(g.frame.file, run, around, lambda check: _checked(g, check), debug, device), values


def _writes(stmt: ast.stmt) -> bool:
    return any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) for n in ast.walk(stmt))


def _collect(g: Generator, node: ast.AST, known: set[str], around: Surroundings, values: dict[str, Any]) -> None:
    """What the names of a statement mean, but for those that statements before it name."""
    from pto_jit.comprehensions.inline import no_element, rebound

    for name, place in {**_targets(node), **_names(node)}.items():
        if name in known or name in values or name in around.axes or name in around.others or name in around.lets:
            continue
        value = g.lookup(ast.copy_location(ast.Name(name, ast.Load()), place))
        if isinstance(value, Axis):
            around.axes[name] = None if value.low is None else (value.low, value.high)
            for side, end in (("low", value.low), ("high", value.high)):
                if isinstance(end, Scalar):
                    values[f"{name}_{side}"] = end
        elif isinstance(value, (Tensor, Scalar)):
            values[name] = value
        elif isinstance(value, Tile):
            raise no_element(g.loc(place), name)
        elif isinstance(value, Let):
            for part, meant in value.names.items():
                if g.lookup(ast.copy_location(ast.Name(part, ast.Load()), place)) is not meant:
                    raise rebound(g.loc(place), part, name)
            _collect(g, value.expression, known, around, values)
            around.lets[name] = value.expression
        else:
            around.others[name] = value


def _targets(node: ast.AST) -> dict[str, ast.Name]:
    """The names of tensors that a statement writes."""
    bases = (n.value for n in ast.walk(node) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store))
    return {b.id: b for b in bases if isinstance(b, ast.Name)}


def _types(g: Generator, run: Sequence[ast.stmt], around: Surroundings, values: dict[str, Any]) -> None:
    """Tensors with their sizes, numbers with their types."""
    from pto_jit.comprehensions.inline import Place

    sizes: dict[str, str] = {}  # of extents, by the variable that holds them

    def size(name: str, axis: int, extent: Any) -> str | int:
        if isinstance(extent, Const):
            return int(extent.value)
        return sizes.setdefault(extent.name, _unused(f"{name}_{axis}", values, around))

    for name, value in values.items():
        if isinstance(value, Tensor):
            extents = tuple(size(name, axis, e) for axis, e in enumerate(value.extents))
            around.tensors[name] = Place(value.dtype, extents, _memory(g, value))
    for name, ends in around.axes.items():
        if ends is not None:
            sides = zip(("low", "high"), ends, strict=True)
            low, high = (_end(f"{name}_{side}", end, sizes, values) for side, end in sides)
            around.axes[name] = low, high
    for name, value in list(values.items()):
        if isinstance(value, Scalar) and not isinstance(value.operand, Const) and value.operand.name in sizes:
            around.lets[name] = ast.Name(sizes[value.operand.name], ast.Load())  # it is that size
            ast.copy_location(around.lets[name], run[0])
            del values[name]
    bounds = {end for ends in around.axes.values() if ends is not None for end in ends if isinstance(end, str)}
    written = [around.tensors[n] for s in run for n in _targets(s) if n in around.tensors]
    stored = written[0].dtype if written else f32
    for name, value in values.items():
        if isinstance(value, Scalar):
            around.scalars[name] = i64 if name in bounds else _taken(value, stored)


def _end(name: str, end: Any, sizes: dict[str, str], values: dict[str, Any]) -> Any:
    """A bound of an index: a number, the name of a size that it is, or of a number that the function takes."""
    if not isinstance(end, Scalar):
        return end
    if isinstance(end.operand, Const):
        del values[name]
        return int(end.operand.value)
    known = sizes.get(end.operand.name)
    if known is None:
        return name
    del values[name]
    return known


def _unused(wanted: str, values: dict[str, Any], around: Surroundings) -> str:
    while wanted in values or wanted in around.axes or wanted in around.others or wanted in around.lets:
        wanted += "_"
    return wanted


def _taken(value: Scalar, stored: DType) -> DType:
    """The type of a number: a weak one takes that of the tensor which is written."""
    if not value.weak:
        return value.dtype
    if value.dtype.is_float:
        return stored if stored.is_float else f32
    return stored if stored.is_integer and stored.bits >= 32 and value.dtype.is_integer else value.dtype


def _memory(g: Generator, tensor: Tensor) -> Any:
    """The array that a tensor is a part of, and whether it was made here."""
    from pto_jit.comprehensions.program import Memory

    base = tensor.var.name
    while (op := g.e.definitions.get(base)) is not None and op.op in TENSOR_VIEWS:
        base = op.args[0].name  # type: ignore[union-attr]
    return Memory(base, base in g.e.allocated)


def _checked(g: Generator, check: Check) -> Callable[[Any], None]:
    """What the function calls with a condition on sizes: an assertion at the place of the statement."""

    def checked(holds: Any) -> None:
        if not is_runtime(holds):
            if not holds:
                raise _failed(check)
            return
        attrs = (("always", True), ("error", "ShapeError"), ("message", f"{check.code}: {check.message}; {check.hint}"))
        g.e.append(Op("assert", (), (holds.operand,), attrs, (), check.loc))

    checked.__pto_native__ = True  # type: ignore[attr-defined]
    return checked


def _failed(check: Check) -> CompilationError:
    from pto_jit.errors import ShapeError

    return ShapeError(check.message, check.loc, code=check.code, hint=check.hint)

