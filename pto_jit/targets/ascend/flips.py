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
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import DType, f32, i32
from pto_jit.ir.nodes import Attr, Block, Const, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import rewrite_func
from pto_jit.lower.names import I64, Names
from pto_jit.slotted import replace
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


def _number(value: float, dtype: DType) -> Const:
    return Const(value, ScalarType(dtype))
