# SPDX-License-Identifier: MIT
"""A map of folds taken apart: the folds, which are nests of their own, and what is done with their last states.

Before: for each list a fold, then operations on its last state.  After: the folds of all lists, whose last states stay
in memory, then a map over these.  So the cells of a fold over many lists can be the rows of planes, or tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.fractal.compile.lists import BEHIND, Compute, Loop, ReadLeaf, WriteLeaf
from pto_jit.fractal.compile.names import defined, makers, uses
from pto_jit.fractal.compile.nest import is_pure
from pto_jit.ir.nodes import Op
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace


def folds_apart(loop: Loop) -> list[Any] | None:
    """The parts of a map around folds, in an order in which they can run; None where that is one loop.

    A read or operation of the body goes along with the one loop that uses it, or with what is behind all of them.
    """
    if loop.kind != "parallel":
        return None
    body: list[Any] = []
    for item in loop.body:
        parts = folds_apart(item) if isinstance(item, Loop) else None
        body += [item] if parts is None else parts
    rest = [i for i in body if not isinstance(i, Loop)]
    finals = any(isinstance(i, ReadLeaf) and i.final is not None for i in rest)
    if not (finals or len(body) > len(loop.body)) or not all(map(_can_move, rest)):
        return None
    groups = [[*_needed([inner], rest), inner] for inner in body if isinstance(inner, Loop)]
    needed = {id(i) for group in groups for i in group}
    groups.append([i for i in rest if id(i) not in needed])
    groups[-1] = [*_needed(groups[-1], [i for i in rest if id(i) in needed]), *groups[-1]]
    before = _shared(groups)
    groups = [[i for i in group if not any(i is b for b in before)] for group in groups]
    taken = [id(i) for group in groups for i in group]
    if len(taken) > len(set(taken)):
        return None
    *folds, behind = ([_from_memory(i) for i in group] for group in groups)
    found = [*before, *(replace(loop, body=group) for group in folds)]
    if behind:
        found.append(replace(loop, body=behind, schedule=BEHIND, tile=None))
    return found


def _shared(groups: list[list[Any]]) -> list[Op]:
    """The operations that several groups need and that are the same in every iteration: an initial state."""
    inside = {name for group in groups for i in group if not isinstance(i, Loop) for name in defined(i)}
    found: list[Op] = []
    for item in groups[-1]:
        several = sum(any(i is item for i in group) for group in groups) > 1
        if several and isinstance(item, Op) and is_pure(item) and not uses(item) & inside:
            found.append(item)
            inside -= defined(item)
    return found


def _needed(group: Sequence[Any], rest: list[Any]) -> list[Any]:
    """What statements of a group use, and what that is made of."""
    return makers(set[str]().union(*map(uses, group)), rest)


def _can_move(item: Any) -> bool:
    """Whether it writes no tensor of the program."""
    if isinstance(item, Op):
        return effects(item.op) != "writes" and item.op not in ("alloc", "copy")
    return isinstance(item, (ReadLeaf, WriteLeaf, Compute))


def _from_memory(item: Any) -> Any:
    """A last state is read where the fold wrote it, not from the variable that carries it."""
    return replace(item, final=None) if isinstance(item, ReadLeaf) and item.final is not None else item
