# SPDX-License-Identifier: MIT
"""`topk`: the largest elements of every row, in order, equal ones by their indices.

A row is read once.  With vectors, elements that may be among the k largest are collected in a buffer; when it is full
it is sorted, cut to k, and the last of these says what is collected from then on.  Without, the k largest so far are a
sorted row that the others are inserted into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, i32
from pto_jit.ir.nodes import Op
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I32, I64, PTR, Index, Value, i64, number, numbers, vector
from pto_jit.targets.cpu.elements import give, line, new_tile, read, topk_count, unrolled, write
from pto_jit.targets.cpu.elementwise import from_memory, splat
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.merging import block_length, merge_sort
from pto_jit.targets.cpu.order import (
    SORTING,
    Ranked,
    by_rows,
    end_row_function,
    negated,
    rank_at,
    row_function,
    rows_in_order,
    sorter,
    sorting_room,
)
from pto_jit.targets.cpu.ranks import each_vector, rank_bits, rank_of, whole_blocks
from pto_jit.targets.cpu.sharing import share_lines
from pto_jit.targets.cpu.values import Tile
from pto_jit.targets.cpu.vector import call_intrinsic

_FEW = 64  # the most elements that are kept in a sorted row
_MANY = 2048  # the most elements that are collected; more are sorted
_SHORT = 8  # the longest row that insertion is faster for
_WIDTH = 64  # bytes of a register, from which on some lanes of it are stored side by side at once


def write_topk(w: FunctionWriter, op: Op) -> None:
    k: Any = op.attr("k")
    tile = w.tile(op.args[0])
    count = topk_count(w, op, tile)
    outs = [new_tile(w, r, (*tile.declared[:-1], k), (*tile.valid[:-1], count)) for r in op.results]

    collects = w.module.vector_bytes == _WIDTH and rank_bits(tile.dtype)[1] == 32
    sorts = k > (_MANY if collects else _FEW)
    function = sorter(w, tile.dtype, True) if sorts else _selector(w, tile.dtype, k, collects)

    def rows(w: FunctionWriter, tiles: list[Tile], count: Index) -> None:
        tile, *outs = tiles

        def use(i: list[Index], order: Tile) -> None:
            source, values, places = line(w, tile, i), line(w, outs[0], i), line(w, outs[1], i)

            def element(j: Value) -> None:
                index = read(w, order, [j])
                write(w, places, [j], index)
                write(w, values, [j], read(w, source, [w.b.sext(index, I64)]))

            unrolled(w, 0, count, element, "topk")

        room = sorting_room(w, tile.dtype, tile.valid[-1]) if sorts else _room(w, tile, k, collects)
        rows_in_order(w, tile, function, [] if sorts else [i64(count)], room, use)

    share_lines(w, op, by_rows(tile, *outs), rows, cost=SORTING if sorts else 2, more=count)
    for r, out in zip(op.results, outs, strict=True):
        give(w, r, out)


def _capacity(k: int) -> int:
    """How many elements are collected for the k largest: whole blocks of a sort."""
    block = block_length(_WIDTH, 64)
    return -(-2 * k // block) * block


def _room(w: FunctionWriter, tile: Tile, k: int, collects: bool) -> Index:
    """Bytes of scratch memory for the selection from a row."""
    inserted: Index = _FEW * (4 + rank_bits(tile.dtype)[1] // 8)
    if k > _FEW:
        inserted = sorting_room(w, tile.dtype, tile.valid[-1])
    return w.code.max(inserted, 4 * k + 16 * _capacity(k) + 6 * _WIDTH) if collects else inserted


def _selector(w: FunctionWriter, dtype: DType, k: int, collects: bool) -> str:
    """`void select(keys, stride in bytes, n, count, block)`: the order of the `count` largest, as i32 indices at
    `block`; `count` is at most `k`."""
    name = f"pto.topk.{dtype}.{_capacity(k)}" if collects else f"pto.topk.{dtype}"
    order = sorter(w, dtype, True) if k > _FEW else None
    code = row_function(w, name, [PTR, I64, I64, I64, PTR])
    if code is None:
        return name
    keys, stride, n, count, block = code.function.args
    in_vectors: bool | Value = False
    if collects:
        in_vectors = code.all_of([code.compare("==", stride, dtype.bytes), code.compare(">", n, _SHORT)])
        with code.when(in_vectors):
            _Collection(code, dtype, _capacity(k), block, 4 * k).select(keys, n, count)
    with code.when(code.all_of([negated(code, in_vectors), code.compare(">", count, 0)])):
        if order is None:
            _by_insertion(code, dtype, keys, stride, n, count, block)
        else:
            code.b.call(w.module.llvm.globals[order], [keys, stride, n, block])
    end_row_function(code)
    return name


def _by_insertion(code: Code, dtype: DType, keys: Value, stride: Value, n: Value, count: Value, block: Value) -> None:
    """The largest elements so far as a sorted row."""
    row = Ranked(code.offset(block, 4 * _FEW), block, ir.IntType(rank_bits(dtype)[1]))
    last, b = code.sub(count, 1), code.b

    def element(i: Value, _: list[Value]) -> Sequence[Value]:
        rank = rank_at(code, keys, stride, i, dtype, True)
        room = b.icmp_signed("<", i, count)
        with code.when(b.or_(room, b.icmp_unsigned("<", rank, row.rank(code, last)))):
            row.insert(code, b.select(room, i, i64(last)), rank, b.trunc(i, I32))
        return ()

    code.loop(0, n, body=element, name="element")


class _Collection:
    """Elements that may be among the largest: pairs of rank and index as 64-bit integers, in memory behind the result.

    What is behind the pairs, up to whole blocks, is larger than all of them when they are sorted.
    """

    def __init__(self, code: Code, dtype: DType, capacity: int, block: Value, result_bytes: int) -> None:
        self.code, self.dtype, self.capacity, self.block = code, dtype, capacity, block
        self.lanes = _WIDTH // 8
        self.pair = vector(I64, self.lanes)
        self.pairs = code.offset(block, -(-result_bytes // _WIDTH) * _WIDTH + _WIDTH)  # what lies before is read
        self.spare = code.offset(self.pairs, 8 * capacity + 2 * _WIDTH)

    def select(self, keys: Value, n: Value, count: Value) -> None:
        """Put the order of the `count` largest of n elements side by side at `keys` into the block."""
        code, b, step = self.code, self.code.b, 2 * self.lanes

        def some(i: Value, mask: Value, state: list[Value]) -> Sequence[Value]:
            raw = load(code, code.offset(keys, code.mul(i, self.dtype.bytes)), self.dtype, step, mask)
            rank = rank_of(b, from_memory(b, raw, self.dtype), self.dtype, True)
            wanted = b.and_(mask, b.icmp_unsigned("<=", rank, splat(b, state[3], step)))
            bits = b.bitcast(wanted, ir.IntType(step))
            none = b.icmp_unsigned("==", bits, number(bits.type, 0))
            return code.choose(none, lambda: state, lambda: self._collected(i, rank, wanted, count, state))

        every = number(I32, -1)
        start = [self.pairs, self.spare, number(I64, 0), every]
        pairs, spare, have, limit = each_vector(code, n, n, step, start, some)
        unchanged = code.all_of([code.compare("==", have, count), b.icmp_unsigned("!=", limit, every)])  # since a cut
        (found,) = code.choose(unchanged, lambda: [pairs], lambda: [self._in_order(pairs, spare, have)])

        def unpack(i: Value, mask: Value, _: list[Value]) -> Sequence[Value]:
            pair = b.load(code.offset(found, code.mul(i, 8)), typ=self.pair, align=8)
            save(code, code.offset(self.block, code.mul(i, 4)), b.trunc(pair, vector(I32, self.lanes)), i32, mask)
            return ()

        each_vector(code, count, count, self.lanes, (), unpack)

    def _collected(self, i: Value, rank: Value, wanted: Value, count: Value, state: list[Value]) -> list[Value]:
        """The state after the elements `wanted` of those at i, with room for a vector of them again.

        state: where the pairs are, as much memory, their number, the largest rank that is worth collecting.
        """
        code, b = self.code, self.code.b
        pairs, spare, have, limit = state
        for half in range(2):
            lanes = numbers(I32, tuple(range(half * self.lanes, (half + 1) * self.lanes)))
            some = b.shuffle_vector(wanted, wanted, lanes)
            mine = b.zext(b.shuffle_vector(rank, rank, lanes), self.pair)
            places = b.add(splat(b, i, self.lanes), b.zext(lanes, self.pair))
            pair = b.or_(b.shl(mine, number(self.pair, 32)), places)
            packed = call_intrinsic(b, "experimental.vector.compress", self.pair, pair, some, number(self.pair, -1))
            b.store(packed, code.offset(pairs, code.mul(have, 8)), align=8)
            many = code.call("llvm.ctpop.i8", ir.IntType(8), [b.bitcast(some, ir.IntType(8))])
            have = b.add(have, b.zext(many, I64))
        full = code.compare(">", have, self.capacity - 2 * self.lanes)
        return code.choose(full, lambda: self._cut(pairs, spare, have, count), lambda: [pairs, spare, have, limit])

    def _cut(self, pairs: Value, spare: Value, have: Value, count: Value) -> list[Value]:
        """The state when the `count` first pairs are left.  Ranks equal to the last of these come too late."""
        code, b = self.code, self.code.b
        found = self._in_order(pairs, spare, have)
        other = b.select(b.icmp_unsigned("==", found, pairs), spare, pairs)
        last = b.load(code.offset(found, code.mul(code.sub(count, 1), 8)), typ=I64, align=8)
        rank = b.trunc(b.lshr(last, number(I64, 32)), I32)
        limit = code.call("llvm.usub.sat.i32", I32, [rank, number(I32, 1)])
        return [found, other, i64(count), limit]

    def _in_order(self, pairs: Value, spare: Value, have: Value) -> Value:
        """Sort the pairs; gives where they are then."""
        code, b = self.code, self.code.b
        many = whole_blocks(code, have, _WIDTH, 64)

        def fill(i: Value, _: list[Value]) -> Sequence[Value]:
            b.store(number(self.pair, -1), code.offset(pairs, code.mul(i, 8)), align=8)
            return ()

        code.loop(have, many, self.lanes, body=fill, name="fill")
        return merge_sort(code, _WIDTH, 64, pairs, i64(many), spare)
