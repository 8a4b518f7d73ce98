# SPDX-License-Identifier: MIT
"""Along which axes tiles are complete: all of their declared extent is valid, whenever they have a value.

Of a variable that is assigned in several places, such as one that a loop carries, this has to be true of everything
that it is assigned; the valid extents of others follow where they are computed.  In ::

    %acc = tfull 0.0:f32, [16, 64] : !pto.tile<16x64xf32>
    FOR %j:idx, 0:idx, %n:idx, 1:idx
      FUSE %acc
        %t = tload %x[%r, %j] [16, 64], 0.0:f32 {pad=true} : !pto.tile<16x64xf32>
        %acc = tadd %acc, %t : !pto.tile<16x64xf32>
      ENDFUSE
    ENDFOR

%acc is complete along both axes; without the pad value, along none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pto_jit.ir.nodes import Block, Const, Fuse, Op, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.groups.axes import Axes, axes_of_group, is_tile

Complete = Mapping[str, tuple[bool, ...]]
_Source = tuple[Axes, str | tuple[bool, ...]]
"""A tile that a group reads: its axes, and its name or, of a load, which of them are complete."""
_Result = tuple[Var, Axes]


_last: list[tuple[Block, Complete]] = []
"""What was found of the last body: who forms groups and who looks at them ask the same.  A body never changes."""


def complete_axes(body: Block) -> Complete:
    """Per axis of the tiles of a function whose groups were formed, whether it is known to be complete."""
    for known, found in _last[:]:
        if known is body:
            return found
    found = _Search(body).found
    _last[:] = [(body, found)]
    return found


class _Search:
    """The largest solution: what is found of a tile holds as long as nothing that it is assigned says otherwise."""

    def __init__(self, body: Block) -> None:
        self.found: dict[str, tuple[bool, ...]] = {}
        self.loaded: dict[int, tuple[bool, ...]] = {}  # by the identity of the load
        self.read: set[str] = set()  # where less is found of these tiles, what reads them is looked at again
        self.changed = True
        flat = list(statements(body))
        ops = [s for s in flat if type(s) is Op]
        for op in ops:
            self.found.update([(r.name, tuple([e is not None for e in r.type.shape])) for r in op.results
                               if type(r.type) is TileType])  # fmt: skip
        for op in ops:
            if op.op == "load":
                self.loaded[id(op)] = known = loaded_axes(op)
                self._assign(op.results[0], known)
        grouped = {id(s) for group in flat if type(group) is Fuse for s in group.body}
        work: list[Op | tuple[list[_Source], list[_Result]]] = []
        for stmt in flat:
            if type(stmt) is Fuse:
                work.append(self._of_group(stmt))
            elif type(stmt) is Op and id(stmt) not in grouped and stmt.op != "load" and any(map(is_tile, stmt.results)):
                work.append(stmt)
        while self.changed:
            self.changed = False
            for one in work:
                if isinstance(one, Op):
                    self._alone(one)
                else:
                    self._group(*one)

    def _assign(self, var: Var, axes: Sequence[bool]) -> None:
        """A tile is assigned what is complete along these axes."""
        before = self.found[var.name]
        both = tuple([a and b for a, b in zip(axes, before, strict=True)])
        if both != before:
            self.found[var.name] = both
            self.changed |= var.name in self.read

    def _alone(self, op: Op) -> None:
        """An operation outside of groups that is not a load."""
        names = [a.name for a in op.args if isinstance(a, Var) and is_tile(a)]
        self.read.update(names)
        tiles = [self.found.get(name) for name in names]
        for r in op.results:
            if isinstance(r.type, TileType):
                known = None if None in tiles else _computed(op, tiles)  # type: ignore[arg-type]
                self._assign(r, known or (False,) * r.type.rank)

    def _of_group(self, group: Fuse) -> tuple[list[_Source], list[_Result]]:
        """The tiles that decide how much a group computes, and those that it gives."""
        state = axes_of_group(group.body)
        sources: list[_Source] = [(state.found(axes), name) for name, axes in state.outside.items()]
        results: list[_Result] = []
        for op, given in zip([s for s in group.body if isinstance(s, Op)], state.given, strict=True):
            if op.op == "load":
                if given is not None and False in self.loaded[id(op)]:
                    sources.append((state.found(given), self.loaded[id(op)]))
                continue
            for r in op.results:
                if type(r.type) is TileType:
                    axes = None if r.name in state.floating else state.axes.get(r.name)
                    results.append((r, (None,) * r.type.rank if axes is None else state.found(axes)))
        return sources, results

    def _group(self, sources: Sequence[_Source], results: Sequence[_Result]) -> None:
        """A group computes as much along an axis as all tiles have that come from outside; nothing at all where one
        has nothing along an axis of extent 1."""
        short: set[int | None] = set()
        for axes, of in sources:
            if isinstance(of, str):
                self.read.add(of)
                complete = self.found.get(of) or (False,) * len(axes)
            else:
                complete = of
            if False in complete:
                short.update([axis for axis, whole in zip(axes, complete, strict=True) if not whole])
        if not short:
            return  # which is what was supposed of its results
        for var, axes in results:
            self._assign(var, [
                None not in short and extent is not None and (axis is None or axis not in short)
                for extent, axis in zip(var.type.shape, axes, strict=True)  # type: ignore[union-attr]
            ])  # fmt: skip


def loaded_axes(op: Op) -> tuple[bool, ...]:
    """Of a load: everything with a pad value, else what lies inside of a tensor of known extents."""
    tensor, tile = op.args[0].type, op.results[0].type
    assert isinstance(tensor, TensorType) and isinstance(tile, TileType)
    if op.attr("pad"):
        return tuple(e is not None for e in tile.shape)
    return tuple(
        extent is not None and size is not None and isinstance(at, Const) and 0 <= at.value <= size - extent
        for extent, size, at in zip(tile.shape, tensor.shape, op.args[1 : 1 + tile.rank], strict=True)
    )


def _computed(op: Op, tiles: Sequence[tuple[bool, ...]]) -> tuple[bool, ...] | None:
    """Of an operation outside of groups, from what is known of its operands; None: nobody knows."""
    match op.op:
        case "dot" if len(tiles[0]) == len(tiles[1]) == 2:
            return tiles[0][0], tiles[1][1]
        case "transpose":
            axes = op.attr("axes")
            assert isinstance(axes, tuple)
            return tuple(tiles[0][int(k)] for k in axes)  # type: ignore[arg-type]
        case "copy":
            return tiles[0]
        case _:
            return None
