# SPDX-License-Identifier: MIT
"""The greatest or the least element of a loop, and what the program keeps with it.

``if x[i] > m: m = x[i]; k = i`` is selections of one comparison by now (`if_conversion`).  Each waits for the one
before; but that iteration which wins in the end decides alone what the variables are.  So lanes may look for it, each
among its own iterations, if they remember which it was: of equal elements the first one wins where the comparison is
strict, else the last one.  ``m = max(m, x[i])`` is won by a NaN, too.

Where equal elements have the same bits (those of ``abs``) and nothing is kept with them, lanes need not remember, and
the loop may write: ``err = max(err, abs(new - old))`` beside the new element.

Integers with which nothing is kept are left to the loop vectoriser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pto_jit.dtypes import DType, bool_, i32, i64
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import defs, uses
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import frozen

_GREATER = {"gt": True, "ge": True, "lt": False, "le": False}
_STRICT = {"gt": True, "lt": True, "ge": False, "le": False}
_ELEMENTS = frozenset(["getelem", "setelem", "dim"])
_NAN_WINS = frozenset(["max", "min", "maximum", "minimum"])
_FEW = 32  # iterations that are not worth lanes of their own
_BOOL = ScalarType(bool_)


@frozen
class Extremum:
    """What a loop looks for.

    var: the variable of the element; update: the operation that gives it the next value; element: what it is compared
    with; strict: the first of equal elements wins, not the last; nan: so does any NaN, the first of all.
    """

    var: Var
    update: Op
    element: Var
    greatest: bool
    strict: bool
    nan: bool

    @property
    def winner(self) -> Var:
        """The number of the iteration that won in a lane."""
        return Var(f"{self.var.name}@winner", ScalarType(self.counted))

    @property
    def counted(self) -> DType:
        """Numbers of iterations that are compared and selected as fast as the elements are."""
        assert isinstance(self.var.type, ScalarType)
        return i64 if self.var.type.dtype.bytes == 8 else i32


def extrema(loop: For) -> tuple[Extremum, ...]:
    """What an innermost loop looks for, if it carries nothing else; where it writes, only what decides alone."""
    inside = carried_in(loop)
    found = sought(inside) if inside is not None else ()
    if inside is None or not found:
        return ()
    alone = len(inside.carried) == len(found)
    if writes(loop) and not (alone and all(e.nan and inside.is_sized(e) for e in found)):
        return ()
    return found if any(_is_float(e.var) for e in found) or not alone else ()


def carried_in(loop: For) -> Carried | None:
    """What an innermost loop of operations on elements carries; None: nothing, or more than numbers that are assigned
    once in an iteration, or the loop is short."""
    body = [s for s in loop.body if isinstance(s, Op)]
    if len(body) != len(loop.body) or not all(op.op in _ELEMENTS or is_elementwise(op) for op in body):
        return None
    made = Counter(v.name for s in body for v in defs(s))
    carried = [v for v in free_vars(loop.body) if v.name in made]
    if not carried or any(made[v.name] != 1 or not isinstance(v.type, ScalarType) for v in carried):
        return None
    return None if _is_short(loop) else Carried(body, carried)


def sought(inside: Carried) -> tuple[Extremum, ...]:
    """What a loop looks for; empty where it carries anything else."""
    found = [e for v in inside.carried if (e := inside.extremum(v)) is not None]
    return tuple(found) if found and inside.explains(found) else ()


def _is_short(loop: For) -> bool:
    """Whether a loop has few iterations, which the optimiser writes one after the other."""
    ends = [int(e.value) for e in (loop.start, loop.stop, loop.step) if isinstance(e, Const)]
    return len(ends) == 3 and ends[2] != 0 and len(range(*ends)) <= _FEW


def writes(loop: For) -> bool:
    """Whether a loop of operations writes elements: then no iteration is run once more."""
    return any(isinstance(s, Op) and s.op == "setelem" for s in loop.body)


@frozen
class End:
    """A comparison of an element with what a carried variable was; true where the element is the better one."""

    var: Var
    element: Var
    greatest: bool
    strict: bool


class Carried:
    """The operations of a loop and what it carries."""

    def __init__(self, body: list[Op], carried: list[Var]) -> None:
        self.body = body
        self.carried = carried
        self.makers = {r.name: op for op in body for r in op.results}
        self.before: dict[str, Var] = {v.name: v for v in carried}  # names of what a carried variable was
        self.last: dict[str, Op] = {}  # what gives a carried variable its next value
        for op in body:
            was = self.was(op.args[0]) if _is_copy(op) else None
            if was is not None and op.results[0] not in carried:
                self.before[op.results[0].name] = was
        for name in [v.name for v in carried]:
            op: Op | None = self.makers[name]
            while op is not None and _is_copy(op) and isinstance(op.args[0], Var):
                op = self.makers.get(op.args[0].name) if op.args[0].name not in self.before else None
            if op is not None:
                self.last[name] = op

    def was(self, operand: Operand) -> Var | None:
        """The carried variable whose former value an operand is."""
        return self.before.get(operand.name) if isinstance(operand, Var) else None

    def source(self, operand: Operand) -> Operand:
        """What a value is a copy of."""
        while isinstance(operand, Var) and operand.name not in self.before:
            op = self.makers.get(operand.name)
            if op is None or not _is_copy(op):
                break
            operand = op.args[0]
        return operand

    def extremum(self, var: Var) -> Extremum | None:
        """What a variable is looked for with."""
        op = self.last.get(var.name)
        return None if op is None else self.update(var, op)

    def update(self, var: Var, op: Op) -> Extremum | None:
        """What a variable is looked for with, if this gives it its next value."""
        end = self.end(op)
        if end is None or end.var != var or op.results[0].type != var.type or var.type == _BOOL:
            return None
        if op.op == "select" and (self.was(op.args[2]) != var or self.source(op.args[1]) != end.element):
            return None
        return Extremum(var, op, end.element, end.greatest, end.strict, op.op != "select" and _is_float(var))

    def end(self, op: Op) -> End | None:
        """What a selection compares, or an operation that takes the greater or the less."""
        test = self.test(op) if op.op == "select" else op
        if test is None or test.attrs or not (test.op in _GREATER or (test is op and op.op in _NAN_WINS)):
            return None
        variables = [self.was(a) for a in test.args]
        if variables.count(None) != 1:
            return None
        second = variables[0] is None  # the variable is the second operand
        var, element = variables[second], self.source(test.args[not second])
        if var is None or isinstance(element, Const):
            return None
        if test is op:  # the first operand where they are equal, which integers do not show
            return End(var, element, op.op.startswith("max"), not (second and _is_float(var)))
        return End(var, element, _GREATER[test.op] is second, _STRICT[test.op])

    def maker(self, operand: Operand) -> Op | None:
        """The operation that made a value."""
        source = self.source(operand)
        return self.makers.get(source.name) if isinstance(source, Var) and source.name not in self.before else None

    def is_sized(self, e: Extremum) -> bool:
        """Whether an element is an absolute value: of these there is one zero, which the variable is at the end, or was
        at the beginning."""
        op = self.makers.get(e.element.name)
        return op is not None and op.op == "abs" and (e.greatest or e.strict)

    def test(self, select: Op) -> Op | None:
        """The comparison of a selection."""
        return self.maker(select.args[0])

    def explains(self, found: Iterable[Extremum]) -> bool:
        """Whether all that is carried is an extremum or kept with one, and nothing else looks at it."""
        selected = [self.test(e.update) for e in found if e.update.op == "select"]
        tests = {self._compared(test) for test in selected if test is not None}
        updates = {id(e.update) for e in found}
        for var in self.carried:
            op = self.last.get(var.name)
            if op is None:
                return False
            if id(op) in updates:
                continue
            test = self.test(op) if op.op == "select" else None
            if test is None or self.was(op.args[2]) != var or self._compared(test) not in tests:
                return False
            updates.add(id(op))
        assigned: set[str] = set()
        for op in self.body:  # what is read of them is what they were before
            if any(v.name in assigned for v in uses(op)):
                return False
            assigned.update(r.name for r in op.results if r in self.carried)
        after = {op.results[0].name for op in self.body if id(op) in updates} - self.before.keys()
        flags = {op.results[0].name for op in self.body if self._compared(op) in tests}
        for op in self.body:
            if id(op) in updates:
                if op.op == "select" and self.was(op.args[1]) is not None:
                    return False
                if any(isinstance(a, Var) and a.name in after for a in op.args):
                    return False
            elif _is_copy(op):
                names = after if isinstance(op.args[0], Var) and op.args[0].name in after else None
                names = flags if isinstance(op.args[0], Var) and op.args[0].name in flags else names
                if names is not None:
                    names.add(op.results[0].name)
            elif self._compared(op) in tests:
                if sum(self.was(a) is not None for a in op.args) != 1:
                    return False
            elif any(v.name in after or v.name in flags or v.name in self.before for v in uses(op)):
                return False
        return True

    def _compared(self, op: Op) -> object:
        """What comparisons of the same numbers have in common; None for other operations."""
        return (op.op, *(self.was(a) or self.source(a) for a in op.args)) if op.op in _GREATER else None


def searched(loop: For, found: tuple[Extremum, ...], number: Var) -> Block:
    """The body for lanes: each extremum with its `winner`, where `number` is the number of the iteration; what is kept
    with it is left to the iteration that won."""
    body = [s for s in loop.body if isinstance(s, Op)]
    needed = {e.element.name for e in found}
    first: list[Op] = []
    for op in reversed(body):
        if any(r.name in needed for r in op.results):
            needed.update(v.name for v in uses(op))
            first.append(op)
    out = first[::-1]
    for e in found:
        better, here = Var(f"{e.var.name}@better", _BOOL), Var(f"{e.var.name}@here", e.winner.type)
        loc = e.update.loc
        if e.nan:  # it is not less, unless a NaN was there before
            sign = ("l" if e.greatest else "g") + ("e" if e.strict else "t")
            worse, can, known = (Var(f"{e.var.name}@{n}", _BOOL) for n in ("worse", "can", "known"))
            out.append(Op(sign, (worse,), (e.element, e.var), loc=loc))
            out.append(Op("not", (can,), (worse,), loc=loc))
            out.append(Op("eq", (known,), (e.var, e.var), loc=loc))
            out.append(Op("and", (better,), (can, known), loc=loc))
        else:
            sign = ("g" if e.greatest else "l") + ("t" if e.strict else "e")
            out.append(Op(sign, (better,), (e.element, e.var), loc=loc))
        out.append(Op("cast", (here,), (number,), (("dtype", e.counted),), loc=loc))
        chosen, kept = Var(f"{e.var.name}@chosen", e.var.type), Var(f"{e.winner.name}@chosen", e.winner.type)
        out.append(Op("select", (chosen,), (better, e.element, e.var), loc=loc))
        out.append(Op("select", (kept,), (better, here, e.winner), loc=loc))
        out.append(Op("copy", (e.var,), (chosen,), loc=loc))
        out.append(Op("copy", (e.winner,), (kept,), loc=loc))
    return tuple(out)


def _is_copy(op: Op) -> bool:
    """Whether an operation changes nothing."""
    return op.op == "copy" or (op.op == "cast" and op.args[0].type == op.results[0].type)


def _is_float(var: Var) -> bool:
    return isinstance(var.type, ScalarType) and var.type.dtype.kind == "f"
