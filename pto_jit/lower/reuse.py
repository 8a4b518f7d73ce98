# SPDX-License-Identifier: MIT
"""Load what a tile already holds once: `x - max(x)` of a tensor reads it twice.

For devices, where a load is a transfer, and the tile is in registers or memory of the core.  (Elsewhere loads are parts
of the loops of a group, and the second one finds its row in the cache.)  Operands of products stay apart from what else
is computed of them: they lie in memory of another kind.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>) {
      %a = tload %x[0, 0] [8, 64] : !pto.tile<8x64xf32>
      %m = tmax %a {axes=(1,), keepdims=true} : !pto.tile<8x1xf32>
      %b = tload %x[0, 0] [8, 64] : !pto.tile<8x64xf32>
      %c = tsub %b, %m : !pto.tile<8x64xf32>
      tstore %c, %y[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x64,f32>, %y: !pto.memref<gm,?x64,f32>) {
      %a = tload %x[0, 0] [8, 64] : !pto.tile<8x64xf32>
      %m = tmax %a {axes=(1,), keepdims=true} : !pto.tile<8x1xf32>
      %c = tsub %a, %m : !pto.tile<8x64xf32>
      tstore %c, %y[0, 0]
      return
    }
"""

from __future__ import annotations

from collections.abc import Container

from pto_jit.ir.nodes import Block, Call, Func, Op, Stmt, Var
from pto_jit.ir.walk import WRITES, def_counts, map_blocks, rename, statements
from pto_jit.slotted import replace


def with_fewer_loads(func: Func) -> Func:
    """Replace loads by earlier ones of the same block, where nothing is written in between."""
    loads = [s for s in statements(func.body) if type(s) is Op and s.op == "load"]
    if len({(s.args, s.attrs) for s in loads}) == len(loads):
        return func
    changing = {name for name, count in def_counts(func.body).items() if count > 1}
    multiplied = {a.name for s in statements(func.body) if isinstance(s, Op) and s.op == "dot"
                  for a in s.args if isinstance(a, Var)}  # fmt: skip
    again: dict[str, str] = {}
    body = map_blocks(func.body, lambda block: _block(block, changing, multiplied, again))
    return replace(func, body=rename(body, again)) if again else func


def without_repeated_loads(ops: list[Op], read_elsewhere: Container[str]) -> list[Op]:
    """The same for operations one after the other; read_elsewhere: what others read of their results."""
    changing = {name for name, count in def_counts(tuple(ops)).items() if count > 1 or name in read_elsewhere}
    multiplied = {a.name for op in ops if op.op == "dot" for a in op.args if isinstance(a, Var)}
    again: dict[str, str] = {}
    left = _block(tuple(ops), changing, multiplied, again)
    return [s for s in rename(left, again) if isinstance(s, Op)] if again else ops


def _block(block: Block, changing: Container[str], multiplied: Container[str], again: dict[str, str]) -> Block:
    """The block without loads of what it has; `again`: what stands for their results."""
    known: dict[object, str] = {}
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Op) and stmt.op == "load":
            name = stmt.results[0].name
            if name not in multiplied and not any(
                isinstance(v, Var) and v.name in changing for v in (*stmt.args, *stmt.results)
            ):
                key = stmt.args, stmt.attrs, stmt.results[0].type
                if key in known:
                    again[name] = known[key]
                    continue
                known[key] = name
        elif any(map(_may_write, statements((stmt,)))):
            known.clear()
        out.append(stmt)
    return block if len(out) == len(block) else tuple(out)


def _may_write(stmt: Stmt) -> bool:
    return stmt.op in WRITES if isinstance(stmt, Op) else isinstance(stmt, Call)
