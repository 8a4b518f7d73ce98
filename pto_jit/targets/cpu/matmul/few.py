# SPDX-License-Identifier: MIT
"""Products of few rows of A, whose time is that of reading B once: B is read where it lies, or packed as it passes by.

Workers share the columns, in pieces whose bits are those of the whole.  The hardware prefetches to the end of a page of
memory; beside very few rows, pieces of less than a page of each row of B waste what memory can give.  Where L2 does not
keep B, these are summed in parts of k instead: as many as the sizes say, whoever computes them, each on its own, added
in order.  So are products with much k and little else to be shared (``x.T @ x`` of many rows).
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.driver import PASSES, STREAMS, share_of
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Value, vector
from pto_jit.targets.cpu.matmul.parts import CONTEXT, Fields, Parts
from pto_jit.targets.cpu.matmul.shape import STORAGE

ACROSS, ALONG, DEEP = 3, 4, 5
"""Ways beside those of `driver`: `gemv` across rows of B, along its columns; parts of k as products of their own."""

FEW_COLUMNS = 64
"""Dot products with fewer columns read A where it lies; for more, copying its rows to whole lines is repaid."""

NARROW, PAGED = 128, 1024
"""Columns of a piece, at least: where every worker gets one, and where they get more."""

DEEP_BYTES, DEEPEST, GROUPED = 1 << 19, 8, 64
"""Bytes of B that are worth a part of k, parts at most, and of what k they are multiples."""

SMALL, PART_WORK, PART_K, PARTS = 1 << 17, 1 << 22, 2048, 32
"""Elements of C up to which products are `DEEP`; multiply-adds and k of their parts at least, and parts at most."""

AT_ONCE = 8192
"""k that a part is computed of at once: each worker packs so much."""

_TASK: Fields = (
    *CONTEXT,
    (I64, "way"),
    (I64, "pieces"),
    (I64, "deep"),
    (PTR, "sums"),
    (I64, "row"),
)


def add_few(parts: Parts) -> None:
    """Define ``few``, and what it is made of."""
    _dots(parts)
    _in_way(parts)
    _task(parts)
    _add_up(parts)
    _few(parts)


def can_stay(parts: Parts, n: Value, b_cs: Value) -> Value:
    """Whether register tiles can read B, which needs no conversion, where it lies."""
    s = parts.scheme
    contiguous = b_cs.equals(s.element_b)
    return contiguous if s.machine.masks else contiguous & (n % s.lanes).equals(0)


def way_of(parts: Parts, f: Function, m: Value, n: Value, k: Value, a_cs: Value, b_rs: Value, b_cs: Value) -> Value:
    """How so few rows of A meet B where it lies, as ``few`` takes it; 0: there are more."""
    across, along = _very_few(parts, m, n, k, a_cs, b_rs, b_cs)
    way = f.const(0)
    if parts.scheme.raw_b:
        stays = can_stay(parts, n, b_cs) & (m <= parts.blocking.stream_rows)
        way = f.select(stays, f.select(_large(parts, n, k), f.const(STREAMS), 1), way)
    return f.select(across, f.const(ACROSS), f.select(along, f.const(ALONG), way))


def passes_by(parts: Parts, m: Value, n: Value, k: Value, b_cs: Value) -> Value:
    """Whether B is packed as it passes by: of a product with matrix tiles that keeps no copy, for k is divided so that
    its sums are rounded otherwise than those of a packed B."""
    s, few = parts.scheme, (m > parts.blocking.few_rows) & (m <= 2 * parts.scheme.tile_rows)
    return few & b_cs.equals(s.element_b) & _large(parts, n, k)


def _large(parts: Parts, n: Value, k: Value) -> Value:
    """Whether B is more than L2 keeps, and its rows long enough to pass by."""
    s = parts.scheme
    return (n * k > parts.blocking.near_bytes // s.element_b) & (n >= 8 * s.tile_columns)


def _very_few(
    parts: Parts, m: Value, n: Value, k: Value, a_cs: Value, b_rs: Value, b_cs: Value
) -> tuple[Value, Value]:
    """Whether A has so few rows that the product is one of `gemv`: across rows of B, along its columns.

    Register tiles are faster for B that stays in L2 and needs no conversion.
    """
    s, plan = parts.scheme, parts.blocking
    across = b_cs.equals(s.element_b) & (m <= plan.few_rows)
    if s.raw_b:
        across = across & (m.equals(1) | (n * k > plan.near_bytes // s.unit))
    return across, b_rs.equals(s.element_b) & a_cs.equals(s.element_a) & (m <= plan.dot_rows)


def _in_way(parts: Parts) -> None:
    """``in_way(operands, keep, way)``: all of a product, or some of its columns, whose bits are the same.

    way: `ACROSS`, `ALONG`, or `DEEP`, or what ``near`` is told of B.
    """
    f = parts.module.function("in_way", I32, [*CONTEXT, (I64, "way")])
    *product, way = f.parameters
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep = product
    with f.when(way.equals(ACROSS)):
        f.call("gemv_across", VOID, [m, n, k, a, a_rs, a_cs, b, b_rs, c, c_rs, keep])
        f.give(0)
    with f.when(way.equals(ALONG)):
        f.give(f.call("dots", I32, product))
    with f.when(way.equals(DEEP)):
        status = f.variable(f.const(0, I32))
        with f.loop(0, k, AT_ONCE) as part, f.when(status.get().equals(0)):
            of_a, of_b = f.offset(a, part.index * a_cs), f.offset(b, part.index * b_rs)
            deep, kept = f.minimum(k - part.index, AT_ONCE), f.select(part.index > 0, -1, keep)
            here = [w, m, n, deep, of_a, a_rs, a_cs, of_b, b_rs, b_cs, c, c_rs, kept]
            status.set(f.call("whole", I32, [*here, f.const(1), f.const(0)]))
        f.give(status.get())
    f.give(f.call("near", I32, [*product, way, f.null(), f.const(0)]))


def _dots(parts: Parts) -> None:
    """``dots(operands, keep)``: dot products of rows of A and columns of B; rows of A are copied to whole lines."""
    s = parts.scheme
    f = parts.module.function("dots", I32, CONTEXT)
    w, m, n, k, a, a_rs, _, b, _, b_cs, c, c_rs, keep = f.parameters
    if s.raw_a:
        with f.when(n < FEW_COLUMNS):
            f.call("gemv_along", VOID, [m, n, k, a, a_rs, b, b_cs, c, c_rs, keep])
            f.give(0)
    most = f.minimum(k, parts.blocking.dot_depth * s.group)
    row = parts.row_bytes(f, most)
    rows = parts.push(f, w, m * row)
    with f.loop(0, k, most, at_least_once=True) as part:
        deep = f.minimum(k - part.index, most)
        a_part, b_part = f.offset(a, part.index * s.element_a), f.offset(b, part.index * s.element_b)
        f.call("pack_a_rows", VOID, [deep, m, a_part, a_rs, rows, row])
        kept = f.select(part.index > 0, -1, keep)
        f.call("gemv_along", VOID, [m, n, deep, rows, row, b_part, b_cs, c, c_rs, kept])
    f.call("pto_scratch_pop", VOID, [w, rows])
    f.give(0)


def parts_of(f: Function, m: Value, n: Value, k: Value) -> Value:
    """How many parts of k a `DEEP` product has; less than two: it is none."""
    count = f.minimum(f.minimum(m * n * k // PART_WORK, k // PART_K), PARTS)
    return f.select((m * n <= SMALL) & (k >= f.maximum(m, n) * 4), count, 1)


def pieces_of(f: Function, n: Value, workers: Value) -> Value:
    """How many pieces of its columns so many workers share."""
    narrow = f.maximum(f.minimum(n // NARROW, workers), 1)
    return f.maximum(f.minimum(n // PAGED, workers * 2), narrow)


def _task(parts: Parts) -> None:
    """Range function: pieces of the columns of one part of k after another; the first is summed in C."""
    s = parts.scheme
    f, w, begin, end, fields = parts.task("few_task", _TASK)
    _, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, way, pieces, deep, sums, row = fields
    tiles, groups = f.ceil_div(n, s.tile_columns), f.ceil_div(k, GROUPED)
    with f.loop(begin, end) as task:
        part, piece = task.index // pieces, task.index % pieces
        left = share_of(f, tiles, piece, pieces) * s.tile_columns
        wide = f.minimum(n, share_of(f, tiles, piece + 1, pieces) * s.tile_columns) - left
        top = share_of(f, groups, part, deep) * GROUPED
        high = f.minimum(k, share_of(f, groups, part + 1, deep) * GROUPED) - top
        of_a = (f.offset(a, top * a_cs), a_rs, a_cs)
        of_b = (f.offset(b, top * b_rs + left * b_cs), b_rs, b_cs)
        first = part.equals(0)
        to = f.offset(f.select(first, c, f.offset(sums, (part - 1) * (m * row))), left * s.element_c)
        of_c = (to, f.select(first, c_rs, row), f.select(first, keep, 0))
        status = f.call("in_way", I32, [w, m, wide, high, *of_a, *of_b, *of_c, way])
        with f.when(status.differs(0)):
            f.give(status)
    f.give(0)


def _add_up(parts: Parts) -> None:
    """``few_add(m, n, c, c_rs, sums, row, count)``: C += one sum after the other."""
    s, number = parts.scheme, STORAGE[parts.scheme.combo.c]
    lanes = s.machine.vector_bytes // s.element_c
    fields = ((I64, "m"), (I64, "n"), (PTR, "c"), (I64, "c_rs"), (PTR, "sums"), (I64, "row"), (I64, "count"))
    f = parts.module.function("few_add", VOID, fields, hot=False)
    m, n, c, c_rs, sums, row, count = f.parameters
    whole = n - n % lanes
    with f.loop(0, m, 1, [c, sums]) as rows:
        to, of = rows.carried
        for type_, first, last, step in ((vector(lanes, number), 0, whole, lanes), (number, whole, n, 1)):
            with f.loop(first, last, step) as column:
                at = column.index * s.element_c
                place = f.offset(to, at)
                with f.loop(0, count, 1, [f.load(type_, place), f.offset(of, at)]) as each:
                    total, other = each.carried
                    added = f.binary("add" if s.integral else "fadd", total, f.load(type_, other))
                    each.carry(added, f.offset(other, m * row))
                f.store(each.after[0], place)
        rows.carry(f.offset(to, c_rs), f.offset(of, row))
    f.give()


def _few(parts: Parts) -> None:
    """``few(operands, keep, way, workers)``: a product of few rows, or a deep one, by so many workers."""
    s, plan = parts.scheme, parts.blocking
    f = parts.module.function("few", I32, [*CONTEXT, (I64, "way"), (I64, "workers")])
    *product, way, workers = f.parameters
    w, m, n, k, _, _, _, _, _, _, c, c_rs, _ = product
    by_rows = way.equals(ACROSS) | way.equals(PASSES) | (way.equals(STREAMS) & (m <= plan.dot_rows))
    deep = f.minimum(f.minimum(n * k // (DEEP_BYTES // s.element_b), DEEPEST), k // GROUPED)
    deep = f.minimum(deep, k * s.element_b // (m * 16))  # sums have a quarter of the bytes of their part of B
    deep = f.select(by_rows, deep, f.select(way.equals(DEEP), parts_of(f, m, n, k), 1))
    deep = f.maximum(deep, 1)
    with f.when(deep.equals(1) & (workers <= 1)):
        f.give(f.call("in_way", I32, [*product, way]))
    pieces = f.minimum(f.maximum(n // PAGED, 1), f.ceil_div(workers * 2, deep))
    pieces = f.select(by_rows, pieces, pieces_of(f, n, workers))
    pieces = f.select((workers > 1) & way.differs(DEEP), pieces, 1)
    row = f.round_up(n * s.element_c, 64) + 64
    sums = f.variable(f.null())
    with f.when(deep > 1):
        sums.set(parts.push(f, w, (deep - 1) * (m * row)))
    context = parts.save(f, [*product, way, pieces, deep, sums.get(), row])
    status = f.variable(f.const(0, I32))
    with f.either(workers > 1) as side:
        status.set(parts.share(f, "few_task", w, context, deep * pieces))
        side.otherwise()
        status.set(f.call("few_task", I32, [w, context, f.const(0), deep * pieces]))
    with f.when(deep > 1):
        with f.when(status.get().equals(0)):
            f.call("few_add", VOID, [m, n, c, c_rs, sums.get(), row, deep - 1])
        f.call("pto_scratch_pop", VOID, [w, sums.get()])
    f.give(status.get())
