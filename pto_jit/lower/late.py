# SPDX-License-Identifier: MIT
"""Extremes of several operands in a loop, taken last of what the iteration before has to give.

Before::

    // Function Type: InCore
    func @f(%d: !pto.memref<gm,?,i64>, %x: !pto.memref<gm,?,i64>, %y: !pto.memref<gm,?,i64>, %n: i64) {
      FOR %j:idx, 0:idx, %n:idx, 1:idx
        %k = sadd %j, 1 : i64
        %a = sgetelem %x[%j] : i64
        %b = sgetelem %d[%j] : i64
        %c = sgetelem %y[%j] : i64
        %m = smin %a, %b : i64
        %o = smin %m, %c : i64
        ssetelem %o, %d[%k]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%d: !pto.memref<gm,?,i64>, %x: !pto.memref<gm,?,i64>, %y: !pto.memref<gm,?,i64>, %n: i64) {
      FOR %j:idx, 0:idx, %n:idx, 1:idx
        %k = sadd %j, 1 : i64
        %a = sgetelem %x[%j] : i64
        %b = sgetelem %d[%j] : i64
        %c = sgetelem %y[%j] : i64
        %late = smin %a, %c : i64
        %o = smin %late, %b : i64
        ssetelem %o, %d[%k]
      ENDFOR
      return
    }

An iteration then waits for one operation instead of two: edit distances, longest common subsequences and alignments
are such loops.  Integers may change places; floats, of which the first of equal ones counts (0.0 and -0.0), are only
grouped otherwise: what stands in front of the operand that is waited for, and what stands behind it.

Waited for is what the loop carries in a variable, and an element that an earlier iteration may have stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Func, Module, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import def_counts, map_funcs, rewrite_func, statements, use_counts
from pto_jit.lower.names import I64, Names
from pto_jit.slotted import replace

EXTREMES = frozenset(["max", "min", "maximum", "minimum"])

_Place = tuple[str, int] | None
"""An index: a variable plus a number (of "" the number itself); None: it may be anything."""


def wait_last(module: Module) -> Module:
    """Order the operands of extremes in innermost loops by when they are there."""

    def transform(func: Func) -> Func:
        if not any(isinstance(s, Op) and s.op in EXTREMES for s in statements(func.body)):
            return func
        names, used = Names(func), use_counts(func.body)

        def visit(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, (For, While)) or any(isinstance(s, (For, While)) for s in statements(stmt.body)):
                return None
            body = _Body(stmt, names, used).ordered()
            return None if body is stmt.body else replace(stmt, body=body)

        return rewrite_func(func, visit, plain=False)

    return map_funcs(module, transform)


def waited_for(loop: For | While) -> set[str]:
    """The variables of an innermost loop that what the iteration before gives is needed for."""
    body = _Body(loop, None, Counter())
    body.look(loop.body)
    return body.late


class _Body:
    """The body of an innermost loop."""

    def __init__(self, loop: For | While, names: Names | None, used: Counter[str]) -> None:
        self.loop = loop
        self.names = names
        self.used = used
        self.made = def_counts((loop,))
        self.places: dict[str, _Place] = {}
        self.stores: dict[str, list[tuple[_Place, ...]]] = {}
        self.late = {v.name for v in free_vars((loop,)) if self.made[v.name]}
        self.makers: dict[str, tuple[int, Op]] = {}

    def ordered(self) -> Block:
        body = self.loop.body
        if sum(isinstance(s, Op) and s.op in EXTREMES for s in body) < 2:
            return body
        self.look(body)
        if not self.late:
            return body
        out: dict[int, tuple[Op, ...]] = {}
        inner: set[int] = set()
        for at in reversed(range(len(body))):
            op = body[at]
            if at in inner or not isinstance(op, Op) or op.op not in EXTREMES or len(op.args) != 2:
                continue
            members: list[int] = []
            leaves = self.leaves(op, at, at, members)
            new = self.tree(op, leaves) if members else None
            if new is not None:
                out[at] = new
                out.update((k, ()) for k in members)
            inner.update(members)
        if not out:
            return body
        return tuple(s for at, stmt in enumerate(body) for s in out.get(at, (stmt,)))

    # -- what waits ---------------------------------------------------------------------------------------------------

    def look(self, body: Block) -> None:
        """Note who makes what, where elements lie, and what waits for the iteration before."""
        for stmt in body:
            if isinstance(stmt, Op):
                self.note_place(stmt)
        for stmt in statements(body):
            if isinstance(stmt, Op) and stmt.op == "setelem":
                tensor = stmt.args[1]
                assert isinstance(tensor, Var)
                self.stores.setdefault(tensor.name, []).append(tuple(map(self.place, stmt.args[2:])))
        for at, stmt in enumerate(body):
            if not isinstance(stmt, Op):
                continue
            waits = any(isinstance(a, Var) and a.name in self.late for a in stmt.args)
            if waits or (stmt.op == "getelem" and self.may_be_stored(stmt)):
                self.late.update(r.name for r in stmt.results)
            for r in stmt.results:
                self.makers[r.name] = at, stmt

    def note_place(self, op: Op) -> None:
        if op.op not in ("add", "sub", "copy") or op.results[0].type != I64 or self.made[op.results[0].name] != 1:
            return
        first, second = self.place(op.args[0]), Const(0, I64) if op.op == "copy" else op.args[1]
        if op.op == "add" and isinstance(op.args[0], Const):
            first, second = self.place(op.args[1]), op.args[0]
        if first is not None and isinstance(second, Const):
            by = int(second.value)
            self.places[op.results[0].name] = first[0], first[1] - by if op.op == "sub" else first[1] + by

    def place(self, index: Operand) -> _Place:
        if isinstance(index, Const):
            return "", int(index.value)
        loop = self.loop
        if self.made[index.name] > (isinstance(loop, For) and index == loop.var):
            return self.places.get(index.name)
        return index.name, 0

    def may_be_stored(self, op: Op) -> bool:
        """Whether an earlier iteration may have stored the element that is read."""
        tensor, *indices = op.args
        assert isinstance(tensor, Var)
        here = [self.place(i) for i in indices]
        return any(all(map(self.may_meet, here, there)) for there in self.stores.get(tensor.name, ()))

    def may_meet(self, read: _Place, stored: _Place) -> bool:
        if read is None or stored is None or read[0] != stored[0]:
            return True
        loop = self.loop
        if not isinstance(loop, For) or read[0] != loop.var.name or not isinstance(loop.step, Const):
            return read == stored
        ahead = stored[1] - read[1]
        return ahead * int(loop.step.value) > 0

    # -- the tree -----------------------------------------------------------------------------------------------------

    def leaves(self, op: Op, here: int, root: int, members: list[int]) -> list[Operand]:
        """The operands of a tree of one operation, in order; `here`, `root`: where it and the root stand, `members`:
        where the operations below the root do."""
        out: list[Operand] = []
        for a in op.args:
            at, maker = self.makers.get(a.name, (0, None)) if isinstance(a, Var) else (0, None)
            if (
                maker is not None and maker.op == op.op and maker.attrs == op.attrs and at < here
                and isinstance(a, Var) and self.used[a.name] == 1 and self.made[a.name] == 1
                and all(self.stays(leaf, at, root) for leaf in maker.args)
            ):  # fmt: skip
                members.append(at)
                out += self.leaves(maker, at, root, members)
            else:
                out.append(a)
        return out

    def stays(self, leaf: Operand, start: int, stop: int) -> bool:
        """Whether an operand is the same behind these statements."""
        if isinstance(leaf, Const) or not self.made[leaf.name]:
            return True
        between = self.loop.body[start:stop]
        return not def_counts(tuple(between))[leaf.name]

    def tree(self, op: Op, leaves: Sequence[Operand]) -> tuple[Op, ...] | None:
        """The operations of a tree, ending in `op`'s result; None where they may stay as they are."""
        late = [k for k, a in enumerate(leaves) if isinstance(a, Var) and a.name in self.late]
        if len(late) != 1 or len(leaves) < 3:
            return None
        (k,) = late
        typ = op.results[0].type
        assert isinstance(typ, ScalarType)
        if typ.dtype.kind in "iu":
            groups = [[*leaves[:k], *leaves[k + 1 :]], [leaves[k]]]
        else:
            groups = [g for g in (leaves[:k], [leaves[k]], leaves[k + 1 :]) if g]
        new: list[Op] = []

        def joined(parts: Sequence[Operand], result: Var | None) -> Operand:
            value = parts[0]
            for n, part in enumerate(parts[1:], 2):
                assert self.names is not None
                into = result if result is not None and n == len(parts) else self.names.fresh("late", typ)
                new.append(Op(op.op, (into,), (value, part), op.attrs, loc=op.loc))
                value = into
            return value

        joined([joined(g, None) for g in groups], op.results[0])
        return tuple(new)
