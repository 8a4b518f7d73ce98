# SPDX-License-Identifier: MIT
"""Which rectangles of its tensors one call of an in-core function reads and writes.

The corners are computed from the function's scalar parameters alone, so a caller knows them before the call: interval
arithmetic over the loops of the body, the union where several accesses are alike.  What cannot be bounded (indices read
from memory, reshaped views) counts as the whole axis, so a rectangle may be larger than what is touched, never smaller.

For a function that loads rows `[32 * r, 32 * r + 32)` and stores one tile, a footprint of its tensor reads as

    read x[32 * r : 32 * r + 32, :]
"""

from __future__ import annotations

from collections.abc import Iterable

from pto_jit.ir.bounds import Bounds
from pto_jit.ir.nodes import Block, Call, Const, For, Func, Fuse, If, Op, Operand, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_uses, defs, statements
from pto_jit.lower.names import I64, Names
from pto_jit.semantic.table import effects, is_elementwise, tensor_arg
from pto_jit.slotted import frozen, mutable

_MOST = 4  # rectangles of one parameter; more are merged into one
_ATOMIC = ("atomic_add", "atomic_max", "atomic_min")


@frozen
class Footprint:
    """A rectangle of a tensor parameter: `[low, high)` per axis; None is the tensor's own bound.

    Corners may lie outside the tensor, which cuts them off, and `high` below `low`, when nothing is touched.
    """

    param: int
    lows: tuple[Operand | None, ...]
    highs: tuple[Operand | None, ...]
    reads: bool
    writes: bool


@frozen
class Footprints:
    """The rectangles of a function, and the scalar operations that compute their corners from its parameters."""

    made: Block
    boxes: tuple[Footprint, ...]


@frozen
class _Axis:
    """An axis of a view in terms of its parameter's: the offsets that add up, and the extent (None: to the end)."""

    axis: int
    offsets: tuple[Operand, ...] = ()
    extent: Operand | None = None


@frozen
class _View:
    """What a tensor variable looks at; `axes` None: some elements of the parameter."""

    param: int
    axes: tuple[_Axis, ...] | None
    fixed: tuple[_Axis, ...] = ()  # axes of extent 1 that the view has dropped


@mutable(eq=False)
class _Access:
    view: _View
    offsets: tuple[Operand, ...] | None  # None: anywhere
    extents: tuple[Operand | None, ...]
    reads: bool
    writes: bool
    loops: dict[str, For]


def footprints(func: Func) -> Footprints:
    """The footprints of an in-core function, for each of its tensor parameters that it uses."""
    found = _Collector(func)
    found.block(func.body, {})
    names = Names(func)
    bounds = Bounds(func, 0, names.fresh, func.loc)
    boxes: list[Footprint] = []
    for access in found.accesses:
        box = _box(func, access, bounds)
        if box not in boxes:
            boxes.append(box)
    boxes = _merged(func, boxes, bounds)
    made = tuple(bounds.made)
    used = block_uses(made) | {o.name for b in boxes for o in (*b.lows, *b.highs) if isinstance(o, Var)}
    return Footprints(tuple(s for s in made if {v.name for v in defs(s)} & used), tuple(boxes))


class _Collector:
    """Every access to a parameter, with the loops around it."""

    def __init__(self, func: Func) -> None:
        self.accesses: list[_Access] = []
        self.makers = {v.name: s for s in statements(func.body) for v in defs(s)}
        self.views: dict[str, _View] = {}
        for place, param in enumerate(func.params):
            if isinstance(param.type, TensorType):
                self.views[param.name] = _View(place, tuple(_Axis(k) for k in range(param.type.rank)))

    def block(self, block: Block, loops: dict[str, For]) -> None:
        for stmt in block:
            self.statement(stmt, loops)

    def statement(self, stmt: Stmt, loops: dict[str, For]) -> None:
        match stmt:
            case For():
                self.block(stmt.body, {**loops, stmt.var.name: stmt})
            case While():
                self.block((*stmt.before, *stmt.body), loops)
            case If():
                self.block((*stmt.then, *stmt.orelse), loops)
            case Scope() | Fuse():
                self.block(stmt.body, loops)
            case Call():
                for arg in stmt.args:
                    if isinstance(arg, Var) and arg.name in self.views:
                        self.add(self.views[arg.name], None, (), True, True, loops)
            case Op():
                self.op(stmt, loops)
                for region in stmt.regions:
                    self.block(region.body, loops)
            case _:
                pass

    def op(self, op: Op, loops: dict[str, For]) -> None:
        place = tensor_arg(op.op)
        tensor = op.args[place] if place is not None and place < len(op.args) else None
        if not isinstance(tensor, Var) or tensor.name not in self.views or op.op == "dim":
            return
        view = self.views[tensor.name]
        if op.results and isinstance(op.results[0].type, TensorType):
            self.views[op.results[0].name] = _looked_at(op, view)
            return
        writes = effects(op.op) == "writes"
        reads = not writes or op.op in _ATOMIC
        assert isinstance(tensor.type, TensorType)
        rank = tensor.type.rank
        if op.op == "load":
            extents = op.args[1 + rank : 1 + 2 * rank]
            self.add(view, op.args[1 : 1 + rank], extents, reads, writes, loops)
        elif op.op == "getelem":
            self.add(view, op.args[1:], (_ONE,) * rank, reads, writes, loops)
        elif op.op == "setelem":
            self.add(view, op.args[2:], (_ONE,) * rank, reads, writes, loops)
        elif op.op == "store" or op.op in _ATOMIC:
            self.add(view, op.args[2 : 2 + rank], self.extents(op.args[0]), reads, writes, loops)
        else:
            self.add(view, None, (), reads, writes, loops)

    def add(self, view: _View, offsets: tuple[Operand, ...] | None, extents: tuple[Operand | None, ...], reads: bool,
            writes: bool, loops: dict[str, For]) -> None:  # fmt: skip
        self.accesses.append(_Access(view, offsets, extents, reads, writes, loops))

    def extents(self, tile: Operand) -> tuple[Operand | None, ...]:
        """The declared extents of a tile, where they are constants or were given to the load that it comes from."""
        assert isinstance(tile.type, TileType)
        return tuple(
            Const(extent, I64) if extent is not None else self._extent(tile, axis, 0)
            for axis, extent in enumerate(tile.type.shape)
        )

    def _extent(self, tile: Operand, axis: int, depth: int) -> Operand | None:
        maker = self.makers.get(tile.name) if isinstance(tile, Var) else None
        if not isinstance(maker, Op) or depth > 16:
            return None
        if maker.op == "load":
            return maker.args[1 + len(maker.results[0].type.shape) + axis]  # type: ignore[union-attr]
        if is_elementwise(maker.op, len(maker.args)) or maker.op in ("copy", "cast"):
            for arg in maker.args:
                if isinstance(arg.type, TileType) and len(arg.type.shape) > axis and arg.type.shape[axis] is None:
                    return self._extent(arg, axis, depth + 1)
        return None


_ONE = Const(1, I64)


def _looked_at(op: Op, view: _View) -> _View:
    """The view that `op` makes of `view`."""
    if view.axes is None:
        return view
    if op.op == "view":
        rank = len(view.axes)
        drop = op.attr("drop") or ()
        kept: list[_Axis] = []
        fixed = list(view.fixed)
        for k, axis in enumerate(view.axes):
            part = _Axis(axis.axis, (*axis.offsets, op.args[1 + k]), op.args[1 + rank + k])
            (fixed if k in drop else kept).append(part)  # type: ignore[operator]
        return _View(view.param, tuple(kept), tuple(fixed))
    if op.op == "tensor_transpose":
        order = op.attr("axes") or tuple(reversed(range(len(view.axes))))
        return _View(view.param, tuple(view.axes[k] for k in order), view.fixed)  # type: ignore[union-attr, index]
    return _View(view.param, None)


def _box(func: Func, access: _Access, bounds: Bounds) -> Footprint:
    type_ = func.params[access.view.param].type
    assert isinstance(type_, TensorType)
    lows: list[Operand | None] = [None] * type_.rank
    highs: list[Operand | None] = [None] * type_.rank
    view = access.view
    for k, axis in enumerate((*(view.axes or ()), *view.fixed)):
        offsets, extent = axis.offsets, axis.extent
        if view.axes is not None and k < len(view.axes) and access.offsets is not None:
            inner = access.extents[k] if k < len(access.extents) else None
            if inner is not None:
                offsets, extent = (*offsets, access.offsets[k]), inner
        lows[axis.axis] = _sum(bounds, offsets, access.loops, up=False) if offsets else None
        if extent is not None:
            highs[axis.axis] = _sum(bounds, (*offsets, extent), access.loops, up=True)
    return Footprint(view.param, tuple(lows), tuple(highs), access.reads, access.writes)


def _sum(bounds: Bounds, operands: Iterable[Operand], loops: dict[str, For], *, up: bool) -> Operand | None:
    total: Operand = Const(0, I64)
    for operand in operands:
        assert isinstance(operand.type, ScalarType)
        bound = bounds.upper(operand, loops) if up else bounds.lower(operand, loops)
        if bound is None:
            return None
        total = bound if isinstance(total, Const) and total.value == 0 else bounds.emit("add", total, bound)
    return total


def _merged(func: Func, boxes: list[Footprint], bounds: Bounds) -> list[Footprint]:
    """One footprint for a rectangle that is read and written; few per parameter."""
    result: list[Footprint] = []
    for place, param in enumerate(func.params):
        if not isinstance(param.type, TensorType):
            continue
        mine: dict[tuple[object, object], Footprint] = {}
        for box in boxes:
            if box.param == place:
                other = mine.get((box.lows, box.highs), box)
                mine[box.lows, box.highs] = Footprint(
                    place, box.lows, box.highs, box.reads or other.reads, box.writes or other.writes
                )
        found = list(mine.values())
        if len(found) > _MOST:
            groups = [[b for b in found if b.writes], [b for b in found if not b.writes]]
            found = [_union(group, bounds) for group in groups if group]
        result += found
    return result


def _union(boxes: list[Footprint], bounds: Bounds) -> Footprint:
    first, *rest = boxes
    for box in rest:
        lows = tuple(None if a is None or b is None else bounds.emit("min", a, b)
                     for a, b in zip(first.lows, box.lows, strict=True))  # fmt: skip
        highs = tuple(None if a is None or b is None else bounds.emit("max", a, b)
                      for a, b in zip(first.highs, box.highs, strict=True))  # fmt: skip
        first = Footprint(first.param, lows, highs, first.reads or box.reads, first.writes or box.writes)
    return first
