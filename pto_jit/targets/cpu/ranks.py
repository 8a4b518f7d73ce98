# SPDX-License-Identifier: MIT
"""Ranks: elements as unsigned integers that order as the elements are to stand; rows of them by vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import (
    I1,
    I32,
    I64,
    Index,
    Value,
    i64,
    number,
    numbers,
    register_type,
    storage_type,
    vector,
    zero,
)
from pto_jit.targets.cpu.elementwise import from_memory, splat, to_memory
from pto_jit.targets.cpu.merging import block_length, merge_sort
from pto_jit.targets.cpu.vector import lane_count

DIGIT = 8
"""Bits that are counted at a time."""

def rank_bits(dtype: DType) -> tuple[int, int]:
    """The bits of a rank that say something, and those of the integer that holds it."""
    said = max(dtype.bits, 32 if dtype.kind == "f" else DIGIT)
    return said, max(said, 32)


def rank_of(b: Any, x: Value, dtype: DType, descending: bool) -> Value:
    """Elements as unsigned integers: smaller ones come first."""
    said, bits = rank_bits(dtype)
    typ = vector(ir.IntType(bits), lane_count(x.type))
    every = number(typ, (1 << said) - 1)
    if dtype.kind == "f":
        x = b.fadd(x, number(x.type, 0.0))  # -0.0 and 0.0 are equal
        raw = b.bitcast(x, typ)
        turned = b.or_(b.ashr(raw, number(typ, bits - 1)), number(typ, 1 << (bits - 1)))
        rank = b.select(b.fcmp_unordered("uno", x, x), every, b.xor(raw, turned))
    else:
        rank = x if x.type == typ else b.zext(x, typ)
        if dtype.kind == "i":
            rank = b.xor(rank, number(typ, 1 << (said - 1)))
    return b.xor(rank, every) if descending else rank


def unranked(b: Any, rank: Value, dtype: DType, descending: bool) -> Value:
    """The elements of ranks; 0.0 for either zero, and one NaN for all."""
    said, _ = rank_bits(dtype)
    typ = rank.type
    if descending:
        rank = b.xor(rank, number(typ, (1 << said) - 1))
    if dtype.kind == "f":
        positive = b.icmp_signed("<", rank, number(typ, 0))
        raw = b.select(positive, b.xor(rank, number(typ, 1 << (said - 1))), b.not_(rank))
        return b.bitcast(raw, vector(register_type(dtype), lane_count(typ)))
    if dtype.kind == "b":
        return b.icmp_unsigned("!=", rank, number(typ, 0))
    if dtype.kind == "i":
        rank = b.xor(rank, number(typ, 1 << (said - 1)))
    out = vector(register_type(dtype), lane_count(typ))
    return rank if out == typ else b.trunc(rank, out)


def each_vector(code: Code, count: Index, stop: Index, lanes: int, init: Sequence[Value], body: Any) -> list[Value]:
    """`body(i, mask, state)` for vectors of lanes up to `stop`, of which those below `count` are in the mask."""

    def vector_at(i: Value, state: list[Value]) -> Sequence[Value]:
        left = code.b.trunc(code.max(code.min(code.sub(count, i), lanes), 0), I32)
        mask = code.b.icmp_signed("<", numbers(I32, tuple(range(lanes))), splat(code.b, left, lanes))
        return body(i, mask, state)

    return code.loop(0, stop, lanes, init, vector_at, name="vectors")


def whole_blocks(code: Code, n: Value, width: int, bits: int) -> Index:
    length = block_length(width, bits)
    return code.floor(code.add(n, length - 1), length)


def copy_element(code: Code, dtype: DType, source: Value, target: Value, at: Index) -> Sequence[Value]:
    value = code.b.load(source, typ=storage_type(dtype), align=dtype.bytes)
    code.b.store(value, code.offset(target, code.mul(at, dtype.bytes)), align=dtype.bytes)
    return ()


def sort_values(
    code: Code, width: int, dtype: DType, descending: bool, row: tuple[Value, Value, Value], n: Value, target: Value,
    block: Value,
) -> None:  # fmt: skip
    """A row's elements in order, by their ranks alone.  row: its address, its stride, where it lies side by side."""
    b, bits = code.b, rank_bits(dtype)[1]
    keys, stride, beside = row
    lanes, size = width * 8 // bits, bits // 8
    typ = vector(ir.IntType(bits), lanes)
    many = whole_blocks(code, n, width, bits)
    block = code.offset(block, 64)  # what lies before is read
    spare = code.offset(block, code.mul(code.add(many, lanes), size))

    def pack(i: Value, mask: Value, state: list[Value]) -> Sequence[Value]:
        raw = load(code, code.offset(beside, code.mul(i, dtype.bytes)), dtype, lanes, mask)
        x = from_memory(b, raw, dtype)
        rank = b.select(mask, rank_of(b, x, dtype, descending), number(typ, -1))
        b.store(rank, code.offset(block, code.mul(i, size)), align=size)
        return [b.or_(old, _is_special(b, x, typ)) for old in state]

    any_special = each_vector(code, n, many, lanes, [zero(vector(I1, lanes))] if dtype.kind == "f" else [], pack)
    found = merge_sort(code, width, bits, block, i64(many), spare)

    def unpack(i: Value, mask: Value, _: list[Value]) -> Sequence[Value]:
        rank = b.load(code.offset(found, code.mul(i, size)), typ=typ, align=size)
        value = to_memory(b, unranked(b, rank, dtype, descending), dtype)
        save(code, code.offset(target, code.mul(i, dtype.bytes)), value, dtype, mask)
        return ()

    each_vector(code, n, n, lanes, (), unpack)
    if any_special:
        with code.when(code.call(f"llvm.vector.reduce.or.v{lanes}i1", I1, any_special), likely=False):
            _zeros_and_nan(code, dtype, descending, keys, stride, n, target, block)


def _is_special(b: Any, x: Value, typ: ir.Type) -> Value:
    """Elements that their ranks do not tell from others: -0.0, and NaN."""
    negative_zero = b.icmp_unsigned("==", b.bitcast(x, typ), number(typ, 1 << (_width(typ) - 1)))
    return b.or_(b.fcmp_unordered("uno", x, x), negative_zero)


def _width(typ: Any) -> int:
    return typ.element.width if isinstance(typ, ir.VectorType) else typ.width


def _zeros_and_nan(
    code: Code, dtype: DType, descending: bool, keys: Value, stride: Value, n: Value, target: Value, spare: Value
) -> None:
    """Zeros of either sign and NaN of any bits, which are equal, to their places in the order they have in the row."""
    b = code.b

    def at(i: Value) -> Value:
        return code.offset(keys, code.mul(i, stride))

    def element(i: Value) -> tuple[Value, Value]:
        x = from_memory(b, b.load(at(i), typ=storage_type(dtype), align=dtype.bytes), dtype)
        return x, b.fcmp_unordered("uno", x, x)

    def count(i: Value, state: list[Value]) -> Sequence[Value]:
        x, nan = element(i)
        before = b.fcmp_ordered(">" if descending else "<", x, number(x.type, 0.0))
        return [code.add(s, b.zext(c, I64)) for s, c in zip(state, (before, nan), strict=True)]

    before, nans = code.loop(0, n, init=[i64(0), i64(0)], body=count, name="count")
    starts = [i64(code.add(before, nans) if descending else before), i64(0 if descending else code.sub(n, nans))]

    def place(i: Value, state: list[Value]) -> Sequence[Value]:
        x, nan = element(i)
        null = b.fcmp_ordered("==", x, number(x.type, 0.0))
        where = b.select(null, state[0], state[1])
        to = b.select(b.or_(null, nan), code.offset(target, code.mul(where, dtype.bytes)), spare)
        copy_element(code, dtype, at(i), to, 0)
        return [code.add(s, b.zext(c, I64)) for s, c in zip(state, (null, nan), strict=True)]

    code.loop(0, n, init=starts, body=place, name="place")
