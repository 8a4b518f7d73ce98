# SPDX-License-Identifier: MIT
"""Floats that become indices (`h[int(x[i] * 20)] += 1`) are told from those that become elements.

Loops with such indices are scalar code, in which the limits of the conversion are best asked for in one comparison and
a jump that is never taken; where LLVM makes vectors of a loop, selections are.
"""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Func, Module, Op, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import map_funcs, map_statements, statements
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.names import I64
from pto_jit.slotted import replace

INDEX = "index"
"""The attribute of a `cast` whose result is part of an index."""


def with_rounded_indices(module: Module) -> Module:
    """The program with `INDEX` at conversions of floats to what indices are computed from."""

    def tell(func: Func) -> Func:
        ops = [s for s in statements(func.body) if isinstance(s, Op)]
        if not any(map(_rounds, ops)):
            return func
        names = _in_indices(ops)

        def visit(stmt: Stmt) -> Stmt:
            if isinstance(stmt, Op) and _rounds(stmt) and stmt.results[0].name in names:
                return replace(stmt, attrs=(*stmt.attrs, (INDEX, True)))
            return stmt

        body = map_statements(func.body, visit)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, tell)


def _rounds(op: Op) -> bool:
    """Whether an operation makes a 64-bit index of one float."""
    if op.op != "cast" or op.results[0].type != I64:
        return False
    source = op.args[0].type
    return isinstance(source, ScalarType) and source.dtype.kind == "f" and op.attr("dtype") == i64


def _in_indices(ops: list[Op]) -> set[str]:
    """The variables that indices of elements are computed from."""
    names = {
        a.name for op in ops if op.op in ("getelem", "setelem") for a in op.args[1 + (op.op == "setelem") :]
        if isinstance(a, Var)
    }  # fmt: skip
    while True:
        before = len(names)
        for op in reversed(ops):
            if is_elementwise(op) and op.results[0].type == I64 and op.results[0].name in names:
                names.update(a.name for a in op.args if isinstance(a, Var) and a.type == I64)
        if len(names) == before:
            return names
