# SPDX-License-Identifier: MIT
"""Give every value of a variable that is assigned more than once a name of its own.

Built and written programs use names like registers: `%x = texp %x`.  The passes and targets that group operations want
a name to stand for one value, and assignments that loops and branches make visible outside to be copies, which is how
the front end writes them.

Before::

    func @f(%x: !pto.memref<gm,8x8,f32>, %n: i64) {
      %a = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
      %a = texp %a : !pto.tile<8x8xf32>
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %a = tneg %a : !pto.tile<8x8xf32>
        %a = trelu %a : !pto.tile<8x8xf32>
      ENDFOR
      tstore %a, %x[0, 0]
    }

After::

    func @f(%x: !pto.memref<gm,8x8,f32>, %n: i64) {
      %a.1 = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
      %a.2 = texp %a.1 : !pto.tile<8x8xf32>
      %a = tcopy %a.2 : !pto.tile<8x8xf32>
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %a.3 = tneg %a : !pto.tile<8x8xf32>
        %a.4 = trelu %a.3 : !pto.tile<8x8xf32>
        %a = tcopy %a.4 : !pto.tile<8x8xf32>
      ENDFOR
      tstore %a, %x[0, 0]
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.errors import Loc
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import (
    Block,
    Break,
    Call,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import block_defs, block_uses, blocks, defs, map_funcs, statements, substitute, uses
from pto_jit.lower.names import Names
from pto_jit.slotted import replace


def name_values(module: Module) -> Module:
    """Rename in every function with a variable that a statement other than a copy assigns again."""
    return map_funcs(module, _rename)


def _rename(func: Func) -> Func:
    times: Counter[str] = Counter()
    computed: set[str] = set()
    for stmt in statements(func.body):
        if isinstance(stmt, (Op, Call)):
            times.update(v.name for v in stmt.results)
            if not (isinstance(stmt, Op) and stmt.op == "copy"):
                computed.update(v.name for v in stmt.results)
        if isinstance(stmt, Op) and stmt.regions:  # their variables are their own
            for name in block_defs(tuple(s for region in stmt.regions for s in region.body)):
                times[name] = 0
    again = {name for name in computed if times[name] + any(p.name == name for p in func.params) > 1}
    if not again:
        return func
    return replace(func, body=_Renaming(func, again).block(func.body, True))


class _Renaming:
    def __init__(self, func: Func, again: set[str]) -> None:
        self.again = again
        self.names = Names(func)
        self.total = _appearances(func.body)
        self.total.update(p.name for p in func.params)

    def block(self, block: Block, outermost: bool = False) -> Block:
        """`block` with its values named; at its end the variables hold what the outside reads."""
        inside = _appearances(block)
        carried = {v.name for v in free_vars(block)}
        kept = set() if outermost else {n for n in self.again if n in carried or self.total[n] > inside[n]}
        now: dict[str, Var] = {}  # the current value of a variable that does not hold it yet
        out: list[Stmt] = []

        def hold(names: set[str], loc: Loc) -> None:
            for name in [n for n in now if n in names]:
                value = now.pop(name)
                out.append(Op("copy", (Var(name, value.type),), (value,), (), (), loc))

        for stmt in block:
            if isinstance(stmt, (Break, Continue)):
                hold(kept, stmt.loc)
                out.append(stmt)
            elif isinstance(stmt, (For, While, If, Scope, Fuse)):
                touched = set(block_uses((stmt,))) | block_defs((stmt,))
                hold(touched, stmt.loc)
                out.append(stmt if isinstance(stmt, Fuse) else self.nested(stmt))
            else:
                mapping: dict[str, Operand] = dict(now)
                (read,) = substitute((stmt,), mapping)
                out.append(self.assigned(read, now) if isinstance(read, (Op, Call)) else read)
        if block and not isinstance(block[-1], (Break, Continue)):
            hold(kept, block[-1].loc)
        return tuple(out)

    def nested(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For() | Scope():
                return replace(stmt, body=self.block(stmt.body))
            case While():
                return replace(stmt, before=self.block(stmt.before), body=self.block(stmt.body))
            case If():
                return replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse))
            case _:
                return stmt

    def assigned(self, stmt: Op | Call, now: dict[str, Var]) -> Stmt:
        results: list[Var] = []
        for result in stmt.results:
            if result.name in self.again and not isinstance(result.type, TensorType):
                now[result.name] = self.names.fresh(result.name, result.type)
                results.append(now[result.name])
            else:
                results.append(result)
        return stmt if tuple(results) == stmt.results else replace(stmt, results=tuple(results))


def _appearances(block: Block) -> Counter[str]:
    counts: Counter[str] = Counter()
    for stmt in block:
        counts.update(v.name for v in (*uses(stmt), *defs(stmt)))
        for inner in blocks(stmt):
            counts.update(_appearances(inner))
    return counts
