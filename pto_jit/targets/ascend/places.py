# SPDX-License-Identifier: MIT
"""Places of the tiles of products, computed once: where a result is stored is what its operands were loaded from.

Programs that number their tiles (`row = pid // n * 64`) write the same arithmetic in the loop over the contraction and
behind it.  A result is as large as its operands, which end where their tensors do; that it lies where these were is
seen of names.

Before::

    FOR %k:idx, 0:idx, %depth:idx, 64:idx
      %t0 = sfloordiv %pid, %n : i64
      %t1 = smul %t0, 64 : i64
      %a.1 = tload %a[%t1, %k] [64, 64] : !pto.tile<64x64xf32>
      ...
    ENDFOR
    %t2 = sfloordiv %pid, %n : i64
    %t3 = smul %t2, 64 : i64
    tstore %acc, %c[%t3, %j]

After::

    %t0 = sfloordiv %pid, %n : i64
    %t1 = smul %t0, 64 : i64
    FOR %k:idx, 0:idx, %depth:idx, 64:idx
      %a.1 = tload %a[%t1, %k] [64, 64] : !pto.tile<64x64xf32>
      ...
    ENDFOR
    tstore %acc, %c[%t1, %j]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from pto_jit.ir.nodes import Block, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.walk import block_defs, blocks, def_counts, statements, substitute, with_blocks
from pto_jit.lower.names import I64
from pto_jit.slotted import replace

_ARITHMETIC = frozenset("add sub mul min max floordiv mod".split())


def with_places_once(func: Func) -> Func:
    """A kernel with products whose integer arithmetic stands before the sequential loops that do not change it, and is
    done once where it is the same."""
    flat = [s for s in statements(func.body) if isinstance(s, Op)]
    if not any(s.op == "dot" for s in flat) or not any(s.op in _ARITHMETIC and _is_integer(s) for s in flat):
        return func
    assigned = def_counts(func.body)
    body = before_loops(func.body, lambda s: _is_plain(s, assigned))
    return replace(func, body=computed_once(body, lambda s: _is_plain(s, assigned)))


def computed_once(body: Block, is_plain: Callable[[Stmt], bool]) -> Block:
    """A body in which operations are done once where the same one stands before them, or around them; is_plain: which
    statements are such operations, of one result, on what is assigned once."""
    same: dict[str, Operand] = {}
    out = _once(body, is_plain, {}, same)
    return substitute(out, same) if same else body


def _is_integer(op: Op) -> bool:
    return len(op.results) == 1 and all(v.type == I64 for v in (*op.args, *op.results))


def _is_plain(stmt: Stmt, assigned: Counter[str]) -> bool:
    """Whether a statement is arithmetic on numbers that are assigned once, which does not fail."""
    return isinstance(stmt, Op) and stmt.op in _ARITHMETIC and _is_integer(stmt) and all(
        assigned[v.name] <= 1 for v in (*stmt.args, *stmt.results) if isinstance(v, Var))  # fmt: skip


def before_loops(block: Block, is_plain: Callable[[Stmt], bool]) -> Block:
    """A block whose operations stand before the sequential loops that do not change them; is_plain: as above, of those
    that may be done where they were not."""
    out: list[Stmt] = []
    for stmt in block:
        if not blocks(stmt):
            out.append(stmt)
            continue
        stmt = with_blocks(stmt, tuple(before_loops(b, is_plain) for b in blocks(stmt)))
        if isinstance(stmt, For) and stmt.kind == "sequential":
            inside = block_defs((stmt,))
            kept: list[Stmt] = []
            for s in stmt.body:
                if is_plain(s) and not any(isinstance(a, Var) and a.name in inside for a in s.args):  # type: ignore
                    inside.discard(s.results[0].name)  # type: ignore[union-attr]
                    out.append(s)
                else:
                    kept.append(s)
            stmt = replace(stmt, body=tuple(kept))
        out.append(stmt)
    return tuple(out)


def _once(
    block: Block, is_plain: Callable[[Stmt], bool], known: Mapping[object, Var], same: dict[str, Operand]
) -> Block:
    """A block without what was computed before it, or in it; `same`: what its results are."""
    mine = dict(known)
    out: list[Stmt] = []
    for stmt in block:
        if is_plain(stmt):
            assert isinstance(stmt, Op)
            args = tuple(same.get(a.name, a) if isinstance(a, Var) else a for a in stmt.args)
            first = mine.setdefault((stmt.op, args, stmt.attrs, stmt.results[0].type), stmt.results[0])
            if first is not stmt.results[0]:
                same[stmt.results[0].name] = first
                continue
        inner = blocks(stmt)
        out.append(with_blocks(stmt, tuple(_once(b, is_plain, mine, same) for b in inner)) if inner else stmt)
    return tuple(out)
