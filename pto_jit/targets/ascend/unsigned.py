# SPDX-License-Identifier: MIT
"""Unsigned integers of 32 and 16 bits as signed ones, where that gives the same bits.

The vector core has no unsigned arithmetic.  Sums, differences, products, bits and what is only moved or compared for
equality are the same for both.  The order of tiles is that of signed numbers with the other highest bit, which the
lowest number, added, gives; and of 16 bits, these are 32768 less, which f32 adds without rounding.  What is not the
same, as a quotient, stays as it is, and is refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pto_jit.dtypes import DType, f32, i16, i32
from pto_jit.ir.nodes import Const, Func, Op, Operand, Stmt
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import defs, operands, rewrite_func, statements, with_operands
from pto_jit.lower.names import Names

_SIGNED = {"u32": i32, "u16": i16}
_SAME = frozenset(
    "load store atomic_add full copy select reshape view broadcast_to transpose tile_slice concat getelem setelem "
    "valid dim add sub mul neg and or xor not shl eq ne".split()
)
"""Operations that do the same to the bits of signed and unsigned integers."""
_WIDE = frozenset(["f32", "f16", "bf16", "i32", "u32"])
"""What tiles of u16 are converted to; and what they are converted from."""
_ORDERED = frozenset(["max", "min", "lt", "le", "gt", "ge"])
"""Operations that do the same if the highest bit of all is the other one."""


def as_signed(func: Func) -> Func | None:
    """An in-core function with signed integers for all unsigned ones of 32 and 16 bits; None if it has none of them, or
    some are given as numbers, or something is done to them that signed ones do not give the same bits for.

    Before: `%z:tile<8x8xu32> = max %x, 4294967295`.
    After: `%x_2:tile<8x8xi32> = add %x, -2147483648; %z_2 = max %x_2, 2147483647; %z = add %z_2, -2147483648`.
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
    names = Names(func)
    return replace(rewrite_func(func, lambda stmt: _rewritten(stmt, names)), params=params)


def _is_same(op: Op) -> bool:
    if op.op == "cast":
        source, result = (getattr(value.type, "dtype", None) for value in (op.args[0], op.results[0]))
        if source is None or result is None or _as_signed(source) == _as_signed(result):
            return source is not None
        tiles = all(isinstance(value.type, TileType) for value in (op.args[0], op.results[0]))
        widens = source.name == "u16" and result.name in _WIDE
        return tiles and (widens or (source.is_float and result.name == "u16"))
    if op.op in _ORDERED:  # numbers are for the scalar unit, whose sums do not wrap
        return all(isinstance(value, Const) or isinstance(value.type, TileType) for value in (*op.args, *op.results))
    return op.op in _SAME and not op.regions


def _rewritten(stmt: Stmt, names: Names) -> tuple[Stmt, ...]:
    if not isinstance(stmt, Op) or all(_signed(value) is None for value in (*stmt.args, *stmt.results)):
        return (stmt,)
    if stmt.op == "cast":
        source, result = stmt.args[0].type.dtype, stmt.results[0].type.dtype  # type: ignore[union-attr]
        if _as_signed(source) != _as_signed(result):
            return _widened(stmt, names) if source.name == "u16" else _narrowed(stmt, names)
        stmt = replace(stmt, op="copy", attrs=())
    signed = with_operands(stmt, _retyped, _retyped)
    return _ordered(stmt, signed, names) if stmt.op in _ORDERED else (signed,)  # type: ignore[arg-type]


def _ordered(op: Op, signed: Op, names: Names) -> tuple[Stmt, ...]:
    """An operation on numbers with the other highest bit."""
    before: list[Stmt] = []
    args: list[Operand] = []
    for was, arg in zip(op.args, signed.args, strict=True):
        dtype = _signed(was)
        if dtype is None:
            args.append(arg)
        elif isinstance(arg, Const):
            args.append(replace(arg, value=int(was.value) - (1 << dtype.bits - 1)))  # type: ignore[union-attr]
        else:
            args.append(names.fresh(arg.name, arg.type))
            before.append(_turned(arg, args[-1], dtype, op))
    result, dtype = signed.results[0], _signed(op.results[0])
    if dtype is None:  # a truth value
        return (*before, replace(signed, args=tuple(args)))
    turned = names.fresh(result.name, result.type)
    return (*before, replace(signed, args=tuple(args), results=(turned,)), _turned(turned, result, dtype, op))


def _widened(op: Op, names: Names) -> tuple[Stmt, ...]:
    """A tile of u16 in another type."""
    steps = _Steps(_retyped(op.args[0]), op, names)
    steps.add("add", i16, -(1 << 15)).add("cast", f32).add("add", f32, 32768.0)
    return steps.to(_retyped(op.results[0]))


def _narrowed(op: Op, names: Names) -> tuple[Stmt, ...]:
    """A tile of floats, without fractions, as far as u16 go: NaN gives 0."""
    steps = _Steps(op.args[0], op, names)
    steps.add("cast", i32).add("max", i32, 0).add("min", i32, 65535).add("cast", f32)
    steps.add("sub", f32, 32768.0).add("cast", i16).add("add", i16, -(1 << 15))
    return steps.to(_retyped(op.results[0]))


class _Steps:
    """Operations on tiles, each on the result of the one before."""

    def __init__(self, tile: Any, op: Op, names: Names) -> None:
        self.tile, self.op, self.names = tile, op, names
        self.done: list[Op] = []

    def add(self, name: str, dtype: DType, number: float | None = None) -> _Steps:
        args = (self.tile,) if number is None else (self.tile, Const(number, ScalarType(dtype)))
        result = self.names.fresh(self.tile.name, replace(self.tile.type, dtype=dtype))
        attrs = (("dtype", dtype),) if name == "cast" else ()
        self.done.append(Op(name, (result,), args, attrs, loc=self.op.loc))
        self.tile = result
        return self

    def to(self, result: Any) -> tuple[Stmt, ...]:
        """The steps; the last one, or a conversion behind it, gives `result`."""
        if self.tile.type.dtype != result.type.dtype:
            self.add("cast", result.type.dtype)
        last = self.done.pop()
        return (*self.done, replace(last, results=(result,)))


def _turned(value: Operand, result: Any, dtype: DType, op: Op) -> Op:
    """A tile with the other highest bit."""
    lowest = Const(-(1 << dtype.bits - 1), ScalarType(dtype))
    return Op("add", (result,), (value, lowest), loc=op.loc)


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
