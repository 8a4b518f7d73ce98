# SPDX-License-Identifier: MIT
"""Divide a loop where one of its iterations writes an element that all of them read.

In `a[i, j] -= a[i, k] * a[k, j]` for all j, as in the shortest paths of Floyd and Warshall and the elimination of Gauss
and Jordan, only iteration k writes `a[i, k]`.  Those before it read what was there, those behind it what it wrote, and
neither have anything else in common if the rest of the loop does not connect two iterations: they are independent
(`For.proof`), and computed in vectors.  (Index set splitting: M. Griebl, P. Feautrier and C. Lengauer, "Index set
splitting", International Journal of Parallel Programming, 2000.)

Before::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,?x?,f32>, %i: i64, %k: i64, %n: i64) {
      FOR %j:idx, 0:idx, %n:idx, 1:idx
        %t = sgetelem %a[%i, %j] : f32
        %p = sgetelem %a[%i, %k] : f32
        %q = sdiv %t, %p : f32
        ssetelem %q, %a[%i, %j]
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,?x?,f32>, %i: i64, %k: i64, %n: i64) {
      %behind = sadd %k, 1 : i64
      %t.1 = smax %k, 0 : i64
      %at = smin %t.1, %n : i64
      %t.2 = smax %behind, %at : i64
      %behind.1 = smin %t.2, %n : i64
      FOR %j:idx, 0:idx, %at:idx, 1:idx
        %t = sgetelem %a[%i, %j] : f32
        %p = sgetelem %a[%i, %k] : f32
        %q = sdiv %t, %p : f32
        ssetelem %q, %a[%i, %j]
      ENDFOR
      FOR %j.1:idx, %at:idx, %behind.1:idx, 1:idx
        %t.3 = sgetelem %a[%i, %j.1] : f32
        %p.1 = sgetelem %a[%i, %k] : f32
        %q.1 = sdiv %t.3, %p.1 : f32
        ssetelem %q.1, %a[%i, %j.1]
      ENDFOR
      FOR %j.2:idx, %behind.1:idx, %n:idx, 1:idx
        %t.4 = sgetelem %a[%i, %j.2] : f32
        %p.2 = sgetelem %a[%i, %k] : f32
        %q.2 = sdiv %t.4, %p.2 : f32
        ssetelem %q.2, %a[%i, %j.2]
      ENDFOR
      return
    }

(The first and the third loop have a proof.)  The iterations are the same ones in the same order, whatever they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, For, Func, Module, Op, Operand, Stmt, Var
from pto_jit.ir.walk import block_defs, map_blocks, map_funcs, rename, statements, use_counts
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Dependences
from pto_jit.lower.independent import is_other
from pto_jit.lower.names import I64, Names, Scalars, index, source_name
from pto_jit.semantic.table import effects
from pto_jit.slotted import frozen, replace

_MOST = 24  # operations of a body that is written three times


def divide_at_pivots(module: Module, decisions: list[Decision]) -> Module:
    """Divide the innermost sequential loops over elements that have such an iteration; each one is a `Decision`."""

    def transform(func: Func) -> Func:
        found = {id(s): pivot for s in statements(func.body) if isinstance(s, For) and (pivot := _pivot(s)) is not None}
        if not found:
            return func
        names, uses, dependences = Names(func), use_counts(func.body), Dependences(func, module)

        def block(body: Block) -> Block:
            out: list[Stmt] = []
            for stmt in body:
                pivot = found.get(id(stmt))
                proof = ""
                if isinstance(stmt, For) and pivot is not None and _keeps_to_itself(stmt, uses):
                    proof = _proof(func, module, dependences, stmt, pivot)
                if not proof or not isinstance(stmt, For) or pivot is None:
                    out.append(stmt)
                    continue
                at = source_name(pivot.at.name) if isinstance(pivot.at, Var) else pivot.at.value
                reason = f"what iteration `{at}` writes all others read: divided before and behind it; {proof}"
                decisions.append(Decision("schedule", (source_name(stmt.var.name),), True, reason, stmt.loc))
                out += _parts(stmt, pivot.at, proof, names)
            return tuple(out) if len(out) != len(body) else body

        return replace(func, body=map_blocks(func.body, block))

    return map_funcs(module, transform)


@frozen
class _Pivot:
    """The iteration that writes what all read, and how they read it."""

    at: Operand
    reads: tuple[Op, ...]


def _pivot(loop: For) -> _Pivot | None:
    """That of a loop; None where there is none, or several, or other writes than those of one place."""
    if loop.kind != "sequential" or loop.checked or loop.reductions or loop.proof or loop.step != index(1):
        return None
    ops = [s for s in loop.body if isinstance(s, Op)]
    writes = [op for op in ops if effects(op.op) == "writes"]
    if len(ops) != len(loop.body) or len(ops) > _MOST or len(writes) != 1 or any(map(is_other, ops)):
        return None
    (write,) = writes
    if write.op != "setelem":
        return None
    inside = block_defs(loop.body) | {loop.var.name}
    _, tensor, *place = write.args
    along = [k for k, at in enumerate(place) if at == loop.var]
    if len(along) != 1 or any(_varies(at, inside) for k, at in enumerate(place) if k != along[0]):
        return None
    reads: dict[Operand, list[Op]] = {}
    for read in (op for op in ops if op.op == "getelem" and op.args[0] == tensor):
        other = [*read.args[1:]]
        at, other[along[0]] = other[along[0]], loop.var
        if other == place and not _varies(at, inside):
            reads.setdefault(at, []).append(read)
    if len(reads) != 1:
        return None
    ((at, found),) = reads.items()
    return _Pivot(at, tuple(found)) if at.type == I64 else None


def _proof(func: Func, module: Module, dependences: Dependences, loop: For, pivot: _Pivot) -> str:
    """Why iterations on one side of the pivot are independent; nothing where they may not be, or all are."""
    found = dependences.found.loop_of(loop)
    if found is None or dependences.may_run_parallel(found, apart=True).proven:
        return ""
    without = replace(loop, body=tuple(s for s in loop.body if s not in pivot.reads))

    def exchanged(body: Block) -> Block:
        return tuple(without if s is loop else s for s in body) if any(s is loop for s in body) else body

    dependences = Dependences(replace(func, body=map_blocks(func.body, exchanged)), module)
    found = dependences.found.loop_of(without)
    if found is None:
        return ""
    answer = dependences.may_run_parallel(found, apart=True)
    return answer.reason if answer.proven else ""


def _varies(operand: Operand, inside: set[str]) -> bool:
    return isinstance(operand, Var) and operand.name in inside


def _keeps_to_itself(loop: For, uses: Mapping[str, int]) -> bool:
    """Whether nothing that the loop assigns is read by a later iteration or statement."""
    made, inside = block_defs(loop.body) | {loop.var.name}, use_counts(loop.body)
    return made.isdisjoint([v.name for v in free_vars(loop.body) if v.name != loop.var.name]) and all(
        uses[name] == inside[name] for name in made
    )


def _parts(loop: For, pivot: Operand, proof: str, names: Names) -> Sequence[Stmt]:
    """The three loops, and what their bounds are made of."""
    scalars = Scalars(names, loop.loc)
    behind = scalars.op("add", pivot, index(1), "behind")
    at = scalars.op("min", scalars.op("max", pivot, loop.start), loop.stop, "at")
    after = scalars.op("min", scalars.op("max", behind, at), loop.stop, "behind")
    out: list[Stmt] = [*scalars.done(), replace(loop, stop=at, proof=proof)]
    for start, stop, why in ((at, after, ""), (after, loop.stop, proof)):
        new = {name: names.fresh(name).name for name in (loop.var.name, *sorted(block_defs(loop.body)))}
        var, body = Var(new[loop.var.name], loop.var.type), rename(loop.body, new)
        out.append(replace(loop, var=var, start=start, stop=stop, body=body, proof=why))
    return out
