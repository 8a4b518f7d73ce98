# SPDX-License-Identifier: MIT
"""Move in-core scopes inward: chunk loops go out to the orchestration, the scope stays around the in_chunk loops.

A chunk loop directly inside a scope leaves it.  One below in_chunk or parallel loops is first interchanged with them,
which is free because every loop concerned is parallel; below a sequential loop it stays, and the scope with it.
Scalar arithmetic and views that the moved loops need move to the host; a tile that would have to cross a new scope
boundary keeps the scope whole.

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

from dataclasses import replace

from pto_jit.ir.nodes import Block, For, Func, Module, Op, Scope, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, block_uses, map_funcs, rewrite_func, statements
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import source_name
from pto_jit.semantic.table import effects


def place_scopes(module: Module, decisions: list[Decision]) -> Module:
    """Shrink every scope as far as its chunk loops allow; each chunk loop considered is a `Decision`."""

    def visit(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Scope) and not stmt.named:
            placed = _place(stmt, decisions)
            return None if placed == (stmt,) else placed
        return None

    def place(func: Func) -> Func:
        return rewrite_func(func, visit) if func.kind == "orchestration" else func

    return map_funcs(module, place)


def _place(scope: Scope, decisions: list[Decision]) -> Block:
    body = _interchange(scope.body, decisions)
    if not any(isinstance(s, For) and s.kind == "chunk" for s in body):
        for loop in _chunk_loops(body):
            decisions.append(
                Decision("placement", (source_name(loop.var.name),), False, "the chunk loop stands inside a loop or "
                         "branch that it cannot leave, so the scope encloses it", loop.loc)
            )  # fmt: skip
        return (scope,) if body is scope.body else (replace(scope, body=body),)
    groups = _groups(body)
    crossing = _crossing_tile(groups)
    if crossing is not None:
        loops = tuple(source_name(s.var.name) for s in body if isinstance(s, For) and s.kind == "chunk")
        decisions.append(
            Decision("placement", loops, False, f"the tile `{crossing}` would cross the scope's boundary", scope.loc)
        )
        return (scope,) if body is scope.body else (replace(scope, body=body),)
    result: list[Stmt] = []
    for kind, group in groups:
        if kind == "host":
            result += group
        elif kind == "scope":
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


def _chunk_loops(body: Block) -> list[For]:
    return [s for s in statements(body) if isinstance(s, For) and s.kind == "chunk"]


def is_host(stmt: Stmt) -> bool:
    """Scalar arithmetic, checks and views: what the host can do as well as a core."""
    if not isinstance(stmt, Op) or stmt.regions or any(isinstance(v.type, TileType) for v in stmt.results):
        return False
    if any(isinstance(a.type, TileType) for a in stmt.args):
        return False
    return stmt.op == "assert" or effects(stmt.op) == "none"


def _groups(body: Block) -> list[tuple[str, list[Stmt]]]:
    """Consecutive statements that go to the host, stay in a scope, or are a chunk loop of their own."""
    groups: list[tuple[str, list[Stmt]]] = []
    in_scope: set[str] = set()  # scalars computed by a scope: what uses them stays in order anyway
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
        in_scope |= block_defs((stmt,))
    # a run that computes only scalars and views needs no core, also after a scope
    return [("host" if kind == "scope" and all(is_host(s) for s in group) else kind, group) for kind, group in groups]


def _crossing_tile(groups: list[tuple[str, list[Stmt]]]) -> str | None:
    defined: dict[str, int] = {}
    for k, (_, group) in enumerate(groups):
        for var in _vars(tuple(group)):
            if isinstance(var.type, TileType) and defined.setdefault(var.name, k) != k:
                return var.name
    return None


def _vars(body: Block) -> list[Var]:
    found: list[Var] = []
    for stmt in statements(body):
        if isinstance(stmt, Op):
            found += stmt.results
            found += [a for a in stmt.args if isinstance(a, Var)]
    return found


# -- interchange ------------------------------------------------------------------------------------------------


def _interchange(body: Block, decisions: list[Decision]) -> Block:
    """Bring chunk loops below in_chunk and parallel loops to the front, where nothing but loops lies between."""
    result: list[Stmt] = []
    changed = False
    for stmt in body:
        if isinstance(stmt, For) and stmt.kind in ("in_chunk", "parallel", "chunk", "sequential"):
            inner = _interchange(stmt.body, decisions)
            if inner is not stmt.body:
                stmt, changed = replace(stmt, body=inner), True
            if stmt.kind != "chunk":
                swapped = _swap(stmt, decisions)
                if swapped is not None:
                    result += swapped
                    changed = True
                    continue
        result.append(stmt)
    return tuple(result) if changed else body


def _swap(loop: For, decisions: list[Decision]) -> Block | None:
    """`FOR i { pure; FOR c (chunk) { pure; rest } }` as `pure; FOR c { pure; FOR i { pure; rest } }`, or None."""
    if not loop.body or not isinstance(loop.body[-1], For) or loop.body[-1].kind != "chunk":
        return None
    before, chunk = loop.body[:-1], loop.body[-1]
    assert isinstance(chunk, For)
    pair = (source_name(chunk.var.name), source_name(loop.var.name))

    def refuse(reason: str) -> None:
        decisions.append(Decision("interchange", pair, False, reason, chunk.loc))

    if loop.checked or chunk.checked:
        refuse("debug: loops that are checked for races run in the source's order")
        return None
    if loop.kind == "sequential":
        refuse(f"`{pair[1]}` is a sequential loop and its dependences are not analysed")
        return None
    if not all(is_host(s) for s in before):
        refuse(f"statements of `{pair[1]}` stand before the loop over `{pair[0]}`")
        return None
    needed = {v for v in (chunk.start, chunk.stop, chunk.step) if isinstance(v, Var)}
    hoisted, sunk = _split(before, {v.name for v in needed})
    if loop.var.name in block_uses(hoisted) or loop.var in needed or _depends(hoisted, loop.var.name):
        refuse(f"the bounds of `{pair[0]}` depend on `{pair[1]}`")
        return None
    head = tuple(s for s in chunk.body if is_host(s))
    rest = chunk.body[len(head) :]
    if chunk.body[: len(head)] != head or loop.var.name in block_uses(head) or block_uses(head) & block_defs(sunk):
        refuse(f"the chunks of `{pair[0]}` depend on `{pair[1]}`")
        return None
    decisions.append(Decision("interchange", pair, True, "every loop concerned is parallel or chunked", chunk.loc))
    inner = replace(loop, body=(*sunk, *rest))
    moved = replace(chunk, body=(*head, *(_swap(inner, decisions) or (inner,))))
    return (*hoisted, moved)


def _split(before: Block, needed: set[str]) -> tuple[Block, Block]:
    """Statements that `needed` is computed from, and the others."""
    hoisted: list[Stmt] = []
    sunk: list[Stmt] = []
    wanted = set(needed)
    for stmt in reversed(before):
        if block_defs((stmt,)) & wanted or (isinstance(stmt, Op) and stmt.op == "assert"):
            wanted |= block_uses((stmt,))
            hoisted.append(stmt)
        else:
            sunk.append(stmt)
    return tuple(reversed(hoisted)), tuple(reversed(sunk))


def _depends(body: Block, name: str) -> bool:
    return name in block_uses(body)
