# SPDX-License-Identifier: MIT
"""Operations that move elements of tiles between threads, by way of shared memory: transposes, slices, joining."""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.nodes import Block, Const, Op, Operand, Stmt, Var
from pto_jit.slotted import replace
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.kernels import SharedTile
from pto_jit.targets.cuda.reductions import ReductionWriter
from pto_jit.targets.cuda.tiles import EXTENTS
from pto_jit.targets.cuda.values import UNIT, Axis, Tile, total
from pto_jit.targets.source.scalars import register_type

HOLE = "{what} of an incomplete tile: {{0}} of {{1}} elements along axis {axis} are valid"
OUTSIDE = "index {{0}} is outside the {{1}} valid elements of axis {axis}"
SLICE = "a slice of a tile starts at {{0}} with extent {{1}} along axis {axis}"


class MoveWriter(ReductionWriter):
    """Writes operations that move elements, too."""

    def prepare(self) -> None:
        super().prepare()
        self.exchanges: dict[tuple[str, str, str, bool], str] = {}

    # -- memory for exchanges -------------------------------------------------------------------------------------

    def _exchange_memory(self, tile: Tile, *, tight: bool = False) -> str:
        """Shared memory for the elements of a tile, as they are in registers; all exchanges, before each of which the
        threads meet, have the same.  tight: in rows without room for `pto::exchanged_place`."""
        key = (register_type(tile.dtype), tile.rows.capacity, tile.columns.capacity, tight)
        memory = self.exchanges.get(key)
        if memory is None:
            memory = self.names.fresh("exchanged")
            first = next(iter(self.exchanges.values()), "")
            self.exchanges[key] = memory
            self.shared.append(replace(self._plain_memory(memory, tile, tight=tight), over=first))
        return memory

    def _plain_memory(self, name: str, tile: Tile, *, tight: bool = False) -> SharedTile:
        # All sizes are multiples of 16 bytes: of a row they are, of a column where there are 16 rows.
        roles = ("1", "") if tile.rows.unit else ("", "1") if tile.columns.unit else (
            ("=", "~" if tight else ""))  # fmt: skip
        size = 4 if tile.dtype.bits == 16 and tile.dtype.kind == "f" else tile.dtype.bytes
        return SharedTile(name, register_type(tile.dtype), size, roles, tile.rows.capacity, tile.columns.capacity, "1")

    def _lay_down(self, tile: Tile, memory: str, at: tuple[str, str]) -> None:
        """Write the valid part of a tile into shared memory at (row, column)."""
        tile = self.materialised(tile)
        typ, rows, columns = register_type(tile.dtype), tile.rows.valid, tile.columns.valid
        self.text.line(f"pto::store_tile<{self._access(tile)}>({_place(memory, typ, at)}, {pitch_of(memory, typ)}, 1, "
                       f"{rows}, {columns}, {tile.array});")  # fmt: skip

    def _pick_up(self, result: Var, tile: Tile, memory: str, at: tuple[str, str], *, down: bool = False) -> None:
        """Give a tile variable the elements of shared memory from (row, column) on; down: a row, those of a column."""
        typ = register_type(tile.dtype)
        if tile.standing and result.name in self.declared:  # whose array lies
            down, tile = True, replace(tile, rows=UNIT, columns=tile.rows, standing=False)
        strides = f"0, {pitch_of(memory, typ)}" if down else f"{pitch_of(memory, typ)}, 1"
        target = self.new_array(result, replace(tile, array=None))
        self.text.line(f"pto::load_tile<{self._access(tile)}>({target.array}, {_place(memory, typ, at)}, "
                       f"{strides}, {tile.rows.valid}, {tile.columns.valid}, {typ}(0));")  # fmt: skip
        self._given(result, target, tile)

    def _given(self, result: Var, target: Tile, tile: Tile) -> None:
        """`target`, whose elements are those of a tile now, is the value of a variable."""
        if target is self.tiles.get(result.name):
            self.set_valid(target, tile)
        else:
            self.tiles[result.name] = target
            self.made(result)

    # -- operations -----------------------------------------------------------------------------------------------

    def _transpose(self, op: Op) -> None:
        """The transpose of a tile in registers, of at most two axes that are not of extent 1 at the start."""
        order = op.attr("axes")
        assert isinstance(order, tuple)
        tile, result, last = self.tile(op.args[0]), op.results[0], len(order) - 1
        own = tile.hidden(len(order) - len(tile.axes)) + tile.axes
        axes = [own[int(k)] for k in order]  # type: ignore[arg-type]
        _, rows, columns = self.placed(axes, op.loc)
        turned = replace(tile, rows=rows, columns=columns, standing=False, lead=self.lead_of(axes))
        turns = order[-1] == last - 1 if tile.columns.unit else order[-1] != last
        if not turns:
            self.put(result, turned, stable=self.stable(op.args))
            return
        tile = self.materialised(tile)
        memory = self._exchange_memory(tile)
        turned = replace(turned, array=None)
        target = self.new_array(result, turned)
        self.text.line("Spread::synchronise();")
        self.text.line(
            f"pto::transpose_tile<{self._access(tile)}, {tile.rows.capacity}, {tile.columns.capacity}>"
            f"({target.array}, {memory}, {tile.array});"
        )
        self._given(result, target, turned)

    def turned(self, tile: Tile) -> Tile:
        source = self.materialised(tile)
        memory = self._exchange_memory(source)
        name = self.names.fresh("turned")
        out = replace(tile, rows=tile.columns, columns=tile.rows, standing=tile.rank == 1 and not tile.standing)
        nr, nc = self.slots(out)
        self.text.line(f"{register_type(tile.dtype)} {name}[{nr}][{nc}];")
        self.text.line("Spread::synchronise();")
        self.text.line(
            f"pto::transpose_tile<{self._access(source)}, {source.rows.capacity}, {source.columns.capacity}>"
            f"({name}, {memory}, {source.array});"
        )
        return out.with_element(name)

    def _concat(self, op: Op) -> None:
        joined, at = self._joined_memory(op, None)
        self._pick_up(op.results[0], joined, at, ("0", "0"))

    def _joined_memory(self, op: Op, memory: str | None) -> tuple[Tile, str]:
        """Put tiles one after the other into shared memory; the tile that they are (without elements), and the memory.

        memory: where, if not where elements are exchanged.
        """
        tiles = [self.tile(a) for a in op.args]
        axis = int(op.attr("axis"))  # type: ignore[call-overload]
        if any(t.standing for t in tiles) and not all(t.standing for t in tiles):
            tiles = [self.turned(t) if t.standing else t for t in tiles]
        standing = tiles[0].standing
        if any(len(t.axes) != len(tiles[0].axes) for t in tiles):
            raise unsupported("`concat` of a row and a column", op.loc, "reshape one of them")
        axis -= op.args[0].type.rank - len(tiles[0].axes)  # type: ignore[union-attr]
        if axis < 0:
            raise unsupported("`concat` of tiles of rank 3", op.loc, "work on tiles of rank 1 or 2")
        down = standing or (tiles[0].rank > 1 and axis == 0)
        parts = [t.rows if down else t.columns for t in tiles]
        for part in parts[:-1]:
            if not part.full:
                self.check(f"{part.valid} == {part.declared}", "BoundsError", HOLE.format(what="concat", axis=axis),
                           op.loc, part.valid, part.declared)  # fmt: skip
        starts = [total(p.declared for p in parts[:k]) for k in range(len(parts))]
        declared, last = total(p.declared for p in parts), parts[-1]
        valid = declared if last.full else total((starts[-1], last.valid))
        along = Axis(False, total(p.capacity for p in parts), declared, valid, all(p.fits for p in parts))
        across = self._side_by_side([t.columns if down else t.rows for t in tiles], op)
        result = replace(tiles[0], rows=along if down else across, columns=across if down else along, array=None,
                         element=lambda i, j: "", lead=self.lead_side_by_side(tiles, op))  # fmt: skip
        if memory is None:
            memory = self._exchange_memory(result)
        else:
            self.shared.append(self._plain_memory(memory, result))
        tiles = [self.materialised(t) for t in tiles]
        self.text.line("Spread::synchronise();")
        for tile, start in zip(tiles, starts, strict=True):
            self._lay_down(tile, memory, (start, "0") if down else ("0", start))
        self.text.line("Spread::synchronise();")
        return result, memory

    def _side_by_side(self, axes: Sequence[Axis], op: Op) -> Axis:
        """The axis that several become of tiles that are put next to each other: they are equally long."""
        first = next((a for a in axes if not a.fits), axes[0])
        for other in axes if first.unit else ():  # longer ones are compared where they meet
            if other.valid != first.valid and not other.fits:
                self.check(f"{other.valid} == {first.valid}", "LaunchError", EXTENTS, op.loc, first.valid, other.valid)
        return self._joined(axes, op)

    def lead_side_by_side(self, tiles: Sequence[Tile], op: Op) -> tuple[Axis, ...]:
        """`lead` of tiles that are put next to each other."""
        count = max(len(t.lead) for t in tiles)
        return tuple([self._side_by_side(axes, op) for axes in zip(*(t.hidden(count) for t in tiles), strict=True)])

    def _tile_slice(self, op: Op) -> None:
        source = self.tile(op.args[0])
        rank = op.args[0].type.rank  # type: ignore[union-attr]
        lead = rank - len(source.axes)
        starts, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        drop = op.attr("drop") or ()
        axes: list[Axis] = []
        for axis, (start, extent) in enumerate(zip(starts, extents, strict=True)):
            have = source.axes[axis - lead] if axis >= lead else source.hidden(lead)[axis]
            axes.append(self._part(op, have, axis, start, extent))
            if axis in drop and not have.full:  # type: ignore[operator]
                self.check_index(op, start, have, axis)
        kept = [a for k, a in enumerate(axes) if k not in drop]  # type: ignore[operator]
        both = list(axes[lead:])  # as rows and columns of the source
        rows, columns = both if len(both) == 2 else (both[0], UNIT) if source.standing else (UNIT, both[0])
        standing = len(kept) == 1 and not rows.unit
        if len(kept) == 1 and not rows.unit and not columns.unit:
            raise unsupported("a slice of a tile of rank 3", op.loc, "work on tiles of rank 1 or 2")
        # Whether the rows are the last axis now, after others of extent 1.
        down = len(kept) > 1 and rank - 1 in drop and not rows.unit  # type: ignore[operator]
        count, rows, columns = self.placed(kept, op.loc, standing=standing)
        result = replace(source, rank=count, rows=rows, columns=columns, standing=standing, array=None,
                         element=lambda i, j: "", lead=self.lead_of(kept))  # fmt: skip
        at = ("0", "0")
        if len(starts) - lead == 2:
            at = (self.scalar(starts[-2]), self.scalar(starts[-1]))
        elif lead <= len(starts) - 1:
            at = (self.scalar(starts[-1]), "0") if source.standing else ("0", self.scalar(starts[-1]))
        source = self.materialised(source)
        memory = self._sliced_memory(op, source)
        self._pick_up(op.results[0], result, memory, at, down=down)

    def check_index(self, op: Op, index: Operand, have: Axis, axis: int) -> None:
        """An index of an axis is one of a valid element."""
        text = self.scalar(index)
        self.check(f"{text} < {have.valid}", "BoundsError", OUTSIDE.format(axis=axis), op.loc, text, have.valid)

    def _sliced_memory(self, op: Op, source: Tile) -> str:
        """Where a tile stands in shared memory for its slices: slices one after the other read it there."""
        memory = self._exchange_memory(source)
        name = op.args[0].name  # type: ignore[union-attr]
        before = self._before
        again = (isinstance(before, Op) and before.op == "tile_slice" and before.args[0] == op.args[0]
                 and before.results[0].name != name)  # fmt: skip
        if not again:
            self.text.line("Spread::synchronise();")
            self._lay_down(source, memory, ("0", "0"))
            self.text.line("Spread::synchronise();")
        return memory

    _before: Stmt | None = None

    def block(self, block: Block) -> None:
        self._before = None
        super().block(block)
        self._before = None

    def statement(self, stmt: Stmt) -> None:
        super().statement(stmt)
        self._before = stmt

    def _part(self, op: Op, have: Axis, axis: int, start: Operand, extent: Operand) -> Axis:
        """What a slice takes of an axis."""
        first, count = self.scalar(start), self.scalar(extent)
        if not (self.facts.is_natural(start) and self.facts.is_natural(extent)):
            self.check(f"{first} >= 0 && {count} >= 0", "BoundsError", SLICE.format(axis=axis), op.loc, first, count)
        inside = isinstance(start, Const) and isinstance(extent, Const) and have.full and have.declared.isdigit()
        if inside and start.value + extent.value <= int(have.declared):  # type: ignore[operator]
            return self.axis(extent, fits=have.fits)
        return self.axis(extent, f"pto::clipped({count}, {have.valid}, {first})", fits=have.fits)


def pitch_of(memory: str, typ: str) -> str:
    """From one row to the next of a tile in shared memory, as an expression."""
    return f"pto::pitch<{typ}>({memory}_columns)"


def _place(memory: str, typ: str, at: Sequence[str]) -> str:
    row, column = at
    text = memory
    if row != "0":
        text += f" + ({row}) * {pitch_of(memory, typ)}" if not row.isdigit() else f" + {row} * {pitch_of(memory, typ)}"
    return text if column == "0" else f"{text} + {column}"

