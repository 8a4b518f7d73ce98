# SPDX-License-Identifier: MIT
"""Unsigned integers of 32 and 16 bits as signed ones, where that gives the same bits.

The vector core has no unsigned arithmetic.  Sums, differences, products, bits and what is only moved or compared for
equality are the same for both; what is not, as an order or a conversion, stays as it is, and is refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pto_jit.dtypes import DType, i16, i32
from pto_jit.ir.nodes import Const, Func, Op, Operand, Stmt
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import defs, operands, rewrite_func, statements, with_operands

_SIGNED = {"u32": i32, "u16": i16}
_SAME = frozenset(
    "load store full copy select reshape view broadcast_to transpose tile_slice concat getelem setelem valid dim "
    "add sub mul neg and or not shl eq ne".split()
)
"""Operations that do the same to the bits of signed and unsigned integers."""

def as_signed(func: Func) -> Func | None:
    """An in-core function with signed integers for all unsigned ones of 32 and 16 bits; None if it has none of them, or
    some are given as numbers, or something is done to them that signed ones do not give the same bits for.

    Before: `%z:tile<8x8xu32> = add %x, 4294967295`.  After: `%z:tile<8x8xi32> = add %x, -1`.
    """
    found = False
    for stmt in statements(func.body):
        values = (*operands(stmt), *defs(stmt))
        if any(_signed(value) is not None for value in values):
            found = True
            if not (isinstance(stmt, Op) and _is_same(stmt)):
                return None
    if not found or any(isinstance(p.type, ScalarType) and _signed(p) is not None for p in func.params):
        return None
    params = tuple(_retyped(p) for p in func.params)
    return replace(rewrite_func(func, lambda stmt: (_rewritten(stmt),)), params=params)


def _is_same(op: Op) -> bool:
    if op.op == "cast":
        source, result = (getattr(value.type, "dtype", None) for value in (op.args[0], op.results[0]))
        return _as_signed(source) == _as_signed(result)
    return op.op in _SAME and not op.regions and not op.attr("pad")


def _rewritten(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Op) and any(_signed(value) is not None for value in (*stmt.args, *stmt.results)):
        if stmt.op == "cast":
            stmt = replace(stmt, op="copy", attrs=())
        return with_operands(stmt, _retyped, _retyped)
    return stmt


def _as_signed(dtype: DType | None) -> DType | None:
    return dtype and _SIGNED.get(dtype.name, dtype)


def _signed(value: Operand) -> DType | None:
    """The signed type of an unsigned value of 32 or 16 bits."""
    return _SIGNED.get(value.type.dtype.name) if isinstance(value.type, (ScalarType, TileType, TensorType)) else None


def _retyped(value: Any) -> Any:
    """A variable or constant of the signed type, with the same bits."""
    dtype = _signed(value)
    if dtype is None:
        return value
    typ = replace(value.type, dtype=dtype)
    if isinstance(value, Const):
        bits = int(value.value)
        return replace(value, value=bits - (1 << dtype.bits) if bits >> dtype.bits - 1 & 1 else bits, type=typ)
    return replace(value, type=typ)
