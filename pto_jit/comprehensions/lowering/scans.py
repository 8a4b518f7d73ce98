# SPDX-License-Identifier: MIT
"""Reductions over all that stands before (or behind) an index: a running value instead of a loop per element.

`S(i) +=! (k <= i) ? X(k) : 0.0` sums a part of `k`'s range that grows with `i`, so one pass that carries the value is
enough.  The elements are combined in the order of `k`, as by the loops that the statement spells.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pto_jit import dtypes
from pto_jit.comprehensions.inference import Inferred
from pto_jit.comprehensions.lowering.elements import accumulate, alone, note_loads, open_loop, place_of
from pto_jit.comprehensions.lowering.expressions import Elements
from pto_jit.comprehensions.nodes import Binary, Cast, Expression, Name, Read, Select, literal, names_in, walk
from pto_jit.comprehensions.symbolic import at_least_zero
from pto_jit.slotted import frozen

if TYPE_CHECKING:
    from pto_jit.comprehensions.lowering.kernel import Kernel

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NOT = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@frozen
class Scan:
    """`index` is a left index, `along` the reduced one; `value` is what is combined for each `along`.

    backwards: of what stands behind; inclusive: with the element of the index itself.
    """

    index: str
    along: str
    value: Expression
    backwards: bool
    inclusive: bool


def scan_of(m: Inferred) -> Scan | None:
    """The scan that a statement is, or None."""
    s = m.statement
    if s.op is None or not s.fresh or len(m.reduced) != 1 or not isinstance(s.value, Select):
        return None
    (along,) = m.reduced
    condition, yes, no = s.value.condition, s.value.yes, s.value.no
    if not isinstance(condition, Binary) or condition.op not in _MIRRORED:
        return None
    op, left, right = condition.op, condition.left, condition.right
    if _is_identity(yes, s.op):
        op, yes, no = _NOT[op], no, yes
    if not _is_identity(no, s.op) or not isinstance(left, Name) or not isinstance(right, Name):
        return None
    if right.name == along:
        op, left, right = _MIRRORED[op], right, left
    index = right.name
    if left.name != along or index not in s.indices or any(n.name == index for n in names_in(yes)):
        return None
    if any(isinstance(e, Read) and e.tensor == s.target for e in walk(yes)):
        return None
    backwards, inclusive = op in (">", ">="), op in ("<=", ">=")
    (low, high), (first, last) = m.ranges[index], m.ranges[along]
    # Every value that the reduction has is met on the way, and no other.
    if backwards:
        fits = (high - last).value == 0 and at_least_zero(low - first)
    else:
        fits = (low - first).value == 0 and at_least_zero(last - high)
    return Scan(index, along, yes, backwards, inclusive) if fits else None


def _is_identity(e: Expression, op: str) -> bool:
    if isinstance(e, Cast):
        return _is_identity(e.operand, op)
    value = literal(e)
    return value is not None and value == {"sum": 0, "prod": 1, "min": math.inf, "max": -math.inf}[op]


def write(kernel: Kernel, m: Inferred, scan: Scan) -> None:
    """Add the lines of a scan to the kernel: the other left indices are parallel loops around it."""
    from pto_jit.comprehensions.lowering.kernel import identity

    s = m.statement
    op = s.op or "sum"
    target = m.scope.tensors[s.target]
    dtype = target.dtype
    assert dtype is not None
    wide = dtypes.f32 if dtype.is_float and dtype.bits < 32 else dtype
    with ExitStack() as loops:
        variables = {i: open_loop(kernel, loops, m, i, True) for i in s.indices if i != scan.index}
        if kernel.device and not variables:
            alone(kernel, loops)
        running = kernel.names.fresh("running")
        kernel.lines.add(f"{running} = {identity(op, wide)}")
        variable = kernel.names.fresh(scan.index)
        low, high = (kernel.size(e) for e in m.ranges[scan.index])
        bounds = f"{low}, {high}"
        if scan.backwards:
            bounds = f"{kernel.size(m.ranges[scan.index][1] - 1)}, {kernel.size(m.ranges[scan.index][0] - 1)}, -1"
        kernel.lines.add(f"for {variable} in pl.range({bounds}):")
        loops.enter_context(kernel.lines.indented())
        variables[scan.index] = variables[scan.along] = variable
        writer = Elements(m, kernel.analysis.typing(m.scope), kernel.names, variables, kernel.stored, kernel.size)
        value = running if wide == dtype else f"pl.cast({running}, pl.{dtype.name})"
        store = f"{kernel.stored[target.name]}[{place_of(writer, m)}] = {value}"
        if not scan.inclusive:
            kernel.store(store, target.name)
        step = writer.value(scan.value, wide)
        note_loads(kernel, m, writer)
        accumulate(kernel, op, running, step)
        if scan.inclusive:
            kernel.store(store, target.name)
