# SPDX-License-Identifier: MIT
"""Direction and distance vectors of the dependences between two accesses.

Directions are refined loop by loop from the outside (M. Burke and R. Cytron, "Interprocedural dependence analysis and
parallelization", 1986): what is impossible with `*` inside needs no further question.
"""

from __future__ import annotations

from pto_jit.lower.dependence.accesses import Access, Accesses, Loop
from pto_jit.lower.dependence.conflicts import Conflict, Relation, Verdict, conflict
from pto_jit.slotted import frozen

RELATIONS: tuple[Relation, ...] = ("<", "=", ">")


@frozen
class Vector:
    """One direction per common loop, from the outside; `verdict` is never "no".

    `distances` are index differences (second minus first access) where the example has them: one example, not all.
    """

    directions: tuple[Relation, ...]
    verdict: Verdict
    distances: tuple[int, ...] | None


def common_loops(found: Accesses, a: Access, b: Access) -> list[Loop]:
    """The loops around both accesses, from the outside."""
    return [found.loops[n] for n, m in zip(a.stack, b.stack, strict=False) if n == m]


def vectors(found: Accesses, a: Access, b: Access, *, same: int = 0) -> list[Vector]:
    """The direction vectors under which `a` and `b` may touch one element; the first `same` common loops are in one
    iteration and left out."""
    loops = common_loops(found, a, b)
    shared = [loop.number for loop in loops[:same]]
    rest = loops[same:]
    out: list[Vector] = []

    def refine(chosen: tuple[Relation, ...]) -> None:
        result = conflict(found, a, b, shared, list(zip(rest, chosen, strict=False)))
        if result.verdict == "no":
            return
        if len(chosen) == len(rest):
            out.append(Vector(chosen, result.verdict, _distances(result, rest)))
            return
        for relation in RELATIONS:
            refine((*chosen, relation))

    refine(())
    return out


def _distances(result: Conflict, loops: list[Loop]) -> tuple[int, ...] | None:
    if result.iterations is None:
        return None
    first, second = result.iterations
    return tuple(second[loop.number] - first[loop.number] for loop in loops)
