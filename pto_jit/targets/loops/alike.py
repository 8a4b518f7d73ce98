# SPDX-License-Identifier: MIT
"""Groups of tile operations that differ only in names, float constants, and the places of their tensors they access.

Such groups have the same plan up to names, so it is made once.  Unrolled loops and inlined functions are full of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.ir.nodes import Block, Const, Fuse, Op, Operand
from pto_jit.ir.types import TileType, Type
from pto_jit.ir.walk import statements
from pto_jit.slotted import mutable
from pto_jit.targets.loops.form import (
    Accumulate,
    Compute,
    Fold,
    Kept,
    Memory,
    Nest,
    Place,
    Position,
    Read,
    Result,
    Segment,
    Source,
    Step,
    Store,
    Write,
)
from pto_jit.targets.loops.plan import plan


@mutable
class Shape:
    """What a group is, apart from names.

    key: equal for groups that are alike; numbers: its variables, numbered in the order in which they appear; floats:
    its distinct float constants (`float_key`), numbered likewise.
    """

    key: Any
    numbers: dict[str, int]
    floats: dict[tuple[str, int], int]


class Alike:
    """Groups that are alike.

    count: how many there are; varying: the numbers of the float constants in which they differ.
    """

    def __init__(self, first: Fuse, shape: Shape) -> None:
        self.first = first
        self.shape = shape
        self.count = 1
        self.varying: set[int] = set()
        self._plan: Nest | None = None

    def join(self, shape: Shape) -> None:
        """Add a group of the same shape."""
        self.count += 1
        for one, other in zip(self.shape.floats, shape.floats, strict=True):
            if one != other:
                self.varying.add(shape.floats[other])

    def plan(self, fused: Fuse, shape: Shape) -> Nest:
        """The nest of one of the groups.  The locations of its steps are those of the first group."""
        if self._plan is None:
            self._plan = plan(self.first)
        if fused is self.first:
            return self._plan
        return _Renaming(self.first, self.shape, fused, shape).nest(self._plan)


def float_key(const: Const) -> tuple[str, int]:
    """The value and the dtype of a float constant; 0.0 is not -0.0, and NaN is itself."""
    return repr(const.value), const.type.dtype.id


def shape_of(fused: Fuse) -> Shape | None:
    """The shape of a group; None if it has statements or regions, which are not compared."""
    numbers: dict[str, int] = {}
    floats: dict[tuple[str, int], int] = {}
    loads: dict[Any, int] = {}
    key: list[Any] = []
    for op in fused.body:
        if not isinstance(op, Op) or op.regions:
            return None
        key += (op.op, op.attrs)
        if op.op == "load":  # of what is loaded twice the nest reads one
            key.append(loads.setdefault((op.args, op.attrs), len(loads)))
        for a in _compared(op):
            if not isinstance(a, Const):
                key += (numbers.setdefault(a.name, len(numbers)), _kind_of(a.type))
            elif a.type.dtype.kind == "f":
                key += ("float", a.type.dtype.id, floats.setdefault(float_key(a), len(floats)))
            else:
                key += (a.value, a.type.dtype.id)
        for r in op.results:
            key += (numbers.setdefault(r.name, len(numbers)), _kind_of(r.type))
    kept = sorted(numbers[name] for name in fused.keep if name in numbers)
    return Shape((tuple(key), tuple(kept)), numbers, floats)


def _compared(op: Op) -> tuple[Operand, ...]:
    """The operands that matter to the plan: which tensor a load or store accesses, and where, is decided outside."""
    return () if op.op == "load" else op.args[:1] if op.op == "store" else op.args


def _kind_of(typ: Type) -> Any:
    """A type as numbers, which are compared faster."""
    return (typ.dtype.id, typ.shape) if isinstance(typ, TileType) else typ.dtype.id


def repeated_groups(block: Block) -> dict[int, tuple[Shape, Alike]]:
    """The groups that occur more than once: `id` of each group -> its shape, and the groups that are alike."""
    found: dict[tuple[str, ...], list[Fuse]] = {}
    for stmt in statements(block):
        if isinstance(stmt, Fuse):
            found.setdefault(tuple([getattr(op, "op", "") for op in stmt.body]), []).append(stmt)
    out: dict[int, tuple[Shape, Alike]] = {}
    for groups in found.values():
        if len(groups) > 1:  # others need not be looked at closely
            out.update(_repeated(groups))
    return out


def _repeated(groups: Sequence[Fuse]) -> dict[int, tuple[Shape, Alike]]:
    """`repeated_groups` of these."""
    shapes: dict[int, Shape] = {}
    alike: dict[Any, Alike] = {}
    for fused in groups:
        shape = shape_of(fused)
        if shape is None:
            continue
        shapes[id(fused)] = shape
        known = alike.get(shape.key)
        if known is None:
            alike[shape.key] = Alike(fused, shape)
        else:
            known.join(shape)
    return {k: (shape, alike[shape.key]) for k, shape in shapes.items() if alike[shape.key].count > 1}


class _Renaming:
    """From a group to one that is like it: names, operands and operations."""

    def __init__(self, one: Fuse, its: Shape, other: Fuse, others: Shape) -> None:
        self.names = dict(zip(its.numbers, others.numbers, strict=True))
        self.ops: dict[int, Op] = {}  # by the identity of those of the first group, as the operands
        self.operands: dict[int, Operand] = {}
        for a, b in zip(one.body, other.body, strict=True):
            assert isinstance(a, Op) and isinstance(b, Op)
            self.ops[id(a)] = b
            if a.op != "load":
                self.operands.update(zip(map(id, _compared(a)), _compared(b), strict=True))

    def nest(self, nest: Nest) -> Nest:
        names, ops = self.names, self.ops
        return Nest(
            nest.rank, tuple([self._segment(s) for s in nest.rows]), tuple([self._segment(s) for s in nest.stages]),
            tuple([Source(names[s.name], s.axes, s.until) for s in nest.sources]),
            tuple([Store(ops[id(s.op)], s.axes, s.time) for s in nest.stores]),
            tuple([Result(names[r.name], r.axes, r.dtype, r.late, r.scalar, self._operand(r.ref))
                   for r in nest.results]),
            tuple([ops[id(op)] for op in nest.loads]), tuple([ops[id(op)] for op in nest.scalars]), nest.buffers,
            tuple([(names[name], names[tile], axis) for name, tile, axis in nest.measures]),
            tuple([ops[id(op)] for op in nest.views]),
        )  # fmt: skip

    def _segment(self, segment: Segment) -> Segment:
        return tuple([self._step(step) for step in segment])

    def _operand(self, arg: Any) -> Any:
        return self.operands.get(id(arg), arg)

    def _place(self, place: Place) -> Place:
        return type(place)(self.names[place.name]) if isinstance(place, (Memory, Kept)) else place

    def _step(self, step: Step) -> Step:
        """A step with the names of the group; those without names, of which there are most, are what they are."""
        match step:
            case Read():
                place = self._place(step.place)
                return step if place is step.place else Read(step.dst, place, step.axes, step.dtype)
            case Compute():
                args = tuple([a if type(a) is int else self._operand(a) for a in step.args])
                if args == step.args:
                    return step
                return Compute(step.dst, step.op, args, step.operand, step.dtype, step.attrs, step.loc)
            case Fold():
                if type(step.arg) is int:
                    return step
                return Fold(step.dst, step.op, self._operand(step.arg), step.operand, step.dtype, step.loc)
            case Write():
                return Write(self._place(step.place), step.axes, self._operand(step.arg), step.dtype)
            case Accumulate():
                name = self.names[step.name]
                return Accumulate(name, step.op, step.axes, self._operand(step.arg), step.dtype)
            case Position():
                return step
