# SPDX-License-Identifier: MIT
"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pto_jit import dtypes
from pto_jit.codegen.builtins.elementwise import dtype_of
from pto_jit.codegen.builtins.promote import (
    Value,
    shape_text,
    tile_of,
    with_axes,
    with_extents,
    with_rank,
    without_axes,
)
from pto_jit.codegen.builtins.registry import builtin
from pto_jit.codegen.emit import index
from pto_jit.codegen.values import Tile, static_extent
from pto_jit.dtypes import DType, f32, i32
from pto_jit.errors import ShapeError, TypeMismatchError
from pto_jit.ir.nodes import Operand

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


def _operand_dtype(a: DType, b: DType) -> tuple[DType, DType]:
    """The dtypes the two operands enter the product in."""
    if a == b:
        return a, b
    if {a.name, b.name} == {"u8", "i8"}:
        return a, b
    common = dtypes.promote(a, b)
    return common, common


def result_dtype(a: DType) -> DType:
    """16-bit floats accumulate in f32, 8- and 16-bit integers in i32, everything else in itself."""
    if a.is_float:
        return f32 if a.bits == 16 else a
    return i32 if a.bits < 32 else a


@builtin("dot")
def dot(cg: Generator, a: Any, b: Any, acc: Any = None, out_dtype: Any = None) -> Value:
    left, right = tile_of(cg, a, "pl.dot"), tile_of(cg, b, "pl.dot")
    ta, tb = _operand_dtype(left.dtype, right.dtype)
    if ta.kind == "b":
        raise cg.error(
            TypeMismatchError, "pl.dot of bool_ tiles", code="PTO-T060", hint="cast them to an integer dtype"
        )
    left, right = cg.e.cast(left, ta), cg.e.cast(right, tb)
    vector_left, vector_right = left.rank == 1, right.rank == 1
    if vector_left:
        left = with_axes(cg, left, (0,))
    if vector_right:
        right = with_axes(cg, right, (1,))
    if left.rank != right.rank:
        rank = max(left.rank, right.rank)
        left, right = with_rank(cg, left, rank), with_rank(cg, right, rank)
    k1, k2 = static_extent(left.extents[-1]), static_extent(right.extents[-2])
    if k1 is not None and k2 is not None and k1 != k2:
        raise cg.error(ShapeError,
                       f"pl.dot: {shape_text(left.extents)} @ {shape_text(right.extents)}: the contracted extents are "
                       f"{k1} and {k2}",
                       code="PTO-H040", hint="the last axis of a and the second last of b must agree")  # fmt: skip
    batch = tuple(x if static_extent(x) != 1 else y for x, y in zip(left.extents[:-2], right.extents[:-2], strict=True))
    extents: tuple[Operand, ...] = (*batch, left.extents[-2], right.extents[-1])
    args: list[Operand] = [left.var, right.var]
    wanted = result_dtype(ta)
    if acc is not None:
        into = tile_of(cg, acc, "the accumulator of pl.dot")
        if into.rank != len(extents):
            into = with_extents(cg, into, extents)
        args.append(cg.e.cast(into, wanted).var)
        extents = into.extents  # which a loop may hand on; that those of the product are the same is checked
    result = cg.e.tile("dot", args, extents=extents)
    if vector_left or vector_right:
        gone = [axis for axis, vector in ((-2, vector_left), (-1, vector_right)) if vector]
        if len(gone) == len(extents):
            return cg.e.scalar("extract", [result.var, *(index(0) for _ in extents)])
        result = without_axes(cg, result, [len(extents) + axis for axis in gone])
    if out_dtype is not None:
        result = cg.e.cast(result, dtype_of(cg, out_dtype))
    assert isinstance(result, Tile)
    return result
