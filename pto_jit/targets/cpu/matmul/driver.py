# SPDX-License-Identifier: MIT
"""The loops around the micro-kernels, and the two entry points of a combo.

Three ways to walk a product, chosen from m, n, k and the strides alone:

* *in place*: B with contiguous columns is read where it lies: small B, or so few rows of A that B is read once anyway
  (then in blocks of few rows of B, so that memory is read in long runs);
* *near*: m fits one block of rows, or few and B is large: B is packed block by block into L2 and used at once;
* *far*: a slab of B (all of k) is packed first, then tiles of C are computed from it; both steps split over workers.

B that does not change in a launch and was met before is packed as in *far* into memory that the launch keeps, and
the products after that begin with the tiles (`kept`).

k is never split between workers and its blocking depends on sizes and strides alone, so results do not depend on their
number.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Value
from pto_jit.targets.cpu.matmul.panels import chunked_bytes
from pto_jit.targets.cpu.matmul.parts import CONTEXT, PANELS, ROWS, Fields, Parts

STREAMS, PASSES = 2, -1
"""How B passes by few rows of A, in blocks of few of its rows: read where it lies, or packed block by block."""

FAR: Fields = (
    *CONTEXT,
    (PTR, "room"),
    (I64, "depth"),
    (I64, "panel"),
    (I64, "task_panels"),
    (I64, "row_tasks"),
    (I64, "task_columns"),
    (I64, "across"),
    (I64, "how"),
)


def add_driver(parts: Parts) -> None:
    """Define ``near``, ``far`` and ``kept``."""
    _near(parts)
    _far_pack(parts)
    _far_tiles(parts)
    _far(parts)
    _kept(parts)


def _near(parts: Parts) -> None:
    """``near(operands, keep, in_place, given, given_depth)``: m fits one block; B packed block by block, or in place.

    in_place: 0, 1, `STREAMS`, or `PASSES`.
    given: null, or A packed as `block_of_a` says for this KC, of a product with packed B.
    """
    s, plan = parts.scheme, parts.blocking
    f = parts.module.function("near", I32, [*CONTEXT, (I64, "in_place"), (PTR, "given"), (I64, "given_depth")])
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, in_place, given, given_depth = f.parameters
    here, passes = in_place > 0, in_place < 0
    # B larger than L2 passes by in blocks of few rows, prefetched along the rows; the more rows C has, the deeper the
    # blocks, so that C is not read and written too often.  Yet the rows of B that a panel crosses must stay in the
    # caches until all rows of A have met them: where they are 4 KiB or a multiple apart, they fall into few sets.
    streams = in_place.equals(STREAMS)
    most = f.select(m <= 8, plan.stream_depth, plan.stream_depth * 2)
    most = f.select(m <= 16, most, plan.stream_depth * 3)
    most = f.select(streams, f.minimum(most, plan.depth), plan.depth)
    most = f.select(passes, plan.pass_depth, most)
    own = given.equals(0)
    depth = f.select(own, parts.depth(f, k, most), given_depth)
    how = parts.how_a(f, m, n, k, a_rs, a_cs)
    if s.raw_a and s.group == 1:
        how = f.select(streams & (m <= 8), 0, how)
    if s.panelled:
        how = f.select(here, how, PANELS)
    groups = f.ceil_div(depth, s.group)
    row, block_a = block_of_a(parts, f, m, depth)
    blocks = f.ceil_div(k, depth)
    packs = how.differs(0) & own
    # Packed once for all slabs of B, unless k is so large that it is packed again for each.
    once = block_a * blocks <= plan.far_bytes
    next_a = f.select(once | own.equals(0), block_a, 0)
    bytes_a = f.select(packs, f.select(once, block_a * blocks, block_a), 0)
    panel = parts.panel_bytes(groups)
    # more rows than one block: A takes more of L2, B less
    half = max(plan.near_columns // 2 // s.tile_columns, 1) * s.tile_columns
    most = f.select(m <= plan.rows, f.const(plan.near_columns), half)
    passing = max(plan.near_bytes // (plan.pass_depth * s.unit * s.tile_columns), 1) * s.tile_columns
    wide = f.select(here, n, f.minimum(n, f.select(passes, passing, most)))
    bytes_b = f.select(here, 0, f.ceil_div(wide, s.panel_columns) * panel)
    total = bytes_a + bytes_b
    room = f.variable(Value(f, PTR, "null"))
    with f.when(total > 0):
        room.set(parts.push(f, w, total))
    to_b = f.offset(f.offset(room.get(), bytes_a), s.header)
    to_a = f.select(own, room.get(), given)
    with f.loop(0, n, wide) as slab:
        columns = f.minimum(n - slab.index, wide)
        b_slab, c_slab = f.offset(b, slab.index * b_cs), f.offset(c, slab.index * s.element_c)
        with f.loop(0, blocks) as part:
            first = part.index * depth
            deep = f.minimum(k - first, depth)
            now = parts.groups(f, deep, how)
            b_part = f.offset(b_slab, first * b_rs)
            with f.when(packs & (slab.index.equals(0) | once.equals(0))):
                a_part = f.offset(a, first * a_cs)
                f.call("pack_a", VOID, [deep, m, a_part, a_rs, a_cs, f.offset(to_a, part.index * next_a), how, row])
            with f.when(here.equals(0)):
                f.call("pack_b", VOID, [deep, columns, b_part, b_rs, b_cs, to_b, panel])
            a_row, a_step, a_panel = parts.a_strides(f, how, now, row, a_rs, a_cs)
            at = f.select(how.equals(0), first * a_cs, part.index * next_a)
            base = f.select(how.equals(0), a, to_a)
            kept = f.select(part.index > 0, -1, keep)
            b_at = f.select(here, b_part, to_b)
            b_step = f.select(here, b_rs, s.tile_columns * s.unit)
            b_panel = f.select(here, s.tile_columns * s.unit, panel)
            packed = f.select(here, 0, 1)
            near_rows = f.select(m <= 8, f.const(2 * plan.stream_ahead), plan.stream_ahead)
            ahead = f.select(streams, near_rows, f.select(here, b_rs * 8, plan.panel_ahead))
            of_a = (f.offset(base, at), a_row, a_step, a_panel)
            of_b = (b_at, b_step, b_panel, packed)
            product = [m, columns, now, *of_a, *of_b, c_slab, c_rs, kept, ahead, f.const(0)]
            tall = streams & (how.equals(0) | how.equals(ROWS))
            if s.panelled:
                with f.either(here) as side:
                    _strided(parts, f, product, tall)
                    side.otherwise()
                    of_c = (c_slab, c_rs, kept, f.const(0))
                    f.call("macro_panels", VOID, [m, columns, now, of_a[0], to_b, panel, *of_c])
            else:
                _strided(parts, f, product, tall)
    with f.when(total > 0):
        f.call("pto_scratch_pop", VOID, [w, room.get()])
    f.give(0)


def block_of_a(parts: Parts, f: Function, m: Value, depth: Value) -> tuple[Value, Value]:
    """Bytes of a packed row, and of a block of A of KC = depth; the blocks of all parts of k lie one after another."""
    row = parts.row_bytes(f, depth)
    return row, f.round_up(m, parts.scheme.panel_rows) * row


def _strided(parts: Parts, f: Function, product: list[Value], tall: Value) -> None:
    """A block by the micro-kernels for all strides, the taller one if `tall`."""
    if parts.scheme.tall_tile is None:
        f.call("macro", VOID, product)
        return
    with f.either(tall) as side:
        f.call("macro_tall", VOID, product)
        side.otherwise()
        f.call("macro", VOID, product)


def _far_pack(parts: Parts) -> None:
    """Range function: pack panels ``begin * task_panels ...`` of the slab, all of k."""
    s = parts.scheme
    f, _, begin, end, fields = parts.task("far_pack", FAR)
    _, _, n, k, _, _, _, b, b_rs, b_cs, _, _, _, room, depth, panel, task_panels, *_ = fields
    first = begin * task_panels
    columns = f.minimum(n, end * task_panels * s.panel_columns) - first * s.panel_columns
    block = f.ceil_div(n, s.panel_columns) * panel
    to = f.offset(room, first * panel + s.header)
    at = f.offset(b, first * s.panel_columns * b_cs)
    with f.loop(0, k, depth, [to, at]) as part:
        put, here = part.carried
        f.call("pack_b", VOID, [f.minimum(k - part.index, depth), columns, here, b_rs, b_cs, put, panel])
        part.carry(f.offset(put, block), f.offset(here, depth * b_rs))
    f.give(0)


def _far_tiles(parts: Parts) -> None:
    """Range function: tiles of C from packed B."""
    s = parts.scheme
    f, w, begin, end, fields = parts.task("far_tiles", FAR)
    _, m, n, k, a, a_rs, a_cs, _, _, _, c, c_rs, keep, room, depth, panel, _, row_tasks, columns, across, how = fields
    m_panels = f.ceil_div(m, s.panel_rows)
    rows = f.ceil_div(m_panels, row_tasks) * s.panel_rows
    row = parts.row_bytes(f, depth)
    packs = how.differs(0)
    to_a = f.variable(Value(f, PTR, "null"))
    with f.when(packs):
        to_a.set(parts.push(f, w, f.round_up(rows, s.panel_rows) * row))
    mine = to_a.get()
    block = f.ceil_div(n, s.panel_columns) * panel
    shallow = k <= parts.blocking.shallow * s.group
    # Panels may come from L3, whose latency the prefetch along a panel is too short for: the slab is beyond L2, or it
    # is a kept copy, met after others.  Shallow tiles pass by each panel too often to ask for the next each time.
    beyond = block * f.ceil_div(k, depth) > parts.blocking.near_bytes
    following = f.select(shallow, f.select(beyond, panel, 0), panel)
    with f.loop(begin, end) as task:
        left = (task.index % across) * columns
        top = share_of(f, m_panels, task.index // across, row_tasks) * s.panel_rows
        below = share_of(f, m_panels, task.index // across + 1, row_tasks) * s.panel_rows
        high, wide = f.minimum(m, below) - top, f.minimum(n - left, columns)
        b_left = f.offset(room, (left // s.panel_columns) * panel + s.header)
        a_top = f.offset(a, top * a_rs)
        c_tile = f.offset(c, top * c_rs + left * s.element_c)
        with f.loop(0, k, depth, [b_left]) as part:
            deep = f.minimum(k - part.index, depth)
            now = parts.groups(f, deep, how)
            a_part = f.offset(a_top, part.index * a_cs)
            with f.when(packs):
                f.call("pack_a", VOID, [deep, high, a_part, a_rs, a_cs, mine, how, row])
            a_row, a_step, a_panel = parts.a_strides(f, how, now, row, a_rs, a_cs)
            if s.panelled:
                a_panel = chunked_bytes(f, s, now) * s.panel_rows
            kept = f.select(part.index > 0, -1, keep)
            # With little k, C is what memory sees: walk along its rows, so that it is written in long runs.
            stripe = f.select(shallow, s.panel_rows, high)
            stripe_panel = f.select(shallow, a_panel, 0)
            with f.loop(0, high, stripe, [f.select(packs, mine, a_part), c_tile]) as stripes:
                a_at, c_at = stripes.carried
                now_high = f.minimum(high - stripes.index, stripe)
                b_at, of_c = part.carried[0], (c_at, c_rs, kept)
                if s.panelled:
                    f.call("macro_panels", VOID, [now_high, wide, now, a_at, b_at, panel, *of_c, following])
                else:
                    of_b = (b_at, f.const(s.panel_columns * s.unit), panel, f.const(1))
                    of_a, ahead = (a_at, a_row, a_step, a_panel), f.const(parts.blocking.panel_ahead)
                    f.call("macro", VOID, [now_high, wide, now, *of_a, *of_b, *of_c, ahead, following])
                stripes.carry(f.offset(a_at, stripe_panel), f.offset(c_at, c_rs * s.panel_rows))
            part.carry(f.offset(part.carried[0], block))
    with f.when(packs):
        f.call("pto_scratch_pop", VOID, [w, mine])
    f.give(0)


def share_of(f: Function, items: Value, part: Value, parts: Value) -> Value:
    """Where a part of items begins, if each gets as many as the others or one more."""
    return items * part // parts


def _far(parts: Parts) -> None:
    """``far(operands, keep, workers, given, is_packed)``: pack a slab of B, then compute from it, slab by slab.

    given: null, or memory for all of B as one slab, in which it is already packed if is_packed is not 0.
    """
    s, plan = parts.scheme, parts.blocking
    f = parts.module.function("far", I32, [*CONTEXT, (I64, "workers"), (PTR, "given"), (I64, "is_packed")], rare=True)
    w, m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, keep, workers, given, is_packed = f.parameters
    many = workers > 1
    depth, panel, blocks, panels = layout_of_b(parts, f, n, k)
    # A slab is four panels at least; where k is too long for that, C is computed from one part of k after another.
    fits = f.maximum(f.const(plan.far_bytes) // (panel * 4), 1)
    blocks = f.select(given.equals(0), f.minimum(blocks, fits), blocks)
    most = f.maximum(f.const(plan.far_bytes) // (panel * blocks), 4)
    slabs = f.select(given.equals(0), f.ceil_div(panels, most), 1)
    slab_panels = f.ceil_div(panels, slabs)
    own = f.variable(given)
    with f.when(given.equals(0)):
        own.set(parts.push(f, w, slab_panels * panel * blocks))
    room = own.get()
    status = f.variable(f.const(0, I32))
    how = f.const(PANELS) if s.panelled else parts.how_a(f, m, n, k, a_rs, a_cs)
    slab_columns = slab_panels * s.panel_columns
    with f.loop(0, n, slab_columns) as slab, f.loop(0, k, blocks * depth) as part:
        columns, first = f.minimum(n - slab.index, slab_columns), part.index
        deep, kept = f.minimum(k - first, blocks * depth), f.select(first > 0, -1, keep)
        here = f.ceil_div(columns, s.panel_columns)
        # Tiles of C that stay in L2; shared, of at least task_work and two panels of rows each, and half as many as
        # tasks of other kinds, for each packs rows of A and meets all of B.
        tasks = f.ceil_div(parts.pieces(f, workers), 2)
        least = f.maximum(f.const(plan.task_work) // (columns * deep), 2 * s.panel_rows)
        shared_rows = f.minimum(f.maximum(f.ceil_div(m, f.ceil_div(tasks, 2)), least), plan.tile_rows)
        rows_blocks = f.ceil_div(m, f.select(many, shared_rows, plan.tile_rows))
        rows_blocks = f.minimum(f.round_up(rows_blocks, workers), f.ceil_div(m, s.panel_rows))
        widest = f.ceil_div(here, 8 * s.tile_columns // s.panel_columns)
        across = f.minimum(f.maximum(tasks // rows_blocks, 1), widest)
        across = f.maximum(f.select(many, across, 1), f.ceil_div(columns, plan.tile_columns))
        shallow = f.ceil_div(here * panel, plan.near_bytes)
        across = f.select(k <= plan.shallow * s.group, f.maximum(across, shallow), across)
        task_columns = f.ceil_div(here, across) * s.panel_columns
        across = f.ceil_div(columns, task_columns)
        task_panels = _panels_of_task(parts, f, here, workers)
        of_a, of_c = (f.offset(a, first * a_cs), a_rs, a_cs), (f.offset(c, slab.index * s.element_c), c_rs)
        of_b = (f.offset(b, slab.index * b_cs + first * b_rs), b_rs, b_cs)
        operands = [w, m, columns, deep, *of_a, *of_b, *of_c, kept]
        layout = [room, depth, panel, task_panels, rows_blocks, task_columns, across, how]
        context = parts.save(f, [*operands, *layout])
        packing = f.select(is_packed.equals(0), f.ceil_div(here, task_panels), 0)
        for name, count in (("far_pack", packing), ("far_tiles", rows_blocks * across)):
            with f.when(status.get().equals(0)), f.either(many) as side:
                status.set(parts.share(f, name, w, context, count))
                side.otherwise()
                status.set(f.call(name, I32, [w, context, f.const(0), count]))
    with f.when(given.equals(0)):
        f.call("pto_scratch_pop", VOID, [w, room])
    f.give(status.get())


def _panels_of_task(parts: Parts, f: Function, panels: Value, workers: Value) -> Value:
    """How many panels of B a worker packs at a time."""
    return f.select(workers > 1, f.maximum(f.ceil_div(panels, f.ceil_div(parts.pieces(f, workers), 2)), 4), panels)


def pack_slab(
    parts: Parts, f: Function, w: Value, n: Value, k: Value, of_b: tuple[Value, Value, Value],
    to: tuple[Value, Value, Value], workers: Value
) -> Value:  # fmt: skip
    """Pack all of B, (address, strides), to (room, KC, bytes of a panel) as `layout_of_b` says; gives the status."""
    panels, none = f.ceil_div(n, parts.scheme.panel_columns), f.const(0)
    task_panels = _panels_of_task(parts, f, panels, workers)
    of_a = of_c = (f.null(), none, none)
    context = parts.save(f, [w, none, n, k, *of_a, *of_b, *of_c, *to, task_panels, none, none, none, none])
    status = f.variable(f.const(0, I32))
    with f.either(workers > 1) as side:
        status.set(parts.share(f, "far_pack", w, context, f.ceil_div(panels, task_panels)))
        side.otherwise()
        status.set(f.call("far_pack", I32, [w, context, none, f.const(1)]))
    return status.get()


def layout_of_b(parts: Parts, f: Function, n: Value, k: Value) -> tuple[Value, Value, Value, Value]:
    """KC, bytes of a panel of so many rows, parts of k, panels across: how `far` lays B out."""
    s = parts.scheme
    depth = parts.depth(f, k, parts.blocking.depth)
    panel = parts.panel_bytes(f.ceil_div(depth, s.group))
    return depth, panel, f.ceil_div(k, depth), f.ceil_div(n, s.panel_columns)


def _kept(parts: Parts) -> None:
    """``kept(operands, keep, workers)``: -1, or the product from a copy of B that the launch keeps.

    The bits are those of the other ways: k is divided alike.
    """
    plan = parts.blocking
    f = parts.module.function("kept", I32, [*CONTEXT, (I64, "workers")])
    w, _, n, k, _, _, _, b, b_rs, b_cs, _, _, _, _ = f.parameters
    _, panel, blocks, panels = layout_of_b(parts, f, n, k)
    size = panels * panel * blocks
    with f.when(size > plan.far_bytes):
        f.give(-1)
    form = Value(f, PTR, "@kept")  # panels differ from dtype to dtype
    matrix = parts.save(f, [b, k, n, b_rs, b_cs, form])
    room = parts.save(f, [f.const(0)])
    copy = f.call("pto_kept_find", PTR, [w, matrix, size, room])
    with f.when(copy.differs(0)):
        f.give(f.call("far", I32, [*f.parameters, copy, f.const(1)]))
    made = f.load(PTR, room, 8)
    with f.when(made.equals(0)):
        f.give(-1)
    status = f.call("far", I32, [*f.parameters, f.load(PTR, made, 8), f.const(0)])
    f.call("pto_kept_done", VOID, [made])
    f.give(status)
