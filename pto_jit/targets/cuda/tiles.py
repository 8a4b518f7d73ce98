# SPDX-License-Identifier: MIT
"""Tile operations as loops over the slots that a thread holds.

Every tile is a register array of the threads, spread as `Spread` says.  An elementwise operation whose result is read
once is written where it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, If, Op, Operand, Var, While
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import uses
from pto_jit.lower.groups.axes import is_elementwise, is_reduction
from pto_jit.lower.names import source_name
from pto_jit.semantic.failures import UNIT as EMPTY
from pto_jit.slotted import replace
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.rules import RuleWriter
from pto_jit.targets.cuda.shapes import kept_axes, shape_of
from pto_jit.targets.cuda.units import UnitAxes
from pto_jit.targets.cuda.values import UNIT, Axis, Tile, in_array, joined_lead, joined_units, merged
from pto_jit.targets.source.scalars import register_type

EXTENTS = "tiles with {0} and {1} valid elements along one axis meet"
DECLARED = "tiles with the extents {0} and {1} along one axis meet"


class TileWriter(RuleWriter):
    """Writes what touches tiles; reductions and products are left to the classes made of this one."""

    tiles: dict[str, Tile]
    capacities: dict[str, Operand]
    """The macros that bound run-time extents, with the extent each is for."""
    spread: str

    def prepare(self) -> None:
        self.tiles = {}
        self.capacities = {}
        self.extents: dict[str, tuple[Operand, ...]] = {}  # declared extents of tiles, for those of run-time extents
        self.readers = self._readers(self.func.body)
        self.units = UnitAxes(self.func.body, self.facts.is_below)

    def _readers(self, body: Block) -> dict[str, tuple[Op, int]]:
        """The only reader of each name that has one, with the block that it stands in."""
        out: dict[str, tuple[Op, int]] = {}

        def walk(block: Block) -> None:
            for s in block:
                if isinstance(s, Op):
                    out.update((v.name, (s, id(block))) for v in uses(s))
                elif isinstance(s, (For, While, If)):
                    for inner in (s.body,) if isinstance(s, For) else (s.before, s.body) if isinstance(s, While) else (
                        s.then, s.orelse):  # fmt: skip
                        walk(inner)

        walk(body)
        return out

    # -- axes -----------------------------------------------------------------------------------------------------

    def axis(self, extent: Operand, valid: str | None = None, *, fits: bool = False) -> Axis:
        """An axis of a declared extent; all of it valid unless said otherwise."""
        if isinstance(extent, Const):
            declared = capacity = str(int(extent.value))
            if declared == "1":
                return replace(UNIT, valid=valid or "1", fits=fits)
        else:
            ceiling = self.facts.ceilings.get(extent.name, extent)
            if isinstance(ceiling, Const):
                most = str(int(ceiling.value))
                declared = f"int({self.name(extent.name)})"
                return Axis(False, most, declared, valid or declared, fits)
            if ceiling.name in self.facts.varying:
                raise unsupported(
                    f"a tile whose extent `{extent.name}` changes while the kernel runs", self.func.loc,
                    "give the tile a constant extent, or one that is at most such: `min(n, 64)`",
                )  # fmt: skip
            declared = f"int({self.name(extent.name)})"
            capacity = f"MOST_{self.name(ceiling.name).upper()}"  # no name of the headers
            self.capacities[capacity] = ceiling
        return Axis(False, capacity, declared, valid or declared, fits)

    def slots(self, tile: Tile) -> tuple[str, str]:
        """How many rows and columns of a tile a thread holds."""
        rows = "1" if tile.rows.unit else f"Spread::rows({tile.rows.capacity})"
        columns = "1" if tile.columns.unit else f"Spread::columns({tile.columns.capacity})"
        return rows, columns

    def placed(self, axes: Sequence[Axis], loc: Loc, *, standing: bool = False) -> tuple[int, Axis, Axis]:
        """Rank, row axis and column axis; leading axes of extent 1 are left out, those before the last are merged."""
        rank = len(axes)
        axes = axes[_hidden(axes) :]
        if not axes:
            raise unsupported("a tile of rank 0", loc, "work on tiles of rank 1 or more")
        if len(axes) == 1:
            return (1, axes[0], UNIT) if standing else (1, UNIT, axes[0])
        return rank, axes[0] if len(axes) == 2 else merged(axes[:-1]), axes[-1]

    def lead_of(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        """`lead` of a tile that has these axes."""
        return tuple(axes[: _hidden(axes)])

    # -- definitions ----------------------------------------------------------------------------------------------

    def declare_tile(self, var: Var) -> None:
        """A tile variable that is assigned in several places: its array and its valid extents."""
        assert isinstance(var.type, TileType)
        shape = self._declared_shape(var)
        fits = [self.facts.fits(var.name, k) for k in range(len(shape))]
        axes = [self.axis(e, fits=f) for e, f in zip(shape, fits, strict=True)]
        rank, rows, columns = self.placed(axes, self.func.loc)
        name = self.name(var.name)
        typ = register_type(var.type.dtype)
        wanted: list[str] = []

        def counted(axis: Axis, place: int, wish: str) -> Axis:
            if axis.unit and self.units.are_complete(var, place):
                return axis
            wanted.append(self.names.fresh(wish))
            return replace(axis, valid=wanted[-1])

        first = len(axes) - len(rows.parts) - 1  # that the tile shows
        if rows.parts:
            rows = merged([counted(part, first + k, f"{name}_axis{k}") for k, part in enumerate(rows.parts)])
        elif rank > 1:
            rows = counted(rows, len(axes) - 2, f"{name}_rows")
        columns = counted(columns, len(axes) - 1, f"{name}_columns")
        lead = tuple([counted(a, k, f"{name}_axis{k}") for k, a in enumerate(axes[: _hidden(axes)])])
        tile = Tile(var.type.dtype, rank, rows, columns, in_array(name, rows.unit, columns.unit), name, lead=lead)
        nr, nc = self.slots(tile)
        self.text.line(f"{typ} {name}[{nr}][{nc}];")
        if wanted:
            self.text.line(f"int {', '.join(wanted)};")
        self.tiles[var.name] = tile
        self.declared.add(var.name)

    def _declared_shape(self, var: Var) -> tuple[Operand, ...]:
        """Declared extents of a tile variable, found in an operation that says them."""
        found = shape_of(self.func.body, var)
        if found is None:
            raise unsupported(f"the tile `{source_name(var.name)}`, whose extents are not known", self.func.loc,
                              "give its extents where it is made")  # fmt: skip
        return found

    def new_array(self, var: Var, tile: Tile) -> Tile:
        """The tile with an array of its own: that of the variable when it exists, else a new one."""
        known = self.tiles.get(var.name)
        if var.name in self.declared and known is not None:
            return known
        name = self.name(var.name)
        nr, nc = self.slots(tile)
        self.text.line(f"{register_type(tile.dtype)} {name}[{nr}][{nc}];")
        return tile.with_element(name)

    def put(self, var: Var, tile: Tile, *, stable: bool = True) -> None:
        """Give a tile variable a value; `stable`: what the value is made of does not change later."""
        if var.name in self.declared:
            known = self.tiles[var.name]
            tile = self.turned(tile) if tile.standing else tile
            self.assign(known.array or "", tile)
            self.set_valid(known, tile)
        elif stable and self._written_at_reader(var, tile):
            self.tiles[var.name] = tile
        else:
            self.tiles[var.name] = self.materialised(
                tile if tile.array is None else replace(tile, array=None), self.name(var.name)
            )
            self.made(var)

    def made(self, var: Var) -> None:
        """Called when a tile got an array of its own."""

    def stable(self, operands: Sequence[Operand]) -> bool:
        """Whether no operand is a variable that is assigned again."""
        return not any(isinstance(a, Var) and a.name in self.facts.mutable for a in operands)

    def set_valid(self, known: Tile, tile: Tile) -> None:
        def axes(of: Tile) -> tuple[Axis, ...]:
            return (*(of.rows.parts or (of.rows,)), of.columns)

        mine, new = axes(known), axes(tile)
        new = (UNIT,) * (len(mine) - len(new)) + new  # of tiles with extents of 1 leading ones are left out
        for to, axis in zip(mine, new, strict=True):
            if to.valid not in ("1", axis.valid):
                self.text.line(f"{to.valid} = {axis.valid};")
        count = max(len(known.lead), len(tile.lead))
        for to, axis in zip(known.hidden(count), tile.hidden(count), strict=True):
            if to.valid not in ("1", axis.valid):
                self.text.line(f"{to.valid} = {axis.valid};")

    def _written_at_reader(self, var: Var, tile: Tile) -> bool:
        """Whether the only reader is an operation of this block that looks at each element once."""
        if tile.array is not None:
            return True
        element = tile.element("ri", "ci")
        if "(" not in element and " " not in element:
            return True
        if self.facts.uses[var.name] != 1 or var.name not in self.readers:
            return False
        reader, where = self.readers[var.name]
        if where != self.current_block:
            return False
        if is_reduction(reader):
            return True
        result = reader.results[0].type if reader.results else None
        return (
            is_elementwise(reader) and isinstance(result, TileType) and result.shape == getattr(var.type, "shape", None)
        )

    current_block = 0

    def block(self, block: Block) -> None:
        outer, self.current_block = self.current_block, id(block)
        super().block(block)
        self.current_block = outer

    def materialised(self, tile: Tile, name: str | None = None) -> Tile:
        """The tile in an array."""
        if tile.array is not None:
            return tile
        name = name or self.names.fresh("tile")
        nr, nc = self.slots(tile)
        self.text.line(f"{register_type(tile.dtype)} {name}[{nr}][{nc}];")
        self.assign(name, tile)
        return tile.with_element(name)

    def assign(self, array: str, tile: Tile) -> None:
        """`array[i][j] = element` for every slot."""
        target = in_array(array, tile.rows.unit, tile.columns.unit)
        self.each(tile, lambda i, j: [f"{target(i, j)} = {tile.element(i, j)};"])

    def each(self, tile: Tile, body: Any) -> None:
        """`body(i, j)` for every slot of a tile: loops over rows and columns where there are several."""
        nr, nc = self.slots(tile)
        loops = [(v, n) for v, n in (("ri", nr), ("ci", nc)) if n != "1"]
        lines = body("0" if nr == "1" else "ri", "0" if nc == "1" else "ci")
        self._loops(loops, lines)

    def _loops(self, loops: list[tuple[str, str]], lines: list[str]) -> None:
        if not loops:
            for line in lines:
                self.text.line(line)
            return
        (var, count), *rest = loops
        self.text.line("PTO_UNROLL")
        head = f"for (int {var} = 0; {var} < {count}; ++{var})"
        with self.text.block(head):
            self._loops(rest, lines)

    def tile(self, operand: Operand) -> Tile:
        assert isinstance(operand, Var)
        return self.tiles[operand.name]

    # -- operations -----------------------------------------------------------------------------------------------

    def tile_operation(self, op: Op) -> None:
        name = op.op
        if is_reduction(op):
            self._reduction(op)
        elif is_elementwise(op):
            self._elementwise(op)
        else:
            handler = getattr(self, f"_{name}", None) if name in _HANDLED else None
            if handler is None:
                raise unsupported(f"`{name}` of tiles", op.loc, "use the cpu target for this kernel; "
                                  "docs/cuda.md lists what the cuda target does")  # fmt: skip
            handler(op)

    def _stands(self, result: Var) -> bool:
        """Whether a tile of rank 1 is only read as a column."""
        assert isinstance(result.type, TileType)
        if result.type.rank != 1 or result.name not in self.readers or result.name in self.facts.mutable:
            return False
        reader, _ = self.readers[result.name]
        if self.facts.uses[result.name] != 1 or reader.op != "reshape":
            return False
        shape = reader.results[0].type.shape  # type: ignore[union-attr]
        return len(shape) == 2 and shape[1] == 1 and shape[0] != 1

    def _full(self, op: Op) -> None:
        axes = [self.axis(e, fits=True) for e in op.args[1:]]
        rank, rows, columns = self.placed(axes, op.loc, standing=self._stands(op.results[0]))
        value = self.scalar(op.args[0])
        dtype = op.results[0].type.dtype  # type: ignore[union-attr]
        tile = Tile(dtype, rank, rows, columns, lambda i, j: value, standing=self._stands(op.results[0]),
                    lead=self.lead_of(axes))  # fmt: skip
        self.put(op.results[0], tile, stable=self.stable(op.args))

    def _arange(self, op: Op) -> None:
        standing = self._stands(op.results[0])
        rank, rows, columns = self.placed([self.axis(op.args[2], fits=True)], op.loc, standing=standing)
        dtype = op.args[0].type.dtype  # type: ignore[union-attr]
        typ, start, step = register_type(dtype), self.scalar(op.args[0]), self.scalar(op.args[1])

        def element(i: str, j: str) -> str:
            if (rows if standing else columns).unit:  # the same in all threads
                return start
            at = f"{typ}(Spread::row({i}))" if standing else f"{typ}(Spread::column({j}))"
            text = at if step == "1" else self.expressions.apply("mul", [at, step], dtype, {}, dtype)
            return text if start == "0" else self.expressions.apply("add", [start, text], dtype, {}, dtype)

        self.put(
            op.results[0], Tile(dtype, rank, rows, columns, element, standing=standing), stable=self.stable(op.args)
        )

    def _copy(self, op: Op) -> None:
        self.put(op.results[0], self.tile(op.args[0]), stable=self.stable(op.args))

    def _reshape(self, op: Op) -> None:
        """Only axes of extent 1 come and go: the slots stay where they are."""
        which = kept_axes(self.func.body, op)
        source = self.tile(op.args[0])
        shape = op.results[0].type.shape  # type: ignore[union-attr]
        if which is None:
            raise unsupported("a reshape that moves elements", op.loc, "load the tile in the shape that is wanted")
        old = op.args[0].type.shape  # type: ignore[union-attr]
        own = source.axes
        own = source.hidden(len(old) - len(own)) + own  # what is before the last two axes is 1
        axes = [UNIT if i is None else own[i] for i in which]
        gone = [a for k, a in enumerate(own) if k not in which]
        for axis in dict.fromkeys(a for a in gone if a.unit and not a.full):
            self.check(f"{axis.valid} == 1", "BoundsError", EMPTY.message, op.loc, axis.valid, "1")
        row_wanted = source.rows if not source.rows.unit else None
        rank, rows, columns = self.placed(axes, op.loc, standing=len(shape) == 1 and not source.rows.unit)
        stable = self.stable(op.args)
        if (row_wanted is not None and rows.unit) or (rows is not UNIT and not rows.unit and source.rows.unit):
            source, stable = self.turned(source), True
        self.put(op.results[0], replace(source, rank=rank, rows=rows, columns=columns,
                                        standing=len(shape) == 1 and not source.rows.unit, lead=self.lead_of(axes)),
                 stable=stable)  # fmt: skip

    def _broadcast_to(self, op: Op) -> None:
        source = self.tile(op.args[0])
        source = self.turned(source) if source.standing else source
        wanted = [self.axis(e, fits=True) for e in op.args[1:]]  # those that are repeated
        new = len(wanted) - op.args[0].type.rank  # type: ignore[union-attr]
        own = (*[UNIT] * new, *source.hidden(len(wanted) - new - len(source.axes)), *source.axes)
        axes = self.broadcast_axes(own, wanted, op)
        rank, rows, columns = self.placed(axes, op.loc)

        def element(i: str, j: str) -> str:
            return source.element("0" if source.rows.unit else i, "0" if source.columns.unit else j)

        out = Tile(source.dtype, rank, rows, columns, element, lead=self.lead_of(axes))
        self.put(op.results[0], out, stable=self.stable(op.args))

    def broadcast_axes(self, own: Sequence[Axis], wanted: Sequence[Axis], op: Op) -> list[Axis]:
        """Axes as those of `broadcast_to`, which repeats those of extent 1; others have the extent asked for."""
        for axis, one in zip(own, wanted, strict=True):
            if not axis.unit and axis.declared != one.declared:
                self.check(f"{axis.declared} == {one.declared}", "LaunchError", DECLARED, op.loc, axis.declared,
                           one.declared)  # fmt: skip
        return [_repeated(axis, one) for axis, one in zip(own, wanted, strict=True)]

    def _valid(self, op: Op) -> None:
        tile = self.tile(op.args[0])
        axes = tile.hidden(op.args[0].type.rank - len(tile.axes)) + tile.axes  # type: ignore[union-attr]
        axis = axes[int(op.attr("axis"))]  # type: ignore[arg-type]
        text = axis.valid if op.op == "valid" else axis.declared
        self.define(op.results[0], text.removeprefix("int(").removesuffix(")") if text.startswith("int(") else text)

    _extent = _valid

    def _reduction(self, op: Op) -> None:
        raise NotImplementedError

    def turned(self, tile: Tile) -> Tile:
        """A tile with one row or one column, the other way round."""
        raise NotImplementedError

    # -- elementwise ----------------------------------------------------------------------------------------------

    def _elementwise(self, op: Op) -> None:
        result = op.results[0]
        assert isinstance(result.type, TileType)
        tiles, rows, columns, lead = self.together([self.tile(a) for a in op.args if isinstance(a.type, TileType)], op)
        standing = any(t.standing for t in tiles)
        given = iter(tiles)
        operands = [next(given) if isinstance(a.type, TileType) else self.scalar(a) for a in op.args]
        data = op.args[1] if op.op == "select" else op.args[0]
        dtype = result.type.dtype

        texts: dict[tuple[str, str], str] = {}

        def element(i: str, j: str) -> str:
            text = texts.get((i, j))
            if text is None:
                args = [t.element("0" if t.rows.unit else i, "0" if t.columns.unit else j) if isinstance(t, Tile) else t
                        for t in operands]  # fmt: skip
                text = texts[i, j] = self.apply(op, args, data.type.dtype, dtype)  # type: ignore[union-attr]
            return text

        tile = Tile(dtype, max(t.rank for t in tiles), rows, columns, element, standing=standing, lead=lead)
        if op.op == "div" and register_type(dtype) == "float" and not columns.unit and _one_for_a_row(operands[1]):
            self._divide_rows(result, tile, *operands)
        else:
            self.put(result, tile, stable=self.stable(op.args))

    def _divide_rows(self, result: Var, tile: Tile, dividend: Tile | str, divisor: Tile | str) -> None:
        """Give a tile variable quotients with one divisor for each row, whose reciprocal is computed once."""
        known = self.new_array(result, tile)

        def slot(operand: Tile | str, i: str, j: str) -> str:
            if isinstance(operand, str):
                return operand
            return operand.element("0" if operand.rows.unit else i, "0" if operand.columns.unit else j)

        nr, _ = self.slots(tile)
        i = "0" if nr == "1" else "ri"
        self._loops([("ri", nr)] if nr != "1" else [], [
            f"pto::divide_row({known.array}[{i}], {slot(divisor, i, '0')}, "
            f"[&](int ci) {{ return {slot(dividend, i, 'ci')}; }});"
        ])  # fmt: skip
        if result.name in self.declared:
            self.set_valid(known, tile)
        else:
            self.tiles[result.name] = known
            self.made(result)

    def together(self, tiles: Sequence[Tile], op: Op) -> tuple[list[Tile], Axis, Axis, tuple[Axis, ...]]:
        """Tiles whose slots (i, j) are elements that meet; rows, columns and `lead` of what they become."""
        if any(not t.standing and not t.is_unit for t in tiles):
            tiles = [self.turned(t) if t.standing else t for t in tiles]
        if any(t.rows.parts for t in tiles):
            return self.lines_together(tiles, op)
        rows, columns = self._joined([t.rows for t in tiles], op), self._joined([t.columns for t in tiles], op)
        return list(tiles), rows, columns, joined_lead([t.lead for t in tiles])

    def lines_together(self, tiles: Sequence[Tile], op: Op) -> tuple[list[Tile], Axis, Axis, tuple[Axis, ...]]:
        """`together` where tiles have more than two axes."""
        raise NotImplementedError

    def _joined(self, axes: Sequence[Axis], op: Op) -> Axis:
        """The axis that several become: declared extents agree, valid ones agree unless generated."""
        wide = [a for a in axes if not a.unit]
        if not wide:
            return joined_units(axes)
        sure = [a for a in wide if not a.fits]
        out = sure[0] if sure else wide[0]
        if not sure:  # as much as the smallest has: those that are not generated by now are all of one extent
            known = dict.fromkeys([a.valid for a in wide if not a.full] or [out.valid])
            out = replace(out, valid=reduce(lambda a, b: f"pto::smaller({a}, {b})", known))
        for other in wide:
            if other.declared != out.declared:
                self.check(
                    f"{other.declared} == {out.declared}", "LaunchError", DECLARED, op.loc, out.declared, other.declared
                )
            if other.valid == out.valid or (other.fits and other.full):
                continue
            condition = f"{other.valid} == {out.valid}"
            if other.fits:
                condition += f" || {other.valid} == {other.declared}"
            self.check(condition, "LaunchError", EXTENTS, op.loc, out.valid, other.valid)
        empty = [a.valid for a in axes if a.unit and not a.full]
        if empty:
            alive = " && ".join(f"{e} == 1" for e in dict.fromkeys(empty))
            return replace(out, valid=f"({alive} ? {out.valid} : 0)")
        return out


def _hidden(axes: Sequence[Axis]) -> int:
    """How many leading axes of extent 1 a tile does not show: not its last two axes."""
    return next((k for k, a in enumerate(axes[:-2]) if not a.unit), max(0, len(axes) - 2))


def _repeated(axis: Axis, wanted: Axis) -> Axis:
    """An axis of a tile as `wanted`, if its extent is 1."""
    if not axis.unit:
        return replace(wanted, valid=axis.valid, fits=axis.fits)
    if wanted.unit or axis.full:
        return axis if wanted.unit else wanted
    return replace(wanted, valid=f"({axis.valid} == 1 ? {wanted.valid} : 0)", fits=False)


def _one_for_a_row(divisor: Tile | str) -> bool:
    """Whether all elements of a row are divided by one number, and a division is no product."""
    if isinstance(divisor, Tile):
        return divisor.columns.unit
    number = re.fullmatch(r"-?([0-9.e+-]+)f", divisor)
    return number is None or math.frexp(float(number[1]))[0] != 0.5


_HANDLED = frozenset("load store full arange copy reshape broadcast_to valid extent dot transpose concat "
                     "tile_slice sort argsort topk cumsum cumprod assoc_scan fold map flip gather extract stack "
                     "histogram rand randn take put atomic_add atomic_max atomic_min".split())  # fmt: skip
