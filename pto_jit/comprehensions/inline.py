# SPDX-License-Identifier: MIT
"""A comprehension statement inside a `@pto.jit` function: `C[m, n] = pl.sum(A[m, k] * B[k, n])` over `pl.axis` indices.

The statement becomes a function of the tensors and numbers that it names, which is compiled in its place.
"""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Mapping
from typing import Any

from pto_jit.comprehensions.lowering.kernel import lowered
from pto_jit.comprehensions.nodes import Definition, Expression, Name, Number, Parameter, Read, Return, Statement
from pto_jit.comprehensions.program import analyse
from pto_jit.comprehensions.python import Reader
from pto_jit.dtypes import DType
from pto_jit.errors import CompilationError, Loc, ShapeError
from pto_jit.source import SourceFile

_numbers = itertools.count(1)


class _Statements(Reader):
    """Reads one statement whose names mean what `around` says; `axes`: index -> bounds (names, numbers) or None."""

    def __init__(self, file: SourceFile, node: ast.stmt, around: Mapping[str, Any],
                 tensors: Mapping[str, tuple[DType, int]], scalars: Mapping[str, DType],
                 axes: Mapping[str, tuple[Any, Any] | None]) -> None:  # fmt: skip
        self.begin(file, dict(around), {})
        for name, (dtype, rank) in tensors.items():
            sizes = tuple(f"{name}_{k}" for k in range(rank))
            self.parameters[name] = Parameter(name, dtype, sizes, self.loc(node))
            self.sizes |= set(sizes)
            self.tensors.add(name)
        for name, dtype in scalars.items():
            self.parameters[name] = Parameter(name, dtype, (), self.loc(node))
        for name, bounds in axes.items():
            self.axes[name] = None if bounds is None else (_bound(bounds[0]), _bound(bounds[1]), self.loc(node))


def _bound(value: Any) -> Expression:
    return Name(value) if isinstance(value, str) else Number(value)


def statement_function(file: SourceFile, node: ast.stmt, target: str, around: Mapping[str, Any],
                       tensors: Mapping[str, tuple[DType, int]], scalars: Mapping[str, DType],
                       axes: Mapping[str, tuple[Any, Any] | None]) -> tuple[Any, list[str]]:  # fmt: skip
    """A function that does what the statement does, and the names of what it takes, in order.

    Raises the errors of a comprehension, and ShapeError for what would have to be checked while running.
    """
    reader = _Statements(file, node, around, tensors, scalars, axes)
    reader.statement(node, ())
    (statement,) = reader.body
    assert isinstance(statement, Statement)
    # What is written exists: it says how far its indices go, too.
    own = Read(target, tuple(Name(i, statement.target_loc) for i in statement.indices), statement.target_loc)
    whole = Statement(statement.target, statement.indices, statement.op, statement.fresh, statement.value,
                      statement.ranges, (*statement.exists, own), statement.loc, statement.target_loc)  # fmt: skip
    definition = Definition("statement", tuple(reader.parameters.values()), (Return(target),), (whole,), False)
    analysis = analyse(definition)
    for p in analysis.preconditions:
        if p.kind == "shape":
            raise ShapeError(
                f"inside a kernel nothing checks that {p.text}", p.loc, code="PTO-R092",
                hint="write a `@pto.comprehension`, whose sizes are checked at the call, or pad the read",
            )  # fmt: skip
    program = lowered(analysis)
    filename = f"<loops of a statement {next(_numbers)}>"
    text = str(program)
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space: dict[str, Any] = {"__name__": "comprehension", **program.values}
    exec(compile(text, filename, "exec"), space)
    return space[program.name].__pto_jit__, [p.name for p in definition.parameters]


def no_element(loc: Loc, name: str) -> CompilationError:
    """For a name that is neither a tensor nor a number."""
    return CompilationError(
        f"`{name}` is a tile, and a comprehension statement reads elements of tensors", loc, code="PTO-R093",
        hint="store it to a tensor first",
    )  # fmt: skip
