# SPDX-License-Identifier: MIT
"""From a group of tile operations to a row nest.

Every value of the group becomes a node: at *row* level when it does not depend on the inner axis, else at *inner*
level.  A node's *segment* is the earliest place where it can be computed: reductions along the inner axis end a stage,
and what depends on one belongs to a later stage.  A value of an earlier stage that a later one needs is computed again
when that is cheap (a load and a subtraction), and kept in a row buffer when it is not (an exponential).  Only what a
store, a kept result or a reduction needs is computed at all.
"""

from __future__ import annotations

from typing import Any

from pto_jit.dtypes import DType, f32, i64
from pto_jit.ir.nodes import Const, Fuse, Op, Operand, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import (
    EXPENSIVE,
    Axes,
    axes_of_group,
    is_reduction,
    reduced_axes,
    touches_tiles,
    unit_reshape,
)
from pto_jit.slotted import frozen
from pto_jit.targets.loops.form import (
    Arg,
    Compute,
    Fold,
    Memory,
    Nest,
    Places,
    Position,
    Read,
    Ref,
    Result,
    Store,
)  # fmt: skip
from pto_jit.targets.loops.schedule import Graph, Node, Schedule

_INDEX = ScalarType(i64)


@frozen(eq=False)
class _Floating:
    """A generated value: made anew for the axes of each use."""

    op: Op
    args: tuple[Any, ...]


def plan(fused: Fuse, *, turned: bool = False) -> Nest:
    """The nest of a group formed by `lower.groups`; `turned`: with its axes in the opposite order, where reductions are
    read after the group only."""
    return _Planner(fused, turned).nest()


def places_of(fused: Fuse, name: str) -> Places | None:
    """Where the axes of a tile of the group lie in its space; None for a generated tile."""
    planner = _Planner(fused)
    axes = planner.axial.axes.get(name)
    return None if axes is None or name in planner.axial.floating else planner.places(axes)


class _Planner:
    def __init__(self, fused: Fuse, turned: bool = False) -> None:
        self.ops = [s for s in fused.body if isinstance(s, Op)]
        self.keep = set(fused.keep)
        self.loc = fused.loc  # of the operation being planned
        self.axial = axes_of_group(fused.body)
        self._ground()
        space = reversed(self.axial.space) if turned else self.axial.space
        self.place_of = {self.axial.find(a): k for k, a in enumerate(space)}
        self.known_places: dict[Axes, Places] = {}
        self.rank = len(self.axial.space)
        self.graph = Graph(self.rank)
        self.nodes = self.graph.nodes
        self.memo: dict[Any, Ref] = {}
        self.current: dict[str, Any] = {}
        self.loads: list[Op] = []
        self.scalars: list[Op] = []
        self.measures: list[tuple[str, str, int]] = []
        self.views: dict[str, Op] = {}  # reshapes of what lies in memory: no result needs memory of its own
        self.stores = self.graph.stores
        self.results = self.graph.results

    def _ground(self) -> None:
        """A group whose values are all generated runs over the axes of the one that is kept."""
        if self.axial.space:
            return
        for op in self.ops:
            for r in op.results:
                if r.name in self.axial.floating and r.name in self.keep and isinstance(r.type, TileType):
                    axes = self.axial.axes[r.name] = self.axial.fresh(r.type)
                    self.axial.space = tuple(a for a in axes if a is not None)
                    return

    def places(self, axes: Axes) -> Places:
        known = self.known_places.get(axes)
        if known is None:
            find, place_of = self.axial.find, self.place_of
            known = self.known_places[axes] = tuple([None if a is None else place_of[find(a)] for a in axes])
        return known

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, key: Any, make: Any, inner: bool, segment: int, cost: int) -> Ref:
        ref = len(self.nodes)
        known = self.memo.setdefault(key, ref)
        if known != ref:
            return known
        self.nodes.append(Node(make(ref), inner, segment, cost))
        return ref

    def _read(self, name: str, version: int, axes: Places, dtype: DType) -> Ref:
        inner = self.rank > 0 and self.rank - 1 in axes
        return self._node(("read", name, version, axes), lambda ref: Read(ref, Memory(name), axes, dtype), inner, 0, 1)

    def _position(self, axis: int | None, dtype: DType) -> Arg:
        if axis is None:
            return Const(0, ScalarType(dtype))
        inner = axis == self.rank - 1
        return self._node(("position", axis, dtype), lambda ref: Position(ref, axis, dtype), inner, 0, 1)

    def _compute(
        self, op: str, args: tuple[Arg, ...], operand: DType, dtype: DType, attrs: tuple[tuple[str, Any], ...] = ()
    ) -> Ref:
        inner, segment, cost = False, 0, 8 if op in EXPENSIVE else 1
        for a in args:
            if not isinstance(a, int):
                continue
            node = self.nodes[a]
            if node.inner:
                inner = True
                cost += node.cost
            segment = max(segment, node.segment)  # at row level; at inner level the stage of this number follows it
        return self._node(
            (op, args, operand.id, dtype.id, attrs),
            lambda ref: Compute(ref, op, args, operand, dtype, attrs, self.loc), inner, segment, cost,
        )  # fmt: skip

    def _fold(self, op: str, arg: Arg, operand: DType, dtype: DType) -> Ref:
        stage = self.graph.segment(arg)
        return self._node(("fold", op, arg, dtype), lambda ref: Fold(ref, op, arg, operand, dtype, self.loc), False,
                          stage + 1, 0)  # fmt: skip

    # -- operands -------------------------------------------------------------------------------------------------

    def _value(self, operand: Operand, context: Places | None) -> Arg:
        """An operand as a value; a generated one is made for `context` (the places of the result's axes)."""
        if isinstance(operand, Const) or isinstance(operand.type, ScalarType):
            found = self.current.get(operand.name) if isinstance(operand, Var) else None
            return operand if found is None else found
        found = self.current.get(operand.name)
        if isinstance(found, _Floating):
            assert context is not None and isinstance(operand.type, TileType)
            return self._instance(found, _aligned(context, operand.type))
        if found is not None:
            return found
        assert isinstance(operand.type, TileType)
        name = self.axial.same.get(operand.name, operand.name)  # what is loaded twice is read once
        axes = self.axial.outside.get(name)
        if axes is None:  # a load of this group
            axes = self.axial.axes[name]
        return self._read(name, 0, self.places(axes), operand.type.dtype)

    def _instance(self, floating: _Floating, context: Places) -> Arg:
        op = floating.op
        type = op.results[0].type
        assert isinstance(type, TileType)
        dtype = type.dtype
        match op.op:
            case "full":
                return floating.args[0]
            case "arange":
                at = self._position(context[0], dtype)
                step = self._compute("mul", (at, floating.args[1]), dtype, dtype)
                return self._compute("add", (floating.args[0], step), dtype, dtype)
            case "rand" | "randn":
                number: Arg = Const(0, _INDEX)
                for axis, extent in zip(context, floating.args[2:], strict=True):
                    wide = self._compute("mul", (number, extent), i64, i64)
                    number = self._compute("add", (wide, self._position(axis, i64)), i64, i64)
                number = self._compute("add", (number, floating.args[1]), i64, i64)
                return self._compute(op.op + "_at", (floating.args[0], number), i64, f32)
            case "reshape":
                which = unit_reshape(op)
                inside = op.args[0].type
                assert which is not None and isinstance(inside, TileType)
                back: list[int | None] = [None] * inside.rank
                for at, source in enumerate(which):
                    if source is not None:
                        back[source] = context[at]
                return self._again(floating.args[0], tuple(back))
            case "broadcast_to":
                assert isinstance(op.args[0].type, TileType)
                return self._again(floating.args[0], _aligned(context, op.args[0].type))
            case _:
                args = []
                for have, operand in zip(floating.args, op.args, strict=True):
                    if isinstance(operand.type, TileType):
                        args.append(self._again(have, _aligned(context, operand.type)))
                    else:
                        args.append(have)
                return self._compute(op.op, tuple(args), _operand_dtype(op), dtype, _attrs(op))

    def _again(self, have: Any, context: Places) -> Arg:
        return self._instance(have, context) if isinstance(have, _Floating) else have

    # -- operations -----------------------------------------------------------------------------------------------

    def _walk(self) -> None:
        for op, axes in zip(self.ops, self.axial.given, strict=True):
            self.loc = op.loc
            self._op(op, axes)

    def _op(self, op: Op, axes: Axes | None) -> None:
        name = op.op
        if not touches_tiles(op):
            self._scalar(op)
        elif name in ("valid", "extent"):
            self._measure(op)
        elif name == "load":
            self.loads.append(op)
            self.scalars.append(op)
        elif name == "store":
            self._store(op)
        elif all(r.name in self.axial.floating for r in op.results):
            self._float(op)
        elif is_reduction(op):
            self._reduction(op)
        else:
            self._tile(op, axes)

    def _scalar(self, op: Op) -> None:
        if op.results[0].name in self.axial.hoisted:
            self.scalars.append(op)
            return
        args = tuple(self._value(a, None) for a in op.args)
        result = op.results[0]
        assert isinstance(result.type, ScalarType)
        ref = self._compute(op.op, args, _operand_dtype(op), result.type.dtype, _attrs(op))
        self.current[result.name] = ref
        if result.name in self.keep:
            self.results[result.name] = Result(result.name, (), result.type.dtype, scalar=True, ref=ref)

    def _measure(self, op: Op) -> None:
        tile = op.args[0]
        assert isinstance(tile, Var)
        self.measures.append((op.results[0].name, tile.name, int(op.attr("axis"))))  # pyright: ignore
        self.scalars.append(op)

    def _float(self, op: Op) -> None:
        args: list[Any] = []
        for a in op.args:
            found = self.current.get(a.name) if isinstance(a, Var) else None
            args.append(a if found is None else found)
        floating = _Floating(op, tuple(args))
        result = op.results[0]
        self.current[result.name] = floating
        if result.name in self.keep:
            assert isinstance(result.type, TileType)
            axes = self.places(self.axial.axes[result.name])
            self._keep(result, axes, self._instance(floating, axes))

    def _keep(self, result: Var, axes: Places, ref: Arg) -> None:
        assert isinstance(result.type, TileType)
        dtype = result.type.dtype
        self.graph.writes[result.name] = (axes, ref, dtype)
        self.results[result.name] = Result(result.name, axes, dtype)

    def _tile(self, op: Op, axes: Axes | None) -> None:
        result = op.results[0]
        assert isinstance(result.type, TileType) and axes is not None
        context = self.places(axes)
        dtype = result.type.dtype
        if op.op in ("reshape", "broadcast_to"):
            ref = self._value(op.args[0], None)
        else:
            args = tuple(self._value(a, context) for a in op.args)
            ref = self._compute(op.op, args, _operand_dtype(op), dtype, _attrs(op))
        if op.op == "reshape" and isinstance(op.args[0], Var) and self._is_view(op.args[0], result.name):
            self.views[result.name] = op
            self.current[result.name] = ref
            return
        self.views.pop(result.name, None)
        if isinstance(ref, int):
            self.current[result.name] = ref
        else:  # an elementwise operation of scalars alone cannot give a tile that is not generated
            raise AssertionError(op)
        if result.name in self.keep:
            self._keep(result, context, ref)

    def _is_view(self, operand: Var, result: str) -> bool:
        """Whether a tile lies in memory as it is: a load, a tile from outside, or a reshape of such a one."""
        if result in self.axial.outside or operand.name == result:
            return False
        return operand.name in self.views or operand.name not in self.current

    def _reduction(self, op: Op) -> None:
        operand, result = op.args[0], op.results[0]
        assert isinstance(operand, Var) and isinstance(operand.type, TileType)
        dtype, source = result.type.dtype, operand.type.dtype  # pyright: ignore[reportAttributeAccessIssue]
        arg = self._value(operand, None)
        mine = self._axes_of(operand)
        over = {a for i, a in enumerate(mine) if i in reduced_axes(op) and a is not None}
        inner = self.rank - 1
        kept = tuple(None if i in reduced_axes(op) else a for i, a in enumerate(mine))
        if not op.attr("keepdims"):
            kept = tuple(a for i, a in enumerate(mine) if i not in reduced_axes(op))
        if inner in over:
            arg = self._fold(op.op, arg, source, dtype)
            over.discard(inner)
        elif not over:
            arg = self._unreduced(op, arg, source, dtype)
        whole = self.rank == 1 and isinstance(result.type, ScalarType) and not self._read_inside(result.name)
        if over or (whole and isinstance(arg, int) and op.op not in ("argmax", "argmin")):
            # a value that is the same along the rows (it was broadcast) still goes to every element of them
            inner_level = inner in kept or (isinstance(arg, int) and self.nodes[arg].inner)
            self.graph.accumulates[result.name] = (op.op, kept, arg, dtype, inner_level)
            self.results[result.name] = Result(result.name, kept, dtype, late=op.op,
                                               scalar=isinstance(result.type, ScalarType))  # fmt: skip
            return
        self.current[result.name] = arg
        if result.name in self.keep:
            if isinstance(result.type, ScalarType):
                self.results[result.name] = Result(result.name, (), dtype, scalar=True, ref=arg)
            else:
                self._keep(result, kept, arg)

    def _read_inside(self, name: str) -> bool:
        """Whether an operation of the group reads a result."""
        return any(isinstance(a, Var) and a.name == name for op in self.ops for a in op.args)

    def _unreduced(self, op: Op, arg: Arg, source: DType, dtype: DType) -> Arg:
        """A reduction over axes of extent 1."""
        if op.op in ("argmax", "argmin"):
            return self._compute("cast", (Const(0, ScalarType(dtype)),), dtype, dtype)
        return arg if source == dtype else self._compute("cast", (arg,), source, dtype)

    def _axes_of(self, operand: Var) -> Places:
        if operand.name in self.current or operand.name not in self.axial.outside:
            return self.places(self.axial.axes[operand.name])
        return self.places(self.axial.outside[operand.name])

    def _store(self, op: Op) -> None:
        value = op.args[0]
        assert isinstance(value, Var) and isinstance(value.type, TileType)
        places = self.places(self.axial.stores[len(self.stores)])
        self.stores.append((op, places, self._value(value, places)))

    # -- schedule -------------------------------------------------------------------------------------------------

    def nest(self) -> Nest:
        self._walk()
        loads = {op.results[0].name for op in self.loads}
        tiles = {n: a for n, a in self.axial.axes.items() if n in loads} | self.axial.outside
        self.graph.tiles = {n: self.places(a) for n, a in tiles.items()}
        earliest = [self.graph.segment(arg) for _, _, arg in self.stores]
        schedule = Schedule(self.graph, earliest)
        later = [max([e, *schedule.demanded.get(arg, ())]) if isinstance(arg, int) else e
                 for e, (_, _, arg) in zip(earliest, self.stores, strict=True)]  # fmt: skip
        if later != earliest:
            schedule = Schedule(self.graph, later)
        stores = tuple(
            Store(op, axes, 2 * at + int(self.rank - 1 in axes))
            for (op, axes, _), at in zip(self.stores, schedule.store_at, strict=True)
        )
        return Nest(
            self.rank, schedule.rows, schedule.stages, schedule.sources(), stores, tuple(self.results.values()),
            tuple(self.loads), tuple(self.scalars), tuple(schedule.buffers.values()), tuple(self.measures),
            self._kept_views(),
        )  # fmt: skip

    def _kept_views(self) -> tuple[Op, ...]:
        """The views that are kept, and those that they are views of."""
        wanted = set(self.keep)
        for name, op in reversed(self.views.items()):
            if name in wanted and isinstance(op.args[0], Var):
                wanted.add(op.args[0].name)
        return tuple(op for name, op in self.views.items() if name in wanted)


def _aligned(context: Places, type: TileType) -> Places:
    """The places of an operand's axes, lined up from the right with those of a result."""
    tail = context[len(context) - type.rank :]
    return tuple(None if extent == 1 else place for extent, place in zip(type.shape, tail, strict=True))


def _operand_dtype(op: Op) -> DType:
    data = op.args[1] if op.op in ("select", "rand_at", "randn_at") else op.args[0]
    return data.type.dtype  # pyright: ignore[reportAttributeAccessIssue]


def _attrs(op: Op) -> tuple[tuple[str, Any], ...]:
    return tuple((k, v) for k, v in op.attrs if k not in ("dtype",))
