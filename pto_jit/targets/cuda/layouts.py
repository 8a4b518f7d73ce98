# SPDX-License-Identifier: MIT
"""Where the elements of tiles of more than two axes lie: in the slots of threads, in shared memory, in tensors.

All axes but the last are the rows of what threads hold (`higher`).  A tile goes from one layout to another by way of
shared memory, unless its slots hold the same elements in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import TensorType
from pto_jit.slotted import replace
from pto_jit.targets.cuda.places import PlaceWriter
from pto_jit.targets.cuda.values import UNIT, Axis, Tile
from pto_jit.targets.source.scalars import register_type

Place = Callable[[str, str], str]
Where = Callable[[list[str]], list[str]]
"""The index along each axis of one tile for the index along each axis of another."""


class LayoutWriter(PlaceWriter):
    """Brings tiles of more than two axes from one layout to another."""

    # -- memory ---------------------------------------------------------------------------------------------------

    def load_lines(self, op: Op, tile: Tile, at: str, inside: Sequence[str], pad: str) -> None:
        tensor = op.args[0]
        assert isinstance(tensor, Var)
        self.headers.add("pto_places")
        self.text.line(f"pto::load_lines<{self._access(tile)}>({tile.array}, {at}, {self._last_stride(tensor)}, "
                       f"{tile.rows.valid}, {inside[-1]}, {pad}, "
                       f"{self._line(tensor, tile, inside)});")  # fmt: skip

    def write_lines(self, function: str, extra: str, tile: Tile, tensor: Var, at: str, valid: Sequence[str]) -> None:
        self.headers.add("pto_places")
        rows, shown = tile.rows.valid, valid[-len(tile.axes) :]
        for leading in valid[: -len(shown)]:
            rows = f"({leading}) > 0 ? {rows} : 0"
        function = function.replace("_tile", "_lines")
        self.text.line(f"pto::{function}<Spread, {str(tile.columns.unit).lower()}{extra}>({at}, "
                       f"{self._last_stride(tensor)}, {rows}, {shown[-1]}, {tile.array}, "
                       f"{self._line(tensor, tile, shown)});")  # fmt: skip

    def _last_stride(self, tensor: Var) -> str:
        assert isinstance(tensor.type, TensorType)
        last = tensor.type.rank - 1
        return "1" if tensor.type.layout in ("c", "inner") else f"{self.name(tensor.name)}.stride[{last}]"

    def _line(self, tensor: Var, tile: Tile, inside: Sequence[str]) -> str:
        """A function of the row: how far from the first element of a tensor its line is, if it is inside."""
        assert isinstance(tensor.type, TensorType)
        indices, first = tile.indices("row", "0")[:-1], tensor.type.rank - len(tile.axes)
        place = " + ".join(f"{i} * {self.name(tensor.name)}.stride[{first + k}]"
                           for k, i in enumerate(indices) if i != "0")  # fmt: skip
        outside = [f"{i} < {n}" for i, n, axis in zip(indices, inside, tile.axes, strict=False) if n != axis.valid]
        chosen = f"{' && '.join(outside)} ? {place} : pto::NO_LINE" if outside else place
        return f"[&](int, int row) -> int64_t {{ return {chosen}; }}"

    # -- from one layout to another -------------------------------------------------------------------------------

    def lines_together(self, tiles: Sequence[Tile], op: Op) -> tuple[list[Tile], Axis, Axis, tuple[Axis, ...]]:
        count = max(len(t.lead) + len(t.axes) for t in tiles)
        aligned = [t.hidden(count - len(t.axes)) + t.axes for t in tiles]
        axes = [self._joined(list(column), op) for column in zip(*aligned, strict=True)]
        laid = [self._as(t, axes, own) for t, own in zip(tiles, aligned, strict=True)]
        _, rows, columns = self.placed(axes, op.loc)
        return laid, rows, columns, self.lead_of(axes)

    def _as(self, tile: Tile, axes: Sequence[Axis], own: Sequence[Axis]) -> Tile:
        """A tile as it meets others that have such axes; own: its axes, as many."""
        missing = len(own) - len(tile.axes)
        which = [None if axis.unit else k - missing for k, axis in enumerate(own)]
        wide = [mine if mine.unit and k == len(axes) - 1 else axis
                for k, (mine, axis) in enumerate(zip(own, axes, strict=True))]  # fmt: skip
        return tile if tile.rows.unit else self.laid(tile, wide, which)

    def laid(self, tile: Tile, axes: Sequence[Axis], which: Sequence[int | None]) -> Tile:
        rank, rows, columns = self.placed(axes, self.func.loc)
        out = replace(tile, rank=rank, rows=rows, columns=columns, standing=False, lead=self.lead_of(axes))
        if tile.is_uniform:
            return replace(out, array=None)
        if self._stays(tile, axes, which):
            return out
        if len(axes) == 1 and not tile.rows.unit and which[0] != len(tile.axes) - 1:
            standing = replace(out, rows=columns, columns=UNIT, standing=True)
            if tile.columns.unit and [a for a in tile.axes if not a.unit] == [axes[0]]:
                return standing
        return self._moved(tile, out, lambda indices: self._chosen(tile, axes, which, indices))

    def _stays(self, tile: Tile, axes: Sequence[Axis], which: Sequence[int | None]) -> bool:
        """Whether the slots of a tile are those of the same elements as these axes."""
        if tile.rank == 1:
            return False
        columns = len(tile.axes) - 1
        same_column = (which[-1] == columns or (which[-1] is None and tile.columns.unit)) and axes[-1] == tile.columns
        down = [(k, a.valid) for k, a in enumerate(tile.axes[:-1]) if not a.unit]
        wanted = [(k, a.valid) for k, a in zip(which[:-1], axes[:-1], strict=True) if k is not None or not a.unit]
        return same_column and wanted == down

    def _chosen(
        self, tile: Tile, axes: Sequence[Axis], which: Sequence[int | None], indices: Sequence[str]
    ) -> list[str]:  # fmt: skip
        """Indices of a tile for indices along these axes; only the last of them are given, where others are 1."""
        missing = len(axes) - len(indices)
        found = ["0"] * len(tile.axes)
        for k, source in enumerate(which):
            if source is not None and k >= missing:
                axis = tile.axes[source]
                index = indices[k - missing]
                found[source] = index if axis.valid == axes[k].valid else within(index, axis)
        return found

    def _moved(self, source: Tile, out: Tile, where: Where, *, looked_at: str = "") -> Tile:
        """A tile of elements of another one, which the threads find in shared memory; looked_at: an expression that is
        evaluated for each, and not used."""
        shared = self._in_memory(source)

        def at(i: str, j: str, row: str, column: str) -> str:
            found = shared(*source.place(where(out.indices(row, column))))
            return f"((void){looked_at}, {found})" if looked_at else found

        return self._found(self.names.fresh("moved"), replace(out, array=None), at)

    def _in_memory(self, tile: Tile, *, alone: bool = False) -> Place:
        """Put a tile into shared memory; alone: where nothing else is.  The expression for the element in a row and a
        column."""
        memory, at = self._memory_for(tile, alone)
        source = self.materialised(tile)
        typ = register_type(tile.dtype)
        strides = "1, 0" if _is_column(tile) else f"pto::pitch<{typ}>({memory}_columns), 1"
        self.text.line("Spread::synchronise();")
        self.text.line(f"pto::store_tile<{self._access(tile)}>({memory}, {strides}, {tile.rows.valid}, "
                       f"{tile.columns.valid}, {source.array});")  # fmt: skip
        self.text.line("Spread::synchronise();")
        return at

    def _memory_for(self, tile: Tile, alone: bool = False) -> tuple[str, Place]:
        """Shared memory for a tile; a single column stands there as a row."""
        lying = replace(tile, rows=UNIT, columns=tile.rows) if _is_column(tile) else tile
        if alone:
            memory = self.names.fresh("factor")
            self.shared.append(self._plain_memory(memory, lying, tight=True))
        else:
            memory = self._exchange_memory(lying, tight=True)
        if _is_column(tile):
            return memory, lambda row, column: f"{memory}[{row}]"
        pitch = f"pto::pitch<{register_type(tile.dtype)}>({memory}_columns)"
        return memory, lambda row, column: f"{memory}[{row} * {pitch} + {column}]"

    def _laid_down(self, tiles: Sequence[Tile], out: Tile, where: Sequence[Where]) -> Tile:
        """A tile that others become: each puts its elements where a function of their indices says."""
        memory, element = self._memory_for(out)
        tiles = [self.materialised(t) for t in tiles]
        self.headers.add("pto_places")
        self.text.line("Spread::synchronise();")
        for tile, to in zip(tiles, where, strict=True):
            place = element(*out.place(to(tile.indices("row", "column"))))
            self.text.line(f"pto::scatter_tile<{self._access(tile)}>({memory}, {tile.array}, {tile.rows.valid}, "
                           f"{tile.columns.valid}, [&](int, int, int row, int column) -> int64_t {{ "
                           f"(void)row; (void)column; return &{place} - {memory}; }});")  # fmt: skip
        self.text.line("Spread::synchronise();")
        return self._found(self.names.fresh("joined"), replace(out, array=None), lambda i, j, r, c: element(r, c))

    def _tile_of(self, axes: Sequence[Axis], like: Tile, op: Op) -> Tile:
        """A tile without elements that has such axes."""
        rank, rows, columns = self.placed(axes, op.loc)
        return replace(like, rank=rank, rows=rows, columns=columns, standing=False, array=None,
                       element=lambda i, j: "", lead=self.lead_of(axes))  # fmt: skip

    def _all_axes(self, operand: Operand) -> tuple[Tile, list[Axis]]:
        """A tile, and its axes as the program counts them."""
        tile = self._lying(operand)
        return tile, [*tile.hidden(operand.type.rank - len(tile.axes)), *tile.axes]  # type: ignore[union-attr]


def _is_column(tile: Tile) -> bool:
    """Whether a tile has one column of several rows."""
    return tile.columns.unit and not tile.rows.unit


def within(index: str, axis: Axis) -> str:
    """An index of memory that has an axis, also where a check has failed."""
    return f"pto::smaller({index}, {axis.capacity} - 1)"
