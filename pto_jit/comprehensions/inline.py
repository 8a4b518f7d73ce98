# SPDX-License-Identifier: MIT
"""Comprehension statements inside a `@pto.jit` function: `C[m, n] = pl.sum(A[m, k] * B[k, n])` over `pl.axis` indices.

Statements that follow each other become one function of the tensors and numbers that they name, which is compiled, or
called by the interpreter, in their place.  Every tensor that is written exists already: it is a parameter that is
returned, so what holds of those holds here.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.comprehensions.lowering.checks import Check
from pto_jit.comprehensions.lowering.kernel import lowered
from pto_jit.comprehensions.nodes import Definition, Expression, Name, Number, Parameter, Return
from pto_jit.comprehensions.program import Analysis, Memory, analyse
from pto_jit.comprehensions.python import Reader
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, Note
from pto_jit.slotted import field, frozen, mutable
from pto_jit.source import SourceFile

_numbers = itertools.count(1)


@frozen(eq=False)
class Place:
    """A tensor that statements name: dtype, extents (numbers, or names: one name is one size), and its memory."""

    dtype: DType
    sizes: tuple[str | int, ...]
    memory: Memory


@mutable(eq=False)
class Surroundings:
    """What the names of statements mean: tensors, numbers, indices with their bounds (names or numbers), names for
    expressions, and everything else as it is."""

    tensors: dict[str, Place] = field(default_factory=dict)
    scalars: dict[str, DType] = field(default_factory=dict)
    axes: dict[str, tuple[Any, Any] | None] = field(default_factory=dict)
    lets: dict[str, ast.expr] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)


@frozen(eq=False)
class Inlined:
    """`function` does what the statements do, for the values of the names `arguments`; `warnings`: what nothing
    checks."""

    function: Any
    arguments: list[str]
    text: str
    warnings: list[str]


class _Statements(Reader):
    """Reads statements whose names mean what `around` says."""

    def __init__(self, file: SourceFile, node: ast.stmt, around: Surroundings) -> None:
        self.begin(file, dict(around.others), {})
        for name, place in around.tensors.items():
            self.parameters[name] = Parameter(name, place.dtype, place.sizes, self.loc(node))
            self.sizes |= {s for s in place.sizes if isinstance(s, str)}
            self.tensors.add(name)
        for name, dtype in around.scalars.items():
            self.parameters[name] = Parameter(name, dtype, (), self.loc(node))
        for name, bounds in around.axes.items():
            self.axes[name] = None if bounds is None else (_bound(bounds[0]), _bound(bounds[1]), self.loc(node))
        for name, expression in around.lets.items():
            self.lets[name] = self.expression(expression)


def _bound(value: Any) -> Expression:
    return Name(value) if isinstance(value, str) else Number(value)


def inlined(file: SourceFile, nodes: Sequence[ast.stmt], around: Surroundings,
            check: Callable[[Check], Callable[[Any], None]], debug: bool = False,
            device: bool = False) -> Inlined:  # fmt: skip
    """The function of some statements; `check` makes what is called with each condition on sizes; `device`: for a GPU.

    Raises the errors of a comprehension.
    """
    reader = _Statements(file, nodes[0], around)
    for node in nodes:
        reader.statement(node, ())
    written = dict.fromkeys(s.target for s in reader.body if s.target in around.tensors)  # type: ignore[union-attr]
    definition = Definition(
        "statements", tuple(reader.parameters.values()), tuple(map(Return, written)), tuple(reader.body), False
    )
    try:
        analysis = analyse(definition, memory={n: p.memory for n, p in around.tensors.items()})
    except CompilationError as error:
        raise _readable(error, around) from None
    program = lowered(analysis, checked=lambda c: check(_spelled(c, around)), device=device)
    filename = f"<loops of statements {next(_numbers)}>"
    text = str(program)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"__name__": "comprehension", **program.values}
    exec(compile(text, filename, "exec"), space)
    return Inlined(space[program.name].__pto_jit__, [p.name for p in definition.parameters], text,
                   [] if debug else _warnings(analysis, around))  # fmt: skip


# -- words --------------------------------------------------------------------------------------------------------


def _warnings(analysis: Analysis, around: Surroundings) -> list[str]:
    return [f"not checked: {_words(str(p), around)}" for p in analysis.preconditions if p.kind == "value"]


def _words(text: str, around: Surroundings) -> str:
    """A message with sizes as the kernel's source spells them."""
    for name, place in around.tensors.items():
        for axis, size in enumerate(place.sizes):
            if isinstance(size, str):
                text = re.sub(rf"\b{re.escape(size)}\b", f"{name}.shape[{axis}]", text)
    return text


def _spelled(check: Check, around: Surroundings) -> Check:
    return Check(check.condition, check.code, _words(check.message, around), check.loc, _words(check.hint, around))


def _readable(error: CompilationError, around: Surroundings) -> CompilationError:
    notes = tuple(Note(_words(n.message, around), n.loc) for n in error.notes)
    hint = None if error.hint is None else _words(error.hint, around)
    return type(error)(_words(error.message, around), error.loc, code=error.code, hint=hint, notes=notes)


def no_element(loc: Loc, name: str) -> CompilationError:
    """For a name that is neither a tensor nor a number."""
    return CompilationError(
        f"`{name}` is a tile, and a comprehension statement reads elements of tensors", loc, code="PTO-R093",
        hint="store it to a tensor first",
    )  # fmt: skip


def rebound(loc: Loc, name: str, let: str) -> CompilationError:
    """For a name for an expression whose parts mean something else where it is used."""
    return CompilationError(
        f"`{let}` names an expression of `{name}`, which has got another value since", loc, code="PTO-R092",
        hint=f"name the expression again, or do not assign to `{name}`",
    )  # fmt: skip
