# SPDX-License-Identifier: MIT
"""Products of packed operands on processors with AVX-512.

B is packed into panels of NR columns; A into panels of MR rows: chunks of four elements, one of every row, then the
next of every row, so that rows are packed by copying them.  Then

``void panels_<v>(m, groups, a, b, c, c_row, lanes, keep, following)``

computes ``C[0:m, 0:v*L] (+)= A[0:m, :] B[:, 0:v*L]`` with constant steps: loads are at constant distances.  An element
of A is loaded once for its vectors: as an operand in memory of each multiply-add it would be read several times, and
the two loads that a core does in a cycle would be too few.  A panel of B stays in L1 while the panels of A pass by from
L2; two panels beside each other, ``panels_pair``, come from L2 for each half of the rows of a panel of A.

`kernel` says what the parameters are, and why the partition of C never shows.  The orientation is that of BLIS on
AVX-512 (Van Zee and van de Geijn, 2015).
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.kernel import Tile
from pto_jit.targets.cpu.matmul.parts import Fields, Parts
from pto_jit.targets.cpu.matmul.shape import CHUNK, LOW, Scheme
from pto_jit.targets.cpu.matmul.vectors import low_bits, opaque, prefetch

LINES = 16
"""Lines of the following panel that are prefetched with each share of a tile."""

_TILE: Fields = (
    *((I64, "m"), (I64, "groups"), (PTR, "a"), (PTR, "b"), (PTR, "c"), (I64, "c_row")),
    *((I64, "lanes"), (I64, "keep"), (I64, "following")),
)

_PAIR: Fields = (
    *((I64, "m"), (I64, "groups"), (PTR, "a"), (PTR, "b"), (I64, "b_panel"), (PTR, "c"), (I64, "c_row")),
    *((I64, "keep"), (I64, "following")),
)


def add_panels(parts: Parts) -> None:
    """Define ``panels_1`` ..., ``panels_pair``, ``pack_a_panels`` and ``macro_panels``."""
    for vectors in range(1, parts.scheme.panel_vectors + 1):
        _column(parts.module, parts.scheme, vectors)
    _pair(parts.module, parts.scheme)
    _pack_a(parts)
    _macro(parts)


def _column(module: Module, scheme: Scheme, vectors: int) -> None:
    """A column of register tiles: whole panels, low ones, and the last rows, packed as rows, by ``tiles_<v>``."""
    f = module.function(f"panels_{vectors}", VOID, _TILE)
    m, groups, a, b, c, c_row, lanes, keep, following = f.parameters
    rows, row, none = scheme.panel_rows, chunked_bytes(f, scheme, groups), f.const(0)
    of_c = (c_row, lanes, keep)
    whole, low = (_Panel(f, scheme, (n, n), vectors, of_c) for n in (rows, LOW))
    with f.loop(0, m - (rows - 1), rows, [a, c, none]) as loop:
        at, to, asked = loop.carried
        whole.write(groups, at, b, to, asked, following)
        loop.carry(f.offset(at, row * rows), f.offset(to, c_row * rows), asked + whole.asked)
    rest = m % rows
    with f.loop(0, rest - (LOW - 1), LOW, loop.after[:2]) as loop:
        at, to = loop.carried
        low.write(groups, at, b, to, none, none)
        loop.carry(f.offset(at, row * LOW), f.offset(to, c_row * LOW))
    at, to = loop.after
    last = rest % LOW
    with f.when(last > 0):
        in_rows = groups * scheme.unit
        of_a = (at, in_rows, f.const(scheme.unit), in_rows * scheme.vector_rows)
        of_b = (b, f.const(vectors * scheme.machine.vector_bytes))
        f.call(f"tiles_{vectors}", VOID, [last, groups, *of_a, *of_b, to, c_row, lanes, keep, none, none])
    f.give()


def _pair(module: Module, scheme: Scheme) -> None:
    """A column of register tiles of half the rows of panels of A and two panels of B; rows that fill no panel of A meet
    one panel of B after the other."""
    f = module.function("panels_pair", VOID, _PAIR)
    m, groups, a, b, b_panel, c, c_row, keep, following = f.parameters
    all_lanes, none = f.const(-1), f.const(0)
    rows, high, row = scheme.panel_rows, scheme.pair_rows, chunked_bytes(f, scheme, groups)
    tile = _Panel(f, scheme, (high, rows), 2 * scheme.panel_vectors, (c_row, all_lanes, keep), b_panel)
    with f.loop(0, m - (rows - 1), rows, [a, c, none]) as loop:
        panel, to, asked = loop.carried
        with f.loop(0, rows // high, 1, [panel, to, asked]) as half:
            at, here, line = half.carried
            tile.write(groups, at, b, here, line, following)
            below = f.offset(at, high * CHUNK * scheme.unit)
            half.carry(below, f.offset(here, c_row * high), line + tile.asked)
        loop.carry(f.offset(panel, row * rows), *half.after[1:])
    at, to, _ = loop.after
    rest = m % rows
    with f.when(rest > 0):
        name = f"panels_{scheme.panel_vectors}"
        for b_at, c_at in ((b, to), (f.offset(b, b_panel), f.offset(to, scheme.panel_columns * scheme.element_c))):
            f.call(name, VOID, [rest, groups, at, b_at, c_at, c_row, all_lanes, keep, none])
    f.give()


def chunked_bytes(f: Function, scheme: Scheme, groups: Value) -> Value:
    """Bytes of a row of a panel of A of so much k: whole chunks."""
    return f.round_up(groups, CHUNK) * scheme.unit


class _Panel(Tile):
    """Emits one register tile of packed operands: so many rows of so many of a panel of A; of two panels of B if they
    are told how far apart they lie.  of_c: what `Tile` is told of C."""

    def __init__(
        self,
        f: Function,
        scheme: Scheme,
        rows: tuple[int, int],
        vectors: int,
        of_c: tuple[Value, Value, Value],
        beside: Value | None = None,
    ) -> None:
        c_row, lanes, keep = of_c
        super().__init__(f, scheme, rows[0], vectors, c_row=c_row, lanes=lanes, keep=keep)
        self.deep, self.beside = rows[1] * CHUNK * scheme.unit, beside
        self.asked = 64 * LINES * self.shares

    def write(self, groups: Value, a: Value, b: Value, c: Value, asked: Value, following: Value) -> None:
        """All k, to the rows of C at ``c``; ``asked`` is the first byte of what follows on B that is prefetched."""
        f, rows = self.f, self.rows
        zero = Value(f, self.math.sum_type, "zeroinitializer")
        chunks = groups // CHUNK
        share = chunks // self.shares
        ahead = f.offset(b, following)
        with f.loop(0, self.shares, 1, [*[zero] * (rows * self.vectors), a, b, c, asked]) as part:
            *state, here, line = part.carried
            here = self.ask_share(here)
            with f.when(line < following):
                for k in range(LINES):
                    prefetch(f, f.offset(ahead, line + 64 * k), level=2)
            last = part.index.equals(self.shares - 1)
            mine = f.select(last, chunks - share * (self.shares - 1), share)
            part.carry(*self._steps(mine, CHUNK, self.deep, state), here, line + 64 * LINES)
        state = part.after[:-2]
        state = self._steps(groups % CHUNK, 1, self.scheme.unit, state)
        self.finish(state[: rows * self.vectors], self.places(rows, c))

    def _steps(self, count: Value, unroll: int, down: int, state: list[Value]) -> list[Value]:
        """``count`` times ``unroll`` steps of k, after which A goes on ``down`` bytes later."""
        f, unit = self.f, self.scheme.unit
        row = self.row_of_b(self.beside)
        with f.loop(0, count, 1, state) as loop:
            *sums, a, b = loop.carried
            for k in range(unroll):
                if k and self.beside is not None:
                    a, b = opaque(f, a), opaque(f, b)  # four more columns would not fit into the registers
                columns = self.columns(b, k, self.beside)
                for r in range(self.rows):
                    unit_a = self.math.broadcast(f.offset(a, (r * CHUNK + k) * unit))
                    for v, column in enumerate(columns):
                        i = r * self.vectors + v
                        sums[i] = self.math.step(sums[i], unit_a, column)
            loop.carry(*sums, f.offset(a, down), f.offset(b, unroll * row))
        return loop.after


def _pack_a(parts: Parts) -> None:
    """``pack_a_panels(k, m, a, rs, cs, to)``: whole panels, low ones below them, and what is left as rows."""
    fields = ((I64, "k"), (I64, "m"), (PTR, "a"), (I64, "rs"), (I64, "cs"), (PTR, "to"))
    f = parts.module.function("pack_a_panels", VOID, fields)
    k, m, a, rs, cs, to = f.parameters
    s = parts.scheme
    row = chunked_bytes(f, s, k)
    last, rest = m % LOW, m % s.panel_rows
    whole, low = m - rest, rest - last
    middle, put_middle = f.offset(a, whole * rs), f.offset(to, whole * row)
    below, put_below = f.offset(middle, low * rs), f.offset(put_middle, low * row)
    panels, lows = (to, row * s.panel_rows), (put_middle, row * LOW)
    with f.either(cs.equals(s.element_a)) as along:
        f.call("panels_a_along", VOID, [k, whole, a, rs, *panels])
        f.call("low_a_along", VOID, [k, low, middle, rs, *lows])
        f.call("pack_a_rows", VOID, [k, last, below, rs, put_below, k * s.unit])
        along.otherwise()
        with f.either(rs.equals(s.element_a)) as across:
            f.call("panels_a_across", VOID, [k, whole, a, cs, *panels])
            across.otherwise()
            f.call("panels_a_any", VOID, [k, whole, a, cs, rs, *panels])
        f.call("low_a_any", VOID, [k, low, middle, cs, rs, *lows])
        f.call("rows_a_any", VOID, [k, last, below, cs, rs, put_below, k * s.unit])
    f.give()


def _macro(parts: Parts) -> None:
    """``macro_panels(m, n, groups, a, b, b_panel, c, c_row, keep, following)``: a block of A against panels of B."""
    s = parts.scheme
    fields = (
        *((I64, "m"), (I64, "n"), (I64, "groups"), (PTR, "a"), (PTR, "b"), (I64, "b_panel")),
        *((PTR, "c"), (I64, "c_row"), (I64, "keep"), (I64, "following")),
    )
    f: Function = parts.module.function("macro_panels", VOID, fields)
    m, n, groups, a, b, b_panel, c, c_row, keep, following = f.parameters
    width = s.panel_columns

    def column(vectors: int, at: Value, to: Value, lanes: Value) -> None:
        f.call(f"panels_{vectors}", VOID, [m, groups, a, at, to, c_row, lanes, keep, following])

    with f.loop(0, n - (2 * width - 1), 2 * width, [b, c]) as loop:
        at, to = loop.carried
        f.call("panels_pair", VOID, [m, groups, a, at, b_panel, to, c_row, keep, following * 2])
        loop.carry(f.offset(at, b_panel * 2), f.offset(to, 2 * width * s.element_c))
    at, to = loop.after
    tail = n % (2 * width)
    with f.loop(0, tail - (width - 1), width, [at, to]) as loop:
        at, to = loop.carried
        column(s.panel_vectors, at, to, f.const(-1))
        loop.carry(f.offset(at, b_panel), f.offset(to, width * s.element_c))
    at, to = loop.after
    tail = tail % width
    with f.when(tail > 0):
        vectors = f.ceil_div(tail, s.lanes)
        lanes = low_bits(f, tail - (vectors - 1) * s.lanes, s.lanes)
        for v in range(1, s.panel_vectors + 1):
            with f.when(vectors.equals(v)):
                column(v, at, to, lanes)
    f.give()
