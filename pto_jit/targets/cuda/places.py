# SPDX-License-Identifier: MIT
"""Elements of tiles at other places, which the threads find in shared memory; counts, and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.slotted import replace
from pto_jit.targets.cuda.lines import LineWriter
from pto_jit.targets.cuda.moves import HOLE, OUTSIDE, pitch_of
from pto_jit.targets.cuda.shapes import kept_axes, shape_of
from pto_jit.targets.cuda.updates import ATOMIC
from pto_jit.targets.cuda.values import UNIT, Axis, Site, Tile, in_array
from pto_jit.targets.source.scalars import register_type

NO_INDEX = "{what}: index {{0}} is outside [0, {{1}})"
At = Callable[[str, str, str, str], str]
"""The expression for an element, of the names of its slot, its row and its column."""


class PlaceWriter(LineWriter):
    """Writes these, too."""

    # -- memory ---------------------------------------------------------------------------------------------------

    def _shared_tile(self, tile: Tile) -> tuple[str, str]:
        """A tile in shared memory, and the distance of its rows there."""
        memory = self._exchange_memory(tile)
        self.text.line("Spread::synchronise();")
        self._lay_down(tile, memory, ("0", "0"))
        self.text.line("Spread::synchronise();")
        return memory, pitch_of(memory, register_type(tile.dtype))

    def _place(self, result: Var, tile: Tile, at: At) -> None:
        """Give a variable a tile whose elements are found by an expression."""
        name = self.names.fresh(f"{self.name(result.name)}_new") if result.name in self.declared else (
            self.name(result.name))  # fmt: skip
        self.put(result, self._found(name, tile, at))

    def _found(self, name: str, tile: Tile, at: At) -> Tile:
        """The tile with a new array of elements that are found by an expression."""
        self.headers.add("pto_places")
        nr, nc = self.slots(tile)
        self.text.line(f"{register_type(tile.dtype)} {name}[{nr}][{nc}];")
        found = at("i", "j", "row", "column")
        rows = tile.there(tile.rows.valid)
        self.text.line(f"pto::place_tile<{self._access(tile)}>({name}, {rows}, {tile.columns.valid}, "
                       f"[&](int i, int j, int row, int column) {{ return {found}; }});")  # fmt: skip
        return replace(tile, element=in_array(name, tile.rows.unit, tile.columns.unit), array=name)

    def _lying(self, operand: Any) -> Tile:
        tile = self.tile(operand)
        return self.turned(tile) if tile.standing else tile

    def _index(self, text: str, extent: str, message: str, op: Op) -> str:
        """An index that is looked at: outside of the extent it is a failure, and 0."""
        self.headers.add("pto_places")
        self.sites.append(Site("BoundsError", message, op.loc))
        return f"pto::inside({text}, {extent}, failure, {self.first_site + len(self.sites)})"

    # -- elements at other places ---------------------------------------------------------------------------------

    def _flip(self, op: Op) -> None:
        tile = self._lying(op.args[0])
        axis = 1 if op.attr("axis") == op.args[0].type.rank - 1 else 0  # type: ignore[union-attr]
        if (tile.rows if axis == 0 else tile.columns).unit:
            self.put(op.results[0], tile, stable=self.stable(op.args))
            return
        memory, pitch = self._shared_tile(tile)

        def at(i: str, j: str, row: str, column: str) -> str:
            if axis == 0:
                return f"{memory}[({tile.rows.valid} - 1 - {row}) * {pitch} + {column}]"
            return f"{memory}[{row} * {pitch} + {tile.columns.valid} - 1 - {column}]"

        self._place(op.results[0], replace(tile, array=None), at)

    def _gather(self, op: Op) -> None:
        source, index = self._lying(op.args[0]), self.materialised(self._lying(op.args[1]))
        axis = 1 if op.attr("axis") == op.args[0].type.rank - 1 else 0  # type: ignore[union-attr]
        rows = index.rows if axis == 0 else self._joined([source.rows, index.rows], op)
        columns = index.columns if axis == 1 else self._joined([source.columns, index.columns], op)
        result = replace(index, dtype=source.dtype, rows=rows, columns=columns, array=None)
        memory, pitch = self._shared_tile(source)
        extent = (source.rows if axis == 0 else source.columns).valid
        where = index.element("0" if index.rows.unit else "i", "0" if index.columns.unit else "j")
        found = self._index(where, extent, NO_INDEX.format(what="gather"), op)

        def at(i: str, j: str, row: str, column: str) -> str:
            return f"{memory}[{found} * {pitch} + {column}]" if axis == 0 else f"{memory}[{row} * {pitch} + {found}]"

        self._place(op.results[0], result, at)

    def _extract(self, op: Op) -> None:
        tile = self._lying(op.args[0])
        rank = op.args[0].type.rank  # type: ignore[union-attr]
        where = ["0", "0"]
        axes = tile.hidden(rank - len(tile.axes)) + tile.axes
        for k, axis in enumerate(axes):
            text = self._found_index(op, axis, k, op.args[1 + k])
            if k >= rank - 2:
                where[k - rank] = text
        if tile.is_unit:
            self.define(op.results[0], tile.element("0", "0"))
            return
        memory, pitch = self._shared_tile(tile)
        self._define_element(op.results[0], f"{memory}[{where[0]} * {pitch} + {where[1]}]", tile, axes)

    def _define_element(self, result: Var, text: str, tile: Tile, axes: Sequence[Axis]) -> None:
        """Give a number the element of a tile; 0 where the tile has none: what follows may take it for an index."""
        some = dict.fromkeys(f"{axis.valid} > 0" for axis in axes if not axis.full)
        zero = f"{register_type(tile.dtype)}(0)"
        self.define(result, f"{' && '.join(some)} ? {text} : {zero}" if some else text)

    def _found_index(self, op: Op, axis: Axis, k: int, index: Operand) -> str:
        """The index of a valid element of axis k, as it is written where the element is read: looked at before."""
        sure = isinstance(index, Const) and axis.full and axis.declared.isdigit()
        text = self.scalar(index)
        if sure and 0 <= index.value < int(axis.declared):  # type: ignore[union-attr]
            return text
        if axis.unit:
            there = f"{text} == 0 && {axis.valid} > 0"
            self.check(there, "BoundsError", OUTSIDE.format(axis=k), op.loc, text, axis.valid)
            return "0"
        return self._kept(self._index(text, axis.valid, OUTSIDE.format(axis=k), op))

    def _kept(self, text: str) -> str:
        """The name of a number that an expression gives, which is looked at once."""
        name = self.names.fresh("index")
        self.text.line(f"const int64_t {name} = {text};")
        return name

    def _stack(self, op: Op) -> None:
        axis = op.attr("axis")
        tiles = [self.tile(a) for a in op.args]
        down = axis == 0  # the tiles become rows
        tiles = [self.turned(t) if t.standing == down and not t.is_unit else t for t in tiles]
        along = self.axis(Const(len(tiles), op.args[0].type), fits=all(t.columns.fits and t.rows.fits for t in tiles))  # type: ignore
        across = self._side_by_side([t.axes[0] for t in tiles], op)
        result = replace(tiles[0], rank=2, rows=along if down else across, columns=across if down else along,
                         standing=False, array=None, element=lambda i, j: "")  # fmt: skip
        memory = self._exchange_memory(result)
        tiles = [self.materialised(t) for t in tiles]
        self.text.line("Spread::synchronise();")
        for k, tile in enumerate(tiles):
            self._lay_down(tile, memory, (str(k), "0") if down else ("0", str(k)))
        self.text.line("Spread::synchronise();")
        self._pick_up(op.results[0], result, memory, ("0", "0"))

    def _reshape(self, op: Op) -> None:
        if kept_axes(self.func.body, op) is not None:
            super()._reshape(op)
            return
        source = self._lying(op.args[0])
        for k, axis in enumerate(self.own_axes(op, source)):
            if not axis.full:
                self.check(f"{axis.valid} == {axis.declared}", "BoundsError", HOLE.format(what="reshape", axis=k),
                           op.loc, axis.valid, axis.declared)  # fmt: skip
        memory, pitch = self._shared_tile(source)
        fits = all(a.fits for a in (source.rows, source.columns) if not a.unit)
        rank, rows, columns = self.placed([self.axis(e, fits=fits) for e in op.args[1:]], op.loc)
        wide = source.columns.declared
        sizes = [f"{r.declared} * {c.declared}" for r, c in ((source.rows, source.columns), (rows, columns))]
        if not all(a.declared.isdigit() for a in (source.rows, source.columns, rows, columns)):
            self.check(f"{sizes[0]} == {sizes[1]}", "LaunchError", "reshape of {0} elements to {1} elements", op.loc,
                       *sizes)  # fmt: skip

        def at(i: str, j: str, row: str, column: str) -> str:
            place = f"({row} * {columns.declared} + {column})" if not rows.unit else column
            return f"{memory}[{place} / {wide} * {pitch} + {place} % {wide}]"

        self._place(op.results[0], replace(source, rank=rank, rows=rows, columns=columns, array=None), at)

    # -- indirect access ------------------------------------------------------------------------------------------

    def _take(self, op: Op) -> None:
        tensor, result = op.args[0], op.results[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        axis, rank, name = int(op.attr("axis")), tensor.type.rank, self.name(tensor.name)  # type: ignore[call-overload]
        index = self.tile(op.args[1])
        along_rows = rank == 2 and axis == 0
        index = self.turned(index) if index.standing != along_rows and not index.is_unit else index
        index = self.materialised(index)
        if rank == 2 and not (index.columns.unit if along_rows else index.rows.unit):
            index = self.turned(index)
        rows, columns = index.rows, index.columns
        if rank == 2:
            other = shape_of(self.func.body, result)
            assert other is not None
            extent = other[-1] if along_rows else other[-2 if len(other) > 1 else -1]
            whole = self.axis(extent, self._clipped(op, tensor, 1 - axis, Const(0, ScalarType(i64)), extent))
            rows, columns = (rows, whole) if along_rows else (whole, columns)
        where = index.element("0" if index.rows.unit else "i", "0" if index.columns.unit else "j")
        found = self._index(where, f"{name}.shape[{axis}]", NO_INDEX.format(what="x[index]"), op)
        out = replace(index, dtype=result.type.dtype, rank=max(1, result.type.rank), rows=rows,  # type: ignore
                      columns=columns, standing=False, array=None)  # fmt: skip
        if out.rank > 2:
            _, rows, columns = self.placed([*[UNIT] * (out.rank - 2), rows, columns], op.loc)
            out = replace(out, rank=out.rank, rows=rows, columns=columns)
        self.reads_memory(tensor)
        if along_rows:
            self._take_rows(result, out, name, found)
            return
        row, last = f"row * {name}.stride[0] + " if rank == 2 else "", f"{name}.stride[{rank - 1}]"
        step = found if tensor.type.layout in ("c", "inner") else f"{found} * {last}"
        self._place(result, out, lambda i, j, *_: f"pto::from_memory({name}.data[{row}{step}])")

    def _take_rows(self, result: Var, tile: Tile, tensor: str, found: str) -> None:
        """Whole rows, which threads read as they read those of a load."""
        target = self.new_array(result, tile)
        typ = register_type(tile.dtype)
        self.text.line(f"pto::load_lines<{self._access(tile)}>({target.array}, {tensor}.data, "
                       f"{tensor}.stride[1], {tile.there(tile.rows.valid)}, {tile.columns.valid}, {typ}(0), "
                       f"[&](int i, int) -> int64_t {{ return {found} * {tensor}.stride[0]; }});")  # fmt: skip
        self._given(result, target, tile)

    def _atomic_add(self, op: Op) -> None:
        self.headers.add("pto_places")
        self._write(op, "update_tile", f", pto::{ATOMIC[op.op]}")

    _atomic_max = _atomic_min = _atomic_add

    # -- counts and random numbers --------------------------------------------------------------------------------

    def _histogram(self, op: Op) -> None:
        source = self.materialised(self._lying(op.args[0]))
        bins = str(op.attr("bins"))
        columns = UNIT if bins == "1" else Axis(False, bins, bins, bins)
        result = replace(source, dtype=op.results[0].type.dtype, columns=columns, array=None,  # type: ignore[union-attr]
                         element=lambda i, j: "")  # fmt: skip
        memory = self._exchange_memory(result)
        self.headers.add("pto_places")
        self.text.line(f"pto::count_tile<{self._access(source)}>({memory}, {pitch_of(memory, 'int32_t')}, {bins}, "
                       f"{source.array}, {source.rows.valid}, {source.columns.valid});")  # fmt: skip
        self._pick_up(op.results[0], result, memory, ("0", "0"))

    def _rand(self, op: Op) -> None:
        axes = [self.axis(e, fits=True) for e in op.args[2:]]
        rank, rows, columns = self.placed(axes, op.loc)
        seed, offset = (f"int64_t({self.scalar(a)})" for a in op.args[:2])

        def element(i: str, j: str) -> str:
            row = "" if rows.unit else f" + int64_t(Spread::row({i})) * {columns.declared}"
            column = "" if columns.unit else f" + Spread::column({j})"
            return self.random(op.op, seed, f"{offset}{row}{column}")

        tile = Tile(op.results[0].type.dtype, rank, rows, columns, element, lead=self.lead_of(axes))  # type: ignore
        self.put(op.results[0], tile, stable=self.stable(op.args))

    _randn = _rand
