# SPDX-License-Identifier: MIT
"""What a function contains, found without compiling it: in-core scopes, operations of the language."""

from __future__ import annotations

import ast
import functools
import types
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.frames import MISSING, Frame, KernelFunction, cells_of, names_of
from pto_jit.codegen.marks import mark
from pto_jit.codegen.names import every_node
from pto_jit.errors import CompilationError
from pto_jit.source import METHODS, locate

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def has_scopes(g: Generator, node: ast.AST, frame: Frame, seen: set[int] | None = None) -> bool:
    """Whether a function body opens an in-core scope or mentions an in-core function, itself or through others."""
    seen = set() if seen is None else seen
    names = frame.file.notes.get((node, "reads"))
    if not isinstance(names, tuple):
        chains = {_chain(n): n for n in every_node([node]) if isinstance(n, (ast.Name, ast.Attribute))}
        names = frame.file.notes[node, "reads"] = tuple(n for text, n in chains.items() if text)
    for inner in names:
        value = _value(g, inner, frame)
        if value is not None and _opens(g, value, seen):
            return True
    return False


def opens_scopes(fn: Any) -> bool:
    """`has_scopes` of a jit function that is not being compiled; False when its source is not at hand."""
    from pto_jit.codegen.generator import Generator, Options

    if not isinstance(fn, types.FunctionType):
        return False
    try:
        located = locate(fn)
    except CompilationError:
        return False
    frame = Frame(located.file, names_of(located), fn.__globals__, cells_of(fn), None, fn.__name__, 0, None)
    return has_scopes(Generator(Options()), located.node, frame)


def _chain(node: ast.expr) -> str:
    """`a.b.c` as text, empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    base = _chain(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else ""


def _value(g: Generator, node: ast.AST, frame: Frame) -> Any:
    """What a name or attribute chain means as far as it is known before anything is compiled."""
    if isinstance(node, ast.Name):
        value = g.resolve(frame, node.id)
        return None if value is MISSING else value
    if isinstance(node, ast.Attribute):
        base = _value(g, node.value, frame)
        if base is None:
            return None
        if isinstance(base, types.ModuleType) or not isinstance(getattr(type(base), node.attr, None), property):
            return getattr(base, node.attr, None)
    return None


def _opens(g: Generator, value: Any, seen: set[int], depth: int = 0, owner: Any = None) -> bool:
    """Whether calling or entering `value` (a method of `owner`) makes an in-core scope."""
    if depth > 2 or isinstance(value, (int, float, str, types.ModuleType)):
        return False
    name = mark(value, "__pto_builtin__")
    if name is not None:  # an operation of the language is never looked into
        return name == "incore"
    if isinstance(value, METHODS):
        return _opens(g, value.__func__, seen, depth, value.__self__)
    if isinstance(value, functools.partial):
        return _opens(g, value.func, seen, depth)
    if isinstance(value, (tuple, list)):
        return any(_opens(g, v, seen, depth + 1) for v in value)
    if isinstance(value, dict):
        return any(_opens(g, v, seen, depth + 1) for v in value.values())
    if mark(value, "__pto_incore__") is not None or mark(value, "__pto_built__") is not None:
        return True
    kernel = mark(value, "__pto_jit__")
    value = value if kernel is None else kernel
    if isinstance(value, KernelFunction):
        return has_scopes(g, value.node, value.frame, seen)
    if isinstance(value, types.FunctionType):
        if id(value) in seen or not uses_language(value):
            return False
        seen.add(id(value))
        try:
            located = locate(value)
        except CompilationError:
            return False
        frame = Frame(
            located.file, names_of(located), value.__globals__, cells_of(value), None, value.__name__, 0, None
        )
        if owner is not None and frame.names.parameters:
            frame.vars[frame.names.parameters[0]] = owner
        return has_scopes(g, located.node, frame, seen)
    return False


def uses_language(fn: types.FunctionType, seen: set[int] | None = None) -> bool:
    """Whether a Python function mentions operations of `pl`, so that it has to be compiled even without run-time
    arguments (`def start(): return pl.zeros([8, 8])`)."""
    seen = set() if seen is None else seen
    if id(fn) in seen:
        return False
    seen.add(id(fn))
    names: set[str] = set()
    codes = [fn.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    values = [fn.__globals__[n] for n in names if n in fn.__globals__]
    for cell in fn.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue
    for value in values:
        if isinstance(value, types.ModuleType):
            if value.__name__ in ("pto_jit.language", "pto_jit.fractal") and any(
                isinstance(mark(getattr(value, n, None), "__pto_builtin__"), str) for n in names
            ):
                return True
            if value.__name__ == "pto_jit" and "language" in names:
                return True
        elif isinstance(value, types.FunctionType):
            if mark(value, "__pto_builtin__") is not None or uses_language(value, seen):
                return True
        elif isinstance(value, KernelFunction) or _marked(value):
            return True
    return False


_MARKS = ("__pto_incore__", "__pto_jit__", "__pto_built__")


def _marked(value: Any) -> bool:
    kind = type(value)
    return any(hasattr(kind, m) or m in getattr(value, "__dict__", {}) for m in _MARKS)
