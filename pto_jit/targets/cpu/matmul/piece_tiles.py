# SPDX-License-Identifier: MIT
"""Tiles of C from numbers packed in pieces (`pieces`): the products of a block of k, and what becomes of their sums."""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.amx import SIDE, tile
from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Module, Value
from pto_jit.targets.cpu.matmul.parts import Fields, Parts
from pto_jit.targets.cpu.matmul.pieces import DEEP, PANEL, PIECE, TILE, step_bytes
from pto_jit.targets.cpu.matmul.shape import Scheme
from pto_jit.targets.cpu.matmul.vectors import clamp, lane_mask, low_bits, masked_load, masked_store, prefetch

DEPTH = 128
"""k of a block: a panel of A and one of B stay in L1."""

ASKED = 4
"""Lines of the following panel of B that are prefetched with a step, for each piece: eight panels of A ask for all."""

_ORDER = {  # one operand changes at a time
    3: ((2, 0), (1, 0), (1, 1), (0, 1), (0, 0), (0, 2)),
    2: ((1, 1), (1, 0), (0, 0), (0, 1)),
}
_SINGLES = "<16 x float>"

FROM_SUMS, TO_C, ADDS = 1, 2, 4
"""What a block of k does to the sums: it adds to those there are; it writes them to C; or it adds them to C."""

SUMS = PANEL * PANEL * 4
"""Bytes of the sums of a panel of A by one of B: as rows, one after another."""

_ROW = PANEL * 4


def add_piece_tiles(parts: Parts) -> None:
    """Define ``piece_macro`` and what it is made of."""
    module, scheme = parts.module, parts.scheme
    for rows in (1, 2):
        for columns in (1, 2):
            _tiles(module, scheme, rows, columns)
    _by_shape(module)
    _add(module)
    _put(module)
    _macro(module, scheme)


_TILES: Fields = (
    *((I64, "steps"), (PTR, "a"), (PTR, "b"), (PTR, "to"), (I64, "row"), (PTR, "ahead"), (PTR, "soon")),
    (I64, "soon_row"),
)


def _tiles(module: Module, scheme: Scheme, rows: int, columns: int) -> None:
    """``piece_<rows>_<columns>(steps, a, b, to, row, ahead, soon, soon_row)``: so many tiles of sums.

    to: rows ``row`` bytes apart.  ahead: what is prefetched of the following panel of B, `ASKED` lines a step; soon:
    where the next sums are, or go.
    """
    f = module.function(f"piece_{rows}_{columns}", VOID, _TILES)
    steps, a, b, to, row, ahead, soon, soon_row = f.parameters
    numbers = [(i, j) for i in range(rows) for j in range(columns)]
    for i, j in numbers:
        tile(f, "tilezero", 2 * i + j)
    line = f.const(64)

    def take(base: Value, piece: int, first: int, count: int) -> None:
        for i in range(count):
            tile(f, "tileloadd64", first + i, f.offset(base, piece * PIECE + i * TILE), line)

    with f.loop(0, steps, 1, [a, b, ahead, soon], at_least_once=True) as loop:
        of_a, of_b, later, near = loop.carried
        asked = [f.offset(later, 64 * q) for q in range(ASKED * scheme.pieces)]
        wanted: list[Value] = []
        for _ in range(PANEL // (DEPTH // DEEP)):
            wanted += [near, f.offset(near, 64)]
            near = f.offset(near, soon_row)
        last: tuple[int, int] = (-1, -1)
        for pair in _ORDER[scheme.pieces]:
            if pair[0] != last[0]:
                take(of_a, pair[0], 4, rows)
            if pair[1] != last[1]:
                take(of_b, pair[1], 6, columns)
            last = pair
            for i, j in numbers:
                tile(f, "tdpbf16ps", 2 * i + j, 4 + i, 6 + j)
                if asked:
                    prefetch(f, asked.pop(0), level=2)
                if wanted:
                    prefetch(f, wanted.pop(0))
        step = step_bytes(scheme)
        loop.carry(f.offset(of_a, step), f.offset(of_b, step), f.offset(later, 64 * ASKED * scheme.pieces), near)
    for i, j in numbers:
        tile(f, "tilestored64", 2 * i + j, f.offset(to, row * (i * SIDE) + 64 * j), row)
    f.give()


def _by_shape(module: Module) -> None:
    """``piece_tiles(..., rows, columns)``: as many tiles as have room for some rows and columns."""
    f = module.function("piece_tiles", VOID, (*_TILES, (I64, "rows"), (I64, "columns")))
    *arguments, rows, columns = f.parameters
    for high, many in ((2, rows > SIDE), (1, rows <= SIDE)):
        for wide, broad in ((2, columns > SIDE), (1, columns <= SIDE)):
            with f.when(many & broad):
                f.call(f"piece_{high}_{wide}", VOID, arguments)
                f.give()
    f.give()


def _add(module: Module) -> None:
    """``piece_add(x, y, to)``: the sums of two blocks of k, all of them."""
    f = module.function("piece_add", VOID, [(PTR, "x"), (PTR, "y"), (PTR, "to")])
    x, y, to = f.parameters
    with f.loop(0, SUMS, _ROW, at_least_once=True) as row:
        for skip in range(0, _ROW, 64):
            of_x, of_y, at = (f.offset(f.offset(p, row.index), skip) for p in (x, y, to))
            f.store(f.binary("fadd", f.load(_SINGLES, of_x), f.load(_SINGLES, of_y)), at)
    f.give()


def _put(module: Module) -> None:
    """``piece_put(x, y, c, c_row, rows, columns, adds)``: sums, of two blocks of k unless y is null, to some rows and
    columns of C; adds: to what is there."""
    fields: Fields = (
        *((PTR, "x"), (PTR, "y"), (PTR, "c"), (I64, "c_row"), (I64, "rows"), (I64, "columns"), (I64, "adds")),
    )
    f = module.function("piece_put", VOID, fields)
    x, y, c, c_row, rows, columns, adds = f.parameters
    counts = [clamp(f, columns - SIDE * j, SIDE) for j in range(PANEL // SIDE)]
    inside, there, more = (
        [lane_mask(f, low_bits(f, f.select(kind, count, 0), SIDE), SIDE) for count in counts]
        for kind in (f.const(1, "i1"), adds.differs(0), y.differs(0))
    )
    # A load from null is slow even where no lane is read: the processor finds the fault and then ignores it.
    y = f.select(y.differs(0), y, x)
    with f.loop(0, rows, 1, [x, y, c]) as loop:
        of_x, of_y, at = loop.carried
        for j, mask in enumerate(inside):
            total = f.load(_SINGLES, f.offset(of_x, 64 * j))
            total = f.binary("fadd", total, masked_load(f, _SINGLES, f.offset(of_y, 64 * j), more[j]))
            total = f.binary("fadd", masked_load(f, _SINGLES, f.offset(at, 64 * j), there[j]), total)
            masked_store(f, total, f.offset(at, 64 * j), mask)
        loop.carry(f.offset(of_x, _ROW), f.offset(of_y, _ROW), f.offset(at, c_row))
    f.give()


def _macro(module: Module, scheme: Scheme) -> None:
    """``piece_macro(m, n, steps, a, a_panel, b, b_panel, sums, column, c, c_row, how)``: panels of A by panels of B.

    sums: `SUMS` of each panel of A one after another, ``column`` bytes from one panel of B to the next.
    how: `FROM_SUMS`, `TO_C`, `ADDS`.
    """
    fields: Fields = (
        *((I64, "m"), (I64, "n"), (I64, "steps"), (PTR, "a"), (I64, "a_panel"), (PTR, "b"), (I64, "b_panel")),
        *((PTR, "sums"), (I64, "column"), (PTR, "c"), (I64, "c_row"), (I64, "how")),
    )
    f = module.function("piece_macro", VOID, fields)
    m, n, steps, a, a_panel, b, b_panel, sums, column, c, c_row, how = f.parameters
    begun, written, adds = ((how & bit).differs(0) for bit in (FROM_SUMS, TO_C, ADDS))
    asked, room = steps * (64 * ASKED * scheme.pieces), f.alloca(SUMS)
    row = f.const(_ROW)
    with f.loop(0, n, PANEL, [b, c, sums]) as columns:
        of_b, of_c, of_sums = columns.carried
        wide = f.minimum(n - columns.index, PANEL)
        following = f.offset(of_b, b_panel)
        alone = written & (begun | adds).equals(0) & wide.equals(PANEL)
        with f.loop(0, m, PANEL, [a, of_c, of_sums, following]) as rows:
            of_a, at, kept, ahead = rows.carried
            high = f.minimum(m - rows.index, PANEL)
            below, after = f.offset(at, c_row * PANEL), f.offset(kept, SUMS)
            later = f.select(rows.index + PANEL < m, below, f.offset(of_c, _ROW))
            product = [steps, of_a, of_b]
            to_c, to_sums = [ahead, later, c_row], [ahead, after, row]
            soon = [f.select(written, x, y) for x, y in zip(to_c, to_sums, strict=True)]
            with f.either(alone & high.equals(PANEL)) as inside:
                f.call("piece_2_2", VOID, [*product, at, c_row, *soon])
                inside.otherwise()
                to = f.select(begun | written, room, kept)
                with f.when(steps > 0):
                    f.call("piece_tiles", VOID, [*product, to, row, *soon, high, wide])
                with f.either(written) as side:
                    first = f.select(steps > 0, room, kept)
                    second = f.select(begun & (steps > 0), kept, f.null())
                    f.call("piece_put", VOID, [first, second, at, c_row, high, wide, how & ADDS])
                    side.otherwise()
                    with f.when(begun):
                        f.call("piece_add", VOID, [kept, room, kept])
            rows.carry(f.offset(of_a, a_panel), below, after, f.offset(ahead, asked))
        columns.carry(following, f.offset(of_c, _ROW), f.offset(of_sums, column))
    f.give()
