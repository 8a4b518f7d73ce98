# SPDX-License-Identifier: MIT
"""Tiles of more than two axes that are not of extent 1: all axes but the last are the rows of what threads hold.

Rows are the valid elements of these axes alone, one after the other (`values.merged`), so loops over slots, masks and
folds are those of tiles of two axes.  What needs a single axis takes the index along each from the row, and what makes
a row of something else goes through shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Const, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.semantic.matrix import product_dtype
from pto_jit.slotted import replace
from pto_jit.targets.cuda.kernels import SharedTile
from pto_jit.targets.cuda.layouts import LayoutWriter, Where, within
from pto_jit.targets.cuda.moves import HOLE
from pto_jit.targets.cuda.places import NO_INDEX
from pto_jit.targets.cuda.shapes import is_high, kept_axes, shape_of
from pto_jit.targets.cuda.values import UNIT, Axis, Tile, place_of, times
from pto_jit.targets.source.scalars import cast, register_type

_ZERO = Const(0, ScalarType(i64))
TOO_MANY = "scatter: {{0}} elements into {{1}} along axis {axis}"
DECLARED_CONTRACTED = "the contracted extents of a product are {0} and {1}"
CONTRACTED = "a product contracts {0} valid columns with {1} valid rows"


class HigherWriter(LayoutWriter):
    """Writes the operations on these, too."""

    # -- moves ----------------------------------------------------------------------------------------------------

    def _transpose(self, op: Op) -> None:
        order = op.attr("axes")
        if not is_high(op.args[0]) and not is_high(op.results[0]):
            super()._transpose(op)
            return
        tile, axes = self._all_axes(op.args[0])
        lead = len(axes) - len(tile.axes)
        which = [int(k) - lead if int(k) >= lead else None for k in order]  # type: ignore[union-attr, arg-type]
        laid = self.laid(tile, [axes[int(k)] for k in order], which)  # type: ignore[union-attr, arg-type]
        self.put(op.results[0], laid, stable=self.stable(op.args))

    def _reshape(self, op: Op) -> None:
        kept = kept_axes(self.func.body, op)
        if kept is None or not (is_high(op.args[0]) or is_high(op.results[0])):
            super()._reshape(op)
            return
        tile, axes = self._all_axes(op.args[0])
        for k, axis in enumerate(axes):
            if axis.unit and not axis.full and k not in kept:
                self.check(f"{axis.valid} == 1", "BoundsError", HOLE.format(what="reshape", axis=k), op.loc,
                           axis.valid, "1")  # fmt: skip
        lead = len(axes) - len(tile.axes)
        which = [None if k is None else k - lead for k in kept]
        laid = self.laid(tile, [UNIT if k is None else axes[k] for k in kept], which)
        self.put(op.results[0], laid, stable=self.stable(op.args))

    def _broadcast_to(self, op: Op) -> None:
        if not is_high(op.results[0]):
            super()._broadcast_to(op)
            return
        tile, own = self._all_axes(op.args[0])
        wanted = [self.axis(e, fits=True) for e in op.args[1:]]  # those that are repeated
        own = [UNIT] * (len(wanted) - len(own)) + own
        axes = self.broadcast_axes(own, wanted, op)
        missing = len(own) - len(tile.axes)
        which = [None if a.unit else k - missing for k, a in enumerate(own)]
        _, rows, columns = self.placed(axes, op.loc)
        wide = [a if a.unit and k == len(own) - 1 else x for k, (a, x) in enumerate(zip(own, axes, strict=True))]
        laid = tile if tile.rows.unit else self.laid(tile, wide, which)

        def element(i: str, j: str) -> str:
            return laid.element("0" if laid.rows.unit else i, "0" if laid.columns.unit else j)

        out = Tile(tile.dtype, len(wanted), rows, columns, element, lead=self.lead_of(axes))
        self.put(op.results[0], out, stable=self.stable(op.args))

    def _flip(self, op: Op) -> None:
        if op.args[0].type.rank <= 2:  # type: ignore[union-attr]
            super()._flip(op)
            return
        tile, axes = self._all_axes(op.args[0])
        at = int(op.attr("axis")) - (len(axes) - len(tile.axes))  # type: ignore[call-overload]
        if at < 0 or tile.axes[at].unit:
            self.put(op.results[0], tile, stable=self.stable(op.args))
            return

        def where(indices: list[str]) -> list[str]:
            return [f"({tile.axes[at].valid} - 1 - {i})" if k == at else i for k, i in enumerate(indices)]

        self.put(op.results[0], self._moved(tile, tile, where))

    def _tile_slice(self, op: Op) -> None:
        if not is_high(op.args[0]):
            super()._tile_slice(op)
            return
        tile, axes = self._all_axes(op.args[0])
        rank, lead, drop = len(axes), len(axes) - len(tile.axes), op.attr("drop") or ()
        starts, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        parts: list[Axis] = []
        for k, (axis, start, extent) in enumerate(zip(axes, starts, extents, strict=True)):
            parts.append(self._part(op, axis, k, start, extent))
            if k in drop and not axis.full:  # type: ignore[operator]
                self.check_index(op, start, axis, k)
        kept = [k for k in range(rank) if k not in drop]  # type: ignore[operator]
        out = self._tile_of([parts[k] for k in kept], tile, op)
        shown = kept[len(kept) - len(out.axes) :]

        def where(indices: list[str]) -> list[str]:
            given = dict(zip(shown, indices, strict=True))
            found = [_sum(given.get(k, "0"), self.scalar(starts[k])) for k in range(lead, rank)]
            return [within(f, axis) if k in drop and not axis.full else f  # type: ignore[operator]
                    for k, (f, axis) in enumerate(zip(found, axes[lead:], strict=True), lead)]  # fmt: skip

        self.put(op.results[0], self._moved(tile, out, where))

    def _concat(self, op: Op) -> None:
        if not is_high(op.results[0]):
            super()._concat(op)
            return
        pairs = [self._all_axes(a) for a in op.args]
        tiles, all_axes = [t for t, _ in pairs], [a for _, a in pairs]
        at = int(op.attr("axis"))  # type: ignore[call-overload]
        for axes in all_axes[:-1]:
            if not axes[at].full:
                self.check(f"{axes[at].valid} == {axes[at].declared}", "BoundsError",
                           HOLE.format(what="concat", axis=at), op.loc, axes[at].valid, axes[at].declared)  # fmt: skip
        starts = [" + ".join(axes[at].declared for axes in all_axes[:k]) or "0" for k in range(len(tiles) + 1)]
        joined = [self._end_to_end(op, list(parts)) if k == at else self._side_by_side(parts, op)
                  for k, parts in enumerate(zip(*all_axes, strict=True))]  # fmt: skip
        out = self._tile_of(joined, tiles[0], op)
        tiles = [self._cut(t, [own[k] if k == at else axis for k, axis in enumerate(joined)], own)
                 for t, own in pairs]  # fmt: skip

        def to(start: str, tile: Tile) -> Where:
            lead = len(out.axes) - len(tile.axes)  # what the result shows of leading axes of extent 1
            here = at - (len(joined) - len(out.axes))
            return lambda indices: [_sum(i, start) if k == here else i
                                    for k, i in enumerate(["0"] * lead + indices)]  # fmt: skip

        where = [to(start, tile) for start, tile in zip(starts, tiles, strict=False)]
        self.put(op.results[0], self._laid_down(tiles, out, where))

    def _cut(self, tile: Tile, axes: Sequence[Axis], own: Sequence[Axis]) -> Tile:
        """A tile as it is joined to others, whose extents a generated one takes; own: its axes."""
        wider = any(mine.fits and not mine.unit and mine.valid != axis.valid
                    for mine, axis in zip(own, axes, strict=True))  # fmt: skip
        return self._as(tile, axes, own) if wider else tile

    def _end_to_end(self, op: Op, parts: Sequence[Axis]) -> Axis:
        """The axis that several become, one after the other."""
        extents = shape_of(self.func.body, op.results[0])
        assert extents is not None
        axis = self.axis(extents[int(op.attr("axis"))], fits=all(p.fits for p in parts))  # type: ignore[call-overload]
        if all(p.full for p in parts):
            return axis
        return replace(axis, valid=f"({' + '.join([*(p.declared for p in parts[:-1]), parts[-1].valid])})")

    def _stack(self, op: Op) -> None:
        if op.results[0].type.rank <= 2:  # type: ignore[union-attr]
            super()._stack(op)
            return
        pairs = [self._all_axes(a) for a in op.args]
        tiles, at = [t for t, _ in pairs], int(op.attr("axis"))  # type: ignore[call-overload]
        joined = [self._side_by_side(list(axes), op) for axes in zip(*(a for _, a in pairs), strict=True)]
        tiles = [self._cut(tile, joined, own) for tile, own in pairs]
        fits = all(a.fits or a.unit for _, axes in pairs for a in axes)
        joined.insert(at, self.axis(Const(len(tiles), ScalarType(i64)), fits=fits))
        out = self._tile_of(joined, tiles[0], op)

        def to(number: int, tile: Tile) -> Where:
            own = len(joined) - 1 - len(tile.axes)  # leading axes of extent 1 that the tile does not show

            def where(indices: list[str]) -> list[str]:
                every = ["0"] * own + indices
                return [*every[:at], str(number), *every[at:]][len(joined) - len(out.axes) :]

            return where

        self.put(op.results[0], self._laid_down(tiles, out, [to(k, t) for k, t in enumerate(tiles)]))

    # -- indirect access ------------------------------------------------------------------------------------------

    def _gather(self, op: Op) -> None:
        if op.args[0].type.rank <= 2:  # type: ignore[union-attr]
            super()._gather(op)
            return
        (source, axes), (index, own) = self._all_axes(op.args[0]), self._all_axes(op.args[1])
        at = int(op.attr("axis"))  # type: ignore[call-overload]
        joined = [i if k == at else self._joined([a, i], op) for k, (a, i) in enumerate(zip(axes, own, strict=True))]
        out = self._tile_of(joined, source, op)
        index = self.materialised(self._as(index, joined, own))
        text = index.element("0" if index.rows.unit else "i", "0" if index.columns.unit else "j")
        found = self._index(text, axes[at].valid, NO_INDEX.format(what="gather"), op)

        def where(indices: list[str]) -> list[str]:
            every = ["0"] * (len(joined) - len(out.axes)) + indices
            every[at] = found
            return ["0" if a.unit else i for a, i in zip(axes, every, strict=True)][len(axes) - len(source.axes) :]

        looked_at = found if axes[at].unit else ""  # which says nothing of the place
        self.put(op.results[0], self._moved(source, out, where, looked_at=looked_at))

    def _extract(self, op: Op) -> None:
        if not is_high(op.args[0]):
            super()._extract(op)
            return
        tile, axes = self._all_axes(op.args[0])
        found = [self._found_index(op, axis, k, op.args[1 + k]) for k, axis in enumerate(axes)]
        shared = self._in_memory(tile)
        element = shared(*tile.place(found[len(axes) - len(tile.axes) :]))
        self._define_element(op.results[0], element, tile, axes)

    def _take(self, op: Op) -> None:
        tensor, index = op.args[0], op.args[1]
        assert isinstance(tensor.type, TensorType) and isinstance(index.type, TileType)
        part = any(o != _ZERO for o in op.args[2:])
        # An index along one of its axes, with an element along the others, stands where its result does.
        one_way = tensor.type.rank == 1 or (
            sum(n != 1 for n in index.type.shape) <= 1 and all(a.full or not a.unit for a in self._all_axes(index)[1])
        )
        if tensor.type.rank > 2 or part or not one_way or is_high(op.results[0]) or is_high(index):
            self._take_elements(op)
        else:
            super()._take(op)

    def _take_elements(self, op: Op) -> None:
        """Elements of a tensor, each at an index that is looked up in shared memory."""
        tensor, result = op.args[0], op.results[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        at, rank, name = int(op.attr("axis")), tensor.type.rank, self.name(tensor.name)  # type: ignore[call-overload]
        index, index_axes = self._all_axes(op.args[1])
        offsets = op.args[2:] or (_ZERO,) * rank
        declared = shape_of(self.func.body, result)
        assert declared is not None

        def along(k: int, extent: Operand) -> Axis:
            if at <= k < at + len(index_axes):
                return index_axes[k - at]
            mine = k if k < at else k - len(index_axes) + 1
            return self.axis(extent, self._clipped(op, tensor, mine, offsets[mine], extent))

        axes = [along(k, extent) for k, extent in enumerate(declared)]
        out = replace(self._tile_of(axes, index, op), dtype=result.type.dtype)  # type: ignore[union-attr]
        shared = self._in_memory(index)

        def element(i: str, j: str, row: str, column: str) -> str:
            every = ["0"] * (len(axes) - len(out.axes)) + out.indices(row, column)
            mine = every[at : at + len(index_axes)][len(index_axes) - len(index.axes) :]
            there = index.place(["0" if a.unit else i for a, i in zip(index.axes, mine, strict=True)])
            extent = f"{name}.shape[{at}]"
            if offsets[at] != _ZERO:
                extent = f"({extent} - {self.scalar(offsets[at])})"
            found = self._index(shared(*there), extent, NO_INDEX.format(what="x[index]"), op)
            indices = [*every[:at], found, *every[at + len(index_axes) :]]
            there = [_sum(x, self.scalar(o)) for x, o in zip(indices, offsets, strict=True)]
            places = " + ".join(f"{x} * {name}.stride[{k}]" for k, x in enumerate(there) if x != "0")
            return f"pto::from_memory({name}.data[{places}])"

        for k, offset in enumerate(offsets):
            self.natural(offset, k, op.loc)
        self.reads_memory(tensor)
        self.put(result, self._found(self.names.fresh("taken"), out, element))

    def _put(self, op: Op) -> None:
        """Of elements with one index in a line the last stays, which is found by its entry in a table of them all."""
        tensor, at = op.args[2], int(op.attr("axis"))  # type: ignore[call-overload]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        rank, name = tensor.type.rank, self.name(tensor.name)
        (value, index), rows, columns, lead = self.together([self._lying(a) for a in op.args[:2]], op)
        value = replace(self.materialised(value), rows=rows, columns=columns, lead=lead)
        axes = value.hidden(rank - len(value.axes)) + value.axes
        indices = ["0"] * (rank - len(value.axes)) + value.indices("row", "column")
        for k, axis in enumerate(axes):
            if k != at and not (axis.unit and axis.full):
                self.check(f"{axis.valid} <= {name}.shape[{k}]", "LaunchError", TOO_MANY.format(axis=k), op.loc,
                           axis.valid, f"{name}.shape[{k}]")  # fmt: skip
        shared = self._in_memory(index)
        owners = self.names.fresh("owners")
        size = times(["2", rows.capacity, columns.capacity])
        self.shared.append(SharedTile(owners, "int32_t", 4, ("1", ""), "1", size, "1"))
        found = self._index("index", f"{name}.shape[{at}]", NO_INDEX.format(what="scatter"), op)
        others = times([]) if rank == 1 else place_of([a for k, a in enumerate(axes) if k != at],
                                                      [i for k, i in enumerate(indices) if k != at])  # fmt: skip
        to = " + ".join(f"{i if k != at else found} * {name}.stride[{k}]" for k, i in enumerate(indices)
                        if i != "0" or k == at)  # fmt: skip
        self.writes_memory(tensor)
        self.text.line(
            f"pto::scatter_last<{self._access(value)}, {size}>({name}.data, {value.array}, {value.there(rows.valid)}, "
            f"{columns.valid}, {owners}, "
            f"[&](int row, int column) {{ (void)row; (void)column; return int64_t({shared('row', 'column')}); }}, "
            f"[&](int row, int column) {{ (void)row; (void)column; return {others}; }}, "
            f"[&](int64_t index, int row, int column) -> int64_t {{ (void)row; (void)column; return {to}; }});"
        )

    # -- products -------------------------------------------------------------------------------------------------

    def multiply_batches(self, op: Op) -> None:
        """Products of matrices that lie in shared memory, each element of the result by the thread that holds it."""
        (left, left_axes), (right, right_axes) = self._all_axes(op.args[0]), self._all_axes(op.args[1])
        rank = op.results[0].type.rank  # type: ignore[union-attr]
        left_axes, right_axes = ([UNIT] * (rank - len(a)) + a for a in (left_axes, right_axes))
        self._check_contraction(op, left_axes[-1], right_axes[-2])
        lead = [self._joined([a, b], op) for a, b in zip(left_axes[:-2], right_axes[:-2], strict=True)]
        axes = [*lead, left_axes[-2], right_axes[-1]]
        kind = product_dtype(op.args[0].type.dtype)  # type: ignore[union-attr]
        out = replace(self._tile_of(axes, left, op), dtype=kind)
        mine, other = self._in_memory(left, alone=True), self._in_memory(right, alone=True)
        typ, depth = register_type(kind), left_axes[-1].valid
        if depth != right_axes[-2].valid:  # unequal ones have failed, and nothing outside is read
            depth = f"pto::smaller({depth}, {right_axes[-2].valid})"

        def at(i: str, j: str, row: str, column: str) -> str:
            every = ["0"] * (rank - len(out.axes)) + out.indices(row, column)
            first, second = (
                tile.place(["0" if a.unit else x for a, x in zip(own, indices, strict=True)][rank - len(tile.axes) :])
                for tile, own, indices in ((left, left_axes, [*every[:-1], "k"]),
                                           (right, right_axes, [*every[:-2], "k", every[-1]]))
            )  # fmt: skip
            return (f"pto::sum_of<{typ}>({depth}, [&](int k) {{ "
                    f"return {typ}({mine(*first)}) * {typ}({other(*second)}); }})")  # fmt: skip

        product = self._found(self.names.fresh("product"), out, at)
        result = op.results[0]
        kept = result.type.dtype  # type: ignore[union-attr]
        if len(op.args) > 2:
            (product, start), rows, columns, lead = self.together([product, self.tile(op.args[2])], op)
            product = replace(product, rows=rows, columns=columns, array=None, lead=lead,
                              element=lambda i, j, p=product: f"{p.element(i, j)} + {_at(start, i, j)}")  # fmt: skip
        self.put(result, replace(product, dtype=kept, array=None, element=lambda i, j, p=product: cast(
            p.element(i, j), kind, kept)))  # fmt: skip

    def _check_contraction(self, op: Op, depth: Axis, inner: Axis) -> None:
        """What is contracted of both operands has one extent."""
        if depth.declared != inner.declared and not (depth.declared.isdigit() and inner.declared.isdigit()):
            self.check(f"{depth.declared} == {inner.declared}", "LaunchError", DECLARED_CONTRACTED, op.loc,
                       depth.declared, inner.declared)  # fmt: skip
        if depth.valid != inner.valid and not (depth.fits or inner.fits):
            self.check(f"{depth.valid} == {inner.valid}", "LaunchError", CONTRACTED, op.loc, depth.valid, inner.valid)


def _at(tile: Tile, i: str, j: str) -> str:
    return tile.element("0" if tile.rows.unit else i, "0" if tile.columns.unit else j)


def _sum(a: str, b: str) -> str:
    return b if a == "0" else a if b == "0" else f"({a} + {b})"
