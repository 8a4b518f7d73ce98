# SPDX-License-Identifier: MIT
"""Direction vectors of the dependences between two accesses, from what the analysis answers about pairs of iterations.

Directions are refined loop by loop from the outside (M. Burke and R. Cytron, "Interprocedural dependence analysis and
parallelization", 1986): what is impossible with `*` inside needs no further question.
"""

from __future__ import annotations

from pto_jit.lower.dependence import Access, Accesses, Loop, conflict
from pto_jit.lower.dependence.conflicts import Relation, Verdict

RELATIONS: tuple[Relation, ...] = ("<", "=", ">")


def common_loops(found: Accesses, a: Access, b: Access) -> list[Loop]:
    """The loops around both accesses, from the outside."""
    return [found.loops[n] for n, m in zip(a.stack, b.stack, strict=False) if n == m]


def vectors(found: Accesses, a: Access, b: Access) -> dict[tuple[Relation, ...], Verdict]:
    """The directions, one per common loop, under which `a` and `b` may touch one element, with "yes" or "unknown"."""
    loops = common_loops(found, a, b)
    out: dict[tuple[Relation, ...], Verdict] = {}

    def refine(chosen: tuple[Relation, ...]) -> None:
        verdict = conflict(found, a, b, [], list(zip(loops, chosen, strict=False))).verdict
        if verdict == "no":
            return
        if len(chosen) == len(loops):
            out[chosen] = verdict
            return
        for relation in RELATIONS:
            refine((*chosen, relation))

    refine(())
    return out
