# SPDX-License-Identifier: MIT
"""Sorting, the k largest, and counting, along the last axis.

A row is sorted as an array of indices by a bottom-up merge sort, which is stable: runs of 1, 2, 4, ... elements are
merged from one index array into another.  NaN comes last (first when descending), as `np.sort` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from pto_jit.dtypes import DType, i32
from pto_jit.ir.nodes import Op
from pto_jit.ir.types import TileType
from pto_jit.targets.cpu.code import (
    I32,
    I64,
    PTR,
    VOID,
    Code,
    Index,
    Value,
    i64,
    number,
    register_type,
    storage_type,
    zero,
)
from pto_jit.targets.cpu.elements import address, each, give, new_tile, read, topk_count, write
from pto_jit.targets.cpu.elementwise import Elementwise, cast, from_memory
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.values import Tile


def _sorter(w: FunctionWriter, dtype: DType, descending: bool) -> ir.Function:
    """`void sort(keys, stride in bytes, n, order, spare)`: the order of a row's elements, as i32 indices."""
    name = f"pto.argsort.{dtype}.{'down' if descending else 'up'}"
    known = w.module.llvm.globals.get(name)
    if known is not None:
        return known
    function = ir.Function(w.module.llvm, ir.FunctionType(VOID, [PTR, I64, I64, PTR, PTR]), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    function.attributes.add("noinline")
    keys, stride, n, order, spare = function.args
    code = Code(function, zero(PTR))
    ops = Elementwise(lambda: code.b, False, False)

    def key(index: Value) -> Value:
        wide = code.b.sext(index, I64)
        raw = code.b.load(code.offset(keys, code.mul(wide, stride)), typ=storage_type(dtype), align=dtype.bytes)
        return from_memory(code.b, raw, dtype)

    def before(x: Value, y: Value) -> Value:
        """Whether y must come before x (strictly, so that equal keys keep their order)."""
        b = code.b
        if dtype.kind == "b":
            return b.and_(y, b.not_(x)) if descending else b.and_(x, b.not_(y))
        if dtype.kind != "f":
            return ops.apply("gt" if descending else "lt", (y, x), dtype, {}, dtype)
        less = b.fcmp_ordered(">" if descending else "<", y, x)
        first, second = (y, x) if descending else (x, y)
        return b.or_(less, b.and_(b.fcmp_unordered("uno", first, first), b.fcmp_ordered("ord", second, second)))

    def start(i: Value, _: list[Value]) -> Sequence[Value]:
        code.b.store(code.b.trunc(i, I32), code.offset(order, code.mul(i, 4)), align=4)
        return ()

    code.loop(0, n, body=start, name="identity")
    entry = code.b.block
    head, again, done = code.block("width"), code.block("wider"), code.block("sorted")
    code.b.cbranch(code.b.icmp_signed("<", number(I64, 1), n), head, done)
    code.at(head)
    width, source, target = code.b.phi(I64), code.b.phi(PTR), code.b.phi(PTR)
    double = code.b.shl(width, number(I64, 1))

    def merge(left: Value, _: list[Value]) -> Sequence[Value]:
        middle = code.min(code.add(left, width), n)
        right = code.min(code.add(left, double), n)

        def pick(k: Value, state: list[Value]) -> Sequence[Value]:
            a, c = state
            b = code.b
            a_in, c_in = b.icmp_signed("<", a, middle), b.icmp_signed("<", c, right)
            safe_a, safe_c = b.select(a_in, a, number(I64, 0)), b.select(c_in, c, number(I64, 0))
            ia = b.load(code.offset(source, code.mul(safe_a, 4)), typ=I32, align=4)
            ic = b.load(code.offset(source, code.mul(safe_c, 4)), typ=I32, align=4)
            second_first = before(key(ia), key(ic))
            b = code.b
            take_c = b.and_(c_in, b.or_(b.not_(a_in), second_first))
            b.store(b.select(take_c, ic, ia), code.offset(target, code.mul(k, 4)), align=4)
            return (b.add(a, b.zext(b.not_(take_c), I64)), b.add(c, b.zext(take_c, I64)))

        code.loop(left, right, init=[left, i64(middle)], body=pick, name="merge")
        return ()

    # a loop over the runs whose step is a run-time value
    code.loop(0, n, step=double, body=merge, name="runs")
    code.b.branch(again)
    code.at(again)
    for phi, first, following in ((width, number(I64, 1), double), (source, order, target), (target, spare, source)):
        phi.add_incoming(first, entry if entry is not head else head)
        phi.add_incoming(following, again)
    code.b.cbranch(code.b.icmp_signed("<", double, n), head, done)
    code.at(done)
    last = code.b.phi(PTR)
    last.add_incoming(order, entry)
    last.add_incoming(target, again)

    def move(i: Value, _: list[Value]) -> Sequence[Value]:
        value = code.b.load(code.offset(last, code.mul(i, 4)), typ=I32, align=4)
        code.b.store(value, code.offset(order, code.mul(i, 4)), align=4)
        return ()

    with code.when(code.b.icmp_unsigned("!=", last, order)):
        code.loop(0, n, body=move, name="move")
    code.b.branch(code.leave)
    code.at(code.leave)
    code.b.ret_void()
    code.finish()
    return function


def _rows(w: FunctionWriter, op: Op, descending: bool, use: Any) -> None:
    """For each row of the operand its order, in scratch memory: `use(indices, order)`."""
    code = w.code
    tile = w.tile(op.args[0])
    n = tile.valid[-1]
    sorter = _sorter(w, tile.dtype, descending)
    size = code.max(code.mul(n, 8), 64)
    block = code.call("pto_scratch_push", PTR, [code.worker, i64(size)])
    w.got_memory(block)
    spare = code.offset(block, code.mul(n, 4))

    def row(i: list[Index]) -> None:
        keys = address(w, tile, [*i, 0])
        code.b.call(sorter, [keys, i64(tile.strides[-1]), i64(n), block, spare])
        use(i, Tile(i32, block, (n,), (n,), (4,)))

    each(w, tile.valid[:-1], row)
    code.call("pto_scratch_pop", VOID, [code.worker, block])


def write_sort(w: FunctionWriter, op: Op) -> None:
    tile = w.tile(op.args[0])
    out = new_tile(w, op.results[0], tile.declared, tile.valid)

    def use(i: list[Index], order: Tile) -> None:
        def element(k: list[Index]) -> None:
            index = read(w, order, k)
            if op.op == "argsort":
                write(w, out, [*i, *k], index)
            else:
                write(w, out, [*i, *k], read(w, tile, [*i, w.b.sext(index, I64)]))

        each(w, [tile.valid[-1]], element)

    _rows(w, op, bool(op.attr("descending")), use)
    give(w, op.results[0], out)


def write_topk(w: FunctionWriter, op: Op) -> None:
    k: Any = op.attr("k")
    tile = w.tile(op.args[0])
    count = topk_count(w, op, tile)
    outs = [new_tile(w, r, (*tile.declared[:-1], k), (*tile.valid[:-1], count)) for r in op.results]

    def use(i: list[Index], order: Tile) -> None:
        def element(j: list[Index]) -> None:
            index = read(w, order, j)
            write(w, outs[1], [*i, *j], index)
            write(w, outs[0], [*i, *j], read(w, tile, [*i, w.b.sext(index, I64)]))

        each(w, [count], element)

    _rows(w, op, True, use)
    for r, out in zip(op.results, outs, strict=True):
        give(w, r, out)


def write_histogram(w: FunctionWriter, op: Op) -> None:
    """Counts of the integers below `bins` along the last axis; others are left out."""
    bins: Any = op.attr("bins")
    code = w.code
    tile = w.tile(op.args[0])
    result = op.results[0]
    assert isinstance(result.type, TileType)
    extents = (*tile.valid[:-1], bins)
    out = new_tile(w, result, (*tile.declared[:-1], bins), extents)
    each(w, extents, lambda i: write(w, out, i, number(I32, 0)))
    from pto_jit.dtypes import i64 as wide_dtype

    def count(i: list[Index]) -> None:
        value = cast(w.b, read(w, tile, i), tile.dtype, wide_dtype)
        with code.when(w.b.icmp_unsigned("<", value, number(I64, bins))):
            place = [*i[:-1], value]
            write(w, out, place, w.b.add(read(w, out, place), number(I32, 1)))

    each(w, tile.valid, count)
    give(w, result, out)


__all__ = ["register_type", "write_histogram", "write_sort", "write_topk"]
