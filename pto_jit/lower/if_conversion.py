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
        %d = sgetelem %x[%k] : u8
        %y_chosen = sselect %c, %d, 0:u8 : u8
        ssetelem %y_chosen, %y[%i]
      ENDFOR
      return
    }

(J. R. Allen, K. Kennedy, C. Porterfield and J. Warren, "Conversion of control dependence to data dependence", 1983.)  A
loop vectoriser does so by itself with what cannot fail, and with loads and stores under masks; many processors have
none of these for 8 and 16 bits.  What a branch loads is loaded either way only where it lies in its tensor: along every
axis between elements that the iteration has accessed before.
"""

from __future__ import annotations

from collections import Counter

from pto_jit.dtypes import i64
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Module, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, map_funcs, map_statements, statements
from pto_jit.lower.independent import is_other
from pto_jit.lower.names import Taken, unused
from pto_jit.slotted import replace

_CHEAP = frozenset(
    "copy cast select add sub mul neg abs square fma min max minimum maximum relu".split()
    + "and or xor not lt le gt ge eq ne".split()
)
"""What is as fast as a selection, and cannot fail."""

_MOST = 16  # operations that are worth doing for nothing

_INDEX = ScalarType(i64)

Place = tuple[str | None, int]
"""An index: a variable, or None, plus a number."""

Side = tuple[list[Op], list[Op]]
"""What a side of a branch computes, and the stores behind that."""


def convert_ifs(module: Module) -> Module:
    """Write branches that store to the same elements as selections, in innermost loops that carry nothing."""

    def convert(func: Func) -> Func:
        taken = Taken({p.name for p in func.params} | block_defs(func.body))

        def visit(stmt: Stmt) -> Stmt:
            return _Converter(stmt, taken).loop() if isinstance(stmt, For) and _is_candidate(stmt) else stmt

        body = map_statements(func.body, visit)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, convert)


def _is_candidate(loop: For) -> bool:
    if loop.reductions or not any(isinstance(s, If) for s in loop.body):
        return False
    inside = list(statements(loop.body))
    if any(isinstance(s, (For, While, Break, Continue, Return)) or is_other(s) for s in inside):
        return False
    assigned = block_defs(loop.body)
    return not any(v.name in assigned for v in free_vars(loop.body))


class _Converter:
    """The branches of one loop."""

    def __init__(self, loop: For, taken: Taken) -> None:
        self.source = loop
        self.taken = taken
        self.made = Counter(r.name for s in statements(loop.body) if isinstance(s, Op) for r in s.results)
        self.places: dict[str, Place] = {}
        self.accessed: dict[str, list[tuple[Place | None, ...]]] = {}

    def loop(self) -> For:
        body: list[Stmt] = []
        for stmt in self.source.body:
            new = self.straight(stmt) if isinstance(stmt, If) else None
            for one in (stmt,) if new is None else new:
                if isinstance(one, Op):
                    self.note(one)
                body.append(one)
        if len(body) == len(self.source.body) and all(a is b for a, b in zip(body, self.source.body, strict=True)):
            return self.source
        return replace(self.source, body=tuple(body))

    # -- where elements lie -------------------------------------------------------------------------------------------

    def note(self, op: Op) -> None:
        """What an operation that every iteration comes to makes known."""
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
        """A branch that stores, as operations; None where it has to stay."""
        saved = dict(self.places)
        first, second = self.side(stmt.then), self.side(stmt.orelse)
        if first is None or second is None or not self.alike(first, second):
            self.places = saved
            return None
        (then, stores), (orelse, others) = first, second
        out = [*then, *orelse]
        joined: list[Op] = []
        for store, other in zip(stores, others, strict=True):
            value, target, *indices = store.args
            assert isinstance(target, Var)
            chosen = Var(unused(f"{target.name}_chosen", self.taken), value.type)
            self.made[chosen.name] = 1
            out.append(Op("select", (chosen,), (stmt.cond, value, other.args[0]), loc=stmt.loc))
            joined.append(replace(store, args=(chosen, target, *indices)))
        return [*out, *joined]

    def alike(self, first: Side, second: Side) -> bool:
        """Whether two sides store to the same elements, and compute little else."""
        (then, stores), (orelse, others) = first, second
        if not stores or len(stores) != len(others) or len(then) + len(orelse) > _MOST:
            return False
        return all(map(self.same_place, stores, others))

    def side(self, block: Block) -> Side | None:
        """What a side of a branch computes and then stores; None where it may fail, or does anything else."""
        ops: list[Op] = []
        stores: list[Op] = []
        for stmt in block:
            inner = self.straight(stmt) if isinstance(stmt, If) else [stmt] if isinstance(stmt, Op) else None
            for op in inner or ():
                if op.op == "setelem":
                    stores.append(op)
                    continue
                if not self.is_free(op) or (stores and op.op == "getelem"):
                    return None
                if op.op != "getelem":
                    self.note(op)
                ops.append(op)
            if inner is None:
                return None
        return ops, stores

    def is_free(self, op: Op) -> bool:
        """Whether an operation may be done for nothing."""
        if any(self.made[r.name] != 1 or not isinstance(r.type, ScalarType) for r in op.results):
            return False
        return op.op in _CHEAP or (op.op == "getelem" and self.lies_inside(op))

    def same_place(self, store: Op, other: Op) -> bool:
        if store.args[1] != other.args[1] or store.args[0].type != other.args[0].type:
            return False
        places = [[self.place(i) for i in s.args[2:]] for s in (store, other)]
        return None not in places[0] and places[0] == places[1]
