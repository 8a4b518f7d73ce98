# SPDX-License-Identifier: MIT
"""The micro-kernels: a column of register tiles of C, one function per panel width in vectors.

``void tiles_<v>(m, groups, a, a_row, a_step, a_panel, b, b_step, c, c_row, lanes, keep, ahead, following)``

computes ``C[0:m, 0:v*L] (+)= A[0:m, :] B[:, 0:v*L]`` over ``groups >= 1`` units of k, all strides in bytes:

* A is read by broadcast loads at ``a + row * a_row + group * a_step``, so the same code takes A packed either way or A
  where it lies, with any strides; after MR rows, a moves by ``a_panel``;
* B rows of v vectors lie ``b_step`` apart, packed or in place;
* ``lanes`` is the bit mask of valid lanes of the last vector (on machines with masks; others are only called for whole
  vectors);
* ``keep`` is -1 to add to C, 0 to write it;
* ``ahead`` is how far in front of each line of B another one is prefetched;
* ``following`` is the distance to the panel of B after this one, which is brought into L2 meanwhile, or 0.

Every element is one chain of fused multiply-adds in ascending k, whatever tile it falls in, so the partition of C never
shows in the result.  The register tile follows Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008), in the orientation of BLIS (Van Zee and van de Geijn, 2015): broadcasts of A against vectors
of B.

bf16 x bf16 by vdpbf16ps differs from f32 arithmetic on the widened values: it takes subnormal inputs as zero, flushes
subnormal results, always rounds to nearest even, and rounds after each of the two products of a pair; the error stays
within k * eps of the sum of magnitudes, and without that instruction bf16 is widened while packing and none of this
holds.
"""

from __future__ import annotations

from pto_jit.targets.cpu.matmul.irtext import I64, PTR, VOID, Function, Module, Value, vector
from pto_jit.targets.cpu.matmul.shape import Scheme
from pto_jit.targets.cpu.matmul.vectors import lane_mask, mangled, masked_load, masked_store, prefetch, splat


class Arithmetic:
    """The multiply-accumulate step of a scheme, on vectors of accumulators and of units."""

    def __init__(self, f: Function, scheme: Scheme) -> None:
        self.f, self.scheme = f, scheme
        self.lanes = scheme.lanes
        self.sum_type = vector(self.lanes, scheme.accumulator)
        self.unit_type = scheme.packed if scheme.group == 1 else f"i{8 * scheme.unit}"
        self.vector_type = vector(self.lanes, self.unit_type)
        self.operand_type = vector(self.lanes * scheme.group, {"bf16": "bfloat"}.get(scheme.arithmetic, scheme.packed))

    def broadcast(self, pointer: Value) -> Value:
        """One unit of A in every lane."""
        return self.shifted(splat(self.f, self.f.load(self.unit_type, pointer), self.lanes))

    def shifted(self, units: Value) -> Value:
        """Units of A as `step` takes them: signed bytes moved to the unsigned ones."""
        if not self.scheme.offset_a:
            return units
        flip = f"splat (i32 {0x80808080 - (1 << 32)})"
        return self.f.emit(units.type, f"xor {units.type} {units.ref}, {flip}")

    def _operand(self, value: Value) -> Value:
        if value.type == self.operand_type:
            return value
        return self.f.emit(self.operand_type, f"bitcast {value.type} {value.ref} to {self.operand_type}")

    def add(self, a: Value, b: Value) -> Value:
        """Sum of two accumulator vectors."""
        return self.f.binary("add" if self.scheme.integral else "fadd", a, b)

    def step(self, total: Value, a: Value, b: Value) -> Value:
        """``total + a . b`` lane by lane."""
        f, type_ = self.f, self.sum_type
        bits = 8 * self.scheme.machine.vector_bytes
        a, b = self._operand(a), self._operand(b)
        match self.scheme.arithmetic:
            case "fma":
                return f.intrinsic(f"llvm.fmuladd.{mangled(type_)}", type_, [a, b, total])
            case "bf16":
                return f.intrinsic(f"llvm.x86.avx512bf16.dpbf16ps.{bits}", type_, [total, a, b])
            case "byte" if self.scheme.machine.arch == "arm":
                name = "sdot" if self.scheme.combo.a == "i8" else "udot"
                return f.intrinsic(f"llvm.aarch64.neon.{name}.v4i32.v16i8", type_, [total, a, b])
            case "byte":
                return f.intrinsic(f"llvm.x86.avx512.vpdpbusd.{bits}", type_, [total, a, b])
            case "word" if self.scheme.machine.word_dot:
                return f.intrinsic(f"llvm.x86.avx512.vpdpwssd.{bits}", type_, [total, a, b])
            case "word":
                name = {512: "avx512.pmaddw.d.512", 256: "avx2.pmadd.wd", 128: "sse2.pmadd.wd"}[bits]
                return self.add(total, f.intrinsic(f"llvm.x86.{name}", type_, [a, b]))
        return self.add(total, f.binary("mul", a, b))


PARAMETERS = (
    (I64, "m"),
    (I64, "groups"),
    (PTR, "a"),
    (I64, "a_row"),
    (I64, "a_step"),
    (I64, "a_panel"),
    (PTR, "b"),
    (I64, "b_step"),
    (PTR, "c"),
    (I64, "c_row"),
    (I64, "lanes"),
    (I64, "keep"),
    (I64, "ahead"),
    (I64, "following"),
)

ASKED = 12
"""Lines of the following panel prefetched with each row of a tile: within a few tiles all of it is on its way, and no
burst takes the line fill buffers from the loads of this panel."""


def add_kernels(module: Module, scheme: Scheme) -> None:
    """Define ``tiles_1`` ... ``tiles_NV``, and ``tall`` where there is a taller tile."""
    for vectors in range(1, scheme.tile_vectors + 1):
        add_column(module, scheme, f"tiles_{vectors}", scheme.vector_rows, vectors)
    if scheme.tall_tile is not None:
        add_column(module, scheme, "tall", *scheme.tall_tile)


def add_column(module: Module, scheme: Scheme, name: str, rows: int, vectors: int) -> None:
    """Define one micro-kernel: a column of register tiles of so many rows and vectors."""
    f = module.function(name, VOID, PARAMETERS)
    m, _, a, _, _, a_panel, _, _, c, c_row, _, _, _, _ = f.parameters
    tile = _Strided(f, scheme, rows, vectors)
    with f.loop(0, m - (rows - 1), rows, [a, c, f.const(0)]) as loop:
        at, to, asked = loop.carried
        tile.whole(at, to, asked)
        loop.carry(f.offset(at, a_panel), f.offset(to, c_row * rows), asked + 64 * ASKED * rows)
    at, to, _ = loop.after
    rest = m % rows
    cases = " ".join(f"i64 {r}, label %rows{r}" for r in range(1, rows))
    f.line(f"switch i64 {rest.ref}, label %finish [ {cases} ]")
    for r in range(1, rows):
        f.label(f"rows{r}")
        tile.partial(r, at, to)
        f.jump("finish")
    f.label("finish")
    f.give()


class Tile:
    """What register tiles of all kinds share: masks of lanes, rows of C, the end of a tile."""

    def __init__(
        self, f: Function, scheme: Scheme, rows: int, vectors: int, *, c_row: Value, lanes: Value, keep: Value
    ) -> None:
        self.f, self.scheme, self.rows, self.vectors = f, scheme, rows, vectors
        self.math = Arithmetic(f, scheme)
        self.c_row, self.keep, self.masks = c_row, keep, scheme.machine.masks
        if self.masks:
            self.last = lane_mask(f, lanes, scheme.lanes)
            self.kept = lane_mask(f, keep, scheme.lanes)
            self.last_kept = f.emit(self.last.type, f"and {self.last.type} {self.last.ref}, {self.kept.ref}")

    def places(self, rows: int, c: Value) -> list[Value]:
        """Where the rows of a tile of C begin."""
        out = [c]
        for _ in range(1, rows):
            out.append(self.f.offset(out[-1], self.c_row))
        return out

    def ask(self, row: Value) -> None:
        """Prefetch the tile's part of a row of C, to be written."""
        for v in range(0, self.vectors * self.scheme.machine.vector_bytes, 64):
            prefetch(self.f, self.f.offset(row, v), write=True)

    @property
    def shares(self) -> int:
        """Parts of k, each of which begins with prefetching some rows of C: all of them at once would take the line
        fill buffers from the loads of A and B."""
        return next(n for n in (4, 3, 2, 1) if self.rows % n == 0)

    def ask_share(self, c: Value) -> Value:
        """Prefetch a share of the rows of C, from the one at ``c``; the next row."""
        for _ in range(self.rows // self.shares):
            self.ask(c)
            c = self.f.offset(c, self.c_row)
        return c

    def columns(self, b: Value, k: int, beside: Value | None) -> list[Value]:
        """The vectors of row ``k`` of the panel of B at ``b``, and of the one ``beside`` bytes further."""
        f, row, width = self.f, self.row_of_b(beside), self.scheme.machine.vector_bytes
        panels = [b] if beside is None else [b, f.offset(b, beside)]
        places = [f.offset(panel, k * row + at) for panel in panels for at in range(0, row, width)]
        return [f.load(self.math.vector_type, place) for place in places]

    def row_of_b(self, beside: Value | None) -> int:
        """Bytes of a row of a panel of B."""
        return self.vectors // (1 if beside is None else 2) * self.scheme.machine.vector_bytes

    def finish(self, sums: list[Value], c_rows: list[Value]) -> None:
        """Add to C or write it; whole tiles branch, so that writing does not wait for C to be read."""
        f, width = self.f, self.scheme.machine.vector_bytes
        places = [f.offset(row, v * width) for row in c_rows for v in range(self.vectors)]
        pairs = list(zip(sums, places, strict=True))
        if self.masks and len(c_rows) < self.rows:
            for i, (total, place) in enumerate(pairs):
                last = (i + 1) % self.vectors == 0
                old = masked_load(f, total.type, place, self.last_kept if last else self.kept)
                self._put(self.math.add(old, total), place, last)
            return
        with f.either(self.keep.differs(0)) as side:
            for i, (total, place) in enumerate(pairs):
                last = (i + 1) % self.vectors == 0
                masked = last and self.masks
                old = masked_load(f, total.type, place, self.last) if masked else f.load(total.type, place)
                self._put(self.math.add(old, total), place, last)
            side.otherwise()
            for i, (total, place) in enumerate(pairs):
                self._put(total, place, (i + 1) % self.vectors == 0)

    def _put(self, value: Value, place: Value, last: bool) -> None:
        if last and self.masks:
            masked_store(self.f, value, place, self.last)
        else:
            self.f.store(value, place)


class _Strided(Tile):
    """Emits one register tile at a time into a column function; A and B lie anywhere."""

    def __init__(self, f: Function, scheme: Scheme, rows: int, vectors: int) -> None:
        _, self.groups, _, self.a_row, self.a_step, _, self.b, self.b_step, _, c_row, lanes, keep, *far = f.parameters
        super().__init__(f, scheme, rows, vectors, c_row=c_row, lanes=lanes, keep=keep)
        self.ahead, self.following = far
        self.a_two, self.a_three = self.a_row + self.a_row, self.a_row + self.a_row + self.a_row

    def whole(self, a: Value, c: Value, asked: Value) -> None:
        """``C[MR, vectors] (+)= A B``; meanwhile the following panel comes nearer, from its byte ``asked`` on."""
        f, rows, unroll = self.f, self.rows, 2
        share = self.groups // (rows * unroll) * unroll
        start = [*self._start(rows), *self._bases(rows, a), self.b]
        following = f.offset(self.b, self.following)
        with f.loop(0, rows, 1, [*start, c, asked]) as row:
            *state, here, asked = row.carried
            self.ask(here)
            with f.when(asked < self.following):
                for line in range(ASKED):
                    prefetch(f, f.offset(following, asked + 64 * line), level=2)
            begin = row.index * share
            state = self._loop(begin, begin + share, unroll, state, rows)
            row.carry(*state, f.offset(here, self.c_row), asked + 64 * ASKED)
        state = self._loop(share * rows, self.groups, 1, row.after[:-2], rows)
        self.finish(state[: rows * self.vectors], self.places(rows, c))

    def partial(self, rows: int, a: Value, c: Value) -> None:
        """``C[rows, vectors] (+)= A B`` for fewer rows than a whole tile has."""
        c_rows = self.places(rows, c)
        for row in c_rows:
            self.ask(row)
        state = self._loop(0, self.groups, 1, [*self._start(rows), *self._bases(rows, a), self.b], rows)
        self.finish(state[: rows * self.vectors], c_rows)

    def _bases(self, rows: int, a: Value) -> list[Value]:
        """Every third row of A: the rows between are reached with scaled indices."""
        bases = [a]
        for _ in range(3, rows, 3):
            bases.append(self.f.offset(bases[-1], self.a_three))
        return bases

    def _start(self, rows: int) -> list[Value]:
        f = self.f
        if not self.scheme.offset_a:
            zero = Value(f, self.math.sum_type, "zeroinitializer")
            return [zero] * (rows * self.vectors)
        head = self.vectors * self.scheme.machine.vector_bytes
        first = [
            f.load(self.math.sum_type, f.offset(self.b, v * self.scheme.machine.vector_bytes - head))
            for v in range(self.vectors)
        ]
        return first * rows

    def _loop(self, start: Value | int, stop: Value, unroll: int, state: list[Value], rows: int) -> list[Value]:
        f = self.f
        with f.loop(start, stop, unroll, state) as loop:
            now = loop.carried
            for _ in range(unroll):
                now = self._step(now, rows)
            loop.carry(*now)
        return loop.after

    def _step(self, state: list[Value], rows: int) -> list[Value]:
        f, width, count = self.f, self.scheme.machine.vector_bytes, rows * self.vectors
        sums, bases, b = list(state[:count]), state[count:-1], state[-1]
        columns = []
        for v in range(self.vectors):
            at = f.offset(b, v * width)
            if v * width % 64 == 0:
                prefetch(f, f.offset(at, self.ahead))
            if self.masks and v == self.vectors - 1 and self.scheme.raw_b:
                columns.append(masked_load(f, self.math.vector_type, at, self.last))
            else:
                columns.append(f.load(self.math.vector_type, at))
        for r in range(rows):
            at = f.offset(bases[r // 3], (self.f.const(0), self.a_row, self.a_two)[r % 3])
            unit = self.math.broadcast(at)
            for v in range(self.vectors):
                i = r * self.vectors + v
                sums[i] = self.math.step(sums[i], unit, columns[v])
        return [*sums, *(f.offset(p, self.a_step) for p in bases), f.offset(b, self.b_step)]
