# SPDX-License-Identifier: MIT
"""In which order blocks take the iterations of a grid: those that do most come first.

A device runs blocks in the order of their numbers.  Where the loops inside an iteration grow with its index, as those
of causal attention do, the longest ones would begin last, and most of the device would wait for them::

    FOR %i, 0, %length, 128 {kind=parallel}
      FOR %j, 0, %i, 64

That axis of the grid runs backwards.  Where it is the innermost one of a kernel with products, the longest iterations
of a group of rows of the grid come first (`pto::grouped_place`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Var
from pto_jit.ir.walk import defs, statements

_SAME, _GROWS = 0, 1
_UNKNOWN = None


def growing(body: Block, chain: Sequence[For]) -> frozenset[str]:
    """The variables of the loops of a grid with whose values the iterations of a loop inside become more."""
    if not chain:
        return frozenset()
    inside = list(statements(chain[-1].body))
    loops = [s for s in inside if isinstance(s, For) and s.kind == "sequential"]
    if not loops:
        return frozenset()
    counts = Counter(v.name for s in statements(body) for v in defs(s))
    makers = {s.results[0].name: s for s in statements(body)
              if isinstance(s, Op) and s.results and counts[s.results[0].name] == 1}  # fmt: skip
    return frozenset(
        loop.var.name for loop in chain
        if any(_grows(s.stop, loop.var, makers, counts) and _way(s.start, loop.var, makers, counts) == _SAME
               and isinstance(s.step, Const) and s.step.value > 0 for s in loops)
    )  # fmt: skip


def _grows(operand: Operand, var: Var, makers: Mapping[str, Op], counts: Counter[str]) -> bool:
    return _way(operand, var, makers, counts) == _GROWS


def _way(operand: Operand, var: Var, makers: Mapping[str, Op], counts: Counter[str]) -> int | None:
    """Whether a number stays the same or grows with a variable; None if it may do anything else."""
    if not isinstance(operand, Var):
        return _SAME
    if operand == var:
        return _GROWS
    op = makers.get(operand.name)
    if op is None:
        return _SAME if counts[operand.name] == 0 else _UNKNOWN  # a parameter, or what changes
    ways = [_way(a, var, makers, counts) for a in op.args]
    if all(w == _SAME for w in ways):
        return _SAME
    if op.op in ("add", "min", "max") and _UNKNOWN not in ways:
        return _GROWS
    positive = len(op.args) == 2 and isinstance(op.args[1], Const) and op.args[1].value > 0
    if op.op == "copy" or (op.op in ("mul", "floordiv") and positive) or (op.op == "sub" and ways[1:] == [_SAME]):
        return ways[0]
    return _UNKNOWN
