# SPDX-License-Identifier: MIT
"""Numbers that host code only passes on to kernels: a learning rate, a seed, the number of a step.

What a program enqueues does not depend on them but for arguments of kernels, which `arguments` computes anew.  Sizes,
conditions, bounds of loops, offsets and assertions decide more: a number that any of them depends on is not passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from pto_jit.ir.nodes import Call, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import def_counts, statements, uses
from pto_jit.lower.groups.axes import is_elementwise, touches_tiles
from pto_jit.targets.cuda.hostcode import TENSOR_OPS, numbers_function
from pto_jit.targets.cuda.kernels import Kernel


class PassedNumbers:
    """places: which of the entry's parameters are passed; what kernels get may depend on them and on other numbers."""

    def __init__(self, entry: Func, kernels: Mapping[str, Kernel]) -> None:
        self._entry = entry
        self._depends = {p.name: frozenset((p.name,)) for p in entry.params if isinstance(p.type, ScalarType)}
        self._ops: list[Op] = []
        of_size = {name: sizes(kernel) for name, kernel in kernels.items()}
        counts = def_counts(entry.body)
        decided: set[str] = set()
        for stmt in statements(entry.body):
            if self._is_number(stmt, counts):
                self._depends[stmt.results[0].name] = frozenset().union(*map(self.of, stmt.args))
                self._ops.append(stmt)
                continue
            read: Iterable[Operand] = uses(stmt)
            if isinstance(stmt, Call):
                params = kernels[stmt.callee].func.params
                read = [a for a, p in zip(stmt.args, params, strict=True) if p.name in of_size[stmt.callee]]
            decided.update(*map(self.of, read))
        self.places = frozenset(k for k, p in enumerate(entry.params) if p.name in self._depends.keys() - decided)
        self._passed = {entry.params[k].name for k in self.places}

    def of(self, operand: Operand) -> frozenset[str]:
        """The parameters that an operand depends on, if it is computed from numbers alone."""
        return self._depends.get(operand.name, frozenset()) if isinstance(operand, Var) else frozenset()

    def varies(self, operand: Operand) -> bool:
        """Whether an argument of a call depends on numbers that are passed."""
        return not self._passed.isdisjoint(self.of(operand))

    def arguments(self, wanted: Sequence[str]) -> Callable[..., tuple[Any, ...]]:
        """`function(run, *arguments)` of the entry's arguments, which gives these numbers, and no others: those of
        branches that were not taken may fail."""
        needed = set(wanted)
        ops: list[Op] = []
        for op in reversed(self._ops):
            if op.results[0].name in needed:
                needed.update(v.name for v in uses(op))
                ops.append(op)
        return numbers_function(self._entry, ops[::-1], wanted)

    def _is_number(self, stmt: Stmt, counts: Mapping[str, int]) -> TypeGuard[Op]:
        """Whether a statement computes a number of numbers of the entry and of constants, and does nothing else."""
        if not isinstance(stmt, Op) or stmt.op in TENSOR_OPS or not is_elementwise(stmt) or touches_tiles(stmt):
            return False
        (result,) = stmt.results
        known = [bool(self.of(a)) for a in stmt.args if isinstance(a, Var)]
        return isinstance(result.type, ScalarType) and counts[result.name] == 1 and bool(known) and all(known)


def sizes(kernel: Kernel) -> set[str]:
    """The parameters on which the grid of a kernel, or its tiles, depend."""
    read = [v for s in kernel.first_iteration for v in uses(s)]
    read += [e for _, e in kernel.capacities if isinstance(e, Var)]
    read += [e for shape in kernel.shapes for e in shape if isinstance(e, Var)]
    return {v.name for v in read}
