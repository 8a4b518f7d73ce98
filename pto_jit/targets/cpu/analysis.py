# SPDX-License-Identifier: MIT
"""What the CPU target asks about a block before it writes it: which tiles may be views."""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Call, For, Fuse, If, Op, Scope, Stmt, Var, While
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements, uses


def loads_to_copy(block: Block) -> set[str]:
    """Loads (and views made of them) whose memory may be written before their last use: these cannot be views."""
    defined: dict[str, int] = {}
    for k, stmt in enumerate(block):
        for op in stmt.body if isinstance(stmt, Fuse) else (stmt,):
            if isinstance(op, Op) and op.op in ("load", *_VIEWS):
                defined.update((r.name, k) for r in op.results if isinstance(r.type, TileType))
    writes = [k for k, stmt in enumerate(block) if writes_memory(stmt)]
    if not defined or not writes:
        return set()
    last: dict[str, int] = {}
    for k, stmt in enumerate(block):
        last.update((v.name, k) for s in statements((stmt,)) for v in uses(s) if v.name in defined)
    for stmt in reversed(block):  # memory is in use as long as any view of it
        for op in reversed(stmt.body) if isinstance(stmt, Fuse) else (stmt,):
            if isinstance(op, Op) and op.op in _VIEWS and isinstance(op.args[0], Var) and op.args[0].name in defined:
                source = op.args[0].name
                last[source] = max(last.get(source, 0), *(last.get(r.name, 0) for r in op.results))
    out: set[str] = set()
    for name, at in defined.items():
        end = last.get(name, at)
        for k in writes:
            if not at <= k <= end:
                continue
            # a group sees to its own stores, a single operation reads before it writes
            if (k == end and isinstance(block[k], (Op, Fuse))) or (k == at and not isinstance(block[k], Fuse)):
                continue
            out.add(name)
    return out


_VIEWS = ("tile_slice", "reshape", "transpose", "flip", "copy")


def writes_memory(stmt: Stmt) -> bool:
    """Whether a statement may write global memory."""
    match stmt:
        case Op():
            return stmt.op in ("store", "setelem", "put", "atomic_add", "atomic_max", "atomic_min")
        case For() | Scope() | Fuse():
            return any(writes_memory(s) for s in stmt.body)
        case While():
            return any(writes_memory(s) for s in (*stmt.before, *stmt.body))
        case If():
            return any(writes_memory(s) for s in (*stmt.then, *stmt.orelse))
        case Call():
            return True
        case _:
            return False
