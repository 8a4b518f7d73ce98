# SPDX-License-Identifier: MIT
"""Unsigned integers of 32 and 16 bits as signed ones, where that gives the same bits.

The vector core has no unsigned arithmetic.  Sums, differences, products, bits and what is only moved or compared for
equality are the same for both.  The order of tiles is that of signed numbers with the other highest bit, which the
lowest number, added, gives; and of 16 bits, these are 32768 less, which f32 adds without rounding.  Of what is shifted
to the right, the copies of the highest bit are cleared.  What is not the same, as a quotient by other numbers than
powers of two, stays as it is, and is refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pto_jit.dtypes import DType, bool_, f32, i16, i32
from pto_jit.ir.nodes import Const, Func, Op, Operand, Stmt
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import defs, operands, rewrite_func, statements, with_operands
from pto_jit.lower.names import Names

_SIGNED = {"u32": i32, "u16": i16}
_SAME = frozenset(
    "load store atomic_add full copy select reshape view broadcast_to transpose tile_slice concat getelem setelem "
    "valid dim add sub mul neg and or xor not shl eq ne sum prod cumsum cumprod".split()
)
"""Operations that do the same to the bits of signed and unsigned integers."""
_WIDE = frozenset(["f32", "f16", "bf16", "i32", "u32"])
"""What tiles of u16 are converted to; and what they are converted from."""
_ORDERED = frozenset(["max", "min", "lt", "le", "gt", "ge"])
"""Operations that do the same if the highest bit of all is the other one."""
_PARTED = frozenset(["shr", "floordiv", "mod"])
"""Operations that, with a power of two, take the upper or the lower bits."""


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
        if not tiles:  # of numbers, the scalar unit's conversions wrap
            return _signed(op.args[0]) is None and source.is_integer and result.is_integer
        return _keeps_bits(source, result) or result.name in _WIDE or source.is_float
    if op.op in _PARTED:
        return isinstance(op.results[0].type, TileType) and (_power(op) is not None or op.op == "shr")
    if op.op in _ORDERED:  # numbers are for the scalar unit, whose sums do not wrap
        return all(isinstance(value, Const) or isinstance(value.type, TileType) for value in (*op.args, *op.results))
    return op.op in _SAME and not op.regions


def _rewritten(stmt: Stmt, names: Names) -> tuple[Stmt, ...]:
    if not isinstance(stmt, Op) or all(_signed(value) is None for value in (*stmt.args, *stmt.results)):
        return (stmt,)
    if stmt.op == "cast":
        source, result = stmt.args[0].type.dtype, stmt.results[0].type.dtype  # type: ignore[union-attr]
        if _as_signed(source) == _as_signed(result):
            stmt = replace(stmt, op="copy", attrs=())
        elif _keeps_bits(source, result) or isinstance(stmt.results[0].type, ScalarType):
            target = _as_signed(result)
            return (replace(with_operands(stmt, _retyped, _retyped), attrs=(("dtype", target),)),)
        else:
            steps = {"u16": _widened, "u32": _as_floats}.get(source.name) or (
                _narrowed if result.name == "u16" else _from_floats)  # fmt: skip
            return steps(stmt, names)
    if stmt.op in _PARTED:
        return (*_parted(stmt, names),)
    signed = with_operands(stmt, _retyped, _retyped)
    return _ordered(stmt, signed, names) if stmt.op in _ORDERED else (signed,)  # type: ignore[arg-type]


def _power(op: Op) -> int | None:
    """By how many bits a shift to the right, quotient or remainder divides; None where that is not known, or all of
    them."""
    by, bits = op.args[1], op.results[0].type.dtype.bits  # type: ignore[union-attr]
    if not isinstance(by, Const):
        return None
    count = int(by.value)
    if op.op != "shr":
        count = count.bit_length() - 1 if count > 0 and not count & (count - 1) else -1
    return count if 0 <= count < bits else None


def _parted(op: Op, names: Names) -> tuple[Stmt, ...]:
    """The bits of a tile above some, or below them."""
    count, dtype = _power(op), _signed(op.results[0])
    assert dtype is not None
    steps = _Steps(_retyped(op.args[0]), op, names)
    if count is None:
        return _shifted(op, steps, dtype)
    if op.op == "mod":
        steps.add("and", dtype, (1 << count) - 1)
    elif count:
        steps.add("shr", dtype, count).add("and", dtype, (1 << dtype.bits - count) - 1)
    else:
        steps.add("copy", dtype)
    return steps.to(_retyped(op.results[0]))


def _shifted(op: Op, steps: _Steps, dtype: DType) -> tuple[Stmt, ...]:
    """A shift to the right by what is not a constant: by 1, without the sign, and by the rest."""
    given, count = steps.tile, _retyped(op.args[1])
    one, zero = Const(1, ScalarType(dtype)), Const(0, ScalarType(dtype))
    less = steps.names.fresh("less", count.type)
    none = steps.names.fresh("none", replace(count.type, dtype=bool_))
    steps.done += [Op("sub", (less,), (count, one), loc=op.loc), Op("eq", (none,), (count, zero), loc=op.loc)]
    if not isinstance(given.type, TileType):  # by a tile of counts
        full = steps.names.fresh("given", replace(count.type, dtype=dtype))
        steps.done += [Op("sub", (full,), (count, count), loc=op.loc)]
        steps.tile = full
        given = steps.with_tile("add", given).tile
    steps.add("shr", dtype, 1).add("and", dtype, (1 << dtype.bits - 1) - 1)
    result = _retyped(op.results[0])
    rest = steps.names.fresh(result.name, result.type)
    steps.done.append(Op("shr", (rest,), (steps.tile, less), loc=op.loc))
    return (*steps.done, Op("select", (result,), (none, given, rest), loc=op.loc))


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


def _keeps_bits(source: DType, result: DType) -> bool:
    """Whether a conversion of integers gives the lower bits of signed ones, too, or whether there are any."""
    if source.is_float or result.is_float or 64 in (source.bits, result.bits):
        return False
    return result.kind == "b" or source.kind != "u" or source.bits == 8 or result.bits <= source.bits


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


def _as_floats(op: Op, names: Names) -> tuple[Stmt, ...]:
    """A tile of u32 in floats: of both halves, which f32 holds, the sum is rounded once."""
    tile = _retyped(op.args[0])
    upper, lower = _Steps(tile, op, names), _Steps(tile, op, names)
    upper.add("shr", i32, 16).add("and", i32, 0xFFFF).add("cast", f32).add("mul", f32, 65536.0)
    lower.add("and", i32, 0xFFFF).add("cast", f32)
    return (*upper.done, *lower.with_tile("add", upper.tile).to(_retyped(op.results[0])))


def _from_floats(op: Op, names: Names) -> tuple[Stmt, ...]:
    """Floats as u32, as far as these go: from 2**31 on what is more than that, with the highest bit; NaN gives 0."""
    steps = _Steps(op.args[0], op, names)
    if op.args[0].type.dtype != f32:  # type: ignore[union-attr]
        steps.add("cast", f32)
    given, bool_tile = steps.tile, replace(steps.tile.type, dtype=bool_)
    large = names.fresh("large", bool_tile)
    steps.done.append(Op("ge", (large,), (given, Const(2.0**31, ScalarType(f32))), loc=op.loc))
    top = names.fresh("top", replace(bool_tile, dtype=i32))
    numbers = (Const(-(1 << 31), ScalarType(i32)), Const(0, ScalarType(i32)))
    steps.done.append(Op("select", (top,), (large, *numbers), loc=op.loc))
    rest = steps.add("sub", f32, 2.0**31).tile
    steps.tile = names.fresh("rest", given.type)
    steps.done.append(Op("select", (steps.tile,), (large, rest, given), loc=op.loc))
    return steps.add("cast", i32).add("max", i32, 0).with_tile("add", top).to(_retyped(op.results[0]))


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

    def with_tile(self, name: str, other: Any) -> _Steps:
        result = self.names.fresh(self.tile.name, self.tile.type)
        self.done.append(Op(name, (result,), (self.tile, other), loc=self.op.loc))
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
