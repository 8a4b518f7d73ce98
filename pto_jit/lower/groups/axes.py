# SPDX-License-Identifier: MIT
"""Which axes of the tiles of a group are one axis.

A group of tile operations runs as one nest of loops when the axes of all its tiles, identified with each other wherever
an elementwise operation lines them up, form one sequence of which every tile has a subsequence: leading *row axes* and
one *inner* axis.  `Axial` grows that picture one operation at a time and says no to one that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pto_jit.ir.nodes import Block, Op, Operand, Var
from pto_jit.ir.types import TileType
from pto_jit.slotted import field, mutable, replace

ELEMENTWISE = frozenset(
    """add sub mul div floordiv mod pow max min maximum minimum fmod atan2 neg abs sign square relu exp exp2 log log2
    log1p expm1 sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid silu gelu floor ceil round trunc and or xor not shl
    shr fma eq ne lt le gt ge isnan isinf isfinite select cast bitcast copy rand_at randn_at""".split()
)
GENERATED = frozenset(["full", "arange", "rand", "randn"])
REDUCTIONS = frozenset("sum prod max min any all argmax argmin".split())
_GROUPED = ELEMENTWISE | GENERATED | REDUCTIONS | {"load", "store", "reshape", "broadcast_to", "valid", "extent"}
EXPENSIVE = frozenset(
    """div floordiv mod pow fmod atan2 exp exp2 log log2 log1p expm1 sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid
    silu gelu rand_at randn_at""".split()
)
_PATIENCE = 16  # so many operations on tiles that share no axis with the group's are looked at, for one that joins them
Axes = tuple[int | None, ...]


def is_reduction(op: Op) -> bool:
    """max and min are elementwise with two operands and reductions with one."""
    return op.op in REDUCTIONS and (op.op not in ("max", "min") or len(op.args) == 1)


def never_grouped(op: Op) -> bool:
    """Whether an operation is part of no group whatever: `Axial` does not have to look at it."""
    return op.op not in _GROUPED


def is_elementwise(op: Op) -> bool:
    return op.op in ELEMENTWISE and not is_reduction(op)


def is_tile(operand: Operand) -> bool:
    return isinstance(operand.type, TileType)


def reduced_axes(op: Op) -> tuple[int, ...]:
    """The axes that a reduction runs over, whichever way its attributes say it."""
    operand = op.args[0].type
    assert isinstance(operand, TileType)
    axes = op.attr("axes")
    if axes is None:
        axis = op.attr("axis")
        return tuple(range(operand.rank)) if axis is None else (int(axis),)  # pyright: ignore[reportArgumentType]
    return tuple(int(a) for a in axes)  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]


def unit_reshape(op: Op) -> tuple[int | None, ...] | None:
    """For a reshape that only inserts or removes axes of extent 1: per result axis the operand's axis (None: new).

    Axes correspond in order when the others are equal in number and provably have the same extents.  Those of extent 1
    stay where the operation says so (`axes`).
    """
    told = op.attr("axes")
    if isinstance(told, tuple):
        return tuple([None if k == -1 else k for k in told])  # pyright: ignore[reportReturnType]
    source, result = op.args[0].type, op.results[0].type
    assert isinstance(source, TileType) and isinstance(result, TileType)
    old = [i for i, n in enumerate(source.shape) if n != 1]
    new = [i for i, n in enumerate(result.shape) if n != 1]
    if len(old) != len(new):
        return None
    for i, j in zip(old, new, strict=True):
        a, b = source.shape[i], result.shape[j]
        if a != b or (a is None and len(old) > 1):  # one run-time extent follows from the number of elements
            return None
    of = dict(zip(new, old, strict=True))
    return tuple(of.get(j) for j in range(result.rank))


@mutable
class Axial:
    """Which axes of the tiles of a group are one axis: classes of axes, grown one operation at a time.

    `axes[name]` gives per axis of a tile its class (an int; look up with `find`), or None for an axis of extent 1,
    which follows any other.  A *floating* value was generated in the group and takes the axes of what it meets.

    Of `x + y + 2 * z` the product has axes of its own until the second sum: the group is *apart*, and cannot end.
    """

    parent: list[int] = field(default_factory=list)
    axes: dict[str, Axes] = field(default_factory=dict)
    floating: set[str] = field(default_factory=set)
    outside: dict[str, Axes] = field(default_factory=dict)  # tiles defined before the group
    inside: set[str] = field(default_factory=set)  # all results so far
    hoisted: set[str] = field(default_factory=set)  # scalars that need nothing computed by the group
    measured: set[str] = field(default_factory=set)  # scalars made of extents: known once all loads are
    late: set[str] = field(default_factory=set)  # complete only after the last row
    idle: set[str] = field(default_factory=set)  # loads and views of them that nothing has used yet
    loads: dict[object, str] = field(default_factory=dict)  # the first load of the group, by what is loaded
    same: dict[str, str] = field(default_factory=dict)  # loads of what an earlier one loads
    stores: list[Axes] = field(default_factory=list)  # the axes of each stored value, in order
    reduced: list[tuple[str, str, frozenset[int], Axes]] = field(default_factory=list)  # name, kind, over, of which
    space: tuple[int, ...] = ()
    work: int = 0
    costly: bool = False
    apart: int = 0  # operations since the axes of all tiles were one sequence
    costly_apart: tuple[str, ...] = ()  # results of theirs that had better be computed once
    again: frozenset[str] = frozenset()  # those of them that the nest would compute again in each row
    settled: frozenset[Axes] | None = None
    """The different axes of tiles when `space` was found, while there are no others; None: look again."""
    given: list[Axes | None] = field(default_factory=list)  # of each operation: the axes that its result had after it

    def forget(self, ops: Sequence[Op]) -> bool:
        """Forget the last operations that were admitted, where they are but numbers; the names are theirs alone."""
        if self.apart or self.settled is None or any(map(touches_tiles, ops)):
            return False
        del self.given[len(self.given) - len(ops) :]
        for names in (self.inside, self.hoisted, self.measured):
            names.difference_update([r.name for op in ops for r in op.results])
        return True

    def clone(self) -> Axial:
        return replace(
            self, parent=list(self.parent), axes=dict(self.axes), floating=set(self.floating),
            outside=dict(self.outside), inside=set(self.inside), hoisted=set(self.hoisted), late=set(self.late),
            measured=set(self.measured), stores=list(self.stores), reduced=list(self.reduced), idle=set(self.idle),
            given=list(self.given), loads=dict(self.loads), same=dict(self.same),
        )  # fmt: skip

    def find(self, axis: int) -> int:
        while self.parent[axis] != axis:
            axis = self.parent[axis]
        return axis

    def found(self, axes: Axes) -> Axes:
        parent = self.parent
        for a in axes:
            if a is not None and parent[a] != a:
                return tuple([None if a is None else self.find(a) for a in axes])
        return axes

    def fresh(self, type: TileType) -> Axes:
        out: list[int | None] = []
        for extent in type.shape:
            if extent == 1:
                out.append(None)
            else:
                self.parent.append(len(self.parent))
                out.append(len(self.parent) - 1)
        return tuple(out)

    def of(self, name: str, type: TileType) -> Axes:
        """The axes of a tile; one not seen yet was defined before the group."""
        known = self.axes.get(name)
        if known is None:
            known = self.axes[name] = self.outside[name] = self.fresh(type)
            self.settled = None
        return self.found(known)

    def unify(self, many: list[Axes], rank: int) -> Axes:
        """Line axes up from the right and make them one; None where all have extent 1.  All were `found`."""
        first = many[0]
        if len(first) == rank and many.count(first) == len(many):
            return first
        out: list[int | None] = [None] * rank
        for axes in many:
            for at, axis in enumerate(axes, rank - len(axes)):
                if axis is None:
                    continue
                have = out[at]
                if have is None:
                    out[at] = axis
                else:
                    a, b = self.find(have), self.find(axis)
                    if a != b:
                        self.parent[max(a, b)] = min(a, b)
                        self.settled = None
        return self.found(tuple(out))

    # -- one operation more ---------------------------------------------------------------------------------------

    def admit(self, op: Op) -> bool:
        """Add `op`; False when it cannot be part of this group (the state is then of no further use)."""
        if self.late and any(isinstance(a, Var) and a.name in self.late for a in op.args):
            return False
        if self.loads and not self.inside.isdisjoint([r.name for r in op.results]):
            self._forget_loads({r.name for r in op.results})
        if not (self._tile(op) if touches_tiles(op) else self._scalar(op)):
            return False
        results = op.results
        for result in results:
            self.inside.add(result.name)
        self.given.append(self.axes.get(results[0].name) if results else None)
        if self.idle:
            self._use(op)
        return self.settled is not None or self._settle(op)

    def _use(self, op: Op) -> None:
        """A load joins the space with the operation that uses it: only that says which axis is which."""
        if op.op == "reshape" and isinstance(op.args[0], Var) and op.args[0].name in self.idle:
            self.idle.update(r.name for r in op.results)
            self.settled = None
        elif op.op not in ("load", "valid", "extent"):
            for a in op.args:
                if type(a) is Var and a.name in self.idle:
                    self.idle.discard(a.name)
                    self.settled = None

    @property
    def pending(self) -> bool:
        """Whether there are tiles whose axes are not known to be axes of the space: no group can end here."""
        if self.apart or not self.idle:
            return bool(self.apart)
        space = self.found(self.space)
        return any(
            not _is_subsequence(tuple(a for a in self.found(self.axes[name]) if a is not None), space)
            for name in self.idle if name in self.axes
        )  # fmt: skip

    def _needs_group(self, operands: Iterable[Operand]) -> bool:
        """Whether an operand is computed by the group itself and is not known before the nest starts."""
        names = [a.name for a in operands if type(a) is Var]
        return not self.inside.isdisjoint(names) and not self.inside.intersection(names) <= self.hoisted

    def _scalar(self, op: Op) -> bool:
        if not is_elementwise(op):
            return False
        if not self._needs_group(op.args):
            self.hoisted.update(r.name for r in op.results)
        if any(isinstance(a, Var) and a.name in self.measured for a in op.args):
            self.measured.update(r.name for r in op.results)
        return True

    def _tile(self, op: Op) -> bool:
        name = op.op
        if name in ("valid", "extent"):
            self.hoisted.update(r.name for r in op.results)
            self.measured.update(r.name for r in op.results)
            return True
        if name == "load":
            if self.stores or self._needs_group(op.args):
                return False
            if self.measured and any(isinstance(a, Var) and a.name in self.measured for a in op.args):
                return False
            result = op.results[0]
            if result.name in self.axes:
                self.settled = None
            self.axes[result.name] = self._loaded(op)
            self.idle.add(result.name)
            return True
        if name in GENERATED:
            if self._needs_group(op.args):
                return False
            self.floating.add(op.results[0].name)
            if self.axes.pop(op.results[0].name, None) is not None:
                self.settled = None
            return True
        self.work += 1
        if name in EXPENSIVE:
            self.costly = True
        if name in REDUCTIONS and is_reduction(op):
            return self._reduction(op)
        if name in ELEMENTWISE:
            return self._elementwise(op)
        if name == "reshape":
            return self._reshape(op)
        if name == "broadcast_to":
            return self._broadcast(op)
        if name == "store":
            return self._store(op)
        return False

    def _loaded(self, op: Op) -> Axes:
        """The axes of a load: those of an earlier one of the same elements, if there is any."""
        (result,) = op.results
        what = *op.args, op.attrs, result.type
        first = self.loads.setdefault(what, result.name)
        if first == result.name or any(isinstance(a, Var) and a.name in self.inside for a in op.args):
            return self.fresh(result.type)  # pyright: ignore[reportArgumentType]  # of a load it is a tile
        self.same[result.name] = first
        return self.axes[first]

    def _forget_loads(self, names: set[str]) -> None:
        """Variables are assigned again: they no longer hold what was loaded."""
        self.loads = {what: name for what, name in self.loads.items() if name not in names}
        self.same = {name: first for name, first in self.same.items() if names.isdisjoint((name, first))}

    def _operand_axes(self, operand: Operand) -> Axes | None:
        """None for a floating tile."""
        assert isinstance(operand, Var) and isinstance(operand.type, TileType)
        if operand.name in self.floating:
            return None
        return self.of(operand.name, operand.type)

    def _elementwise(self, op: Op) -> bool:
        result = op.results[0]
        if not isinstance(result.type, TileType):
            return False
        grounded = [self.of(a.name, a.type) for a in op.args
                    if type(a) is Var and type(a.type) is TileType and a.name not in self.floating]  # fmt: skip
        if not grounded:
            self.floating.add(result.name)
            return True
        shape = result.type.shape
        axes = self.unify(grounded, len(shape))
        if None in axes:
            every = list(axes)
            for at, axis in enumerate(axes):
                if axis is None and shape[at] != 1:  # the extent of a generated operand
                    self.parent.append(len(self.parent))
                    every[at] = len(self.parent) - 1
            axes = tuple(every)
        self._define(result.name, axes)
        return True

    def _define(self, name: str, axes: Axes) -> None:
        if self.settled is not None and (axes not in self.settled or self.axes.get(name, axes) != axes):
            self.settled = None
        self.axes[name] = axes
        self.floating.discard(name)

    def _reduction(self, op: Op) -> bool:
        axes = self._operand_axes(op.args[0])
        if axes is None:
            return False
        over = reduced_axes(op)
        gone = frozenset(a for i, a in enumerate(axes) if i in over and a is not None)
        result = op.results[0]
        self.reduced.append((result.name, op.op, gone, axes))
        self.settled = None
        if isinstance(result.type, TileType):
            kept = (None if i in over else a for i, a in enumerate(axes))
            if not op.attr("keepdims"):
                kept = (a for i, a in enumerate(axes) if i not in over)
            self._define(result.name, tuple(kept))
        return True

    def _reshape(self, op: Op) -> bool:
        which = unit_reshape(op)
        if which is None or self._needs_group(op.args[1:]):
            return False
        axes = self._operand_axes(op.args[0])
        if axes is None:
            self.floating.add(op.results[0].name)
        else:
            self._define(op.results[0].name, tuple(None if i is None else axes[i] for i in which))
        return True

    def _broadcast(self, op: Op) -> bool:
        if self._needs_group(op.args[1:]):
            return False
        axes = self._operand_axes(op.args[0])
        result = op.results[0]
        if axes is None:
            self.floating.add(result.name)
            return True
        assert isinstance(result.type, TileType)
        fresh = self.fresh(result.type)
        lead = result.type.rank - len(axes)
        self._define(result.name, tuple(
            new if at < lead or axes[at - lead] is None else axes[at - lead] for at, new in enumerate(fresh)
        ))  # fmt: skip
        return True

    def _store(self, op: Op) -> bool:
        if self._needs_group(op.args[1:]):
            return False
        axes = self._operand_axes(op.args[0])
        if axes is None:
            value = op.args[0]
            assert isinstance(value, Var) and isinstance(value.type, TileType)
            axes = self.fresh(value.type)  # a generated tile runs over its own extents
        self.stores.append(axes)
        if self.settled is not None and axes not in self.settled:
            self.settled = None
        return True

    # -- the whole ------------------------------------------------------------------------------------------------

    def _falls_apart(self, op: Op) -> bool:
        """Whether an operation after which tiles have unrelated axes may be followed by one that relates them."""
        self.apart += 1
        if touches_tiles(op) and not (op.op in ("load", "reshape") or op.op in GENERATED or is_elementwise(op)):
            return False
        if op.op in EXPENSIVE:
            self.costly_apart += tuple(r.name for r in op.results if r.name in self.axes)  # no numbers
        return self.apart <= _PATIENCE

    def _settle(self, op: Op) -> bool:
        """Recompute the common space; False when the axes no longer form one sequence."""
        longest: tuple[int, ...] = ()
        every = []
        idle, parent = self.idle, self.parent
        tiles = dict.fromkeys([axes for name, axes in self.axes.items() if name not in idle] if idle
                              else self.axes.values())  # fmt: skip
        for axes in dict.fromkeys((*tiles, *self.stores)) if self.stores else tiles:  # many tiles, few different axes
            mine = tuple([a if parent[a] == a else self.find(a) for a in axes if a is not None])
            if len(mine) > 1 and len(set(mine)) != len(mine):
                return False  # one axis twice: an outer product of a tile with itself
            every.append(mine)
            if len(mine) > len(longest):
                longest = mine
        before = self.found(self.space)
        if len(set(before)) != len(before):
            return False
        for mine in every:
            if mine != longest and not _is_subsequence(mine, longest):
                return self._falls_apart(op)
        if self.apart:
            if self.costly_apart:
                self.again |= {n for n in self.costly_apart if sum(a is not None for a in self.axes[n]) < len(longest)}
            self.apart, self.costly_apart = 0, ()
        grows = len(longest) > len(before) > 0
        own = len(self.reduced) == 1 and bool(op.results) and self.reduced[0][0] == op.results[0].name
        if grows and not own and (self.reduced or self.stores or self.costly):
            return False  # what came before would be computed again in each row of the larger space
        self.space = longest
        inner, rows = set(longest[-1:]), set(longest[:-1])
        for name, kind, gone, axes in self.reduced:
            over = {self.find(a) for a in gone}
            if over and over != inner:
                if kind in ("argmax", "argmin"):
                    return False  # an index cannot be put together from rows
                if not rows <= {self.find(a) for a in axes if a is not None}:
                    return False  # every row adds to it: elements would count again along the axes they do not have
                self.late.add(name)
        self.settled = frozenset(tiles)
        return True


_GROUPS = 256
_of_groups: dict[int, tuple[Block, Axial]] = {}
"""The axes of the last groups that were formed, for those who ask about them: nearly all are looked at again, as they
are.  The key is the identity of the body, which nobody else gets while it is kept here; a body never changes."""


def remember_axes(body: Block, state: Axial) -> None:
    """Keep what is known after all operations of a group."""
    if len(_of_groups) >= _GROUPS:
        del _of_groups[next(iter(_of_groups))]  # the oldest
    _of_groups[id(body)] = body, state


def axes_of_group(body: Block) -> Axial:
    """What is known after all operations of a group; ValueError when it is none."""
    known = _of_groups.get(id(body))
    if known is not None and known[0] is body:
        return known[1]
    state = Axial()
    for op in body:
        if isinstance(op, Op) and not state.admit(op):
            raise ValueError(f"not a group: {op}")
    remember_axes(body, state)
    return state


def _is_subsequence(small: tuple[int | None, ...], large: tuple[int | None, ...]) -> bool:
    rest = iter(large)
    return all(a in rest for a in small)  # looking for an axis uses up those before it


def touches_tiles(op: Op) -> bool:
    """Whether an operand or a result is a tile."""
    for result in op.results:
        if type(result.type) is TileType:
            return True
    return TileType in [type(operand.type) for operand in op.args]
