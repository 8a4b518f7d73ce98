# SPDX-License-Identifier: MIT
"""Loops before plans are chosen for them: without what nobody reads, behind their checks, one around each loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.fractal.compile.checks import outside_of
from pto_jit.fractal.compile.lists import CHECKS, Check, Compute, Loop, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.names import defined, uses
from pto_jit.fractal.compile.nest import is_pure
from pto_jit.fractal.compile.sequential import RECORDS, variable_of
from pto_jit.ir.nodes import Op, Var
from pto_jit.slotted import replace


def pruned(items: Sequence[Any]) -> list[Any]:
    """Without reads and integers inside of loops that nobody uses, and without loops that then do nothing."""
    return [new for item in items for new in [_loop(item) if isinstance(item, Loop) else item] if new is not None]


def _loop(loop: Loop) -> Loop | None:
    used: set[str] = set()
    kept: list[Any] = []
    for item in reversed(loop.body):
        if isinstance(item, Loop):
            new = _loop(item)
            if new is None:
                continue
            item = new
        elif isinstance(item, (ReadLeaf, Compute)):
            var = item.var if isinstance(item, Compute) else variable_of(item.value)
            carried = isinstance(item, ReadLeaf) and item.state is not None and item.state.temporary
            if isinstance(var, Var) and var.name not in used and not carried:
                continue
        kept.append(item)
        used |= uses(item)
    body = kept[::-1]
    if not any(isinstance(i, (Loop, WriteLeaf, Check)) or not isinstance(i, (*RECORDS, Op)) for i in body) and not any(
        isinstance(i, Op) and not i.results for i in body
    ):
        return None
    loop.body = body
    return loop


def checks_first(item: Any) -> list[Any]:
    """A loop after the checks in it that are the same in every iteration."""
    if not isinstance(item, Loop):
        return [item]
    before: list[Any] = []
    body: list[Any] = []
    made = {name for i in item.body if not isinstance(i, Loop) for name in defined(i)}
    for part in (p for i in item.body for p in checks_first(i)):
        moved = outside_of(item, part) if isinstance(part, Check) and not uses(part) & made else None
        (body if moved is None else before).append(moved or part)
    item.body = body
    return [*before, item]


def checks_apart(item: Any) -> list[Any]:
    """A loop after one of its checks alone, which runs in order, so that the first element that is wrong is told."""
    if not isinstance(item, Loop):
        return [item]
    rest, checks = _parted(item)
    return [loop for loop in (checks, rest) if loop is not None]


def _parted(loop: Loop) -> tuple[Loop | None, Loop | None]:
    """A loop without the checks that lengths alone decide, and a loop with nothing else; None for nothing."""
    made = {name for i in loop.body if not isinstance(i, Loop) for name in defined(i)}
    rest: list[Any] = []
    checks: list[Any] = []
    for item in loop.body:
        if isinstance(item, Check) and not uses(item) & made:
            checks.append(item)
            continue
        if isinstance(item, Loop):
            inside, found = _parted(item)
            if found is not None and not uses(found) & made:
                checks.append(found)
                rest += [] if inside is None else [inside]
                continue
        rest.append(item)
    if not checks:
        return loop, None
    found = Loop(loop.symbol, loop.length, "carry", loop.loc, checks, CHECKS)
    return (replace(loop, body=rest) if rest else None), found


def distributed(item: Any) -> list[Any]:
    """A parallel loop around several loops as one around each: they communicate through arrays alone.

    A read or operation between them goes along with the loop that uses it; where several do, the loop stays whole.
    """
    if not isinstance(item, Loop) or item.kind != "parallel":
        return [item]
    inner = [i for i in item.body if isinstance(i, Loop)]
    rest = [i for i in item.body if not isinstance(i, Loop)]
    if any(isinstance(i, ReadLeaf) and i.final is not None for i in rest):
        return [item]
    if len(inner) < 2 or not all(
        isinstance(i, (ReadLeaf, Compute)) or (isinstance(i, Op) and is_pure(i)) for i in rest
    ):
        return [item]
    found: list[Any] = []
    taken: set[int] = set()
    for loop in inner:
        wanted = uses(loop)
        mine: list[Any] = []
        for other in reversed(rest):
            if defined(other) & wanted:
                mine.append(other)
                wanted |= uses(other)
        if any(id(i) in taken for i in mine):
            return [item]
        taken |= {id(i) for i in mine}
        found.append(Loop(item.symbol, item.length, item.kind, item.loc, [*mine[::-1], loop], item.schedule, item.tile))
    if any(map(_carries, found)):  # a plan was asked for these; the other loops run as they are
        for loop in found:
            if not _carries(loop):
                loop.schedule, loop.tile = "auto", None
    return found


def _carries(loop: Loop) -> bool:
    return loop.kind != "parallel" or any(isinstance(i, Loop) and _carries(i) for i in loop.body)
