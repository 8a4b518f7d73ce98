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
all of whose other results have nothing either.  `fuse` ends groups before results that are not made of such tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pto_jit.ir.nodes import Block, Func, Fuse, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import map_blocks, statements
from pto_jit.lower.complete import Complete, complete_axes, loaded_axes
from pto_jit.lower.groups.axes import is_reduction, is_tile, reduced_axes, touches_tiles, unit_reshape
from pto_jit.lower.names import Names, index
from pto_jit.slotted import replace

Empty = frozenset[tuple[str, int]]
"""Axes of extent 1 that may be empty, of tiles that a group reads: an axis of a tile is empty where one of them is."""
_NONE: Empty = frozenset()


def over_what_is_valid(func: Func, fused: Func) -> Func | None:
    """A function whose groups were formed, without groups and with such reductions over what is valid; None: it has
    none."""
    if not any(type(s) is Op and _unit_axes(s) for s in statements(func.body)):
        return None
    complete = complete_axes(fused.body)
    groups = [s for s in statements(fused.body) if isinstance(s, Fuse)]
    found: list[Op] = []
    for group in groups:
        units = Units(operations(group), group.keep, complete)
        found += [*units.only, *units.others] if units.differ else units.only
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


def operations(group: Fuse) -> list[Op]:
    """What a group does."""
    return [s for s in group.body if isinstance(s, Op)]


def uneven(fused: Func) -> Complete | None:
    """What is known of the axes of a function's tiles, where there may be nothing of tiles that only a part of what a
    group gives is made of; None: there is no such group."""
    groups = [s for s in statements(fused.body) if isinstance(s, Fuse) and len(s.body) > 1]
    groups = [group for group in groups if Units(operations(group), group.keep, {}).apart]
    if not groups:
        return None
    complete = complete_axes(fused.body)
    return complete if any(Units(operations(group), group.keep, complete).apart for group in groups) else None


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


class Units:
    """Which axes of extent 1 decide whether there is anything of the tiles of a group.

    of: per axis of a tile, those that leave nothing of it; met: those of all that it is made of, reduced or not; every:
    those of all tiles that the group reads; given: the tiles that it stores or hands on, and those that numbers which
    it hands on are reductions of, by both; only, others: reductions over axes of extent 1 that may be empty alone, and
    over other axes, too.
    """

    def __init__(self, ops: Sequence[Op], keep: Collection[str], complete: Complete) -> None:
        self.complete = complete
        self.of: dict[str, tuple[Empty, ...]] = {}
        self.met: dict[str, Empty] = {}
        self.every = _NONE
        self.given: list[tuple[Empty, Empty]] = []
        self.only: list[Op] = []
        self.others: list[Op] = []
        loaded: set[str] = set()
        numbers: dict[str, frozenset[tuple[Empty, Empty]]] = {}  # and the tiles that they are reductions of
        for op in ops:
            if not touches_tiles(op):
                made_of = [numbers.get(a.name, ()) for a in op.args if type(a) is Var]
                numbers.update((r.name, frozenset[tuple[Empty, Empty]]().union(*made_of)) for r in op.results)
                continue
            if op.op in ("valid", "extent"):
                continue
            if op.op == "store":
                self._units(op.args[0])
                self._give(op.args[0])
                continue
            over = _unit_axes(op)
            if over and any(self._units(op.args[0])[k] for k in over):
                (self.only if len(over) == len(reduced_axes(op)) else self.others).append(op)
            units = self._computed(op)
            met = _NONE.union(*units, *[self.met.get(a.name, _NONE) for a in op.args if type(a) is Var])
            for r in op.results:
                self.met[r.name] = met
                if not is_tile(r):
                    numbers[r.name] = frozenset({(_NONE.union(*self._units(op.args[0])), met)})
                else:
                    self.of[r.name] = units
                    (loaded.add if op.op == "load" else loaded.discard)(r.name)
        for name in keep:
            if name in self.of and name not in loaded:
                self._give(name)
            self.given += numbers.get(name, ())

    def _give(self, tile: Operand | str) -> None:
        name = tile if isinstance(tile, str) else tile.name  # pyright: ignore[reportAttributeAccessIssue]
        self.given.append((_NONE.union(*self.of[name]), self.met[name]))

    @property
    def differ(self) -> bool:
        """Whether there may be nothing of some of what the group gives while there is something of the rest."""
        return any(units != self.every for units, _ in self.given)

    @property
    def apart(self) -> bool:
        """The same, of what is not made of the tiles that there may be nothing of.

        A reduction over an axis along which such a tile was repeated stays in the group, where the loop of that axis
        has no iterations then: a second nest would cost more.
        """
        return any(met != self.every for _, met in self.given)

    def _units(self, tile: Operand) -> tuple[Empty, ...]:
        """Per axis of an operand; a tile that nothing was said of comes from outside."""
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        units = self.of.get(tile.name)
        if units is None:
            units = _read(tile, self.complete.get(tile.name) or (False,) * tile.type.rank)
            self.of[tile.name] = units
            self.met[tile.name] = _NONE.union(*units)
        self.every = self.every.union(*units)
        return units

    def _computed(self, op: Op) -> tuple[Empty, ...]:
        """Per axis of the result of an operation."""
        result = op.results[0]
        tiles = [self._units(a) for a in op.args if is_tile(a)]
        if isinstance(result.type, ScalarType):
            return ()
        assert isinstance(result.type, TileType)
        if op.op == "load":
            return _read(result, loaded_axes(op))
        if is_reduction(op):
            over = reduced_axes(op)
            if op.attr("keepdims"):
                return tuple(_NONE if k in over else units for k, units in enumerate(tiles[0]))
            return tuple(units for k, units in enumerate(tiles[0]) if k not in over)
        if op.op == "reshape":
            which = unit_reshape(op)
            assert which is not None
            return tuple(_NONE if k is None else tiles[0][k] for k in which)
        rank = result.type.rank
        first = tiles[0] if tiles else ()
        if len(first) == rank and tiles.count(first) == len(tiles):
            return first
        return tuple([_joined(tiles, rank - k) for k in range(rank)])


def _read(tile: Var, complete: Sequence[bool]) -> tuple[Empty, ...]:
    """Per axis of a tile that was made elsewhere, or is loaded."""
    assert isinstance(tile.type, TileType)
    return tuple([frozenset({(tile.name, k)}) if extent == 1 and not known else _NONE
                  for k, (extent, known) in enumerate(zip(tile.type.shape, complete, strict=True))])  # fmt: skip


def _joined(tiles: Iterable[tuple[Empty, ...]], from_last: int) -> Empty:
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
