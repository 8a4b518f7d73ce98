# SPDX-License-Identifier: MIT
"""Comprehension statements in interpret mode: read from the source when Python comes to their assignment, then run as
the Python text of their loops, on NumPy."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from pto_jit import dtypes
from pto_jit.comprehensions.inline import Inlined, Place, Surroundings, inlined, no_element
from pto_jit.comprehensions.lowering.checks import Check
from pto_jit.comprehensions.program import Memory
from pto_jit.comprehensions.version import warn
from pto_jit.dtypes import DType, f32
from pto_jit.errors import CompilationError, RangeInferenceError, ShapeError
from pto_jit.language import Tile
from pto_jit.language._indices import Axis, is_unread
from pto_jit.language._number import Element, Float, plain
from pto_jit.language._places import enclosing, span_of
from pto_jit.language._tile import tensor
from pto_jit.source import SourceFile, load_file

_MISSING = object()
_known: dict[tuple[CodeType, int], tuple[Any, Inlined]] = {}


def run_statement(frame: FrameType) -> None:
    """Do the statement that a frame is executing.  Raises the errors of a comprehension, and ShapeError for sizes."""
    file = load_file(frame.f_code.co_filename, frame.f_globals)
    span = span_of(frame)
    if file is None or span is None:
        raise CompilationError(
            "a comprehension statement is read from its source, which is not at hand", code="PTO-R094",
            hint="keep the kernel in a file",
        )  # fmt: skip
    around = enclosing(file, span)
    stmt = _with_exists(around)
    function = next((s for s in around if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    names = _Names(frame, file, stmt, function)
    key, kinds = (frame.f_code, frame.f_lasti), names.kinds()
    known = _known.get(key)
    if known is None or known[0] != kinds:
        if len(_known) > 1024:
            _known.clear()
        try:
            known = _known[key] = kinds, inlined(file, [stmt], names.around, _checked)
        except RangeInferenceError as error:
            if error.code != "PTO-R011":
                raise
            # The sizes are numbers here only because this is a run of the program.
            hint = "pass arrays that are large enough"
            raise ShapeError(error.message, error.loc, code="PTO-R023", hint=hint) from None
        for text in known[1].warnings:
            warn(f"{frame.f_code.co_name}: {text}")
    known[1].function(*(names.values[n] for n in known[1].arguments))


def _with_exists(around: list[ast.stmt]) -> ast.stmt:
    """The innermost statement, inside the `with pl.exists(...)` that it stands in."""
    stmt = around[0]
    for outer in around[1:]:
        if not isinstance(outer, ast.With):
            break
        calls = [item.context_expr for item in outer.items]
        if not all(isinstance(c, ast.Call) and ast.unparse(c.func).split(".")[-1] == "exists" for c in calls):
            break
        stmt = ast.copy_location(ast.With(items=outer.items, body=[stmt]), outer)
    return stmt


class _Names:
    """What the names of a statement mean in a frame.  Sizes and whole numbers are what they are: numbers."""

    def __init__(self, frame: FrameType, file: SourceFile, stmt: ast.stmt, function: ast.stmt | None) -> None:
        self.frame, self.file, self.function = frame, file, function
        self.around = Surroundings()
        self.values: dict[str, Any] = {}
        self.collect(stmt)
        written = [n.value for n in ast.walk(stmt) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
        places = [self.around.tensors.get(b.id) for b in written if isinstance(b, ast.Name)]
        stored = next((p.dtype for p in places if p is not None), f32)
        for name, value in self.values.items():
            if isinstance(value, (Float, Element)):
                self.around.scalars[name] = _taken(value, stored)

    def collect(self, node: ast.AST) -> None:
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and not self.known(n.id):
                self.name(n)

    def known(self, name: str) -> bool:
        a = self.around
        return name in self.values or name in a.axes or name in a.lets or name in a.others

    def name(self, node: ast.Name) -> None:
        name, value = node.id, self.meaning(node.id)
        if value is _MISSING:
            return  # the reader says so
        if isinstance(value, Axis):
            self.around.axes[name] = None if value.low is None else (plain(value.low), plain(value.high))
        elif is_unread(value) or (isinstance(value, (bool, int, float, Element)) and self.let(node) is not None):
            expression = self.let(node)
            if expression is None:
                raise CompilationError(
                    f"`{name}` is an element at indices, and not named in this function", self.file.loc(node),
                    code="PTO-R094", hint="name expressions where they are used",
                )  # fmt: skip
            self.around.lets[name] = expression
            self.collect(expression)
        elif isinstance(value, Tile):
            raise no_element(self.file.loc(node), name)
        elif isinstance(value, np.ndarray) and (dtype := dtypes.from_numpy(value.view(np.ndarray).dtype)) is not None:
            self.values[name] = tensor(value)
            self.around.tensors[name] = Place(dtype, value.view(np.ndarray).shape, Memory(name, False))
        elif isinstance(value, (Float, Element)):
            self.values[name] = value
        else:
            self.around.others[name] = plain(value)

    def meaning(self, name: str) -> Any:
        for names in (self.frame.f_locals, self.frame.f_globals, vars(builtins)):
            if name in names:
                return names[name]
        return _MISSING

    def let(self, node: ast.Name) -> ast.expr | None:
        """The expression of elements at indices that a name stands for, None when it is something else: that of the
        last assignment to it above its use."""
        found = [
            value for n in ast.walk(self.function or node) if isinstance(n, ast.Assign) and n.lineno < node.lineno
            for name, value in _named(n) if name == node.id
        ]  # fmt: skip
        last = max(found, key=lambda e: e.lineno, default=None)
        if last is None or isinstance(self.meaning(node.id), Axis):
            return None
        names = [n for n in ast.walk(last) if isinstance(n, ast.Name) and n.id != node.id]
        computed = any(isinstance(self.meaning(n.id), Axis) for n in names) or any(self.let(n) for n in names)
        return last if computed else None

    def kinds(self) -> Any:
        """What the function of the statement depends on."""
        a = self.around
        tensors = tuple((n, p.dtype, p.sizes) for n, p in a.tensors.items())
        return tensors, tuple(a.scalars.items()), tuple(a.axes.items()), [(n, _Same(v)) for n, v in a.others.items()]


def _named(stmt: ast.Assign) -> list[tuple[str, ast.expr]]:
    """The names that an assignment gives to expressions, one each."""
    target, value = stmt.targets[0], stmt.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [(t.id, v) for t, v in pairs if isinstance(t, ast.Name)]


class _Same:
    """An object that equals itself alone, or a number of its type."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        a, b = self.value, other.value if isinstance(other, _Same) else other
        return a is b or (type(a) is type(b) and isinstance(a, (int, float, str)) and a == b)

    __hash__ = None  # type: ignore[assignment]


def _taken(value: Any, stored: DType) -> DType:
    """The type of a number, as in compiled code: a weak one takes that of the tensor which is written."""
    if isinstance(value, Element):
        return value.dtype
    return stored if stored.is_float else f32


def _checked(check: Check) -> Callable[[Any], None]:
    def checked(holds: Any) -> None:
        if not holds:
            raise ShapeError(check.message, check.loc, code=check.code, hint=check.hint)

    return checked
