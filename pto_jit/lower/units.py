# SPDX-License-Identifier: MIT
"""Reductions over axes of extent 1 that may be empty: over what is valid of them, an axis of 0 or 1 elements.

A group (`fuse`) has no loop for an axis of extent 1; where one of its tiles has nothing along such an axis it computes
nothing.  A reduction gives its identity then, as do those after it.  Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,1x8,f32>) {
      %t = tload %x[0, 0] [1, 8] : !pto.tile<1x8xf32>
      %s = tsum %t {axes=(0,), keepdims=true} : !pto.tile<1x8xf32>
      tstore %s, %y[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %y: !pto.memref<gm,1x8,f32>) {
      %t = tload %x[0, 0] [1, 8] : !pto.tile<1x8xf32>
      %valid = tvalid %t {axis=0} : i64
      %there = tile_slice %t[0, 0] [%valid, 8] : !pto.tile<?x8xf32>
      %s = tsum %there {axes=(0,), keepdims=true} : !pto.tile<1x8xf32>
      tstore %s, %y[0, 0]
      return
    }

Axes that are known to be complete (`complete`) stay as they are, and so do reductions over other axes, too, of groups
all of whose other results have nothing either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pto_jit.ir.nodes import Block, Func, Fuse, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import map_blocks, statements
from pto_jit.lower.axes import is_reduction, is_tile, reduced_axes, touches_tiles, unit_reshape
from pto_jit.lower.complete import Complete, complete_axes, loaded_axes
from pto_jit.lower.names import Names, index
from pto_jit.slotted import replace

Units = frozenset[tuple[str, int]]
"""Axes of extent 1 that may be empty, of tiles that a group reads: an axis of a tile is empty where one of them is."""
_NONE: Units = frozenset()


def over_what_is_valid(func: Func, fused: Func) -> Func | None:
    """A function whose groups were formed, without groups and with such reductions over what is valid; None: it has
    none."""
    if not any(type(s) is Op and _unit_axes(s) for s in statements(func.body)):
        return None
    complete = complete_axes(fused.body)
    groups = [s for s in statements(fused.body) if isinstance(s, Fuse)]
    found = [op for group in groups for op in _Group(group, complete).found()]
    grouped = {id(op) for group in groups for op in group.body}
    alone = [s for s in statements(fused.body) if isinstance(s, Op) and id(s) not in grouped]
    found += [op for op in alone if _may_be_empty(op, complete)]
    if not found:
        return None
    names, those = Names(func), {id(op) for op in found}

    def block(body: Block) -> Block:
        out: list[Stmt] = []
        for stmt in body:
            out += _rewritten(stmt, names) if isinstance(stmt, Op) and id(stmt) in those else (stmt,)
        return tuple(out) if len(out) != len(body) else body

    return replace(func, body=map_blocks(func.body, block))


def _unit_axes(op: Op) -> tuple[int, ...]:
    """The axes of extent 1 that a reduction runs over."""
    if not is_reduction(op) or not isinstance(op.args[0].type, TileType):
        return ()
    shape = op.args[0].type.shape
    return tuple(k for k in reduced_axes(op) if shape[k] == 1)


def _may_be_empty(op: Op, complete: Complete) -> bool:
    """Of an operation outside of groups: whether it reduces an axis of extent 1 that may be empty."""
    over = _unit_axes(op)
    if not over:
        return False
    known = complete.get(op.args[0].name)  # pyright: ignore[reportAttributeAccessIssue]  # tiles are variables
    return known is None or not all(known[k] for k in over)


class _Group:
    """Which axes of extent 1 decide whether there is anything of the tiles of a group."""

    def __init__(self, group: Fuse, complete: Complete) -> None:
        self.group = group
        self.complete = complete
        self.of: dict[str, tuple[Units, ...]] = {}  # per axis of a tile
        self.every = _NONE  # of all tiles that the group reads
        self.given: list[Units] = []  # of the tiles that it stores or hands on

    def found(self) -> list[Op]:
        """Reductions that may be of nothing while there is something to give."""
        only: list[Op] = []
        others: list[Op] = []
        for op in self.group.body:
            if not isinstance(op, Op) or not touches_tiles(op) or op.op in ("valid", "extent"):
                continue
            if op.op == "store":
                self.given.append(_NONE.union(*self._units(op.args[0])))
                continue
            over = _unit_axes(op)
            if over and any(self._units(op.args[0])[k] for k in over):
                (only if len(over) == len(reduced_axes(op)) else others).append(op)
            units = self._computed(op)
            self.of.update([(r.name, units) for r in op.results if is_tile(r)])
        self.given += [_NONE.union(*self.of[name]) for name in self.group.keep if name in self.of]
        return [*only, *others] if any(units != self.every for units in self.given) else only

    def _units(self, tile: Operand) -> tuple[Units, ...]:
        """Per axis of an operand; a tile that nothing was said of comes from outside."""
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        if tile.name not in self.of:
            self._read(tile, self.complete.get(tile.name) or (False,) * tile.type.rank)
        return self.of[tile.name]

    def _read(self, tile: Var, complete: Sequence[bool]) -> tuple[Units, ...]:
        assert isinstance(tile.type, TileType)
        units = tuple([frozenset({(tile.name, k)}) if extent == 1 and not known else _NONE
                       for k, (extent, known) in enumerate(zip(tile.type.shape, complete, strict=True))])  # fmt: skip
        self.of[tile.name] = units
        self.every = self.every.union(*units)
        return units

    def _computed(self, op: Op) -> tuple[Units, ...]:
        """Per axis of the result of an operation."""
        result = op.results[0]
        if isinstance(result.type, ScalarType):
            return ()
        assert isinstance(result.type, TileType)
        if op.op == "load":
            return self._read(result, loaded_axes(op))
        tiles = [self._units(a) for a in op.args if is_tile(a)]
        if is_reduction(op):
            over = reduced_axes(op)
            if op.attr("keepdims"):
                return tuple(_NONE if k in over else units for k, units in enumerate(tiles[0]))
            return tuple(units for k, units in enumerate(tiles[0]) if k not in over)
        if op.op == "reshape":
            which = unit_reshape(op)
            assert which is not None
            return tuple(_NONE if k is None else tiles[0][k] for k in which)
        return tuple(_joined(tiles, result.type.rank - k) for k in range(result.type.rank))


def _joined(tiles: Iterable[tuple[Units, ...]], from_last: int) -> Units:
    """Of an axis where several tiles meet."""
    return _NONE.union(*[units[-from_last] for units in tiles if from_last <= len(units)])


def _rewritten(op: Op, names: Names) -> tuple[Op, ...]:
    """A reduction over what is valid of the axes of extent 1 among those that it runs over."""
    tile, over = op.args[0], _unit_axes(op)
    assert isinstance(tile, Var) and isinstance(tile.type, TileType)
    out: list[Op] = []
    extents: list[Operand] = []
    for axis, extent in enumerate(tile.type.shape):
        if axis in over or extent is None:
            size = names.fresh("valid" if axis in over else "extent")
            out.append(Op("valid" if axis in over else "extent", (size,), (tile,), (("axis", axis),), (), op.loc))
            extents.append(size)
        else:
            extents.append(index(extent))
    shape = tuple(None if k in over else extent for k, extent in enumerate(tile.type.shape))
    there = names.fresh("there", replace(tile.type, shape=shape))
    starts = (index(0),) * tile.type.rank
    out.append(Op("tile_slice", (there,), (tile, *starts, *extents), (("drop", ()),), (), op.loc))
    return (*out, replace(op, args=(there,)))
