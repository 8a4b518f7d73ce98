# SPDX-License-Identifier: MIT
"""Matrix products."""

from __future__ import annotations

from pto_jit.dtypes import DType, f32, i32
from pto_jit.errors import TypeMismatchError
from pto_jit.ir.types import TileType
from pto_jit.semantic import checks
from pto_jit.semantic.row import Args, Attrs, OpRow, Regions, Types


def product_dtype(a: DType) -> DType:
    """What products of `a` are summed in: 16-bit floats in f32, integers below 32 bits in i32, others in themselves."""
    if a.bits >= 32:
        return a
    return f32 if a.is_float else i32


def dot(op: str, args: Args, attrs: Attrs, regions: Regions) -> Types:
    a, b = checks.tile(op, args[0], "left operand"), checks.tile(op, args[1], "right operand")
    checks.kind(op, a.dtype, "fiu")
    if not ({a.dtype.name, b.dtype.name} <= {"u8", "i8"}):
        checks.one_dtype(op, args[:2])
    checks.rank_at_least(op, a.shape, 2)
    checks.count(op, b.rank, a.rank, "axes of the right operand")
    checks.equal_extents(op, a.shape[-1], b.shape[-2], "the contracted extents")
    dtype = product_dtype(a.dtype)
    if "dtype" in attrs:
        wanted = checks.dtype_attr(op, attrs)
        if not checks.same(wanted, dtype) and not (a.dtype.is_float and checks.same(wanted, a.dtype)):
            raise TypeMismatchError(
                f"`dot` of {a.dtype} cannot give {wanted}", code="PTO-T160", hint=f"take {dtype} and cast the result"
            )
        dtype = wanted
    shape = (*checks.broadcast(op, a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    if len(args) == 3:
        acc = checks.tile(op, args[2], "accumulator")
        checks.value_dtype(op, acc, TileType(dtype, shape), "a product")
        checks.count(op, acc.rank, len(shape), "axes of the accumulator")
        shape = tuple(
            checks.equal_extents(op, left, right, f"the extents of accumulator and product along axis {axis}")
            for axis, (left, right) in enumerate(zip(acc.shape, shape, strict=True))
        )
    return (TileType(dtype, shape),)


ROWS: tuple[OpRow, ...] = (
    OpRow("dot", "matrix", "dot(a, b[, acc]) {dtype}", "a @ b + acc over the last two axes, batched over the others; "
          "sums 16-bit floats in f32 and integers below 32 bits in i32, which is the result's dtype unless dtype "
          "says the "
          "operands'", dot, 2, 3, optional=("dtype",)),
)  # fmt: skip
