# SPDX-License-Identifier: MIT
"""Lengths that are computed and yet are those of something: `x[dx : dx + width]` has `width` rows.

Before::

    %t0 = sadd 1, %width : i64
    %t1 = ssub %t0, 1 : i64
    %t2 = smax %t1, 0 : i64
    %x.1 = tload %x_view[0, 0] [%t2, 64]

After, as `%width` is an extent of a tensor::

    %x.1 = tload %x_view[0, 0] [%width, 64]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_uses, defs, rewrite_block, statements, substitute
from pto_jit.slotted import replace

_INDEX = ScalarType(i64)


def known_lengths(func: Func, extents: Collection[str]) -> Func:
    """The kernel with one name for lengths that are equal; extents: parameters that are extents of tensors."""
    counts = Counter(v.name for s in statements(func.body) for v in defs(s))
    known: dict[str, tuple[Var, int]] = {p.name: (p, 0) for p in func.params if p.name in extents}

    def offset(operand: Operand) -> tuple[Var, int] | int | None:
        return int(operand.value) if isinstance(operand, Const) else known.get(operand.name)

    for s in statements(func.body):
        if not isinstance(s, Op) or s.op not in ("add", "sub", "max", "copy") or s.results[0].type != _INDEX:
            continue
        if counts[s.results[0].name] > 1:
            continue
        a, b = offset(s.args[0]), offset(s.args[1]) if len(s.args) == 2 else 0
        if isinstance(a, int) and s.op in ("add", "max"):
            a, b = b, a
        if not isinstance(a, tuple) or not isinstance(b, int):
            continue
        if s.op == "max":
            found = a if b <= a[1] else None  # an extent is not negative
        else:
            found = a[0], a[1] + (-b if s.op == "sub" else b)
        if found is not None:
            known[s.results[0].name] = found
    equal: dict[str, Operand] = {name: var for name, (var, more) in known.items() if more == 0 and name != var.name}
    if not equal:
        return func
    return replace(func, body=_without_idle(substitute(func.body, equal), known))


def _without_idle(body: Block, known: Collection[str]) -> Block:
    """Without what was computed for lengths that have another name now."""
    read = block_uses(body)

    def visit(stmt: Stmt) -> Block | None:
        idle = isinstance(stmt, Op) and stmt.results and stmt.results[0].name in known
        return () if idle and stmt.results[0].name not in read else None  # type: ignore[union-attr]

    kept = rewrite_block(body, visit)
    return body if kept is body else _without_idle(kept, known)
