# SPDX-License-Identifier: MIT
"""Write a scalar function over tiles as tile operations, where it is straight-line elementwise code.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,8x8,f32>, %s: f32) {
      %t = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
      %o = tmap %t : !pto.tile<8x8xf32> WITH (%p: f32)
        %q = smul %p, %s : f32
        %r = sexp %q : f32
        YIELD %r
      ENDWITH
      tstore %o, %x[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,8x8,f32>, %s: f32) {
      %t = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
      %q.m1 = tmul %t, %s : !pto.tile<8x8xf32>
      %o = texp %q.m1 : !pto.tile<8x8xf32>
      tstore %o, %x[0, 0]
      return
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.nodes import Block, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import map_blocks, map_funcs, statements
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import replace


def expand_maps(module: Module) -> Module:
    """Expand the maps of every function whose bodies allow it; the others stay."""
    count = 0

    def block(body: Block) -> Block:
        nonlocal count
        out: list[Stmt] = []
        for stmt in body:
            ops = None
            if isinstance(stmt, Op) and stmt.op == "map":
                ops = _expanded(stmt, count + 1)
            if ops is None:
                out.append(stmt)
            else:
                count += 1
                out += ops
        return tuple(out) if len(out) != len(body) or any(a is not b for a, b in zip(out, body, strict=True)) else body

    def function(func: Func) -> Func:
        if not any(type(stmt) is Op and stmt.op == "map" for stmt in statements(func.body)):
            return func
        body = map_blocks(func.body, block)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, function)


def _expanded(op: Op, number: int) -> list[Stmt] | None:
    """The tile operations of a map, or None when its body is more than elementwise operations of its parameters."""
    region = op.regions[0]
    body = [s for s in region.body if isinstance(s, Op)]
    shapes = {a.type.shape for a in op.args if isinstance(a.type, TileType)}
    if len(body) != len(region.body) or len(shapes) != 1:
        return None
    assigned = Counter(r.name for s in body for r in s.results)
    if not all(is_elementwise(s) and s.op != "copy" for s in body) or max(assigned.values(), default=0) > 1:
        return None
    finals = [r.name for r in region.results if isinstance(r, Var)]
    if len(finals) != len(region.results) or len(set(finals)) != len(finals):
        return None
    shape = shapes.pop()
    became: dict[str, Operand] = {p.name: a for p, a in zip(region.params, op.args, strict=True)}
    tiles = set(became)
    result_of = dict(zip(finals, op.results, strict=True))
    out: list[Stmt] = []
    for s in body:
        wide = any(isinstance(a, Var) and a.name in tiles for a in s.args)
        results: list[Var] = []
        for r in s.results:
            assert isinstance(r.type, ScalarType)
            type = TileType(r.type.dtype, shape) if wide else r.type
            fresh = result_of.get(r.name) or Var(f"{r.name}.m{number}", type)
            became[r.name] = fresh
            results.append(fresh)
            if wide:
                tiles.add(r.name)
        args = tuple(became.get(a.name, a) if isinstance(a, Var) else a for a in s.args)
        out.append(replace(s, results=tuple(results), args=args))
    if not all(name in tiles and name in assigned for name in finals):
        return None
    return out
