# SPDX-License-Identifier: MIT
"""Extremes of floats that the next iteration waits for are told from the others.

Whether one is NaN is then asked for by a jump that is nearly never taken: as part of the number, the answer would be
waited for as well (``d[i, j] = c + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])``).
"""

from __future__ import annotations

from pto_jit.ir.nodes import For, Func, Module, Op, Stmt, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import map_funcs, map_statements, rewrite_func, statements
from pto_jit.lower.late import EXTREMES, waited_for
from pto_jit.slotted import replace

WAITS = "waits"
"""The attribute of an extreme that the next iteration waits for."""


def with_waits(module: Module) -> Module:
    """The program with `WAITS` at such extremes in innermost loops that keep their order."""

    def tell(func: Func) -> Func:
        if not any(isinstance(s, Op) and _is_extreme(s) for s in statements(func.body)):
            return func

        def visit(stmt: Stmt) -> Stmt | None:
            if not isinstance(stmt, (For, While)) or any(isinstance(s, (For, While)) for s in statements(stmt.body)):
                return None
            if isinstance(stmt, For) and (stmt.proof or stmt.kind != "sequential"):
                return None  # it may be written in lanes
            names = waited_for(stmt)

            def told(one: Stmt) -> Stmt:
                if isinstance(one, Op) and _is_extreme(one) and one.results[0].name in names:
                    return replace(one, attrs=(*one.attrs, (WAITS, True)))
                return one

            body = map_statements(stmt.body, told) if names else stmt.body
            return None if body is stmt.body else replace(stmt, body=body)

        return rewrite_func(func, visit, plain=False)

    return map_funcs(module, tell)


def _is_extreme(op: Op) -> bool:
    if op.op not in EXTREMES or len(op.args) != 2:
        return False
    kind = op.results[0].type
    return isinstance(kind, ScalarType) and kind.dtype.kind == "f"
