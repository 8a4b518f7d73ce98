# SPDX-License-Identifier: MIT
"""Reductions of tiles: each thread folds the slots that it holds, then those meet that share a row or a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType
from pto_jit.ir.nodes import Op, Var
from pto_jit.ir.types import ScalarType
from pto_jit.lower.groups.axes import reduced_axes
from pto_jit.slotted import replace
from pto_jit.targets.cuda.access import AccessWriter
from pto_jit.targets.cuda.values import UNIT, Axis, Tile, in_array, sized
from pto_jit.targets.source.scalars import cast, register_type

_RULES = {"sum": "Sum", "prod": "Product", "max": "Maximum", "min": "Minimum"}


class ReductionWriter(AccessWriter):
    """Writes reductions, too; `fragments`: of tiles that lie as products make them."""

    fragments = False

    def _reduction(self, op: Op) -> None:
        source, result = self.tile(op.args[0]), op.results[0]
        axes, lead = self.own_axes(op, source), len(op.args[0].type.shape) - len(source.axes)  # type: ignore[union-attr]
        over = reduced_axes(op)
        down = len(axes) - 1 if len(source.axes) > 1 else lead + int(source.standing)  # so many of them are rows
        over_rows = any(lead <= a < down and not (source.rows.parts and axes[a].unit) for a in over)
        over_columns = any(a >= down for a in over)
        dtype = result.type.dtype  # type: ignore[union-attr]
        index = op.op in ("argmax", "argmin")
        typ, rule = self._rule(op, source.dtype, dtype)
        kept = replace(self.reduced(op, source, over), dtype=dtype)
        rows, columns = kept.rows, kept.columns
        some = [f"{axes[a].valid} > 0" for a in over if axes[a].unit and not axes[a].full]
        scalar = isinstance(result.type, ScalarType)
        again = result.name in self.declared
        name = self.names.fresh("best") if index else self.names.fresh("folded") if again else self.name(result.name)
        nr, nc = self.slots(kept)
        loose = "" if nr == nc == "1" else f"[{nr}][{nc}]"
        if scalar:
            self.text.line(f"{typ} {name};")
        else:
            self.text.line(f"{typ} {name}{loose or '[1][1]'};")

        def one(i: str, j: str) -> str:
            return name if scalar else in_array(name, rows.unit, columns.unit)(i, j)

        self._fold_slots(source, rule, typ, some, over_rows, over_columns, one, op, index)
        if index:
            self._take_index(op, result, kept, one, scalar)
            return
        if scalar:
            if again:
                self.define(result, name)
            return
        out = replace(kept, element=in_array(name, rows.unit, columns.unit), array=name)
        out = out if op.attr("keepdims") else self.without_axes(out, op, over)
        if again:
            self.put(result, out)
        else:
            self.tiles[result.name] = out

    def _take_index(self, op: Op, result: Var, kept: Tile, one: Any, scalar: bool) -> None:
        typ = register_type(kept.dtype)
        if scalar:
            self.define(result, f"{typ}(pto::place_of({one('0', '0')}))")
            return
        place = replace(kept, element=lambda i, j: f"{typ}(pto::place_of({one(i, j)}))")
        self.put(result, place if op.attr("keepdims") else self.without_axes(place, op, reduced_axes(op)))

    def own_axes(self, op: Op, tile: Tile) -> tuple[Axis, ...]:
        """The axes of a tile that has as many as the operand of an operation."""
        return tile.hidden(op.args[0].type.rank - len(tile.axes)) + tile.axes  # type: ignore[union-attr]

    def reduced(self, op: Op, source: Tile, over: Sequence[int]) -> Tile:
        """What a tile becomes, without elements, that has one along some axes, counted as the program does."""
        axes = [UNIT if k in over else sized(axis) for k, axis in enumerate(self.own_axes(op, source))]
        _, rows, columns = self.placed(axes, op.loc, standing=source.standing)
        return replace(source, rows=rows, columns=columns, array=None, lead=self.lead_of(axes))

    def without_axes(self, tile: Tile, op: Op, over: Sequence[int]) -> Tile:
        """What an operation has reduced to one element along some axes, counted as the program does, without these."""
        own = self.own_axes(op, tile)
        kept = [k for k in range(len(own)) if k not in over]
        axes = [own[k] for k in kept]
        if tile.rows.parts:
            lead = len(own) - len(tile.axes)
            return self.laid(tile, axes, [k - lead if k >= lead else None for k in kept])
        standing = len(kept) == 1 and not tile.rows.unit
        if len(own) - 1 in over and not tile.rows.unit and not standing:  # the rows are the last axis now
            tile = self.turned(tile)
        rank, rows, columns = self.placed(axes, op.loc, standing=standing)
        return replace(tile, rank=rank, rows=rows, columns=columns, standing=standing, lead=self.lead_of(axes))

    def laid(self, tile: Tile, axes: Sequence[Axis], which: Sequence[int | None]) -> Tile:
        """A tile with such axes, each of which is one of `tile`, or (None) one along which all elements are equal."""
        raise NotImplementedError

    def _rule(self, op: Op, source: DType, dtype: DType) -> tuple[str, str]:
        if op.op in ("argmax", "argmin"):
            typ = register_type(source)
            return f"pto::Indexed<{typ}>", f"pto::FirstExtreme<{typ}, {'true' if op.op == 'argmax' else 'false'}>"
        if op.op in ("any", "all") or dtype.kind == "b":
            return "bool", {"any": "pto::Any", "all": "pto::All", "max": "pto::Any", "min": "pto::All",
                            "sum": "pto::Any", "prod": "pto::All"}[op.op]  # fmt: skip
        typ = register_type(dtype)
        return typ, f"pto::{_RULES[op.op]}<{typ}>"

    def _fold_slots(
        self, source: Tile, rule: str, typ: str, some: Sequence[str], over_rows: bool, over_columns: bool, one: Any,
        op: Op, index: bool,
    ) -> None:  # fmt: skip
        """Fold each thread's slots, then combine over the threads that share a row, a column, or everything.

        some: conditions for axes of extent 1 among those that are folded to have their element.
        """
        nr, nc = self.slots(source)
        masks = list(some)
        if over_columns and not source.columns.unit:
            masks.append(f"Spread::column(ci) < {source.columns.valid}")
        if over_rows and not source.rows.unit:
            masks.append(f"Spread::row(ri) < {source.rows.valid}")
        outer = [(v, n) for v, n, gone in (("ri", nr, over_rows), ("ci", nc, over_columns)) if n != "1" and not gone]
        inner = [(v, n) for v, n, gone in (("ri", nr, over_rows), ("ci", nc, over_columns)) if n != "1" and gone]
        i, j = "0" if nr == "1" else "ri", "0" if nc == "1" else "ci"
        element = source.element(i, j)
        dtype = op.results[0].type.dtype  # type: ignore[union-attr]
        if index:
            column = "0" if source.columns.unit else f"Spread::column({j})"
            row = "0" if source.rows.unit else f"Spread::row({i})"
            both = column if source.rows.unit else source.declared_place(row, column)
            at = {(True, False): row, (False, True): column, (True, True): both}.get((over_rows, over_columns), "0")
            element = f"{typ}{{{element}, {at}}}"
        elif op.op in ("any", "all") or dtype.kind == "b":
            element = cast(element, source.dtype, dtype) if source.dtype.kind != "b" else element
        else:
            element = cast(element, source.dtype, dtype) if source.dtype.kind != "f" else element
        target = one("0" if over_rows or source.rows.unit else i, "0" if over_columns or source.columns.unit else j)
        crosses = [f"{target} = Spread::reduce_{what}<{rule}>({target});"
                   for what, gone, axis in (("columns", over_columns, source.columns), ("rows", over_rows, source.rows))
                   if gone and not axis.unit]  # fmt: skip

        filled = [f"Spread::fills_{what}({axis.valid}, {slots})"
                  for what, gone, axis, slots in (("columns", over_columns, source.columns, nc),
                                                  ("rows", over_rows, source.rows, nr)) if gone]  # fmt: skip
        if (over_columns and source.columns.unit) or (over_rows and source.rows.unit) or some:
            filled = []
        if over_rows and not self.fragments:
            filled = []  # whether a row is valid is asked once for all of its columns, and loads wait for no branch

        fold = "next" if index else "combine"  # a thread meets its elements in their order

        def body() -> None:
            self.text.line(f"{target} = {rule}::identity();")
            if masks:  # a choice of values, not of statements: no thread leaves the others
                valid = f"{' && '.join(masks)} ? {element} : {rule}::identity()"
                each = [f"{target} = {rule}::{fold}({target}, {v});" for v in (element, valid)]
                self._fold_valid(filled, inner, *each)
            else:
                self._loops(inner, [f"{target} = {rule}::{fold}({target}, {element});"])
            for line in crosses:
                self.text.line(line)

        self._around(outer, body)

    def _fold_valid(self, filled: Sequence[str], loops: list[tuple[str, str]], whole: str, some: str) -> None:
        """Fold the valid slots: `some` looks at each; `whole` folds all, for tiles that are valid as a whole."""
        if not filled:
            self._loops(loops, [some])
            return
        with self.text.block(f"if ({' && '.join(filled)})"):
            self._loops(loops, [whole])
        with self.text.block("else"):
            self._loops(loops, [some])

    def _around(self, loops: list[tuple[str, str]], body: Any) -> None:
        if not loops:
            body()
            return
        (var, count), *rest = loops
        self.text.line("PTO_UNROLL")
        with self.text.block(f"for (int {var} = 0; {var} < {count}; ++{var})"):
            self._around(rest, body)
