# SPDX-License-Identifier: MIT
"""How much of a tile is valid, as numbers that the host can compute.

A tile that one kernel makes and another one reads lies in a tensor of its own, which has the valid extents of the tile:
the second kernel loads it with its declared extents and finds as much of it valid as the first one did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import NOWHERE, Block, Const, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_defs, statements
from pto_jit.lower.groups.axes import GENERATED, is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.groups.fitting import fitting_axes

_INDEX = ScalarType(i64)
_ZERO, _ONE = Const(0, _INDEX), Const(1, _INDEX)
Extents = tuple[Operand, ...]


class ValidExtents:
    """Valid extents of the tiles that a block makes; statements that compute them are appended to `out`.

    dims: the numbers of host code that are extents of tensors, as (tensor, axis).  fresh: names a new number.
    """

    def __init__(
        self, body: Block, dims: Mapping[str, tuple[str, int]], fresh: Callable[[str], str], out: list[Stmt]
    ) -> None:
        self.dims = dims
        self.fresh = fresh
        self.out = out
        self.loc = NOWHERE
        self.inside = block_defs(body)
        self.makers: dict[str, list[Op]] = {}
        for s in statements(body):
            if isinstance(s, Op):
                for r in s.results:
                    self.makers.setdefault(r.name, []).append(s)
        self.fitting = fitting_axes(body)
        self.found: dict[str, Extents | None] = {}
        self.clips: dict[tuple[str, int, Operand, Operand], Operand] = {}

    def of(self, operand: Operand) -> Extents | None:
        """One number per axis; None when the host cannot know."""
        assert isinstance(operand, Var) and isinstance(operand.type, TileType)
        name = operand.name
        if name not in self.found:
            self.found[name] = None  # a variable that is made of itself: what it starts as counts
            everything = [self._made(op) for op in self.makers.get(name, ()) if not _again(op, name)]
            first = everything[0] if everything else None
            self.found[name] = first if all(e == first for e in everything) else None
        return self.found[name]

    def _made(self, op: Op) -> Extents | None:
        typ = op.results[0].type
        assert isinstance(typ, TileType)
        if op.op == "load":
            return self._loaded(op)
        if op.op in GENERATED:
            extents = op.args[2:] if op.op == "arange" else op.args[-typ.rank :]
            return extents if all(self._of_host(e) for e in extents) else None
        tiles = [a for a in op.args if isinstance(a.type, TileType)]
        valid = [self.of(a) for a in tiles]
        sure = [v for v in valid if v is not None]
        if len(sure) != len(valid) or not sure:
            return None
        if is_reduction(op):
            over = reduced_axes(op)
            kept = [k for k in range(len(sure[0])) if op.attr("keepdims") or k not in over]
            return tuple(_ONE if k in over else sure[0][k] for k in kept)
        if is_elementwise(op):
            return self._joined(op, typ, sure)
        if op.op == "transpose":
            return tuple(sure[0][int(k)] for k in op.attr("axes"))  # type: ignore[union-attr, arg-type]
        if op.op == "dot" and typ.rank == 2:
            return sure[0][0], sure[1][1]
        if op.op == "reshape":
            which = unit_reshape(op)
            gone = [e for k, e in enumerate(sure[0]) if which is None or k not in which]
            return None if which is None or any(e != _ONE for e in gone) else tuple(
                _ONE if k is None else sure[0][k] for k in which)  # fmt: skip
        return None

    def _joined(self, op: Op, typ: TileType, valid: list[Extents]) -> Extents | None:
        """Of several operands those count that are not generated, which agree while the program runs."""
        tiles = [a for a in op.args if isinstance(a.type, TileType)]
        out: list[Operand] = []
        for axis in range(typ.rank):
            candidates: list[tuple[bool, Operand]] = []
            for tile, extents in zip(tiles, valid, strict=True):
                assert isinstance(tile, Var) and isinstance(tile.type, TileType)
                at = axis - typ.rank + tile.type.rank
                if at < 0:
                    continue
                if tile.type.shape[at] == 1 and typ.shape[axis] != 1:
                    if extents[at] != _ONE:
                        return None  # an empty line makes the result empty
                    continue
                candidates.append((tile.name in self.fitting and self.fitting[tile.name][at], extents[at]))
            if not candidates:
                return None
            out.append(min(candidates, key=lambda c: c[0])[1])
        return tuple(out)

    def _loaded(self, op: Op) -> Extents | None:
        tensor = op.args[0]
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        if not all(self._of_host(a) for a in (tensor, *offsets, *extents)):
            return None
        if op.attr("pad"):
            return extents
        self.loc = op.loc
        return tuple(self._clipped(tensor, k, o, e) for k, (o, e) in enumerate(zip(offsets, extents, strict=True)))

    def _of_host(self, operand: Operand) -> bool:
        return isinstance(operand, Const) or operand.name not in self.inside

    def _clipped(self, tensor: Var, axis: int, offset: Operand, extent: Operand) -> Operand:
        """max(0, min(extent, size of the tensor - offset))."""
        assert isinstance(tensor.type, TensorType)
        size = tensor.type.shape[axis]
        if size is not None and isinstance(offset, Const) and isinstance(extent, Const):
            return Const(max(0, min(int(extent.value), size - int(offset.value))), _INDEX)
        if offset == _ZERO and isinstance(extent, Var) and self.dims.get(extent.name) == (tensor.name, axis):
            return extent
        key = (tensor.name, axis, offset, extent)
        if key not in self.clips:
            size_now = self._number("dim", (tensor,), (("axis", axis),))
            left = size_now if offset == _ZERO else self._number("sub", (size_now, offset))
            self.clips[key] = self._number("max", (self._number("min", (extent, left)), _ZERO))
        return self.clips[key]

    def _number(self, op: str, args: tuple[Operand, ...], attrs: tuple[tuple[str, int], ...] = ()) -> Var:
        result = Var(self.fresh("valid"), _INDEX)
        self.out.append(Op(op, (result,), args, attrs, (), self.loc))
        return result


def _again(op: Op, name: str) -> bool:
    """Whether an elementwise operation makes a variable of its own earlier value, whose extents it keeps."""
    return is_elementwise(op) and any(isinstance(a, Var) and a.name == name for a in op.args)
