# SPDX-License-Identifier: MIT
"""Loops of which several iterations are computed together (`lower.jam`), where the tensors in them lie apart.

What is left of a loop, and all of it where arguments share memory, is one iteration after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import For
from pto_jit.lower.jam import TOGETHER, jammed
from pto_jit.targets.cpu.constants import Index, Value, i64
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.parallel import trip_count
from pto_jit.targets.cpu.spmd.apart import compared, lie_apart
from pto_jit.targets.cpu.spmd.planning import read_later


def write_jammed(w: FunctionWriter, loop: For, start: Index, stop: Index, step: Index) -> bool:
    """Write `loop` in both ways if several of its iterations may run together; gives whether it was written."""
    if w.recording or w.module.debug or w.plain or loop.border:
        return False
    together = jammed(loop, w.root)
    if together is None or read_later(w.func, loop):
        return False
    pairs = compared(w, [loop])
    if pairs is None:
        return False
    code = w.code
    whole = code.floor(trip_count(code, start, stop, 1), TOGETHER)
    end = code.wrapping("add", start, whole)

    def in_groups() -> Sequence[Value]:
        w.sequential(together, start, end, TOGETHER)
        return (i64(end),)

    apart = code.all_of([code.compare(">", whole, 0), lie_apart(w, pairs)])
    (begin,) = code.choose(apart, in_groups, lambda: (i64(start),))
    w.sequential(loop, begin, stop, step)
    return True
