# SPDX-License-Identifier: MIT
"""Operands of products that are assigned several times, under names of their own where they are multiplied.

Loops carry them, or the sides of branches make them.  The vector cores have them, and hand them to the cube core each
time they are multiplied.

Before::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,?x64,f32>, %k: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>) {
      %state = tfull 0.0:f32, [64, 64] : !pto.tile<64x64xf32>
      FOR %i:idx, 0:idx, 64:idx, 16:idx
        %q.1 = tload %q[%i, 0] [16, 64] : !pto.tile<16x64xf32>
        %t = tdot %q.1, %state : !pto.tile<16x64xf32>
        tstore %t, %y[%i, 0]
        %k.1 = tload %k[%i, 0] [64, 64] : !pto.tile<64x64xf32>
        %state = tmul %state, %k.1 : !pto.tile<64x64xf32>
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,?x64,f32>, %k: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>) {
      %state = tfull 0.0:f32, [64, 64] : !pto.tile<64x64xf32>
      FOR %i:idx, 0:idx, 64:idx, 16:idx
        %q.1 = tload %q[%i, 0] [16, 64] : !pto.tile<16x64xf32>
        %state.operand = tcopy %state : !pto.tile<64x64xf32>
        %t = tdot %q.1, %state.operand : !pto.tile<16x64xf32>
        tstore %t, %y[%i, 0]
        %k.1 = tload %k[%i, 0] [64, 64] : !pto.tile<64x64xf32>
        %state = tmul %state, %k.1 : !pto.tile<64x64xf32>
      ENDFOR
      return
    }
"""

from __future__ import annotations

from pto_jit.ir.nodes import Func, Op, Operand, Stmt, Var
from pto_jit.ir.walk import def_counts, rewrite_func, statements
from pto_jit.lower.names import Names
from pto_jit.slotted import replace


def with_own_operands(func: Func) -> Func:
    """A function whose products have operands that are assigned once."""
    counts = def_counts(func.body)
    ops = [s for s in statements(func.body) if isinstance(s, Op)]
    operands = {a.name for op in ops if op.op == "dot" for a in op.args[:2] if isinstance(a, Var)}
    turned = {op.results[0].name for op in ops if op.op == "transpose" and op.results[0].name in operands}
    readers = [op for op in ops if op.op == "dot" or (op.op == "transpose" and op.results[0].name in turned)]
    if not any(counts[a.name] > 1 for op in readers for a in op.args[:2] if isinstance(a, Var)):
        return func
    names = Names(func)

    def visit(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        if not isinstance(stmt, Op) or not any(stmt is op for op in readers):
            return stmt
        copies: dict[Operand, Op] = {}
        for a in stmt.args[:2]:
            if isinstance(a, Var) and counts[a.name] > 1 and a not in copies:
                copies[a] = Op("copy", (names.fresh(f"{a.name}.operand", a.type),), (a,), (), (), stmt.loc)
        args = tuple(copies[a].results[0] if a in copies else a for a in stmt.args[:2]) + stmt.args[2:]
        return (*copies.values(), replace(stmt, args=args)) if copies else stmt

    return rewrite_func(func, visit)
