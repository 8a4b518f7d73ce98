# SPDX-License-Identifier: MIT
"""The micro-kernels of bf16 and of bytes on processors with matrix tiles (AMX), of sixteen rows each.

A column of tiles has the parameters of `kernel` and is made of four tiles of C at a time, 32 rows by 32 columns, two
tiles of A and two of B.  A is read where its rows lie (16 rows, 16 groups of k), B as it is packed for vectors: a row
of a tile is 16 columns of one group of k.  The last rows are tiles of fewer rows, or such that overlap those before;
tiles of the last columns are written by way of the stack.

Bytes are summed exactly, modulo 2^32.  Sums of bf16 are rounded to f32 after each pair of k, subnormal numbers count as
zero (Intel, "Architecture Instruction Set Extensions", TDPBF16PS); pairs of k of operands that are not packed, and a
single row, are left to the micro-kernels of `kernel`, named ``vectors_<v>`` here.  The tiles cost the system 8 KiB per
thread: a process has to ask for them (`allowed`).
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache

from pto_jit.targets.cpu.matmul.irtext import VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.kernel import PARAMETERS, Tile, add_column
from pto_jit.targets.cpu.matmul.macro import MACRO
from pto_jit.targets.cpu.matmul.parts import Parts
from pto_jit.targets.cpu.matmul.shape import Scheme
from pto_jit.targets.cpu.matmul.vectors import masked_load, prefetch

ASKED = 4
"""Lines of the following panel of B that are prefetched with each step of four tiles of C."""

SIDE = 16  # rows of a tile, and 32-bit units in each of them
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18  # Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
_DECLARATIONS = {
    "ldtilecfg": "ptr",
    "tilerelease": "",
    "tilezero": "i8 immarg",
    "tileloadd64": "i8 immarg, ptr, i64",
    "tilestored64": "i8 immarg, ptr, i64",
    **dict.fromkeys(("tdpbf16ps", "tdpbssd", "tdpbusd"), "i8 immarg, i8 immarg, i8 immarg"),
}


@cache
def allowed() -> bool:
    """Whether this process may use tiles; asks the system for them."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None, use_errno=True).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0


def add_tile_kernels(module: Module, scheme: Scheme) -> None:
    """Define ``tiles_1`` ... ``tiles_NV``, and ``vectors_1`` ... ``vectors_NV`` for what they leave of bf16."""
    for vectors in range(1, 1 if scheme.integral else scheme.tile_vectors + 1):
        add_column(module, scheme, f"vectors_{vectors}", scheme.vector_rows, vectors)
    for vectors in range(1, scheme.tile_vectors + 1):
        _column(module, scheme, vectors)


def tile(f: Function, name: str, *arguments: int | Value) -> None:
    """One of the instructions on tiles; numbers of tiles are integers."""
    f.module.declare(f"llvm.x86.{name}", f"declare void @llvm.x86.{name}({_DECLARATIONS[name]})")
    text = ", ".join(f"i8 {a}" if isinstance(a, int) else f"{a.type} {a.ref}" for a in arguments)
    f.line(f"call void @llvm.x86.{name}({text})")


def configure(f: Function, rows: Value | None = None) -> None:
    """Eight tiles with 16 rows of 64 bytes; with `rows`, those of A and C have only so many."""
    heights = f.const(0x1010_1010_1010_1010) if rows is None else rows * 0x0101_0101_0101 + (0x1010 << 48)
    room = f.alloca(64)
    palette, width, none = f.const(1), f.const(0x0040_0040_0040_0040), f.const(0)
    for k, value in enumerate((palette, none, width, width, none, none, heights, none)):
        f.store(value, f.offset(room, 8 * k), 8)
    tile(f, "ldtilecfg", room)


def add_tile_macro(parts: Parts) -> None:
    """Define ``macro``: ``columns`` of all rows; where C is added to, of the rows that fill tiles, of the rows below
    them, and of one row alone.

    To configure the tiles takes as long as a few hundred of their products, so it is done for all columns at once.
    """
    f = parts.module.function("macro", VOID, MACRO)
    m, n, groups, a, a_row, a_step, a_panel, b, b_step, b_panel, packed, c, c_row, keep, *far = f.parameters
    exact = parts.scheme.integral
    # How the last row is rounded depends on how many there are, not on where other blocks of rows end: alone below
    # tiles, it is always computed by vectors.
    overlaps = (m > SIDE) & keep.equals(0)
    if not exact:
        overlaps = overlaps & (m % SIDE).differs(1)
    full = f.select(overlaps, m, m // SIDE * SIDE)
    few = m - full if exact else f.select(m - full > 1, m - full, 0)

    def columns(first: Value, rows: Value) -> None:
        of_a = (f.offset(a, first * a_row), a_row, a_step, a_panel)
        of_c = (f.offset(c, first * c_row), c_row)
        f.call("columns", VOID, [rows, n, groups, *of_a, b, b_step, b_panel, packed, *of_c, keep, *far])

    def by_tiles() -> None:
        with f.when(full > 0):
            configure(f)
            columns(f.const(0), full)
        with f.when(few > 0):
            configure(f, few)
            columns(full, few)
        tile(f, "tilerelease")

    if exact:
        by_tiles()
        f.give()
        return
    with f.when((m > 1) & (groups >= SIDE)):
        by_tiles()
        with f.when(full + few < m):
            columns(full, f.const(1))
        f.give()
    columns(f.const(0), m)
    f.give()


def _column(module: Module, scheme: Scheme, vectors: int) -> None:
    """Rows for which the tiles are configured: a multiple of 16 of them (any number above, if C is only written), or
    less; one row, and few pairs of k, of bf16 are left to vectors."""
    f = module.function(f"tiles_{vectors}", VOID, PARAMETERS)
    m, groups, a, a_row, a_step, _, b, b_step, c, c_row, lanes, keep, ahead, following = f.parameters
    width = scheme.machine.vector_bytes
    deep = groups // SIDE * SIDE
    whole = f.select(lanes.equals(-1), vectors, vectors - 1)  # vectors of C without lanes to be left alone
    along = (a_row, a_step, a_row * scheme.vector_rows)
    all_ = {"groups": groups, "a": a, "b": b, "c": c, "lanes": lanes, "keep": keep}

    def by_vectors(count: int, **different: Value) -> None:
        v = all_ | different
        far = (ahead, f.const(0))
        arguments = [m, v["groups"], v["a"], *along, v["b"], b_step, v["c"], c_row, v["lanes"], v["keep"], *far]
        f.call(f"vectors_{count}", VOID, arguments)

    def by_tiles() -> None:
        block = _Block(f, scheme, deep, a_row, b_step, c_row, keep, following)
        with f.either(m >= SIDE) as high:
            _pairs(f, whole, width, b, c, lambda count, at, to: block.write(m, count, a, at, to))
            high.otherwise()
            _pairs(f, whole, width, b, c, lambda count, at, to: block.tiles(1, count, a, at, to))
        with f.when(whole < vectors):
            edge = (vectors - 1) * width
            of_edge = _Edge(f, scheme, deep, a_row, b_step, (c_row, lanes, keep))
            of_edge.write(m, a, f.offset(b, edge), f.offset(c, edge))

    if scheme.integral:  # A and B are filled up to whole tiles
        by_tiles()
        f.give()
        return
    with f.either((m > 1) & (deep > 0)) as side:
        by_tiles()
        with f.when(deep < groups):
            behind = {"a": f.offset(a, deep * a_step), "b": f.offset(b, deep * b_step)}
            by_vectors(vectors, groups=groups - deep, **behind, keep=f.const(-1))
        side.otherwise()
        by_vectors(vectors)
    f.give()


def _pairs(
    f: Function, whole: Value, width: int, b: Value, c: Value, write: Callable[[int, Value, Value], None]
) -> None:
    """Write the columns of whole vectors, two vectors at a time."""
    with f.loop(0, whole // 2) as pair:
        write(2, f.offset(b, pair.index * (2 * width)), f.offset(c, pair.index * (2 * width)))
    with f.when((whole % 2).differs(0)):
        last = (whole - 1) * width
        write(1, f.offset(b, last), f.offset(c, last))


class _Block:
    """Writes whole tiles of C over all of k, two tiles of rows and one or two of columns at a time."""

    def __init__(
        self, f: Function, scheme: Scheme, deep: Value, a_row: Value, b_step: Value, c_row: Value, keep: Value,
        following: Value,
    ) -> None:  # fmt: skip
        self.f, self.deep, self.a_row, self.b_step, self.c_row, self.keep = f, deep, a_row, b_step, c_row, keep
        self.following = following
        self.asks: tuple[Value, Value] | None = None  # what comes after: of the next panel of B, and of C
        self.product = {"bf16": "tdpbf16ps", "i8": "tdpbssd", "u8": "tdpbusd"}[scheme.combo.a]

    def write(self, rows: Value, columns: int, a: Value, b: Value, c: Value) -> None:
        """Sixteen rows or more; where there is no multiple of them, the last tiles begin before the end of others and
        write the same there."""
        f = self.f
        rest = rows % (2 * SIDE)

        def at(rows: int, first: Value | int) -> None:
            of_a, of_c = (f.offset(x, step * first) for x, step in ((a, self.a_row), (c, self.c_row)))
            self.tiles(rows, columns, of_a, b, of_c)

        with f.loop(0, rows - (2 * SIDE - 1), 2 * SIDE) as loop:
            asked = (loop.index // (2 * SIDE)) * (self.deep // SIDE * (64 * ASKED))
            there = f.select(asked < self.following, self.following + asked, 0)
            self.asks = (f.offset(b, there), f.offset(c, self.c_row * (loop.index + 2 * SIDE)))
            at(2, loop.index)
            self.asks = None
        with f.either((rest > SIDE) & (rows > 2 * SIDE)) as last:
            at(2, rows - 2 * SIDE)
            last.otherwise()
            with f.when(rest > SIDE):
                at(1, 0)
            with f.when(rest > 0):
                at(1, rows - SIDE)

    def tiles(self, rows: int, columns: int, a: Value, b: Value, c: Value) -> None:
        f = self.f
        places = [
            (2 * i + j, f.offset(c, self.c_row * (i * SIDE) + 64 * j)) for i in range(rows) for j in range(columns)
        ]
        with f.either(self.keep.differs(0)) as side:
            for number, place in places:
                tile(f, "tileloadd64", number, place, self.c_row)
            side.otherwise()
            for number, _ in places:
                tile(f, "tilezero", number)
        asks = list(self.asks or ())
        with f.loop(0, self.deep, SIDE, [a, b, *asks]) as loop:
            here, there, *near = loop.carried
            for i in range(rows):
                tile(f, "tileloadd64", 4 + i, f.offset(here, self.a_row * (i * SIDE)), self.a_row)
            for j in range(columns):
                tile(f, "tileloadd64", 6 + j, f.offset(there, 64 * j), self.b_step)
            for i in range(rows):
                for j in range(columns):
                    tile(f, self.product, 2 * i + j, 4 + i, 6 + j)
            if asks:
                for line in range(ASKED):
                    prefetch(f, f.offset(near[0], 64 * line), level=2)
                for line in range(columns):
                    prefetch(f, f.offset(near[1], 64 * line))
                near = [f.offset(near[0], 64 * ASKED), f.offset(near[1], self.c_row)]
            loop.carry(f.offset(here, 4 * SIDE), f.offset(there, self.b_step * SIDE), *near)
        for number, place in places:
            tile(f, "tilestored64", number, place, self.c_row)


class _Edge(Tile):
    """Writes tiles of the last columns, fewer than a tile has: to the stack, and from there the lanes there are."""

    def __init__(
        self, f: Function, scheme: Scheme, deep: Value, a_row: Value, b_step: Value, of_c: tuple[Value, Value, Value]
    ) -> None:
        c_row, lanes, keep = of_c
        super().__init__(f, scheme, SIDE, 1, c_row=c_row, lanes=lanes, keep=keep)
        self.a_row = a_row
        self.room = f.alloca(SIDE * 64)
        self.block = _Block(f, scheme, deep, a_row, b_step, f.const(64), f.const(0), f.const(0))

    def write(self, rows: Value, a: Value, b: Value, c: Value) -> None:
        """All rows; the last tile begins before the end of another and writes the same there, as those of `_Block`."""
        f = self.f

        def at(first: Value | int, high: Value | int) -> None:
            self.block.tiles(1, 1, f.offset(a, self.a_row * first), b, self.room)
            with f.loop(0, high, 1, [self.room, f.offset(c, self.c_row * first)]) as row:
                of, to = row.carried
                total = f.load(self.math.sum_type, of)
                self._put(self.math.add(masked_load(f, total.type, to, self.last_kept), total), to, last=True)
                row.carry(f.offset(of, 64), f.offset(to, self.c_row))

        with f.loop(0, rows - (SIDE - 1), SIDE) as loop:
            at(loop.index, SIDE)
        with f.when((rows % SIDE).differs(0)):
            at(f.maximum(rows - SIDE, 0), f.minimum(rows, SIDE))
