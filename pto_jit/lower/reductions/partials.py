# SPDX-License-Identifier: MIT
"""Partial results: a slot of global memory per chunk, how a chunk starts and fills its slot, how slots are merged.

A tile is kept in a slot of its declared extents, next to the valid extents that it has.  Where a chunk may update
nothing, a flag says whether it did: an untouched slot is not merged, and a place that the program does not touch is
neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Attr, Block, Const, If, Op, Operand, Reduction, Region, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.ir.walk import block_defs, rename, substitute
from pto_jit.lower.names import BOOL, I64, Names, index
from pto_jit.lower.reductions.places import Place
from pto_jit.semantic.rules import infer
from pto_jit.slotted import frozen, replace

TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)


class Emit:
    """Collects operations, typed by the rules of the table."""

    def __init__(self, names: Names, loc: Loc) -> None:
        self.names, self.loc = names, loc
        self.block: list[Stmt] = []

    def op(self, name: str, *args: Operand, hint: str = "t", result: Var | None = None, **attrs: Attr) -> Var:
        """One operation with one result, `result` itself if it is given."""
        packed = tuple(sorted(attrs.items()))
        if result is None:
            (type,) = infer(name, args, dict(packed))
            result = self.names.fresh(hint, type)
        self.block.append(Op(name, (result,), args, packed, (), self.loc))
        return result

    def do(self, name: str, *args: Operand) -> None:
        """One operation without a result."""
        self.block.append(Op(name, (), args, (), (), self.loc))

    def nested(self) -> Emit:
        return Emit(self.names, self.loc)

    def done(self) -> Block:
        return tuple(self.block)


@frozen
class State:
    """What a nest of loops reduces: a variable, a place, or the variables of an explicit reduction.

    `vars` carry it in the innermost body, `targets` are what it is folded into after the loops (of a place: none).
    `updates` are the operations (by id) that change it, `always` says that every iteration has one.
    """

    name: str
    combine: str | Region
    vars: tuple[Var, ...]
    targets: tuple[Var, ...]
    init: tuple[Operand, ...]
    updates: frozenset[int]
    always: bool
    loc: Loc
    place: Place | None = None
    computed: tuple[Op, ...] = ()  # of a place: what its indices are computed by in the body

    @property
    def flagged(self) -> bool:
        """Whether a chunk has to say if it changed anything."""
        return not self.always and (self.place is not None or any(isinstance(v.type, TileType) for v in self.vars))


@frozen
class Slots:
    """Memory for values of one variable, numbered from 0."""

    type: Type
    memory: Var
    extents: tuple[Operand, ...] = ()
    valid: Var | None = None

    def _window(self, e: Emit, at: Operand, extents: Sequence[Operand]) -> Var:
        """A slot as a tensor of the tile's rank."""
        zeros = [index(0)] * len(extents)
        return e.op("view", self.memory, at, *zeros, index(1), *extents, drop=(0,), hint=f"{self.memory.name}_slot")

    def write(self, e: Emit, at: Operand, value: Operand, *, extents: bool = True) -> None:
        """Fill a slot; with its valid extents, unless they are there already."""
        if self.valid is None:
            e.do("setelem", value, self.memory, at)
            return
        axes = range(len(self.extents))
        e.do("store", value, self._window(e, at, self.extents), *[index(0) for _ in axes])
        for axis in axes if extents else ():
            e.do("setelem", e.op("valid", value, axis=axis, hint="valid"), self.valid, at, index(axis))

    def read(self, e: Emit, at: Operand, name: str) -> Operand:
        """The value in a slot."""
        if self.valid is None:
            return e.op("getelem", self.memory, at, hint=name)
        axes = range(len(self.extents))
        valid = [e.op("getelem", self.valid, at, index(axis), hint="valid") for axis in axes]
        return e.op("load", self._window(e, at, valid), *[index(0) for _ in axes], *self.extents, hint=name)


def slots_of(var: Var, name: str, extents: tuple[Operand, ...], count: Operand, e: Emit) -> Slots:
    """Memory for `count` values of a scalar, or of a tile with these declared extents."""
    memory = e.op("alloc", count, *extents, dtype=var.type.dtype, hint=f"{name}_parts")
    valid = None
    if isinstance(var.type, TileType):
        valid = e.op("alloc", count, index(len(extents)), dtype=i64, hint=f"{name}_valid")
    return Slots(var.type, memory, extents, valid)


@frozen
class Partials:
    """The partial results of one state: `vars` hold them inside a chunk, `slots` afterwards."""

    state: State
    vars: tuple[Var, ...]
    slots: tuple[Slots, ...]
    starts: tuple[Op | None, ...]  # generators that an explicit initial tile can be made by again
    extents: tuple[tuple[Operand, ...], ...]
    flag: Var | None
    flags: Var | None

    @property
    def loc(self) -> Loc:
        return self.state.loc

    # -- inside a chunk -------------------------------------------------------------------------------------------

    def start(self, e: Emit, at: Operand) -> None:
        """The identity; `at` is the chunk's slot."""
        for var, init, made, extents in zip(self.vars, self.state.init, self.starts, self.extents, strict=True):
            if isinstance(var.type, TileType) and isinstance(init.type, ScalarType):
                e.op("full", init, *extents, result=var)
            elif made is not None:
                e.block.append(replace(made, results=(var,)))
            else:
                e.op("copy", init, result=var)
        if self.flag is not None:
            e.op("copy", FALSE, result=self.flag)

    def save(self, e: Emit, at: Operand) -> None:
        """Fill the slot `at`."""
        for var, slots in zip(self.vars, self.slots, strict=True):
            slots.write(e, at, var)
        if self.flag is not None and self.flags is not None:
            e.do("setelem", self.flag, self.flags, at)

    # -- slots ------------------------------------------------------------------------------------------------------

    def read(self, e: Emit, at: Operand) -> list[Operand]:
        """The state in a slot."""
        return [slots.read(e, at, self.state.name) for slots in self.slots]

    def merge(self, e: Emit, left: Operand, right: Operand) -> None:
        """Combine the slot `right` into the slot `left`."""

        def both(e: Emit) -> None:
            values = combined(e, self.state, self.read(e, left), self.read(e, right))
            for slots, value in zip(self.slots, values, strict=True):
                slots.write(e, left, value, extents=False)  # those of both are equal: it was checked

        def only_right(e: Emit) -> None:
            assert self.flags is not None
            for slots, value in zip(self.slots, self.read(e, right), strict=True):
                slots.write(e, left, value)
            e.do("setelem", TRUE, self.flags, left)

        if self.flags is None:
            both(e)
            return
        flags = self.flags
        when(e, e.op("getelem", flags, right, hint="touched"),
             lambda e: when(e, e.op("getelem", flags, left, hint="touched"), both, only_right))  # fmt: skip

    def fold(self, e: Emit, at: Operand) -> None:
        """Combine the slot `at` into what the loop reduces into."""
        if self.flags is None:
            fold(e, self.state, lambda e: self.read(e, at))
        else:
            touched = e.op("getelem", self.flags, at, hint="touched")
            when(e, touched, lambda e: fold(e, self.state, lambda e: self.read(e, at)))


def when(e: Emit, cond: Operand, then: Callable[[Emit], None], orelse: Callable[[Emit], None] | None = None) -> None:
    """An `If`."""
    yes, no = e.nested(), e.nested()
    then(yes)
    if orelse is not None:
        orelse(no)
    e.block.append(If(cond, yes.done(), no.done(), e.loc))


def combined(e: Emit, state: State, left: Sequence[Operand], right: Sequence[Operand]) -> list[Operand]:
    """Two states as one."""
    combine = state.combine
    if isinstance(combine, str):
        return [e.op(combine, left[0], right[0], hint=state.name)]
    fresh = {name: e.names.fresh(name).name for name in sorted(block_defs(combine.body))}
    given = dict(zip((p.name for p in combine.params), (*left, *right), strict=True))
    e.block += substitute(rename(combine.body, fresh), given)

    def result(operand: Operand) -> Operand:
        if not isinstance(operand, Var):
            return operand
        return given.get(operand.name) or Var(fresh.get(operand.name, operand.name), operand.type)

    return [result(r) for r in combine.results]


def fold(e: Emit, state: State, partial: Callable[[Emit], list[Operand]]) -> None:
    """Combine a partial result into the variables or the place that a loop reduces into."""
    place = state.place
    if place is None:
        values = combined(e, state, state.targets, partial(e))
        if isinstance(state.combine, str):  # the operation assigns the variable itself
            last = e.block.pop()
            assert isinstance(last, Op)
            e.block.append(replace(last, results=state.targets))
            return
        for target, value in zip(state.targets, values, strict=True):
            e.op("copy", value, result=target)
        return
    fresh: dict[str, str] = {}
    for op in state.computed:
        fresh[op.results[0].name] = e.names.fresh(op.results[0].name).name
    before = e.names.fresh(state.name, place.type)
    e.block += rename(state.computed, fresh)
    e.block.append(replace(rename((place.read,), fresh)[0], results=(before,)))
    (value,) = combined(e, state, [before], partial(e))
    write = rename((place.write,), fresh)[0]
    assert isinstance(write, Op)
    e.block.append(replace(write, args=(value, *write.args[1:])))


def allocate(
    state: State, extents: Sequence[tuple[Operand, ...]], starts: Sequence[Op | None], count: Operand, e: Emit
) -> Partials:
    """Memory for `count` partial results; `extents` are those of each variable's tile (empty for scalars)."""
    names = e.names
    found = [slots_of(v, state.name, tuple(n), count, e) for v, n in zip(state.vars, extents, strict=True)]
    flag = flags = None
    if state.flagged:
        flag = names.fresh(f"{state.name}_touched", BOOL)
        flags = e.op("alloc", count, dtype=bool_, hint=f"{state.name}_touches")
    own = tuple(names.fresh(f"{state.name}_part", v.type) for v in state.vars)
    return Partials(state, own, tuple(found), tuple(starts), tuple(extents), flag, flags)


def stored_in(var: Var, value: Operand, e: Emit) -> Block:
    """Assign to a place's variable what the program stores in the place: a tile ends where the place does."""
    if isinstance(var.type, TileType) and var.type != value.type:
        sizes = [e.op("extent", var, axis=axis, hint="extent") if n is None else index(n)
                 for axis, n in enumerate(var.type.shape)]  # fmt: skip
        e.op("tile_slice", value, *[index(0)] * len(sizes), *sizes, result=var, drop=())
    else:
        e.op("copy", value, result=var)
    return e.done()


__all__ = ["I64", "Emit", "Partials", "Slots", "State", "allocate", "combined", "fold", "stored_in", "when"]


def has_tiles(state: State) -> bool:
    return any(isinstance(v.type, TileType) for v in state.vars)


def known_reduction(one: Partials) -> tuple[Reduction, ...]:
    """What a target may know about the variables of a chunk.  (A combine function of tiles is not for targets.)"""
    if isinstance(one.state.combine, Region) and has_tiles(one.state):
        return ()
    return (Reduction(one.vars, one.state.init, one.state.combine),)
