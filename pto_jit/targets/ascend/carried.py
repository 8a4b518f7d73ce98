# SPDX-License-Identifier: MIT
"""Valid extents of what a loop adds up, in the loop and behind it.

Before, a tile that fits whatever it meets, and tiles that are cut at the end of a tensor::

    Tile<TileType::Vec, float, 16, 64, ...> acc;                             // of zeros
    for (int64_t r = 0; r < x_d0; r += 16) {
      const int64_t x_rows = smaller(16, x_d0 - r);
      ...                                                                    // acc has x_rows rows, which nobody knows

After: tiles that are added up are of one shape, so the launch checks that there is one of them, or that none is cut::

      const int64_t acc_rows = (0 < x_d0 ? smaller(16, x_d0) : 16);          // in the loop and behind it
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pto_jit.ir.nodes import Const, Operand, Var
from pto_jit.targets.ascend.sizes import least, names, text, total
from pto_jit.targets.ascend.values import Expr, Size, Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.held import HeldWriter

_WORD = re.compile(r"[A-Za-z_]\w*")
EQUAL = "tiles that are combined have as many elements"


def lasting(
    w: HeldWriter, known: Value, valid: tuple[Size, Size], free: tuple[bool, bool], outside: tuple[int, int]
) -> tuple[Size, Size]:
    """Valid extents of a value that a variable gets in loops, where `known` was valid everywhere before them; as they
    are where that is not a sum of tiles one after the other.  outside: how many loops and scopes were around that."""
    loops, scopes = outside
    if w.branches or not w.loops[loops:]:
        return valid
    out = [_lasting(w, known.valid[axis], valid[axis], loops, scopes) if known.free[axis] and not free[axis]
           else valid[axis] for axis in (0, 1)]  # fmt: skip
    return out[0], out[1]


def _lasting(w: HeldWriter, whole: Size, size: Size, loops: int, scopes: int) -> Size:
    def known(words: frozenset[str]) -> bool:
        return all(any(word in scope for scope in w.scopes[:scopes]) for word in words)

    extent, limit, at = w.clips.get(text(size), (0, 0, 0))
    if known(names(size)) or not isinstance(extent, int) or not w.launch_time(limit):
        return size
    var = next((Var(name, loop.var.type) for name, loop in w.loop_of.items() if w.names.of(name) == text(at)), None)
    if var is None or not w.stays_inside(var, limit):
        return size
    first = _first(w, var, len(w.loops) - loops)
    step, outer = w.loop_of[var.name].step, w.loops[loops]
    bounds = frozenset(_WORD.findall(f"{outer.start} {outer.stop}"))
    if first is None or not isinstance(step, Const) or step.value != extent or not known(bounds):
        return size
    rest = total(limit, first, "-")
    w.check(f"({text(rest)}) % {extent} * ({text(rest)} > {extent}) == 0", EQUAL)
    some = f"({outer.start} < {outer.stop} ? {text(least(extent, rest))} : {text(whole)})"
    return Expr(some, names(rest) | names(whole) | bounds)


def _first(w: HeldWriter, index: Operand, depth: int) -> int | None:
    """The first value of an index of that many loops inside each other: of one loop, or of one and its chunks."""
    loop = w.loop_of.get(index.name) if isinstance(index, Var) else None
    if loop is None or depth < 1:
        return None
    if isinstance(loop.start, Const):
        return int(loop.start.value) if depth == 1 else None
    op = w.defined.get(loop.start.name)
    if op is None or op.op != "mul" or not isinstance(op.args[1], Const):
        return None
    chunk = _first(w, op.args[0], depth - 1)
    return None if chunk is None else chunk * int(op.args[1].value)
