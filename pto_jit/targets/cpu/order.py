# SPDX-License-Identifier: MIT
"""Sorting and counting along the last axis.

Every element gets a rank, an unsigned integer that orders as the elements are to stand; what is sorted are pairs of a
rank and an index.  Short rows are sorted by insertion, longer ones by vectors (`merging`) as 64-bit integers of both,
the longest by counting digits of 8 bits from the lowest on (a radix sort).  All of these are stable.  Values are sorted
by their ranks alone, by vectors.  NaN comes last (first when descending), as `np.sort` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, i32
from pto_jit.dtypes import i64 as i64_dtype
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import (
    I1,
    I32,
    I64,
    PTR,
    VOID,
    Index,
    Value,
    i64,
    number,
    numbers,
    storage_type,
    vector,
    zero,
)
from pto_jit.targets.cpu.elements import address, each, give, line, need_places, new_tile, read, unrolled, write
from pto_jit.targets.cpu.elementwise import cast, from_memory, splat
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.merging import merge_sort
from pto_jit.targets.cpu.ranks import DIGIT, copy_element, each_vector, rank_bits, rank_of, sort_values, whole_blocks
from pto_jit.targets.cpu.sharing import share_lines
from pto_jit.targets.cpu.tiles import copy_region, fill_tile
from pto_jit.targets.cpu.values import Tile

_FEWEST = 10  # elements of a row up to which insertion is faster than vectors
_ANY = (1 << 31) - 1  # elements of a row at most: their indices are i32
_VALUES = {(64, 32): _ANY, (64, 64): _ANY, (32, 32): _ANY, (32, 64): 4096}
"""By the bytes of a register and the bits of a rank, the longest rows that vectors sort faster than counting does."""
_PAIRS = {64: 4096, 32: 256}  # the same for integers of rank and index, by the bytes of a register
SORTING = 16  # what an element that is sorted costs, in copies of one
_COUNTS = 4 << DIGIT  # bytes of the counters of one digit


@frozen(eq=False)
class Ranked:
    """A row of ranks and the indices of their elements, in memory."""

    ranks: Value
    order: Value
    typ: ir.IntType

    @property
    def size(self) -> int:
        return self.typ.width // 8

    def rank(self, code: Code, at: Index) -> Value:
        return code.b.load(code.offset(self.ranks, code.mul(at, self.size)), typ=self.typ, align=self.size)

    def index(self, code: Code, at: Index) -> Value:
        return code.b.load(code.offset(self.order, code.mul(at, 4)), typ=I32, align=4)

    def put(self, code: Code, at: Index, rank: Value, index: Value) -> None:
        code.b.store(rank, code.offset(self.ranks, code.mul(at, self.size)), align=self.size)
        code.b.store(index, code.offset(self.order, code.mul(at, 4)), align=4)

    def insert(self, code: Code, at: Value, rank: Value, index: Value) -> None:
        """Put an element behind those of the first `at` that do not come after it; the others of them move on."""
        before = code.b.block
        head, look, move, done = (code.block(name) for name in ("insert", "look", "move", "found"))
        code.b.branch(head)
        code.at(head)
        place = code.b.phi(I64)
        code.b.cbranch(code.b.icmp_signed(">", place, number(I64, 0)), look, done)
        code.at(look)
        left = code.b.sub(place, number(I64, 1))
        above = self.rank(code, left)
        code.b.cbranch(code.b.icmp_unsigned(">", above, rank), move, done)
        code.at(move)
        self.put(code, place, above, self.index(code, left))
        code.b.branch(head)
        place.add_incoming(at, before)
        place.add_incoming(left, move)
        code.at(done)
        self.put(code, place, rank, index)


def row_function(w: FunctionWriter, name: str, arguments: list[ir.Type]) -> Code | None:
    """The writer of a function of the module that gives nothing; None where it is there already."""
    if name in w.module.llvm.globals:
        return None
    function = ir.Function(w.module.llvm, ir.FunctionType(VOID, arguments), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    return Code(function, zero(PTR))


def end_row_function(code: Code) -> None:
    code.b.branch(code.leave)
    code.at(code.leave)
    code.b.ret_void()
    code.finish()


def rank_at(code: Code, keys: Value, stride: Value, i: Value, dtype: DType, descending: bool) -> Value:
    raw = code.b.load(code.offset(keys, code.mul(i, stride)), typ=storage_type(dtype), align=dtype.bytes)
    return rank_of(code.b, from_memory(code.b, raw, dtype), dtype, descending)


def sorter(w: FunctionWriter, dtype: DType, descending: bool) -> str:
    """`void sort(keys, stride in bytes, n, block)`: the order of a row's elements, as i32 indices at `block`."""
    name = f"pto.argsort.{dtype}.{'down' if descending else 'up'}"
    code = row_function(w, name, [PTR, I64, I64, PTR])
    if code is None:
        return name
    keys, stride, n, block = code.function.args
    said, bits = rank_bits(dtype)
    spare = code.offset(block, code.mul(n, 4))
    ranks = code.offset(block, code.mul(n, 8))
    others = code.offset(ranks, code.mul(n, bits // 8))
    row = Ranked(ranks, block, ir.IntType(bits))

    def put(i: Value, _: list[Value]) -> Sequence[Value]:
        row.put(code, i, rank_at(code, keys, stride, i, dtype, descending), code.b.trunc(i, I32))
        return ()

    width = w.module.vector_bytes
    vectors: bool | Value = False
    if width in _PAIRS:
        fits = code.all_of([code.compare("<=", n, _PAIRS[width]), code.compare(">", n, _FEWEST)])
        beside = code.all_of([fits, code.compare("==", stride, dtype.bytes)])
        vectors = code.choose(
            beside,
            lambda: (_by_pairs(code, width, dtype, descending, keys, n, block),),
            lambda: (number(I1, False),),
        )[0]
    short = code.compare("<=", n, _short(said))
    with code.when(code.all_of([short, negated(code, vectors)])):
        _by_insertion(code, row, (keys, stride), n, dtype, descending)
    with code.when(code.all_of([negated(code, short), negated(code, vectors)])):
        code.loop(0, n, body=put, name="rank")
        counts = code.offset(others, code.mul(n, bits // 8))
        _by_digits(code, row, Ranked(others, spare, row.typ), n, counts, said // DIGIT)
    end_row_function(code)
    return name


def _by_insertion(
    code: Code, row: Ranked, keys: tuple[Value, Value], n: Value, dtype: DType, descending: bool
) -> None:
    """Fill `row` in order; keys: the address of the elements, and the bytes from one to the next."""

    def insert(i: Value, _: list[Value]) -> Sequence[Value]:
        rank = rank_at(code, *keys, i, dtype, descending)
        row.insert(code, i, rank, code.b.trunc(i, I32))
        return ()

    code.loop(0, n, body=insert, name="element")


def negated(code: Code, condition: bool | Value) -> bool | Value:
    return not condition if isinstance(condition, bool) else code.b.not_(condition)


def _by_pairs(
    code: Code, width: int, dtype: DType, descending: bool, keys: Value, n: Value, block: Value
) -> Value:
    """The order of a row of elements side by side, as i32 indices at `block`: 64-bit integers of rank and index are
    sorted.

    Of ranks of 64 bits they have the leading ones of those that differ in the row; gives whether that was enough.
    """
    b, lanes, wide = code.b, width // 8, vector(I64, width // 8)
    bits = rank_bits(dtype)[1]
    room = 32 if bits == 32 else (_PAIRS[width] - 1).bit_length()  # bits of an index
    many = whole_blocks(code, n, width, 64)
    pairs = code.offset(block, code.floor(code.add(code.mul(n, 4), 127), 64))
    spare = code.offset(pairs, code.mul(code.add(many, lanes), 8))
    ranks = _WideRanks(code, code.offset(spare, code.mul(code.add(many, lanes), 8)), lanes) if bits == 64 else None

    def rank_at(i: Value, mask: Value) -> Value:
        raw = load(code, code.offset(keys, code.mul(i, dtype.bytes)), dtype, lanes, mask)
        return rank_of(b, from_memory(b, raw, dtype), dtype, descending)

    if ranks is not None:
        ranks.write(n, rank_at, room)

    def pack(i: Value, mask: Value, _: list[Value]) -> Sequence[Value]:
        rank = b.zext(rank_at(i, mask), wide) if ranks is None else ranks.leading(i)
        index = b.add(splat(b, i, lanes), numbers(I64, tuple(range(lanes))))
        pair = b.or_(b.shl(rank, number(wide, room)), index)
        b.store(b.select(mask, pair, number(wide, -1)), code.offset(pairs, code.mul(i, 8)), align=8)
        return ()

    each_vector(code, n, many, lanes, (), pack)
    found = merge_sort(code, width, 64, pairs, i64(many), spare)

    def unpack(i: Value, mask: Value, _: list[Value]) -> Sequence[Value]:
        pair = b.and_(b.load(code.offset(found, code.mul(i, 8)), typ=wide, align=8), number(wide, (1 << room) - 1))
        save(code, code.offset(block, code.mul(i, 4)), b.trunc(pair, vector(I32, lanes)), i32, mask)
        return ()

    each_vector(code, n, n, lanes, (), unpack)
    return number(I1, True) if ranks is None else ranks.in_order(block, n)


class _WideRanks:
    """Ranks of 64 bits in memory, whose leading bits are sorted beside indices."""

    def __init__(self, code: Code, place: Value, lanes: int) -> None:
        self.code, self.place, self.lanes = code, place, lanes
        self.typ = vector(I64, lanes)

    def write(self, n: Value, rank_at: Callable[[Value, Value], Value], room: int) -> None:
        """Fill the memory, and see which bits the ranks differ in: `room` bits are for an index."""
        code, b, typ = self.code, self.code.b, self.typ
        suffix = f".v{self.lanes}i64"
        every = number(typ, -1)

        def body(i: Value, mask: Value, state: list[Value]) -> Sequence[Value]:
            rank = rank_at(i, mask)
            b.store(rank, code.offset(self.place, code.mul(i, 8)), align=8)
            pairs = zip(("umin", "umax"), state, (every, zero(typ)), strict=True)
            return [code.call(f"llvm.{op}{suffix}", typ, [old, b.select(mask, rank, none)]) for op, old, none in pairs]

        ends = each_vector(code, n, n, self.lanes, [every, zero(typ)], body)
        self.least, most = (code.call(f"llvm.vector.reduce.{op}{suffix}", I64, [v])
                            for op, v in zip(("umin", "umax"), ends, strict=True))  # fmt: skip
        zeros = code.call("llvm.ctlz.i64", I64, [b.sub(most, self.least), number(I1, False)])
        self.dropped = i64(code.max(code.sub(room, zeros), 0))

    def leading(self, i: Value) -> Value:
        """The bits of a vector of ranks that have room beside an index."""
        b = self.code.b
        rank = b.load(self.code.offset(self.place, self.code.mul(i, 8)), typ=self.typ, align=8)
        return b.lshr(b.sub(rank, splat(b, self.least, self.lanes)), splat(b, self.dropped, self.lanes))

    def in_order(self, block: Value, n: Value) -> Value:
        """Whether the indices at `block` are the order, which they are where no bits were dropped."""
        code, b = self.code, self.code.b

        def body(i: Value, state: list[Value]) -> Sequence[Value]:
            index = b.zext(b.load(code.offset(block, code.mul(i, 4)), typ=I32, align=4), I64)
            rank = b.load(code.offset(self.place, code.mul(index, 8)), typ=I64, align=8)
            return [rank, b.and_(state[1], b.icmp_unsigned("<=", state[0], rank))]

        def checked() -> Sequence[Value]:
            return code.loop(0, n, init=[number(I64, 0), number(I1, True)], body=body, name="check")[1:]

        whole = b.icmp_unsigned("==", self.dropped, number(I64, 0))
        return code.choose(whole, lambda: (number(I1, True),), checked)[0]


def _value_sorter(w: FunctionWriter, dtype: DType, descending: bool) -> str:
    """`void sort(keys, stride in bytes, n, target, block)`: a row's elements in order, side by side at `target`."""
    bits, width = rank_bits(dtype)[1], w.module.vector_bytes
    most = _VALUES.get((width, bits), 0)
    order = sorter(w, dtype, descending) if most < _ANY else None
    name = f"pto.sort.{dtype}.{'down' if descending else 'up'}"
    code = row_function(w, name, [PTR, I64, I64, PTR, PTR])
    if code is None:
        return name
    keys, stride, n, target, block = code.function.args

    def near(i: Value, _: list[Value]) -> Sequence[Value]:
        return copy_element(code, dtype, code.offset(keys, code.mul(i, stride)), target, i)

    def one(i: Value, _: list[Value]) -> Sequence[Value]:
        index = code.b.load(code.offset(block, code.mul(i, 4)), typ=I32, align=4)
        return copy_element(code, dtype, code.offset(keys, code.mul(code.b.zext(index, I64), stride)), target, i)

    in_vectors: bool | Value = False
    if most:
        in_vectors = code.all_of([code.compare(">", n, _FEWEST), code.compare("<=", n, most)])
        with code.when(in_vectors):
            beside = code.compare("==", stride, dtype.bytes)
            with code.when(negated(code, beside)):
                code.loop(0, n, body=near, name="gather")
            row = (keys, stride, code.b.select(beside, keys, target))
            sort_values(code, width, dtype, descending, row, n, target, block)
    with code.when(negated(code, in_vectors)):
        if order is not None:
            code.b.call(w.module.llvm.globals[order], [keys, stride, n, block])
        else:
            few = Ranked(code.offset(block, 4 * _FEWEST), block, ir.IntType(bits))
            _by_insertion(code, few, (keys, stride), n, dtype, descending)
        code.loop(0, n, body=one, name="element")
    end_row_function(code)
    return name


def _short(said: int) -> int:
    """The longest row that insertion sorts faster than counting of so many bits."""
    return 24 + said


def _by_digits(code: Code, row: Ranked, other: Ranked, n: Value, counts: Value, digits: int) -> None:
    """Sort `row`; `other` is memory for as many, `counts` for the counters of all digits."""

    def counter(rank: Value, digit: Index) -> Value:
        shift = i64(code.mul(digit, DIGIT))
        shifted = code.b.lshr(rank, shift if row.typ.width == 64 else code.b.trunc(shift, row.typ))
        masked = code.b.and_(shifted, number(row.typ, (1 << DIGIT) - 1))
        wide = masked if row.typ.width == 64 else code.b.zext(masked, I64)
        return code.offset(counts, code.add(code.mul(wide, 4), code.mul(digit, _COUNTS)))

    def clear(i: Value, _: list[Value]) -> Sequence[Value]:
        code.b.store(number(I64, 0), code.offset(counts, code.mul(i, 8)), align=4)
        return ()

    def count(i: Value, _: list[Value]) -> Sequence[Value]:
        rank = row.rank(code, i)
        for digit in range(digits):
            place = counter(rank, digit)
            code.b.store(code.b.add(code.b.load(place, typ=I32, align=4), number(I32, 1)), place, align=4)
        return ()

    def order(digit: Value, state: list[Value]) -> Sequence[Value]:
        here, there = Ranked(state[0], state[1], row.typ), Ranked(state[2], state[3], row.typ)
        alike = code.b.load(counter(here.rank(code, 0), digit), typ=I32, align=4)  # as many have the digit of the first
        apart = code.b.icmp_unsigned("!=", alike, code.b.trunc(n, I32))
        with code.when(apart):
            mine = code.offset(counts, code.mul(digit, _COUNTS))
            _move(code, here, there, n, mine, lambda rank: counter(rank, digit))
        return [code.b.select(apart, x, y) for x, y in zip((*state[2:], *state[:2]), state, strict=True)]

    def back(i: Value, _: list[Value]) -> Sequence[Value]:
        code.b.store(last.index(code, i), code.offset(row.order, code.mul(i, 4)), align=4)
        return ()

    code.loop(0, digits * _COUNTS // 8, body=clear, name="clear")
    code.loop(0, n, body=count, name="count")
    state = [row.ranks, row.order, other.ranks, other.order]
    state = code.loop(0, digits, init=state, body=order, name="digit")
    last = Ranked(state[0], state[1], row.typ)
    with code.when(code.b.icmp_unsigned("!=", last.order, row.order)):
        code.loop(0, n, body=back, name="back")


def _move(
    code: Code, here: Ranked, there: Ranked, n: Value, counts: Value, counter: Callable[[Value], Value]
) -> None:
    """Elements to where those of smaller digits, and those before them of the same, leave room."""

    def sum_up(i: Value, state: list[Value]) -> Sequence[Value]:
        place = code.offset(counts, code.mul(i, 4))
        many = code.b.load(place, typ=I32, align=4)
        code.b.store(state[0], place, align=4)
        return (code.b.add(state[0], many),)

    def move(i: Value, _: list[Value]) -> Sequence[Value]:
        rank, index = here.rank(code, i), here.index(code, i)
        place = counter(rank)
        at = code.b.load(place, typ=I32, align=4)
        code.b.store(code.b.add(at, number(I32, 1)), place, align=4)
        there.put(code, code.b.zext(at, I64), rank, index)
        return ()

    code.loop(0, 1 << DIGIT, init=[number(I32, 0)], body=sum_up, name="places")
    code.loop(0, n, body=move, name="move")


def sorting_room(w: FunctionWriter, dtype: DType, n: Index) -> Index:
    """Bytes of scratch memory to sort a row of n elements."""
    said, bits = rank_bits(dtype)
    each_one = 20 if bits == 32 else 28  # bytes: of pairs with their indices, and wide ranks
    return w.code.add(w.code.mul(n, each_one), said // DIGIT * _COUNTS + 128 + 18 * w.module.vector_bytes)


def rows_in_order(
    w: FunctionWriter, tile: Tile, function: str, arguments: Sequence[Value], room: Index, use: Callable[..., None]
) -> None:
    """For each row of a tile `use(indices of the row, order)`: `function(keys, stride in bytes, n, *arguments, block)`
    leaves the indices of its elements in order, or of the first of them, in scratch memory of `room` bytes."""
    code = w.code
    n = tile.valid[-1]
    block = code.call("pto_scratch_push", PTR, [code.worker, i64(room)])
    w.got_memory(block)
    called = w.module.llvm.globals[function]

    def row(i: list[Index]) -> None:
        code.b.call(called, [address(w, tile, [*i, 0]), i64(tile.strides[-1]), i64(n), *arguments, block])
        use(i, Tile(i32, block, (n,), (n,), (4,)))

    each(w, tile.valid[:-1], row)
    code.call("pto_scratch_pop", VOID, [code.worker, block])


def by_rows(*tiles: Tile) -> list[tuple[Tile, int | None]]:
    """Tiles whose rows, along their last axes, do not depend on each other."""
    return [(tile, 0 if tile.rank > 1 else None) for tile in tiles]


def write_sort(w: FunctionWriter, op: Op) -> None:
    tile = w.tile(op.args[0])
    descending = bool(op.attr("descending"))
    out = new_tile(w, op.results[0], tile.declared, tile.valid)
    if op.op == "sort":
        function = w.module.llvm.globals[_value_sorter(w, tile.dtype, descending)]

        def values(w: FunctionWriter, tiles: list[Tile], _: object) -> None:
            code, (keys, target) = w.code, tiles
            n = keys.valid[-1]
            block = code.call("pto_scratch_push", PTR, [code.worker, i64(sorting_room(w, keys.dtype, n))])
            w.got_memory(block)

            def row(i: list[Index]) -> None:
                at = [*i, 0]
                code.b.call(function, [address(w, keys, at), i64(keys.strides[-1]), i64(n), address(w, target, at),
                                       block])  # fmt: skip

            each(w, keys.valid[:-1], row)
            code.call("pto_scratch_pop", VOID, [code.worker, block])

        share_lines(w, op, by_rows(tile, out), values, cost=SORTING)
    else:
        need_places(w, op, tile.valid[-1:], tile.declared[-1:])
        name = sorter(w, tile.dtype, descending)

        def places(w: FunctionWriter, tiles: list[Tile], _: object) -> None:
            keys, target = tiles

            def use(i: list[Index], order: Tile) -> None:
                to = address(w, target, [*i, 0])
                copy_region(w, i32, to, target.strides[-1:], order.pointer, order.strides, order.valid)

            rows_in_order(w, keys, name, [], sorting_room(w, keys.dtype, keys.valid[-1]), use)

        share_lines(w, op, by_rows(tile, out), places, cost=SORTING)
    give(w, op.results[0], out)


def write_histogram(w: FunctionWriter, op: Op) -> None:
    """Counts of the integers below `bins` along the last axis; others are left out."""
    bins: Any = op.attr("bins")
    tile = w.tile(op.args[0])
    result = op.results[0]
    assert isinstance(result.type, TileType)
    extents = (*tile.valid[:-1], bins)
    need_places(w, op, tile.valid[-1:], tile.declared[-1:])
    out = new_tile(w, result, (*tile.declared[:-1], bins), extents)
    fill_tile(w, out, number(I32, 0))

    def counted(w: FunctionWriter, tiles: list[Tile], _: object) -> None:
        tile, out = tiles

        def row(i: list[Index]) -> None:
            elements, counts = line(w, tile, i), line(w, out, i)

            def count(j: Value) -> None:
                value = cast(w.b, read(w, elements, [j]), tile.dtype, i64_dtype)
                with w.code.when(w.b.icmp_unsigned("<", value, number(I64, bins))):
                    write(w, counts, [value], w.b.add(read(w, counts, [value]), number(I32, 1)))

            unrolled(w, 0, tile.valid[-1], count, "histogram")

        each(w, tile.valid[:-1], row)

    share_lines(w, op, by_rows(tile, out), counted, cost=2)
    give(w, result, out)

