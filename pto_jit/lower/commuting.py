# SPDX-License-Identifier: MIT
"""Functions of two states that do not depend on which of them comes first.

Parts of a loop that such a function combines need not follow each other: lanes and threads may take every n-th
iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import Op, Operand, Region, Var
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.straight import straight_function
from pto_jit.semantic.table import row

_TURNED = {"gt": "lt", "ge": "le"}


def commutes(combine: str | Region) -> bool:
    """Whether two states that change places give the same: an operation of a `Reduction`, or the operations of its
    function, whatever the numbers are."""
    if isinstance(combine, str):
        return True
    region = straight_function(combine)
    half = len(region.params) // 2
    numbers: dict[object, int] = {}  # of what is computed

    def results(params: Sequence[Var]) -> list[int] | None:
        known = {v.name: numbers.setdefault(k, k) for k, v in enumerate(params)}

        def number(operand: Operand) -> int:
            if isinstance(operand, Var) and operand.name in known:
                return known[operand.name]
            return numbers.setdefault(operand, len(numbers))

        for stmt in region.body:
            if not isinstance(stmt, Op) or not is_elementwise(stmt) or len(stmt.results) != 1:
                return None
            args = [number(a) for a in stmt.args]
            op = stmt.op
            if op in _TURNED:
                op, args = _TURNED[op], args[::-1]
            if row(op).commutative:
                args.sort()
            (result,) = stmt.results
            known[result.name] = numbers.setdefault((op, stmt.attrs, result.type, *args), len(numbers))
        return [number(r) for r in region.results]

    one = results(region.params)
    return one is not None and one == results((*region.params[half:], *region.params[:half]))
