# SPDX-License-Identifier: MIT
"""Products with one row of A, or a few: bounded by reading B once.

``gemv_across(n, k, x, x_step, b, b_rs, y, keep)``: rows of B contiguous; a few rows are read side by side in long runs,
prefetched, while y stays in L1.

``gemv_along(m, n, k, a, a_rs, b, b_cs, c, c_rs, keep)``: columns of B (rows of its transpose) and rows of A contiguous:
dot products, as many columns at once as a vector has lanes, whose partial sums are then added up across the lanes
of all of them by pairwise merging.

Strides in bytes.  Only for schemes whose operands need no packing.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.convert import read
from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.kernel import Arithmetic
from pto_jit.targets.cpu.matmul.shape import STORAGE, Scheme
from pto_jit.targets.cpu.matmul.vectors import lane_mask, low_bits, mangled, masked_load, masked_store, prefetch

ROWS = 8  # rows of B read side by side
AHEAD = 512  # bytes by which columns of B are prefetched: the hardware alone stops at page borders
NEAR = 128  # the same for rows of B, which the hardware fetches well by itself: farther is slower
STREAMS = 8  # columns of B read side by side
CHUNK = 4096  # columns of y kept in L1 at a time


def add_gemv(module: Module, scheme: Scheme) -> None:
    """Define both functions."""
    _across(module, scheme)
    _along(module, scheme)


def _across(module: Module, scheme: Scheme) -> None:
    f = module.function(
        "gemv_across",
        VOID,
        [(I64, "n"), (I64, "k"), (PTR, "x"), (I64, "x_step"), (PTR, "b"), (I64, "b_rs"), (PTR, "y"), (I64, "keep")],
    )
    n, k, x, x_step, b, b_rs, y, keep = f.parameters
    math = Arithmetic(f, scheme)
    lanes, unit = scheme.lanes, scheme.unit
    with f.loop(0, n, CHUNK) as chunk:
        wide = f.minimum(n - chunk.index, CHUNK)
        b_chunk, y_chunk = f.offset(b, chunk.index * unit), f.offset(y, chunk.index * unit)
        rest = wide % lanes
        end = wide - rest
        bits = low_bits(f, rest, lanes)

        def pass_over(first: Value, rows: int) -> None:
            """y += x[first : first + rows] B[first : first + rows]."""
            x_at, b_at = f.offset(x, first * x_step), f.offset(b_chunk, first * b_rs)
            factors, starts = [], []
            for _ in range(rows):
                factors.append(math.broadcast(x_at))
                starts.append(b_at)
                x_at, b_at = f.offset(x_at, x_step), f.offset(b_at, b_rs)

            with f.loop(0, end * unit, lanes * unit) as loop:
                place = f.offset(y_chunk, loop.index)
                total = f.load(math.sum_type, place)
                for factor, start in zip(factors, starts, strict=True):
                    spot = f.offset(start, loop.index)
                    prefetch(f, f.offset(spot, NEAR))
                    total = math.step(total, factor, f.load(math.vector_type, spot))
                f.store(total, place)
            with f.when(rest > 0):
                place = f.offset(y_chunk, end * unit)
                if scheme.machine.masks:
                    mask = lane_mask(f, bits, lanes)
                    total = masked_load(f, math.sum_type, place, mask)
                    for factor, start in zip(factors, starts, strict=True):
                        total = math.step(
                            total, factor, masked_load(f, math.vector_type, f.offset(start, end * unit), mask)
                        )
                    masked_store(f, total, place, mask)
                else:
                    _scalars(f, scheme, rest, x, x_step, first, rows, starts, end, place)

        with f.when(keep.equals(0)):
            _zero(f, scheme, wide, y_chunk)
        whole = k - k % ROWS
        with f.loop(0, whole, ROWS) as group:
            pass_over(group.index, ROWS)
        with f.loop(whole, k) as single:
            pass_over(single.index, 1)
    f.give()


def _zero(f: Function, scheme: Scheme, n: Value, y: Value) -> None:
    vector_bytes = scheme.machine.vector_bytes
    type_ = f"<{vector_bytes} x i8>"
    bytes_ = n * scheme.unit
    whole = bytes_ - bytes_ % vector_bytes
    with f.loop(0, whole, vector_bytes) as loop:
        f.store(Value(f, type_, "zeroinitializer"), f.offset(y, loop.index))
    with f.loop(whole, bytes_, scheme.unit) as loop:
        f.store(Value(f, f"i{8 * scheme.unit}", "0"), f.offset(y, loop.index))


def _scalars(
    f: Function,
    scheme: Scheme,
    rest: Value,
    x: Value,
    x_step: Value,
    first: Value,
    rows: int,
    starts: list[Value],
    end: Value,
    place: Value,
) -> None:
    """The last columns on a machine without masks, one at a time, in the same order of operations."""
    type_ = STORAGE[scheme.combo.c]
    with f.loop(0, rest) as column:
        spot = f.offset(place, column.index * scheme.unit)
        total = f.load(type_, spot)
        at = f.offset(x, first * x_step)
        for i in range(rows):
            factor = f.load(type_, at)
            other = f.load(type_, f.offset(starts[i], (end + column.index) * scheme.unit))
            if scheme.integral:
                total = total + factor * other
            else:
                total = f.intrinsic(f"llvm.fmuladd.{mangled(type_)}", type_, [factor, other, total])
            at = f.offset(at, x_step)
        f.store(total, spot)


def added_across(f: Function, math: Arithmetic, totals: list[Value]) -> Value:
    """Lane i of the result is the sum of all lanes of totals[i]: V vectors of V lanes, halved V times two by two."""
    count, type_ = len(totals), math.sum_type

    def merged(x: Value, y: Value, span: int) -> Value:
        """Sums of neighbouring blocks of ``span`` lanes, x's and y's alternating in blocks."""
        halves = []
        for upper in (0, span):
            order = []
            for block in range(0, count, 2 * span):
                order += [
                    *range(block + upper, block + upper + span),
                    *range(count + block + upper, count + block + upper + span),
                ]
            text = ", ".join(f"i32 {i}" for i in order)
            halves.append(f.emit(type_, f"shufflevector {type_} {x.ref}, {type_} {y.ref}, <{count} x i32> <{text}>"))
        return math.add(*halves)

    span = count // 2
    while len(totals) > 1:
        half = len(totals) // 2
        totals = [merged(totals[i], totals[i + half], span) for i in range(half)]
        span //= 2
    return totals[0]


def _along(module: Module, scheme: Scheme) -> None:
    f = module.function(
        "gemv_along",
        VOID,
        [
            *((I64, "m"), (I64, "n"), (I64, "k"), (PTR, "a"), (I64, "a_rs"), (PTR, "b"), (I64, "b_cs")),
            *((PTR, "c"), (I64, "c_rs"), (I64, "keep")),
        ],
    )
    m, n, k, a, a_rs, b, b_cs, c, c_rs, keep = f.parameters
    math, lanes, unit, machine = Arithmetic(f, scheme), scheme.lanes, scheme.unit, scheme.machine
    scalar = STORAGE[scheme.combo.c]
    zero = Value(f, math.sum_type, "zeroinitializer")
    rest = k % lanes
    end = (k - rest) * unit

    def products(x: Value, columns: list[Value], ahead: bool) -> list[Value]:
        """One vector of partial sums for each column."""
        with f.loop(0, end, lanes * unit, [zero] * len(columns)) as loop:
            factor = f.load(math.vector_type, f.offset(x, loop.index))
            totals = []
            for total, column in zip(loop.carried, columns, strict=True):
                spot = f.offset(column, loop.index)
                if ahead:
                    prefetch(f, f.offset(spot, AHEAD))
                totals.append(math.step(total, factor, f.load(math.vector_type, spot)))
            loop.carry(*totals)
        totals = [f.variable(total) for total in loop.after]
        with f.when(rest > 0):
            factor = read(f, machine, scheme.combo.a, lanes, f.offset(x, end), rest)
            for total, column in zip(totals, columns, strict=True):
                other = read(f, machine, scheme.combo.b, lanes, f.offset(column, end), rest)
                total.set(math.step(total.get(), factor, other))
        return [total.get() for total in totals]

    whole = n - n % lanes
    with f.loop(0, whole, lanes, [b, c]) as group:
        at, to = group.carried
        columns = [at]
        for _ in range(lanes - 1):
            columns.append(f.offset(columns[-1], b_cs))
        with f.loop(0, m, 1, [a, to]) as row:
            x, place = row.carried
            totals: list[Value] = []
            for i in range(0, lanes, STREAMS):
                totals += products(x, columns[i : i + STREAMS], True)
            result = added_across(f, math, totals)
            with f.either(keep.differs(0)) as side:
                f.store(math.add(f.load(math.sum_type, place), result), place)
                side.otherwise()
                f.store(result, place)
            row.carry(f.offset(x, a_rs), f.offset(place, c_rs))
        group.carry(f.offset(at, b_cs * lanes), f.offset(to, lanes * scheme.element_c))
    at, to = group.after
    with f.loop(whole, n, 1, [at, to]) as single:
        column, place = single.carried
        with f.loop(0, m, 1, [a, place]) as row:
            x, spot = row.carried
            merged = added_across(f, math, [*products(x, [column], False), *([zero] * (lanes - 1))])
            result = f.emit(scalar, f"extractelement {math.sum_type} {merged.ref}, i64 0")
            with f.either(keep.differs(0)) as side:
                f.store(f.binary("add" if scheme.integral else "fadd", f.load(scalar, spot), result), spot)
                side.otherwise()
                f.store(result, spot)
            row.carry(f.offset(x, a_rs), f.offset(spot, c_rs))
        single.carry(f.offset(column, b_cs), f.offset(place, scheme.element_c))
    f.give()
