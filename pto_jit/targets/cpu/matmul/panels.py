# SPDX-License-Identifier: MIT
"""Products of packed operands on processors with AVX-512.

B is packed into panels of NR columns; A into panels of MR rows: chunks of four elements, one of every row, then the
next of every row, so that rows are packed by copying them.  Then

``void panels_<v>(m, groups, a, b, c, c_row, lanes, keep, following)``

computes ``C[0:m, 0:v*L] (+)= A[0:m, :] B[:, 0:v*L]`` with constant steps: loads are at constant distances.  An element
of A is loaded once for its two vectors: as an operand in memory of each multiply-add it would be read twice, and the
two loads that a core does in a cycle would be too few.  A panel of B stays in L1 while the panels of A pass by from L2.

`kernel` says what the parameters are, and why the partition of C never shows.  The orientation is that of BLIS on
AVX-512 (Van Zee and van de Geijn, 2015).
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.kernel import Tile
from pto_jit.targets.cpu.matmul.parts import Fields, Parts
from pto_jit.targets.cpu.matmul.shape import CHUNK, LOW, Scheme
from pto_jit.targets.cpu.matmul.vectors import low_bits, prefetch

QUARTERS = 4
"""Parts of a tile's k; with each, some of the prefetches are issued."""
LINES = 16
"""Lines of the following panel that are prefetched with each of them."""

_TILE: Fields = (
    *((I64, "m"), (I64, "groups"), (PTR, "a"), (PTR, "b"), (PTR, "c"), (I64, "c_row")),
    *((I64, "lanes"), (I64, "keep"), (I64, "following")),
)


def add_panels(parts: Parts) -> None:
    """Define ``panels_1`` ..., ``pack_a_panels`` and ``macro_panels``."""
    for vectors in range(1, parts.scheme.panel_vectors + 1):
        _column(parts.module, parts.scheme, vectors)
    _pack_a(parts)
    _macro(parts)


def _column(module: Module, scheme: Scheme, vectors: int) -> None:
    """A column of register tiles: whole panels, low ones, and the last rows, packed as rows, by ``tiles_<v>``."""
    f = module.function(f"panels_{vectors}", VOID, _TILE)
    m, groups, a, b, c, c_row, lanes, keep, following = f.parameters
    rows, row, none = scheme.panel_rows, chunked_bytes(f, scheme, groups), f.const(0)
    whole, low = (_Panel(f, scheme, n, vectors, c_row=c_row, lanes=lanes, keep=keep) for n in (rows, LOW))
    with f.loop(0, m - (rows - 1), rows, [a, c, none]) as loop:
        at, to, asked = loop.carried
        whole.write(groups, at, b, to, asked, following)
        loop.carry(f.offset(at, row * rows), f.offset(to, c_row * rows), asked + 64 * LINES * QUARTERS)
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


def chunked_bytes(f: Function, scheme: Scheme, groups: Value) -> Value:
    """Bytes of a row of a panel of A of so much k: whole chunks."""
    return f.round_up(groups, CHUNK) * scheme.unit


class _Panel(Tile):
    """Emits one register tile of packed operands."""

    def write(self, groups: Value, a: Value, b: Value, c: Value, asked: Value, following: Value) -> None:
        f, rows, deep = self.f, self.rows, self.rows * CHUNK * self.scheme.unit
        zero = Value(f, self.math.sum_type, "zeroinitializer")
        chunks = groups // CHUNK
        share = chunks // QUARTERS
        ahead = f.offset(b, following)
        with f.loop(0, QUARTERS, 1, [*[zero] * (rows * self.vectors), a, b, c, asked]) as quarter:
            *state, here, line = quarter.carried
            for row in self.places(rows // QUARTERS, here):
                self.ask(row)
            with f.when(line < following):
                for k in range(LINES):
                    prefetch(f, f.offset(ahead, line + 64 * k), level=2)
            state = self._steps(share, CHUNK, deep, state)
            quarter.carry(*state, f.offset(here, self.c_row * (rows // QUARTERS)), line + 64 * LINES)
        state = self._steps(chunks - share * QUARTERS, CHUNK, deep, quarter.after[:-2])
        state = self._steps(groups % CHUNK, 1, self.scheme.unit, state)
        self.finish(state[: rows * self.vectors], self.places(rows, c))

    def _steps(self, count: Value, unroll: int, down: int, state: list[Value]) -> list[Value]:
        """``count`` times ``unroll`` steps of k, after which A goes on ``down`` bytes later."""
        f, rows, unit = self.f, self.rows, self.scheme.unit
        width = self.scheme.machine.vector_bytes
        with f.loop(0, count, 1, state) as loop:
            *sums, a, b = loop.carried
            for k in range(unroll):
                columns = [
                    f.load(self.math.vector_type, f.offset(b, (k * self.vectors + v) * width))
                    for v in range(self.vectors)
                ]
                for r in range(rows):
                    unit_a = self.math.broadcast(f.offset(a, (r * CHUNK + k) * unit))
                    for v, column in enumerate(columns):
                        i = r * self.vectors + v
                        sums[i] = self.math.step(sums[i], unit_a, column)
            loop.carry(*sums, f.offset(a, down), f.offset(b, unroll * self.vectors * width))
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

    with f.loop(0, n - (width - 1), width, [b, c]) as loop:
        at, to = loop.carried
        column(s.panel_vectors, at, to, f.const(-1))
        loop.carry(f.offset(at, b_panel), f.offset(to, width * s.element_c))
    at, to = loop.after
    tail = n % width
    with f.when(tail > 0):
        vectors = f.ceil_div(tail, s.lanes)
        lanes = low_bits(f, tail - (vectors - 1) * s.lanes, s.lanes)
        for v in range(1, s.panel_vectors + 1):
            with f.when(vectors.equals(v)):
                column(v, at, to, lanes)
    f.give()
