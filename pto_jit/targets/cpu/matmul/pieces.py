# SPDX-License-Identifier: MIT
"""Numbers as sums of bf16 ones, packed for the matrix tiles of AMX (`piece_tiles`).

A number of f32 is ``x = x1 + x2 + x3`` exactly: x1 is x rounded to bf16, x2 what is left rounded, x3 the rest; one of
f16 has two such pieces.  Of the nine products of f32 the six of ``xi yj`` with i + j <= 4 are computed, ``x3 y1``
first; those left out are at most 2^-24 of ``x y``, as much as one rounding of f32 (Henry, Tang and Heinecke,
"Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019).  All four of f16
are.  An instruction sums 32 of k before it adds them to others, and sums of blocks of k are added to one another, so
that fewer roundings follow one another than in a chain of f32 arithmetic: its error bound is met for k >= 32.

The tiles take subnormal numbers as zero.  So the packing functions note the least and the largest magnitude, and
`fits` says whether nothing is lost; what does not fit, infinities and NaNs included, is left to f32 arithmetic.

A panel is 32 rows of A or 32 columns of B.  Each *step*, 32 of k, has for each piece two tiles side by side: 16 rows of
A, 16 pairs of k each; or 16 pairs of k, 16 columns each.  A number and the one 16 further are a pair, so that vectors
of numbers become vectors of pairs by a shift.  What is beyond the borders is zero.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.amx import SIDE
from pto_jit.targets.cpu.matmul.convert import converted, read
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, VOID, Function, Module, Value
from pto_jit.targets.cpu.matmul.pack import transposed
from pto_jit.targets.cpu.matmul.parts import Fields, Parts
from pto_jit.targets.cpu.matmul.shape import Scheme
from pto_jit.targets.cpu.matmul.vectors import prefetch

DEEP = 2 * SIDE
"""k of a step."""

PANEL = 2 * SIDE
"""Rows of a panel of A, columns of one of B."""

SLAB = 2 * PANEL
"""Columns of B that a range is noted of."""

TILE = SIDE * 64
PIECE = 2 * TILE
"""Bytes of a tile, and from one piece of a step to the next."""

RANGE = 128
"""Bytes of a range: sixteen least magnitudes that are not zero, less one, and sixteen largest, as bits."""

ROWS_AHEAD = 8
"""Rows of A are prefetched before they are packed: nothing foresees short pieces of rows."""

_WORDS, _SINGLES = "<16 x i32>", "<16 x float>"


def step_bytes(scheme: Scheme) -> int:
    """Bytes of a step of a panel."""
    return scheme.pieces * PIECE


def add_pieces(parts: Parts) -> None:
    """Define ``piece_a``, ``piece_b``, and what they are made of."""
    module, scheme = parts.module, parts.scheme
    _turn(module)
    for name, along in (("piece_square_along", True), ("piece_square_across", False)):
        for partial in (False, True):
            _square(module, scheme, name, along, partial)
    _rows(module, scheme)
    _columns(module, scheme)
    _pack_a(module, scheme)
    _pack_b(module, scheme)


# -- numbers ----------------------------------------------------------------------------------------------------------


def _same(f: Function, type_: str, number: int) -> Value:
    return Value(f, type_, f"splat (i32 {number - (1 << 32) if number >> 31 else number})")


class _Splitter:
    """Splits vectors of numbers and keeps the range of their magnitudes."""

    def __init__(self, f: Function, scheme: Scheme, span: Value) -> None:
        self.f, self.scheme, self.span = f, scheme, span
        self.least = f.variable(f.load(_WORDS, span))
        self.most = f.variable(f.load(_WORDS, f.offset(span, 64)))

    def read(self, at: Value, count: Value | None = None) -> Value:
        """Sixteen numbers, or so many, as f32."""
        f, machine, dtype = self.f, self.scheme.machine, self.scheme.combo.a
        return converted(f, machine, dtype, "float", read(f, machine, dtype, SIDE, at, count))

    def split(self, value: Value) -> list[Value]:
        """Vectors of words whose upper halves are the pieces."""
        f = self.f
        bits = f.emit(_WORDS, f"bitcast {value.type} {value.ref} to {_WORDS}")
        size = bits & _same(f, _WORDS, 0x7FFF_FFFF)
        self.most.set(f.intrinsic("llvm.umax.v16i32", _WORDS, [self.most.get(), size]))
        self.least.set(
            f.intrinsic("llvm.umin.v16i32", _WORDS, [self.least.get(), size + _same(f, _WORDS, 0xFFFF_FFFF)])
        )
        out = []
        for _ in range(self.scheme.pieces - 1):
            near = (bits + _same(f, _WORDS, 0x8000)) & _same(f, _WORDS, 0xFFFF_0000)
            whole, part = (f.emit(_SINGLES, f"bitcast {_WORDS} {x.ref} to {_SINGLES}") for x in (bits, near))
            rest = f.emit(_SINGLES, f"fsub {_SINGLES} {whole.ref}, {part.ref}")
            bits = f.emit(_WORDS, f"bitcast {_SINGLES} {rest.ref} to {_WORDS}")
            out.append(near)
        return [*out, bits]

    def paired(self, lower: Value, upper: Value) -> list[Value]:
        """The pieces of two vectors of numbers, a lane of one and of the other in each word."""
        f = self.f
        out = []
        for low, high in zip(self.split(lower), self.split(upper), strict=True):
            out.append(f.binary("lshr", low, _same(f, _WORDS, 16)) | high)
        return out

    def done(self) -> None:
        """Put the range back."""
        self.f.store(self.least.get(), self.span)
        self.f.store(self.most.get(), self.f.offset(self.span, 64))


def clear_range(f: Function, span: Value) -> None:
    """The range of no numbers."""
    f.store(_same(f, _WORDS, 0xFFFF_FFFF), span)
    f.store(Value(f, _WORDS, "zeroinitializer"), f.offset(span, 64))


def extremes(f: Function, span: Value) -> tuple[Value, Value]:
    """The exponents of the least and of the largest magnitude, biased; of zeros alone 511 and 0."""
    out = []
    for name, at in (("umin", 0), ("umax", 64)):
        bits = f.load(_WORDS, f.offset(span, at))
        word = f.intrinsic(f"llvm.vector.reduce.{name}.v16i32", I32, [bits])
        out.append(f.widen(word) // (1 << 23))
    return out[0], out[1]


def fits(f: Function, least_a: Value, most_a: Value, least_b: Value, most_b: Value) -> Value:
    """Whether products of such numbers by tiles are as good as by f32 arithmetic.

    The last bit of each number is normal (2^-103 and more); products are at least 2^-96, so that what becomes zero
    below 2^-126 is less than their rounding; numbers can be rounded up, and 2^31 products summed, without an overflow.
    """
    alone = (least_a >= 24) & (least_b >= 24) & (most_a <= 252) & (most_b <= 252)
    return alone & (least_a + least_b >= 158) & (most_a + most_b <= 346)


# -- packing ----------------------------------------------------------------------------------------------------------


def _square(module: Module, scheme: Scheme, name: str, along: bool, partial: bool) -> None:
    """``<name>(from, stride, to, span, lines, k)``: a step of a tile, turned as it is packed.

    along: sixteen lines with k side by side; else 32 rows of k, sixteen lines side by side.  partial: there are fewer
    of both, not more than ``lines`` and ``k``.
    """
    fields: Fields = ((PTR, "from"), (I64, "stride"), (PTR, "to"), (PTR, "span"), (I64, "lines"), (I64, "k"))
    f = module.function(name + ("_part" if partial else ""), VOID, fields)
    source, stride, to, span, lines, k = f.parameters
    splitter = _Splitter(f, scheme, span)

    room = f.alloca(scheme.pieces * TILE)
    with f.loop(0, SIDE, 1, [source, room], at_least_once=True) as loop:
        (at, line), i = loop.carried, loop.index
        if along:
            there = f.select(lines > i, k, 0)
            places = (at, f.offset(at, SIDE * scheme.element_a))
            counts = (f.minimum(there, SIDE), f.maximum(there - SIDE, 0))
        else:
            places = (at, f.offset(at, stride * SIDE))
            counts = tuple(f.select(k > row, lines, 0) for row in (i, i + SIDE))
        numbers = [splitter.read(at, count if partial else None) for at, count in zip(places, counts, strict=True)]
        for piece, value in enumerate(splitter.paired(*numbers)):
            f.store(value, f.offset(line, piece * TILE))
        loop.carry(f.offset(at, stride), f.offset(line, 64))
    for piece in range(scheme.pieces):
        f.call("piece_turn", VOID, [f.offset(room, piece * TILE), f.offset(to, piece * PIECE)])
    splitter.done()
    f.give()


def _turn(module: Module) -> None:
    """``piece_turn(from, to)``: a tile whose rows become columns."""
    f = module.function("piece_turn", VOID, [(PTR, "from"), (PTR, "to")])
    source, to = f.parameters
    rows = [f.load(_WORDS, f.offset(source, 64 * i)) for i in range(SIDE)]
    for i, value in enumerate(transposed(f, rows, 4)):
        f.store(value, f.offset(to, 64 * i))
    f.give()


def _turned(
    f: Function, scheme: Scheme, name: str, sizes: tuple[Value, Value], of: tuple[Value, Value], move: Value,
    to: tuple[Value, Value],
) -> None:  # fmt: skip
    """A tile's lines, all of k, by squares: of (address, stride), ``move`` bytes apart, to (address, span); sizes: k,
    and how many lines there are."""
    (k, lines), (source, stride), (place, span), step = sizes, of, to, step_bytes(scheme)
    whole = f.select(lines >= SIDE, k // DEEP * DEEP, 0)
    with f.loop(0, whole, DEEP, [source, place]) as loop:
        at, put = loop.carried
        f.call(name, VOID, [at, stride, put, span, lines, k])
        loop.carry(f.offset(at, move), f.offset(put, step))
    with f.loop(whole, k, DEEP, loop.after) as rest:
        at, put = rest.carried
        f.call(f"{name}_part", VOID, [at, stride, put, span, lines, f.minimum(k - rest.index, DEEP)])
        rest.carry(f.offset(at, move), f.offset(put, step))


def _rows(module: Module, scheme: Scheme) -> None:
    """``piece_rows(k, m, a, stride, to, span)``: rows of A, up to a panel, with k side by side."""
    fields: Fields = ((I64, "k"), (I64, "m"), (PTR, "a"), (I64, "stride"), (PTR, "to"), (PTR, "span"))
    f = module.function("piece_rows", VOID, fields)
    k, m, a, stride, to, span = f.parameters
    splitter, size, step = _Splitter(f, scheme, span), scheme.element_a, step_bytes(scheme)
    whole = k // DEEP * DEEP

    def put(place: Value, first: Value, second: Value) -> None:
        for piece, value in enumerate(splitter.paired(first, second)):
            f.store(value, f.offset(place, piece * PIECE))

    with f.loop(0, m, 1, [a, to]) as rows:
        row, line = rows.carried
        with f.loop(0, whole, DEEP, [row, line]) as loop:
            at, place = loop.carried
            for skip in range(0, DEEP * size, 64):
                prefetch(f, f.offset(f.offset(at, stride * ROWS_AHEAD), skip))
            put(place, splitter.read(at), splitter.read(f.offset(at, SIDE * size)))
            loop.carry(f.offset(at, DEEP * size), f.offset(place, step))
        with f.when(whole < k):
            at, place = loop.after
            rest = k - whole
            first = splitter.read(at, f.minimum(rest, SIDE))
            put(place, first, splitter.read(f.offset(at, SIDE * size), f.maximum(rest - SIDE, 0)))
        rows.carry(f.offset(row, stride), f.offset(line, 64))
    with f.loop(m, f.round_up(m, SIDE), 1, [rows.after[1]]) as rows:
        with f.loop(0, k, DEEP, rows.carried) as loop:
            for piece in range(scheme.pieces):
                f.store(Value(f, _WORDS, "zeroinitializer"), f.offset(loop.carried[0], piece * PIECE))
            loop.carry(f.offset(loop.carried[0], step))
        rows.carry(f.offset(rows.carried[0], 64))
    splitter.done()
    f.give()


def _columns(module: Module, scheme: Scheme) -> None:
    """``piece_columns(k, n, b, stride, to, panel, spans)``: rows of B with columns side by side."""
    fields: Fields = (
        *((I64, "k"), (I64, "n"), (PTR, "b"), (I64, "stride"), (PTR, "to"), (I64, "panel"), (PTR, "spans")),
    )
    f = module.function("piece_columns", VOID, fields)
    k, n, b, stride, to, panel, spans = f.parameters
    size = scheme.element_b

    def put(splitter: _Splitter, at: Value, place: Value, columns: Value | None, there: Value | None) -> None:
        """Sixteen columns, or so many, of a row and of the one `SIDE` below, of which there are so many, or both."""
        values = []
        for row in (0, SIDE):
            count = columns
            if there is not None:
                count = f.select(there > row, f.const(SIDE) if columns is None else columns, 0)
            spot = f.offset(at, stride * row)
            prefetch(f, f.offset(spot, stride * DEEP), level=2)
            values.append(splitter.read(spot, count))
        for piece, value in enumerate(splitter.paired(*values)):
            f.store(value, f.offset(place, piece * PIECE))

    def line(at: Value, place: Value, there: Value | None) -> None:
        """All columns of such rows."""
        with f.loop(0, n, SLAB, [at, place, spans]) as slab:
            here, target, span = slab.carried
            splitter = _Splitter(f, scheme, span)
            wide = f.minimum(n - slab.index, SLAB)
            with f.loop(0, wide - (PANEL - 1), PANEL, [here, target]) as panels:
                of, to_ = panels.carried
                for side in range(2):
                    put(splitter, f.offset(of, SIDE * size * side), f.offset(to_, TILE * side), None, there)
                panels.carry(f.offset(of, PANEL * size), f.offset(to_, panel))
            with f.loop(wide // PANEL * PANEL, wide, SIDE, panels.after) as rest:
                of, to_ = rest.carried
                put(splitter, of, to_, f.minimum(wide - rest.index, SIDE), there)
                rest.carry(f.offset(of, SIDE * size), f.offset(to_, TILE))
            splitter.done()
            slab.carry(f.offset(here, SLAB * size), f.offset(target, panel * (SLAB // PANEL)), f.offset(span, RANGE))

    def lines(at: Value, place: Value, deep: Value | None) -> None:
        """A step, of which there are so many rows, or all."""
        with f.loop(0, SIDE, 1, [at, place]) as rows:
            of, to_ = rows.carried
            line(of, to_, None if deep is None else deep - rows.index)
            rows.carry(f.offset(of, stride), f.offset(to_, 64))

    with f.loop(0, k, DEEP, [b, to]) as steps:
        at, place = steps.carried
        deep = k - steps.index
        with f.either(deep >= DEEP) as side:
            lines(at, place, None)
            side.otherwise()
            lines(at, place, deep)
        steps.carry(f.offset(at, stride * DEEP), f.offset(place, step_bytes(scheme)))
    f.give()


def _pack_a(module: Module, scheme: Scheme) -> None:
    """``piece_a(k, m, a, rs, cs, to, span)``: up to a panel of A, one of its strides that of a number."""
    fields: Fields = (
        *((I64, "k"), (I64, "m"), (PTR, "a"), (I64, "rs"), (I64, "cs"), (PTR, "to"), (PTR, "span")),
    )
    f = module.function("piece_a", VOID, fields)
    k, m, a, rs, cs, to, span = f.parameters
    with f.either(cs.equals(scheme.element_a)) as side:
        f.call("piece_rows", VOID, [k, m, a, rs, to, span])
        side.otherwise()
        with f.loop(0, m, SIDE, [a, to]) as tiles:
            at, put = tiles.carried
            _turned(f, scheme, "piece_square_across", (k, m - tiles.index), (at, cs), cs * DEEP, (put, span))
            tiles.carry(f.offset(at, SIDE * scheme.element_a), f.offset(put, TILE))
    f.give()


def _pack_b(module: Module, scheme: Scheme) -> None:
    """``piece_b(k, n, b, rs, cs, to, panel, spans)``: panels of B, ``panel`` bytes apart, and the ranges of slabs."""
    fields: Fields = (
        *((I64, "k"), (I64, "n"), (PTR, "b"), (I64, "rs"), (I64, "cs"), (PTR, "to"), (I64, "panel"), (PTR, "spans")),
    )
    f = module.function("piece_b", VOID, fields)
    k, n, b, rs, cs, to, panel, spans = f.parameters
    with f.loop(0, f.ceil_div(n, SLAB), 1, [spans]) as slab:
        clear_range(f, slab.carried[0])
        slab.carry(f.offset(slab.carried[0], RANGE))
    with f.either(cs.equals(scheme.element_b)) as side:
        f.call("piece_columns", VOID, [k, n, b, rs, to, panel, spans])
        side.otherwise()
        with f.loop(0, n, SIDE, [b, to, f.offset(to, TILE)]) as tiles:
            at, put, after = tiles.carried
            span = f.offset(spans, tiles.index // SLAB * RANGE)
            move = f.const(DEEP * scheme.element_b)
            _turned(f, scheme, "piece_square_along", (k, n - tiles.index), (at, cs), move, (put, span))
            tiles.carry(f.offset(at, cs * SIDE), after, f.offset(put, panel))
    f.give()
