# SPDX-License-Identifier: MIT
"""Valid extents of tiles, computed outside of the scope that computes the tiles.

A tile that leaves a scope takes its valid extents along.  Where these follow from offsets, declared extents and the
bounds of tensors alone, orchestration computes them itself: otherwise it would have to wait for the scope to tell it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pto_jit.codegen.emit import Emitter, index
from pto_jit.ir import walk
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.semantic.table import REDUCTIONS, is_elementwise, is_generator

Origin = tuple[Var, int]
"""A tile that has an extent from elsewhere (loaded here, or from another scope), and the axis."""


class _Unknown(Exception):
    """What the extent depends on is only known inside the scope."""


class ValidExtents:
    """The valid extents of the tiles of one scope.

    `outer` gives those of a tile from another scope; `is_pure` tells what may be computed again outside.
    """

    def __init__(
        self, e: Emitter, body: Block, outer: Callable[[str], Sequence[Operand] | None], is_pure: Callable[[Stmt], bool]
    ) -> None:
        self.e, self.outer, self.is_pure = e, outer, is_pure
        self.made: dict[str, Stmt] = {v.name: s for s in body for v in walk.defs(s)}
        self.times = Counter(v.name for s in walk.statements(body) for v in walk.defs(s))
        self.times.update(v.name for v in free_vars(body) if v.name in self.times)  # had a value before, too
        self.copies: dict[str, Operand] = {}

    def outside(self, tile: Var) -> list[Operand] | None:
        """The valid extents of `tile` from scalars outside; the operations they need are appended to the emitter.

        None when they are only known inside; then nothing may be kept of what was appended.
        """
        assert isinstance(tile.type, TileType)
        try:
            return [self._extent(tile, axis) for axis in range(tile.type.rank)]
        except _Unknown:
            return None

    def _extent(self, tile: Var, axis: int) -> Operand:
        origin = self._origin(tile, axis)
        if isinstance(origin, int):
            return index(origin)
        source, at = origin
        known = self._from_outside(source)
        if known is not None:
            return known[at]
        load = self._maker(source)
        tensor, rank = self._moved(load.args[0]), (len(load.args) - 1) // 2
        offset, extent = self._moved(load.args[1 + at]), self._moved(load.args[1 + rank + at])
        if load.attr("pad") is True:
            return extent
        e = self.e
        (size,) = e.op("dim", [tensor], {"axis": at})
        (left,) = e.op("sub", [size, offset])
        (some,) = e.op("max", [left, index(0)])
        return e.op("min", [some, extent])[0]

    def _from_outside(self, tile: Var) -> Sequence[Operand] | None:
        """The valid extents of a tile that another scope computed."""
        return None if self.times[tile.name] else self.outer(tile.name)

    def _maker(self, operand: Operand) -> Op:
        """The operation that alone gives a variable its value, in every run of the scope."""
        stmt = self.made.get(operand.name) if isinstance(operand, Var) else None
        if not isinstance(stmt, Op) or self.times[stmt.results[0].name] > 1:
            raise _Unknown
        return stmt

    def _origin(self, tile: Var, axis: int) -> Origin | int:
        """Where an extent comes from; 1 for an axis that a reduction keeps."""
        if self._from_outside(tile) is not None:
            return tile, axis
        op = self._maker(tile)
        if op.op == "load":
            return tile, axis
        if op.op in REDUCTIONS and len(op.args) == 1:
            return self._reduced(op, axis)
        if not is_elementwise(op.op, len(op.args)):
            raise _Unknown
        assert isinstance(tile.type, TileType)
        found: set[Origin | int] = set()
        for arg in op.args:
            if not isinstance(arg, Var) or not isinstance(arg.type, TileType) or self._is_generated(arg):
                continue
            at = axis - tile.type.rank + arg.type.rank
            if at >= 0 and (arg.type.shape[at] != 1 or tile.type.shape[axis] == 1):
                found.add(self._origin(arg, at))
                if tile.type.shape[axis] != 1:  # the others are equal: that is checked where they meet
                    break
        if len(found) != 1:
            raise _Unknown
        return found.pop()

    def _reduced(self, op: Op, axis: int) -> Origin | int:
        (source,) = op.args
        assert isinstance(source, Var) and isinstance(source.type, TileType)
        axes = op.attr("axes")
        if axes is None:  # an index of all elements
            axes = tuple(range(source.type.rank))
        assert isinstance(axes, tuple)
        if op.attr("keepdims") is True:
            return 1 if axis in axes else self._origin(source, axis)
        kept = [k for k in range(source.type.rank) if k not in axes]
        return self._origin(source, kept[axis])

    def _is_generated(self, tile: Var) -> bool:
        """Whether a tile fits any valid extent."""
        stmt = self.made.get(tile.name)
        if not isinstance(stmt, Op) or self.times[tile.name] > 1:
            return False
        if is_generator(stmt.op):
            return True
        tiles = [a for a in stmt.args if isinstance(a.type, TileType)]
        alike = is_elementwise(stmt.op, len(stmt.args))
        return alike and all(isinstance(a, Var) and self._is_generated(a) for a in tiles)

    def _moved(self, operand: Operand) -> Operand:
        """A scalar or view as it is outside; what is computed in the scope is computed again."""
        if isinstance(operand, Const) or self.times[operand.name] == 0:
            return operand
        if operand.name not in self.copies:
            op = self._maker(operand)
            if not self.is_pure(op) or isinstance(operand.type, TileType):
                raise _Unknown
            args = [self._moved(a) for a in op.args]
            result = self.e.fresh(operand.name.split(".")[0], operand.type)
            self.e.append(Op(op.op, (result,), tuple(args), op.attrs, (), op.loc))
            self.copies[operand.name] = result
        return self.copies[operand.name]
