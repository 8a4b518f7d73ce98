# SPDX-License-Identifier: MIT
"""Sums that a loop adds up in order, apart from what is added.

Before::

    FOR %i:idx, 0:idx, %n:idx, 1:idx
      %e = sgetelem %x[%i] : f64
      %c = sgt %e, 0.0 : bool_
      IF %c
        %v = slog %e : f64
        %t = sadd %s, %v : f64
        %s.1 = scopy %t : f64
      ELSE
        %s.1 = scopy %s : f64
      ENDIF
      %s = scopy %s.1 : f64
    ENDFOR

After, as the body of an iteration that carries nothing::

    %e = sgetelem %x[%i] : f64
    %c = sgt %e, 0.0 : bool_
    IF %c
      %v = slog %e : f64
      %s@element = scopy %v : f64
    ELSE
      %s@element = scopy -0.0 : f64
    ENDIF
    %s@after = prefix %s@element {of="s", op="add", turned=false} : f64

Where nothing is added, what changes no number to the last bit is.  The iterations may have loops and branches; nothing
else may read the sum.  Vectors compute what is added, which has to be worth it, and their elements are added one after
the other (`scans`).
"""

from __future__ import annotations

from pto_jit.dtypes import f32, f64
from pto_jit.errors import NOWHERE, Loc
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, If, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType, Type
from pto_jit.ir.walk import block_defs, block_uses, def_counts, statements
from pto_jit.lower.cost import DEAR, SLOW
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import frozen, replace

PREFIX = "prefix"
NEUTRAL = {"add": -0.0, "sub": 0.0, "mul": 1.0}
"""The updates that are kept in order, each with what changes no number."""


@frozen
class Sum:
    """A variable that is only summed in a loop, by the operation `kind`."""

    var: Var
    kind: str

    @property
    def in_order(self) -> bool:
        return True


def is_in_order(kind: str, typ: Type) -> bool:
    """Whether an update of this kind depends on how operands are grouped."""
    return kind in NEUTRAL and isinstance(typ, ScalarType) and typ.dtype in (f32, f64)


def ordered_sums(loop: For) -> tuple[tuple[Sum, ...], Block]:
    """The variables that a loop carries, if all of them are such sums and what they add is worth vectors, and the body
    without them; else none."""
    inside = list(statements(loop.body))
    if not all(_is_plain(s) for s in inside):
        return (), loop.body
    made = block_defs(loop.body)
    carried = [v for v in free_vars(loop.body) if v.name in made]
    if not carried or not any(map(_is_slow, inside)):
        return (), loop.body
    body, found = loop.body, list[Sum]()
    for var in carried:
        summed = _Summed(var, body) if is_in_order("add", var.type) else None
        rest = None if summed is None else summed.without()
        if summed is None or rest is None:
            return (), loop.body
        body = rest
        found.append(Sum(var, summed.kind))
    return tuple(found), body


def _is_slow(stmt: Stmt) -> bool:
    """Whether a statement takes longer than to add its result to something."""
    if not isinstance(stmt, Op):
        return isinstance(stmt, (For, While))
    return stmt.op in DEAR or (stmt.op in SLOW and not isinstance(stmt.args[-1], Const))


def _is_plain(stmt: Stmt) -> bool:
    """Whether a statement works on elements and numbers, and leaves no loop."""
    if isinstance(stmt, Op):
        return not stmt.regions and (stmt.op in ("getelem", "setelem", "dim") or is_elementwise(stmt))
    return isinstance(stmt, (If, While)) or (isinstance(stmt, For) and not stmt.reductions)


class _Summed:
    """One variable of a body; `kind` is the operation that may sum it, if there is but one that reads it."""

    def __init__(self, var: Var, body: Block) -> None:
        self.var = var
        self.body = body
        self.element = Var(f"{var.name}@element", var.type)
        self.counts = def_counts(body)
        copies = [s for s in statements(body) if isinstance(s, Op) and _is_copy(s) and s.args[0] == var]
        self.gone = {var.name, *(s.results[0].name for s in copies if self.counts[s.results[0].name] == 1)}
        self.before = frozenset(self.gone)  # names of what the variable was before
        kinds = {s.op for s in statements(body) if isinstance(s, Op) and any(map(self.is_before, s.args))
                 and s.op != "select" and not _is_copy(s)}  # fmt: skip
        self.kind = kinds.pop() if len(kinds) == 1 else ""

    def without(self) -> Block | None:
        """The body with the sum as one operation at its end."""
        block = self.given(self.body, self.var.name) if is_in_order(self.kind, self.var.type) else None
        if block is None:
            return None
        block = tuple(s for s in block if not (isinstance(s, Op) and _is_copy(s) and s.results[0].name in self.before))
        if not self.gone.isdisjoint(block_uses(block) | block_defs(block)):
            return None
        attrs = (("of", self.var.name), ("op", self.kind), ("turned", False))
        after = Var(f"{self.var.name}@after", self.var.type)
        return (*block, Op(PREFIX, (after,), (self.element,), attrs))

    def given(self, block: Block, name: str) -> Block | None:
        """A block that assigns the element instead of `name`; None where that is no sum."""
        at = next((k for k in reversed(range(len(block))) if name in _assigned(block[k])), None)
        if at is None:
            return (*block, self.assigned(self.neutral())) if name == self.var.name else None
        stmt, ahead, behind = block[at], block[:at], block[at + 1 :]
        if isinstance(stmt, If):
            sides = [self.given(side, name) for side in (stmt.then, stmt.orelse)]
            then, orelse = sides
            if then is None or orelse is None:
                return None
            self.gone.add(name)
            return (*ahead, replace(stmt, then=then, orelse=orelse), *behind)
        if not isinstance(stmt, Op):
            return None
        self.gone.add(name)
        if _is_copy(stmt):
            source = stmt.args[0]
            if self.is_before(source):
                return (*ahead, self.assigned(self.neutral(), stmt.loc), *behind)
            rest = self.given(ahead, source.name) if isinstance(source, Var) else None
            return None if rest is None else (*rest, *behind)
        if stmt.op == "select":
            return self.selected(stmt, ahead, behind)
        added = self.added(stmt)
        return None if added is None else (*ahead, self.assigned(added, stmt.loc), *behind)

    def selected(self, stmt: Op, ahead: Block, behind: Block) -> Block | None:
        """A sum or what it was before, by a condition."""
        cond, *values = stmt.args
        kept = [self.is_before(v) for v in values]
        if kept.count(True) != 1:
            return None
        total = values[kept.index(False)]
        at = next((k for k, s in enumerate(ahead) if isinstance(s, Op) and total in s.results), None)
        update = None if at is None else ahead[at]
        added = self.added(update) if isinstance(update, Op) and isinstance(total, Var) else None
        if at is None or added is None or not isinstance(total, Var) or self.counts[total.name] != 1:
            return None
        self.gone.add(total.name)
        sides = [self.neutral() if k else added for k in kept]
        return (*ahead[:at], *ahead[at + 1 :], replace(stmt, results=(self.element,), args=(cond, *sides)), *behind)

    def added(self, op: Op) -> Operand | None:
        """What an operation adds to the variable."""
        mine = [self.is_before(a) for a in op.args]
        if op.op != self.kind or mine.count(True) != 1 or (op.op == "sub" and mine[1]):
            return None
        return op.args[mine.index(False)] if op.results[0].type == self.var.type else None

    def is_before(self, operand: Operand) -> bool:
        return isinstance(operand, Var) and operand.name in self.before

    def neutral(self) -> Const:
        assert isinstance(self.var.type, ScalarType)
        return Const(NEUTRAL[self.kind], self.var.type)

    def assigned(self, value: Operand, loc: Loc = NOWHERE) -> Op:
        return Op("copy", (self.element,), (value,), loc=loc)


def _assigned(stmt: Stmt) -> set[str]:
    return block_defs((stmt,))


def _is_copy(op: Op) -> bool:
    """Whether an operation changes nothing."""
    return op.op == "copy" or (op.op == "cast" and op.args[0].type == op.results[0].type)
