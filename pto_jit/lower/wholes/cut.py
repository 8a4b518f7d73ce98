# SPDX-License-Identifier: MIT
"""What no one loop over parts can do, in several, with tiles in memory between them.

Lines that one operation leaves independent may depend on each other in another one, as those of the columns of `x -
pl.mean(x, axis=0)` and of the rows of what follows.  Each tile that is stored is computed from what is loaded; where
that cannot be divided, the first of the operations that are more than elementwise gets memory for its result, and so
on.  What is elementwise is computed again where it is read.  Parts of tiles, tiles that are joined and other shapes are
views of memory, and nothing is computed.

Before::

    SCOPE @f_incore_0
      %x.1 = tload %x[0, 0] [%n, %m] : !pto.tile<?x?xf32>
      %t = tmax %x.1 {axes=(0,), keepdims=false} : !pto.tile<?xf32>
      %u = tcumsum ...
      tstore %u, %y[0, 0]
    ENDSCOPE

After::

    %t.memory = talloc [%m] {dtype=f32} : !pto.memref<gm,?,f32>
    FOR %x_at:idx, 0:idx, %m:idx, 32:idx {kind=parallel}
      ...
      tstore %t.1, %t.memory[%x_at]
    ENDFOR
    FOR ...
      %t.2 = tload %t.memory[%x_at] ...

A store writes what later ones may still have to read: that is computed before, or copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import f32
from pto_jit.ir.nodes import Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import GENERATED, is_elementwise, reduced_axes
from pto_jit.lower.outwards import is_host
from pto_jit.lower.reuse import without_repeated_loads
from pto_jit.lower.wholes.lines import STORES, root_of
from pto_jit.lower.wholes.long import LongLines
from pto_jit.lower.wholes.memory import CutError, Store
from pto_jit.lower.wholes.partials import divides
from pto_jit.lower.wholes.sizes import UnknownSizeError
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

_REPEATED = GENERATED | {"load", "broadcast_to", "map"}
"""Operations that are done again where their results are read, besides those that are elementwise."""


class Cutter(LongLines):
    """Divides the operations of a run that store tiles; groups: runs that became loops, or a scope of their own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = self.divided = 0

    def stmts(self) -> list[Stmt] | None:
        """What does the same; None where that is no better."""
        try:
            sinks = self._begin()
            values = {k: sinks[k].args[0] for k in sinks}
            done: set[int] = set()
            for at, sink in sinks.items():
                for later in (k for k in sinks if k > at and k not in done):
                    self._keep_from(sink, at, values[later], done, later)
                self._store(sink, values[at], at in done)
        except (CutError, UnknownSizeError):
            return None
        if self.groups == 1 and not self.divided:  # which is what it was
            return None
        return self.out if self.branch else [*self.out, *self.scalars.block]

    def _begin(self) -> dict[int, Op]:
        """The operations that store, by their place; sizes of all tiles become known."""
        sinks: dict[int, Op] = {}
        known = self.divider.known
        self.ops = without_repeated_loads(self.ops, self.divider.asked)
        for k, op in enumerate(self.ops):
            if op.op in STORES:
                sinks[k] = op
                continue
            if any(known.assigned[r.name] > 1 for r in op.results) or effects(op.op) == "writes":
                raise CutError
            if op.op in ("valid", "extent"):
                size = self.sizes.of(op.args[0])[int(op.attr("axis"))]  # type: ignore[call-overload]
                number = size.valid if op.op == "valid" else size.declared
                self.scalars.block.append(Op("copy", op.results, (number,), (), (), op.loc))
                continue
            if is_host(op):
                self.scalars.block.append(op)
                continue
            if any(not isinstance(r.type, TileType) for r in op.results):
                raise CutError
            for r in op.results:
                self.maker[r.name] = self.sizes.made[r.name] = op
                self.place[r.name] = k
                self.sizes.of(r)
        if not sinks or not self.divider.asked.isdisjoint(self.maker):
            raise CutError
        return sinks

    # -- what is stored -------------------------------------------------------------------------------------------

    def _keep_from(self, sink: Op, at: int, value: Operand, done: set[int], later: int) -> None:
        """Compute what is stored later before a store that may write what it is made of, or copy that."""
        loads = [op for op in self._needed(value) if op.op in ("load", "take") and self.place[op.results[0].name] < at
                 and op.results[0].name not in self.memory_of_our_own and self._may_write(sink, op)]  # fmt: skip
        if not loads:
            return
        if all(self.place[op.results[0].name] < at for op in self._needed(value) if op.op in ("load", "take")):
            self._remember(value)
            done.add(later)
            return
        for op in loads:
            self._remember(op.results[0])

    def _may_write(self, sink: Op, load: Op) -> bool:
        """Whether a store may change what is loaded: arguments may overlap."""
        known = self.divider.known
        a, b = (root_of(t, known.views) for t in (sink.args[1], load.args[0]))
        made = [name for name in (a, b) if name in known.makers and known.makers[name].op == "alloc"]
        return a == b or not made

    def _store(self, sink: Op, value: Operand, done: bool) -> None:
        """What a store does, of a tile that may be in memory by now."""
        assert isinstance(value, Var)
        if not done and self._reads_elsewhere(self._needed(value), sink):
            self._remember(value)
        self._emit(value, lambda tile: replace(sink, args=(tile, *sink.args[1:])))
        for name in [n for n, of in self.views.items() if self._may_write(sink, self.maker[of])]:
            del self.memory[name], self.views[name]

    def _reads_elsewhere(self, ops: list[Op], sink: Op) -> bool:
        """Whether what is stored is made of other elements of the tensor than those that are written."""
        known = self.divider.known
        root = root_of(sink.args[1], known.views)
        return known.reads_elsewhere(ops, sink) or any(
            op.op in ("load", "take") and op.results[0].name not in self.memory_of_our_own
            and root_of(op.args[0], known.views) == root and self._elsewhere(op, sink) for op in ops
        )  # fmt: skip

    def _elsewhere(self, load: Op, sink: Op) -> bool:
        """Whether a store writes other elements than those that are loaded for it."""
        rank = sink.args[0].type.rank  # type: ignore[union-attr]
        return load.op == "take" or load.args[0] != sink.args[1] or load.args[1 : 1 + rank] != sink.args[2:] or (
            load.results[0].type != sink.args[0].type)  # fmt: skip

    # -- loops ----------------------------------------------------------------------------------------------------

    def _emit(self, tile: Var, store: Store) -> None:
        """Compute a tile, with loops over its parts if they can be found."""
        while True:
            moved = self._moved(tile)
            if moved is not None:
                self._prepare(moved)
                continue
            ops = self._group(tile, store)
            loops: Sequence[Stmt] | None = self.divider.in_parts(ops, self.scope)
            first = self._first(tile) if loops is None and not self._is_one_line(ops) else None
            if first is not None:
                self._remember(first)
                continue
            self.groups += 1
            self.divided += loops is not None
            parts = self.divider.latest if loops is not None else None
            before = loops if loops is not None else self._alone(ops)
            loops = self._or_pieces(tile, store, ops, before, parts)
            self.divided += loops is not before
            self._write(loops)
            return

    def _moved(self, tile: Operand) -> Var | None:
        """A tile that a tile is made of, and that is a view of memory."""
        for op in self._needed(tile):
            name = op.results[0].name
            if self._is_view(op) and name not in self.memory:
                return op.results[0]
        return None

    def _first(self, tile: Var) -> Var | None:
        """A tile to put into memory, where those that a tile is made of cannot be divided together."""
        ops = self._needed(tile)
        for op in ops:
            if op.op == "dot":
                for operand in op.args[:2]:
                    if isinstance(operand, Var) and self._is_computed(operand):
                        return operand
        heavy = [op for op in ops if not self._is_light(op) and op.results[0].name not in self.memory]
        if heavy and all(op.op == "dot" for op in heavy):  # products, and what follows them elementwise
            return None
        for op in heavy:
            if op.results[0].name != tile.name:
                return op.results[0]
            if self.divider.parts.flat and _can_be_split(op):
                return self._split(op)
        last = self.maker[tile.name]
        if last.op == "dot":
            return None
        for operand in last.args:
            if isinstance(operand, Var) and isinstance(operand.type, TileType) and not self._is_loaded(operand):
                op = self.maker[operand.name]
                if op.op not in GENERATED and any(o.op == "load" for o in self._needed(operand)):
                    return operand
        return None

    def _is_computed(self, operand: Var) -> bool:
        """Whether an operand of a product is made of what is loaded; what is made of products is the target's."""
        if operand.name in self.memory:
            return False
        made = self._needed(operand)
        return not any(op.op == "dot" for op in made) and not all(
            op.op == "load" or (op.op == "reshape" and self.sizes.kept(op) is not None) for op in made
        )

    def _split(self, reduction: Op) -> Var:
        """Reduce along one axis less, and before that along the last one: what gives this."""
        tile, (result,) = reduction.args[0], reduction.results
        *left, axis = sorted(reduced_axes(reduction))
        keep = bool(reduction.attr("keepdims"))
        first = Op(reduction.op, (), (tile,), (("axes", (axis,)), ("keepdims", keep)), (), reduction.loc)
        (kind,) = infer(first.op, first.args, dict(first.attrs))
        part = self._made(kind, first, result)
        attrs = (("axes", tuple(left)), ("keepdims", keep))
        self.maker[result.name] = replace(reduction, args=(part,), attrs=attrs)
        return part

    def _is_light(self, op: Op) -> bool:
        return is_elementwise(op) or op.op in _REPEATED or (op.op == "reshape" and self.sizes.kept(op) is not None)


def _can_be_split(reduction: Op) -> bool:
    """Whether a reduction is along several axes, and gives the same numbers along one after the other."""
    if not divides(reduction):
        return False
    tile, result = reduction.args[0].type, reduction.results[0].type
    assert isinstance(tile, TileType) and isinstance(result, TileType)
    exact = reduction.op not in ("sum", "prod") or tile.dtype == result.dtype == f32
    return exact and len([k for k in reduced_axes(reduction) if tile.shape[k] != 1]) > 1
