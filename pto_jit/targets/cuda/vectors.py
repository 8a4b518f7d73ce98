# SPDX-License-Identifier: MIT
"""Products of one row by a matrix that is read from memory as it is multiplied: nothing of the matrix is kept.

The row is put into shared memory.  A thread adds up its columns over some rows of the matrix; those who share columns
add up what they have.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import Block, Op, Var
from pto_jit.ir.types import TensorType
from pto_jit.slotted import replace
from pto_jit.targets.cuda.higher import HigherWriter
from pto_jit.targets.cuda.thin import copied_rows, multiplied_rows, streamed_loads
from pto_jit.targets.cuda.values import Axis, Tile, joined_lead
from pto_jit.targets.source.scalars import memory_type, register_type


class VectorWriter(HigherWriter):
    """Writes products of one row, too; `streams` has the matrices: the tile (without elements), where its elements are
    in memory, and strides."""

    def prepare(self) -> None:
        super().prepare()
        self.rows_streamed = streamed_loads(self.func)
        self.streams: dict[str, tuple[Tile, str, tuple[str, str]]] = {}
        self.vectors: dict[str, str] = {}  # rows that stand in shared memory
        self.multiplied = multiplied_rows(self.func, self.rows_streamed)
        self.copied = copied_rows(self.func, self.multiplied)

    def block(self, block: Block) -> None:
        known = dict(self.vectors)
        super().block(block)
        self.vectors = known

    def staged_load(self, op: Op) -> bool:
        name = op.results[0].name
        if name in self.copied:
            self._copy_row(op)
            return True
        if name not in self.rows_streamed:
            return super().staged_load(op)
        tile, at, strides = self.region(op)
        assert isinstance(op.args[0], Var) and isinstance(op.args[0].type, TensorType)
        text = self.name(name)
        self.text.line(f"const {memory_type(tile.dtype)}* const {text} = {at};")
        self.streams[name] = tile, text, strides
        return True

    def _copy_row(self, op: Op) -> None:
        """Bring a row to shared memory without a thread that holds it."""
        name = op.results[0].name
        tile, at, strides = self.region(op)
        self.reads_memory(op.args[0])
        memory = self.names.fresh(f"{self.name(name)}_row")
        self.shared.append(self._plain_memory(memory, tile))
        self.text.line("Spread::synchronise();")
        columns = tile.columns.valid if tile.rows.full else f"({tile.rows.valid} > 0 ? {tile.columns.valid} : 0)"
        columns = tile.there(columns)
        self.text.line(f"pto::copy_row({memory}, {at}, {strides[1]}, {columns});")
        self.text.line("Spread::synchronise();")
        self.tiles[name], self.vectors[name] = tile, memory

    def _concat(self, op: Op) -> None:
        name = op.results[0].name
        if name not in self.multiplied or name in self.facts.mutable:
            super()._concat(op)
            return
        memory = self.names.fresh(f"{self.name(name)}_row")
        self.tiles[name], self.vectors[name] = self._joined_memory(op, memory)

    def _row_of(self, var: Var) -> tuple[Tile, str]:
        """A row in shared memory, put there unless it is."""
        tile = self.tiles[var.name]
        known = self.vectors.get(var.name)
        if known is not None:
            return tile, known
        memory = self.names.fresh(f"{self.name(var.name)}_row")
        self.shared.append(self._plain_memory(memory, tile))
        self.text.line("Spread::synchronise();")
        self._lay_down(tile, memory, ("0", "0"))
        self.text.line("Spread::synchronise();")
        if var.name not in self.facts.mutable:
            self.vectors[var.name] = memory
        return tile, memory

    def multiply_row(self, op: Op) -> None:
        """The product of a row by a streamed matrix."""
        row, right = op.args[:2]
        assert isinstance(row, Var) and isinstance(right, Var)
        matrix, at, strides = self.streams[right.name]
        tile, memory = self._row_of(row)
        self._check_contraction(op, tile.columns, matrix.rows)
        target = self._accumulator(op, tile.rows, matrix.columns, (tile.lead, matrix.lead))
        depth, inside = tile.columns.valid, matrix.rows.valid
        if depth != inside:  # unequal ones have failed, and nothing outside is read
            depth = f"pto::smaller({depth}, {inside})"
        self.text.line(f"pto::multiply_row<Spread>({target}, {memory}, {depth}, {at}, {strides[0]}, {strides[1]}, "
                       f"{matrix.there(matrix.columns.valid)});")  # fmt: skip

    def _accumulator(self, op: Op, rows: Axis, columns: Axis, leads: Sequence[tuple[Axis, ...]]) -> str:
        """The array that the product is added to: that of the accumulator, a copy of it, or zeros.

        leads: `lead` of what is multiplied.
        """
        result = op.results[0]
        dtype = result.type.dtype  # type: ignore[union-attr]
        start: Tile | None = None
        if len(op.args) > 2:
            start = self.tile(op.args[2])
            for mine, other in ((rows, start.rows), (columns, start.columns)):
                if mine.valid != other.valid and not (other.fits and other.full):
                    condition = f"{mine.valid} == {other.valid}"
                    if other.fits:
                        condition += f" || {other.valid} == {other.declared}"
                    self.check(condition, "LaunchError",
                               "an accumulator with {0} valid elements along an axis meets a product with {1}", op.loc,
                               other.valid, mine.valid)  # fmt: skip
        zero = f"{register_type(dtype)}(0)"
        if start is not None:
            leads = [*leads, start.lead]
        out = Tile(dtype, 2, rows, columns, start.element if start is not None else lambda i, j: zero,
                   lead=joined_lead(leads))  # fmt: skip
        if result.name in self.declared:
            known = self.tiles[result.name]
            assert known.array is not None
            if start is None or start.array != known.array:
                self.assign(known.array, out)
            self.set_valid(known, out)
            return known.array
        made = self.materialised(replace(out, array=None), self.name(result.name))
        self.tiles[result.name] = made
        assert made.array is not None
        return made.array


def _name(operand: object) -> str:
    return operand.name if isinstance(operand, Var) else ""
