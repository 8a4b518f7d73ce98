# SPDX-License-Identifier: MIT
"""Branches of innermost loops that store to the same elements either way, as selections in front of one store.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,u8>, %n: i64, %y: !pto.memref<gm,?,u8>) {
      FOR %i:idx, 1:idx, %n:idx, 1:idx
        %k = ssub %i, 1 : i64
        %a = sgetelem %x[%k] : u8
        %b = sgetelem %x[%i] : u8
        %c = slt %a, %b : bool_
        IF %c
          %d = sgetelem %x[%k] : u8
          ssetelem %d, %y[%i]
        ELSE
          ssetelem 0:u8, %y[%i]
        ENDIF
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,u8>, %n: i64, %y: !pto.memref<gm,?,u8>) {
      FOR %i:idx, 1:idx, %n:idx, 1:idx
        %k = ssub %i, 1 : i64
        %a = sgetelem %x[%k] : u8
        %b = sgetelem %x[%i] : u8
        %c = slt %a, %b : bool_
        %d = scopy %a : u8
        %y_chosen = sselect %c, %d, 0:u8 : u8
        ssetelem %y_chosen, %y[%i]
      ENDFOR
      return
    }

(J. R. Allen, K. Kennedy, C. Porterfield and J. Warren, "Conversion of control dependence to data dependence", 1983.)  A
loop vectoriser does so by itself with what cannot fail, and with loads and stores under masks; many processors have
none of these for 8 and 16 bits.  What a branch loads is loaded either way only where it lies in its tensor: along every
axis between elements that the iteration has accessed before.

Where one side alone stores, to an element that the iteration has read (``if x[i] < 0: x[i] = 0``), and to which no
other iteration comes, the other side stores what it was.

Variables that a branch assigns become selections, too (``if x[i] > m: m = x[i]``), also such that the loop carries:
then of few operations, as the loop may wait for them.  A selection of the greater or the less of two integers is their
maximum or minimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeGuard

from pto_jit.dtypes import bool_, i64
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Module, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import (
    block_defs,
    block_uses,
    def_counts,
    map_funcs,
    map_statements,
    statements,
    substitute,
    use_counts,
)
from pto_jit.lower.independent import is_other
from pto_jit.lower.names import Taken, unused
from pto_jit.slotted import field, mutable, replace

_CHEAP = frozenset(
    "copy cast select add sub mul neg abs square fma min max minimum maximum relu".split()
    + "and or xor not lt le gt ge eq ne".split()
)
"""What is as fast as a selection, and cannot fail."""

_MOST = 16  # operations that are worth doing for nothing
_FEW = 4  # of these in a loop whose next iteration may wait for the selection

_INDEX = ScalarType(i64)
_BOOL = ScalarType(bool_)
_GREATER, _LESS = ("gt", "ge"), ("lt", "le")

Place = tuple[str | None, int]
"""An index: a variable, or None, plus a number."""


@mutable
class Side:
    """What a side of a branch computes, the stores behind that, and what variables are at its end."""

    ops: list[Op] = field(default_factory=list)
    stores: list[Op] = field(default_factory=list)
    values: dict[str, Operand] = field(default_factory=dict)


def convert_ifs(module: Module) -> Module:
    """Write branches of innermost loops as selections: those that assign variables, and those that store to the same
    elements either way where the loop carries nothing."""

    def convert(func: Func) -> Func:
        taken = Taken({p.name for p in func.params} | block_defs(func.body))

        def visit(stmt: Stmt) -> Stmt:
            return _Converter(stmt, func, taken).loop() if _is_candidate(stmt) else stmt

        body = map_statements(func.body, visit)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, convert)


def _is_candidate(loop: Stmt) -> TypeGuard[For | While]:
    if not isinstance(loop, (For, While)) or not any(isinstance(s, If) for s in loop.body):
        return False
    if isinstance(loop, For) and loop.reductions:
        return False
    inside = list(statements(loop.body))
    return not any(isinstance(s, (For, While, Break, Continue, Return)) or is_other(s) for s in inside)


def _lasting(loop: For | While, func: Func) -> set[str]:
    """The variables that a loop assigns and that have a value before or behind an iteration."""
    made, read = def_counts(loop.body), use_counts(loop.body)
    everywhere, used = def_counts(func.body), use_counts(func.body)
    outside = {name for name in made if everywhere[name] > made[name] or used[name] > read[name]}
    return outside | {v.name for v in free_vars(loop.body) if v.name in made}


class _Converter:
    """The branches of one loop."""

    def __init__(self, loop: For | While, func: Func, taken: Taken) -> None:
        self.source = loop
        self.taken = taken
        self.made = Counter(r.name for s in statements(loop.body) if isinstance(s, Op) for r in s.results)
        self.waits = isinstance(loop, While) or any(v.name in self.made for v in free_vars(loop.body))
        self.lasting = _lasting(loop, func)
        for name in self.lasting:
            self.made[name] += 1  # it is never a value of the iteration alone
        self.before = {v.name for v in free_vars(loop.body)}  # what has a value where a branch is reached
        self.places: dict[str, Place] = {}
        self.accessed: dict[str, list[tuple[Place | None, ...]]] = {}
        self.known: dict[str, Op] = {}  # what values were made by, and which value an operation made
        self.values: dict[tuple[str, tuple[Operand, ...]], Var] = {}

    def loop(self) -> For | While:
        body: list[Stmt] = []
        changed = False
        for stmt in self.source.body:
            new = self.straight(stmt) if isinstance(stmt, If) else None
            changed |= new is not None
            for one in (stmt,) if new is None else new:
                if isinstance(one, Op):
                    self.note(one)
                    self.before.update(r.name for r in one.results)
                else:
                    self.forget(block_defs((one,)), writes=True)
                body.append(one)
        return replace(self.source, body=self.without_dead(body)) if changed else self.source

    def without_dead(self, body: Sequence[Stmt]) -> Block:
        """A body without what nobody reads any more."""
        used: set[str] = set()
        out: list[Stmt] = []
        for stmt in reversed(body):
            if isinstance(stmt, Op) and stmt.results and (stmt.op in _CHEAP or stmt.op == "getelem"):
                unread = all(self.made[r.name] <= 1 and r.name not in used for r in stmt.results)
                if unread:
                    continue
            used |= block_uses((stmt,))
            out.append(stmt)
        return tuple(reversed(out))

    # -- values -------------------------------------------------------------------------------------------------------

    def forget(self, names: Collection[str], *, writes: bool) -> None:
        """Variables get other values, or elements do."""
        names = {name for name in names if self.made[name] > 1}
        if not (names or writes):
            return

        def stale(op: str, args: Iterable[Operand]) -> bool:
            return (writes and op == "getelem") or any(isinstance(a, Var) and a.name in names for a in args)

        self.known = {n: op for n, op in self.known.items() if n not in names and not stale(op.op, op.args)}
        self.values = {key: v for key, v in self.values.items() if v.name not in names and not stale(*key)}

    def remember(self, op: Op) -> None:
        """An operation is done: what it gives is known from here on."""
        self.forget([r.name for r in op.results], writes=op.op == "setelem")
        if len(op.results) == 1 and op.results[0] not in op.args:
            self.known[op.results[0].name] = op
            if not op.attrs:
                self.values.setdefault(self.key(op), op.results[0])

    def key(self, op: Op) -> tuple[str, tuple[Operand, ...]]:
        return op.op, tuple(map(self.origin, op.args))

    def origin(self, operand: Operand) -> Operand:
        """What a value is a copy of."""
        while isinstance(operand, Var):
            op = self.known.get(operand.name)
            if op is None or op.op != "copy":
                break
            operand = op.args[0]
        return operand

    # -- where elements lie -------------------------------------------------------------------------------------------

    def note(self, op: Op) -> None:
        """What an operation that every iteration comes to makes known."""
        self.remember(op)
        if op.op in ("getelem", "setelem"):
            tensor, *indices = op.args[op.op == "setelem" :]
            assert isinstance(tensor, Var)
            self.accessed.setdefault(tensor.name, []).append(tuple(map(self.place, indices)))
        elif op.op in ("add", "sub", "copy") and op.results[0].type == _INDEX and self.made[op.results[0].name] == 1:
            at = self.place(op.args[0])
            by = op.args[1] if len(op.args) == 2 else Const(0, _INDEX)
            if op.op == "add" and at is not None and at[0] is None:
                at, by = self.place(by), op.args[0]
            if at is not None and isinstance(by, Const):
                distance = int(by.value)
                self.places[op.results[0].name] = at[0], at[1] - distance if op.op == "sub" else at[1] + distance

    def place(self, index: Operand) -> Place | None:
        """What is known of an index; None: it may be anything."""
        if isinstance(index, Const):
            return None, int(index.value)
        return None if self.made[index.name] > 1 else self.places.get(index.name, (index.name, 0))

    def lies_inside(self, op: Op) -> bool:
        """Whether an element is between others of its tensor, along every axis."""
        tensor, *indices = op.args
        assert isinstance(tensor, Var)
        others = self.accessed.get(tensor.name, [])
        for axis, index in enumerate(indices):
            place = self.place(index)
            along = [o[axis] for o in others]
            distances = [o[1] - place[1] for o in along if o is not None and place is not None and o[0] == place[0]]
            if not distances or min(distances) > 0 or max(distances) < 0:
                return False
        return True

    # -- branches -----------------------------------------------------------------------------------------------------

    def straight(self, stmt: If) -> list[Op] | None:
        """A branch as operations; None where it has to stay."""
        saved = dict(self.places), dict(self.known), dict(self.values)
        first, second = self.side(stmt.then), self.side(stmt.orelse)
        if first is not None and second is not None:
            self.complete(first, second)
            self.complete(second, first)
        if first is None or second is None or not self.fit(first, second):
            self.places, self.known, self.values = saved
            return None
        out = [*first.ops, *second.ops]
        joined: list[Op] = []
        for store, other in zip(first.stores, second.stores, strict=True):
            value, target, *indices = store.args
            assert isinstance(target, Var)
            chosen = Var(unused(f"{target.name}_chosen", self.taken), value.type)
            self.made[chosen.name] = 1
            out.append(Op("select", (chosen,), (stmt.cond, value, other.args[0]), loc=stmt.loc))
            joined.append(replace(store, args=(chosen, target, *indices)))
        return [*out, *self.assigned(stmt, first, second), *joined]

    def assigned(self, stmt: If, first: Side, second: Side) -> list[Op]:
        """What gives variables their values behind a branch."""
        names = [
            n
            for n in dict.fromkeys((*first.values, *second.values))
            if n in self.before or (n in first.values and n in second.values)
        ]  # nobody reads the others
        out: list[Op] = []
        later: list[Op] = []
        for name in names:
            typ = next(s.values[name].type for s in (first, second) if name in s.values)
            var = Var(name, typ)
            then, orelse = first.values.get(name, var), second.values.get(name, var)
            op = self.selected(stmt, var, then, orelse, alone=len(names) == 1)
            if len(names) > 1:  # others may be what this was before
                chosen = Var(unused(f"{name}_chosen", self.taken), typ)
                self.made[chosen.name] = 1
                out.append(replace(op, results=(chosen,)))
                later.append(Op("copy", (var,), (chosen,), loc=stmt.loc))
            else:
                later.append(op)
        return [*out, *later]

    def selected(self, stmt: If, var: Var, then: Operand, orelse: Operand, *, alone: bool) -> Op:
        """The operation that makes a variable one of two values."""
        cond, (then, orelse) = stmt.cond, map(self.origin, (then, orelse))
        if then == orelse:
            return Op("copy", (var,), (then,), loc=stmt.loc)
        if var.type == _BOOL:  # of comparisons one after the other
            if then == self.origin(cond) or (isinstance(then, Const) and then.value):
                return Op("or", (var,), (cond, orelse), loc=stmt.loc)
            if orelse == self.origin(cond) or (isinstance(orelse, Const) and not orelse.value):
                return Op("and", (var,), (cond, then), loc=stmt.loc)
        test = self.known.get(cond.name) if alone and isinstance(cond, Var) else None
        if test is not None and test.op in (*_GREATER, *_LESS) and _is_integer(var):
            pair = tuple(map(self.origin, test.args))
            if pair in ((then, orelse), (orelse, then)):
                greatest = (test.op in _GREATER) is (pair == (then, orelse))
                return Op("max" if greatest else "min", (var,), (then, orelse), loc=stmt.loc)
        return Op("select", (var,), (cond, then, orelse), loc=stmt.loc)

    def complete(self, side: Side, other: Side) -> None:
        """Give a side without a store that of the other one, with what the element is: the iteration has read it, so
        nobody else writes it meanwhile.

        Not where another iteration may read or write it: that might wait for this one.  Nor where a number is not what
        lies in memory.
        """
        if side.stores or len(other.stores) != 1 or self.waits:
            return
        store = other.stores[0]
        value, target, *indices = store.args
        old = self.values.get(("getelem", (target, *map(self.origin, indices))))
        if old is None or old.type != value.type or not _lies_as_it_is(old):
            return
        if self.stays_apart(target, indices):
            side.stores.append(replace(store, args=(old, target, *indices)))

    def stays_apart(self, target: Operand, indices: Sequence[Operand]) -> bool:
        """Whether no iteration comes to the element of another one, but perhaps all to one of a single iteration."""
        if not isinstance(self.source, For):
            return False
        var = self.source.var
        places = list(map(self.place, indices))
        moving = [axis for axis, place in enumerate(places) if place is not None and place[0] == var.name]
        for stmt in statements(self.source.body):
            if not isinstance(stmt, Op) or stmt.op not in ("getelem", "setelem") or target not in stmt.args:
                continue
            others = stmt.args[1 if stmt.op == "getelem" else 2 :]
            fixed = stmt.op == "getelem" and all(
                isinstance(i, Const) or (i != var and not self.made[i.name]) for i in others
            )
            if not fixed and not any(self.place(others[axis]) == places[axis] for axis in moving):
                return False
        return bool(moving)

    def fit(self, first: Side, second: Side) -> bool:
        """Whether two sides store to the same elements, assign what is known either way, and compute little else."""
        stores, others = first.stores, second.stores
        if not (stores or first.values or second.values) or len(stores) != len(others):
            return False
        if any(name in self.lasting - self.before for name in first.values.keys() ^ second.values.keys()):
            return False  # it has a value from before the loop
        most = _FEW if self.waits else _MOST
        work = sum(op.op not in ("copy", "getelem") for op in (*first.ops, *second.ops))
        if (stores and self.waits) or work > most:
            return False
        return all(map(self.same_place, stores, others))

    def side(self, block: Block) -> Side | None:
        """What a side of a branch does; None where it may fail, or does anything else."""
        out = Side()
        for stmt in block:
            inner = self.straight(stmt) if isinstance(stmt, If) else [stmt] if isinstance(stmt, Op) else None
            if inner is None or not all(self.take(op, out) for op in inner):
                return None
        return out

    def take(self, op: Op, side: Side) -> bool:
        """Add an operation to a side; False where it cannot be done for nothing."""
        (op,) = (s for s in substitute((op,), side.values) if isinstance(s, Op))
        if op.op == "setelem":
            side.stores.append(op)
            return True
        if len(op.results) != 1 or not isinstance(op.results[0].type, ScalarType):
            return False
        inside = op.op == "getelem" and not side.stores and self.lies_inside(op)
        if not (inside or op.op in _CHEAP or _is_shift(op)):
            return False
        (result,) = op.results
        same = self.values.get(self.key(op)) if not op.attrs and op.op != "copy" else None
        if same is not None and same.type == result.type and same != result:
            op = Op("copy", (result,), (same,), loc=op.loc)
        if self.made[result.name] > 1:
            if op.op == "copy":
                side.values[result.name] = op.args[0]
                return True
            value = Var(unused(f"{result.name}_chosen", self.taken), result.type)
            self.made[value.name] = 1
            side.values[result.name], op = value, replace(op, results=(value,))
        (self.remember if op.op == "getelem" else self.note)(op)  # other iterations may not come to this element
        side.ops.append(op)
        return True

    def same_place(self, store: Op, other: Op) -> bool:
        if store.args[1] != other.args[1] or store.args[0].type != other.args[0].type:
            return False
        places = [[self.place(i) for i in s.args[2:]] for s in (store, other)]
        return None not in places[0] and places[0] == places[1]


def _is_shift(op: Op) -> bool:
    """Whether an operation divides integers by a power of two."""
    if op.op not in ("floordiv", "mod") or not isinstance(op.args[1], Const) or not _is_integer(op.results[0]):
        return False
    by = int(op.args[1].value)
    return by > 0 and by & (by - 1) == 0


def _lies_as_it_is(var: Var) -> bool:
    """Whether an element that is read and written again keeps its bits: a signalling NaN of 16 bits does not, nor a
    bool_ that is neither 0 nor 1."""
    assert isinstance(var.type, ScalarType)
    dtype = var.type.dtype
    return dtype.kind in "iu" or (dtype.kind == "f" and dtype.bits > 16)


def _is_integer(var: Var) -> bool:
    return isinstance(var.type, ScalarType) and var.type.dtype.kind in "iu" and var.type != _BOOL
