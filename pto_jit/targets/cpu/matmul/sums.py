# SPDX-License-Identifier: MIT
"""Sums of products on processors with AVX-512: ``C (+)= A0 B0 + A1 B1 + ...`` with a tile of C in registers throughout.

Products of little k spend their time on moving C and on packing A for a few columns only.  A sum of them is one product
of much k whose parts lie anywhere: rows of A are read where they are, panels of B are packed (kept ones are found), and
C is read and written once for as many parts as have the depth of a usual block.  This is the batch-reduced product of
Georganas et al., "Harnessing Deep Learning via a Single Building Block" (2020).

A term of much k is parts, too, as many as the blocks of other products, whose kept B it shares.

Every element is one chain of fused multiply-adds through the parts of a group; sizes and strides alone say which way
is taken and what the groups are, so bits do not depend on workers, nor on what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.targets.cpu.matmul.driver import layout_of_b, pack_slab
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.kernel import Tile
from pto_jit.targets.cpu.matmul.parts import Fields, Parts
from pto_jit.targets.cpu.matmul.shape import ACCUMULATE, FIXED_B, LOW, Scheme
from pto_jit.targets.cpu.matmul.vectors import low_bits, opaque, prefetch

TERM: Fields = (
    *((PTR, "a"), (I64, "a_rs"), (I64, "a_cs"), (PTR, "b"), (I64, "b_rs"), (I64, "b_cs"), (I64, "k"), (I64, "how")),
)
"""A product of a sum as callers give it: strides in bytes; how: 0, `FIXED_A`, `FIXED_B` or both."""

PART: Fields = ((PTR, "a"), (I64, "a_row"), (I64, "groups"), (PTR, "b"), (I64, "panel"), (I64, "following"))
"""A part as micro-kernels take it: a term, or some of its k; strides in bytes, B packed, following as in `kernel`."""

UNROLL = 4

ASKED = 2
"""Lines of the following panel of B that are prefetched with `UNROLL` steps of a tile: after four tiles, all of it."""

WIDEST = 8
"""Panels of columns up to which packing A is not repaid."""

ALIKE = 4096
"""Bytes: rows of A a multiple apart fall into the same sets of the caches, and are packed."""

_SUM: Fields = (
    *((PTR, "w"), (I64, "m"), (I64, "n"), (I64, "count"), (PTR, "terms"), (PTR, "c"), (I64, "c_rs"), (I64, "keep")),
    (I64, "workers"),
)


def add_sums(parts: Parts) -> None:
    """Define ``together``, what it is made of, and the public function of sums."""
    for vectors in range(1, parts.scheme.panel_vectors + 1):
        _column(parts.module, parts.scheme, f"sums_{vectors}", vectors)
    _column(parts.module, parts.scheme, "sums_pair", 2 * parts.scheme.panel_vectors)
    _macro(parts)
    _rows_task(parts)
    _pack(parts)
    _together(parts)
    _entry(parts)


_COLUMN: Fields = (
    *((I64, "m"), (I64, "first"), (I64, "last"), (PTR, "parts"), (I64, "top"), (I64, "left")),
    *((PTR, "c"), (I64, "c_row"), (I64, "lanes"), (I64, "keep")),
)


def _column(module: Module, scheme: Scheme, name: str, vectors: int) -> None:
    """A column of register tiles, rows from ``top`` of A, columns of panel ``left`` of B and, if so wide, the next."""
    f = module.function(name, VOID, _COLUMN)
    m, _, _, _, top, _, c, c_row, _, _ = f.parameters
    high = scheme.panel_rows if vectors <= scheme.panel_vectors else scheme.pair_rows
    rest = m % high
    ends = [(high, m - rest), (LOW, m - rest % LOW)]
    at, to = f.const(0), c
    for rows, end in ends:
        tile = _Tile(f, scheme, rows, vectors, asks=rows == high)
        with f.loop(at, end, rows, [to]) as loop:
            tile.write(top, loop.index, loop.carried[0])
            loop.carry(f.offset(loop.carried[0], c_row * rows))
        at, to = end, loop.after[0]
    for rows in range(1, LOW):
        with f.when((m - at).equals(rows)):
            _Tile(f, scheme, rows, vectors).write(top, at, to)
    f.give()


_Apart = tuple[Value, Value | None]
"""Bytes from a row of A to the next, and from a panel of B to the one that a tile meets with it."""


class _Tile(Tile):
    """Emits one register tile of a sum, of one panel or of two; asks: it prefetches what comes after it."""

    def __init__(self, f: Function, scheme: Scheme, rows: int, vectors: int, *, asks: bool = False) -> None:
        self.asks, self.pair = asks, vectors > scheme.panel_vectors
        _, self.first, self.last_part, self.parts, _, self.left, _, c_row, lanes, keep = f.parameters
        super().__init__(f, scheme, rows, vectors, c_row=c_row, lanes=lanes, keep=keep)
        self.line = 64 // scheme.unit

    def write(self, top: Value, row: Value, c: Value) -> None:
        """All parts from row ``top + row`` of A, to the rows of C at ``c``."""
        f, count = self.f, self.rows * self.vectors
        places = self.places(self.rows, c)
        if not self.asks:
            for place in places:
                self.ask(place)
        zero = Value(f, self.math.sum_type, "zeroinitializer")
        with f.loop(self.first, self.last_part, 1, [zero] * count, at_least_once=True) as part:
            a, a_row, groups, b, panel, following = load_row(f, PART, self.parts, part.index)
            at, b = f.offset(a, (top + row) * a_row), f.offset(b, self.left * panel)
            apart = (a_row, panel if self.pair else None)
            state = [*part.carried, *self._bases(at, a_row), b]
            times = groups // UNROLL
            if self.asks:
                share = times // self.shares
                end = following * 2 if self.pair else following
                asked = (row // self.rows) * (share * (self.shares * ASKED * 64))
                below, after = f.offset(at, a_row * self.rows), f.offset(b, end)
                state = self._asking(times, share, apart, (after, end), c, [*state, below, below, asked])
            else:
                state = self._steps(times, UNROLL, apart, state)
            state = self._steps(groups % UNROLL, 1, apart, state)
            part.carry(*state[:count])
        self.finish(part.after, places)

    def _asking(
        self, times: Value, share: Value, apart: _Apart, following: tuple[Value, Value], c: Value, state: list[Value]
    ) -> list[Value]:
        """So many times `UNROLL` steps, ``share`` for each share of the rows of C (the last one takes what is left),
        which come nearer first; meanwhile so do the
        rows of A of the next tile, line by line, and so many bytes at ``following``, of the panels of B after this
        tile's.  The state ends with a line of A, a row of that line, and the first byte of B to be prefetched."""
        a_row, f, quarters, (after, end) = apart[0], self.f, self.line // UNROLL, following
        with f.loop(0, self.shares, 1, [*state, c]) as each:
            *state, here = each.carried
            here = self.ask_share(here)
            begin = each.index * share
            end_of_share = f.select(each.index.equals(self.shares - 1), times, begin + share)
            with f.loop(begin, end_of_share, 1, state) as loop:
                *now, line, row, asked = loop.carried
                for _ in range(-(-self.rows // quarters)):
                    prefetch(f, row, level=2)
                    row = f.offset(row, a_row)
                with f.when(asked < end):
                    for k in range(ASKED):
                        prefetch(f, f.offset(after, asked + 64 * k), level=2)
                last = (loop.index & (quarters - 1)).equals(quarters - 1)
                line = f.select(last, f.offset(line, 64), line)
                now = self._unrolled(UNROLL, apart, now)
                loop.carry(*now, line, f.select(last, line, row), asked + 64 * ASKED)
            each.carry(*loop.after, here)
        return each.after[:-4]

    def _bases(self, a: Value, a_row: Value) -> list[Value]:
        """Every third row of A: the rows between are reached with scaled indices."""
        out = [a]
        for _ in range(3, self.rows, 3):
            out.append(self.f.offset(out[-1], a_row * 3))
        return out

    def _steps(self, times: Value, unroll: int, apart: _Apart, state: list[Value]) -> list[Value]:
        with self.f.loop(0, times, 1, state) as loop:
            loop.carry(*self._unrolled(unroll, apart, loop.carried))
        return loop.after

    def _unrolled(self, unroll: int, apart: _Apart, state: list[Value]) -> list[Value]:
        (a_row, beside), f, unit = apart, self.f, self.scheme.unit
        count, between = self.rows * self.vectors, (f.const(0), a_row, a_row * 2)
        sums, bases, b = state[:count], state[count:-1], state[-1]
        for k in range(unroll):
            if k and self.pair:  # four more columns would not fit into the registers beside these
                *bases, b = (opaque(f, p) for p in (*bases, b))
            columns = self.columns(b, k, beside)
            for r in range(self.rows):
                unit_a = self.math.broadcast(f.offset(f.offset(bases[r // 3], between[r % 3]), k * unit))
                for v, column in enumerate(columns):
                    i = r * self.vectors + v
                    sums[i] = self.math.step(sums[i], unit_a, column)
        # Pointers that seem to move on their own: as sums of one index, twelve places would be loaded from the stack.
        moved = [opaque(f, f.offset(p, unroll * unit)) for p in bases]
        return [*sums, *moved, f.offset(b, unroll * self.row_of_b(beside))]


def _macro(parts: Parts) -> None:
    """``sum_block(m, n, first, last, parts, top, c, c_row, keep)``: some rows of C, all columns, some of the parts."""
    s = parts.scheme
    fields: Fields = (
        *((I64, "m"), (I64, "n"), (I64, "first"), (I64, "last"), (PTR, "parts"), (I64, "top")),
        *((PTR, "c"), (I64, "c_row"), (I64, "keep")),
    )
    f = parts.module.function("sum_block", VOID, fields)
    m, n, first, last, of, top, c, c_row, keep = f.parameters
    width = s.panel_columns

    def column(name: str, left: Value, lanes: Value) -> None:
        to = f.offset(c, left * (width * s.element_c))
        f.call(name, VOID, [m, first, last, of, top, left, to, c_row, lanes, keep])

    panels = n // width
    pairs = panels - panels % 2
    with f.loop(0, pairs, 2) as left:
        column("sums_pair", left.index, f.const(-1))
    with f.when(panels > pairs):
        column(f"sums_{s.panel_vectors}", pairs, f.const(-1))
    tail = n % width
    with f.when(tail > 0):
        vectors = f.ceil_div(tail, s.lanes)
        lanes = low_bits(f, tail - (vectors - 1) * s.lanes, s.lanes)
        for v in range(1, s.panel_vectors + 1):
            with f.when(vectors.equals(v)):
                column(f"sums_{v}", panels, lanes)
    f.give()


_ROWS: Fields = (
    *((I64, "m"), (I64, "n"), (I64, "count"), (PTR, "parts"), (PTR, "c"), (I64, "c_row"), (I64, "keep"), (I64, "task")),
)


def _rows_task(parts: Parts) -> None:
    """Range function: rows of C, ``task`` each: groups of parts as deep as a block, in blocks of rows."""
    f, _, begin, end, fields = parts.task("sum_rows", _ROWS, rare=False)
    m, n, count, of, c, c_row, keep, task = fields
    top, bottom = begin * task, f.minimum(m, end * task)
    deepest, blocks = parts.blocking.depth, f.ceil_div(bottom - top, parts.blocking.rows)
    high = f.round_up(f.ceil_div(bottom - top, blocks), parts.scheme.panel_rows)
    with f.loop(top, bottom, high) as block:
        rows = f.minimum(bottom - block.index, high)
        to = f.offset(c, block.index * c_row)

        def group(first: Value, last: Value) -> None:
            kept = f.select(first > 0, -1, keep)
            f.call("sum_block", VOID, [rows, n, first, last, of, block.index, to, c_row, kept])

        with f.loop(0, count, 1, [f.const(0), f.const(0)]) as each:
            first, depth = each.carried
            deep = load_row(f, PART, of, each.index)[2]
            full = (depth > 0) & (depth + deep > deepest)
            with f.when(full):
                group(first, each.index)
            each.carry(f.select(full, each.index, first), f.select(full, deep, depth + deep))
        group(each.after[0], count)
    f.give(0)


def _pack(parts: Parts) -> None:
    """``sum_pack(w, n, count, terms, to, room, beyond, workers)``: the parts of `TERM`s, B found packed or packed into
    the room, by so many workers.

    A term of more k than a block has is as many parts as a product has blocks of k: `driver`'s layout of B.  beyond:
    not 0 if all of B is more than L2 keeps.
    """
    s = parts.scheme
    fields: Fields = (
        *((PTR, "w"), (I64, "n"), (I64, "count"), (PTR, "terms"), (PTR, "to"), (PTR, "room"), (I64, "beyond")),
        (I64, "workers"),
    )
    f = parts.module.function("sum_pack", I32, fields)
    w, n, count, terms, to, room, beyond, workers = f.parameters
    form = Value(f, PTR, "@kept")
    with f.loop(0, count, 1, [room, f.const(0)]) as each:
        a, a_rs, _, b, b_rs, b_cs, k, how = load_row(f, TERM, terms, each.index)
        depth, panel, blocks, panels = layout_of_b(parts, f, n, k)
        block = panels * panel
        made, packed = f.variable(f.null()), f.variable(f.null())
        with f.when((how & FIXED_B).differs(0)):
            matrix, found = parts.save(f, [b, k, n, b_rs, b_cs, form]), parts.save(f, [f.null()])
            packed.set(f.call("pto_kept_find", PTR, [w, matrix, block * blocks, found]))
            made.set(f.load(PTR, found, 8))
        packs, keeps = packed.get().equals(0), made.get().differs(0)
        with f.when(packs):
            packed.set(each.carried[0])
        with f.when(keeps):
            packed.set(f.load(PTR, made.get(), 8))
        with f.when(packs):
            status = pack_slab(parts, f, w, n, k, (b, b_rs, b_cs), (packed.get(), depth, panel), workers)
            with f.when(status.differs(0)):
                f.give(status)
        following = f.select(beyond.differs(0) | (k > parts.blocking.shallow), panel, 0)
        with f.loop(0, blocks) as part:
            first = part.index * depth
            of_a = (f.offset(a, first * s.element_a), a_rs, f.minimum(k - first, depth))
            of_b = (f.offset(packed.get(), part.index * block), panel, following)
            store_row(f, to, each.carried[1] + part.index, [*of_a, *of_b])
        with f.when(keeps):
            f.call("pto_kept_done", VOID, [made.get()])
        each.carry(f.offset(each.carried[0], block * blocks), each.carried[1] + blocks)
    f.give(0)


def load_row(f: Function, fields: Fields, table: Value, index: Value | int) -> list[Value]:
    """A row of a table of words."""
    spot = f.offset(table, f.lift(index) * (8 * len(fields)))
    return [f.load(type_, f.offset(spot, 8 * i), 8) for i, (type_, _) in enumerate(fields)]


def store_row(f: Function, table: Value, index: Value | int, values: Sequence[Value]) -> None:
    """Write a row of a table of words."""
    spot = f.offset(table, f.lift(index) * (8 * len(values)))
    for i, value in enumerate(values):
        f.store(value, f.offset(spot, 8 * i), 8)


def few_columns(parts: Parts, n: Value) -> Value:
    """Whether a product has so few columns that packing A is not repaid."""
    return n <= WIDEST * parts.scheme.panel_columns


def _together(parts: Parts) -> None:
    """``together(operands of a sum, workers)``: a sum, columns of C contiguous; -1: not of that kind."""
    s, plan = parts.scheme, parts.blocking
    f = parts.module.function("together", I32, _SUM)
    w, m, n, count, terms, c, c_rs, keep, workers = f.parameters
    if s.pieces:
        status = f.call("tiled_terms", I32, f.parameters)
        with f.when(status.differs(-1)):
            f.give(status)
    fine = (m > plan.stream_rows) & (n > 0)
    with f.loop(0, count, 1, [fine, f.const(0), f.const(0), f.const(0)]) as each:
        good, total, bytes_b, many = each.carried
        _, a_rs, a_cs, _, _, _, k, _ = load_row(f, TERM, terms, each.index)
        apart = (a_rs % ALIKE).differs(0)
        good = good & few_columns(parts, n) & a_cs.equals(s.element_a) & (k > 0) & apart
        _, panel, blocks, panels = layout_of_b(parts, f, n, f.maximum(k, 1))
        each.carry(good, total + k, bytes_b + panel * panels * blocks, many + blocks)
    fine, total, bytes_b, many = each.after
    with f.when((fine & (total * n <= plan.far_bytes // s.unit)).equals(0)):
        f.give(-1)
    room = parts.push(f, w, bytes_b + f.round_up(many * (8 * len(PART)), 64))
    of = f.offset(room, bytes_b)
    beyond = f.select(bytes_b > plan.near_bytes, 1, f.const(0))
    shared = (workers > 1) & (m * n * total >= plan.split_work)
    least = f.ceil_div(f.const(plan.task_work), n * total)
    task = f.round_up(f.maximum(f.ceil_div(m, parts.pieces(f, workers)), least), s.panel_rows)
    task = f.select(shared, task, m)
    context = parts.save(f, [m, n, many, of, c, c_rs, keep, task])
    status = f.variable(
        f.call(
            "sum_pack", I32, [w, n, count, terms, of, room, beyond, f.select(shared & beyond.differs(0), workers, 1)]
        )
    )
    with f.when(status.get().equals(0)), f.either(shared) as side:
        status.set(parts.share(f, "sum_rows", w, context, f.ceil_div(m, task)))
        side.otherwise()
        status.set(f.call("sum_rows", I32, [w, context, f.const(0), f.const(1)]))
    f.call("pto_scratch_pop", VOID, [w, room])
    f.give(status.get())


_ENTRY: Fields = (
    *((PTR, "w"), (I64, "m"), (I64, "n"), (I64, "count"), (PTR, "terms"), (PTR, "c"), (I64, "c_rs")),
    *((I64, "c_cs"), (I32, "how")),
)


def _entry(parts: Parts) -> None:
    """The public function: the terms together, or one product after another."""
    s = parts.scheme
    f = parts.module.function(s.combo.symbol + "_sum", I32, _ENTRY, public=True)
    w, m, n, count, terms, c, c_rs, c_cs, how = f.parameters
    workers = parts.workers(f, w)
    with f.when(c_cs.equals(1)):
        keep = f.select((how & ACCUMULATE).differs(0), -1, 0)
        operands = [w, m, n, count, terms, c, c_rs * s.element_c, keep, workers]
        status = f.call("together", I32, operands)
        with f.when(status.differs(-1)):
            f.give(status)
    with f.loop(0, count) as each:
        a, a_rs, a_cs, b, b_rs, b_cs, k, fixed = load_row(f, TERM, terms, each.index)
        of_a = (a, *(_elements(f, x, s.element_a) for x in (a_rs, a_cs)))
        of_b = (b, *(_elements(f, x, s.element_b) for x in (b_rs, b_cs)))
        ways = f.emit(I32, f"trunc i64 {fixed.ref} to i32") | f.select(each.index > 0, f.const(ACCUMULATE, I32), how)
        status = f.call("product", I32, [w, m, n, k, *of_a, *of_b, c, c_rs, c_cs, ways, workers])
        with f.when(status.differs(0)):
            f.give(status)
    f.give(0)


def _elements(f: Function, stride: Value, size: int) -> Value:
    """A stride in bytes, of any sign, in elements."""
    return f.emit(I64, f"sdiv exact i64 {stride.ref}, {size}")
