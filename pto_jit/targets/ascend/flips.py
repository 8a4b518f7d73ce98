# SPDX-License-Identifier: MIT
"""Tiles whose elements are reversed along an axis: elements that one instruction picks, by places that count down.

Before::

    %u = tflip %t {axis=1}                          // [1, %n]

After::

    %count = tvalid %t {axis=1}
    %last = ssub %count, 1
    %step = tarange 0, 1, [%n]
    %index = tsub %last, %step
    %wide = tbroadcast_to %index, [1, %n]
    %u = tgather %t, %wide {axis=1}

The places are generated, and there are as many as the tile is declared to have.  Where the tile may be cut at the
border of a tensor, 0 times its elements is added to them, so that as many are valid as it has.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import DType, f32, i32
from pto_jit.ir.nodes import Attr, Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, rewrite_func, statements
from pto_jit.lower.groups.fitting import fitting_axes
from pto_jit.lower.names import I64, Names
from pto_jit.slotted import replace
from pto_jit.targets.cuda.program import extents_of
from pto_jit.targets.cuda.shapes import shape_of


def without_flips(func: Func) -> Func:
    """A flat function whose tiles of at most two long axes are picked, where their extents are known."""
    names = Names(func)

    def visit(stmt: Stmt) -> Block | None:
        return _picked(stmt, func.body, names) if isinstance(stmt, Op) and stmt.op == "flip" else None

    return rewrite_func(func, visit)


def _picked(op: Op, body: Block, names: Names) -> Block | None:
    (tile,), (result,) = op.args, op.results
    assert isinstance(tile, Var) and isinstance(tile.type, TileType)
    extents, dtype = shape_of(body, tile), tile.type.dtype
    axis, rank = int(op.attr("axis")) % tile.type.rank, tile.type.rank  # type: ignore[call-overload]
    if extents is None or axis < rank - 2:
        return None
    steps = _Steps(op, names)
    count = steps.add("valid", I64, tile, axis=axis)
    narrow = steps.add("cast", ScalarType(i32), count, dtype=i32)
    last = steps.add("sub", ScalarType(i32), narrow, _number(1, i32))
    line = TileType(i32, (tile.type.shape[axis],))
    index = steps.add("sub", line, last, steps.add("arange", line, _number(0, i32), _number(1, i32), extents[axis]))
    if axis < rank - 1:
        column = TileType(i32, (tile.type.shape[axis], 1))
        index = steps.add("reshape", column, index, extents[axis], Const(1, I64))
    index = steps.add("broadcast_to", TileType(i32, tile.type.shape), index, *extents)
    if not _is_whole(tile, body):
        index = steps.add("add", index.type, index, steps.nothing(tile))
    if dtype.kind != "b":
        return (*steps.done, replace(op, op="gather", args=(tile, index), attrs=(("axis", axis),)))
    number = steps.add("cast", replace(tile.type, dtype=f32), tile, dtype=f32)
    picked = steps.add("gather", replace(tile.type, dtype=f32), number, index, axis=axis)
    return (*steps.done, Op("ne", (result,), (picked, _number(0.0, f32)), (), (), op.loc))


class _Steps:
    """Operations one after the other, whose results have names of their own."""

    def __init__(self, op: Op, names: Names) -> None:
        self.op, self.names = op, names
        self.done: list[Op] = []

    def add(self, name: str, typ: Any, *args: Operand, **attrs: Attr) -> Var:
        out = self.names.fresh(f"{self.op.results[0].name}.{name}", typ)
        self.done.append(Op(name, (out,), args, tuple(attrs.items()), (), self.op.loc))
        return out

    def nothing(self, tile: Var) -> Var:
        """0 for each valid element of a tile."""
        assert isinstance(tile.type, TileType)
        kind = replace(tile.type, dtype=i32)
        number = tile if tile.type.dtype == i32 else self.add("cast", kind, tile, dtype=i32)
        return self.add("mul", kind, number, _number(0, i32))


def _is_whole(tile: Var, body: Block) -> bool:
    """Whether a tile is valid, as is known, as far as it is declared: it is generated, or loaded as all of a tensor."""
    if all(fitting_axes(body).get(tile.name, (False,))):
        return True
    makers = [s for s in statements(body) if isinstance(s, Op) and any(r.name == tile.name for r in s.results)]
    if len(makers) != 1 or makers[0].op != "load":
        return False
    load, dims = makers[0], extents_of(body)
    tensor, rank = load.args[0], tile.type.rank  # type: ignore[union-attr]
    assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
    if any(isinstance(s, Op) and s.op in TENSOR_VIEWS and s.results[0] == tensor for s in statements(body)):
        return False  # which has the extents that were asked for, also where the tensor ends before
    places, extents = load.args[1 : 1 + rank], load.args[1 + rank : 1 + 2 * rank]

    def inside(axis: int, place: Operand, extent: Operand) -> bool:
        size = tensor.type.shape[axis]  # type: ignore[union-attr]
        if isinstance(extent, Var):
            return place == Const(0, I64) and dims.get(extent.name) == (tensor.name, axis)
        return size is not None and isinstance(place, Const) and place.value + extent.value <= size

    return load.attr("pad") is not None or all(map(inside, range(rank), places, extents))


def _number(value: float, dtype: DType) -> Const:
    return Const(value, ScalarType(dtype))
