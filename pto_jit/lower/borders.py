# SPDX-License-Identifier: MIT
"""Loops apart from their first and last iterations, where conditions tell these from the rest.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64, %y: !pto.memref<gm,?,f32>) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %s = sgetelem %x[%i] : f32
        %c = sge %i, 2 : bool_
        IF %c
          %k = ssub %i, 2 : i64
          %e = sgetelem %x[%k] : f32
          %t = sadd %s, %e : f32
          %s = scopy %t : f32
        ENDIF
        ssetelem %s, %y[%i]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64, %y: !pto.memref<gm,?,f32>) {
      %behind = smin %n, 2 : i64
      FOR %i:idx, 0:idx, %behind:idx, 1:idx
        %s = sgetelem %x[%i] : f32
        %c = sge %i, 2 : bool_
        IF %c
          %k = ssub %i, 2 : i64
          %e = sgetelem %x[%k] : f32
          %t = sadd %s, %e : f32
          %s = scopy %t : f32
        ENDIF
        ssetelem %s, %y[%i]
      ENDFOR
      FOR %i.1:idx, %behind:idx, %n:idx, 1:idx
        %s.1 = sgetelem %x[%i.1] : f32
        %k.1 = ssub %i.1, 2 : i64
        %e.1 = sgetelem %x[%k.1] : f32
        %t.1 = sadd %s.1, %e.1 : f32
        %s.1 = scopy %t.1 : f32
        ssetelem %s.1, %y[%i.1]
      ENDFOR
      return
    }

(Index set splitting: M. Griebl, P. Feautrier and C. Lengauer, "Index set splitting", International Journal of Parallel
Programming, 2000.)  Stencils and filters ask so whether a neighbour is there; lanes would load it under masks.  The
iterations are the same ones in the same order, whatever they do.  The conditions compare linear forms of the variable
of the loop, of those of small constant loops inside, and of where the loop ends; index arithmetic is taken not to
overflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, Module, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.walk import (
    block_defs,
    blocks,
    def_counts,
    map_funcs,
    rename,
    rewrite_block,
    statements,
    use_counts,
    uses,
    with_blocks,
)
from pto_jit.lower.decisions import Decision
from pto_jit.lower.independent import is_other
from pto_jit.lower.names import BOOL, I64, Names, Scalars, index, source_name
from pto_jit.lower.simplify import simplified
from pto_jit.slotted import frozen, mutable, replace

_MOST = 48  # operations of a body that is written up to three times
_BORDER = 32  # iterations that are few beside those of a loop
_WITHIN = 64  # iterations of the loops inside
_FAR = 2**31  # numbers beyond it are no distances from a border

Form = Counter[str]
"""A linear form: coefficients of variables; under "" the constant."""


def part_borders(module: Module, decisions: list[Decision]) -> Module:
    """Write the first and last iterations of sequential loops over elements apart, where conditions are the same in all
    others; of loops inside only in these.  Each such loop is a `Decision`."""

    def transform(func: Func) -> Func:
        forms = _Forms(func)
        loops = [s for s in statements(func.body) if isinstance(s, For)]
        if not any(_borders(loop, forms) for loop in loops):
            return func
        return simplified(replace(func, body=_Parting(func, forms, decisions).block(func.body)))

    return map_funcs(module, transform)


@frozen
class _Borders:
    """How many iterations are at the borders, and what conditions are between these."""

    first: int
    last: int
    truths: Mapping[int, bool]

    @property
    def reason(self) -> str:
        words = [f"the {which} {count}" for which, count in (("first", self.first), ("last", self.last)) if count]
        return f"conditions are the same in all iterations but {' and '.join(words)}, which are written apart"


@mutable
class _Condition:
    """What is not negative where a comparison holds (`equal`: what is zero), its value elsewhere the opposite."""

    form: Form
    equal: bool
    negated: bool


class _Forms:
    """Linear forms of the variables of a function, of those that are assigned once."""

    def __init__(self, func: Func) -> None:
        counts, params = def_counts(func.body), {p.name for p in func.params}
        self.changed = {name for name, count in counts.items() if count > 1 or name in params}
        self.made = {r.name: s for s in statements(func.body) if isinstance(s, Op) for r in s.results
                     if r.type == I64 and r.name not in self.changed}  # fmt: skip
        self.known: dict[str, Form] = {}

    def of(self, operand: Operand) -> Form:
        if isinstance(operand, Const):
            return Counter({"": int(operand.value)})
        name = operand.name
        if name not in self.known:
            self.known[name] = Counter({name: 1})  # while it is looked at, and for what is no sum
            op = self.made.get(name)
            if op is not None and (form := self._sum(op)) is not None and len(form) <= 4:
                self.known[name] = form
        return self.known[name]

    def _sum(self, op: Op) -> Form | None:
        if any(isinstance(a, Var) and a.name in self.changed for a in op.args):
            return None  # it may be another number where the sum is read
        if op.op == "copy":
            return self.of(op.args[0]) if op.args[0].type == I64 else None
        if op.op not in ("add", "sub", "mul") or any(a.type != I64 for a in op.args):
            return None
        a, b = map(self.of, op.args)
        if op.op == "mul":
            a, b = (b, a) if set(a) <= {""} else (a, b)
            return _times(a, b[""]) if set(b) <= {""} else None
        return _plus(a, _times(b, 1 if op.op == "add" else -1))


def _times(form: Form, number: int) -> Form:
    return Counter({name: k * number for name, k in form.items() if k * number})


def _plus(a: Form, b: Form) -> Form:
    out = Counter(a)
    for name, k in b.items():
        out[name] += k
    return Counter({name: k for name, k in out.items() if k})


def _borders(loop: For, forms: _Forms) -> _Borders | None:
    """The borders of a loop; None where it has none, or is not one to be written several times.

    Loops inside are those of every iteration, or small ones with constant bounds, whose variables conditions read, too.
    """
    if loop.kind != "sequential" or loop.checked or loop.reductions or loop.step != index(1):
        return None
    if not isinstance(loop.start, Const) or not 0 <= int(loop.start.value) < _FAR:
        return None
    if isinstance(loop.stop, Const) and not 4 * _BORDER <= int(loop.stop.value) - int(loop.start.value) < _FAR:
        return None
    inside = list(statements(loop.body))
    if len(inside) > _MOST or any(isinstance(s, (While, Break, Continue, Return)) or is_other(s) for s in inside):
        return None
    made, ranges = block_defs(loop.body), dict[str, range]()
    if isinstance(loop.stop, Var) and loop.stop.name in made:
        return None  # the loop ends where it was to end at its start
    for inner in (s for s in inside if isinstance(s, For)):
        ends = inner.start, inner.stop, inner.step
        if inner.kind != "sequential" or inner.var.name in ranges:
            return None
        if all(isinstance(e, Const) for e in ends):
            values = range(*(int(e.value) for e in ends if isinstance(e, Const)))
            if 0 < len(values) <= _WITHIN:
                ranges[inner.var.name] = values
    first = last = 0
    truths: dict[int, bool] = {}
    for op in (s for s in inside if isinstance(s, Op)):
        condition = _condition(op, forms)
        place = None if condition is None else _place(loop, condition, forms.of(loop.stop), ranges)
        if condition is None or place is None or not made.isdisjoint(set(condition.form) - set(ranges)):
            continue
        ahead, behind, truth = place
        first, last = max(first, ahead), max(last, behind)
        truths[id(op)] = truth != condition.negated
    return _Borders(first, last, truths) if first or last else None


def _condition(op: Op, forms: _Forms) -> _Condition | None:
    if op.op not in ("lt", "le", "gt", "ge", "eq", "ne") or any(a.type != I64 for a in op.args):
        return None
    a, b = map(forms.of, op.args)
    if op.op in ("lt", "le"):
        a, b = b, a
    difference = _plus(a, _times(b, -1))
    if op.op in ("lt", "gt"):
        difference = _plus(difference, Counter({"": -1}))
    return _Condition(difference, op.op in ("eq", "ne"), op.op == "ne")


def _place(
    loop: For, condition: _Condition, stop: Form, ranges: Mapping[str, range]
) -> tuple[int, int, bool] | None:
    """How many iterations at the start and at the end of a loop have a condition that may differ from that of all
    others, and whether it holds in these; None where there are not few of them."""
    sign = condition.form[loop.var.name]
    if sign not in (1, -1):
        return None
    rest = Counter({name: k for name, k in condition.form.items() if name != loop.var.name})
    inner = [(k * min(values), k * max(values)) for name, k in rest.items() if (values := ranges.get(name)) is not None]
    least, greatest = sum(map(min, inner)), sum(map(max, inner))
    rest = Counter({name: k for name, k in rest.items() if name not in ranges})
    # What is not negative is `sign * (v - at)`, for v the loop's variable; from the start, `at` is a number
    start = int(loop.start.value) if isinstance(loop.start, Const) else 0
    if set(rest) <= {""}:
        low, high = sorted((-sign * (rest[""] + least), -sign * (rest[""] + greatest)))
        truth = sign > 0 and not condition.equal
        ahead = high - start + (1 if condition.equal or sign < 0 else 0)
        if -_FAR < ahead <= _BORDER:
            return max(ahead, 0), 0, truth
        if set(stop) <= {""}:
            return _at_end(low - stop[""], condition, sign)
        return None
    beside = _plus(_times(rest, -sign), _times(stop, -1))  # at, from the end
    if not set(beside) <= {""}:
        return None
    low = beside[""] + min(-sign * least, -sign * greatest)
    return _at_end(low, condition, sign)


def _at_end(low: int, condition: _Condition, sign: int) -> tuple[int, int, bool] | None:
    """`low`: the first iteration, from the end of the loop, at which the condition may turn."""
    behind = -low - (1 if sign < 0 and not condition.equal else 0)
    if behind > _BORDER or low < -_FAR:
        return None
    return 0, max(behind, 0), sign < 0 and not condition.equal


class _Parting:
    """Writes the loops of one function apart."""

    def __init__(self, func: Func, forms: _Forms, decisions: list[Decision]) -> None:
        self.forms = forms
        self.decisions = decisions
        self.names, self.used, self.made = Names(func), use_counts(func.body), def_counts(func.body)

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            borders = _borders(stmt, self.forms) if isinstance(stmt, For) else None
            if borders is not None and isinstance(stmt, For):
                where = (source_name(stmt.var.name),)
                self.decisions.append(Decision("schedule", where, True, borders.reason, stmt.loc))
                out += self.parts(stmt, borders)
            else:
                inner = blocks(stmt)
                out.append(with_blocks(stmt, tuple(map(self.block, inner))) if inner else stmt)
        return tuple(out)

    def parts(self, loop: For, borders: _Borders) -> list[Stmt]:
        """The loops, and what their bounds are made of."""
        scalars = Scalars(self.names, loop.loc)
        assert isinstance(loop.start, Const)
        lower: Operand = loop.start
        upper = loop.stop
        if borders.first:  # a loop that does not run at all ends where it does
            lower = scalars.op("min", loop.stop, index(int(loop.start.value) + borders.first), "behind")
        if borders.last:
            upper = scalars.op("max", scalars.op("sub", loop.stop, index(borders.last)), lower, "before")
            upper = scalars.op("min", upper, loop.stop, "before")
        inside, read, carried = def_counts(loop.body), use_counts(loop.body), {v.name for v in free_vars(loop.body)}
        own = [name for name in sorted(block_defs(loop.body) - carried)
               if self.made[name] == inside[name] and self.used[name] == read[name]]  # fmt: skip
        decided = [s for s in statements(loop.body) if id(s) in borders.truths]
        self.used = self.used - Counter(v.name for s in decided for v in uses(s))
        within = self.block(rewrite_block(loop.body, partial(_known, borders.truths)))
        parts: list[tuple[Operand, Operand, Block]] = [(lower, upper, within)]
        if borders.first:
            parts.insert(0, (loop.start, lower, loop.body))
        if borders.last:
            parts.append((upper, loop.stop, loop.body))
        out: list[Stmt] = [*scalars.done()]
        for k, (start, stop, body) in enumerate(parts):
            new = {name: self.names.fresh(name).name for name in (loop.var.name, *own)} if k else {}
            var = Var(new.get(loop.var.name, loop.var.name), loop.var.type)
            border = loop.border or body is loop.body
            out.append(replace(loop, var=var, start=start, stop=stop, body=rename(body, new), border=border))
        return out


def _known(truths: Mapping[int, bool], stmt: Stmt) -> Stmt:
    """A statement where it is known which of these comparisons hold."""
    truth = truths.get(id(stmt))
    if truth is None or not isinstance(stmt, Op):
        return stmt
    return Op("copy", stmt.results, (Const(truth, BOOL),), loc=stmt.loc)
