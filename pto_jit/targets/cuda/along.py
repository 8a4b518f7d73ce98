# SPDX-License-Identifier: MIT
"""Operations along one axis of a tile: order, running combinations, folds by a function.

In kernels with products lines are rows, whose elements lie side by side in the threads that share them.

Before::

    %s = tcumsum %t {axis=0}

After::

    %t.turned = ttranspose %t {axes=(1, 0)}
    %s.turned = tcumsum %t.turned {axis=1}
    %s = ttranspose %s.turned {axes=(1, 0)}
"""

from __future__ import annotations

from pto_jit.ir.nodes import Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, rewrite_block, statements
from pto_jit.lower.names import unused
from pto_jit.slotted import replace

_ORDER = frozenset("sort argsort topk histogram".split())
_SCANS = frozenset("cumsum cumprod assoc_scan".split())
_OTHER_WAY = (("axes", (1, 0)),)


def axis_along(op: Op) -> int | None:
    """The axis that an operation runs along, whose elements depend on each other; None for other operations."""
    if op.op in _ORDER:
        return op.args[0].type.rank - 1  # type: ignore[union-attr]
    if op.op in _SCANS or op.op == "fold":
        return int(op.attr("axis"))  # type: ignore[call-overload]
    return None


def along_columns(func: Func) -> Func:
    """The function with all of these along rows: those down the columns of tiles of rank 2 are of transposed tiles."""
    if not any(isinstance(s, Op) and _runs_down(s) for s in statements(func.body)):
        return func
    taken = block_defs(func.body) | {p.name for p in func.params}

    def turned(s: Stmt) -> tuple[Stmt, ...] | None:
        return _turned(s, taken) if isinstance(s, Op) and _runs_down(s) else None

    return replace(func, body=rewrite_block(func.body, turned))


def _runs_down(op: Op) -> bool:
    if axis_along(op) != 0:
        return False
    shape = op.args[0].type.shape  # type: ignore[union-attr]
    return len(shape) == 2 and shape[0] != 1


def _turned(op: Op, taken: set[str]) -> tuple[Stmt, ...]:
    before: list[Stmt] = []
    after: list[Stmt] = []
    known: dict[Operand, Var] = {}

    def other_way(var: Var) -> Var:
        assert isinstance(var.type, TileType)
        return Var(unused(f"{var.name}.turned", taken), TileType(var.type.dtype, var.type.shape[::-1]))

    def operand(arg: Operand) -> Operand:
        if not isinstance(arg, Var) or not isinstance(arg.type, TileType):
            return arg
        if arg not in known:
            known[arg] = other_way(arg)
            before.append(Op("transpose", (known[arg],), (arg,), _OTHER_WAY, (), op.loc))
        return known[arg]

    def result(var: Var) -> Var:
        if not isinstance(var.type, TileType) or var.type.rank == 1:
            return var
        made = other_way(var)
        after.append(Op("transpose", (var,), (made,), _OTHER_WAY, (), op.loc))
        return made

    args, results = tuple(map(operand, op.args)), tuple(map(result, op.results))
    attrs = tuple((key, 1 if key == "axis" else value) for key, value in op.attrs)
    return (*before, replace(op, args=args, results=results, attrs=attrs), *after)
