# SPDX-License-Identifier: MIT
"""Which of two kernels the host launches, where one has room for rows up to a length: before kernels are written that
is an estimate.

Before::

    %fits.room = sle %m, 8192 : bool_
    IF %fits.room
      CALL @f_incore_0(%x -> %x, %m -> %m)      // has room for 18560 elements
    ELSE
      CALL @f_incore_0_1(%x -> %x, %m -> %m)
    ENDIF

After::

    %fits.room = sle %m, 18560 : bool_
    IF %fits.room
      ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pto_jit.ir.nodes import Call, Const, Func, If, Op, Operand, Stmt, Var
from pto_jit.ir.walk import rewrite_block, statements
from pto_jit.lower.names import index
from pto_jit.lower.wholes.partials import ROOM
from pto_jit.slotted import replace


def with_rooms(entry: Func, rooms: Callable[[Call, Operand], Iterable[int | None]]) -> Func:
    """Host code that compares with what kernels have room for.

    rooms: how much a launch has along the axes that are limited; None for those of another length than is compared,
    beside which the estimate is not raised.
    """
    compared = {s.results[0].name: s for s in statements(entry.body) if isinstance(s, Op) and _is_room(s)}
    found: dict[str, int] = {}
    for branch in statements(entry.body):
        if isinstance(branch, If) and isinstance(branch.cond, Var) and branch.cond.name in compared:
            length, estimate = compared[branch.cond.name].args
            assert isinstance(estimate, Const)
            calls = [s for s in statements(branch.then) if isinstance(s, Call)]
            limits = [int(estimate.value) if n is None else n for call in calls for n in rooms(call, length)]
            if limits:
                found[branch.cond.name] = min(limits)

    def told(stmt: Stmt) -> Stmt | None:
        known = found.get(stmt.results[0].name) if isinstance(stmt, Op) and _is_room(stmt) else None
        return None if known is None else replace(stmt, args=(stmt.args[0], index(known)))  # type: ignore[union-attr]

    return replace(entry, body=rewrite_block(entry.body, told)) if found else entry


def _is_room(op: Op) -> bool:
    return op.op == "le" and op.results[0].name.startswith(ROOM)
