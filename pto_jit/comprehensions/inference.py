# SPDX-License-Identifier: MIT
"""Range inference of one statement, in rounds.

Every read gives two inequalities per dimension: the subscript is not below the tensor's first element and not above
its last.  Indices with a `where` range are solved from the start.  In each round every index that is the only unsolved
one of some inequality gets the largest interval that satisfies all such inequalities, for all values of what was
solved before; within a round the indices do not see each other's intervals, so their order does not matter.  What is
left when all are solved is proven, or becomes a precondition.  (Vasilache et al., Tensor Comprehensions, 2018.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pto_jit.comprehensions import nodes
from pto_jit.comprehensions.forms import NotLinear, least, solve, symbolic
from pto_jit.comprehensions.nodes import Binary, Expression, Pad, Read, Select, Unary, names_in, walk
from pto_jit.comprehensions.spelling import spelled
from pto_jit.comprehensions.symbolic import Expr, at_least_zero, maximum, minimum, positive
from pto_jit.comprehensions.typing import Scope, Tensor, Typing, not_integral, unreduced
from pto_jit.errors import CompilationError, Loc, RangeInferenceError, ShapeError
from pto_jit.slotted import field, frozen, mutable


@frozen
class Solved:
    """The interval `[low, high)` of an index, and the accesses that it comes from."""

    low: Expr
    high: Expr
    accesses: tuple[str, ...]
    places: tuple[Loc, ...] = ()


@frozen
class Round:
    """The indices that one round solved."""

    solved: dict[str, Solved]

    def __str__(self) -> str:
        return "; ".join(
            f"{index} in {s.low}:{s.high} from {' and '.join(s.accesses)}" for index, s in self.solved.items()
        )


@frozen
class Precondition:
    """What has to hold so that no read leaves its tensor.

    kind: "shape" (decided by sizes: `condition >= 0`, or `== 0` with `exact`) or "value" (by what a tensor holds).
    """

    kind: Literal["shape", "value"]
    text: str
    access: str
    loc: Loc
    condition: Expr | None = None
    exact: bool = False
    size: str = ""

    def __str__(self) -> str:
        return self.text


@mutable(eq=False)
class Inferred:
    """One statement with the ranges of its indices: left ones first, then those that are reduced."""

    statement: nodes.Statement
    scope: Scope
    ranges: dict[str, tuple[Expr, Expr]]
    rounds: list[Round]
    preconditions: list[Precondition]
    given: frozenset[str]  # indices with a range of their own
    guarded: bool = False  # a condition keeps a read inside its tensor

    @property
    def reduced(self) -> tuple[str, ...]:
        return tuple(i for i in self.ranges if i not in self.statement.indices)


@frozen
class _Inequality:
    """`form >= 0`, for one end of one dimension of a read.

    guards: None where the read always happens, else forms that are >= 0 where it does.
    """

    form: Expr
    tensor: Tensor
    read: Read
    axis: int
    upper: bool
    guards: tuple[Expr, ...] | None

    def names(self, scope: Scope) -> list[str]:
        return [n for n in self.form.names() if n in self.indices(scope)]

    def indices(self, scope: Scope) -> set[str]:
        return {n.name for n in names_in(self.read.subscripts[self.axis]) if scope.is_index(n.name)}


@mutable
class _State:
    box: dict[str, tuple[Expr, Expr]]
    pending: list[_Inequality]
    aside: list[_Inequality] = field(default_factory=list)


def infer(s: nodes.Statement, scope: Scope, typing: Typing) -> Inferred:
    """The ranges of the indices of a statement whose expressions are checked.

    Raises RangeInferenceError for what cannot be inferred, CompilationError and TypeMismatchError for wrong ranges.
    """
    found = _indices(s, scope)
    box = {r.name: _range(r, scope, typing) for r in s.ranges}
    given = frozenset(box)
    _check_used(s, scope, found)
    pending = [i for e in (*s.exists, s.value) for i in _inequalities(e, scope, None)]
    target = scope.tensors.get(s.target)
    own = [] if target is None or target.extents is None else _of_target(s, target, scope)
    state = _State(box, [])
    rounds: list[Round] = []
    _admit(state, pending)
    while len(state.box) < len(found):
        solved = _round(state, found, scope)
        if not solved:
            if not own:
                raise _unsolved(s, scope, found, state)
            _admit(state, own)  # a tensor that exists already says where it can be written
            pending, own = [*pending, *own], []
            continue
        for index, interval in solved.items():
            state.box[index] = interval.low, interval.high - 1
        rounds.append(Round(solved))
    preconditions, guarded = _left(state, scope)
    order = [*s.indices, *(i for i in found if i not in s.indices)]
    ranges = {i: (state.box[i][0], state.box[i][1] + 1) for i in order}
    return Inferred(s, scope, ranges, rounds, preconditions, given, guarded)


# -- indices and ranges -------------------------------------------------------------------------------------------


def _indices(s: nodes.Statement, scope: Scope) -> dict[str, Loc]:
    """The indices of a statement, in the order of their first use, left ones first."""
    found: dict[str, Loc] = dict.fromkeys(s.indices, s.target_loc)
    for e in (s.value, *s.exists):
        for n in names_in(e):
            if scope.is_index(n.name):
                found.setdefault(n.name, n.loc)
    for r in s.ranges:
        found.setdefault(r.name, r.loc)
    return found


def _range(r: nodes.Range, scope: Scope, typing: Typing) -> tuple[Expr, Expr]:
    """Lowest and highest value of an index with a `where`."""
    if not scope.is_index(r.name):
        raise scope.error(
            CompilationError, "PTO-R036", f"`{r.name}` is given a range, but it is not an index", r.loc,
            "use another name for the index",
        )  # fmt: skip
    ends: list[Expr] = []
    for end in (r.low, r.high):
        for e in walk(end):
            if isinstance(e, (Read, Pad)):
                raise scope.error(
                    CompilationError, "PTO-R018",
                    f"`{spelled(e)}` cannot be used in a range: a range is known before a "
                    "tensor is read", e.loc, "use sizes, integer parameters and numbers",
                )  # fmt: skip
            if isinstance(e, nodes.Name) and scope.is_index(e.name):
                raise scope.error(
                    CompilationError, "PTO-R031", f"undefined variable `{e.name}` used in a range", e.loc,
                    "ranges are made of sizes, integer parameters and numbers",
                )  # fmt: skip
        if not typing.integral(end):
            raise not_integral(scope, end, typing.of(end), "a bound of a range")
        form = symbolic(end, scope)
        if not form.known:
            raise scope.error(
                RangeInferenceError, "PTO-R037", f"`{spelled(end)}` is not a sum of sizes and numbers", end.loc,
                "divide by constants only",
            )  # fmt: skip
        ends.append(form)
    low, high = ends
    length = (high - low).value
    if length is not None and length < 0:
        raise scope.error(
            RangeInferenceError, "PTO-R011", f"the range of `{r.name}` is empty: {low}:{high}", r.loc,
            "the upper bound of a range is not below the lower one",
        )  # fmt: skip
    return low, high - 1


def _check_used(s: nodes.Statement, scope: Scope, found: dict[str, Loc]) -> None:
    used = {n.name for e in (s.value, *s.exists) for n in names_in(e)} | {r.name for r in s.ranges}
    target = scope.tensors.get(s.target)
    new = target is None or target.extents is None
    for index in s.indices:
        if index not in used and new:
            raise scope.error(
                RangeInferenceError, "PTO-R012",
                f"the index `{index}` of `{s.target}` is not used on the right: it was "
                "not solved in range inference", s.target_loc,
                f"give it a range: `where {index} in 0:...` (`{index} = pl.axis(0, ...)` in Python)",
            )  # fmt: skip
    if s.op is None:
        for index, loc in found.items():
            if index not in s.indices:
                raise unreduced(scope, s, index, loc)


# -- inequalities -------------------------------------------------------------------------------------------------


def _inequalities(e: Expression, scope: Scope, guards: tuple[Expr, ...] | None) -> Iterator[_Inequality]:
    if isinstance(e, Select):
        yield from _inequalities(e.condition, scope, guards)
        yield from _inequalities(e.yes, scope, (*(guards or ()), *facts(e.condition, scope, True)))
        yield from _inequalities(e.no, scope, (*(guards or ()), *facts(e.condition, scope, False)))
        return
    if isinstance(e, Pad):  # what is outside is the value; what the subscripts read is not padded
        for child in (*e.read.subscripts, e.value):
            yield from _inequalities(child, scope, guards)
        return
    if isinstance(e, Read):
        yield from _of_read(e, scope.tensors[e.tensor], scope, guards)
    for child in nodes.children(e):
        yield from _inequalities(child, scope, guards)


def _of_read(
    e: Read, tensor: Tensor, scope: Scope, guards: tuple[Expr, ...] | None
) -> Iterator[_Inequality]:
    assert tensor.extents is not None
    for axis, subscript in enumerate(e.subscripts):
        form = symbolic(subscript, scope) - tensor.lows[axis]
        yield _Inequality(form, tensor, e, axis, False, guards)
        yield _Inequality(tensor.extents[axis] - 1 - form, tensor, e, axis, True, guards)


def _of_target(s: nodes.Statement, target: Tensor, scope: Scope) -> list[_Inequality]:
    read = Read(s.target, tuple(nodes.Name(i, s.target_loc) for i in s.indices), s.target_loc)
    return list(_of_read(read, target, scope, None))


_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def facts(condition: Expression, scope: Scope, holds: bool) -> tuple[Expr, ...]:
    """Forms that are not negative where the condition holds (or does not)."""
    if isinstance(condition, Unary) and condition.op == "!":
        return facts(condition.operand, scope, not holds)
    if not isinstance(condition, Binary):
        return ()
    if condition.op == ("&&" if holds else "||"):
        return facts(condition.left, scope, holds) + facts(condition.right, scope, holds)
    left, right = condition.left, condition.right
    op = condition.op if holds else _OPPOSITE.get(condition.op)
    if op not in ("<", "<=", ">", ">=", "=="):
        return ()
    a, b = symbolic(left, scope), symbolic(right, scope)
    if not all(form.known or _is_element(e) for form, e in ((a, left), (b, right))):
        return ()
    forms = {"<": (b - a - 1,), "<=": (b - a,), ">": (a - b - 1,), ">=": (a - b,), "==": (a - b, b - a)}
    return forms[op]


def _is_element(e: Expression) -> bool:
    """Whether an expression is an element of a tensor, or one converted: nothing that could wrap."""
    return isinstance(e, Read) or (isinstance(e, nodes.Cast) and e.dtype.bits >= 32 and _is_element(e.operand))


def _admit(state: _State, inequalities: Sequence[_Inequality]) -> None:
    """Take up those that indices can be solved from; what reads tensors is set aside."""
    for inequality in inequalities:
        (state.pending if inequality.form.known else state.aside).append(inequality)


# -- rounds -------------------------------------------------------------------------------------------------------


def _round(state: _State, found: dict[str, Loc], scope: Scope) -> dict[str, Solved]:
    bounds: dict[str, list[tuple[str, Expr, _Inequality]]] = {}
    for inequality in state.pending:
        free = [n for n in inequality.form.names() if n in found and n not in state.box]
        if len(free) != 1:
            continue
        solved = solve(inequality.form, free[0], state.box)
        if solved is not None:
            bounds.setdefault(free[0], []).extend((side, value, inequality) for side, value in solved)
    result: dict[str, Solved] = {}
    for index in found:
        lows = [value for side, value, _ in bounds.get(index, ()) if side == "low"]
        highs = [value + 1 for side, value, _ in bounds.get(index, ()) if side == "high"]
        if not lows or not highs:
            continue
        low, high = maximum(lows), minimum(highs)
        used = list(dict.fromkeys((spelled(i.read), i.read.loc) for _, _, i in bounds[index]))
        result[index] = Solved(low, high, tuple(dict.fromkeys(t for t, _ in used)), tuple(loc for _, loc in used))
        length = (high - low).value
        if length is not None and length <= 0 and not any(0 in _constants(i.tensor) for _, _, i in bounds[index]):
            raise scope.error(
                RangeInferenceError, "PTO-R011", f"inferred an empty range for `{index}`: {low}:{high}, from "
                f"{' and '.join(result[index].accesses)}", used[0][1],
                f"no value of `{index}` keeps these reads inside their tensors; check the subscripts and sizes",
            )  # fmt: skip
    return result


def _constants(tensor: Tensor) -> list[int | None]:
    return [e.value for e in tensor.extents or ()]


def _unsolved(s: nodes.Statement, scope: Scope, found: dict[str, Loc], state: _State) -> CompilationError:
    missing = [i for i in found if i not in state.box]
    first = missing[0]
    why = [spelled(i.read) for i in (*state.pending, *state.aside) if first in i.indices(scope)]
    reason = f"; it stands in {' and '.join(dict.fromkeys(why))}" if why else "; no read says how far it goes"
    names = ", ".join(f"`{m}`" for m in missing)
    return scope.error(
        RangeInferenceError, "PTO-R010", f"could not infer ranges for {names} in the statement of `{s.target}`"
        f"{reason if len(missing) == 1 else ''}", found[first],
        f"use a where clause: `where {first} in 0:...` (`{first} = pl.axis(0, ...)` in Python)",
    )  # fmt: skip


def _left(state: _State, scope: Scope) -> tuple[list[Precondition], bool]:
    """What is not certain with all indices solved, and whether a guard made something certain."""
    found: list[Precondition] = []
    seen: set[str] = set()
    guarded = False
    for inequality in (*state.pending, *state.aside):
        made = _precondition(inequality, state)
        if made is None:
            continue
        if any(_implied(inequality.form, guard, state) for guard in inequality.guards or ()):
            guarded = True
            continue
        guarded = guarded or (inequality.guards is not None and made.kind == "value")
        if gaps := _gaps(inequality, state):
            made, guarded = _or_guarded(made, gaps), True
        if made.text not in seen:
            if made.condition is not None and made.condition.value is not None:
                what = made.text.split(": ", 1)[1].split(" for all")[0]
                raise scope.error(
                    ShapeError, "PTO-R042",
                    f"`{made.access}` leaves its tensor: `{what}` does not hold for all indices, "
                    "whatever the sizes", made.loc,
                    "narrow a range with `where`, guard the read, or pad it",
                )  # fmt: skip
            seen.add(made.text)
            found.append(made)
    return found, guarded


def _precondition(i: _Inequality, state: _State) -> Precondition | None:
    access, sub = spelled(i.read), spelled(i.read.subscripts[i.axis])
    extent = (i.tensor.extents or ())[i.axis]
    low = i.tensor.lows[i.axis]
    wanted = f"{sub} < {low + extent}" if i.upper else f"{sub} >= {low}"
    try:
        worst = least(i.form, state.box)
        if worst.known:
            if at_least_zero(worst):
                return None
            holds = f"{wanted} for all indices" if worst != i.form else wanted
            return Precondition("shape", f"{access}: {holds}, so {_needed(worst)}", access, i.read.loc, worst,
                                size=str(extent))  # fmt: skip
    except NotLinear:
        pass
    if not i.form.known and at_least_zero(i.form):
        return None
    if not i.form.known and at_least_zero(positive(i.form)):  # a clamp, which needs an element to clamp to
        text = f"{access}: {extent} is not 0"
        return Precondition("shape", text, access, i.read.loc, extent - 1, size=str(extent))
    return Precondition("value", f"{access}: {wanted}", access, i.read.loc, size=str(extent))


def _implied(form: Expr, guard: Expr, state: _State) -> bool:
    """Whether `guard >= 0` makes `form >= 0` certain."""
    gap = form - guard
    try:
        return at_least_zero(least(gap, state.box))
    except NotLinear:
        return at_least_zero(gap)


def _gaps(i: _Inequality, state: _State) -> list[Expr]:
    """Conditions on sizes under which a guard keeps a read inside: what is left of it where the indices cancel."""
    gaps = [i.form - guard for guard in i.guards or ()]
    return [g for g in gaps if g.known and not g.names() & state.box.keys() and g.value is None]


def _or_guarded(p: Precondition, gaps: list[Expr]) -> Precondition:
    """The precondition, or one of these conditions on sizes."""
    either = gaps if p.condition is None else [p.condition, *gaps]
    text = p.text if p.condition is not None else f"{p.text}, which a guard makes certain if"
    text += (" or " if p.condition is not None else " ") + " or ".join(map(_needed, gaps))
    return Precondition("shape", text, p.access, p.loc, maximum(either), size=p.size)


def _needed(worst: Expr) -> str:
    """`worst >= 0` as a comparison of what is added with what is subtracted."""
    plus = Expr(tuple((m, f) for m, f in worst.terms if f > 0))
    minus = plus - worst
    if not minus.terms:
        return f"{worst} >= 0"
    return f"{minus} <= {plus}"
