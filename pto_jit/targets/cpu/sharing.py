# SPDX-License-Identifier: MIT
"""Operations outside of groups on large tiles, divided among the workers along an axis whose lines do not depend on
each other: the rows of a sort, the columns of a running sum along the rows.

What writes the operation is given the tiles of a range of lines, in a range function.  How many lines are in a range
follows from the extents alone, and every line is computed as it is by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_uses, uses
from pto_jit.slotted import replace
from pto_jit.targets.cpu.constants import Index, Value, i64
from pto_jit.targets.cpu.divide import run_range
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import DIVIDE
from pto_jit.targets.cpu.parallel import Capture, bind, range_function, value_now
from pto_jit.targets.cpu.values import Tensor, Tile, remap

_RANGE = 1 << 15  # elements of a range, where one costs as little as a copy
_SIDE_BY_SIDE = 64  # lines next to each other in memory, of which a range has a multiple

Lines = Sequence[tuple[Tile | Tensor, int | None]]
"""Tiles, with the axis of each that the lines are along; None: every range takes all of it."""
Body = Callable[[FunctionWriter, list[Any], Any], None]


def share_lines(
    w: FunctionWriter, op: Op, lines: Lines, body: Body, *, cost: int = 1, more: Any = None,
    elements: Index | None = None,
) -> None:  # fmt: skip
    """Write `body(writer, tiles, more)`, for all lines or for ranges of them.

    `elements`: how many are worked on, those of the first tile by default; each costs as much as `cost` that are
    copied.  more: other values that the body needs.
    """
    code = w.code
    (first, axis), *_ = lines
    extents = first.valid if isinstance(first, Tile) else first.extents
    total = code.mul(cost, *(extents if elements is None else (elements,)))
    few = axis is None or extents[axis] in (0, 1)
    if axis is None or few or w.parallel or w.recording or not w.vectors or (isinstance(total, int) and total < DIVIDE):
        body(w, [tile for tile, _ in lines], more)
        return
    many = extents[axis]
    large = code.compare(">=", total, DIVIDE)
    each = code.max(code.div(total, code.max(many, 1)), 1)
    grain = code.max(code.div(i64(_RANGE), each), 1)
    if any(k == len(tile.strides) - 1 for tile, k in lines):
        grain = code.floor(code.add(grain, _SIDE_BY_SIDE - 1), _SIDE_BY_SIDE)
    grain = code.pick(large, grain, code.max(many, 1))

    needed = {v.name for v in uses(op) if isinstance(v.type, ScalarType)}
    for region in op.regions:
        needed |= block_uses(region.body) | {r.name for r in region.results if isinstance(r, Var)}
    env = {name: w.env[name] for name in sorted(needed) if name in w.env}
    captured = {name: value_now(w, value) for name, value in env.items()}
    capture = Capture(code)
    remap((captured, lines, more), capture.keep)
    function = range_function(w, op.op)
    worker, context, begin, end = function.args
    inner = FunctionWriter(w.module, w.func, function, worker, parallel=True)
    inner.mutable, inner.generated, inner.callees = w.mutable, w.generated, w.callees
    inner.hazards, inner.recording = w.hazards, w.recording
    change = capture.unpack(inner.code, context)
    for name, value in captured.items():
        bind(inner, name, env[name], remap(value, change))
    parts = [_part(inner, remap(tile, change), k, begin, end) for tile, k in lines]
    with inner.passing():
        body(inner, parts, remap(more, change))
    inner.code.go(inner.code.leave)
    inner.close()
    run_range(code, function, capture.pack(), many, grain, large)


def _part(w: FunctionWriter, tile: Any, axis: int | None, begin: Value, end: Value) -> Any:
    """The lines from `begin` to `end` of a tile."""
    if axis is None:
        return tile
    code = w.code
    pointer = code.offset(tile.pointer, code.mul(begin, tile.strides[axis]))
    count = code.sub(end, begin)

    def only(extents: Sequence[Index]) -> tuple[Index, ...]:
        return (*extents[:axis], count, *extents[axis + 1 :])

    if isinstance(tile, Tensor):
        return replace(tile, pointer=pointer, extents=only(tile.extents))
    return replace(tile, pointer=pointer, declared=only(tile.declared), valid=only(tile.valid))


def other_axis(rank: int, axis: int) -> int | None:
    """The outermost axis that is not the one an operation runs along."""
    return None if rank < 2 else int(axis == 0)
