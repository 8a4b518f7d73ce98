# SPDX-License-Identifier: MIT
"""Refuse elements that lie before their tensor whatever the arguments are.

A run-time index does not count from the end, and elements are not checked but with `debug=True`: `x[-i - 1]` and
`x[i - n]`, as they are written for NumPy and Numba, would read (or write) what lies before `x`.  An index is refused

* that is below 0 in every iteration, under any condition, and
* that is below 0 in one iteration of loops that have some, where nothing decides whether it is reached: `x[i - 1]` in a
  loop from 0.

Indices are linear forms of loop variables, extents and other numbers; the least and the greatest value that one takes
are found by putting the ends of the loops in for their variables, inner loops first.  What is not known of an index
(data, arguments, products of variables) is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    Var,
    While,
)
from pto_jit.ir.walk import defs, statements
from pto_jit.lower.dependence.linear import Linear, atom
from pto_jit.lower.names import source_name
from pto_jit.slotted import frozen

_ELEMENTS = {"getelem": 1, "setelem": 2}
"""The accesses, and where their indices begin."""
_LEAVES = (Break, Continue, Return)


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
            _Check(func.body).block(func.body, True)
    return module


class _Check:
    def __init__(self, body: Block) -> None:
        self.assigned = Counter(v.name for s in statements(body) for v in defs(s))
        self.once = {name for name, count in self.assigned.items() if count == 1}
        self.loops: list[_Loop] = []
        self.values: dict[str, Linear] = {}
        self.extents: set[int] = set()  # atoms that are not below 0
        self.count = 0

    def block(self, block: Sequence[object], certain: bool) -> bool:
        """Check a block; `certain`: it runs in each iteration of the loops around.  Whether that holds behind it."""
        for stmt in block:
            match stmt:
                case Op():
                    self.op(stmt, certain)
                case For():
                    certain = self.loop(stmt, certain) and certain
                case While():
                    self.block(stmt.before, False)
                    self.block(stmt.body, False)
                    certain = certain and not _leaves(stmt.body)
                case If():
                    self.block(stmt.then, False)
                    self.block(stmt.orelse, False)
                    certain = certain and not _leaves((*stmt.then, *stmt.orelse))
                case Scope() | Fuse():
                    certain = self.block(stmt.body, certain)
                case _:
                    certain = certain and not isinstance(stmt, _LEAVES)
        return certain

    def loop(self, loop: For, certain: bool) -> bool:
        start, stop = self.value(loop.start), self.value(loop.stop)
        step = int(loop.step.value) if isinstance(loop.step, Const) else 0
        if step and not start.terms and not stop.terms and (stop.const - start.const) * step <= 0:
            return certain  # it has no iteration
        variable = self.fresh()
        self.values[loop.var.name] = variable
        known = step != 0
        if known:
            last = stop.plus(-1 if step > 0 else 1)
            self.loops.append(_Loop(variable.terms[0][0], start, last, abs(step) == 1, step > 0))
        stays = self.block(loop.body, certain and known)
        if known:
            self.loops.pop()
        return stays or not _leaves(loop.body)

    def op(self, op: Op, certain: bool) -> None:
        at = _ELEMENTS.get(op.op)
        if at is not None:
            for axis, index in enumerate(op.args[at:]):
                if isinstance(index, Var):
                    self.check(op, op.args[at - 1], index, axis, certain)
        if len(op.results) == 1 and op.results[0].name in self.once:
            self.values[op.results[0].name] = self.result(op)

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

    def check(self, op: Op, tensor: Operand, index: Var, axis: int, certain: bool) -> None:
        form = self.value(index)
        greatest = self.extreme(form, True, False)
        always = self.below(greatest)
        if not always and not (certain and self.below(self.extreme(form, False, True))):
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
