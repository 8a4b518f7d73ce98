# SPDX-License-Identifier: MIT
"""Packing by layout, and the macro-kernel: a block of packed A against a row of panels of B."""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Value
from pto_jit.targets.cpu.matmul.parts import ACROSS, ANY, PANELS, ROWS, Fields, Parts
from pto_jit.targets.cpu.matmul.vectors import low_bits


def add_macro(parts: Parts) -> None:
    """Define ``pack_a``, ``pack_b`` and ``macro``, and ``macro_tall`` where there is a taller tile."""
    _pack_a(parts)
    _pack_b(parts)
    _macro(parts)
    if parts.scheme.tall_tile is not None:
        _macro_tall(parts, *parts.scheme.tall_tile)


def _pack_a(parts: Parts) -> None:
    """``pack_a(k, m, a, rs, cs, to, how, row)``."""
    f = parts.module.function(
        "pack_a",
        VOID,
        [(I64, "k"), (I64, "m"), (PTR, "a"), (I64, "rs"), (I64, "cs"), (PTR, "to"), (I64, "how"), (I64, "row")],
    )
    k, m, a, rs, cs, to, how, row = f.parameters
    s = parts.scheme
    panel = row if s.tiles else f.ceil_div(k, s.group) * (s.tile_rows * s.unit)
    with f.when(how.equals(ROWS)):
        f.call("pack_a_rows", VOID, [k, m, a, rs, to, row])
    if not s.tiles:
        with f.when(how.equals(ACROSS)):
            f.call("pack_a_across", VOID, [k, m, a, cs, to, panel])
    with f.when(how.equals(ANY)):
        f.call("pack_a_any", VOID, [k, m, a, cs, rs, to, panel])
    if s.panelled:
        with f.when(how.equals(PANELS)):
            f.call("pack_a_panels", VOID, [k, m, a, rs, cs, to])
    f.give()


def _pack_b(parts: Parts) -> None:
    """``pack_b(k, n, b, rs, cs, to, panel)``: to is behind the first header."""
    s = parts.scheme
    f = parts.module.function(
        "pack_b",
        VOID,
        [(I64, "k"), (I64, "n"), (PTR, "b"), (I64, "rs"), (I64, "cs"), (PTR, "to"), (I64, "panel")],
    )
    k, n, b, rs, cs, to, panel = f.parameters
    with f.either(cs.equals(s.element_b)) as across:
        f.call("pack_b_across", VOID, [k, n, b, rs, to, panel])
        across.otherwise()
        with f.either(rs.equals(s.element_b)) as along:
            f.call("pack_b_along", VOID, [k, n, b, cs, to, panel])
            along.otherwise()
            f.call("pack_b_any", VOID, [k, n, b, rs, cs, to, panel])
    if s.header:
        f.call("correct_b", VOID, [f.ceil_div(k, s.group), n, to, panel])
    if s.together > 1:
        f.call("pad_b", VOID, [k, n, to, panel])
    f.give()


MACRO: Fields = (
    *((I64, "m"), (I64, "n"), (I64, "groups"), (PTR, "a"), (I64, "a_row"), (I64, "a_step")),
    *((I64, "a_panel"), (PTR, "b"), (I64, "b_step"), (I64, "b_panel"), (I64, "packed")),
    *((PTR, "c"), (I64, "c_row"), (I64, "keep"), (I64, "ahead"), (I64, "following")),
)


def _macro_tall(parts: Parts, rows: int, vectors: int) -> None:
    """`macro` for B in place and rows of A: whole columns of the taller tile, the rest by `macro`."""
    s = parts.scheme
    f = parts.module.function("macro_tall", VOID, MACRO)
    m, n, groups, a, a_row, a_step, _, b, b_step, _, _, c, c_row, keep, *far = f.parameters
    width = vectors * s.lanes
    with f.loop(0, n - (width - 1), width, [b, c]) as loop:
        at, to = loop.carried
        of_a = (a, a_row, a_step, a_row * rows)
        f.call("tall", VOID, [m, groups, *of_a, at, b_step, to, c_row, f.const(-1), keep, *far])
        loop.carry(f.offset(at, width * s.unit), f.offset(to, width * s.element_c))
    at, to = loop.after
    rest = list(f.parameters)
    rest[1], rest[7], rest[11] = n % width, at, to
    f.call("macro", VOID, rest)
    f.give()


def _macro(parts: Parts) -> None:
    """A block of A against panels of B, columns of tiles one after another; parameters as those of `kernel`.

    With matrix tiles this is ``columns``, of rows for which they are configured (`amx`).
    """
    s = parts.scheme
    f = parts.module.function("columns" if s.tiles else "macro", VOID, MACRO)
    m, n, groups, a, a_row, a_step, a_panel, b, b_step, b_panel, packed, c, c_row, keep, *far = f.parameters
    width = s.tile_columns
    rest = n % width
    uneven = f.const(0)
    wide = s.tile_vectors >= 3
    if wide:
        # In place, a whole tile and one vector at the end are better taken as NR - 1 and 2 vectors: one vector alone
        # is bound by latency.
        lone = (rest > 0) & (rest <= s.lanes) & (n > width) & packed.equals(0)
        uneven = f.select(lone, width, 0)
    with f.loop(0, n - uneven - (width - 1), width, [b, c]) as loop:
        at, to = loop.carried
        arguments = [m, groups, a, a_row, a_step, a_panel, at, b_step, to, c_row, f.const(-1), keep, *far]
        f.call(f"tiles_{s.tile_vectors}", VOID, arguments)
        loop.carry(f.offset(at, b_panel), f.offset(to, width * s.element_c))
    at, to = loop.after
    if wide:
        fewer = s.tile_vectors - 1
        at, to = f.variable(at), f.variable(to)
        with f.when(uneven > 0):
            arguments = [m, groups, a, a_row, a_step, a_panel, at.get(), b_step, to.get(), c_row, f.const(-1), keep]
            f.call(f"tiles_{fewer}", VOID, [*arguments, *far])
            at.set(f.offset(at.get(), fewer * s.lanes * s.unit))
            to.set(f.offset(to.get(), fewer * s.lanes * s.element_c))
        at, to = at.get(), to.get()
    tail = f.select(uneven > 0, rest + s.lanes, rest) if wide else rest
    with f.when(tail > 0):
        vectors = f.ceil_div(tail, s.lanes)
        step = f.select(packed.differs(0), vectors * (s.lanes * s.unit), b_step)
        last = tail - (vectors - 1) * s.lanes
        for v in range(1, s.tile_vectors + 1):
            with f.when(vectors.equals(v)):
                mine = [groups, a_row, a_step, a_panel, step]
                if s.machine.masks:
                    bits = low_bits(f, last, s.lanes)
                    arguments = [m, groups, a, a_row, a_step, a_panel, at, step, to, c_row, bits, keep, *far]
                    f.call(f"tiles_{v}", VOID, arguments)
                else:
                    _border(parts, f, v, m, tail, a, at, to, c_row, keep, mine)
    f.give()


def _border(
    parts: Parts,
    f: Function,
    vectors: int,
    m: Value,
    tail: Value,
    a: Value,
    b: Value,
    c: Value,
    c_row: Value,
    keep: Value,
    mine: list[Value],
) -> None:
    """The last columns without masked stores: whole vectors into a buffer, valid lanes into C."""
    s = parts.scheme
    groups, a_row, a_step, a_panel, step = mine
    row_bytes = vectors * s.machine.vector_bytes
    with f.either(tail.equals(vectors * s.lanes)) as exact:
        f.call(
            f"tiles_{vectors}",
            VOID,
            [m, groups, a, a_row, a_step, a_panel, b, step, c, c_row, f.const(-1), keep, f.const(0), f.const(0)],
        )
        exact.otherwise()
        room = f.alloca(s.tile_rows * row_bytes)
        with f.loop(0, m, s.tile_rows, [a, c]) as tiles:
            at, to = tiles.carried
            rows = f.minimum(m - tiles.index, s.tile_rows)
            whole = (f.const(row_bytes), f.const(-1), f.const(0), f.const(0), f.const(0))
            f.call(f"tiles_{vectors}", VOID, [rows, groups, at, a_row, a_step, a_panel, b, step, room, *whole])
            with f.loop(0, rows, 1, [room, to]) as each:
                source, target = each.carried
                with f.loop(0, tail) as column:
                    parts.merge(
                        f,
                        f.offset(source, column.index * s.element_c),
                        f.offset(target, column.index * s.element_c),
                        keep,
                    )
                each.carry(f.offset(source, row_bytes), f.offset(target, c_row))
            tiles.carry(f.offset(at, a_panel), f.offset(to, c_row * s.tile_rows))
