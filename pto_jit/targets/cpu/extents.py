# SPDX-License-Identifier: MIT
"""The extents of a group of tile operations: of its axes, and what its tiles are declared to have."""

from __future__ import annotations

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Fuse, Op, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import is_reduction, reduced_axes
from pto_jit.lower.groups.units import Units, operations
from pto_jit.semantic import failures
from pto_jit.targets.cpu.constants import Index, Value
from pto_jit.targets.cpu.elements import need_places
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.tiles import fits_anything, may_fit, need_extent
from pto_jit.targets.cpu.values import Tile
from pto_jit.targets.loops.form import Nest, Places
from pto_jit.targets.loops.plan import places_of

LONG_ROW = 4096
"""Elements of a row up to which a buffer for it has room for all that is declared: memory of the function, which needs
no calls to take it and give it back where the group runs."""


class Extents:
    """What is known of the extents of a group.

    tiles: those that it reads, by their names.  given: the valid extents of the axes of its space.  alive: whether
    every tile has an element along each axis that is repeated; if not, `extents` are 0, else those given.  along: such
    axes that were repeated along axes of the space, and reduced there: of what they lack only these are 0, so that the
    reductions give their identities.  whole: what tiles are declared to have along the axes, where that is a constant.
    longest: of a row.
    """

    tiles: dict[str, Tile]
    alive: bool | Value
    along: dict[tuple[str, int], frozenset[int]]
    given: list[Index]
    extents: tuple[Index, ...]
    whole: tuple[int | None, ...]

    def __init__(self, w: FunctionWriter, fused: Fuse, nest: Nest) -> None:
        self.w = w
        self.code = w.code
        self.fused = fused
        self.nest = nest
        self.loc: Loc = fused.loc
        self.types = {r.name: r for op in fused.body if isinstance(op, Op) for r in op.results}
        self.shapes: dict[int, tuple[Index, ...]] = {}
        self.there: dict[tuple[str, int], bool | Value] = {}  # axes of extent 1 of what is read: whether it has them
        self.units: Units | None = None
        self.longest: Index = 0  # row, if there are rows

    def _extents(self) -> None:
        """The valid extents of the space's axes, and the rule that tiles that meet agree."""
        w, code, nest = self.w, self.code, self.nest
        sure: list[list[tuple[Index, str]]] = [[] for _ in range(nest.rank)]
        said: list[list[tuple[Index, str]]] = [[] for _ in range(nest.rank)]
        maybe: list[list[tuple[Index, bool | Value, str]]] = [[] for _ in range(nest.rank)]
        alive: dict[tuple[str, int], bool | Value] = {}
        read = {a.name for op in self.fused.body if isinstance(op, Op) and op not in nest.views
                for a in op.args if type(a) is Var}  # fmt: skip
        for source in nest.sources:
            tile = self.tiles[source.name]
            for k, (place, declared, valid) in enumerate(zip(source.axes, tile.declared, tile.valid, strict=True)):
                if place is None:
                    there = self.there[source.name, k] = code.compare("==", valid, 1)
                    if source.name in read:  # others are loaded here, and handed on
                        alive[source.name, k] = there
                    continue
                said[place].append((declared, source.name))
                if may_fit(tile, k):
                    maybe[place].append((valid, fits_anything(w, tile, k), source.name))
                else:
                    sure[place].append((valid, source.name))
        self.along = self._reduced_along(alive)
        self.alive = code.all_of([there for unit, there in alive.items() if unit not in self.along])
        self._check_broadcasts()
        self.given = []
        for axis in range(nest.rank):
            for other, name in said[axis][1:]:
                first, source = said[axis][0]
                same = first is other or code.compare("==", first, other)
                if same is not True:
                    site = w.module.site(*failures.DECLARED.at(axis=axis), self._meeting(source, name))
                    code.check(same, site, first, other)
            self.given.append(self._extent(axis, sure[axis], maybe[axis]))
        self.extents = tuple(code.pick(self._lives(axis), e, 0) for axis, e in enumerate(self.given))
        self.whole = tuple(next((e for e in (given, *(d for d, _ in axis)) if isinstance(e, int)), None)
                           for given, axis in zip(self.given, said, strict=True))  # fmt: skip
        self._check_searches()
        if nest.rank:
            inner, most = self.extents[-1], self.whole[-1]
            self.longest = inner if most is None or most > LONG_ROW else most

    def _reduced_along(self, alive: dict[tuple[str, int], bool | Value]) -> dict[tuple[str, int], frozenset[int]]:
        """`along`; alive: axes of extent 1, with whether there is an element."""
        unsure = {unit for unit, there in alive.items() if there is not True}
        if not unsure or not any(isinstance(op, Op) and is_reduction(op) for op in self.fused.body):
            return {}
        units = self.units_of_tiles()
        lacking = {unit for own, met in units.given for unit in met - own} & unsure
        out: dict[tuple[str, int], set[int]] = {}
        for name, empty in units.of.items() if lacking else ():
            for place, some in zip(self._places_of(name) or (), empty, strict=False):
                if place is not None:
                    for unit in some & lacking:
                        out.setdefault(unit, set()).add(place)
        return {unit: frozenset(places) for unit, places in out.items()}

    def units_of_tiles(self) -> Units:
        """What decides whether there is anything of the group's tiles."""
        if self.units is None:
            self.units = Units(operations(self.fused), self.fused.keep, self.w.complete)
        return self.units

    def _lives(self, axis: int) -> bool | Value:
        """Whether there is anything along an axis of the space, but for what valid extents say."""
        return self.code.all_of([self.alive, *(self.there[u] for u, places in self.along.items() if axis in places)])

    def has(self, name: str, axis: int) -> bool | Value:
        """Whether a tile of the group has what `along` leaves out, and `alive`, along an axis."""
        if not self.along:
            return self.alive
        empty = self.units_of_tiles().of.get(name)
        some = sorted(empty[axis]) if empty is not None else ()
        return self.code.all_of([self.alive, *(self.there[unit] for unit in some if unit in self.along)])

    def _check_searches(self) -> None:
        """Lines that `argmax` and `argmin` search are not longer than their results can say."""
        for at, op in enumerate(self.fused.body):
            if not isinstance(op, Op) or op.op not in ("argmax", "argmin") or not is_reduction(op):
                continue
            operand = op.args[0]
            assert isinstance(operand, Var)
            over, places = reduced_axes(op), self._places_of(operand.name)
            declared = [self._declared(operand.name, at)[k] for k in over]
            place = places[over[0]] if places is not None else None
            need_places(self.w, op, declared if place is None else [self.extents[place]], declared)

    def _check_broadcasts(self) -> None:
        """`broadcast_to` repeats axes whose declared extent is the constant 1; all others have the extent asked for."""
        code = self.code
        for at, op in enumerate(self.fused.body):
            if not isinstance(op, Op) or op.op != "broadcast_to":
                continue
            operand = op.args[0]
            assert isinstance(operand, Var) and isinstance(operand.type, TileType)
            lead = len(op.args) - 1 - operand.type.rank
            wanted = [self.w.index(a) for a in op.args[1 + lead :]]
            for axis, (known, have, want) in enumerate(
                zip(operand.type.shape, self._declared(operand.name, at), wanted, strict=True)
            ):
                same = known == 1 or code.compare("==", have, want)
                if same is not True:
                    site = self.w.module.site(*failures.DECLARED.at(axis=lead + axis), op.loc)
                    code.check(same, site, have, want)

    def _extent(self, axis: int, sure: list[tuple[Index, str]], maybe: list[tuple[Index, bool | Value, str]]) -> Index:
        code = self.code

        def check(agree: bool | Value, name: str, other: Index) -> None:
            if agree is not True:
                site = self.w.module.site(*failures.VALID.at(axis=axis), self._meeting(source, name))
                code.check(agree, site, out, other)

        if sure:
            out, source = sure[0]
            for other, name in sure[1:]:
                if other is not out:
                    check(code.compare("==", out, other), name, other)
        elif maybe:
            out, _, source = maybe[0]
            for valid, _, _ in maybe[1:]:
                out = code.min(out, valid)
        else:
            return self._declared_extent(axis)
        for valid, anything, name in maybe:
            check(code.any_of([code.compare("==", valid, out), anything]), name, valid)
        return out

    def _meeting(self, one: str, other: str) -> Loc:
        """The operation at which what comes from two tiles meets for the first time."""
        from_them = {one: {one}, other: {other}}
        for op in self.fused.body:
            if not isinstance(op, Op):
                continue
            joint = {name for a in op.args if isinstance(a, Var) for name in from_them.get(a.name, ())}
            if len(joint) == 2:
                return op.loc
            if joint:
                from_them.update((r.name, joint) for r in op.results)
        return self.loc

    def _declared_extent(self, axis: int) -> Index:
        """The extent of an axis that only generated tiles have: from the operands of the operation that says it."""
        places: list[tuple[str, Places]] = [(r.name, r.axes) for r in self.nest.results if not r.scalar]
        for store in self.nest.stores:
            value = store.op.args[0]
            assert isinstance(value, Var)
            places.append((value.name, store.axes))
        for op in self.fused.body:  # an axis that nothing outside has: of `broadcast_to`, and summed away in the group
            for r in op.results if isinstance(op, Op) else ():
                found = self._places_of(r.name) if isinstance(r.type, TileType) else None
                if found is not None:
                    places.append((r.name, found))
        for name, axes in places:
            if axis in axes:
                extent = self._declared(name)[axes.index(axis)]
                if extent is not None:
                    return extent
        raise AssertionError(f"no extent for axis {axis} of {self.fused}")

    def _declared(self, name: str, before: int | None = None) -> tuple[Index, ...]:
        """The declared extents of a tile, as the group leaves it or before its operation number `before`."""
        made = self.types.get(name)
        if made is not None and isinstance(made.type, TileType) and None not in made.type.shape:
            return made.type.shape  # pyright: ignore[reportReturnType]
        defined = [k for k, op in enumerate(self.fused.body[:before])
                   if isinstance(op, Op) and any(r.name == name for r in op.results)]  # fmt: skip
        if not defined:
            return self.w.tile_named(name).declared
        at = defined[-1]
        op = self.fused.body[at]
        assert isinstance(op, Op)
        type = next(r.type for r in op.results if r.name == name)
        assert isinstance(type, TileType)
        known = self.shapes.get(at)
        if known is None:
            known = self.shapes[at] = self._shape(op, at, type)
        return known

    def _shape(self, op: Op, at: int, type: TileType) -> tuple[Index, ...]:
        """The declared extents that operation number `at` gives its result."""
        match op.op:
            case "full" | "rand" | "randn":
                extents = tuple(self.w.index(a) for a in op.args[1 if op.op == "full" else 2 :])
                for axis, extent in enumerate(extents):
                    need_extent(self.w, op, axis, extent)
                return extents
            case "arange":
                return (self.code.max(self.w.index(op.args[2]), 0),)
            case "reshape" | "broadcast_to":
                return tuple(self.w.index(a) for a in op.args[1:])
            case "load":
                rank = type.rank
                return tuple(self.w.index(a) for a in op.args[1 + rank : 1 + 2 * rank])
            case _:
                pass
        parts = [(a.type, self._declared(a.name, at)) for a in op.args
                 if isinstance(a, Var) and isinstance(a.type, TileType)]  # fmt: skip
        if is_reduction(op):
            over = reduced_axes(op)
            if op.attr("keepdims"):
                return tuple(1 if k in over else e for k, e in enumerate(parts[0][1]))
            return tuple(e for k, e in enumerate(parts[0][1]) if k not in over)
        out: list[Index] = [1] * type.rank
        for operand, extents in parts:
            lead = type.rank - len(extents)
            for k, (extent, known_extent) in enumerate(zip(extents, operand.shape, strict=True)):
                if known_extent != 1 and (isinstance(extent, int) or out[lead + k] == 1):
                    out[lead + k] = extent
        return tuple(e if e is not None else x for e, x in zip(type.shape, out, strict=True))

    def _places_of(self, name: str) -> Places | None:
        return places_of(self.fused, name)
