# SPDX-License-Identifier: MIT
"""Products summed in f32 whose result has 16 bits: rounded while the sums are in the second-level cache.

As many columns of B are packed as L2 has room for the sums of; then strips of rows of C are computed into scratch
memory that stays in L2, and rounded from there.  Sums that were written to memory as a whole would be read from it
again, and be twice as large as the result.  Where B is met once or twice only, that is what is done; and where `tiled`
makes the product, which is several times as fast, of a thousand rows at a time.

How k is divided is what `driver` says in both cases, and whether there are strips follows from sizes alone: bits do not
depend on the number of workers.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.convert import shaped
from pto_jit.targets.cpu.matmul.driver import layout_of_b, pack_slab, share_of
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Value, vector
from pto_jit.targets.cpu.matmul.parts import OPERANDS, Fields, Parts
from pto_jit.targets.cpu.matmul.shape import FIXED_B, STORAGE
from pto_jit.targets.cpu.matmul.sums import few_columns
from pto_jit.targets.cpu.matmul.tiled import fitting, suits

_BLOCK = 16
"""Rows that a worker rounds at a time."""

_ROWS = 1024
"""Rows that sums of matrix tiles are held of."""

_WORTH = 1 << 17
"""Elements from which on rounding sums that were computed as a whole is worth sharing."""

_ROUND: Fields = (
    *((I64, "m"), (I64, "n"), (PTR, "sums"), (I64, "row"), (PTR, "c"), (I64, "c_rs"), (I64, "c_cs")),
)
_STRIPS: Fields = (*OPERANDS, (I64, "c_cs"), (PTR, "packed"), (I64, "strips"))


def add_rounded(parts: Parts) -> None:
    """Define ``pto_mm_<a>_<b>_f32_to_<dtype>`` for the dtypes that the scheme ``rounds`` to."""
    for dtype in parts.scheme.rounds:
        _round(parts, dtype)
        _round_task(parts, dtype)
        _strips_task(parts, dtype)
        _entry(parts, dtype)


def rounded(f: Function, dtype: str, value: Value) -> Value:
    """f32, one or a vector, rounded to nearest even; a NaN keeps its sign and becomes quiet."""
    storage = shaped(value, STORAGE[dtype])
    if dtype == "f16":
        return f.emit(storage, f"fptrunc {value.type} {value.ref} to {storage}")
    word, test = shaped(value, "i32"), shaped(value, "i1")

    def constant(number: int) -> Value:
        return Value(f, word, f"splat (i32 {number})" if word.startswith("<") else str(number))

    bits = f.emit(word, f"bitcast {value.type} {value.ref} to {word}")
    upper = f.binary("lshr", bits, constant(16))
    nearest = bits + (f.binary("and", upper, constant(1)) + constant(0x7FFF))
    nan = f.emit(test, f"fcmp uno {value.type} {value.ref}, {value.ref}")
    quiet, number = f.binary("or", upper, constant(0x40)), f.binary("lshr", nearest, constant(16))
    chosen = f.emit(word, f"select {test} {nan.ref}, {word} {quiet.ref}, {word} {number.ref}")
    return f.emit(storage, f"trunc {word} {chosen.ref} to {storage}")


def _round(parts: Parts, dtype: str) -> None:
    """``round_<dtype>(m, n, sums, row, c, c_rs, c_cs)``: sums ``row`` bytes apart to C, strides in bytes."""
    f = parts.module.function(f"round_{dtype}", VOID, _ROUND)
    m, n, sums, row, c, c_rs, c_cs = f.parameters
    lanes = parts.scheme.machine.vector_bytes // 4
    whole = f.select(c_cs.equals(2), n // lanes * lanes, 0)
    with f.loop(0, m, 1, [sums, c]) as rows:
        source, target = rows.carried
        with f.loop(0, whole, lanes) as each:
            value = f.load(vector(lanes, "float"), f.offset(source, each.index * 4))
            f.store(rounded(f, dtype, value), f.offset(target, each.index * 2))
        with f.loop(whole, n) as each:
            value = f.load("float", f.offset(source, each.index * 4))
            f.store(rounded(f, dtype, value), f.offset(target, each.index * c_cs))
        rows.carry(f.offset(source, row), f.offset(target, c_rs))
    f.give()


def _round_task(parts: Parts, dtype: str) -> None:
    """Range function: blocks of rows."""
    f, _, begin, end, fields = parts.task(f"round_{dtype}_task", _ROUND)
    m, n, sums, row, c, c_rs, c_cs = fields
    top = begin * _BLOCK
    rows = f.minimum(m, end * _BLOCK) - top
    f.call(f"round_{dtype}", VOID, [rows, n, f.offset(sums, top * row), row, f.offset(c, top * c_rs), c_rs, c_cs])
    f.give(0)


def _strips_task(parts: Parts, dtype: str) -> None:
    """Range function: strips of rows of C, all columns, from B packed as `driver` says."""
    s = parts.scheme
    f, w, begin, end, fields = parts.task(f"strips_{dtype}", _STRIPS)
    _, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, packed, strips = fields
    panels, row = f.ceil_div(m, s.panel_rows), _row(f, n)
    room = parts.push(f, w, f.ceil_div(panels, strips) * s.panel_rows * row)
    status = f.variable(f.const(0, I32))
    with f.loop(begin, end) as strip, f.when(status.get().equals(0)):
        top = share_of(f, panels, strip.index, strips) * s.panel_rows
        high = f.minimum(m, share_of(f, panels, strip.index + 1, strips) * s.panel_rows) - top
        of_b = (b, b_rs, b_cs)
        operands = [w, high, n, k, f.offset(a, top * a_rs), a_rs, a_cs, *of_b, room, row, f.const(0)]
        status.set(f.call("far", I32, [*operands, f.const(1), packed, f.const(1)]))
        f.call(f"round_{dtype}", VOID, [high, n, room, row, f.offset(c, top * c_rs), c_rs, c_cs])
    f.call("pto_scratch_pop", VOID, [w, room])
    f.give(status.get())


def _row(f: Function, n: Value) -> Value:
    """Bytes of a row of sums: whole lines and one more, so that rows fall into different sets of the caches."""
    return f.round_up(n * 4, 64) + 64


def _entry(parts: Parts, dtype: str) -> None:
    """The public function: strides in elements; C is written."""
    s, plan = parts.scheme, parts.blocking
    name = f"{s.combo.symbol}_to_{dtype}"
    f = parts.module.function(name, I32, [*OPERANDS, (I64, "c_cs"), (I32, "how")], public=True)
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, how = f.parameters
    with f.when((m <= 0) | (n <= 0)):
        f.give(0)
    workers, row = parts.workers(f, w), _row(f, n)
    to_c = (c, c_rs * 2, c_cs * 2)
    status = f.variable(f.const(0, I32))
    large = (m > plan.stream_rows) & (m * n * k >= plan.split_work)
    most = max(plan.near_bytes // (4 * plan.tile_rows) // s.panel_columns, 1) * s.panel_columns
    wide = f.round_up(f.ceil_div(n, f.ceil_div(n, most)), s.panel_columns)
    kept = f.widen(how & FIXED_B).differs(0)
    small = few_columns(parts, n) if s.sums else f.const(0).differs(0)
    depth, panel, blocks, panels = layout_of_b(parts, f, wide, f.maximum(k, 1))
    packed_bytes = panel * panels * blocks
    if s.pieces:  # the tiles that products are made of then gain more than a pass to round costs
        strides = ((a_rs * s.element_a, a_cs * s.element_a), (b_rs * s.element_b, b_cs * s.element_b))
        large = large & (suits(parts, m, n, k) & fitting(parts, k, *strides)).equals(0)
    again = m > (1 if s.tiles else 2) * plan.tile_rows  # with fewer rows, B is not met often enough
    with f.when(large & again & kept.equals(0) & small.equals(0) & (packed_bytes <= plan.far_bytes)):
        of_a = (a, a_rs * s.element_a, a_cs * s.element_a)
        packed = parts.push(f, w, packed_bytes)
        # a quarter as many as tasks of other kinds: each meets all of B, which may come from L3
        rows = f.maximum(f.ceil_div(m, f.ceil_div(parts.pieces(f, workers), 4)), 2 * s.panel_rows)
        strips = f.ceil_div(m, f.minimum(rows, f.const(plan.tile_rows)))
        strips = f.minimum(f.round_up(strips, workers), f.ceil_div(m, s.panel_rows))
        strips = f.select(workers > 1, strips, f.ceil_div(m, plan.tile_rows))
        with f.loop(0, n, wide) as slab, f.when(status.get().equals(0)):
            columns = f.minimum(n - slab.index, wide)
            of_b = (f.offset(b, slab.index * b_cs * s.element_b), b_rs * s.element_b, b_cs * s.element_b)
            status.set(pack_slab(parts, f, w, columns, k, of_b, (packed, depth, panel), workers))
            of_c = (f.offset(c, slab.index * c_cs * 2), *to_c[1:])
            context = parts.save(f, [w, m, columns, k, *of_a, *of_b, *of_c, packed, strips])
            with f.when(status.get().equals(0)), f.either(workers > 1) as side:
                status.set(parts.share(f, f"strips_{dtype}", w, context, strips))
                side.otherwise()
                status.set(f.call(f"strips_{dtype}", I32, [w, context, f.const(0), strips]))
        f.call("pto_scratch_pop", VOID, [w, packed])
        f.give(status.get())
    # Matrix tiles write all sums of some rows, more of them than packing B again for the next ones costs.
    high = m
    if s.pieces:
        high = f.round_up(f.ceil_div(m, f.ceil_div(m, _ROWS)), s.panel_rows)
    sums = parts.push(f, w, f.minimum(m, high) * row)
    with f.loop(0, m, high) as top, f.when(status.get().equals(0)):
        rows = f.minimum(m - top.index, high)
        of_a, of_c = f.offset(a, top.index * a_rs * s.element_a), f.offset(c, top.index * c_rs * 2)
        operands = [w, rows, n, k, of_a, a_rs, a_cs, b, b_rs, b_cs, sums, row // 4, f.const(1), how]
        status.set(f.call("product", I32, [*operands, workers]))
        context = parts.save(f, [rows, n, sums, row, of_c, *to_c[1:]])
        with f.when(status.get().equals(0)), f.either((workers > 1) & (rows * n >= _WORTH)) as side:
            status.set(parts.share(f, f"round_{dtype}_task", w, context, f.ceil_div(rows, _BLOCK)))
            side.otherwise()
            f.call(f"round_{dtype}", VOID, [rows, n, sums, row, of_c, *to_c[1:]])
    f.call("pto_scratch_pop", VOID, [w, sums])
    f.give(status.get())
