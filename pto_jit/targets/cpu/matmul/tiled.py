# SPDX-License-Identifier: MIT
"""Products of f32 or f16, and sums of them, by the matrix tiles of AMX, each number as some of bf16 (`pieces`).

Tasks compute tiles of C, rows by columns, block by block of k, from a packed block of A that stays in L2.  B is packed
first, all of it, or copies that the launch keeps are found; B that L2 keeps is packed by each worker for rows of its
own; and where few rows do not repay that it is written to L3, each task packs the blocks of its columns, which stay in
L2.

A panel of A and a block of B whose numbers do not fit the tiles (`fits`) are left to f32 arithmetic.  What a block of B
is, and all blocks of k, follow from sizes alone, so the bits do not depend on workers, nor on what is kept.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.amx import SIDE, configure, tile
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Value
from pto_jit.targets.cpu.matmul.parts import CONTEXT, Fields, Parts
from pto_jit.targets.cpu.matmul.piece_tiles import ADDS, DEPTH, FROM_SUMS, SUMS, TO_C, add_piece_tiles
from pto_jit.targets.cpu.matmul.pieces import (
    DEEP,
    PANEL,
    RANGE,
    SLAB,
    add_pieces,
    clear_range,
    extremes,
    fits,
    step_bytes,
)
from pto_jit.targets.cpu.matmul.shape import FIXED_B
from pto_jit.targets.cpu.matmul.sums import TERM, load_row, store_row

ROWS = 256
"""Rows of a task: the packed block of A, and the rows of C of `COLUMNS`, stay in L2."""

COLUMNS = 1024
"""Columns of a task."""

TASKS = 2
"""Tiles of C for each worker, at least."""

LEAST_K = DEEP
"""k from which on the error bound is that of f32 arithmetic."""

_PLAIN, _TILED, _PACKED_A, _PACKED_B, _CALL = 93, {3: 52, 2: 35}, 1500, 1200, 15_000_000
"""Times, in tenths of a picosecond, on a Xeon of 3.6 GHz: of a multiply-add by vectors, and by tiles of so many pieces;
of packing a number of A, or of B, for tiles, beyond what vectors need; and of a product of tiles."""

FEW_ROWS = 256
"""Rows up to which packed B, larger than B itself, does not repay being written to L3 and read again."""

FEW_COLUMNS = 512
"""Columns of a task then: a packed block of B, and the sums, stay in L2."""

_FITS, _IN_C, _SUMMED = 1, 2, 4
"""Of a panel of A: its numbers fit the tiles; C holds what is to be added to; there are sums of other blocks of k."""

_PART: Fields = (
    *((PTR, "a"), (I64, "a_rs"), (I64, "a_cs"), (PTR, "b"), (I64, "b_rs"), (I64, "b_cs"), (I64, "k")),
    *((I64, "panel"), (PTR, "packed"), (PTR, "ranges")),
)
"""A block of k of a term: A and B; bytes of a panel of packed B, where that is, or null, and the ranges of slabs."""

_SUM: Fields = (
    *((PTR, "w"), (I64, "m"), (I64, "n"), (I64, "count"), (PTR, "terms"), (PTR, "c"), (I64, "c_rs"), (I64, "keep")),
    *((I64, "top"), (I64, "workers")),
)

_PACK: Fields = (
    *((I64, "k"), (I64, "n"), (PTR, "b"), (I64, "b_rs"), (I64, "b_cs"), (PTR, "to"), (I64, "depth"), (I64, "task")),
)

_TASKS: Fields = (
    *((I64, "m"), (I64, "n"), (I64, "count"), (PTR, "parts"), (PTR, "c"), (I64, "c_rs"), (I64, "keep")),
    *((I64, "rows"), (I64, "columns"), (I64, "across"), (I64, "deepest"), (I64, "packs")),
)


def add_tiled(parts: Parts) -> None:
    """Define ``tiled_terms`` and ``tiled``, and what they are made of."""
    add_pieces(parts)
    add_piece_tiles(parts)
    _pack_task(parts)
    _pack(parts)
    _plain(parts)
    _slab(parts)
    _block(parts)
    _tiles_task(parts)
    _found(parts)
    _parts(parts)
    _rows_task(parts)
    _sum(parts)
    if parts.scheme.sums:
        _terms(parts)
    _product(parts)


def suits(parts: Parts, m: Value, n: Value, k: Value) -> Value:
    """Whether a product, or a sum, of such sizes is worth it: not with few rows (`few`)."""
    f, plan = m.fn, parts.blocking
    filled = f.round_up(m, SIDE) * f.round_up(n, SIDE) * f.round_up(k, DEEP)
    tiled = filled * _TILED[parts.scheme.pieces] + m * k * _PACKED_A + n * k * _PACKED_B + _CALL
    return (m > plan.stream_rows) & (n > plan.stream_rows) & (k >= LEAST_K) & (m * n * k * _PLAIN > tiled)


def fitting(parts: Parts, k: Value, of_a: tuple[Value, Value], of_b: tuple[Value, Value]) -> Value:
    """Whether A and B of such strides, in bytes, can be packed, and the error bound is met."""
    a, b = (strides[0].equals(size) | strides[1].equals(size) for strides, size in
            ((of_a, parts.scheme.element_a), (of_b, parts.scheme.element_b)))  # fmt: skip
    return a & b & (k >= LEAST_K)


def _layout(parts: Parts, n: Value, k: Value) -> tuple[Value, Value, Value]:
    """KC, blocks of k, and bytes of all of B: the ranges of its blocks, then the blocks."""
    f = k.fn
    blocks = f.ceil_div(k, DEPTH)
    depth = f.round_up(f.ceil_div(k, blocks), DEEP)
    blocks = f.ceil_div(k, depth)
    return depth, blocks, _ranges(f, n, blocks) + blocks * _block_bytes(parts, n, depth)


def _ranges(f: Function, n: Value, blocks: Value | int) -> Value:
    """Bytes of the ranges of so many blocks of k, slab by slab."""
    return f.ceil_div(n, SLAB) * RANGE * blocks


def _panel_bytes(parts: Parts, depth: Value) -> Value:
    """From one panel of B to the next, which should not fall into the same sets of the caches."""
    return depth.fn.ceil_div(depth, DEEP) * step_bytes(parts.scheme) + 2 * 64


def _block_bytes(parts: Parts, n: Value, depth: Value) -> Value:
    return n.fn.ceil_div(n, PANEL) * _panel_bytes(parts, depth)


def _pack_task(parts: Parts) -> None:
    """Range function: ``task`` slabs of B each, all of k."""
    f, _, begin, end, fields = parts.task("tiled_pack_task", _PACK)
    k, n, b, b_rs, b_cs, to, depth, task = fields
    block, panel, slabs = _block_bytes(parts, n, depth), _panel_bytes(parts, depth), f.ceil_div(n, SLAB)
    first = begin * task
    columns = f.minimum(n, end * task * SLAB) - first * SLAB
    of_b, spread = f.offset(b, first * SLAB * b_cs), f.offset(to, first * RANGE)
    mine = f.offset(to, _ranges(f, n, f.ceil_div(k, depth)) + first * (SLAB // PANEL) * panel)
    with f.loop(0, k, depth, [of_b, mine, spread]) as part:
        at, put, spread = part.carried
        deep = f.minimum(k - part.index, depth)
        f.call("piece_b", VOID, [deep, columns, at, b_rs, b_cs, put, panel, spread])
        part.carry(f.offset(at, depth * b_rs), f.offset(put, block), f.offset(spread, slabs * RANGE))
    f.give(0)


def _pack(parts: Parts) -> None:
    """``tiled_pack(w, k, n, b, b_rs, b_cs, to, workers)``: all of B as `_layout` says."""
    fields: Fields = (
        *((PTR, "w"), (I64, "k"), (I64, "n"), (PTR, "b"), (I64, "b_rs"), (I64, "b_cs"), (PTR, "to"), (I64, "workers")),
    )
    f = parts.module.function("tiled_pack", I32, fields, rare=True)
    w, k, n, b, b_rs, b_cs, to, workers = f.parameters
    depth, _, _ = _layout(parts, n, k)
    slabs = f.ceil_div(n, SLAB)
    task = f.ceil_div(slabs, workers * 4)
    context = parts.save(f, [k, n, b, b_rs, b_cs, to, depth, task])
    with f.when(workers > 1):
        f.give(parts.share(f, "tiled_pack_task", w, context, f.ceil_div(slabs, task)))
    f.give(f.call("tiled_pack_task", I32, [w, context, f.const(0), f.ceil_div(slabs, task)]))


def _plain(parts: Parts) -> None:
    """``tiled_plain(w, m, n, part, a, b, c, c_rs, keep)``: some rows of A by some columns of B, a block of k, by f32
    arithmetic."""
    s = parts.scheme
    fields: Fields = (
        *((PTR, "w"), (I64, "m"), (I64, "n"), (PTR, "part"), (PTR, "a"), (PTR, "b"), (PTR, "c"), (I64, "c_rs")),
        (I64, "keep"),
    )
    f = parts.module.function("tiled_plain", I32, fields, hot=False)
    w, m, n, part, a, b, c, c_rs, keep = f.parameters
    _, a_rs, a_cs, _, b_rs, b_cs, k, *_ = load_row(f, _PART, part, 0)
    product = [w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep]
    in_place = f.select(b_cs.equals(s.element_b), f.const(1), 0) if s.raw_b else f.const(0)
    f.give(f.call("near", I32, [*product, in_place, f.null(), f.const(0)]))


_BLOCK: Fields = (
    *((PTR, "w"), (I64, "m"), (I64, "n"), (PTR, "part"), (I64, "last"), (PTR, "a"), (PTR, "b"), (PTR, "packed")),
    *((PTR, "ranges"), (PTR, "c"), (I64, "c_rs"), (PTR, "sums"), (I64, "column"), (PTR, "to"), (PTR, "marks")),
)


def _block(parts: Parts) -> None:
    """``tiled_block(w, m, n, part, last, a, b, packed, ranges, c, c_rs, sums, column, to, marks)``: some of C, a block
    of k.

    last: whether sums go to C now.  to: room for panels of A.  marks: room for the range of each panel; then for each,
    slab by slab, what there is, `_IN_C`, `_SUMMED`.
    """
    f = parts.module.function("tiled_block", I32, _BLOCK)
    w, m, n, part, last, a, b, packed, ranges, c, c_rs, sums, column, to, marks = f.parameters
    _, a_rs, a_cs, _, _, b_cs, k, panel_b, *_ = load_row(f, _PART, part, 0)
    panels, span = f.ceil_div(m, PANEL), f.alloca(RANGE)
    with f.loop(0, panels, 1, [a, to]) as each:
        at, put = each.carried
        clear_range(f, span)
        f.call("piece_a", VOID, [k, f.minimum(m - each.index * PANEL, PANEL), at, a_rs, a_cs, put, span])
        store_row(f, marks, each.index, extremes(f, span))
        each.carry(f.offset(at, a_rs * PANEL), f.offset(put, f.ceil_div(k, DEEP) * step_bytes(parts.scheme)))
    status = f.variable(f.const(0, I32))
    state = [b, packed, ranges, c, sums, f.offset(marks, panels * 16)]
    across = SLAB // PANEL
    moves = (b_cs * SLAB, panel_b * across, f.const(RANGE), f.const(4 * SLAB), column * across, panels * 8)
    with f.loop(0, n, SLAB, state) as slab:
        of_b, of_packed, of_ranges, of_c, of_sums, there = slab.carried
        with f.when(status.get().equals(0)):
            here = [of_b, of_packed, of_ranges, of_c, c_rs, of_sums, column, to, marks, there]
            status.set(f.call("tiled_slab", I32, [w, m, f.minimum(n - slab.index, SLAB), part, last, a, *here]))
        slab.carry(*(f.offset(place, move) for place, move in zip(slab.carried, moves, strict=True)))
    f.give(status.get())


def _slab(parts: Parts) -> None:
    """``tiled_slab(...)``: `_block` of no more columns than a slab, from packed A: panels of one state at a time.

    marks: their ranges; there: what there is for each.
    """
    f = parts.module.function("tiled_slab", I32, (*_BLOCK, (PTR, "there")))
    w, m, n, part, last, a, b, packed, ranges, c, c_rs, sums, column, to, marks, there = f.parameters
    _, a_rs, _, _, _, _, k, panel_b, *_ = load_row(f, _PART, part, 0)
    steps = f.ceil_div(k, DEEP)
    panel_a = steps * step_bytes(parts.scheme)
    least, most = extremes(f, ranges)
    status = f.variable(f.const(0, I32))

    def flush(begin: Value, end: Value, state: Value) -> None:
        top = begin * PANEL
        high = f.minimum(m, end * PANEL) - top
        of_c, of_sums = f.offset(c, top * c_rs), f.offset(sums, begin * SUMS)
        fine, in_c, summed = ((state & bit).differs(0) for bit in (_FITS, _IN_C, _SUMMED))

        def by_tiles(steps: Value, adds: Value) -> None:
            to_c = f.select(last.differs(0), f.select(adds, f.const(TO_C + ADDS), TO_C), 0)
            how = to_c | f.select(summed, f.const(FROM_SUMS), 0)
            of_a, of_b = (f.offset(to, begin * panel_a), panel_a), (packed, panel_b)
            f.call("piece_macro", VOID, [high, n, steps, *of_a, *of_b, of_sums, column, of_c, c_rs, how])

        with f.either(fine) as side:
            by_tiles(steps, in_c)
            side.otherwise()
            with f.when(status.get().equals(0)):
                keep = f.select(in_c, f.const(-1), 0)
                status.set(f.call("tiled_plain", I32, [w, high, n, part, f.offset(a, top * a_rs), b, of_c, c_rs, keep]))
            with f.when(summed & last.differs(0)):
                by_tiles(f.const(0), f.const(1, "i1"))

    with f.loop(0, f.ceil_div(m, PANEL), 1, [f.const(0), f.const(0), marks, there]) as each:
        begin, state, spread, mark = each.carried
        present = f.load(I64, mark, 8)
        fine = fits(f, f.load(I64, spread, 8), f.load(I64, f.offset(spread, 8), 8), least, most)
        now = present | f.select(fine, f.const(_FITS), 0)
        f.store(present | f.select(fine, f.const(_SUMMED), _IN_C), mark, 8)
        other = now.differs(state)
        with f.when(other & (each.index > begin)):
            flush(begin, each.index, state)
        each.carry(f.select(other, each.index, begin), now, f.offset(spread, 16), f.offset(mark, 8))
    flush(each.after[0], f.ceil_div(m, PANEL), each.after[1])
    f.give(status.get())


def _tiles_task(parts: Parts) -> None:
    """Range function: tiles of C of ``rows`` by ``columns``, whole slabs, all parts; packs: some B is packed here."""
    f, w, begin, end, fields = parts.task("tiled_tiles", _TASKS)
    m, n, count, of, c, c_rs, keep, rows, columns, across, deepest, packs = fields
    panels, slabs = f.ceil_div(rows, PANEL), f.ceil_div(columns, SLAB)
    of_a, column = panels * (deepest // DEEP * step_bytes(parts.scheme)), panels * SUMS
    of_sums = f.select(count > 1, f.ceil_div(columns, PANEL) * column, 0)
    of_b = f.select(packs.differs(0), _block_bytes(parts, columns, deepest), 0)
    of_ranges = f.select(packs.differs(0), _ranges(f, columns, 1), 0)
    states = panels * slabs
    room = parts.push(f, w, of_a + of_sums + of_b + of_ranges + panels * 16 + states * 8)
    sums, mine = f.offset(room, of_a), f.offset(room, of_a + of_sums)
    spreads, marks = f.offset(mine, of_b), f.offset(mine, of_b + of_ranges)
    status = f.variable(f.const(0, I32))
    configure(f)
    with f.loop(begin, end) as task:
        left, top = (task.index % across) * columns, (task.index // across) * rows
        high, wide = f.minimum(m - top, rows), f.minimum(n - left, columns)
        to_c = f.offset(c, top * c_rs + left * 4)
        there = f.offset(marks, f.ceil_div(high, PANEL) * 16)
        with f.loop(0, states) as each:
            f.store(f.select(keep.differs(0), _IN_C, f.const(0)), f.offset(there, each.index * 8), 8)
        with f.loop(0, count) as each, f.when(status.get().equals(0)):
            part = f.offset(of, each.index * (8 * len(_PART)))
            a, a_rs, _, b, b_rs, b_cs, k, panel_b, packed, ranges = load_row(f, _PART, part, 0)
            here, row = f.offset(b, left * b_cs), f.offset(a, top * a_rs)
            last = f.select(each.index + 1 >= count, f.const(1), 0)
            where = (to_c, c_rs, sums, column, room, marks)
            with f.either(packed.equals(0)) as side:
                f.call("piece_b", VOID, [k, wide, here, b_rs, b_cs, mine, panel_b, spreads])
                status.set(f.call("tiled_block", I32, [w, high, wide, part, last, row, here, mine, spreads, *where]))
                side.otherwise()
                of_packed = (f.offset(packed, left // PANEL * panel_b), f.offset(ranges, left // SLAB * RANGE))
                status.set(f.call("tiled_block", I32, [w, high, wide, part, last, row, here, *of_packed, *where]))
    tile(f, "tilerelease")
    f.call("pto_scratch_pop", VOID, [w, room])
    f.give(status.get())


def _found(parts: Parts) -> None:
    """``tiled_found(w, n, term, room, workers, status)``: all of B packed: a kept copy, or one made now.

    room: for one that is not to be kept; null: there is none then, and nothing is packed.
    """
    fields: Fields = (
        *((PTR, "w"), (I64, "n"), (PTR, "term"), (PTR, "room"), (I64, "workers"), (PTR, "status")),
    )
    f = parts.module.function("tiled_found", PTR, fields, rare=True)
    w, n, term, room, workers, status = f.parameters
    _, _, _, b, b_rs, b_cs, k, how = load_row(f, TERM, term, 0)
    _, _, size = _layout(parts, n, k)
    to, made = f.variable(room), f.variable(f.null())
    with f.when((how & FIXED_B).differs(0) & (size <= parts.blocking.far_bytes)):
        form = Value(f, PTR, "@tiled_sum")
        matrix, found = parts.save(f, [b, k, n, b_rs, b_cs, form]), parts.save(f, [f.null()])
        copy = f.call("pto_kept_find", PTR, [w, matrix, size, found])
        with f.when(copy.differs(0)):
            f.give(copy)
        made.set(f.load(PTR, found, 8))
    with f.when(made.get().differs(0)):
        to.set(f.load(PTR, made.get(), 8))
    with f.when(to.get().equals(0)):
        f.give(f.null())
    f.store(f.call("tiled_pack", I32, [w, k, n, b, b_rs, b_cs, to.get(), workers]), status, 4)
    with f.when(made.get().differs(0)):
        f.call("pto_kept_done", VOID, [made.get()])
    f.give(to.get())


def _rows_task(parts: Parts) -> None:
    """Range function: ``rows`` rows of C each, as a sum of its own that packs B."""
    f, w, begin, end, fields = parts.task("tiled_rows", (*_SUM[1:], (I64, "rows")))
    m, n, count, terms, c, c_rs, keep, top, _, rows = fields
    first = begin * rows
    mine = [f.minimum(m, end * rows) - first, n, count, terms, f.offset(c, first * c_rs), c_rs, keep]
    f.give(f.call("tiled_sum", I32, [w, *mine, top + first, f.const(1)]))


def _parts(parts: Parts) -> None:
    """``tiled_parts(w, n, count, terms, top, to, room, workers)``: the blocks of k of `TERM`s, A from row ``top``; B of
    each packed, where copies that are not kept go to the room, if there is one."""
    fields: Fields = (
        *((PTR, "w"), (I64, "n"), (I64, "count"), (PTR, "terms"), (I64, "top"), (PTR, "to"), (PTR, "room")),
        (I64, "workers"),
    )
    f = parts.module.function("tiled_parts", I32, fields, rare=True)
    w, n, count, terms, top, to, room, workers = f.parameters
    status = parts.save(f, [f.const(0)])
    with f.loop(0, count, 1, [f.const(0), f.const(0)]) as each:
        used, done = each.carried
        term = f.offset(terms, each.index * (8 * len(TERM)))
        a, a_rs, a_cs, b, b_rs, b_cs, k, _ = load_row(f, TERM, term, 0)
        depth, blocks, size = _layout(parts, n, k)
        mine = f.select(room.equals(0), room, f.offset(room, used))
        packed = f.call("tiled_found", PTR, [w, n, term, mine, workers, status])
        with f.when(f.load(I32, status, 4).differs(0)):
            f.give(f.load(I32, status, 4))
        none = packed.equals(0)
        with f.loop(0, blocks) as part:
            first = part.index * depth
            of_a = (f.offset(a, top * a_rs + first * a_cs), a_rs, a_cs)
            of_b = (f.offset(b, first * b_rs), b_rs, b_cs, f.minimum(k - first, depth), _panel_bytes(parts, depth))
            block = f.offset(packed, _ranges(f, n, blocks) + part.index * _block_bytes(parts, n, depth))
            ranges = f.offset(packed, _ranges(f, n, part.index))
            store_row(f, to, done + part.index, [*of_a, *of_b, f.select(none, packed, block), ranges])
        each.carry(used + size, done + blocks)
    f.give(0)


def _sum(parts: Parts) -> None:
    """``tiled_sum(operands of a sum, top, workers)``: rows of A from ``top``, C there, its columns contiguous."""
    plan = parts.blocking
    f = parts.module.function("tiled_sum", I32, _SUM, rare=True)
    w, m, n, count, terms, c, c_rs, keep, top, workers = f.parameters
    with f.loop(0, count, 1, [f.const(0), f.const(0), f.const(0), f.const(0)]) as each:
        bytes_b, many, total, deepest = each.carried
        k = load_row(f, TERM, terms, each.index)[6]
        depth, blocks, size = _layout(parts, n, k)
        each.carry(bytes_b + size, many + blocks, total + k, f.maximum(deepest, depth))
    bytes_b, many, total, deepest = each.after
    share = f.select(m * n * total >= plan.split_work, workers, 1)
    dear = (share > 1) | (bytes_b > plan.near_bytes * 16)
    few = (m <= f.select(dear, f.const(2 * FEW_ROWS), FEW_ROWS)) & (n > m)
    # What another core has packed is as far as memory: B that L2 keeps is packed by each worker.
    with f.when((share > 1) & few.equals(0) & (bytes_b <= 2 * plan.near_bytes)):
        pieces = f.select(m >= share * (4 * ROWS), share * 4, share)
        rows = f.round_up(f.ceil_div(m, pieces), PANEL)
        context = parts.save(f, [m, n, count, terms, c, c_rs, keep, top, workers, rows])
        f.give(parts.share(f, "tiled_rows", w, context, f.ceil_div(m, rows)))
    # Tiles of many rows meet a panel of B often; more of them are made of columns first, though each packs A.
    wanted, slabs, most = f.select(share > 1, share * TASKS, 1), f.ceil_div(n, SLAB), f.ceil_div(m, ROWS)
    across = f.maximum(f.minimum(f.ceil_div(wanted, most), slabs), f.ceil_div(n, COLUMNS))
    below = f.maximum(most, f.minimum(f.ceil_div(wanted, across), f.ceil_div(m, 2 * PANEL)))
    across = f.select(few, f.minimum(f.round_up(f.ceil_div(n, FEW_COLUMNS), share), slabs), across)
    # With one block of k, C is what memory sees: it is written along its rows, in long runs.
    striped = (many <= 1) & few.equals(0) & (m * n > plan.near_bytes // 2)
    across = f.select(striped, f.ceil_div(bytes_b, plan.near_bytes), across)
    columns = f.ceil_div(slabs, across) * SLAB
    across = f.ceil_div(n, columns)
    rows = f.select(striped, PANEL, f.round_up(f.ceil_div(m, f.select(few, 1, below)), PANEL))
    tiles = f.ceil_div(m, rows) * across
    table = f.round_up(many * (8 * len(_PART)), 64)
    room = parts.push(f, w, table + f.select(few, 0, bytes_b))
    to_b = f.select(few, f.null(), f.offset(room, table))
    status = f.variable(f.call("tiled_parts", I32, [w, n, count, terms, top, room, to_b, share]))
    packs = f.select(few, f.const(1), 0)
    context = parts.save(f, [m, n, many, room, c, c_rs, keep, rows, columns, across, deepest, packs])
    with f.when(status.get().equals(0)), f.either(share > 1) as side:
        status.set(parts.share(f, "tiled_tiles", w, context, tiles))
        side.otherwise()
        status.set(f.call("tiled_tiles", I32, [w, context, f.const(0), tiles]))
    f.call("pto_scratch_pop", VOID, [w, room])
    f.give(status.get())


def _terms(parts: Parts) -> None:
    """``tiled_terms(operands of a sum, workers)``: a sum of products that suit; -1: they do not."""
    f = parts.module.function("tiled_terms", I32, [*_SUM[:-2], _SUM[-1]])
    *product, workers = f.parameters
    _, m, n, count, terms, *_ = product
    with f.loop(0, count, 1, [f.const(0), f.const(0)]) as each:
        _, a_rs, a_cs, _, b_rs, b_cs, k, _ = load_row(f, TERM, terms, each.index)
        with f.when(fitting(parts, k, (a_rs, a_cs), (b_rs, b_cs)).equals(0)):
            f.give(-1)
        each.carry(each.carried[0] + k, each.carried[1] + _layout(parts, n, k)[-1])
    total, bytes_b = each.after
    with f.when((bytes_b > parts.blocking.far_bytes) | suits(parts, m, n, total).equals(0)):
        f.give(-1)
    f.give(f.call("tiled_sum", I32, [*product, f.const(0), workers]))


def _product(parts: Parts) -> None:
    """``tiled(operands, keep, workers, fixed)``: one product, columns of C contiguous, by slabs of B that L3 keeps."""
    plan = parts.blocking
    f = parts.module.function("tiled", I32, [*CONTEXT, (I64, "workers"), (I64, "fixed")])
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, workers, fixed = f.parameters
    depth, blocks, _ = _layout(parts, n, k)
    panel = _panel_bytes(parts, depth)
    blocks = f.minimum(blocks, f.maximum(f.const(plan.far_bytes) // (panel * 4), 1))
    deep = blocks * depth
    most = f.maximum(f.const(plan.far_bytes) // (panel * blocks), 4) * PANEL
    wide = f.round_up(f.ceil_div(n, f.ceil_div(n, most)), PANEL)
    status = f.variable(f.const(0, I32))
    with f.loop(0, n, wide) as slab, f.loop(0, k, deep) as part, f.when(status.get().equals(0)):
        left, first = slab.index, part.index
        of_a = (f.offset(a, first * a_cs), a_rs, a_cs)
        of_b = (f.offset(b, first * b_rs + left * b_cs), b_rs, b_cs)
        to_c = (f.offset(c, left * 4), c_rs, f.select(first > 0, -1, keep))
        how = f.select(fixed.differs(0), f.const(FIXED_B), 0)
        terms = parts.save(f, [*of_a, *of_b, f.minimum(k - first, deep), how])
        operands = [w, m, f.minimum(n - left, wide), f.const(1), terms, *to_c]
        status.set(f.call("tiled_sum", I32, [*operands, f.const(0), workers]))
    f.give(status.get())
