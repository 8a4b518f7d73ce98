# SPDX-License-Identifier: MIT
"""Move in-core scopes inward: chunk loops go out to the orchestration, the scope stays around the in_chunk loops.

A chunk loop directly inside a scope leaves it.  One below other loops is first exchanged with them: with in_chunk and
parallel loops this is free, with a sequential one it needs the proof that no dependence runs from one chunk to another
(`dependence`); without it the chunk loop stays, and the scope with it.  Scalar arithmetic and views that the moved
loops need move to the host; a tile that would have to cross a new scope boundary keeps the scope whole.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      SCOPE @f_incore_0
        FOR %i_chunk:idx, 0:idx, %n:idx, 1:idx {kind=chunk}
          FOR %i:idx, %i_chunk:idx, %n:idx, 1:idx {kind=in_chunk}
            ssetelem 1.0:f32, %x[%i]
          ENDFOR
        ENDFOR
      ENDSCOPE
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>, %n: i64) {
      FOR %i_chunk:idx, 0:idx, %n:idx, 1:idx {kind=chunk}
        SCOPE @f_incore_0
          FOR %i:idx, %i_chunk:idx, %n:idx, 1:idx {kind=in_chunk}
            ssetelem 1.0:f32, %x[%i]
          ENDFOR
        ENDSCOPE
      ENDFOR
      return
    }
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, For, Func, Module, Scope, Stmt
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, map_funcs, rewrite_func, statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Dependences
from pto_jit.lower.names import source_name
from pto_jit.lower.outwards import Mover, is_host, variables_of
from pto_jit.slotted import replace


def place_scopes(module: Module, decisions: list[Decision]) -> Module:
    """Shrink every scope as far as its chunk loops allow; each chunk loop considered is a `Decision`."""

    def place(func: Func) -> Func:
        if func.kind != "orchestration":
            return func
        mover = Mover(func, Dependences(func, module), decisions)

        def visit(stmt: Stmt) -> Block | None:
            if isinstance(stmt, Scope) and not stmt.named:
                body = mover.outwards(stmt.body)
                placed = _place(stmt if body is stmt.body else replace(stmt, body=body), decisions)
                return None if placed[0] is stmt else placed
            return None

        return rewrite_func(func, visit, plain=False)

    return map_funcs(module, place)


def _place(scope: Scope, decisions: list[Decision]) -> Block:
    """The scope, or what takes its place: its chunk loops, with scopes inside."""
    body = scope.body
    if not any(isinstance(s, For) and s.kind == "chunk" for s in body):
        _stay(body, decisions)
        return (scope,)
    groups = _groups(body)
    crossing = _crossing_tile(groups)
    if crossing is not None:
        loops = tuple(source_name(s.var.name) for s in body if isinstance(s, For) and s.kind == "chunk")
        reason = f"the tile that line {crossing.loc.lineno} makes would cross the scope's boundary"
        decisions.append(Decision("placement", loops, False, reason, scope.loc))
        return (scope,)
    result: list[Stmt] = []
    for kind, group in groups:
        if kind == "host":
            result += group
        elif kind == "scope":
            _stay(tuple(group), decisions)
            result.append(replace(scope, body=tuple(group)))
        else:
            (loop,) = group
            assert isinstance(loop, For)
            decisions.append(
                Decision("placement", (source_name(loop.var.name),), True, "the chunk loop runs in orchestration, the "
                         "scope inside it", loop.loc)
            )  # fmt: skip
            result.append(replace(loop, body=_place(replace(scope, body=loop.body), decisions)))
    return tuple(result)


def _stay(body: Block, decisions: list[Decision]) -> None:
    """The chunk loops of a block stay where they are, inside its scope."""
    for loop in statements(body):
        if isinstance(loop, For) and loop.kind == "chunk":
            reason = "the chunk loop stands inside a loop or branch that it cannot leave, so the scope encloses it"
            decisions.append(Decision("placement", (source_name(loop.var.name),), False, reason, loop.loc))


def _groups(body: Block) -> list[tuple[str, list[Stmt]]]:
    """Consecutive statements that go to the host, stay in a scope, or are a chunk loop of their own."""
    groups: list[tuple[str, list[Stmt]]] = []
    for stmt in body:
        if isinstance(stmt, For) and stmt.kind == "chunk":
            groups.append(("chunk", [stmt]))
            continue
        host = is_host(stmt) and not (groups and groups[-1][0] == "scope")
        kind = "host" if host else "scope"
        if groups and groups[-1][0] == kind:
            groups[-1][1].append(stmt)
        else:
            groups.append((kind, [stmt]))
    # a run that computes only scalars and views needs no core, also after a scope
    return [("host" if kind == "scope" and all(is_host(s) for s in group) else kind, group) for kind, group in groups]


def _crossing_tile(groups: list[tuple[str, list[Stmt]]]) -> Stmt | None:
    """The statement that makes a tile of several groups, if there is one."""
    defined: dict[str, int] = {}
    for k, (_, group) in enumerate(groups):
        for var in variables_of(tuple(group)):
            if isinstance(var.type, TileType) and defined.setdefault(var.name, k) != k:
                made = statements(tuple(groups[defined[var.name]][1]))
                return next((s for s in made if var in defs(s)), group[0])
    return None
