# SPDX-License-Identifier: MIT
"""The choice of the way, the splitting over workers, and the public entry of a combo."""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.driver import PASSES, block_of_a
from pto_jit.targets.cpu.matmul.few import DEEP, add_few, can_stay, parts_of, passes_by, pieces_of, way_of
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Value
from pto_jit.targets.cpu.matmul.panels import chunked_bytes
from pto_jit.targets.cpu.matmul.parts import CONTEXT, OPERANDS, Fields, Parts
from pto_jit.targets.cpu.matmul.shape import ACCUMULATE, FIXED_A, FIXED_B
from pto_jit.targets.cpu.matmul.sums import few_columns
from pto_jit.targets.cpu.matmul.tiled import fitting, suits

PACKED_PANELS = 4
"""Panels of A that a worker packs at once."""

COLUMNS: Fields = (*CONTEXT, (I64, "task"), (PTR, "packed"), (I64, "depth"))
"""Columns of a task, and A packed with this KC, or null."""


def add_entries(parts: Parts) -> None:
    """Define everything above `driver`'s two ways, the public functions included."""
    add_few(parts)
    _single(parts)
    _columns_task(parts)
    if parts.scheme.panelled:
        _pack_task(parts)
    _rows_task(parts)
    _split(parts)
    _clear(parts)
    _whole(parts)
    _walk(parts)
    _strided(parts)
    _product(parts)
    _entry(parts)


def _single(parts: Parts) -> None:
    """``single(operands, keep)``: columns of C contiguous; choose the way."""
    s = parts.scheme
    f = parts.module.function("single", I32, CONTEXT)
    _, m, n, k, _, _, a_cs, b, b_rs, b_cs, _, _, _ = f.parameters
    way = way_of(parts, f, m, n, k, a_cs, b_rs, b_cs)
    with f.when(way.differs(0)):
        f.give(f.call("few", I32, [*f.parameters, way, f.const(1)]))
    if s.raw_b:
        with f.when(can_stay(parts, n, b_cs) & parts.small(f, m, n, k, b, b_rs)):
            f.give(f.call("near", I32, [*f.parameters, f.const(1), f.null(), f.const(0)]))
    with f.when(parts.near(m, n, k)):
        f.give(f.call("near", I32, [*f.parameters, f.const(0), f.null(), f.const(0)]))
    f.give(f.call("far", I32, [*f.parameters, f.const(1), f.null(), f.const(0)]))


def _columns_task(parts: Parts) -> None:
    """Range function: columns of C, ``task`` wide each, as products of their own; of the packed A if it is there."""
    s = parts.scheme
    f, w, begin, end, fields = parts.task("columns_task", COLUMNS)
    _, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, task, packed, depth = fields
    left = begin * task
    wide = f.minimum(n, end * task) - left
    b, c = f.offset(b, left * b_cs), f.offset(c, left * s.element_c)
    part = [w, m, wide, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep]
    # near for all columns, if not for so few; few rows that are not `few` for all columns are not for some
    with f.when((m > parts.blocking.rows) | (m <= parts.blocking.stream_rows) | packed.differs(0)):
        f.give(f.call("near", I32, [*part, f.const(0), packed, depth]))
    f.give(f.call("single", I32, part))


def _pack_task(parts: Parts) -> None:
    """Range function: panels of rows of A, ``begin * PACKED_PANELS ...``, all of k, as `near` takes them."""
    s = parts.scheme
    f, _, begin, end, fields = parts.task("pack_task", COLUMNS)
    _, m, _, k, a, a_rs, a_cs, *_, to, depth = fields
    _, block = block_of_a(parts, f, m, depth)
    share = PACKED_PANELS * s.panel_rows
    top = begin * share
    high = f.minimum(m, end * share) - top
    with f.loop(0, k, depth, [f.offset(a, top * a_rs), to]) as part:
        at, put = part.carried
        deep = f.minimum(k - part.index, depth)
        mine = f.offset(put, top * chunked_bytes(f, s, deep))
        f.call("pack_a_panels", VOID, [deep, high, at, a_rs, a_cs, mine])
        part.carry(f.offset(at, depth * a_cs), f.offset(put, block))
    f.give(0)


def _rows_task(parts: Parts) -> None:
    """Range function: rows of C, ``task`` each, with B where it lies."""
    f, w, begin, end, fields = parts.task("rows_task", (*CONTEXT, (I64, "task")))
    _, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, task = fields
    top = begin * task
    high = f.minimum(m, end * task) - top
    a, c = f.offset(a, top * a_rs), f.offset(c, top * c_rs)
    product = [w, high, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep]
    f.give(f.call("near", I32, [*product, f.const(1), f.null(), f.const(0)]))


def _split(parts: Parts) -> None:
    """``split(operands, keep, workers)``: the same over the workers, each element by the steps that one would take."""
    s, plan = parts.scheme, parts.blocking
    f = parts.module.function("split", I32, [*CONTEXT, (I64, "workers")], rare=True)
    *product, workers = f.parameters
    w, m, n, k, _, _, a_cs, _, b_rs, b_cs, _, _, _ = product
    with f.when((m * n * k < plan.split_work) | (workers <= 1)):
        f.give(f.call("single", I32, product))
    way = way_of(parts, f, m, n, k, a_cs, b_rs, b_cs)
    with f.when(way.differs(0)):
        f.give(f.call("few", I32, [*product, way, workers]))
    if s.raw_b:
        # Packed by one worker, B would have to travel to the others: in place even where one worker would pack it,
        # unless its rows fall into few sets of the caches.
        spread = (b_rs % 2048).differs(0) | (n * k <= plan.small_bytes // s.unit)
        small = (n * k <= plan.shared_bytes // s.unit) & spread & ((k <= plan.depth * s.group) | few_columns(parts, n))
        with f.when(can_stay(parts, n, b_cs) & small & (m > 2 * s.tile_rows)):
            least = f.ceil_div(f.const(plan.task_work), n * k)
            task = f.round_up(f.maximum(f.ceil_div(m, parts.pieces(f, workers)), least), s.tile_rows)
            context = parts.save(f, [*product, task])
            f.give(parts.share(f, "rows_task", w, context, f.ceil_div(m, task)))
    with f.when(parts.near(m, n, k) & (n > 4 * s.tile_columns)):
        least = f.ceil_div(f.const(plan.task_work), m * k)
        # Matrix tiles take so little time that each piece should be worth reading A for it again.
        pieces = workers * 2 if s.tiles else parts.pieces(f, workers)
        pieces = f.select(m <= plan.stream_rows, pieces_of(f, n, workers), pieces)
        task = f.round_up(f.maximum(f.ceil_div(n, pieces), least), s.tile_columns)
        columns = f.ceil_div(n, task)
        if not s.panelled:
            context = parts.save(f, [*product, task, f.null(), f.const(0)])
            f.give(parts.share(f, "columns_task", w, context, columns))
        else:
            _split_packed(parts, f, product, task, columns)
    f.give(f.call("far", I32, [*product, workers, f.null(), f.const(0)]))


def _split_packed(parts: Parts, f: Function, product: list[Value], task: Value, columns: Value) -> None:
    """Columns over the workers; A, which all of them need packed, is packed once: all of k, or as much as L3 keeps."""
    s, plan = parts.scheme, parts.blocking
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep = product
    depth = parts.depth(f, k, plan.depth)
    _, block = block_of_a(parts, f, m, depth)
    blocks = f.minimum(f.maximum(f.const(plan.far_bytes) // block, 1), f.ceil_div(k, depth))
    packed = parts.push(f, w, block * blocks)
    status = f.variable(f.const(0, I32))
    with f.loop(0, k, blocks * depth) as part:
        first = part.index
        deep, kept = f.minimum(k - first, blocks * depth), f.select(first > 0, -1, keep)
        of_a, of_b = (f.offset(a, first * a_cs), a_rs, a_cs), (f.offset(b, first * b_rs), b_rs, b_cs)
        context = parts.save(f, [w, m, n, deep, *of_a, *of_b, c, c_rs, kept, task, packed, depth])
        for name, count in (("pack_task", f.ceil_div(m, PACKED_PANELS * s.panel_rows)), ("columns_task", columns)):
            with f.when(status.get().equals(0)):
                status.set(parts.share(f, name, w, context, count))
    f.call("pto_scratch_pop", VOID, [w, packed])
    f.give(status.get())


def _clear(parts: Parts) -> None:
    """``clear(m, n, c, c_rs, c_cs)``: C = 0."""
    f = parts.module.function("clear", VOID, [(I64, "m"), (I64, "n"), (PTR, "c"), (I64, "rs"), (I64, "cs")], hot=False)
    m, n, c, rs, cs = f.parameters
    type_ = f"i{8 * parts.scheme.element_c}"
    with f.loop(0, m, 1, [c]) as rows:
        with f.loop(0, n, 1, [rows.carried[0]]) as columns:
            f.store(Value(f, type_, "0"), columns.carried[0])
            columns.carry(f.offset(columns.carried[0], cs))
        rows.carry(f.offset(rows.carried[0], rs))
    f.give()


def _walk(parts: Parts) -> None:
    """``walk(operands, keep, workers, fixed)``: all of k as a whole, or in parts."""
    f = parts.module.function("walk", I32, [*CONTEXT, (I64, "workers"), (I64, "fixed")])
    *product, workers, fixed = f.parameters
    _, m, n, k, *_ = product
    with f.when(fixed.equals(0) & (parts_of(f, m, n, k) > 1)):
        f.give(f.call("few", I32, [*product, f.const(DEEP), workers]))
    f.give(f.call("whole", I32, f.parameters))


def _whole(parts: Parts) -> None:
    """``whole(operands, keep, workers, fixed)``: by matrix tiles; from a kept copy of B, if one is repaid; or split."""
    s, plan = parts.scheme, parts.blocking
    f = parts.module.function("whole", I32, [*CONTEXT, (I64, "workers"), (I64, "fixed")])
    *product, workers, fixed = f.parameters
    _, m, n, k, _, a_rs, a_cs, _, b_rs, b_cs, *_ = product
    if s.pieces:
        with f.when(suits(parts, m, n, k) & fitting(parts, k, (a_rs, a_cs), (b_rs, b_cs))):
            f.give(f.call("tiled", I32, f.parameters))
    if s.sums:
        _alone(parts, f)
    # Few rows read B where it lies as fast; fewer are products of another kind.
    in_place = b_cs.equals(s.element_b) if s.raw_b else f.const(0).differs(0)
    repaid = (m > plan.stream_rows) | ((m > plan.dot_rows) & (in_place.equals(0)))
    with f.when(fixed.differs(0) & repaid):
        status = f.call("kept", I32, [*product, f.select(m * n * k < plan.split_work, 1, workers)])
        with f.when(status.differs(-1)):
            f.give(status)
    if s.tiles:
        with f.when(passes_by(parts, m, n, k, b_cs) & (fixed.equals(0) | repaid.equals(0))):
            f.give(f.call("few", I32, [*product, f.const(PASSES), workers]))
    f.give(f.call("split", I32, [*product, workers]))


def _alone(parts: Parts, f: Function) -> None:
    """A product of so few columns that packing A is not repaid, as a sum of one; B is packed.

    B that may change is read where it lies when it is small or workers share it, unless A is so large that blocks
    of it have to stay in L2 for several panels of B.
    """
    s, plan = parts.scheme, parts.blocking
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, workers, fixed = f.parameters
    shared = (workers > 1) & (m * n * k >= plan.split_work)
    in_place = b_cs.equals(s.element_b) & fixed.equals(0) & (shared | parts.small(f, m, n, k, b, b_rs))
    blocks = (n > 2 * s.tile_columns) & (m * k > plan.near_bytes // s.unit)
    with f.when(few_columns(parts, n) & (in_place.equals(0) | blocks)):
        how = f.select(fixed.differs(0), FIXED_B, 0)
        terms = parts.save(f, [a, a_rs, a_cs, b, b_rs, b_cs, k, how])
        status = f.call("together", I32, [w, m, n, f.const(1), terms, c, c_rs, keep, workers])
        with f.when(status.differs(-1)):
            f.give(status)


def _strided(parts: Parts) -> None:
    """``strided(operands, c_cs, keep, workers)``: no unit stride in C (or none that A and B may change places for)."""
    s = parts.scheme
    f = parts.module.function("strided", I32, [*OPERANDS, (I64, "c_cs"), (I64, "keep"), (I64, "workers")], hot=False)
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, keep, workers = f.parameters
    high, wide = f.minimum(m, 512), f.minimum(n, 1024)
    row = wide * s.element_c
    room = parts.push(f, w, high * row)
    status = f.variable(f.const(0, I32))
    with f.loop(0, m, high) as top, f.loop(0, n, wide) as left:
        rows, columns = f.minimum(m - top.index, high), f.minimum(n - left.index, wide)
        with f.when(status.get().equals(0)):
            a_part, b_part = f.offset(a, top.index * a_rs), f.offset(b, left.index * b_cs)
            part = [w, rows, columns, k, a_part, a_rs, a_cs, b_part, b_rs, b_cs, room, row, f.const(0), workers]
            status.set(f.call("walk", I32, [*part, f.const(0)]))
            with f.when(status.get().equals(0)):
                target = f.offset(c, top.index * c_rs + left.index * c_cs)
                with f.loop(0, rows) as i, f.loop(0, columns) as j:
                    source = f.offset(room, i.index * row + j.index * s.element_c)
                    parts.merge(f, source, f.offset(target, i.index * c_rs + j.index * c_cs), keep)
    f.call("pto_scratch_pop", VOID, [w, room])
    f.give(status.get())


def _product(parts: Parts) -> None:
    """``product(operands, c_cs, how, workers)``: element strides, degenerate sizes, the orientation of C."""
    s = parts.scheme
    f = parts.module.function("product", I32, [*OPERANDS, (I64, "c_cs"), (I32, "how"), (I64, "workers")])
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, how, workers = f.parameters
    fixed_a, fixed_b = (f.widen(how & bit) for bit in (FIXED_A, FIXED_B))
    with f.when((m <= 0) | (n <= 0)):
        f.give(0)
    a_rs, a_cs = a_rs * s.element_a, a_cs * s.element_a
    b_rs, b_cs = b_rs * s.element_b, b_cs * s.element_b
    c_rs, c_cs = c_rs * s.element_c, c_cs * s.element_c
    adds = (how & ACCUMULATE).differs(0)
    with f.when(k <= 0):
        with f.when(adds.equals(0)):
            f.call("clear", VOID, [m, n, c, c_rs, c_cs])
        f.give(0)
    keep = f.select(adds, -1, 0)
    lies = c_cs.equals(s.element_c) | n.equals(1)
    if s.symmetric:
        # One column is a row of the transposed product; else the transposed product is taken when C lies that way.
        stands = c_rs.equals(s.element_c) | m.equals(1)
        turned = stands & (n.equals(1) | lies.equals(0))
        with f.when(turned):
            f.give(f.call("walk", I32, [w, n, m, k, b, b_cs, b_rs, a, a_cs, a_rs, c, c_cs, keep, workers, fixed_a]))
    with f.when(lies):
        product = [w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep]
        f.give(f.call("walk", I32, [*product, workers, fixed_b]))
    f.give(f.call("strided", I32, [w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, keep, workers]))


def _entry(parts: Parts) -> None:
    """The public function."""
    fields = [*OPERANDS, (I64, "c_cs"), (I32, "how")]
    f = parts.module.function(parts.scheme.combo.symbol, I32, fields, public=True)
    f.give(f.call("product", I32, [*f.parameters, parts.workers(f, f.parameters[0])]))
