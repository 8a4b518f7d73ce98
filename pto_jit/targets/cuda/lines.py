# SPDX-License-Identifier: MIT
"""Order and running combinations along the rows of tiles (`pto_lines.cuh`), and functions of the program.

A function that an operation is given becomes a function object in the kernel, which sees the kernel's numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.ir.nodes import Op, Operand, Var
from pto_jit.ir.types import ScalarType
from pto_jit.lower.wholes.lines import axis_along
from pto_jit.slotted import replace
from pto_jit.targets.cuda.moves import MoveWriter
from pto_jit.targets.cuda.rules import Rule
from pto_jit.targets.cuda.values import UNIT, Axis, Tile, in_array, sized
from pto_jit.targets.source.scalars import register_type

_RUNNING = {"cumsum": "Sum", "cumprod": "Product"}
FEW = 8
"""So many largest elements are looked for one after the other: more are found sooner by a sort."""
EMPTY = "reduce of an empty valid part without an initial value"


class LineWriter(MoveWriter):
    """Writes these, too."""

    def tile_operation(self, op: Op) -> None:
        if axis_along(op) is not None:
            self.headers.add("pto_lines")
        super().tile_operation(op)

    # -- order ----------------------------------------------------------------------------------------------------

    def _sort(self, op: Op) -> None:
        source, result = self._line_of(op.args[0]), op.results[0]
        if source.columns.unit:
            self.put(result, source, stable=self.stable(op.args))
            return
        values = self._array(result, source)
        self._in_order("sort_tile", op, values.array or "", source)
        self.put(result, values)

    def _argsort(self, op: Op) -> None:
        source, result = self._line_of(op.args[0]), op.results[0]
        places = replace(source, dtype=result.type.dtype, array=None)  # type: ignore[union-attr]
        if source.columns.unit:
            self.put(result, replace(places, element=lambda i, j: "0"))
            return
        places = self._array(result, places)
        self._in_order("sort_places", op, places.array or "", source)
        self.put(result, places)

    def _in_order(self, function: str, op: Op, into: str, source: Tile) -> None:
        descending = "true" if op.attr("descending") else "false"
        self.text.line(f"pto::{function}<Spread, {descending}>({into}, {source.array}, {source.columns.valid});")

    def _topk(self, op: Op) -> None:
        source = self._line_of(op.args[0])
        count = str(op.attr("k"))
        if source.columns.unit:
            places = replace(source, dtype=op.results[1].type.dtype, array=None, element=lambda i, j: "0")  # type: ignore
            self.put(op.results[0], source, stable=self.stable(op.args))
            self.put(op.results[1], places)
            return
        if not source.columns.declared.isdigit():
            self.check(f"{source.columns.declared} >= {count}", "LaunchError", f"topk: k = {count} of {{0}} elements",
                       op.loc, source.columns.declared, count)  # fmt: skip
        valid = count if source.columns.full and source.columns.declared.isdigit() else (
            f"pto::smaller({count}, {source.columns.valid})")  # fmt: skip
        columns = replace(UNIT, valid=valid if valid != "1" else "1") if count == "1" else replace(
            source.columns, capacity=count, declared=count, valid=valid, fits=False)  # fmt: skip
        kept = [replace(source, dtype=r.type.dtype, columns=columns, array=None) for r in op.results]  # type: ignore
        values, places = (self._array(r, t) for r, t in zip(op.results, kept, strict=True))
        if columns.unit:  # all threads hold it
            self._first_of_all(source, values, places)
        else:
            function = f"few_largest_of_tile<Spread, {count}>" if int(count) <= FEW else "largest_of_tile<Spread>"
            self.text.line(f"pto::{function}({values.array}, {places.array}, {source.array}, "
                           f"{source.columns.valid});")  # fmt: skip
        for result, tile in zip(op.results, (values, places), strict=True):
            self.put(result, tile)

    def _first_of_all(self, source: Tile, values: Tile, places: Tile) -> None:
        """The largest element of each row, which is not a question of order."""
        typ = register_type(source.dtype)
        rule, best = f"pto::FirstExtreme<{typ}, true>", self.names.fresh("best")
        nr, nc = self.slots(source)
        i = "0" if source.rows.unit else "ri"
        lines = [f"pto::Indexed<{typ}> {best} = {rule}::identity();", "PTO_UNROLL",
                 f"for (int ci = 0; ci < {nc}; ++ci) {{",
                 f"  const pto::Indexed<{typ}> here = {{{source.element(i, 'ci')}, Spread::column(ci)}};",
                 f"  if (here.index < {source.columns.valid}) {best} = {rule}::combine({best}, here);", "}",
                 f"{best} = Spread::reduce_columns<{rule}>({best});",
                 f"{values.array}[{i}][0] = {best}.value;",
                 f"{places.array}[{i}][0] = pto::place_of({best});"]  # fmt: skip

        def body() -> None:
            for line in lines:
                self.text.line(line)

        self._around([] if nr == "1" else [("ri", nr)], body)

    # -- running combinations -------------------------------------------------------------------------------------

    def _cumsum(self, op: Op) -> None:
        (source,), down = self._lines(op, op.args)
        result = op.results[0]
        if self._along(source, down).unit:
            self.put(result, source, stable=self.stable(op.args))
            return
        out = self._array(result, source)
        assert out.array is not None
        self.assign(out.array, source)
        self._scan(op, f"pto::{_RUNNING[op.op]}<{register_type(source.dtype)}>()", out.array, source, down)
        self.put(result, out)

    _cumprod = _cumsum

    def _assoc_scan(self, op: Op) -> None:
        sources, down = self._lines(op, op.args)
        if self._along(sources[0], down).unit:
            for result, source in zip(op.results, sources, strict=True):
                self.put(result, source, stable=self.stable(op.args))
            return
        rule = self._rule_by(op, op.args)
        state = self._stated(sources, rule)
        self._scan(op, rule.text, state, sources[0], down)
        held = in_array(state, sources[0].rows.unit, sources[0].columns.unit)
        for k, (result, source) in enumerate(zip(op.results, sources, strict=True)):
            self.put(result, replace(source, array=None, element=lambda i, j, k=k: rule.read(held(i, j), k)))

    def _scan(self, op: Op, rule: str, array: str, source: Tile, down: bool) -> None:
        function, reverse = "scan_columns" if down else "scan_rows", "true" if op.attr("reverse") else "false"
        self.text.line(f"pto::{function}<Spread, {reverse}>({rule}, {array}, {self._along(source, down).valid});")

    def _fold(self, op: Op) -> None:
        count = int(op.attr("n"))  # type: ignore[call-overload]
        sources, down = self._lines(op, op.args[:count])
        source = sources[0]
        rule = self._rule_by(op, op.args[:count])
        state, folded = self._stated(sources, rule), self.names.fresh("folded")
        axis = self._along(source, down)
        along = axis_along(op)
        assert along is not None
        kept = self.reduced(op, source, (along,))
        rows, columns = kept.rows, kept.columns
        nr, nc = self.slots(kept)
        self.text.line(f"{rule.state} {folded}[{nr}][{nc}];")
        if down and not axis.unit:
            self.text.line(f"pto::scan_down<Spread, false>({rule.text}, {state}, {folded}[0], {axis.valid});")
        held = in_array(folded, rows.unit, columns.unit)

        def line(i: str, j: str) -> str:
            found = self._folded_line(source, rule, state, down, (i, j)) or held(i, j)
            if op.attr("init"):
                return f"{rule.text}.combine({rule.of([self.scalar(a) for a in op.args[count:]])}, {found})"
            return found

        if not op.attr("init") and not axis.full:
            others = (*kept.hidden(len(kept.lead)), rows, columns)
            some = [f"{axis.valid} > 0", *(f"{a.valid} == 0" for a in others if not a.full)]
            self.check(" || ".join(some), "BoundsError", EMPTY, op.loc, axis.valid, "0")
        if axis.unit or not down or op.attr("init"):
            self.each(kept, lambda i, j: [f"{held(i, j)} = {line(i, j)};"])
        for k, (result, tile) in enumerate(zip(op.results, sources, strict=True)):
            self._give_folded(op, result, replace(kept, dtype=tile.dtype), (along,),
                              lambda i, j, k=k: rule.read(held(i, j), k))  # fmt: skip

    def _folded_line(self, source: Tile, rule: Rule, state: str, down: bool, at: tuple[str, str]) -> str:
        """What a line comes to; "" for what was computed for all lines at once."""
        axis = self._along(source, down)
        if axis.unit:
            line = in_array(state, source.rows.unit, source.columns.unit)(*at)
            return line if axis.full else f"({axis.valid} > 0 ? {line} : {rule.text}.identity())"
        if down:
            return ""
        function = "fold_in_any_order" if rule.known else "fold_line"
        return f"pto::{function}<Spread>({rule.text}, {state}[{at[0]}], {axis.valid})"

    def _give_folded(
        self, op: Op, result: Var, kept: Tile, over: tuple[int], element: Callable[[str, str], str]
    ) -> None:
        if isinstance(result.type, ScalarType):
            self.define(result, element("0", "0"))
            return
        folded = replace(kept, element=element)
        self.put(result, folded if op.attr("keepdims") else self.without_axes(folded, op, over))

    # -- functions ------------------------------------------------------------------------------------------------

    def _map(self, op: Op) -> None:
        sources, rows, columns, lead = self.together([self.tile(a) for a in op.args], op)
        rank, standing = max(t.rank for t in sources), any(t.standing for t in sources)
        typ, fields = self.state_type([r.type.dtype for r in op.results])  # type: ignore[union-attr]
        types = [register_type(a.type.dtype) for a in op.args]  # type: ignore[union-attr]
        function = self.function_of(op.regions[0], types, typ, op.op, op.loc)

        def call(i: str, j: str) -> str:
            given = (t.element("0" if t.rows.unit else i, "0" if t.columns.unit else j) for t in sources)
            return f"{function}({', '.join(given)})"

        out = Tile(op.results[0].type.dtype, rank, rows, columns, call, standing=standing,  # type: ignore[union-attr]
                   lead=lead)
        if len(op.results) == 1:
            self.put(op.results[0], out, stable=self.stable(op.args))
            return
        held = self._held(out, typ, call)
        for result, field in zip(op.results, fields, strict=True):
            self.put(result, replace(out, dtype=result.type.dtype,  # type: ignore[union-attr]
                                     element=lambda i, j, f=field: f"{held(i, j)}{f}"))  # fmt: skip

    def _rule_by(self, op: Op, tiles: Sequence[Operand]) -> Rule:
        """The rule of an operation's function, which combines states of elements of tiles."""
        return self.rule_of(op.regions[0], [t.type.dtype for t in tiles], op.op, op.loc)  # type: ignore[union-attr]

    # -- arrays ---------------------------------------------------------------------------------------------------

    def _line_of(self, operand: Operand) -> Tile:
        """A tile in an array, its last axis along rows; what is made of it is not generated."""
        tile = self.tile(operand)
        tile = self.turned(tile) if tile.standing else self.materialised(tile)
        return replace(tile, rows=sized(tile.rows), columns=sized(tile.columns))

    def _lines(self, op: Op, operands: Sequence[Operand]) -> tuple[list[Tile], bool]:
        """The tiles that an operation runs along, and whether it runs down their columns; what is made of them is not
        generated."""
        tiles = [self.tile(o) for o in operands]
        if self.fragments or not all(t.standing for t in tiles):
            tiles = [self.turned(t) if t.standing else t for t in tiles]
        tiles, rows, columns, lead = self.together(tiles, op)
        axis, rank = axis_along(op), operands[0].type.rank  # type: ignore[union-attr]
        assert axis is not None
        down = tiles[0].standing or axis < rank - 1
        return [replace(t, rows=sized(rows), columns=sized(columns), lead=lead) for t in tiles], down

    def _along(self, tile: Tile, down: bool) -> Axis:
        return tile.rows if down else tile.columns

    def _stated(self, sources: Sequence[Tile], rule: Rule) -> str:
        """The name of an array of states, made of the elements of tiles."""
        name = self.names.fresh("state")
        nr, nc = self.slots(sources[0])
        self.text.line(f"{rule.state} {name}[{nr}][{nc}];")
        self.assign(name, replace(sources[0], element=lambda i, j: rule.of([t.element(i, j) for t in sources])))
        return name

    def _held(self, tile: Tile, typ: str, element: Callable[[str, str], str]) -> Callable[[str, str], str]:
        """An array of results of a function."""
        name = self.names.fresh("results")
        nr, nc = self.slots(tile)
        self.text.line(f"{typ} {name}[{nr}][{nc}];")
        self.assign(name, replace(tile, element=element))
        return in_array(name, tile.rows.unit, tile.columns.unit)

    def _array(self, var: Var, tile: Tile) -> Tile:
        """The tile with a new array for a variable, or for what is copied to one that is assigned again."""
        name = self.names.fresh(f"{self.name(var.name)}_new") if var.name in self.declared else self.name(var.name)
        nr, nc = self.slots(tile)
        self.text.line(f"{register_type(tile.dtype)} {name}[{nr}][{nc}];")
        return replace(tile, element=in_array(name, tile.rows.unit, tile.columns.unit), array=name)
