# SPDX-License-Identifier: MIT
"""Refuse elements that lie before their tensor whatever the arguments are.

A run-time index does not count from the end, and elements are not checked but with `debug=True`: `x[-i - 1]` and
`x[i - n]`, as they are written for NumPy and Numba, would read (or write) what lies before `x`.  An index is refused

* that is below 0 in every iteration, also where data decide whether it is reached, and
* that is below 0 in one iteration of loops that have some, where nothing decides that: `x[i - 1]` in a loop from 0.

Indices are linear forms of loop variables, extents and other numbers; the least and the greatest value that one takes
are found by putting the ends of the loops in for their variables, inner loops first.  What is not known of an index
(data, arguments, products of variables) is believed, and so is every index behind a decision about integers, and every
element that is only read to be chosen or not (`pl.where(i > 0, x[i - 1], 0)`).  With `debug=True` the program itself
checks its elements instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_jit.dtypes import bool_
from pto_jit.errors import Note, ShapeError
from pto_jit.ir.nodes import (
    Block,
    Break,
    Const,
    Continue,
    For,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Return,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import defs, statements, uses
from pto_jit.lower.dependence.linear import Linear, atom
from pto_jit.lower.names import source_name
from pto_jit.slotted import frozen

_ELEMENTS = {"getelem": 1, "setelem": 2}
"""The accesses, and where their indices begin."""
_LEAVES = (Break, Continue, Return)
_GUARDED, _PERHAPS, _CERTAIN = range(3)
"""Whether a statement is reached: by a decision about integers, which may be the index itself; by one about data, or in
loops that may not come so far; in every iteration."""


@frozen
class _Loop:
    """The variable of a loop as an atom: its first value, its last one, whether the last one is reached."""

    atom: int
    first: Linear
    last: Linear
    exact: bool
    up: bool


def refuse_outside(module: Module) -> Module:
    """Check the elements of `module`, which is not changed.  Raises ShapeError."""
    for func in module.funcs:
        if any(isinstance(s, Op) and s.op in _ELEMENTS for s in statements(func.body)):
            _Check(func.body).block(func.body, _CERTAIN)
    return module


class _Check:
    def __init__(self, body: Block) -> None:
        self.assigned = Counter(v.name for s in statements(body) for v in defs(s))
        self.made = {r.name: s for s in statements(body) if isinstance(s, Op) for r in s.results}
        self.once = {name for name, count in self.assigned.items() if count == 1}
        self.readers: dict[str, list[Stmt]] = {}
        for s in statements(body):
            for v in uses(s):
                self.readers.setdefault(v.name, []).append(s)
        self.chosen = self.only_chosen(body)
        self.loops: list[_Loop] = []
        self.values: dict[str, Linear] = {}
        self.extents: set[int] = set()  # atoms that are not below 0
        self.count = 0

    def block(self, block: Sequence[object], reached: int) -> int:
        """Check a block; `reached`: whether it is, in an iteration of the loops around. How that is behind it."""
        for stmt in block:
            match stmt:
                case Op():
                    self.op(stmt, reached)
                case For():
                    reached = self.loop(stmt, reached)
                case While():
                    self.block(stmt.before, _GUARDED)
                    self.block(stmt.body, _GUARDED)
                    reached = _GUARDED if _leaves(stmt.body) else reached
                case If():
                    inside = min(reached, _PERHAPS if self.is_about_data(stmt.cond) else _GUARDED)
                    self.block(stmt.then, inside)
                    self.block(stmt.orelse, inside)
                    reached = inside if _leaves((*stmt.then, *stmt.orelse)) else reached
                case Scope() | Fuse():
                    reached = self.block(stmt.body, reached)
                case _:
                    reached = _GUARDED if isinstance(stmt, _LEAVES) else reached
        return reached

    def is_about_data(self, cond: Operand) -> bool:
        """Whether no integer is compared: nothing that may be the index, or the variable that it is made of."""
        op = self.made.get(cond.name) if isinstance(cond, Var) and cond.name in self.once else None
        if op is None or not op.args:
            return False
        if all(isinstance(a.type, ScalarType) and a.type.dtype == bool_ for a in op.args):
            return all(map(self.is_about_data, op.args))
        return all(isinstance(a.type, ScalarType) and a.type.dtype.is_float for a in op.args)

    def loop(self, loop: For, reached: int) -> int:
        start, stop = self.value(loop.start), self.value(loop.stop)
        step = int(loop.step.value) if isinstance(loop.step, Const) else 0
        if step and not start.terms and not stop.terms and (stop.const - start.const) * step <= 0:
            return reached  # it has no iteration
        variable = self.values[loop.var.name] = self.fresh()
        if step:
            last = stop.plus(-1 if step > 0 else 1)
            self.loops.append(_Loop(variable.terms[0][0], start, last, abs(step) == 1, step > 0))
        behind = self.block(loop.body, reached if step else min(reached, _PERHAPS))
        if step:
            self.loops.pop()
        return min(reached, behind) if _leaves(loop.body) else reached

    def op(self, op: Op, reached: int) -> None:
        at = _ELEMENTS.get(op.op)
        if at is not None:
            reached = _GUARDED if op.op == "getelem" and op.results[0].name in self.chosen else reached
            for axis, index in enumerate(op.args[at:]):
                if isinstance(index, Var):
                    self.check(op, op.args[at - 1], index, axis, reached)
        if len(op.results) == 1 and op.results[0].name in self.once:
            self.values[op.results[0].name] = self.result(op)

    def only_chosen(self, body: Block) -> set[str]:
        """The numbers that nothing but choices reads, themselves or what is computed of them: readers come first."""
        found: set[str] = set()

        def chooses(reader: Stmt, number: Var) -> bool:
            if not isinstance(reader, Op) or reader.op in _ELEMENTS:
                return False
            if reader.op == "select":
                return number != reader.args[0]
            return bool(reader.results) and all(r.name in found for r in reader.results)

        for stmt in reversed([*statements(body)]):
            for number in stmt.results if isinstance(stmt, Op) else ():
                readers = self.readers.get(number.name)
                if readers and number.name in self.once and all(chooses(s, number) for s in readers):
                    found.add(number.name)
        return found

    def result(self, op: Op) -> Linear:
        args = op.args
        match op.op:
            case "add":
                return self.value(args[0]) + self.value(args[1])
            case "sub":
                return self.value(args[0]) - self.value(args[1])
            case "neg":
                return -self.value(args[0])
            case "copy" if not hasattr(args[0].type, "shape"):
                return self.value(args[0])
            case "mul":
                a, b = map(self.value, args)
                if not a.terms or not b.terms:
                    return b.times(a.const) if not a.terms else a.times(b.const)
        found = self.fresh()
        if op.op == "dim":
            self.extents.add(found.terms[0][0])
        return found

    def value(self, operand: Operand) -> Linear:
        if isinstance(operand, Const):
            return Linear(int(operand.value)) if type(operand.value) is int else self.fresh()
        known = self.values.get(operand.name)
        if known is None:  # a parameter, or what is assigned more than once: another number each time
            known = self.fresh()
            if operand.name not in self.assigned:
                self.values[operand.name] = known
        return known

    def fresh(self) -> Linear:
        self.count += 1
        return atom(self.count)

    def check(self, op: Op, tensor: Operand, index: Var, axis: int, reached: int) -> None:
        form = self.value(index)
        always = reached != _GUARDED and self.below(self.extreme(form, True, False))
        if not always and not (reached == _CERTAIN and self.below(self.extreme(form, False, True))):
            return
        assert isinstance(tensor, Var)
        name = source_name(tensor.name)
        when = "in every iteration" if always and self.loops else "always" if always else "in an iteration"
        raise ShapeError(
            f"an index of `{name}` along axis {axis} is below 0 {when}",
            op.loc,
            code="PTO-H060",
            hint=f"add `{name}.shape[{axis}]`, or guard the access with an `if`",
            notes=(Note("a run-time index does not count from the end, only a constant such as `x[-1]` does"),),
        )

    def below(self, form: Linear | None) -> bool:
        """Whether it is below 0 for all extents."""
        return form is not None and form.const < 0 and all(a in self.extents and k < 0 for a, k in form.terms)

    def extreme(self, form: Linear, greatest: bool, exact: bool) -> Linear | None:
        """The greatest (or least) value in the loops around; exact: one that is reached."""
        for loop in reversed(self.loops):
            k = next((k for a, k in form.terms if a == loop.atom), 0)
            if k == 0:
                continue
            at_last = (k > 0) == (greatest == loop.up)
            if at_last and exact and not loop.exact:
                return None
            end = loop.last if at_last else loop.first
            form = form + (end - atom(loop.atom)).times(k)
        return form


def _leaves(block: Sequence[object]) -> bool:
    return any(isinstance(s, _LEAVES) for s in statements(tuple(block)))  # type: ignore[arg-type]
