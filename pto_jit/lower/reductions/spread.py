# SPDX-License-Identifier: MIT
"""A reduced tile that parallel loops read: kept in global memory, so that the loops may leave its in-core scope.

Where the result of a loop is read by later parallel loops of one scope, it would tie them all to that scope: tiles do
not cross scopes.  In global memory it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import For, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, rename
from pto_jit.lower.names import Names
from pto_jit.lower.reductions.partials import Emit
from pto_jit.slotted import replace

Pending = list[tuple[Stmt, frozenset[str]]]  # statements with what is live after them


def is_read_by_loops(var: Var, rest: Sequence[Stmt]) -> bool:
    """Whether `var` is a tile that a parallel loop among `rest` reads and none of them assigns."""
    if not isinstance(var.type, TileType) or var.name in block_defs(tuple(rest)):
        return False
    return any(_is_parallel(s) and _reads(s, var) for s in rest)


def spread(var: Var, rest: Pending, read: Callable[[Emit], Operand], names: Names) -> Pending:
    """`rest` with `var` read from memory, inside every parallel loop and once between two of them."""
    result: Pending = []
    alias: Operand | None = None
    for stmt, live in rest:
        if _reads(stmt, var):
            e = Emit(names, stmt.loc)
            if _is_parallel(stmt):
                assert isinstance(stmt, For)
                stmt = _renamed(stmt, var, read(e))
                assert isinstance(stmt, For)
                stmt = replace(stmt, body=(*e.done(), *stmt.body))
            else:
                if alias is None:
                    alias = read(e)
                    result += [(made, live) for made in e.done()]
                stmt = _renamed(stmt, var, alias)
        if _is_parallel(stmt):
            alias = None
        result.append((stmt, live))
    return result


def _is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == "parallel"


def _reads(stmt: Stmt, var: Var) -> bool:
    return any(v.name == var.name for v in free_vars((stmt,)))


def _renamed(stmt: Stmt, var: Var, new: Operand) -> Stmt:
    assert isinstance(new, Var)
    return rename((stmt,), {var.name: new.name})[0]
