# SPDX-License-Identifier: MIT
"""Products in branches that tiles decide: they are taken before, and the branch chooses what becomes of them.

The cube core does not have numbers that are made of tiles.  A product, the loads and the work on tiles that it is made
of change nothing, so they may be done whether the branch is taken or not; what is added to a sum, or stored, is so in
the branch.

Before::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,64x64,f32>, %k: !pto.memref<gm,64x64,f32>, %y: !pto.memref<gm,64x64,f32>) {
      FOR %i:idx, 0:idx, 64:idx, 16:idx {kind=parallel}
        %q.1 = tload %q[%i, 0] [16, 64] : !pto.tile<16x64xf32>
        %acc = texp %q.1 : !pto.tile<16x64xf32>
        %max = tmax %q.1 {axes=(0, 1), keepdims=false} : f32
        %c = sgt %max, 1.0:f32 : bool_
        IF %c
          %k.1 = tload %k[0, 0] [64, 64] : !pto.tile<64x64xf32>
          %acc = tdot %q.1, %k.1, %acc : !pto.tile<16x64xf32>
        ENDIF
        tstore %acc, %y[%i, 0]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%q: !pto.memref<gm,64x64,f32>, %k: !pto.memref<gm,64x64,f32>, %y: !pto.memref<gm,64x64,f32>) {
      FOR %i:idx, 0:idx, 64:idx, 16:idx {kind=parallel}
        %q.1 = tload %q[%i, 0] [16, 64] : !pto.tile<16x64xf32>
        %acc = texp %q.1 : !pto.tile<16x64xf32>
        %max = tmax %q.1 {axes=(0, 1), keepdims=false} : f32
        %c = sgt %max, 1.0:f32 : bool_
        %k.1 = tload %k[0, 0] [64, 64] : !pto.tile<64x64xf32>
        %acc_product = tdot %q.1, %k.1 : !pto.tile<16x64xf32>
        IF %c
          %acc = tadd %acc, %acc_product : !pto.tile<16x64xf32>
        ENDIF
        tstore %acc, %y[%i, 0]
      ENDFOR
      return
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Func, If, Op, Stmt, Var
from pto_jit.ir.walk import block_defs, block_uses, def_counts, defs, rename, rewrite_func, statements
from pto_jit.lower.names import Names
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace
from pto_jit.targets.ascend.plans import plan_of


def with_products_before_branches(func: Func) -> Func:
    """A kernel with products, none of which is in a branch that depends on a tile, where they can stand before it."""
    unknown = plan_of(func).unknown
    names, counts = Names(func), def_counts(func.body)

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, If) or not isinstance(stmt.cond, Var) or stmt.cond.name not in unknown:
            return None
        if not any(isinstance(s, Op) and s.op == "dot" for s in statements((stmt,))):
            return None
        before: list[Stmt] = []
        sides: list[Block] = []
        for block in (stmt.then, stmt.orelse):
            moved, left = _divided(_added(block, names), counts, names)
            before += moved
            sides.append(left)
        return (*before, replace(stmt, then=sides[0], orelse=sides[1])) if before else None

    return rewrite_func(func, visit, plain=False)


def _added(block: Block, names: Names) -> Block:
    """A block in which products are added to sums by statements of their own."""
    out: list[Stmt] = []
    for s in block:
        total = s.results[0] if isinstance(s, Op) and s.op == "dot" and len(s.args) == 3 else None
        if total is None or not isinstance(s, Op):
            out.append(s)
            continue
        product = names.fresh(f"{total.name}_product", total.type)
        out += [replace(s, results=(product,), args=s.args[:2]), Op("add", (total,), (s.args[2], product), loc=s.loc)]
    return tuple(out)


def _divided(block: Block, counts: Counter[str], names: Names) -> tuple[Block, Block]:
    """The products of a block, with all that they are made of, and what is left of it: nothing and the block, where
    that changes memory."""
    wanted = {id(s) for s in block if any(isinstance(o, Op) and o.op == "dot" for o in statements((s,)))}
    read: set[str] = set()
    for s in reversed(block):
        if id(s) in wanted or block_defs((s,)) & read:
            wanted.add(id(s))
            read |= block_uses((s,))
    if any(isinstance(o, Op) and effects(o.op) == "writes" for s in block if id(s) in wanted for o in statements((s,))):
        return (), block
    own: dict[str, Var] = {}  # variables that others assign, too
    moved: list[Stmt] = []
    left: list[Stmt] = []
    for s in block:
        if id(s) not in wanted:
            left.append(s)
            continue
        shared = [v for v in {v.name: v for o in statements((s,)) for v in defs(o)}.values() if counts[v.name] > 1]
        for v in shared:
            if v.name not in own:
                own[v.name] = names.fresh(v.name, v.type)
        moved.append(s)
        left += [Op("copy", (v,), (own[v.name],), loc=s.loc) for v in shared]  # type: ignore[union-attr]
    first = [Op("copy", (own[v.name],), (v,), loc=moved[0].loc) for v in free_vars(tuple(moved)) if v.name in own]
    renamed = rename(tuple(moved), {name: var.name for name, var in own.items()})
    return (*first, *renamed), tuple(left)
