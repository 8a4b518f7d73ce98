# SPDX-License-Identifier: MIT
"""Products with one row of A, or a few: bounded by reading B once, where it lies, whatever its dtype.

``gemv_across(m, n, k, a, a_rs, a_cs, b, b_rs, c, c_rs, keep)``: rows of B contiguous.  A few of them are read side by
side in long runs while the rows of C stay in the caches, and their elements become those of C as they are read; all
rows of A meet them before the next few are read.

``gemv_along(m, n, k, a, a_rs, b, b_cs, c, c_rs, keep)``: columns of B (rows of its transpose) and rows of A contiguous:
dot products, column after column as they lie in memory, by the arithmetic of the scheme.  The partial sums of as many
columns as a vector has lanes are then added up across the lanes of all of them by pairwise merging.

Strides in bytes.  Nothing is prefetched: what is read is a few streams of neighbouring lines, which the hardware
follows better without.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.convert import converted, read
from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.kernel import Arithmetic
from pto_jit.targets.cpu.matmul.shape import STORAGE, Scheme
from pto_jit.targets.cpu.matmul.vectors import lane_mask, low_bits, mangled, masked_load, masked_store, splat

HEIGHTS = (4, 1)
"""Rows of A that meet an element of B at once."""
GROUP = 8
"""Rows of B that all rows of A meet before the next ones are read."""
SIDE = {4: 4, 1: 8}
"""Height -> rows of B read side by side."""
RUN = {4: 2, 1: 4}
"""Height -> vectors of a row of B read one after the other."""
CHUNK = 4096
"""Columns of C that are worked on at a time."""
TOGETHER = 4
"""Columns of B read side by side."""
PACKED = {"float": "f32", "double": "f64", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64"}
"""Types of packed elements -> a dtype that is stored so."""


def add_gemv(module: Module, scheme: Scheme) -> None:
    """Define both functions."""
    for height in HEIGHTS:
        for side in (SIDE[height], 1):
            _side_by_side(module, scheme, height, side)
        for together in (TOGETHER, 1):
            _column_by_column(module, scheme, height, together)
    _across(module, scheme)
    _along(module, scheme)


def _by_height(f: Function, m: Value) -> list[tuple[int, Value, Value]]:
    """All rows of A: (height, first row, end of the rows that are taken by so many)."""
    fours = m - m % 4
    return [(4, f.const(0), fours), (1, fours, m)]


def _side_by_side(module: Module, scheme: Scheme, height: int, side: int) -> None:
    """``across_<height>_<side>(n, a, a_rs, a_cs, b, b_rs, c, c_rs)``: C[:height] += A[:height, :side] B[:side]."""
    f = module.function(
        f"across_{height}_{side}",
        VOID,
        [(I64, "n"), (PTR, "a"), (I64, "a_rs"), (I64, "a_cs"), (PTR, "b"), (I64, "b_rs"), (PTR, "c"), (I64, "c_rs")],
    )
    n, a, a_rs, a_cs, b, b_rs, c, c_rs = f.parameters
    machine, combo, number = scheme.machine, scheme.combo, scheme.accumulator

    def factor(i: int, j: int) -> Value:
        at = f.offset(a, a_rs * i + a_cs * j)
        return converted(f, machine, combo.a, number, f.load(STORAGE[combo.a], at))

    scalars = [[factor(i, j) for j in range(side)] for i in range(height)]
    lanes = machine.vector_bytes // scheme.element_c
    vectors = [[splat(f, x, lanes) for x in row] for row in scalars]

    def add(factors: list[list[Value]], lanes: int, first: Value, run: int, count: Value | None = None) -> None:
        """``run`` vectors from a column on; only ``count`` columns of the last."""
        places = [
            [f.offset(c, c_rs * i + (first + v * lanes) * scheme.element_c) for v in range(run)] for i in range(height)
        ]
        mask = None if count is None else lane_mask(f, low_bits(f, count, lanes), lanes)
        type_ = f"<{lanes} x {number}>"
        sums = [
            [f.load(type_, at) if mask is None else masked_load(f, type_, at, mask) for at in row] for row in places
        ]
        for j in range(side):
            for v in range(run):
                at = f.offset(b, b_rs * j + (first + v * lanes) * scheme.element_b)
                other = converted(f, machine, combo.b, number, read(f, machine, combo.b, lanes, at, count))
                for i in range(height):
                    sums[i][v] = _multiplied(f, scheme, factors[i][j], other, sums[i][v])
        for row, totals in zip(places, sums, strict=True):
            for at, total in zip(row, totals, strict=True):
                if mask is None:
                    f.store(total, at)
                else:
                    masked_store(f, total, at, mask)

    run = RUN[height] * lanes
    runs, whole = n - n % run, n - n % lanes
    with f.loop(0, runs, run) as loop:
        add(vectors, lanes, loop.index, RUN[height])
    with f.loop(runs, whole, lanes) as loop:
        add(vectors, lanes, loop.index, 1)
    if machine.masks:
        with f.when(whole < n):
            add(vectors, lanes, whole, 1, n - whole)
    else:
        with f.loop(whole, n) as loop:
            add([[splat(f, x, 1) for x in row] for row in scalars], 1, loop.index, 1)
    f.give()


def _multiplied(f: Function, scheme: Scheme, x: Value, y: Value, total: Value) -> Value:
    """``total + x * y`` of elements of C."""
    if scheme.integral:
        return total + f.binary("mul", x, y)
    return f.intrinsic(f"llvm.fmuladd.{mangled(x.type)}", x.type, [x, y, total])


def _across(module: Module, scheme: Scheme) -> None:
    f = module.function(
        "gemv_across",
        VOID,
        [
            *((I64, "m"), (I64, "n"), (I64, "k"), (PTR, "a"), (I64, "a_rs"), (I64, "a_cs"), (PTR, "b"), (I64, "b_rs")),
            *((PTR, "c"), (I64, "c_rs"), (I64, "keep")),
        ],
    )
    m, n, k, a, a_rs, a_cs, b, b_rs, c, c_rs, keep = f.parameters
    whole = k - k % GROUP
    with f.loop(0, n, CHUNK) as chunk:
        wide = f.minimum(n - chunk.index, CHUNK)
        b_chunk, c_chunk = f.offset(b, chunk.index * scheme.element_b), f.offset(c, chunk.index * scheme.element_c)

        def meet(first: Value, count: int) -> None:
            """All rows of A meet so many rows of B."""
            for height, top, end in _by_height(f, m):
                side = min(SIDE[height], count)
                with f.loop(top, end, height) as rows:
                    a_rows, c_rows = f.offset(a, rows.index * a_rs), f.offset(c_chunk, rows.index * c_rs)
                    for j in range(0, count, side):
                        of_a = [f.offset(a_rows, (first + j) * a_cs), a_rs, a_cs]
                        of_b = [f.offset(b_chunk, (first + j) * b_rs), b_rs]
                        f.call(f"across_{height}_{side}", VOID, [wide, *of_a, *of_b, c_rows, c_rs])

        with f.when(keep.equals(0)), f.loop(0, m) as row:
            _zero(f, scheme, wide, f.offset(c_chunk, row.index * c_rs))
        with f.loop(0, whole, GROUP) as group:
            meet(group.index, GROUP)
        with f.loop(whole, k) as single:
            meet(single.index, 1)
    f.give()


def _zero(f: Function, scheme: Scheme, n: Value, y: Value) -> None:
    vector_bytes = scheme.machine.vector_bytes
    type_ = f"<{vector_bytes} x i8>"
    bytes_ = n * scheme.element_c
    whole = bytes_ - bytes_ % vector_bytes
    with f.loop(0, whole, vector_bytes) as loop:
        f.store(Value(f, type_, "zeroinitializer"), f.offset(y, loop.index))
    with f.loop(whole, bytes_, scheme.element_c) as loop:
        f.store(Value(f, f"i{8 * scheme.element_c}", "0"), f.offset(y, loop.index))


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


def _column_by_column(module: Module, scheme: Scheme, height: int, together: int) -> None:
    """``along_<height>_<together>(k, a, a_rs, b, b_cs, sums)``: the partial sums of so many rows of A and columns of B.

    Those of row i and column j are the vector at ``sums[i * lanes + j]``.
    """
    f = module.function(
        f"along_{height}_{together}",
        VOID,
        [(I64, "k"), (PTR, "a"), (I64, "a_rs"), (PTR, "b"), (I64, "b_cs"), (PTR, "sums")],
    )
    k, a, a_rs, b, b_cs, sums = f.parameters
    math, machine, combo = Arithmetic(f, scheme), scheme.machine, scheme.combo
    elements = scheme.lanes * scheme.group
    zero = Value(f, math.sum_type, "zeroinitializer")
    # As many whether columns are together or not: the bits of a column do not depend on its neighbours.
    chains = machine.registers // 2 // (height * TOGETHER) or 1
    # Bytes of A are moved to the unsigned ones by 128: 128 times the sum of the column is taken off again.
    factors = height + scheme.offset_a
    width = factors * together

    def operand(dtype: str, at: Value, count: Value | None) -> Value:
        raw = converted(f, machine, dtype, scheme.packed, read(f, machine, dtype, elements, at, count))
        if raw.type == math.vector_type:
            return raw
        return f.emit(math.vector_type, f"bitcast {raw.type} {raw.ref} to {math.vector_type}")

    def met(first: Value, totals: list[Value], count: Value | None = None) -> list[Value]:
        """A vector of every row of A against one of every column of B."""
        rows = [
            operand(PACKED[scheme.packed], f.offset(a, a_rs * i + first * scheme.element_packed), count)
            for i in range(height)
        ]
        if scheme.offset_a:
            rows.append(Value(f, math.vector_type, "zeroinitializer"))
        rows = [math.shifted(row) for row in rows]
        out: list[Value] = []
        for j in range(together):
            other = operand(combo.b, f.offset(b, b_cs * j + first * scheme.element_b), count)
            out += [math.step(totals[j * factors + i], row, other) for i, row in enumerate(rows)]
        return out

    whole = k - k % elements
    most = k - k % (elements * chains)
    with f.loop(0, most, elements * chains, [zero] * (width * chains)) as loop:
        onward: list[Value] = []
        for u in range(chains):
            onward += met(loop.index + u * elements, loop.carried[u * width : (u + 1) * width])
        loop.carry(*onward)
    totals = loop.after
    while len(totals) > width:
        half = len(totals) // 2
        totals = [math.add(x, y) for x, y in zip(totals[:half], totals[half:], strict=True)]
    with f.loop(most, whole, elements, totals) as loop:
        loop.carry(*met(loop.index, loop.carried))
    ends = [f.variable(total) for total in loop.after]
    with f.when(whole < k):
        for end, total in zip(ends, met(whole, loop.after, k - whole), strict=True):
            end.set(total)
    for j in range(together):
        *all_rows, last = [end.get() for end in ends[j * factors : (j + 1) * factors]]
        all_rows = [row - last for row in all_rows] if scheme.offset_a else [*all_rows, last]
        for i, total in enumerate(all_rows):
            f.store(total, f.offset(sums, (i * scheme.lanes + j) * machine.vector_bytes))
    f.give()


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
    math, lanes, bytes_ = Arithmetic(f, scheme), scheme.lanes, scheme.machine.vector_bytes
    scalar = STORAGE[scheme.combo.c]
    sums, result = f.alloca(max(HEIGHTS) * lanes * bytes_), f.alloca(bytes_)

    def put(wide: Value, place: Value) -> None:
        """So many columns of a row of C: all lanes of a vector, or one after the other."""
        with f.loop(0, wide) as column:
            spot = f.offset(place, column.index * scheme.element_c)
            one = f.load(scalar, f.offset(result, column.index * scheme.element_c))
            with f.either(keep.differs(0)) as side:
                f.store(f.binary("add" if scheme.integral else "fadd", f.load(scalar, spot), one), spot)
                side.otherwise()
                f.store(one, spot)

    with f.loop(0, n, lanes) as group:
        wide = f.minimum(n - group.index, lanes)
        columns, c_group = f.offset(b, group.index * b_cs), f.offset(c, group.index * scheme.element_c)
        for height, top, end in _by_height(f, m):
            with f.loop(top, end, height) as rows:
                a_rows = f.offset(a, rows.index * a_rs)
                fours = wide - wide % TOGETHER
                for start, stop, together in ((f.const(0), fours, TOGETHER), (fours, wide, 1)):
                    with f.loop(start, stop, together) as each:
                        of_b = [f.offset(columns, each.index * b_cs), b_cs]
                        to = f.offset(sums, each.index * bytes_)
                        f.call(f"along_{height}_{together}", VOID, [k, a_rows, a_rs, *of_b, to])
                with f.loop(0, height, 1, [sums, f.offset(c_group, rows.index * c_rs)], at_least_once=True) as row:
                    at, place = row.carried
                    vectors = [f.load(math.sum_type, f.offset(at, j * bytes_)) for j in range(lanes)]
                    total = added_across(f, math, vectors)
                    with f.either(wide.equals(lanes) & keep.equals(0)) as side:
                        f.store(total, place)
                        side.otherwise()
                        f.store(total, result)
                        put(wide, place)
                    row.carry(f.offset(at, lanes * bytes_), f.offset(place, c_rs))
    f.give()
