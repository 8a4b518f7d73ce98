# SPDX-License-Identifier: MIT
"""Large nests over the rows of one group, divided among the workers.

The nest becomes a range function over its rows.  What it accumulates over all rows (sums over leading axes, or over
everything) every range puts together for itself, in a place given by its number; the places are combined in order
afterwards.  How many ranges there are follows from the extents alone, so the result does not depend on the workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import DType
from pto_jit.slotted import replace
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import (
    I32,
    I64,
    PTR,
    VOID,
    Index,
    Value,
    i64,
    number,
    numbers,
    register_type,
    vector,
    zero,
)
from pto_jit.targets.cpu.elementwise import Elementwise, from_memory, splat, to_memory
from pto_jit.targets.cpu.folds import Folds, reduce_identity
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.nest import DIVIDE, Inputs, NestWriter, Strided, row_count
from pto_jit.targets.cpu.packing import TOGETHER
from pto_jit.targets.cpu.parallel import Capture, range_function
from pto_jit.targets.cpu.values import remap
from pto_jit.targets.loops.form import Kept, Nest, Result

_RANGE = 1 << 15  # elements of a range given to a worker at a time
_WORTH = 12  # elements of a range for each one that it accumulates apart, which is filled, and added to the result
_PLACES = 64  # ranges at most when each has a place of its own to accumulate in


def divide_nest(
    w: FunctionWriter, nest: Nest, inputs: Inputs, accumulated: Sequence[tuple[Result, Index]]
) -> NestWriter:
    """Write a nest as a range function over its rows, called for ranges of them when it has many elements.

    `accumulated`: the results that all rows contribute to, with the number of elements of each (contiguous).
    """
    outer = w.code
    rows = row_count(outer, inputs)
    total = outer.mul(*inputs.extents)
    per_row = outer.max(outer.div(total, outer.max(rows, 1)), 1)
    large = outer.compare(">=", total, DIVIDE)
    grain = outer.max(outer.div(i64(_RANGE), per_row), 1)
    if accumulated:
        grain = outer.max(grain, outer.div(outer.add(rows, _PLACES - 1), _PLACES))
        apart = outer.add(0, *(count for _, count in accumulated))
        grain = outer.max(grain, outer.div(outer.mul(_WORTH, apart), per_row))
    if any(_gaps(s) for s in inputs.memory.values()):
        grain = outer.floor(outer.add(grain, TOGETHER - 1), TOGETHER)  # whole numbers of packs
    grain = outer.pick(large, grain, outer.max(rows, 1))
    places, room = _places(w, rows, grain, accumulated)

    capture = Capture(outer)
    captured = (inputs, grain, places, tuple(accumulated))
    remap(captured, capture.keep)
    function = range_function(w, "nest")
    worker, context, begin, end = function.args
    inner = Code(function, worker)
    ops = Elementwise(lambda: inner.b, w.module.host.scalef, w.module.fast)
    mine, inner_grain, inner_places, inner_accumulated = remap(captured, capture.unpack(inner, context))
    memory = dict(mine.memory)
    for (what, count), (base, size) in zip(inner_accumulated, inner_places, strict=True):
        place = inner.offset(base, inner.mul(inner.div(begin, inner_grain), size))
        _fill(inner, what, count, place, w.module.host.width)
        memory[Kept(what.name)] = replace(memory[Kept(what.name)], pointer=place)
    mine = replace(mine, memory=memory)
    blocks: list[Value] = []

    def scratch(size: Index) -> Value:
        pointer = inner.call("pto_scratch_push", PTR, [inner.worker, i64(inner.max(size, 64))])
        bad, good = inner.block("no_memory"), inner.block("good")
        inner.b.cbranch(inner.b.icmp_unsigned("!=", pointer, zero(PTR)), good, bad).set_weights([2000, 1])
        inner.at(bad)
        inner.leave_with(number(I32, 1))
        inner.at(good)
        blocks.append(pointer)
        return pointer

    writer = NestWriter(inner, ops, nest, mine, w.module.host.width, scratch)
    writer.write(begin, end)
    if blocks:
        inner.call("pto_scratch_pop", VOID, [inner.worker, blocks[0]])
    if any(s is not False for s in inputs.streams.values()):
        inner.call("llvm.x86.sse.sfence", VOID, [])
    inner.go(inner.leave)
    inner.at(inner.leave)
    inner.b.ret(inner.b.load(inner.status, typ=I32))
    inner.finish()

    block = capture.pack()

    run_range(outer, function, block, rows, grain, large)
    ranges = outer.div(outer.add(rows, outer.sub(grain, 1)), grain)
    for (what, count), (base, size) in zip(accumulated, places, strict=True):
        _combine(w, what, count, inputs.memory[Kept(what.name)], base, size, ranges)
    if room is not None:
        outer.call("pto_scratch_pop", VOID, [outer.worker, room])
    return writer


def _gaps(memory: Strided) -> bool:
    """Whether the elements of a row may not lie side by side, so that rows are packed, several at a time."""
    return bool(memory.strides) and not isinstance(memory.strides[-1], int)


def _places(
    w: FunctionWriter, rows: Index, grain: Index, accumulated: Sequence[tuple[Result, Index]]
) -> tuple[tuple[tuple[Value, Index], ...], Value | None]:
    """For each accumulated result the memory of all ranges and the bytes of one; the block that they are in."""
    code = w.code
    if not accumulated:
        return (), None
    ranges = code.max(code.div(code.add(rows, code.sub(grain, 1)), grain), 1)
    sizes = [code.floor(code.add(code.mul(n, a.dtype.bytes), 63), 64) for a, n in accumulated]
    room = code.call("pto_scratch_push", PTR, [code.worker, i64(code.max(code.mul(ranges, code.add(*sizes)), 64))])
    w.got_memory(room)
    out: list[tuple[Value, Index]] = []
    at: Index = 0
    for size in sizes:
        out.append((code.offset(room, at), size))
        at = code.add(at, code.mul(ranges, size))
    return tuple(out), room


def _each_vector(code: Code, dtype: DType, count: Index, width: int, body) -> None:
    """`body(offset in bytes, lanes, mask)` over `count` contiguous elements."""
    bits = 32 if dtype.kind == "f" and dtype.bits == 16 else max(dtype.bits, 8)
    lanes = width * 8 // bits
    if isinstance(count, int) and count == 1:
        body(0, 1, None)
        return

    def step(i: Value, _: list[Value]) -> Sequence[Value]:
        left = code.b.trunc(code.min(code.sub(count, i), lanes), I32)
        mask = code.b.icmp_signed("<", numbers(I32, range(lanes)), splat(code.b, left, lanes))
        body(code.mul(i, dtype.bytes), lanes, mask)
        return ()

    code.loop(0, count, lanes, body=step, name="places")


def _fill(code: Code, what: Result, count: Index, place: Value, width: int) -> None:
    """The identity of the reduction everywhere."""

    def body(at: Index, lanes: int, mask: Value | None) -> None:
        value = reduce_identity(str(what.late), what.dtype, vector(register_type(what.dtype), lanes))
        save(code, code.offset(place, at), to_memory(code.b, value, what.dtype), what.dtype, mask)

    _each_vector(code, what.dtype, count, width, body)


def run_range(code: Code, function: Value, context: Value, count: Index, grain: Index, large: bool | Value) -> None:
    """Call a range function for all of so many iterations: by the workers where they are worth it, else here."""

    def divided() -> list[Value]:
        return [code.call("pto_parallel_for", I32,
                          [code.worker, function, context, number(I64, 0), i64(count), i64(grain)])]  # fmt: skip

    def alone() -> list[Value]:
        return [code.b.call(function, [code.worker, context, number(I64, 0), i64(count)])]

    code.check_status(code.choose(large, divided, alone)[0])


def _combine(
    w: FunctionWriter, what: Result, count: Index, memory: Strided, base: Value, size: Index, ranges: Index
) -> None:
    """Add what the ranges accumulated to the result, one after the other."""
    code = w.code
    folds = Folds(lambda: code.b, w.ops)

    def one(k: Value, _: list[Value]) -> Sequence[Value]:
        place = code.offset(base, code.mul(k, size))

        def body(at: Index, lanes: int, mask: Value | None) -> None:
            have, more = (from_memory(code.b, load(code, code.offset(p, at), what.dtype, lanes, mask), what.dtype)
                          for p in (memory.pointer, place))  # fmt: skip
            out = to_memory(code.b, folds.combine(str(what.late), what.dtype, have, more), what.dtype)
            save(code, code.offset(memory.pointer, at), out, what.dtype, mask)

        _each_vector(code, what.dtype, count, w.module.host.width, body)
        return ()

    code.loop(0, ranges, body=one, name="ranges")
