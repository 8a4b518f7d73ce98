# SPDX-License-Identifier: MIT
"""Elementary functions that a kernel needs several times, as functions of its file: written once, and called.

Before::

    TABS(scratch, t1);       // 30 instructions of tanh(t1)
    ...
    TABS(scratch_9, t14);    // and of tanh(t14)
    ...

After::

    AICORE inline void tanh_of_tile(int64_t result_at, int64_t x_at, int64_t scratch_at, int64_t rows) { ... }

    tanh_of_tile(0x2000, 0x0, 0x5000, x_rows);
    ...
    tanh_of_tile(0x4000, 0x3000, 0x5000, x_rows);

Barriers between the instructions of such a function are its own; what calls it is one instruction of the vector pipe,
which reads the tile, writes the result, and works in memory besides.  The result never lies where the tile does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pto_jit.dtypes import f32
from pto_jit.errors import NOWHERE, Loc
from pto_jit.targets.ascend.copies import declare_once
from pto_jit.targets.ascend.form import Buffer, Declaration, Function, Instruction, Tile
from pto_jit.targets.ascend.placing import place
from pto_jit.targets.ascend.synchronise import synchronise
from pto_jit.targets.ascend.values import Expr, Value

if TYPE_CHECKING:
    from pto_jit.targets.ascend.tiles import TileWriter

_RESULT, _TILE, _SCRATCH = "result_at", "x_at", "scratch_at"
_EXTENTS = ("rows", "columns")

Play = Callable[[Value, Any], Value]
"""Writes the instructions for a tile, and to where its result goes."""


def write_call(w: TileWriter, operation: str, x: Value, play: Play, to: Any, loc: Loc) -> Value:
    """Call the function for tiles like `x`, which is written if there is none."""
    shape = x.span, x.capacity, x.valid, x.free
    key = (operation, x.span, x.capacity, tuple(v if isinstance(v, int) else None for v in x.valid))
    function = w.functions.get(key)
    if function is None:
        function = w.functions[key] = _function(w, operation, x, play)
    held = to(f32, *shape)
    out = w.temp(f32, *shape) if held.buffer is x.buffer else held  # a variable may be assigned its own function
    size = function.scratch.size
    scratch = Tile("", f32, 1, size // 4, (1, size // 4), "row", Buffer("scratch", "Vec", size))
    result, tile = w.tile(out, valid=x.valid, loc=loc), w.tile(x, loc=loc)
    extents = [w.named(v, f"{x.name}_{axis}", loc) for v, axis in zip(x.valid, _EXTENTS, strict=True)
               if not isinstance(v, int)]  # fmt: skip
    args = (result, tile, scratch, *(str(e) for e in extents))
    w.nodes.append(Instruction("CALL", args, loc, function=function))
    if out is not held:
        w.emit("TMOV", w.tile(held, valid=x.valid, loc=loc), result, loc=loc)
    return held


def _function(w: TileWriter, operation: str, x: Value, play: Play) -> Function:
    """What is called for tiles of the shape of `x`, ordered, with addresses in its own memory."""
    height, width = (v if isinstance(v, int) else Expr(axis, frozenset([axis]))
                     for v, axis in zip(x.valid, _EXTENTS, strict=True))  # fmt: skip
    extents = tuple(v.text for v in (height, width) if isinstance(v, Expr))
    operand, result = (Buffer(base, "Vec", x.buffer.size, address=0, base=base) for base in (_TILE, _RESULT))
    like = Value("x", f32, x.span, x.capacity, (height, width), operand, x.free)
    name = w.names.fresh(f"{operation}_of_tile")
    with w.aside((_RESULT, _TILE, _SCRATCH, *extents)) as body:
        out = play(like, lambda dtype, span, capacity, valid, free, sources=(): Value(
            "result", dtype, span, capacity, valid, result, free))  # fmt: skip
        assert out.buffer is result
    size = place(body).get("Vec", 0)
    while isinstance(body[-1], Declaration):  # of the result, where what was copied to it lies there already
        body.pop()
    for node in body:
        if hasattr(node, "loc"):  # of the first call only
            node.loc = NOWHERE  # type: ignore[union-attr]
        if isinstance(node, Declaration) and isinstance(node.what, Tile) and not node.what.buffer.base:
            node.what.buffer.base = _SCRATCH
    declare_once(body, extents)
    synchronise(body)
    return Function(name, operation, result, operand, Buffer(_SCRATCH, "Vec", size, base=_SCRATCH), extents, body)
