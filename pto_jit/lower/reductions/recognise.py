# SPDX-License-Identifier: MIT
"""Every state that a parallel loop reduces, or the error for what is carried in another way."""

from __future__ import annotations

from collections.abc import Set

from pto_jit.errors import Loc, Note, ScheduleError
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, Continue, For, Op, Operand, Reduction, Var
from pto_jit.ir.walk import defs, vars_made
from pto_jit.lower.names import source_name
from pto_jit.lower.reductions.accumulate import NoReduction, direct, follow, identity
from pto_jit.lower.reductions.partials import State
from pto_jit.lower.reductions.places import Subscripts, find_places


def states_of(subscripts: Subscripts, live: Set[str], views: dict[str, str]) -> list[State]:
    """What a loop reduces; `live` are the names that may be read after it, `views` the views made outside of it.

    Raises ScheduleError for a variable that is carried from one iteration to the next, or read after the loop, and is
    no reduction, and for a place that every iteration reads and writes in another way.
    """
    loop = subscripts.loop
    found = [_explicit(loop, reduction) for reduction in loop.reductions]
    claimed = {v.name for state in found for v in state.vars}
    assigned = {v.name for v in vars_made(subscripts.flat)} - {loop.var.name}
    carried = [v for v in free_vars(loop.body) if v.name in assigned and v.name not in claimed]
    after = {name for name in assigned if name in live and name not in claimed}
    for var in carried:
        found.append(_variable(loop, var, (after | {v.name for v in carried}) - {var.name}))
    for name in sorted(after - {v.name for v in carried}):
        raise _last_value(loop, name)
    places, wrong = find_places(subscripts, views)
    for base, problem, write in wrong:
        raise ScheduleError(
            f"all iterations of a parallel loop read and write one place of `{source_name(base)}`, and this is not a "
            f"reduction: {problem.message}",
            problem.loc,
            code="PTO-L005",
            hint=problem.hint
            or "combine it by `+=`, `*=`, `pl.maximum` or `pl.minimum` and use it nowhere else in the loop, or make "
            "the loop sequential",
            notes=(Note("the place is written here", write.loc), Note("the loop is parallel", loop.loc)),
        )
    if not places:
        return found
    for place in places:
        init = identity(place.found.kind, place.type.dtype)
        computed = subscripts.computed((*place.read.args, *place.write.args[1:]))
        updates = frozenset(id(op) for op in place.writes)
        found.append(State(source_name(place.base), place.found.kind, (Var("", place.type),), (), (init,), updates,
                           place.found.always, place.write.loc, place, tuple(computed)))  # fmt: skip
    return found


def _explicit(loop: For, reduction: Reduction) -> State:
    updates: set[int] = set()
    always = True
    loc = loop.loc
    for var in reduction.state:
        changing = _updates(loop.body, var.name)
        updates |= {id(op) for op in changing}
        loc = changing[0].loc if changing else loc
        always &= _always(loop.body, changing)
    init: tuple[Operand, ...] = reduction.init
    name = source_name(reduction.state[0].name)
    return State(name, reduction.combine, reduction.state, reduction.state, init, frozenset(updates), always, loc)


def _variable(loop: For, var: Var, others: Set[str]) -> State:
    name = source_name(var.name)
    try:
        found = follow(loop.body, [var.name], var.type)
        both = found.followers & others
        if both:
            raise NoReduction(f"`{source_name(min(both))}` has its value, too", _assignment(loop.body, min(both)))
    except NoReduction as problem:
        raise ScheduleError(
            f"`{name}` is carried from one iteration to the next of a parallel loop and is not a reduction: "
            f"{problem.message}",
            problem.loc,
            code="PTO-L004",
            hint=f"write it as `{name} += ...`, `{name} *= ...` or `{name} = pl.maximum({name}, ...)` and use it "
            "nowhere else in the loop; variables that change together, such as an element and its place, as one "
            "`pl.reduction`; or make the loop sequential",
            notes=(
                Note(f"`{name}` gets the value for the next iteration here", _origin(loop, var.name)),
                Note("the loop is parallel", loop.loc),
            ),
        ) from None
    changing = _updates(loop.body, var.name)
    init = (identity(found.kind, var.type.dtype),)
    loc = changing[0].loc if changing else loop.loc
    updates = frozenset(id(op) for op in changing)
    return State(name, found.kind, (var,), (var,), init, updates, _always(loop.body, changing), loc)


def _updates(body: Block, name: str) -> list[Op]:
    """The operations other than copies that give a variable its value, through copies."""
    flat = [s for s in direct(body) if isinstance(s, Op)]
    carriers = {name}
    while True:
        before = len(carriers)
        for op in flat:
            if op.op == "copy" and op.results[0].name in carriers and isinstance(op.args[0], Var):
                carriers.add(op.args[0].name)
        if len(carriers) == before:
            break
    return [
        op
        for op in flat
        if any(r.name in carriers for r in op.results) and (op.op != "copy" or isinstance(op.args[0], Const))
    ]


def _always(body: Block, changing: list[Op]) -> bool:
    """Whether one of some operations runs in every iteration."""
    if any(isinstance(s, Continue) for s in direct(body)):
        return False
    marks = {id(op) for op in changing}
    return any(id(s) in marks for s in body)


def _assignment(body: Block, name: str) -> Loc:
    return next(s.loc for s in direct(body) if any(v.name == name for v in defs(s)))


def _origin(loop: For, name: str) -> Loc:
    """Where the value that a variable has at the end of an iteration is computed."""
    made = {v.name: s for s in direct(loop.body) for v in defs(s)}
    stmt = made[name]
    while isinstance(stmt, Op) and stmt.op == "copy" and isinstance(stmt.args[0], Var) and stmt.loc == loop.loc:
        if stmt.args[0].name not in made:
            break
        stmt = made[stmt.args[0].name]
    return stmt.loc


def _last_value(loop: For, name: str) -> ScheduleError:
    return ScheduleError(
        f"`{source_name(name)}` is read after a parallel loop that assigns it: it has the value of no particular "
        "iteration",
        _assignment(loop.body, name),
        code="PTO-L003",
        hint="store the value to a tensor, or make the loop sequential",
        notes=(Note("the loop is parallel", loop.loc),),
    )


