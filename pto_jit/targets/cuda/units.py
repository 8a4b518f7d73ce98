# SPDX-License-Identifier: MIT
"""Which axes of extent 1 surely have their element.

Such an axis is empty where a tile lies beyond its tensor: in ::

    %t = tload %x[%r, 0:idx] [1, 64] : !pto.tile<1x64xf32>
    %u = tsum %t {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>

the columns of %u have one, and its rows are as many as those of %t: none, unless %r is known to be below the extent of
%x.
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.ir.nodes import Block, Const, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.groups.axes import GENERATED, is_elementwise, is_reduction, reduced_axes, unit_reshape

_ALIKE = frozenset("sort argsort cumsum cumprod assoc_scan map flip".split())
"""Operations whose results are as long as their operands."""


IsBelow = Callable[[Var, str, int], bool]


def never_below(offset: Var, tensor: str, axis: int) -> bool:
    """For `UnitAxes`, where nothing is known of numbers."""
    return False


class UnitAxes:
    """Asks for the axes of extent 1 of the tiles of a block.

    is_below: whether a number is known to be less than an extent of a tensor.
    """

    def __init__(self, body: Block, is_below: IsBelow = never_below) -> None:
        self.body, self.is_below = body, is_below
        self.makers: dict[str, list[Op]] = {}
        for s in statements(body):
            if isinstance(s, Op):
                for r in s.results:
                    self.makers.setdefault(r.name, []).append(s)

    def are_complete(self, tile: Operand, axis: int) -> bool:
        """Whether an axis of extent 1 of a tile surely has its element, whenever the tile has a value."""
        return self._complete(tile, axis, set())

    def _complete(self, tile: Operand, axis: int, seen: set[tuple[str, int]]) -> bool:
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        if (tile.name, axis) in seen:  # what is made of its own earlier value: the first one decides
            return True
        seen.add((tile.name, axis))
        made = self.makers.get(tile.name, ())
        return bool(made) and tile.type.shape[axis] == 1 and all(self._made(op, tile, axis, seen) for op in made)

    def _made(self, op: Op, result: Var, axis: int, seen: set[tuple[str, int]]) -> bool:
        if op.op in GENERATED:
            return True
        if op.op == "load":
            return self._lies_inside(op, axis)
        if is_elementwise(op) or op.op in _ALIKE:
            rank = result.type.rank  # type: ignore[union-attr]
            tiles = [a for a in op.args if isinstance(a.type, TileType)]
            at = [(a, axis - rank + a.type.rank) for a in tiles]  # type: ignore[union-attr]
            return all(k < 0 or self._complete(a, k, seen) for a, k in at)
        source = op.args[0]
        if is_reduction(op) or op.op == "fold":
            over = reduced_axes(op)
            of = [k for k in range(source.type.rank) if op.attr("keepdims") or k not in over]  # type: ignore[union-attr]
            return of[axis] in over or self._complete(source, of[axis], seen)
        match op.op:
            case "transpose":
                return self._complete(source, int(op.attr("axes")[axis]), seen)  # type: ignore[index, arg-type]
            case "reshape":
                which = unit_reshape(op)
                kept = None if which is None else which[axis]
                return kept is None or self._complete(source, kept, seen)  # others had to be complete
            case "broadcast_to":
                at = axis - len(op.args[1:]) + source.type.rank  # type: ignore[union-attr]
                return at < 0 or self._complete(source, at, seen)
            case "dot" if result.type.rank == 2:  # type: ignore[union-attr]
                return all(self._complete(a, axis, seen) for a in (op.args[axis], *op.args[2:]))
            case _:
                return False

    def _lies_inside(self, load: Op, axis: int) -> bool:
        tensor, offset = load.args[0], load.args[1 + axis]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        extent = tensor.type.shape[axis]
        if load.attr("pad"):
            return True
        if isinstance(offset, Const):
            return extent is not None and 0 <= int(offset.value) < extent
        return self.is_below(offset, tensor.name, axis)
