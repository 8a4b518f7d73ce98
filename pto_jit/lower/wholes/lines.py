# SPDX-License-Identifier: MIT
"""Which axes of the tiles of a block are one axis, and whether its lines depend on each other.

A *line* is what lies at one position of an axis, in all tiles that have the axis.  Lines that do not depend on each
other can be computed apart, by other blocks of a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from pto_jit.ir.nodes import Block, Op, Operand, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, statements
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, touches_tiles, unit_reshape
from pto_jit.slotted import replace

Axis = tuple[str, int]
"""The name of a tile, and which of its axes."""

STORES = ("store", "atomic_add", "atomic_max", "atomic_min")
"""Operations that write a tile to a part of a tensor."""
Kept = tuple[int | None, ...]
_ORDER = frozenset("sort argsort topk histogram".split())
SCANS = frozenset("cumsum cumprod assoc_scan".split())
"""Running combinations."""
SUMS = {"cumsum": ("sum", "add"), "cumprod": ("prod", "mul")}
"""What a running sum or product comes to, and how it goes on."""


def axis_along(op: Op) -> int | None:
    """The axis that an operation runs along, whose elements depend on each other; None for other operations."""
    if op.op in _ORDER:
        return op.args[0].type.rank - 1  # type: ignore[union-attr]
    if op.op in SCANS or op.op == "fold":
        return int(op.attr("axis"))  # type: ignore[call-overload]
    return None


class Lines:
    """Which axes of tiles are one: classes by representative; `bound`: those whose lines depend on each other; kept:
    tells of a reshape which axes it keeps, as `unit_reshape`."""

    def __init__(self, body: Block, kept: Callable[[Op], Kept | None] = unit_reshape) -> None:
        self.body = body
        self.kept = kept
        self.parents: dict[Axis, Axis] = {}
        self.known: dict[str, dict[int, Axis]] = {}  # what was asked of tiles, when all are joined
        self.fixed: list[Axis] = []
        self.writes: list[Op] = []
        for s in statements(body):
            if isinstance(s, Op):
                self._note(s)
        self.bound = {self.find(a) for a in self.fixed}
        self.views = {s.results[0].name: s.args[0] for s in statements(body)
                      if isinstance(s, Op) and s.op in TENSOR_VIEWS}  # fmt: skip

    def find(self, axis: Axis) -> Axis:
        while axis in self.parents:
            axis = self.parents[axis]
        return axis

    def axes(self, tile: Operand) -> dict[int, Axis]:
        """The axes of a tile that are not of extent 1, in order; of other operands none."""
        if not isinstance(tile, Var) or not isinstance(tile.type, TileType):
            return {}
        known = self.known.get(tile.name)
        if known is None:
            long = [k for k, n in enumerate(tile.type.shape) if n != 1]
            known = self.known[tile.name] = {k: self.find((tile.name, k)) for k in long}
        return known

    def place(self, tile: Operand, axis: Axis) -> int | None:
        """Which axis of a tile it is."""
        return next((k for k, own in self.axes(tile).items() if own == axis), None)

    def join(self, a: Axis, b: Axis) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parents[a] = b

    def _note(self, op: Op) -> None:
        if op.op in (*STORES, "setelem"):
            self.writes.append(op)
            return
        if not touches_tiles(op):
            if op.op in ("put", "assert"):
                self.writes.append(op)
            return
        tiles = [(a.name, a.type) for a in op.args if isinstance(a, Var) and isinstance(a.type, TileType)]
        result = op.results[0] if op.results else None
        shape = result.type.shape if result is not None and isinstance(result.type, TileType) else None
        along = axis_along(op)
        if along is not None:
            self._note_lines(op, tiles, along)
        elif shape is not None and (is_elementwise(op) or op.op in ("copy", "broadcast_to", "map")):
            for (name, typ), result in product(tiles, op.results):
                for k in range(typ.rank):
                    at = len(shape) - typ.rank + k
                    if typ.shape[k] != 1 or shape[at] == 1:
                        self.join((name, k), (result.name, at))
        elif is_reduction(op):
            name, typ = tiles[0]
            over = reduced_axes(op)
            self.fixed += [(name, k) for k in over]
            kept = [k for k in range(typ.rank) if op.attr("keepdims") or k not in over]
            if result is not None and shape is not None:
                for at, k in enumerate(kept):
                    if k not in over:
                        self.join((name, k), (result.name, at))
        elif op.op == "reshape" and result is not None and (kept := self.kept(op)) is not None:
            for at, k in enumerate(kept):
                if k is not None:
                    self.join((tiles[0][0], k), (result.name, at))
        elif op.op == "transpose" and result is not None:
            for at, k in enumerate(op.attr("axes")):  # type: ignore[arg-type]
                self.join((tiles[0][0], k), (result.name, at))
        elif op.op == "dot" and result is not None:
            (left, kind), (right, _), *start = tiles
            down, along = kind.rank - 2, kind.rank - 1
            self.join((left, along), (right, down))
            self.fixed.append((left, along))
            kept = [(n, k) for n, t in tiles[:2] for k in range(down) if t.shape[k] != 1]
            kept += [(s, k) for s, _ in start for k in range(along + 1)]
            for name, k in (*kept, (left, down), (right, along)):
                self.join((name, k), (result.name, k))
        elif op.op in ("concat", "flip", "gather") and result is not None:
            at = int(op.attr("axis"))  # type: ignore[call-overload]
            for name, typ in tiles:
                for k in range(typ.rank):
                    if k != at or op.op == "flip":
                        self.join((name, k), (result.name, k))
                    if k == at:
                        self.fixed.append((name, k))
            self.fixed.append((result.name, at))
        elif op.op == "take" and result is not None and shape is not None:
            at, (name, typ) = int(op.attr("axis")), tiles[0]  # type: ignore[call-overload]
            for k in range(len(shape)):
                if at <= k < at + typ.rank:
                    self.join((name, k - at), (result.name, k))
                else:  # of which there is no other tile, and no number
                    self.fixed.append((result.name, k))
        elif op.op not in ("load", "full", "arange", "valid") or op.attr("pad"):  # what is not looked at more closely
            everything = tiles + ([(result.name, result.type)] if result is not None and shape is not None else [])
            self.fixed += [(n, k) for n, t in everything for k in range(t.rank)]  # type: ignore[union-attr]

    def _note_lines(self, op: Op, tiles: list[tuple[str, TileType]], along: int) -> None:
        """Order and running combinations: each line along the axis is on its own."""
        for (name, typ), result in product(tiles, op.results):
            self.fixed.append((name, along))
            rank = result.type.rank if isinstance(result.type, TileType) else 0
            kept = [k for k in range(typ.rank) if rank == typ.rank or k != along][:rank]
            for at, k in enumerate(kept):
                if k != along or op.op not in ("topk", "histogram"):  # which give as many as they are told
                    self.join((name, k), (result.name, at))
                else:
                    self.fixed.append((result.name, at))


def root_of(tensor: Operand, views: dict[str, Operand]) -> str:
    assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
    made = views.get(tensor.name)
    return tensor.name if made is None else root_of(made, views)


def load_and_transpose(
    load: Op, source: Operand, axes: tuple[int, ...], fresh: Callable[[str, TileType], Var]
) -> tuple[Op, Op]:
    """A load of a transposed tensor as one of the tensor that it is a view of, and a transpose.

    source: that tensor; axes: those of it that the axes of the view are; fresh: names the tile that is loaded.
    """
    rank, result = len(axes), load.results[0]
    of = [axes.index(k) for k in range(rank)]
    assert isinstance(result.type, TileType)
    loaded = fresh(result.name, TileType(result.type.dtype, tuple(result.type.shape[k] for k in of)))
    args = load.args
    places = (*(args[1 + k] for k in of), *(args[1 + rank + k] for k in of), *args[1 + 2 * rank :])
    turned = replace(load, args=(source, *places), results=(loaded,))
    return turned, Op("transpose", (result,), (loaded,), (("axes", axes),), (), load.loc)
