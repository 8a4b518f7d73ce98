# SPDX-License-Identifier: MIT
"""Loops that store what they keep of their elements side by side.

``if x[i] > 0: y[n] = x[i]; n += 1`` waits in every iteration for the count, and for a branch that nothing foresees.
But the lanes of a vector for which the condition holds can be put together and stored at once: processors have an
instruction for it ("compress").  A counter may be that of several tensors, and there may be several counters.

A counter goes up by 1 at one place, under a condition, where the elements are stored that it is the last index of; it
is used for nothing else in the loop.  Nothing else is stored, and what is stored is not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pto_jit.dtypes import DType
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, If, Op, Stmt, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import block_defs, defs, operands, statements, uses
from pto_jit.lower.names import I64
from pto_jit.slotted import field, frozen, mutable, replace

PACK = "pack"
"""In the body of `Packs`: `pack(v, y, ..., n) {ahead}` stores v of the iterations that come to it side by side, from
`y[..., n + ahead]` on."""
COUNT = "count"
"""`count(n)`: adds to the variable n how many iterations come to it; behind all that are stored by it."""

Root = Callable[[str], str]
"""The tensor that a tensor is a view of, by name."""

_OLD, _NEW = "old", "new"


class _Unfit(Exception):
    """The loop does not pack, or does something else."""


@frozen
class Packs:
    """What a loop packs: the variables that count, and its body without them."""

    counters: tuple[Var, ...]
    body: Block

    @property
    def dtypes(self) -> set[DType]:
        """Those of the elements that are stored."""
        types = [s.args[1].type for s in statements(self.body) if isinstance(s, Op) and s.op == PACK]
        return {t.dtype for t in types if isinstance(t, TensorType)}


def packs(loop: For, root: Root) -> Packs | None:
    """The loop as one that packs, if it is one and carries nothing else."""
    if not any(isinstance(s, If) for s in loop.body) or loop.reductions:
        return None
    inside = list(statements(loop.body))
    if not any(isinstance(s, Op) and s.op == "setelem" for s in inside):
        return None
    if not all(isinstance(s, If) or (isinstance(s, Op) and not s.regions) for s in inside):
        return None
    made = block_defs(loop.body)
    counters = tuple(v for v in free_vars(loop.body) if v.name in made)
    if not counters or any(v.type != I64 for v in counters):
        return None
    try:
        return Packs(counters, _Packer(loop, counters, root).body())
    except _Unfit:
        return None


@mutable
class _State:
    """What names are that stand for counters: the counter, and whether this iteration has counted."""

    known: dict[str, tuple[str, str]]
    counted: set[str] = field(default_factory=set)


class _Packer:
    def __init__(self, loop: For, counters: Sequence[Var], root: Root) -> None:
        self.loop = loop
        self.counters = {v.name: v for v in counters}
        self.root = root
        self.made = Counter(v.name for s in statements(loop.body) for v in defs(s))
        self.of: dict[str, tuple[str, str, str]] = {}  # by root, what is stored to: its name, the counter, and when

    def body(self) -> Block:
        state = _State({name: (name, _OLD) for name in self.counters})
        out = self.block(self.loop.body, state)
        if any(state.known.get(name) != (name, _NEW) for name in self.counters):
            raise _Unfit
        others = [s for s in statements(self.loop.body) if isinstance(s, Op) and s.op not in ("setelem", "dim")]
        if any(isinstance(v.type, TensorType) and self.root(v.name) in self.of for s in others for v in uses(s)):
            raise _Unfit
        return out

    def block(self, block: Block, state: _State) -> Block:
        """A block without counters; what names stand for is told by `state` behind it."""
        out: list[Stmt] = []
        here: list[str] = []  # counters that count in this block itself
        stored: set[str] = set()
        for stmt in block:
            if isinstance(stmt, If):
                out.append(self.branch(stmt, state))
            else:
                assert isinstance(stmt, Op)
                new = self.operation(stmt, state, here, stored)
                out += [new] if new is not None else []
        if not stored <= set(here):
            raise _Unfit  # stored where nothing is counted
        if here and block is self.loop.body:
            raise _Unfit  # in every iteration
        return (*out, *(Op(COUNT, (), (self.counters[name],), loc=self.loop.loc) for name in here))

    def branch(self, stmt: If, state: _State) -> If:
        if isinstance(stmt.cond, Var) and stmt.cond.name in state.known:
            raise _Unfit
        sides = [_State(dict(state.known)) for _ in range(2)]
        then, orelse = self.block(stmt.then, sides[0]), self.block(stmt.orelse, sides[1])
        counted = [s.counted for s in sides]
        if counted[0] & counted[1]:
            raise _Unfit
        for name in {n for s in sides for n in s.known} | set(state.known):
            have = [s.known.get(name) for s in sides]
            of = {h[0] for h in have if h is not None}
            if have[0] is None or have[1] is None or len(of) != 1:
                state.known.pop(name, None)
                if of:
                    self.forgotten(name)
                continue
            (counter,) = of
            expected = [_NEW if counter in c or counter in state.counted else _OLD for c in counted]
            if all(h == (counter, _OLD) for h in have):
                state.known[name] = counter, _OLD
            elif [h[1] for h in have if h is not None] == expected:
                state.known[name] = counter, _NEW
            else:
                raise _Unfit
        state.counted |= counted[0] | counted[1]
        return replace(stmt, then=then, orelse=orelse)

    def forgotten(self, name: str) -> None:
        """A name that stands for a counter on one way only: it must be nothing else on the other."""
        if self.made[name] != 1 or name in self.counters:
            raise _Unfit

    def operation(self, op: Op, state: _State, here: list[str], stored: set[str]) -> Op | None:
        """An operation of the body; None where it only counts."""
        known = state.known
        mine = [known[a.name] for a in operands(op) if isinstance(a, Var) and a.name in known]
        if op.op == "setelem":
            return self.store(op, state, stored)
        for r in op.results:
            known.pop(r.name, None)
        if not mine:
            if any(r.name in self.counters for r in op.results):
                raise _Unfit
            return op
        if op.op == "copy":
            known[op.results[0].name] = mine[0]
            return None
        ((counter, when), *others) = mine
        if others or when != _OLD or counter in state.counted or not _adds_one(op):
            raise _Unfit
        known[op.results[0].name] = counter, _NEW
        state.counted.add(counter)
        here.append(counter)
        return None

    def store(self, op: Op, state: _State, stored: set[str]) -> Op:
        value, target, *indices = op.args
        assert isinstance(target, Var) and isinstance(target.type, TensorType)
        last = indices[-1]
        fixed = all(isinstance(i, Const) or not self.changes(i) for i in indices[:-1])
        if not isinstance(last, Var) or last.name not in state.known or not fixed or target.type.layout == "strided":
            raise _Unfit
        if isinstance(value, Var) and value.name in state.known:
            raise _Unfit
        counter, when = state.known[last.name]
        mine = target.name, counter, when
        if self.of.setdefault(self.root(target.name), mine) != mine:
            raise _Unfit  # iterations store to the same elements
        stored.add(counter)
        args = (value, target, *indices[:-1], self.counters[counter])
        return Op(PACK, (), args, (("ahead", int(when == _NEW)),), loc=op.loc)

    def changes(self, var: Var) -> bool:
        return var == self.loop.var or var.name in self.made


def _adds_one(op: Op) -> bool:
    ones = [isinstance(a, Const) and a.value == 1 for a in op.args]
    return op.op == "add" and len(ones) == 2 and any(ones) and op.results[0].type == I64

