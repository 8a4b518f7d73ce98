# SPDX-License-Identifier: MIT
"""Mark the loops whose promise of independent iterations is checked while they run (`debug=True`).

Every parallel or chunked loop is marked; targets and the interpreter run a marked loop in its own order and compare
the memory that its iterations touch.  Reductions have been recognised before: their variables are not memory, and the
loops that combine partial results make no promise to the user.  A loop with no access to memory in its body, or in the
functions called there, has nothing to check.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel, chunk=64}
        %j = smul %i, 2 : i64
        ssetelem 1.0:f32, %x[%j]
      ENDFOR
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel, chunk=64, checked=true}
        %j = smul %i, 2 : i64
        ssetelem 1.0:f32, %x[%j]
      ENDFOR
      return
    }
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Call, For, Func, Module, Op, Stmt
from pto_jit.ir.walk import blocks, map_funcs, statements, with_blocks
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import source_name
from pto_jit.semantic.table import effects, tensor_arg
from pto_jit.slotted import replace

_PROMISING = ("parallel", "chunk", "in_chunk")


def check_promises(module: Module, decisions: list[Decision]) -> Module:
    """Mark every loop that promises independent iterations and touches memory; each is a `Decision`."""
    touching = _touching(module)

    def mark(block: Block) -> Block:
        changed = [_mark(stmt) for stmt in block]
        return block if all(a is b for a, b in zip(changed, block, strict=True)) else tuple(changed)

    def _mark(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind == "combine":
            return stmt
        inner = blocks(stmt)
        result = with_blocks(stmt, tuple(mark(b) for b in inner)) if inner else stmt
        if not isinstance(result, For) or result.kind not in _PROMISING or result.checked:
            return result
        if not any(_touches(s, touching) for s in statements(result.body)):
            return result
        if result.kind != "in_chunk":
            reason = "debug: the accesses of its iterations are compared while it runs, in order"
            decisions.append(Decision("parallel", (source_name(result.var.name),), False, reason, result.loc))
        return replace(result, checked=True)

    def transform(func: Func) -> Func:
        body = mark(func.body)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, transform)


def _touching(module: Module) -> set[str]:
    """Functions that access memory, or call such functions."""
    found: set[str] = set()
    while True:
        more = {
            f.name for f in module.funcs
            if f.name not in found and any(_touches(s, found) for s in statements(f.body))
        }  # fmt: skip
        if not more:
            return found
        found |= more


def _touches(stmt: Stmt, touching: set[str]) -> bool:
    if isinstance(stmt, Call):
        return stmt.callee in touching
    return isinstance(stmt, Op) and is_access(stmt)


def is_access(op: Op) -> bool:
    """Whether an operation reads or writes elements of a tensor."""
    return effects(op.op) != "none" and tensor_arg(op.op) is not None
