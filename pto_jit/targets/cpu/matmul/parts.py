# SPDX-License-Identifier: MIT
"""What the functions above the micro-kernels are written with: their fields, their choices, calls in one shape."""

from __future__ import annotations

from pto_jit.slotted import frozen
from pto_jit.targets.cpu.matmul.blocking import Blocking
from pto_jit.targets.cpu.matmul.irtext import I32, I64, PTR, Function, Module, Value
from pto_jit.targets.cpu.matmul.shape import STORAGE, Scheme

Fields = tuple[tuple[str, str], ...]

OPERANDS: Fields = (
    (PTR, "w"),
    (I64, "m"),
    (I64, "n"),
    (I64, "k"),
    (PTR, "a"),
    (I64, "a_rs"),
    (I64, "a_cs"),
    (PTR, "b"),
    (I64, "b_rs"),
    (I64, "b_cs"),
    (PTR, "c"),
    (I64, "c_rs"),
)
"""What every inner function takes: strides in bytes, columns of C contiguous."""

CONTEXT: Fields = (*OPERANDS, (I64, "keep"))

_REPAID = 96  # rows of A from which on packing B costs less than reading vectors across cache lines
ROWS, ACROSS, ANY, PANELS = 1, 2, 3, 4
"""How A is packed: rows copied, panels from contiguous columns or from any strides, panels of `panels`; 0: not."""


@frozen
class Parts:
    """A module under construction with the scheme and the block sizes of its product."""

    module: Module
    scheme: Scheme
    blocking: Blocking

    def how_a(self, f: Function, m: Value, n: Value, k: Value, rs: Value, cs: Value) -> Value:
        """How A is to be packed (0: not)."""
        s = self.scheme
        rows = cs.equals(s.element_a)
        how = f.select(rows, ROWS, ANY if s.tiles else f.select(rs.equals(s.element_a), ACROSS, ANY))
        if not s.raw_a:
            return how
        # Rows of A as they lie do as well as packed ones; other layouts are packed when that is repaid.
        if s.group > 1:
            fine = rows & (k % (s.group * s.together)).equals(0)  # how the end of k is rounded depends on k alone
            if s.tiles:  # tiles are read row by row, which nothing foresees: where many columns meet them, from copies
                fine = fine & (n <= 8 * s.tile_columns)
        else:
            fine = rows | (m * k <= self.blocking.small_bytes // s.unit) | (n <= 2 * s.tile_columns)
        return f.select(fine, 0, how)

    def small(self, f: Function, m: Value, n: Value, k: Value, b: Value, b_rs: Value) -> Value:
        """Whether B is read in place for any m: it is small, and its rows spread over the sets of L1.

        Where its vectors cross cache lines, many rows of A repay a packed copy.
        """
        s, plan = self.scheme, self.blocking
        bytes_ = n * k * s.unit
        spread = (bytes_ <= 4 * plan.small_bytes) & (b_rs % 1024).differs(0)
        address = f.emit(I64, f"ptrtoint ptr {b.ref} to i64")
        whole = ((address | b_rs) & (s.machine.vector_bytes - 1)).equals(0)
        fine = whole | (m < _REPAID)
        return ((bytes_ <= plan.small_bytes) | spread) & (k <= plan.depth * s.group) & fine

    def near(self, m: Value, n: Value, k: Value) -> Value:
        """Whether B is packed block by block: m fits one block of rows, or few of them where B is larger than a slab.

        A slab that is used two or three times does not repay being written to L3 and read from there, least of all
        where other programs use L3 too.
        """
        plan = self.blocking
        return (m <= plan.rows) | ((m <= 3 * plan.rows) & (n * k > plan.far_bytes // 2 // self.scheme.unit))

    def depth(self, f: Function, k: Value, most: Value | int) -> Value:
        """KC in elements: k in equal parts of at most ``most`` groups, whole groups (whole tiles) each."""
        group = self.scheme.group
        parts = f.ceil_div(k, most * group)
        return f.round_up(f.ceil_div(k, parts), self.scheme.together * group)

    def groups(self, f: Function, k: Value, how: Value) -> Value:
        """Groups of k elements that are computed with: whole tiles where A is packed, too (``how``)."""
        groups = f.ceil_div(k, self.scheme.group)
        if self.scheme.together == 1:
            return groups
        return f.select(how.differs(0), f.round_up(groups, self.scheme.together), groups)

    def a_strides(
        self, f: Function, how: Value, groups: Value, row: Value, rs: Value, cs: Value
    ) -> tuple[Value, Value, Value]:
        """(row, step, panel) of A in place, in rows, or in panels of ``groups``."""
        s, tall = self.scheme, self.scheme.panel_rows if self.scheme.tiles else self.scheme.tile_rows
        in_place, rows = how.equals(0), how.differs(0) if s.tiles else how.equals(ROWS)
        a_row = f.select(in_place, rs, f.select(rows, row, s.unit))
        a_step = f.select(in_place, cs * s.group, f.select(rows, s.unit, tall * s.unit))
        a_panel = f.select(in_place | rows, a_row * tall, groups * (tall * s.unit))
        return a_row, a_step, a_panel

    def row_bytes(self, f: Function, depth: Value) -> Value:
        """Bytes of a packed row of A: whole vectors and a line, so that rows fall in different sets."""
        line = max(64, self.scheme.machine.vector_bytes)
        return f.round_up(depth * self.scheme.element_packed, line) + line

    def panel_bytes(self, groups: Value) -> Value:
        """Bytes from one packed panel of B to the next: two lines more than it has, as panels are packed side by side
        and their lines would often fall into the same set."""
        s = self.scheme
        return groups * (s.panel_columns * s.unit) + (s.header + 2 * 64)

    def push(self, f: Function, w: Value, bytes_: Value) -> Value:
        """Scratch; returns 1 from the function when there is none."""
        room = f.call("pto_scratch_push", PTR, [w, bytes_])
        with f.when(room.equals(0)):
            f.give(1)
        return room

    def merge(self, f: Function, source: Value, target: Value, keep: Value) -> None:
        """``C = value`` or ``C += value`` for one element."""
        type_ = STORAGE[self.scheme.combo.c]
        value = f.load(type_, source)
        with f.either(keep.differs(0)) as side:
            f.store(f.binary("add" if self.scheme.integral else "fadd", f.load(type_, target), value), target)
            side.otherwise()
            f.store(value, target)

    def save(self, f: Function, values: list[Value]) -> Value:
        """Values in a block on the stack, for range functions."""
        context = f.alloca(8 * len(values))
        for i, value in enumerate(values):
            f.store(value, f.offset(context, 8 * i), 8)
        return context

    def restore(self, f: Function, context: Value, fields: Fields) -> list[Value]:
        """The values of such a block."""
        return [f.load(type_, f.offset(context, 8 * i), 8) for i, (type_, _) in enumerate(fields)]

    def task(
        self, name: str, fields: Fields, *, rare: bool = True
    ) -> tuple[Function, Value, Value, Value, list[Value]]:
        """Begin a range function: itself, worker, begin, end, and the saved values.  rare: it runs for workers."""
        parameters = [(PTR, "w"), (PTR, "context"), (I64, "begin"), (I64, "end")]
        f = self.module.function(name, I32, parameters, rare=rare)
        w, context, begin, end = f.parameters
        return f, w, begin, end, self.restore(f, context, fields)

    def workers(self, f: Function, w: Value) -> Value:
        """How many threads may share what is called here: one where others have their share of something else."""
        return f.widen(f.call("pto_parallel_width", I32, [w]))

    def pieces(self, f: Function, workers: Value) -> Value:
        """How many pieces of rows so many workers share: some for each, for they are not equally fast."""
        return f.select(workers > 1, workers * self.blocking.tasks, 1)

    def share(self, f: Function, name: str, w: Value, context: Value, count: Value) -> Value:
        """Run ``count`` tasks over the workers."""
        return f.call("pto_parallel_for", I32, [w, Value(f, PTR, f"@{name}"), context, f.const(0), count, f.const(1)])
