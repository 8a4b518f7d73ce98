# SPDX-License-Identifier: MIT
"""Tensors that change places in a loop, as the two buffers of a stencil do: `u, v = v, u`.

A tensor is not a value that a variable of the program could hold.  But where every iteration exchanges the same names
in the same way, `period` iterations bring each tensor back to its name, so the body is compiled once for each of them,
with the tensors that the names stand for in it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.frames import Unusable
from pto_jit.codegen.names import stores
from pto_jit.codegen.values import Tensor, static_extent
from pto_jit.errors import Loc, Note
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

LONGEST = 4  # copies of a body


@frozen(eq=False)
class Rotation:
    """Names of tensors that every iteration of a loop exchanges."""

    tensors: Mapping[str, Tensor]  # what the names stand for before the loop
    source: Mapping[str, str]  # the name whose tensor each of them has after an iteration
    period: int

    def after(self, iterations: int) -> dict[str, Tensor]:
        """What the names stand for after so many iterations."""
        names = {name: name for name in self.source}
        for _ in range(iterations % self.period):
            names = {name: names[self.source[name]] for name in names}
        return {name: self.tensors[origin] for name, origin in names.items()}

    def unknown(self, name: str, loc: Loc) -> Unusable:
        """The binding of a name after the loop, where the number of iterations is known at run time only."""
        return Unusable(
            f"which tensor `{name}` is after this loop depends on how often it runs",
            "PTO-T001",
            (Note("the loop that exchanges tensors", loc),),
            f"keep names for the tensors, as `first = {name}` before the loop, and choose with an `if` after it, "
            "or copy between the tensors in place of exchanging them",
        )


def rotation(g: Generator, node: ast.For | ast.While) -> Rotation | None:
    """How a run-time loop exchanges tensors; None where it does not, or not the same way in every iteration.

    Also None where names are read after the loop and can be tiles: of known extents, none of their elements written.
    """
    names = g.frame.names.loops[node]
    tensors: dict[str, Tensor] = {}
    for name in names.assigned:
        value = g.frame.vars.get(name)
        if isinstance(value, Tensor) and value.rank and name in names.exposed and name not in names.augmented_only:
            tensors[name] = value
    if len(tensors) < 2 or any(_continues(s) for s in node.body) or (isinstance(node, ast.While) and node.orelse):
        return None
    source = exchanged(node.body, tensors)
    if source is None or (tensors.keys() & names.live_after and _can_be_tiles(node.body, tensors)):
        return None
    period, names_after = 1, dict(source)
    while any(name != origin for name, origin in names_after.items()):
        period += 1
        names_after = {name: names_after[source[name]] for name in source}
        if period > LONGEST:
            return None
    return Rotation(tensors, source, period) if period > 1 else None


def exchanged(body: Sequence[ast.stmt], names: Mapping[str, Any]) -> dict[str, str] | None:
    """Which of `names` each of them is after `body`, if assignments of names to names alone say so."""
    now: dict[str, str | None] = {name: name for name in names}
    for stmt in body:
        pairs = _renames(stmt)
        if pairs is not None:
            now.update([(target, now.get(origin)) for target, origin in pairs])
            continue
        bound = stores([stmt])
        if bound & names.keys():
            return None
        now.update(dict.fromkeys(bound))
    after = {name: now[name] for name in names}
    return after if set(after.values()) == set(names) else None  # type: ignore[return-value]


def _renames(stmt: ast.stmt) -> list[tuple[str, str]] | None:
    """(target, source) of an assignment that gives values of names to names; None for any other statement."""
    if not isinstance(stmt, ast.Assign):
        return None
    pairs: list[tuple[str, str]] = []
    for target in stmt.targets:
        targets, sources = _items(target), _items(stmt.value)
        if len(targets) != len(sources):
            return None
        for t, s in zip(targets, sources, strict=True):
            if not isinstance(t, ast.Name) or not isinstance(s, ast.Name):
                return None
            pairs.append((t.id, s.id))
    return pairs


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]


def _continues(stmt: ast.stmt) -> bool:
    """Whether a `continue` in a statement ends an iteration of the loop around it, before names are exchanged."""
    if isinstance(stmt, ast.Continue):
        return True
    if isinstance(stmt, (ast.For, ast.While)):
        return any(map(_continues, stmt.orelse))
    if isinstance(stmt, ast.Match):
        return any(_continues(s) for case in stmt.cases for s in case.body)
    inside = [*getattr(stmt, "body", ()), *getattr(stmt, "orelse", ())]
    return isinstance(stmt, (ast.If, ast.With)) and any(map(_continues, inside))


def _can_be_tiles(body: Sequence[ast.stmt], tensors: Mapping[str, Tensor]) -> bool:
    known = all(static_extent(e) is not None for tensor in tensors.values() for e in tensor.extents)
    return known and not _written(body, tensors)


def _written(body: Sequence[ast.stmt], names: Mapping[str, Any]) -> bool:
    """Whether statements assign to elements of `names`, or hand them to a function that may."""
    for node in (n for stmt in body for n in ast.walk(stmt)):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _root(node) in names:
            return True
        if isinstance(node, ast.Call) and any(_root(a) in names for a in node.args) and not _only_reads(node.func):
            return True
    return False


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _only_reads(function: ast.expr) -> bool:
    """Whether a function is one of the language (by its spelling) that writes no tensor."""
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.attr not in ("store", "scatter", "atomic_add", "atomic_max", "atomic_min")
    )
