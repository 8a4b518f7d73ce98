# SPDX-License-Identifier: MIT
"""Run-time control flow being compiled: journals of changed names, and ways out that are taken only at run time."""

from __future__ import annotations

import ast
from typing import Any

from pto_jit.codegen.frames import MISSING, Frame
from pto_jit.codegen.merging import Exit
from pto_jit.codegen.values import Scalar
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Stmt
from pto_jit.slotted import field, mutable


@mutable(eq=False)
class Target:
    """Something that can be left early: a function being inlined, an unrolled loop or one of its iterations.

    `vars["left"]` says whether it was left: False, True or a run-time bool; `vars["result"]` is the value returned.
    They are merged like any variables, so code after a branch that may have left runs under `if not left`.
    """

    kind: str  # "function", "entry", "break", "continue"
    region: int
    loops: int  # run-time loops open where it began
    vars: dict[str, Any] = field(default_factory=lambda: {"left": False})
    places: dict[str, ast.AST] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """The statement that leaves it."""
        return "return" if self.kind in ("function", "entry") else self.kind


Holder = Frame | Target
Key = tuple[Holder, str]
Changes = dict[Key, tuple[Any, ast.AST | None]]


class Gone:
    """Status of code after which control is elsewhere by an IR statement (`Break`, `Continue`, `Return`)."""


GONE = Gone()
SPLIT = Gone()  # control left for several targets; their flags tell which

Status = Target | Gone | None  # None: control falls through


@mutable(eq=False)
class Region:
    """One run-time branch or loop body being compiled, with the old values of the names it changed."""

    depth: int
    parent: Region | None
    loc: Loc
    loop: LoopRecord | None = None
    journal: Changes = field(default_factory=dict)

    def record(self, holder: Holder, name: str) -> None:
        """Remember the value of a name before its first change here."""
        key = (holder, name)
        if key not in self.journal:
            self.journal[key] = (holder.vars.get(name, MISSING), holder.places.get(name))


@mutable(eq=False)
class Branch:
    """A finished branch: its statements, the names it changed and how it ended."""

    block: list[Stmt]
    changes: Changes
    status: Status
    region: Region


@mutable(eq=False)
class Pending:
    """An `if` one side of which left; the code after it is being compiled into the other side."""

    cond: Scalar
    gone: Branch
    gone_is_then: bool
    open: Region
    block: list[Stmt]
    loc: Loc
    node: ast.AST


@mutable(eq=False)
class LoopExit:
    """A way out of an iteration, with the values of all names at that point."""

    kind: str  # "next" (end of the body, continue) or "break"
    place: Exit
    values: dict[Key, Any]
    target: Target | None = None  # what is left beyond the loop, when it is not the loop alone


@mutable(eq=False)
class LoopRecord:
    """A run-time loop whose body is being compiled."""

    kind: str  # "sequential", "parallel", "while"
    loc: Loc
    pending: int  # pending `if`s open where the body begins
    scope_depth: int = 0
    exits: list[LoopExit] = field(default_factory=list)
    leave: dict[str, Target] = field(default_factory=dict)  # for `break` and `continue` out of a scope in the body
