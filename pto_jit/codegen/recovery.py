# SPDX-License-Identifier: MIT
"""Going on after an error, so that one compilation reports several.

Recovery is by statement of the kernel itself: a statement that fails (a call of a helper counts as a part of the
statement it stands in) is given up, the state of the compilation is what it was before it, and the names it assigns
become unusable.  What follows from that, such as the use of such a name, is not reported: see `Recovery.silent`.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.control import restore
from pto_jit.codegen.frames import Unusable
from pto_jit.codegen.regions import GONE, Region, Status
from pto_jit.errors import CompilationError, InternalError

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

MOST = 10
"""Errors of one compilation that are reported."""
TRIED = 50
"""Statements that are given up before the compilation is: unrolled loops may repeat one failure many times."""
FOLLOWS = "follows"
"""In place of the code of an error that another one caused; never seen by a user."""

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOST = Unusable("the statement that assigns this name failed", FOLLOWS)

Mark = tuple[Any, ...]


class Recovery:
    """The errors of one compilation, and how it goes on after one."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.errors: list[CompilationError] = []
        self._tried = 0

    def mark(self) -> Mark | None:
        """The state before a statement; None in functions that are inlined, whose errors belong to the call."""
        g = self.g
        if g.frame.caller is not None or g.frame.parent is not None:
            return None
        return (
            g.inner, g.depth, g.frame, g.scope_depth, g.static_loops, g.orchestration, g.returning,
            g.loop_statements.followed, g.e.depth, len(g.control.pending), len(g.targets), len(g.loops),
            len(g.loop_stack), len(g.inlined), len(self.errors),
        )  # fmt: skip

    def recover(self, error: CompilationError | InternalError, stmt: ast.stmt, mark: Mark) -> Status:
        """Give `stmt` up and go back to `mark`; raises when it is time to stop."""
        g = self.g
        if isinstance(error, CompilationError):
            if len(self.errors) == mark[-1] and not self.silent(error):  # else it follows from one inside of `stmt`
                self.errors.append(error)
        elif not self.errors:
            raise error
        self._tried += 1
        if len(self.errors) >= MOST or self._tried >= TRIED:
            raise self.summary()
        self._leave_regions(mark[0])
        (g.inner, g.depth, g.frame, g.scope_depth, g.static_loops, g.orchestration, g.returning,
         g.loop_statements.followed, depth) = mark[:9]  # fmt: skip
        g.e.cut(depth)
        for items, length in zip((g.control.pending, g.targets, g.loops, g.loop_stack, g.inlined), mark[9:14],
                                 strict=True):  # fmt: skip
            del items[length:]
        g.node = stmt
        for name in _assigned(stmt):
            g.bind(g.frame.owner(name) or g.frame, name, _LOST)
        return GONE if isinstance(stmt, (ast.Return, ast.Raise, ast.Break, ast.Continue)) else None

    def silent(self, error: CompilationError) -> bool:
        """Whether an error was reported already, or follows from one."""
        if error.code == FOLLOWS:
            return True
        return any(e.code == error.code and e.loc == error.loc for e in self.errors)

    def summary(self) -> CompilationError:
        """The first error with the others attached."""
        first, *others = self.errors
        first.others = tuple(others)
        for other in others:
            other.__traceback__ = None  # nobody raises it: no reason to keep the compiler's frames
        return first

    def _leave_regions(self, outer: Region | None) -> None:
        """Put back what the branches and loops that were given up have changed."""
        region = self.g.inner
        while region is not None and region is not outer:
            for (holder, name), (old, place) in region.journal.items():
                restore(holder, name, old, place)
            region = region.parent


def _assigned(stmt: ast.stmt) -> set[str]:
    """The names that a statement may bind (those of comprehensions inside it, too: no harm, they are local)."""
    if isinstance(stmt, _NAMED):
        return {stmt.name}
    if isinstance(stmt, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in stmt.names}
    found: set[str] = set()
    for node in ast.walk(stmt):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (*_NAMED, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
    return found
