# SPDX-License-Identifier: MIT
"""Lanes for loops that are to keep their order: whether the tensors in them lie apart, asked when they run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from pto_jit.ir.nodes import For, Op, Stmt, Var
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import WRITES, map_statements, statements, uses
from pto_jit.slotted import replace
from pto_jit.targets.cpu.analysis import may_share
from pto_jit.targets.cpu.constants import Index, Value
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.stores import address_range, ranges_meet

_COMPARED = 12  # pairs of tensors that are worth comparing each time


def is_proven(loop: For) -> bool:
    """Whether a loop that is to keep its order may be computed several iterations at a time."""
    return loop.kind == "sequential" and bool(loop.proof)


def in_order(w: FunctionWriter, loop: For, start: Index, stop: Index, step: Index, *, plain: bool) -> None:
    """The loop one iteration after the other.  `plain`: this is for tensors that share memory or for what is left of
    whole groups, and not worth the optimiser's time."""

    def unproven(stmt: Stmt) -> Stmt:
        return replace(stmt, proof="") if isinstance(stmt, For) and stmt.proof else stmt

    saved, w.plain = w.plain, plain
    w.sequential(replace(loop, body=map_statements(loop.body, unproven), proof=""), start, stop, step)
    w.plain = saved


def compared(w: FunctionWriter, loops: Sequence[For]) -> list[tuple[Var, Var]] | None:
    """The pairs of tensors in loops of which one is written and that may share memory, though they are not views of
    one tensor of the function; None: too many."""
    tensors: dict[str, Var] = {}
    written: set[str] = set()
    for stmt in statements(tuple(loops)):
        for var in uses(stmt):
            if isinstance(var.type, TensorType) and not (isinstance(stmt, Op) and stmt.op == "dim"):
                tensors[var.name] = var
        if isinstance(stmt, Op) and stmt.op in WRITES:
            target = stmt.args[WRITES[stmt.op]]
            assert isinstance(target, Var)
            written.add(target.name)
    known = w.module.aliasing.of(w.func)
    pairs = [
        (a, b) for a, b in combinations(tensors.values(), 2)
        if (a.name in written or b.name in written) and w.root(a.name) != w.root(b.name)
        and may_share(known.get(a.name), known.get(b.name))
    ]  # fmt: skip
    return pairs if len(pairs) <= _COMPARED else None


def lie_apart(w: FunctionWriter, pairs: list[tuple[Var, Var]]) -> bool | Value:
    """Whether no two tensors of a pair have memory in common."""
    code = w.code

    def span(var: Var) -> tuple[Value, Value]:
        tensor = w.tensor(var)
        return address_range(code, tensor.pointer, tensor.strides, tensor.extents, tensor.dtype.bytes)

    spans = {var.name: span(var) for pair in pairs for var in pair}
    return code.all_of([code.b.not_(ranges_meet(code, spans[a.name], spans[b.name])) for a, b in pairs])
