# SPDX-License-Identifier: MIT
"""Loads and stores of tiles: which part of a tensor, how much of it is there, and the functions that move it."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.slotted import replace
from pto_jit.targets.cuda.tiles import TileWriter
from pto_jit.targets.cuda.values import Axis, Tile
from pto_jit.targets.source.scalars import register_type


class AccessWriter(TileWriter):
    """Writes what moves tiles between memory and registers."""

    def _load(self, op: Op) -> None:
        tensor, result = op.args[0], op.results[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType) and isinstance(result.type, TileType)
        if self.staged_load(op):
            return
        tile, at, strides = self.region(op)
        self.reads_memory(tensor)
        target = self.new_array(result, tile)
        pad = f"{register_type(tensor.type.dtype)}({self.scalar(op.args[-1]) if op.attr('pad') else 0})"
        inside = self._inside(op, tile)
        if tile.rows.parts:
            self.load_lines(op, replace(tile, array=target.array), at, inside, pad)
        else:
            rows, columns = (("1", "1", *inside)[-2:]) if not tile.standing else (inside[0], "1")
            self.text.line(
                f"pto::load_tile<{self._access(tile)}>({target.array}, {at}, {strides[0]}, {strides[1]}, "
                f"{rows}, {columns}, {pad});"
            )
        if target is self.tiles.get(result.name):
            self.set_valid(target, tile)
        else:
            self.tiles[result.name] = target
            self.made(result)

    def staged_load(self, op: Op) -> bool:
        """Whether a load is an operand of products alone, and is brought to shared memory where those are."""
        return False

    def _access(self, tile: Tile) -> str:
        return f"Spread, {str(tile.rows.unit).lower()}, {str(tile.columns.unit).lower()}"

    def region(self, op: Op) -> tuple[Tile, str, tuple[str, str]]:
        """What a load reads: the tile (without elements), the address of its first element, strides of its axes."""
        tensor, result = op.args[0], op.results[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType) and isinstance(result.type, TileType)
        rank = tensor.type.rank
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        name = self.name(tensor.name)
        axes: list[Axis] = []
        for k, (offset, extent) in enumerate(zip(offsets, extents, strict=True)):
            self.natural(offset, k, op.loc)
            inside = None if op.attr("pad") else self._clipped(op, tensor, k, offset, extent)
            axes.append(self.axis(extent, inside, fits=self.facts.fits(result.name, k)))
        standing = self._stands(result)
        kept, rows, columns = self.placed(axes, op.loc, standing=standing)
        tile = Tile(result.type.dtype, kept, rows, columns, lambda i, j: "", standing=standing, lead=self.lead_of(axes))
        at = f"{name}.data" if (d := self.offset(tensor, offsets)) == "0" else f"{name}.data + {d}"
        last = "1" if tensor.type.layout in ("c", "inner") else f"{name}.stride[{rank - 1}]"
        before = f"{name}.stride[{rank - 2}]" if rank > 1 else "0"
        strides = (last, "1") if standing else (before, last)
        return tile, at, strides

    def _clipped(self, op: Op, tensor: Var, axis: int, offset: Operand, extent: Operand) -> str | None:
        """The valid extent of a loaded axis; None when all of it is sure to be."""
        name = self.name(tensor.name)
        assert isinstance(tensor.type, TensorType)
        root_dim = (tensor.name, axis)
        if isinstance(offset, Const) and offset.value == 0:
            if isinstance(extent, Var) and self.facts.is_dim(extent.name, *root_dim):
                return None
            known = tensor.type.shape[axis]
            if known is not None and isinstance(extent, Const) and extent.value <= known:
                return None
        if isinstance(extent, Const) and extent.value == 1 and self.facts.is_below(offset, *root_dim):
            return None
        wish = self.names.fresh(
            f"{self.name(op.results[0].name)}_{'columns' if axis == tensor.type.rank - 1 else 'rows'}"
        )
        self.text.line(
            f"const int {wish} = pto::clipped({self.scalar(extent)}, {name}.shape[{axis}], {self.scalar(offset)});"
        )
        return wish

    def _inside(self, op: Op, tile: Tile) -> list[str]:
        """How much of each axis of a loaded tile lies in the tensor: its valid part, or what is not padded."""
        if not op.attr("pad"):
            *before, last = tile.axes
            return [*(axis.valid for axis in before), tile.there(last.valid)]
        tensor = op.args[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        parts = [self._clipped(op, tensor, k, op.args[1 + k], op.args[1 + rank + k]) for k in range(rank)]
        texts = [p or self.scalar(op.args[1 + rank + k]) for k, p in enumerate(parts)]
        outside = [f"{p} > 0" for p in parts[: -_shown(tile)] if p is not None]
        if outside:  # no column is, where a plane is not
            texts[-1] = f"({' && '.join(outside)} ? {texts[-1]} : 0)"
        return texts[-len(tile.axes) :]

    def _store(self, op: Op) -> None:
        self._write(op, "store_tile", "")

    def _write(self, op: Op, function: str, extra: str) -> None:
        """Write a tile into a tensor by a function of the device; extra: the rest of its template arguments."""
        value, tensor = op.args[0], op.args[1]
        assert isinstance(value, Var) and isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        tile = self.materialised(self.tile(value))
        rank, name = tensor.type.rank, self.name(tensor.name)
        offsets = op.args[2:]
        valid: list[str] = []
        axes = tile.hidden(rank - len(tile.axes)) + tile.axes
        for k, (offset, axis) in enumerate(zip(offsets, axes, strict=True)):
            self.natural(offset, k, op.loc)
            if axis.unit and axis.full and self.facts.is_below(offset, tensor.name, k):
                valid.append("1")
            elif isinstance(offset, Const) and offset.value == 0 and self._is_dim(axis, tensor.name, k):
                valid.append(axis.valid)
            else:
                valid.append(f"pto::clipped({axis.valid}, {name}.shape[{k}], {self.scalar(offset)})")
        self.writes_memory(tensor)
        at = f"{name}.data" if (d := self.offset(tensor, offsets)) == "0" else f"{name}.data + {d}"
        last = "1" if tensor.type.layout in ("c", "inner") else f"{name}.stride[{rank - 1}]"
        before = f"{name}.stride[{rank - 2}]" if rank > 1 else "0"
        if rank == 1:
            rows, columns, strides = ("1", valid[0], ("0", last)) if not tile.standing else (valid[0], "1", (last, "1"))
        else:
            rows, columns, strides = valid[-2], valid[-1], (before, last)
        if tile.rows.parts:
            self.write_lines(function, extra, tile, tensor, at, valid)
            return
        for leading in valid[:-2]:
            rows = f"({leading}) > 0 ? {rows} : 0"
        self.text.line(
            f"pto::{function}<{self._access(tile)}{extra}>({at}, {strides[0]}, {strides[1]}, {rows}, {columns}, "
            f"{tile.array});"
        )

    def _is_dim(self, axis: Axis, tensor: str, k: int) -> bool:
        return any(axis.valid == f"int({self.name(n)})" for n, d in self.facts.dims.items() if (tensor, k) in d)

    def load_lines(self, op: Op, tile: Tile, at: str, inside: Sequence[str], pad: str) -> None:
        """Load a tile of more than two axes into its array."""
        raise NotImplementedError

    def write_lines(self, function: str, extra: str, tile: Tile, tensor: Var, at: str, valid: Sequence[str]) -> None:
        """`_write` of a tile of more than two axes; valid: how much of each axis lies in the tensor."""
        raise NotImplementedError


def _shown(tile: Tile) -> int:
    """How many axes of a tile its rows and columns are, of the last ones."""
    return len(tile.rows.parts) + 1 if tile.rows.parts else 2
