# SPDX-License-Identifier: MIT
"""How much of a divided tile is valid in all of its parts together, as a number that every part computes.

A part of a tile knows of its own lines only.  What a program asks of the tile as a whole, such as how many of its rows
are valid, follows from where it was loaded, before::

    %t = tload %x[%r, 0] [64, 2048]
    %n = tvalid %t {axis=0}

and after, in each part of 4 rows::

    %t = tload %x[%r_at, 0] [4, 2048]
    %rows = sdim %x {axis=0}
    %left = ssub %rows, %r
    %some = smin %left, 64
    %t_whole = smax %some, 0
    %n = scopy %t_whole
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Const, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import def_counts, statements
from pto_jit.lower.groups.axes import GENERATED, is_elementwise, is_reduction, unit_reshape
from pto_jit.lower.groups.fitting import Fitting

_INDEX = ScalarType(i64)


class Wholes:
    """The valid extents, along the divided axis, of the tiles that are asked for them.

    line: the divided axis of a tile, or None; extent: that of the whole; fitting: along which axes tiles fit any;
    fresh: names a new number.  `known` is False where no number says it: such tiles cannot be divided.
    """

    def __init__(
        self, body: Block, line: Callable[[Operand], int | None], extent: int, fitting: Fitting,
        fresh: Callable[[str], str],
    ) -> None:  # fmt: skip
        self.line, self.fitting, self.fresh = line, fitting, fresh
        self.extent = Const(extent, _INDEX)
        ops = [s for s in statements(body) if isinstance(s, Op)]
        makers: dict[str, list[Op]] = {}
        for op in ops:
            for r in op.results:
                makers.setdefault(r.name, []).append(op)
        counts = def_counts(body)
        self.numbers: dict[str, Operand] = {}
        self.wanted: set[str] = set()
        self.known = True
        asked = [op.args[0] for op in ops if self.asks(op)]
        while asked:
            tile = asked.pop()
            assert isinstance(tile, Var)
            if tile.name in self.wanted:
                continue
            self.wanted.add(tile.name)
            if counts[tile.name] > 1:
                self.numbers[tile.name] = Var(fresh(f"{tile.name}_whole"), _INDEX)
            sources = [self._source(op) for op in makers.get(tile.name, ())]
            self.known &= bool(sources) and None not in sources
            asked += [s for s in sources if isinstance(s, Var)]

    def asks(self, op: Op) -> bool:
        """Whether an operation asks how much of a divided axis is valid."""
        return op.op == "valid" and self.line(op.args[0]) == op.attr("axis")

    def answer(self, op: Op) -> Op:
        """What stands for an operation that asks."""
        return Op("copy", op.results, (self._number(op.args[0]),), (), (), op.loc)

    def after(self, op: Op) -> list[Stmt]:
        """What follows an operation that makes a tile, to know how much of it is valid."""
        if not op.results or op.results[0].name not in self.wanted:
            return []
        out: list[Stmt] = []
        name = op.results[0].name
        source = self._source(op)
        number = self._loaded(op, out) if source is op else self._number(source)  # type: ignore[arg-type]
        if name not in self.numbers:
            self.numbers[name] = number
        elif (kept := self.numbers[name]) != number:
            assert isinstance(kept, Var)
            out.append(Op("copy", (kept,), (number,), (), (), op.loc))
        return out

    def _number(self, tile: Operand) -> Operand:
        return self.numbers[tile.name] if isinstance(tile, Var) else tile

    def _source(self, op: Op) -> Op | Operand | None:
        """The tile that has as much as a result of this operation; the operation if it is a load, its extent if that
        is all, None where neither is known."""
        if op.op == "load":
            return self.extent if op.attr("pad") else op
        if op.op in GENERATED:
            return self.extent
        of_line = [a for a in op.args if self.line(a) is not None]
        if not of_line:
            return None
        if is_elementwise(op):
            return self._joined(op, of_line)
        if op.op == "reshape":
            return of_line[0] if unit_reshape(op) is not None else None
        return of_line[0] if is_reduction(op) or op.op in ("copy", "transpose") else None

    def _joined(self, op: Op, of_line: list[Operand]) -> Operand | None:
        """Operands that do not fit any extent count; those with one line for all may be empty, unless they fit."""
        result = op.results[0].type
        assert isinstance(result, TileType)
        at = self.line(op.results[0])
        assert at is not None
        for a in op.args:
            if not isinstance(a, Var) or not isinstance(a.type, TileType) or a in of_line:
                continue
            axis = at - result.rank + a.type.rank
            if axis >= 0 and not self._fits(a, axis):
                return None
        return next((a for a in of_line if not self._fits(a, self.line(a))), of_line[0])

    def _fits(self, tile: Operand, axis: int | None) -> bool:
        return isinstance(tile, Var) and axis is not None and tile.name in self.fitting and (
            self.fitting[tile.name][axis])  # fmt: skip

    def _loaded(self, op: Op, out: list[Stmt]) -> Var:
        """max(0, min(extent, size of the tensor - offset))."""
        axis = self.line(op.results[0])
        assert axis is not None

        def number(name: str, wish: str, *args: Operand, **attrs: int) -> Var:
            result = Var(self.fresh(wish), _INDEX)
            out.append(Op(name, (result,), args, tuple(attrs.items()), (), op.loc))
            return result

        size = number("dim", "size", op.args[0], axis=axis)
        left = number("sub", "left", size, op.args[1 + axis])
        some = number("min", "some", left, self.extent)
        return number("max", f"{op.results[0].name}_whole", some, Const(0, _INDEX))
