# SPDX-License-Identifier: MIT
"""`concat` and `stack`: tiles that become parts of one, or of the tensor that it is stored to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.ir.nodes import Fuse, Op
from pto_jit.ir.types import TensorType
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.constants import Index
from pto_jit.targets.cpu.elements import address, each, give, new_tile
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.placed import write_stored
from pto_jit.targets.cpu.sharing import other_axis, share_lines
from pto_jit.targets.cpu.strided import MOST, interleave
from pto_jit.targets.cpu.structure import common_extents, need_complete
from pto_jit.targets.cpu.tiles import copy_region, given_fits, may_fit
from pto_jit.targets.cpu.values import Tile


@frozen
class _Joined:
    """Tiles to be joined along an axis, the extents of what they become, and how to copy them there."""

    tiles: list[Tile]
    declared: list[Index]
    valid: list[Index]
    copy: Callable[[Tile], None]


def write_concat(w: FunctionWriter, op: Op) -> None:
    """`concat` along an axis."""
    _write(w, op, _concat(w, op))


def write_stack(w: FunctionWriter, op: Op) -> None:
    """`stack` along a new axis."""
    _write(w, op, _stack(w, op))


def _write(w: FunctionWriter, op: Op, joined: _Joined) -> None:
    fits = given_fits(w, op, [t.fits for t in joined.tiles])
    out = new_tile(w, op.results[0], joined.declared, joined.valid, fits)
    joined.copy(out)
    give(w, op.results[0], out)


def write_stored_joined(w: FunctionWriter, op: Op, fused: Fuse) -> bool:
    """Write a `concat` or `stack` with the group after it, which is nothing but the store of its result.  False:
    nothing was done, as it may be a generated tile, or one whose elements would not lie side by side."""
    store = fused.body[0]
    assert isinstance(store, Op)
    tensor = store.args[1].type
    assert isinstance(tensor, TensorType)
    tiles = [w.tile(a) for a in op.args]
    last = op.op == "stack" and op.attr("axis") == tiles[0].rank
    if tensor.layout == "strided" or last or any(may_fit(t, axis) for t in tiles for axis in range(t.rank)):
        return False
    joined = (_concat if op.op == "concat" else _stack)(w, op)
    write_stored(w, op.results[0], fused, joined.tiles, joined.declared, joined.valid, joined.copy)
    return True


def _concat(w: FunctionWriter, op: Op) -> _Joined:
    code = w.code
    axis: Any = op.attr("axis")
    tiles = [w.tile(a) for a in op.args]
    for t in tiles[:-1]:
        need_complete(w, op, t, "concat", [axis])
    valid = common_extents(w, op, tiles, axis)
    declared = list(tiles[0].declared)
    declared[axis] = code.add(*(t.declared[axis] for t in tiles))
    valid[axis] = code.add(*(t.valid[axis] for t in tiles))

    def lines(w: FunctionWriter, parts: list[Tile], _: object) -> None:
        out, *tiles = parts
        start: Index = 0
        for t in tiles:
            part = list(out.valid)
            part[axis] = t.valid[axis]
            to = w.code.offset(out.pointer, w.code.mul(start, out.strides[axis]))
            copy_region(w, t.dtype, to, out.strides, t.pointer, t.strides, part)
            start = w.code.add(start, t.declared[axis])

    def copy(out: Tile) -> None:
        at = other_axis(out.rank, axis)
        share_lines(w, op, [(t, at) for t in (out, *tiles)], lines)

    return _Joined(tiles, declared, valid, copy)


def _stack(w: FunctionWriter, op: Op) -> _Joined:
    code = w.code
    axis: Any = op.attr("axis")
    tiles = [w.tile(a) for a in op.args]
    valid = common_extents(w, op, tiles, None)
    declared, whole = list(tiles[0].declared), list(valid)
    declared.insert(axis, len(tiles))
    whole.insert(axis, len(tiles))

    def copy(out: Tile) -> None:
        inner = tuple(s for k, s in enumerate(out.strides) if k != axis)
        if axis == len(inner) and _interleaved(w, tiles, valid, out, inner):
            return
        for k, t in enumerate(tiles):
            to = code.offset(out.pointer, code.mul(k, out.strides[axis]))
            copy_region(w, t.dtype, to, inner, t.pointer, t.strides, valid)

    return _Joined(tiles, declared, whole, copy)


def _interleaved(
    w: FunctionWriter, tiles: Sequence[Tile], valid: Sequence[Index], out: Tile, inner: Sequence[Index]
) -> bool:
    """Stack tiles along a new last axis by shuffles: few tiles, each with its rows in one piece.  False: nothing done.

    inner: the strides of `out` without the new axis.
    """
    dense = valid and all(isinstance(t.strides[-1], int) and t.strides[-1] == t.dtype.bytes for t in tiles)
    if not dense or not w.module.vector_bytes or not 2 <= len(tiles) <= MOST:
        return False

    def row(i: list[Index]) -> None:
        at = [*i, 0]
        rows = [address(w, t, at) for t in tiles]
        target = w.code.offset(out.pointer, w.code.add(0, *(w.code.mul(k, s) for k, s in zip(at, inner, strict=True))))
        interleave(w.code, w.module.vector_bytes, out.dtype, target, rows, valid[-1])

    each(w, valid[:-1], row)
    return True
