# SPDX-License-Identifier: MIT
"""Kernels of the scalar unit of one core: elements that are written one by one, each after the one before.

Lengths of jagged lists are added up to where the lists begin; a recurrence hands on a number.  Such a loop reads what
it has just written, which a core's scalar unit may: both go through its cache, which is written back at the end.  No
other core takes part, since two caches would overwrite each other's lines.

Before, one of the threads of a device::

    FOR %thread:idx, 0:idx, 1:idx, 1:idx {kind=parallel}
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %t0 = sgetelem %starts[%i] : i64
        ...
        ssetelem %t1, %starts[%t2]

After::

    FOR %i:idx, 0:idx, %n:idx, 1:idx
      %t0 = sgetelem %starts[%i] : i64
      ...
      ssetelem %t1, %starts[%t2]
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, Const, For, Func, Op, Return, Stmt, Var
from pto_jit.ir.walk import TENSOR_VIEWS, block_uses, rewrite_block, statements
from pto_jit.lower.kept import keep_elements
from pto_jit.slotted import replace
from pto_jit.targets.ascend.scalars import needs_vector_core
from pto_jit.targets.cuda.nests import is_parallel, touches_tiles

_WRITTEN = frozenset("i8 u8 i16 u16 i32 u32 i64 f32 bool_".split())
"""What the scalar unit writes as it computes with it."""


def without_thread(func: Func) -> Func:
    """The kernel without loops that only say that one thread does the work."""

    def visit(stmt: Stmt) -> Block | None:
        return stmt.body if isinstance(stmt, For) and _is_one_iteration(stmt) else None

    body = rewrite_block(func.body, visit, plain=False)
    return func if body is func.body else replace(func, body=body)


def is_alone(func: Func) -> bool:
    """Whether a kernel is one of elements in order: no tiles, and nothing that could be dealt to the cores."""
    inside = list(statements(func.body))
    written = [s for s in inside if isinstance(s, Op) and s.op == "setelem"]
    return (
        bool(written)
        and not any(isinstance(s, Op) and needs_vector_core(s) for s in inside)
        and not any(touches_tiles(s) for s in inside)
        and not any(is_parallel(s) for s in func.body)
        and all(s.args[1].type.dtype.name in _WRITTEN for s in written)  # type: ignore[union-attr]
        and not any(isinstance(s, Return) and s.values for s in inside)
    )


def with_numbers(func: Func) -> Func:
    """A kernel for several cores with numbers for the elements that sequential loops update (`lower.kept`): what its
    core has stored, a scalar unit reads by way of a tile."""
    read, written = ({s.args[k].name for s in statements(func.body) if isinstance(s, Op) and s.op == op}  # type: ignore
                     for k, op in enumerate(("getelem", "setelem")))  # fmt: skip
    if is_alone(func) or not read & written:
        return func
    views = {s.results[0].name: s.args[0].name for s in statements(func.body)
             if isinstance(s, Op) and s.op in TENSOR_VIEWS and isinstance(s.args[0], Var)}  # fmt: skip

    def root(name: str) -> str:
        return root(views[name]) if name in views else name

    body = keep_elements(func.body, root)
    return func if body is func.body else replace(func, body=body)


def _is_one_iteration(loop: For) -> bool:
    if loop.kind != "parallel" or not (isinstance(loop.start, Const) and isinstance(loop.stop, Const)):
        return False
    once = (loop.start.value, loop.stop.value) == (0, 1) and loop.var.name not in block_uses(loop.body)
    return once and not touches_tiles(loop)
