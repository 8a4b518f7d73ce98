# SPDX-License-Identifier: MIT
"""Operands of products that are also multiplied transposed are taken once for each.

A cube core lays its operands out while it loads them, and a transposed one in another way.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x?,f32>) {
      %t = tload %x[0, 0] [32, 64] : !pto.tile<32x64xf32>
      %u = ttranspose %t {axes=(1, 0)} : !pto.tile<64x32xf32>
      %v = tdot %t, %u : !pto.tile<32x32xf32>
      tstore %v, %y[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x?,f32>) {
      %t = tload %x[0, 0] [32, 64] : !pto.tile<32x64xf32>
      %t.turned = tload %x[0, 0] [32, 64] : !pto.tile<32x64xf32>
      %u = ttranspose %t.turned {axes=(1, 0)} : !pto.tile<64x32xf32>
      %v = tdot %t, %u : !pto.tile<32x32xf32>
      tstore %v, %y[0, 0]
      return
    }
"""

from __future__ import annotations

from pto_jit.ir.nodes import Func, Op, Stmt, Var
from pto_jit.ir.walk import rewrite_func, statements
from pto_jit.lower.names import Names
from pto_jit.slotted import replace


def taken_both_ways(func: Func) -> Func:
    """A function with products whose operands are multiplied in one orientation each.

    A kernel with products stores into no tensor that it loads from, so the second load finds what the first one found;
    what the vector cores compute they hand over twice.
    """
    ops = [s for s in statements(func.body) if isinstance(s, Op)]
    straight = {a.name for op in ops if op.op == "dot" for a in op.args if isinstance(a, Var)}
    turned = {a.name for op in ops if op.op == "transpose" for a in op.args[:1] if isinstance(a, Var)}
    both = [op for op in ops if {r.name for r in op.results} & straight & turned]
    if not both:
        return func
    names = Names(func)
    second = {r.name: names.fresh(f"{r.name}.turned", r.type) for op in both for r in op.results}

    def visit(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        if isinstance(stmt, Op) and stmt in both:
            return stmt, _again(stmt, second[stmt.results[0].name])
        if isinstance(stmt, Op) and stmt.op == "transpose" and isinstance(stmt.args[0], Var):
            tile = second.get(stmt.args[0].name)
            return stmt if tile is None else replace(stmt, args=(tile, *stmt.args[1:]))
        return stmt

    return rewrite_func(func, visit)


def _again(op: Op, result: Var) -> Op:
    if op.op == "load":
        return replace(op, results=(result,))
    (tile,) = op.results
    return Op("cast", (result,), (tile,), (("dtype", tile.type.dtype),), (), op.loc)  # type: ignore[union-attr]
