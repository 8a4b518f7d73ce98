# SPDX-License-Identifier: MIT
"""Run a parallel loop in order when its iterations accumulate into one place.

`v += e` in a parallel loop is a reduction.  Until it is given partial results per chunk, the only order that gives the
program's result is the loop's own, so the loop becomes sequential and a `Decision` says so.  Two shapes count: a
variable carried from one iteration to the next (or read after the loop), and a write to memory at a place that does
not depend on the loop variable, in a loop that also reads that tensor.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      %s = scopy 0.0:f32 : f32
      FOR %i:idx, 0:idx, %n:idx, 1:idx {kind=parallel, chunk=64}
        %e = sgetelem %x[%i] : f32
        %t = sadd %s, %e : f32
        %s = scopy %t : f32
      ENDFOR
      ssetelem %s, %x[0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      %s = scopy 0.0:f32 : f32
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %e = sgetelem %x[%i] : f32
        %t = sadd %s, %e : f32
        %s = scopy %t : f32
      ENDFOR
      ssetelem %s, %x[0]
      return
    }
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from pto_jit.ir.nodes import Block, For, Func, Module, Op, Stmt, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import block_defs, defs, free_vars, map_funcs, rewrite_func, statements, uses
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import source_name
from pto_jit.semantic.table import effects, tensor_arg

_VIEWS = ("view", "tensor_reshape", "tensor_transpose")


def serialise_reductions(module: Module, decisions: list[Decision]) -> Module:
    """Make accumulating parallel loops sequential."""

    def transform(func: Func) -> Func:
        reads = Counter(v.name for s in statements(func.body) for v in uses(s))
        bases = _bases(func.body)

        def visit(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, For) or (stmt.kind != "parallel" and stmt.chunk is None):
                return None
            what = _carried(stmt, reads) or _accumulated(stmt, bases)
            if what is None:
                return None
            reason = f"{what} is accumulated over the iterations, which therefore run in order"
            decisions.append(Decision("reduction", (source_name(stmt.var.name),), False, reason, stmt.loc))
            return replace(stmt, kind="sequential", chunk=None, policy="leading_full")

        return rewrite_func(func, visit)

    return map_funcs(module, transform)


def _carried(loop: For, reads: Counter[str]) -> str | None:
    """A variable assigned in the body that another iteration, or the code after the loop, reads."""
    assigned = block_defs(loop.body) - {loop.var.name}
    for var in free_vars(loop.body):
        if var.name in assigned:
            return f"`{source_name(var.name)}`"
    inside = Counter(v.name for s in statements(loop.body) for v in uses(s))
    for name in sorted(assigned):
        if reads[name] > inside[name]:
            return f"`{source_name(name)}`"
    return None


def _accumulated(loop: For, bases: dict[str, str]) -> str | None:
    """A tensor that is written at a place independent of the loop variable, and read, in the body."""
    varying = _varying(loop)
    read = {_base(op, bases) for op in _ops(loop.body) if effects(op.op) == "reads"}
    for op in _ops(loop.body):
        if effects(op.op) != "writes" or op.op.startswith("atomic") or tensor_arg(op.op) is None:
            continue
        tensor = _base(op, bases)
        # the first operand is the value written: it may vary, its place must
        place = [a.name for a in op.args[1:] if isinstance(a, Var)]
        if tensor in read and not any(name in varying for name in place):
            return f"`{source_name(tensor)}`" if tensor else None
    return None


def _varying(loop: For) -> set[str]:
    """Names whose value depends on the loop variable, through operations, inner loops and branches."""
    varying = {loop.var.name}
    changed = True
    while changed:
        changed = False
        for stmt in statements(loop.body):
            made = {v.name for v in defs(stmt)}
            if made <= varying:
                continue
            if any(v.name in varying for v in uses(stmt)):
                varying |= made
                changed = True
    return varying


def _ops(body: Block) -> list[Op]:
    return [s for s in statements(body) if isinstance(s, Op)]


def _bases(body: Block) -> dict[str, str]:
    """View -> the tensor it looks at."""
    bases: dict[str, str] = {}
    for op in _ops(body):
        if op.op in _VIEWS and isinstance(op.args[0], Var):
            name = op.args[0].name
            bases[op.results[0].name] = bases.get(name, name)
    return bases


def _base(op: Op, bases: dict[str, str]) -> str:
    for arg in op.args:
        if isinstance(arg, Var) and isinstance(arg.type, TensorType):
            return bases.get(arg.name, arg.name)
    return ""
