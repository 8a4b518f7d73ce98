# SPDX-License-Identifier: MIT
"""Make each view of a block once: `q[b, s]` in four loads and stores is one view, and they can be one group.

Before::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,?x4x8,f32>, %i: i64) {
      %v = tview %q[%i, 0, 0] [1, 4, 8] {drop=(0,)} : !pto.memref<gm,4x8,f32>
      %a = tload %v[0, 0] [4, 4] : !pto.tile<4x4xf32>
      %b = tneg %a : !pto.tile<4x4xf32>
      tstore %b, %v[0, 0]
      %w = tview %q[%i, 0, 0] [1, 4, 8] {drop=(0,)} : !pto.memref<gm,4x8,f32>
      tstore %a, %w[0, 4]
      return
    }

After::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,?x4x8,f32>, %i: i64) {
      %v = tview %q[%i, 0, 0] [1, 4, 8] {drop=(0,)} : !pto.memref<gm,4x8,f32>
      %a = tload %v[0, 0] [4, 4] : !pto.tile<4x4xf32>
      %b = tneg %a : !pto.tile<4x4xf32>
      tstore %b, %v[0, 0]
      tstore %a, %v[0, 4]
      return
    }

The second view fails where the first one has failed.
"""

from __future__ import annotations

from collections.abc import Container

from pto_jit.ir.nodes import Block, Func, Module, Op, Stmt, Var
from pto_jit.ir.walk import TENSOR_VIEWS, def_counts, map_blocks, map_funcs, rename, statements
from pto_jit.slotted import replace


def view_once(module: Module) -> Module:
    """Replace views by earlier ones of the same block."""
    return map_funcs(module, _func)


def _func(func: Func) -> Func:
    views = [s for s in statements(func.body) if type(s) is Op and s.op in TENSOR_VIEWS]
    while len({(s.op, s.args, s.attrs) for s in views}) < len(views):
        changing = {name for name, count in def_counts(func.body).items() if count > 1}
        again: dict[str, str] = {}
        body = map_blocks(func.body, lambda block: _block(block, changing, again))  # noqa: B023
        if not again:
            break
        func = replace(func, body=rename(body, again))  # views of views may be the same now
        views = [s for s in statements(func.body) if type(s) is Op and s.op in TENSOR_VIEWS]
    return func


def _block(block: Block, changing: Container[str], again: dict[str, str]) -> Block:
    """The block without views that it has; `again`: what stands for their results."""
    known: dict[object, str] = {}
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, Op) and stmt.op in TENSOR_VIEWS and not any(
            isinstance(v, Var) and v.name in changing for v in (*stmt.args, *stmt.results)
        ):
            key = stmt.op, stmt.args, stmt.attrs, stmt.results[0].type
            if key in known:
                again[stmt.results[0].name] = known[key]
                continue
            known[key] = stmt.results[0].name
        out.append(stmt)
    return block if len(out) == len(block) else tuple(out)
