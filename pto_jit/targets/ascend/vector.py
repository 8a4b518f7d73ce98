# SPDX-License-Identifier: MIT
"""Kernels of the vector core: reductions, and what is done to the shape of a tile.

Elementwise operations are in `elementwise`, memory in `tiles`.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import f32, i32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.names import source_name
from pto_jit.lower.wholes.lines import STORES
from pto_jit.slotted import replace
from pto_jit.targets.ascend import (
    applied,
    few,
    folds,
    gathers,
    histograms,
    indirect,
    moves,
    randoms,
    scans,
    searches,
    sorts,
)
from pto_jit.targets.ascend.form import Require
from pto_jit.targets.ascend.machine import padded
from pto_jit.targets.ascend.refusals import many_axes, unsupported
from pto_jit.targets.ascend.scalars import needs_vector_core
from pto_jit.targets.ascend.sizes import product, text, total
from pto_jit.targets.ascend.transfers import TransferWriter
from pto_jit.targets.ascend.values import Size, Span, Value, lying, physical, row_axis, span_of
from pto_jit.targets.cuda.shapes import shape_of

_INSTEAD = {
    "flip": "load rows or elements one at a time, in a loop from the last one",
}  # fmt: skip
"""What to do where there is no such operation."""
_OF_ROWS = frozenset("load full arange reshape broadcast_to valid extent".split()) | set(STORES)
"""Operations that take tiles whose rows lie along another axis than the last but one, which `unit_axes` left."""


def _is_between(operand: Operand) -> bool:
    """Whether the rows of a tile lie along another axis than the last but one."""
    typ = operand.type
    return isinstance(typ, TileType) and typ.rank > 2 and row_axis(typ.shape) != typ.rank - 2


class VectorWriter(TransferWriter):
    """Writes a kernel without matrix products."""

    def tile_operation(self, op: Op) -> None:
        for r in op.results:
            if isinstance(r.type, TileType) and r.type.rank > 2 and row_axis(r.type.shape) is None:
                raise many_axes(r.type.rank, op.loc)
        if op.op not in _OF_ROWS and not is_elementwise(op):
            between = next((a for a in op.args if _is_between(a)), None)
            if between is not None:
                raise many_axes(between.type.rank, op.loc)  # type: ignore[union-attr]
        if is_elementwise(op):
            if op.op in ("rand_at", "randn_at") and isinstance(self.value(op.args[1]), Value):
                randoms.write_at(self, op)
                return
            for operand in op.args:
                if isinstance(self.value(operand), Value):
                    self.elementwise.operation(op)
                    return
            self.spread(op)
            return
        match op.op:
            case "load":
                self.load(op)
            case "store" | "atomic_add" | "atomic_max" | "atomic_min":
                self.store(op)
            case "full":
                self.full(op)
            case "arange":
                self.arange(op)
            case "dot":
                few.write_product(self, op)
            case "transpose" if op.results[0].name in self.turned:
                self.alias(op)
            case "concat":
                moves.write_concat(self, op)
            case "tile_slice":
                moves.write_slice(self, op)
            case "reshape" | "broadcast_to" | "transpose":
                self.reshape(op)
            case "valid" | "extent":
                self.measure(op)
            case "setelem":
                self.set_element(op)
            case "extract":
                self.extract(op)
            case _ if is_reduction(op) and op.op in ("sum", "max", "min", "prod"):
                self.reduce(op)
            case "argmax" | "argmin":
                searches.write_index(self, op)
            case "any" | "all":
                searches.write_truth(self, op)
            case "cumsum" | "cumprod" | "assoc_scan":
                scans.write_scan(self, op)
            case "map":
                applied.write_map(self, op)
            case "fold":
                folds.write_fold(self, op)
            case "sort" | "argsort" | "topk":
                sorts.write_order(self, op)
            case "rand" | "randn":
                randoms.write_random(self, op)
            case "take":
                indirect.write_take(self, op)
            case "put":
                indirect.write_put(self, op)
            case "histogram":
                histograms.write_histogram(self, op)
            case "gather":
                gathers.write_gather(self, op)
            case _:
                hint = _INSTEAD.get(op.op, "use the operations in docs/ascend.md, or target=\"cpu\"")
                raise unsupported(f"`{op.op}` of tiles", op.loc, hint)

    def spread(self, op: Op) -> None:
        """A number that the scalar unit has, as a tile of one element: what a loop goes on with on the vector core."""
        var = op.results[0]
        dtype = var.type.dtype  # type: ignore[union-attr]
        if needs_vector_core(op):
            self._function_of_numbers(op)
            return
        if dtype.kind == "b" and var.name not in self.facts.mutable:
            self.scalars.operation(op)
            return
        expression = self.scalars.computed(op)
        if dtype.kind == "b":
            name = source_name(var.name)
            raise unsupported(f"the truth value `{name}`, made of a tile in one place and not in another",
                              op.loc, "use a number")  # fmt: skip
        out = self.destination(var)(dtype, "one", (1, 1), (1, 1))
        self.fill(out, expression, op.loc)

    def _function_of_numbers(self, op: Op) -> None:
        """Of a number that is written into a tile of one element."""
        number = op.args[0]
        typ = number.type
        assert isinstance(typ, ScalarType)
        tile = self.temp(typ.dtype, "one", (1, 1), (1, 1))
        self.fill(tile, self.number(number), op.loc)
        given = Var(self.names.fresh("number"), typ)
        self.hold(given, tile)
        self.elementwise.operation(replace(op, args=(given, *op.args[1:])))

    # -- shape ----------------------------------------------------------------------------------------------------

    def reshape(self, op: Op) -> None:
        source = self.value(op.args[0])
        assert isinstance(source, Value)
        typ, old = op.results[0].type, op.args[0].type
        assert isinstance(typ, TileType) and isinstance(old, TileType)
        if op.op == "broadcast_to":
            span, capacity, grown = self.shape(op.args[1:], typ, op.loc)
            long = (source.span in ("column", "full"), source.span in ("row", "full"))
            valid = (source.valid[0] if long[0] else grown[0], source.valid[1] if long[1] else grown[1])
            has = (span in ("column", "full"), span in ("row", "full"))
            free = tuple(source.free[k] if long[k] else has[k] and isinstance(grown[k], int) for k in (0, 1))
            target = self.destination(op.results[0])
            self.elementwise.broadcast(source, span, capacity, valid, (free[0], free[1]), target, op.loc)
            return
        span = self._span_of(typ)
        lines = source.span != "full" and span != "full"
        if lines:
            self._turned(op, source, span)
            return
        if op.op == "reshape" and source.span == span and self._keeps_axes(op, old, typ):
            self._alias(op, source, span, source.capacity, source.valid, source.free)
            return
        if op.op == "transpose" and source.span == "full" and source.dtype.bytes in (2, 4):
            self._transpose(op, source)
            return
        if op.op == "reshape":
            moves.write_reshape(self, op)
            return
        raise unsupported("a transpose that moves elements", op.loc, "only axes of extent 1 can come and go")

    def _keeps_axes(self, op: Op, old: TileType, new: TileType) -> bool:
        """Whether a reshape only adds and removes axes of extent 1."""
        if [e for e in old.shape if e != 1] != [e for e in new.shape if e != 1]:
            return False
        if unit_reshape(op) is not None:
            return True
        assert isinstance(op.args[0], Var)
        declared = shape_of(self.func.body, op.args[0])  # of several run-time extents
        return declared is not None and [e for e, n in zip(declared, old.shape, strict=True) if n != 1] == [
            e for e, n in zip(op.args[1:], new.shape, strict=True) if n != 1
        ]

    def alias(self, op: Op) -> None:
        """A transposed tile that products read as it lies."""
        source = self.value(op.args[0])
        assert isinstance(source, Value)
        if source.given:  # which may be assigned again before
            source = self.elementwise.unary("TMOV", source, self.temp, op.loc)
        self.hold(op.results[0], source)

    def _transpose(self, op: Op, source: Value) -> None:
        """All of a tile, or of one of whole blocks of 16 rows and columns that it is the beginning of."""
        rows, columns = source.capacity
        high, wide = (padded(n, 1, 16) for n in source.capacity)
        whole = source
        if physical(source.dtype, "full", source.capacity) != (high, wide):
            whole = self.temp(source.dtype, "full", (high, wide), source.valid)
            self.elementwise.laid_over(whole, source, op.loc)
        to = self.destination(op.results[0])
        valid = source.valid[1], source.valid[0]
        exact = physical(source.dtype, "full", (columns, rows)) == (wide, high)
        shape = ("full", (columns, rows) if exact else (wide, high), valid)
        out = to(source.dtype, *shape) if exact else self.temp(source.dtype, *shape)
        scratch = self.temp(source.dtype, "full", (wide, high), valid)
        self.emit("TTRANS", *(self.tile(v, valid=n, loc=op.loc) for v, n in (
            (out, (wide, high)), (whole, (high, wide)), (scratch, (wide, high)))), loc=op.loc)  # fmt: skip
        if not exact:
            self.elementwise.laid_over(to(source.dtype, "full", (columns, rows), valid), out, op.loc)

    def _span_of(self, typ: TileType) -> Span:
        if typ.rank == 1:
            return "row"
        row = row_axis(typ.shape)
        return span_of(typ.shape[-2 if row is None else row] or 0, typ.shape[-1] or 0)

    def _turned(self, op: Op, source: Value, span: Span) -> None:
        """A line of elements as another line: the same bytes."""
        flat = lying(source.span, source.capacity)[1]
        count, free = (source.valid[0], source.free[0]) if source.span in ("column", "one") else (
            source.valid[1], source.free[1])  # fmt: skip
        across = span in ("column", "one")
        tall = padded(flat, 4) if span == "column" and flat > 1 else flat  # as many rows as tiles have that it meets
        self._alias(op, source, span, (tall, 1) if across else (1, flat), (count, 1) if across else (1, count),
                    (free, False) if across else (False, free))  # fmt: skip

    def _alias(self, op: Op, source: Value, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size],
               free: tuple[bool, bool]) -> None:  # fmt: skip
        var = op.results[0]
        if var.name in self.facts.mutable or source.given:
            same = self.destination(var)(source.dtype, span, capacity, valid, free)
            shown = Value(source.name, source.dtype, span, capacity, valid, source.buffer)
            self.emit("TMOV", self.tile(same, loc=op.loc), self.tile(shown, loc=op.loc), loc=op.loc)
            return
        self.hold(var, Value(source.name, source.dtype, span, capacity, valid, source.buffer, free))

    def measure(self, op: Op) -> None:
        source = self.value(op.args[0])
        assert isinstance(source, Value) and isinstance(op.args[0].type, TileType)
        axis, rank = int(op.attr("axis")), op.args[0].type.rank  # type: ignore[arg-type]
        sizes = source.capacity if op.op == "extent" else source.valid
        size = sizes[1] if axis == rank - 1 else sizes[0] if axis == row_axis(op.args[0].type.shape) else 1
        if not self.visible(size):
            raise unsupported("a tile whose valid extents change in a loop, used after it", op.loc,
                              "give it constant extents")  # fmt: skip
        self.scalars.define(op.results[0], text(size), op.loc)

    def extract(self, op: Op) -> None:
        source = self.value(op.args[0])
        assert isinstance(source, Value)
        if source.is_mask:
            raise unsupported("an element of a tile of truth values", op.loc, "compare the numbers instead")
        tile = self.tile(source, loc=op.loc)
        at = [self.size(a) for a in op.args[1:]][-2:]
        rows, columns = (0, at[0]) if len(at) == 1 else (at[0], at[1])
        for index, valid in zip((rows, columns), source.valid, strict=True):
            if not isinstance(index, int) or (index > 0 and not isinstance(valid, int)):  # no tile is without elements
                self.nodes.append(Require(f"{text(index)} >= 0 && {text(index)} < {text(valid)}", op.loc))
        if source.span in ("column", "one"):
            rows, columns = 0, rows
        place = total(product(rows, tile.columns), columns)
        self.scalars.define(op.results[0], f"{tile.name}.GetValue({text(place)})", op.loc, reads=tile)

    # -- reductions -----------------------------------------------------------------------------------------------

    def reduce(self, op: Op) -> None:
        source = self.value(op.args[0])
        var = op.results[0]
        assert isinstance(source, Value) and isinstance(op.args[0].type, TileType)
        rank = op.args[0].type.rank
        axes = {a - rank for a in reduced_axes(op)}
        if source.dtype in (f32, i32):
            self.reduced(op.op, source, axes, rank, var, self.destination(var), op.loc)
            return
        if op.op in ("sum", "prod") and source.dtype.is_integer and source.dtype.bits < 32:  # of which the lower bits
            wide = self.elementwise.converted(source, i32, self.temp, op.loc)
            whole = self.reduced(op.op, wide, axes, rank, var, self.temp, op.loc)
            self.elementwise.converted(whole, source.dtype, self.destination(var), op.loc)
            return
        extreme = op.op in ("max", "min") and source.dtype.bits < 32 and not source.is_mask  # which f32 holds
        if source.dtype.kind != "f" and not extreme:
            raise unsupported(f"a reduction of {source.dtype}", op.loc, "convert it to i32 or f32")
        wide = self.elementwise.converted(source, f32, self.temp, op.loc)
        narrow = self.reduced(op.op, wide, axes, rank, var, self.temp, op.loc)
        self.elementwise.converted(narrow, source.dtype, self.destination(var), op.loc)

    def reduced(
        self, name: str, source: Value, axes: set[int], rank: int, var: Var | None, to: Any, loc: Loc
    ) -> Value:
        """The sum, product or an extreme along axes, counted from the last one.

        Rows first, as that leaves little for the second step.  A line is reduced along its elements.
        """
        both = {-1, -2} <= axes or (rank == 1 and -1 in axes)
        line = {"column": -2, "row": -1}.get(source.span)
        flat = axes.isdisjoint({-1, -2}) or (not both and line is not None and line not in axes)
        if flat or source.span == "one":  # only axes of extent 1 are reduced
            return self._as_result(source, var, to, source.span, loc)
        if source.span in ("row", "column"):
            return self._line(name, source, var, to, loc)
        if both:
            rows = self._rows(name, source, None, self.temp, loc)
            return self._line(name, rows, var, to, loc)
        if -1 in axes:
            return self._rows(name, source, var, to, loc)
        out = to(source.dtype, *self.result_shape(var, "row", (1, source.capacity[1]), (1, source.valid[1])))
        shown = Value(out.name, out.dtype, "row", (1, source.capacity[1]), (1, source.valid[1]), out.buffer)
        self.emit(f"TCOL{name.upper()}", self.tile(shown, loc=loc), self.tile(source, loc=loc), loc=loc)
        return out

    def _rows(self, name: str, source: Value, var: Var | None, to: Any, loc: Loc) -> Value:
        shape = self.result_shape(var, "column", (source.capacity[0], 1), (source.valid[0], 1))
        out = to(source.dtype, *shape)
        shown = Value(out.name, out.dtype, "column", (source.capacity[0], 1), (source.valid[0], 1), out.buffer)
        width = _scratch_columns(physical(source.dtype, source.span, source.capacity)[1])
        scratch = self.temp(source.dtype, source.span, (source.capacity[0], width), (source.valid[0], width))
        self.emit(f"TROW{name.upper()}", self.tile(shown, "column", loc=loc), self.tile(source, loc=loc),
                  self.tile(scratch, loc=loc), loc=loc)  # fmt: skip
        return out

    def _line(self, name: str, source: Value, var: Var | None, to: Any, loc: Loc) -> Value:
        """All elements of a line as one."""
        count = source.valid[0] if source.span == "column" else source.valid[1]
        flat = Value(source.name, source.dtype, "row", (1, lying(source.span, source.capacity)[1]), (1, count),
                     source.buffer)  # fmt: skip
        out = to(source.dtype, *self.result_shape(var, "one", (1, 1), (1, 1)))
        shown = Value(out.name, out.dtype, "one", (1, 1), (1, 1), out.buffer)
        width = _scratch_columns(physical(flat.dtype, "row", flat.capacity)[1])
        scratch = self.temp(flat.dtype, "row", (1, width), (1, width))
        self.emit(f"TROW{name.upper()}", self.tile(shown, loc=loc), self.tile(flat, loc=loc),
                  self.tile(scratch, loc=loc), loc=loc)  # fmt: skip
        return out

    def result_shape(self, var: Var | None, span: Span, capacity: tuple[int, int], valid: tuple[Size, Size]) -> Any:
        """A reduction that drops its axis leaves a line of one axis, which is a row."""
        typ = None if var is None else var.type
        if span == "column" and isinstance(typ, TileType) and (typ.rank == 1 or typ.shape[-1] != 1):
            return "row", (1, capacity[0]), (1, valid[0])
        return span, capacity, valid

    def _as_result(self, source: Value, var: Var | None, to: Any, span: Span, loc: Loc) -> Value:
        out = to(source.dtype, *self.result_shape(var, span, source.capacity, source.valid), source.free, (source,))
        if out.buffer is not source.buffer:
            self.emit("TMOV", self.tile(out, loc=loc), self.tile(source, loc=loc), loc=loc)
        return out


def _scratch_columns(columns: int) -> int:
    """Of the memory in which row reductions work: they fold pairs of 64 elements first."""
    return min(columns, 64 * max(1, columns // 128))
