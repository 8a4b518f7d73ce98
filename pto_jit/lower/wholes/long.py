# SPDX-License-Identifier: MIT
"""Tiles whose parts may be longer than a block has room for, because lines that are reduced stay whole.

Where the host finds that they are, what is reduced has partial results (`partials`)::

    %fits = sle %elements, 32768 : bool_
    IF %fits
      FOR %x_at:idx, 0:idx, %m:idx, 32:idx {kind=parallel}  // all rows of 32 columns
        ...
    ELSE
      ...
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from pto_jit.ir.nodes import Const, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import TensorType, TileType, Type
from pto_jit.ir.walk import substitute
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.axes import reduced_axes
from pto_jit.lower.names import BOOL, Scalars, index, source_name
from pto_jit.lower.wholes.chunks import ROWS
from pto_jit.lower.wholes.lines import SCANS, Lines
from pto_jit.lower.wholes.memory import CutError, Store, stored
from pto_jit.lower.wholes.parted import PartLoops
from pto_jit.lower.wholes.partials import (
    EXTREMES,
    MOST,
    ROW,
    Room,
    divides,
    looked_for,
    reduced_along,
    room,
    working,
)
from pto_jit.lower.wholes.running import RunningLines
from pto_jit.lower.wholes.sizes import Size
from pto_jit.semantic.failures import MOST_PLACES, PLACES
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace


class LongLines(RunningLines):
    """long: tiles that may be too long for a block are taken to be."""

    def __init__(self, *args: Any, long: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.long = long

    def _or_pieces(
        self, tile: Var, store: Store, ops: list[Op], loops: Sequence[Stmt], parts: PartLoops | None
    ) -> Sequence[Stmt]:
        """Loops that compute a tile, or others where the tiles of a part may be larger than a block has room for;
        parts: of these loops, None where one block does it all."""
        limit = self._limit(ops, parts)
        if limit is None or (parts is None and not _bounds(limit.elements, ops)):
            return loops
        if limit.row is not None and not self.long:
            other = self.divider.in_passes(self.divider.known.again(ops), self.scope)
        else:
            other = self._in_pieces(tile, store)
        if other is None:
            if self.long:
                raise CutError
            return loops
        if self.long or isinstance(limit.elements, Const):
            return other
        names, loc = self.divider.known.names, self.scope.loc
        fits = names.fresh("fits", BOOL)
        self.scalars.block.append(Op("le", (fits,), (limit.elements, index(limit.most)), (), (), loc))
        if parts is None:  # what is not divided any more has an extent of which is known that it is short
            most = names.fresh("most")
            loops = [Op("min", (most,), (limit.elements, index(limit.most)), (), (), loc),
                     *substitute(tuple(loops), {limit.elements.name: most})]  # fmt: skip
        return [If(fits, tuple(loops), tuple(other), loc=loc)]

    def _in_pieces(self, tile: Var, store: Store) -> list[Stmt] | None:
        """What computes a tile in pieces, for a branch; None where that is not possible."""
        old = self.memory, self.views, self.maker, self.out, self.place
        self.memory, self.views, self.maker, self.out, self.place = (
            dict(old[0]), dict(old[1]), dict(old[2]), [], dict(old[4]))  # fmt: skip
        self.branch += 1
        before, self.long = self.long, True
        told, computed, numbers = len(self.divider.decisions), len(self.scalars.block), dict(self.scalars.known)
        try:
            self._emit_pieces(tile, store)
            return self.out
        except CutError:
            del self.divider.decisions[told:], self.scalars.block[computed:]
            self.scalars.known = numbers
            return None
        finally:
            self.branch -= 1
            self.long = before
            self.memory, self.views, self.maker, self.out, self.place = old

    def _emit_pieces(self, tile: Var, store: Store) -> None:
        """Compute a tile, with memory for what is reduced to make it, of which there are partial results, and for what
        runs along lines, unless these are those of the tile."""
        for op in self._needed(tile):
            if op.op in EXTREMES and op.results[0].name not in self.memory:
                self._look_for(op)
        long = [op for op in self._needed(tile) if op.op in SCANS or divides(op)]
        if not long:
            raise CutError
        for op in long:
            if op.results[0].name not in self.memory:
                for operand in op.args:
                    self._keep_running(operand)
                if divides(op):
                    self._reduce(op, tile)
        if self._running(tile):
            if self._scan(tile, store):
                return
            if self.maker[tile.name].op in SCANS:
                raise CutError
            self._keep_running(tile)
        ops = self._group(tile, store)
        loops: Sequence[Stmt] | None = self.divider.in_parts(ops, self.scope)
        if loops is None and not any(map(self.divider.may_be_large, ops)):
            loops = self._alone(ops)
        elif loops is None or self._limit(ops, self.divider.latest) is not None:
            raise CutError
        self._write(loops)

    def _keep_running(self, tile: Operand) -> None:
        """Put what runs along lines into memory, of what a tile is made of."""
        for op in self._running(tile):
            for result in op.results:
                self._remember(result)

    def _limit(self, ops: list[Op], loops: PartLoops | None) -> Room | None:
        """As `room`; of what is in a branch nobody asks for the number, which may be that of memory made there."""
        known, parts = self.divider.known, self.divider.parts
        scalars = Scalars(known.names, self.scope.loc) if self.branch else self.scalars
        if loops is None:
            lines = Lines(tuple(ops), self.divider.kept)
            return room(lines, (), ops, known, scalars, parts.limits(parts.alone))
        return room(loops.lines, loops.chosen, ops, known, scalars, parts.limits())

    def _look_for(self, op: Op) -> None:
        """Make the place of an extreme the first one where a NaN is, or else where that is."""
        tile, (result,) = op.args[0], op.results
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        (_, *more), size = reduced_axes(op), self.sizes.of(tile)[reduced_axes(op)[0]]
        if more or not size.whole:  # of no elements it is another number
            raise CutError

        def made(name: str, *args: Operand, **attrs: Any) -> Var:
            (kind,) = infer(name, args, attrs)
            return self._made(kind, Op(name, (), args, tuple(attrs.items()), (), op.loc), result)

        self.divider.known.check(self.scalars.block, "le", size.valid, index(MOST_PLACES), PLACES, op.loc, what=op.op)
        self.maker[result.name] = looked_for(op, size.valid, made)

    def _reduce(self, op: Op, tile: Var) -> None:
        """Make a reduction one of partial results; it has memory where it is read for every line of a tile."""
        operand, result = op.args[0], op.results[0]
        over = reduced_axes(op)
        assert isinstance(operand, Var) and isinstance(result.type, TileType) and isinstance(tile.type, TileType)
        kind, work = working(op)
        for axis in reversed(over):
            operand = self._partials(op, operand, axis)
            if axis != over[0]:
                one = Op(kind, (), (operand,), (("axes", (axis,)), ("keepdims", False)), (), op.loc)
                (less,) = infer(one.op, one.args, dict(one.attrs))
                operand = self._made(less, one, result)
                self._remember(operand)
        once = len(over) == 1 or not op.attr("keepdims")
        keeps = once and bool(op.attr("keepdims"))
        last = Op(kind, (), (operand,), (("axes", over[:1]), ("keepdims", keeps)), (), op.loc)
        if not once:  # the axes of extent 1 come back
            (less,) = infer(last.op, last.args, dict(last.attrs))
            extents = [size.declared for size in self.sizes.of(result)]
            last = Op("reshape", (), (self._made(less, last, result), *extents), (), (), op.loc)
        if result.type.dtype == work:
            self.maker[result.name] = replace(last, results=(result,))
        else:
            wide = self._made(TileType(work, result.type.shape), last, result)
            self.maker[result.name] = Op("cast", (result,), (wide,), (("dtype", result.type.dtype),), (), op.loc)
        if self._is_spread(result, tile):
            self._remember(result)

    def _is_spread(self, part: Var, tile: Var) -> bool:
        """Whether what a tile is made of is read for every line of something on the way there."""
        made = {part.name}
        for op in self._needed(tile):
            if any(isinstance(a, Var) and a.name in made for a in op.args):
                if any(_long_axes(r.type) > _long_axes(part.type) for r in op.results):
                    return True
                made.update(r.name for r in op.results)
        return False

    def _partials(self, op: Op, tile: Var, axis: int) -> Var:
        """A tile of partial results of a tile along an axis, in memory."""
        assert isinstance(tile.type, TileType)
        few = (tile.type.shape[axis] or MOST + 1) <= MOST
        if few or (None not in tile.type.shape and prod(tile.type.shape) <= self.divider.parts.large):  # type: ignore
            if not self._is_loaded(tile):
                self._remember(tile)
            return tile
        _, work = working(op)
        sizes = self.sizes.of(tile)
        step = ROW if axis == max(k for k, n in enumerate(tile.type.shape) if n != 1) else ROWS
        extent = sizes[axis].valid
        chunks = self._chunks(extent, step, MOST)
        parts = chunks.count
        extents = [parts if k == axis else size.valid for k, size in enumerate(sizes)]
        partials = self._host("alloc", extents, f"{source_name(op.results[0].name)}.partials", dtype=work)
        pseudo = self.divider.known.names.fresh("memory", TensorType(tile.type.dtype, tile.type.shape, "c"))
        ops = self._group(tile, lambda mine: stored(mine, pseudo, op.loc))
        loops = self.divider.loops(ops, self.scope)
        mine = ops[-1].args[0]
        assert isinstance(mine, Var)
        own = loops.lines.axes(mine) if loops is not None else {}
        if loops is None or any(line not in loops.found for line in own.values()) or loops.told:
            raise CutError
        self._write(reduced_along(op, mine, axis, ops[:-1], loops, chunks, partials))
        reason = f"what is reduced along axis {axis} is, in up to {MOST} parts, and these then"
        self.divider.decisions.append(Decision("reduction", (), True, reason, op.loc))
        many = int(parts.value) if isinstance(parts, Const) else None
        shape = tuple(many if k == axis else n for k, n in enumerate(tile.type.shape))
        whole = self._made(TileType(work, shape), None, op.results[0])
        self.sizes.found[whole.name] = tuple(
            Size(parts, parts) if k == axis else replace(size, fits=False) for k, size in enumerate(sizes)
        )
        self.memory[whole.name] = partials
        return whole

    def _alone(self, ops: list[Op]) -> Sequence[Stmt]:
        """Operations for one block."""
        return ops if self.scope.named else [replace(self.scope, body=tuple(ops))]


def _bounds(number: Operand, ops: list[Op]) -> bool:
    """Whether a number is that of lines that are loaded, or is known."""
    return isinstance(number, Const) or any(op.op == "load" and number in op.args for op in ops)


def _long_axes(tile: Type) -> int:
    assert isinstance(tile, TileType)
    return sum(n != 1 for n in tile.shape)
