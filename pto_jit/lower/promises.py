# SPDX-License-Identifier: MIT
"""Refuse parallel and chunked loops whose iterations certainly depend on each other; believe the others.

Two iterations that write one place, or one that reads what another one writes, make a loop that cannot be divided.
It is a ScheduleError when that happens whatever the arguments are (`dependence.violations` says what is supposed), also
when equal values are written: the order of the iterations must not matter, and a place that is written more than once
belongs after the loop.  What depends on arguments or data is believed; atomic operations are exempt, and reductions are
gone by now.  Every such loop gets a `Decision` that says whether its promise is proven.  Loops that a front end made of
something that it has proven (`For.proof`: the planes of a wavefront) are not examined again.
"""

from __future__ import annotations

from pto_jit.errors import Note, ScheduleError
from pto_jit.ir.nodes import For, Module
from pto_jit.ir.walk import statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Access, Dependences, Loop, Order, Pairs, conflict
from pto_jit.lower.dependence.conflicts import DIVIDED
from pto_jit.lower.names import source_name


def refuse_races(module: Module, decisions: list[Decision]) -> Module:
    """Check all parallel loops of `module`, which is not changed. Raises ScheduleError."""
    for func in module.funcs:
        divided = [s for s in statements(func.body) if isinstance(s, For) and s.kind in DIVIDED]
        if all(s.proof for s in divided):
            decisions += map(_proven, divided)
            continue
        dependences = Dependences(func, module)
        for loop in dependences.found.loops:
            if isinstance(loop.stmt, For) and loop.stmt.kind in DIVIDED:
                if loop.stmt.proof:
                    decisions.append(_proven(loop.stmt))
                    continue
                _check(dependences, loop)
                if loop.stmt.kind == "parallel":
                    decisions.append(_decision(dependences, loop))
    return module


def _check(dependences: Dependences, loop: Loop) -> None:
    found, around = dependences.found, loop.outer[:-1]
    assert isinstance(loop.stmt, For)
    split = loop.stmt.kind != "parallel"  # a reduction is split: its partial results are allocated, and not the user's
    orders: list[Order] = [[(loop, "<")], [(loop, ">")]]
    for a, b in Pairs(found, loop, frozenset(around), orders).found():
        if a.atomic is not None and b.atomic is not None:
            continue
        if split and a.root.kind != "argument":
            continue
        apart = [conflict(found, a, b, around, [(loop, "<")])]
        if a is not b:
            apart.append(conflict(found, a, b, around, [(loop, ">")]))
        if all(c.verdict == "no" for c in apart):
            continue
        from pto_jit.lower.dependence.violations import violation  # imports the exact test

        proof = violation(found, loop, a, b)
        if proof is not None:
            raise _error(dependences, loop, a, b, proof.first, proof.second)


def _error(dependences: Dependences, loop: Loop, a: Access, b: Access, first: str, second: str) -> ScheduleError:
    found, name = dependences.found, loop.name
    assert isinstance(loop.stmt, For)
    kind = "parallel" if loop.stmt.kind == "parallel" and loop.stmt.chunk is None else "chunked"
    first, second = (f"{name} = {at}" if loop.stmt.kind != "chunk" else f"chunk {at}" for at in (first, second))
    example = f"for example {first} and {second}"
    if not a.write:  # the write comes first
        a, b, first, second = b, a, second, first
    if not b.write:
        example = f"for example {first} writes what {second} reads"
    place = found.text(b, line=False)
    if a.write and b.write:
        message, code = f"two iterations of the {kind} loop over `{name}` write {place}", "PTO-L020"
        here = None if a is b else Note(f"the other write, of {found.text(a, line=False)}, is here", a.loc)
        hint = (
            f"let the place depend on `{name}`, write it after the loop, or make the loop sequential; "
            "that the values may be equal makes no difference"
        )
    else:
        message = f"an iteration of the {kind} loop over `{name}` reads {place}, which another iteration writes"
        code = "PTO-L021"
        here = Note(f"{found.text(a, line=False)} is written here", a.loc)
        hint = "make the loop sequential, or read from a tensor that the loop does not write"
    notes = [Note(example), Note("the loop is here", loop.stmt.loc)]
    return ScheduleError(message, b.loc, code=code, hint=hint, notes=(*([here] if here else []), *notes))


def _proven(stmt: For) -> Decision:
    return Decision("parallel", (source_name(stmt.var.name),), True, f"proven: {stmt.proof}", stmt.loc)


def _decision(dependences: Dependences, loop: Loop) -> Decision:
    answer = dependences.may_run_parallel(loop)
    reason = f"proven: {answer.reason}" if answer.proven else f"believed: {answer.reason}"
    return Decision("parallel", (loop.name,), True, reason, loop.stmt.loc)
