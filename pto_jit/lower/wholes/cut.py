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

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Const, If, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TensorType, TileType, Type
from pto_jit.ir.walk import rename
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.axes import GENERATED, is_elementwise, reduced_axes
from pto_jit.lower.names import BOOL, Scalars, index, source_name
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.lines import STORES, root_of
from pto_jit.lower.wholes.partials import MOST, ROW, ROWS, chunks_of, divides, reduced_along, room, working
from pto_jit.lower.wholes.sizes import Size, Sizes, UnknownSizeError
from pto_jit.semantic.failures import DECLARED, VALID
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import effects
from pto_jit.slotted import field, mutable, replace

if TYPE_CHECKING:
    from pto_jit.lower.wholes.divide import Divider

_REPEATED = GENERATED | {"load", "broadcast_to", "map"}
"""Operations that are done again where their results are read, besides those that are elementwise."""


class CutError(Exception):
    """Operations that are not cut."""


@mutable
class Cutter:
    """Divides the operations of a run that store tiles.

    memory: tensors that hold tiles; late: how many operations came before a store; out: what does the same.
    """

    divider: Divider
    scope: Scope
    ops: list[Op]
    scalars: Scalars
    sizes: Sizes
    maker: dict[str, Op] = field(default_factory=dict)
    place: dict[str, float] = field(default_factory=dict)
    memory: dict[str, Var] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    """What memory that is a view is a part of: a tensor that the operations may write."""
    out: list[Stmt] = field(default_factory=list)
    long: bool = False
    """Whether tiles that may be too long for a block are taken to be."""
    branch: int = 0
    """How many branches of the host are around what is written: numbers are computed before these."""
    parts: set[Operand] = field(default_factory=set)
    """How many partial results there are, which are few."""
    groups: int = 0
    """Runs of operations that became loops, or a scope of their own."""
    divided: int = 0

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

    @property
    def memory_of_our_own(self) -> set[str]:
        """The tiles that are in memory that nothing else writes."""
        return {name for name in self.memory if name not in self.views}

    def _may_write(self, sink: Op, load: Op) -> bool:
        """Whether a store may change what is loaded: arguments may overlap."""
        known = self.divider.known
        a, b = (root_of(t, known.views) for t in (sink.args[1], load.args[0]))
        made = [name for name in (a, b) if name in known.makers and known.makers[name].op == "alloc"]
        return a == b or not made

    def _store(self, sink: Op, value: Operand, done: bool) -> None:
        """What a store does, of a tile that may be in memory by now."""
        assert isinstance(value, Var)
        known = self.divider.known
        root = root_of(sink.args[1], known.views)
        if not done and any(op.op in ("load", "take") and op.results[0].name not in self.memory_of_our_own
                            and root_of(op.args[0], known.views) == root and self._elsewhere(op, sink)
                            for op in self._needed(value)):  # fmt: skip
            self._remember(value)
        self._emit(value, lambda tile: replace(sink, args=(tile, *sink.args[1:])))
        for name in [n for n, of in self.views.items() if self._may_write(sink, self.maker[of])]:
            del self.memory[name], self.views[name]

    def _elsewhere(self, load: Op, sink: Op) -> bool:
        """Whether a store writes other elements than those that are loaded for it."""
        rank = sink.args[0].type.rank  # type: ignore[union-attr]
        return load.op == "take" or load.args[0] != sink.args[1] or load.args[1 : 1 + rank] != sink.args[2:] or (
            load.results[0].type != sink.args[0].type)  # fmt: skip

    # -- what is needed -------------------------------------------------------------------------------------------

    def _needed(self, tile: Operand) -> list[Op]:
        """The operations that make a tile from what is in memory, in order."""
        found: dict[float, Op] = {}
        todo = [tile]
        while todo:
            operand = todo.pop()
            if not isinstance(operand, Var) or operand.name not in self.maker or operand.name in self.memory_of_our_own:
                continue
            op = self.maker[operand.name]
            if self.place[operand.name] not in found:
                found[self.place[operand.name]] = op
                todo += [a for a in op.args if isinstance(a.type, TileType)]
        return [found[k] for k in sorted(found)]

    def _group(self, tile: Var, store: Callable[[Var], Op]) -> list[Op]:
        """The operations that make a tile and store it, under names of their own."""
        names = self.divider.known.names
        mine: dict[str, str] = {}
        loads: list[Op] = []
        ops: list[Op] = []

        def read(var: Var) -> None:
            if var.name in mine:
                return
            own = names.fresh(source_name(var.name), var.type)
            mine[var.name] = own.name
            if var.name in self.memory:
                extents = tuple(size.declared for size in self.sizes.of(var))
                zeros = (index(0),) * len(extents)
                loads.append(Op("load", (own,), (self.memory[var.name], *zeros, *extents), (), (), self.scope.loc))
                return
            op = self.maker.get(var.name)
            if op is None:
                raise CutError
            for r in op.results:
                mine.setdefault(r.name, names.fresh(source_name(r.name), r.type).name)
            for a in op.args:
                if isinstance(a, Var) and isinstance(a.type, TileType):
                    read(a)
            (ops if op.op != "load" else loads).append(op)

        read(tile)
        made = rename((*loads, *ops), {old: new for old, new in mine.items()})
        whole = [*made, store(Var(mine[tile.name], tile.type))]
        known = self.divider.known
        known.add({r.name: op for op in whole if isinstance(op, Op) for r in op.results})
        known.assigned.update(r.name for op in whole if isinstance(op, Op) for r in op.results)
        return whole  # type: ignore[return-value]

    # -- loops ----------------------------------------------------------------------------------------------------

    def _emit(self, tile: Var, store: Callable[[Var], Op]) -> None:
        """Compute a tile, with loops over its parts if they can be found."""
        while True:
            moved = self._moved(tile)
            if moved is not None:
                self._prepare(moved)
                continue
            ops = self._group(tile, store)
            loops: Sequence[Stmt] | None = self.divider.in_parts(ops, self.scope)
            first = self._first(tile) if loops is None else None
            if first is not None:
                self._remember(first)
                continue
            self.groups += 1
            self.divided += loops is not None
            if loops is None:
                loops = self._alone(ops)
            else:
                loops = self._or_pieces(tile, store, ops, loops)
            self._write(loops)
            return

    def _alone(self, ops: list[Op]) -> Sequence[Stmt]:
        """Operations for one block."""
        return ops if self.scope.named else [replace(self.scope, body=tuple(ops))]

    def _moved(self, tile: Operand) -> Var | None:
        """A tile that a tile is made of, and that is a view of memory."""
        for op in self._needed(tile):
            name = op.results[0].name
            if self._is_view(op) and name not in self.memory:
                return op.results[0]
        return None

    def _is_view(self, op: Op) -> bool:
        """Whether the result of an operation is a part of memory, or is put there piece by piece."""
        if op.op == "reshape":
            return self.sizes.kept(op) is None
        return op.op in ("tile_slice", "concat", "stack") or (op.op == "flip" and op.attr("axis") == 0)

    def _first(self, tile: Var) -> Var | None:
        """A tile to put into memory, where those that a tile is made of cannot be divided together."""
        ops = self._needed(tile)
        for op in ops:
            if op.op == "dot":
                for operand in op.args[:2]:
                    if isinstance(operand, Var) and not self._is_loaded(operand):
                        return operand
        heavy = [op for op in ops if not self._is_light(op) and op.results[0].name not in self.memory]
        if [op.op for op in heavy] == ["dot"]:  # a product, and what follows it elementwise
            return None
        heavy = [op for op in heavy if not any(r.name == tile.name for r in op.results)]
        if heavy:
            return heavy[0].results[0]
        last = self.maker[tile.name]
        if last.op == "dot":
            return None
        for operand in last.args:
            if isinstance(operand, Var) and isinstance(operand.type, TileType) and not self._is_loaded(operand):
                op = self.maker[operand.name]
                if op.op not in GENERATED and any(o.op == "load" for o in self._needed(operand)):
                    return operand
        return None

    def _is_light(self, op: Op) -> bool:
        return is_elementwise(op) or op.op in _REPEATED or (op.op == "reshape" and self.sizes.kept(op) is not None)

    def _is_loaded(self, tile: Var) -> bool:
        return tile.name in self.memory or self.maker[tile.name].op == "load"

    # -- long lines -----------------------------------------------------------------------------------------------

    def _or_pieces(self, tile: Var, store: Callable[[Var], Op], ops: list[Op], loops: list[Stmt]) -> list[Stmt]:
        """Loops that compute a tile, or others where the tiles of a part may be larger than a block has room for."""
        limit = self._limit(ops)
        if limit is None:
            return loops
        old = self.memory, self.views, self.maker, self.out, self.place
        self.memory, self.views, self.maker, self.out, self.place = (
            dict(old[0]), dict(old[1]), dict(old[2]), [], dict(old[4]))  # fmt: skip
        self.branch += 1
        told = len(self.divider.decisions)
        try:
            self._emit_pieces(tile, store)
            other: list[Stmt] | None = self.out
        except CutError:
            del self.divider.decisions[told:]
            other = None
        self.branch -= 1
        self.memory, self.views, self.maker, self.out, self.place = old
        if other is None:
            if self.long:
                raise CutError
            return loops
        if self.long or isinstance(limit[0], Const):
            return other
        fits = self.divider.known.names.fresh("fits", BOOL)
        self.scalars.block.append(Op("le", (fits,), (limit[0], index(limit[1])), (), (), self.scope.loc))
        return [If(fits, tuple(loops), tuple(other), loc=self.scope.loc)]

    def _emit_pieces(self, tile: Var, store: Callable[[Var], Op]) -> None:
        """Compute a tile, with memory for what is reduced to make it, of which there are partial results."""
        reductions = [op for op in self._needed(tile) if divides(op) and op.results[0].name not in self.memory]
        if not reductions:
            raise CutError
        for op in reductions:
            self._reduce(op, tile)
        ops = self._group(tile, store)
        loops: Sequence[Stmt] | None = self.divider.in_parts(ops, self.scope)
        if loops is None and not any(map(self.divider.may_be_large, ops)):
            loops = self._alone(ops)
        elif loops is None or self._limit(ops) is not None:
            raise CutError
        self._write(loops)

    def _limit(self, ops: list[Op]) -> tuple[Operand, int] | None:
        assert self.divider.latest is not None
        return room(self.divider.latest, ops, self.divider.known, self.scalars, self.parts)

    def _reduce(self, op: Op, tile: Var) -> None:
        """Make a reduction one of partial results; it has memory where it is read for every line of a tile."""
        operand, result = op.args[0], op.results[0]
        over = reduced_axes(op)
        assert isinstance(operand, Var) and isinstance(result.type, TileType) and isinstance(tile.type, TileType)
        kind, work = working(op)
        for axis in reversed(over):
            operand = self._partials(op, operand, axis)
            if axis != over[0]:
                one = Op(kind, (), (operand,), (("axes", (axis,)), ("keepdims", False)), (), op.loc)
                (less,) = infer(one.op, one.args, dict(one.attrs))
                operand = self._made(less, one, result)
                self._remember(operand)
        once = len(over) == 1 or not op.attr("keepdims")
        last = Op(kind, (), (operand,), (("axes", over[:1]), ("keepdims", once and bool(op.attr("keepdims")))), (), op.loc)
        if not once:  # the axes of extent 1 come back
            (less,) = infer(last.op, last.args, dict(last.attrs))
            extents = [size.declared for size in self.sizes.of(result)]
            last = Op("reshape", (), (self._made(less, last, result), *extents), (), (), op.loc)
        if result.type.dtype == work:
            self.maker[result.name] = replace(last, results=(result,))
        else:
            wide = self._made(TileType(work, result.type.shape), last, result)
            self.maker[result.name] = Op("cast", (result,), (wide,), (("dtype", result.type.dtype),), (), op.loc)
        if _long_axes(tile.type) > _long_axes(result.type):
            self._remember(result)

    def _partials(self, op: Op, tile: Var, axis: int) -> Var:
        """A tile of partial results of a tile along an axis, in memory."""
        assert isinstance(tile.type, TileType)
        few = (tile.type.shape[axis] or MOST + 1) <= MOST
        if few or (None not in tile.type.shape and prod(tile.type.shape) <= self.divider.parts.large):  # type: ignore
            if not self._is_loaded(tile):
                self._remember(tile)
            return tile
        _, work = working(op)
        sizes = self.sizes.of(tile)
        step = ROW if axis == max(k for k, n in enumerate(tile.type.shape) if n != 1) else ROWS
        extent = sizes[axis].valid
        chunk, parts = chunks_of(extent, step, self.scalars)
        self.parts.add(parts)
        extents = [parts if k == axis else size.valid for k, size in enumerate(sizes)]
        partials = self._host("alloc", extents, f"{source_name(op.results[0].name)}.partials", dtype=work)
        pseudo = self.divider.known.names.fresh("memory", TensorType(tile.type.dtype, tile.type.shape, "c"))
        ops = self._group(tile, lambda mine: _store(mine, pseudo, op.loc))
        loops = self.divider.loops(ops, self.scope)
        mine = ops[-1].args[0]
        assert isinstance(mine, Var)
        own = loops.lines.axes(mine) if loops is not None else {}
        if loops is None or any(line not in loops.found for line in own.values()) or loops.told:
            raise CutError
        self._write(reduced_along(op, mine, axis, ops[:-1], loops, (extent, chunk, parts), partials))
        reason = f"what is reduced along axis {axis} is, in up to {MOST} parts, and these then"
        self.divider.decisions.append(Decision("reduction", (), True, reason, op.loc))
        many = int(parts.value) if isinstance(parts, Const) else None
        shape = tuple(many if k == axis else n for k, n in enumerate(tile.type.shape))
        whole = self._made(TileType(work, shape), None, op.results[0])
        self.sizes.found[whole.name] = tuple(
            Size(parts, parts) if k == axis else Size(size.valid, size.valid) for k, size in enumerate(sizes)
        )
        self.memory[whole.name] = partials
        return whole

    def _made(self, kind: Type, op: Op | None, near: Var) -> Var:
        """A new tile, which an operation makes where another one is made."""
        var = self.divider.known.names.fresh(source_name(near.name), kind)
        self.place[var.name] = self.place[near.name] - 1 / (2 + len(self.place))
        if op is not None:
            self.maker[var.name] = self.sizes.made[var.name] = replace(op, results=(var,))
        return var

    # -- memory ---------------------------------------------------------------------------------------------------

    def _prepare(self, tile: Var) -> None:
        """Whatever makes it possible to read a tile that is a view."""
        op = self.maker[tile.name]
        if op.op == "flip":
            self._flip(tile, op)
        else:
            self._remember(tile)

    def _remember(self, tile: Operand) -> None:
        """Put a tile into memory, if it is not there."""
        assert isinstance(tile, Var)
        if tile.name in self.memory_of_our_own:
            return
        op = self.maker[tile.name]
        match op.op:
            case "tile_slice":
                self._slice(tile, op)
            case "concat" | "stack":
                self._join(tile, op)
            case "transpose":
                tensor, of = self._source(op.args[0])
                axes = op.attr("axes")
                self._hold(tile, self._host("tensor_transpose", (tensor,), source_name(tile.name), axes=axes), of)
            case "reshape" if self.sizes.kept(op) is None:
                self._reshape(tile, op)
            case _:
                memory = self._new(tile)
                self.memory.pop(tile.name, None)
                self.views.pop(tile.name, None)
                self._emit(tile, lambda part: _store(part, memory, op.loc))
                self.memory[tile.name] = memory

    def _new(self, tile: Var) -> Var:
        """Memory for a tile."""
        assert isinstance(tile.type, TileType)
        sizes = self.sizes.of(tile)
        if any(size.fits and n != 1 for size, n in zip(sizes, tile.type.shape, strict=True)) and not self._is_whole():
            raise CutError
        return self._alloc(tile, tuple(size.valid for size in sizes))

    def _is_whole(self) -> bool:
        """Whether all tiles that are loaded are as large as they are declared."""
        return all(size.whole for op in self.ops if op.op == "load" for size in self.sizes.of(op.results[0]))

    def _alloc(self, tile: Var, extents: tuple[Operand, ...]) -> Var:
        assert isinstance(tile.type, TileType)
        return self._host("alloc", extents, f"{source_name(tile.name)}.memory", dtype=tile.type.dtype)

    def _host(self, op: str, args: Sequence[Operand], hint: str, **attrs: object) -> Var:
        """The result of an operation of the host on tensors."""
        known = self.divider.known
        (kind,) = infer(op, tuple(args), attrs)  # type: ignore[arg-type]
        result = known.names.fresh(hint, kind)
        made = Op(op, (result,), tuple(args), tuple(attrs.items()), (), self.scope.loc)  # type: ignore[arg-type]
        known.add({result.name: made})
        known.assigned[result.name] += 1
        self._write([made])
        return result

    def _write(self, stmts: Sequence[Stmt]) -> None:
        """Put statements behind what the numbers that they need are computed by."""
        if not self.branch:
            self.out += self.scalars.block
            self.scalars.block.clear()
        self.out += stmts

    def _source(self, tile: Operand) -> tuple[Var, str | None]:
        """The tensor that a tile is a whole of, and, where it is no memory of our own, what it is loaded as."""
        assert isinstance(tile, Var)
        known = self.memory.get(tile.name)
        if known is not None:
            return known, self.views.get(tile.name)
        op = self.maker[tile.name]
        if op.op != "load" or op.attr("pad"):
            self._remember(tile)
            return self.memory[tile.name], self.views.get(tile.name)
        rank = tile.type.rank  # type: ignore[union-attr]
        offsets, extents = op.args[1 : 1 + rank], op.args[1 + rank : 1 + 2 * rank]
        tensor = op.args[0]
        sizes = self.sizes.of(tile)
        whole = all(o == index(0) and size.whole for o, size in zip(offsets, sizes, strict=True)) and all(
            self.sizes.known.size(tensor, k, self.scalars) == size.valid or self._is_dim(tensor, k, size.valid)
            for k, size in enumerate(sizes))  # fmt: skip
        if not whole:
            tensor = self._host("view", (tensor, *offsets, *extents), f"{source_name(tile.name)}.view", drop=())
        assert isinstance(tensor, Var)
        self.memory[tile.name], self.views[tile.name] = tensor, tile.name
        return tensor, tile.name

    def _is_dim(self, tensor: Operand, axis: int, extent: Operand) -> bool:
        maker = self.divider.known.makers.get(extent.name) if isinstance(extent, Var) else None
        return maker is not None and maker.op == "dim" and maker.args[0] == tensor and maker.attr("axis") == axis

    def _hold(self, tile: Var, tensor: Var, of: str | None) -> None:
        self.memory[tile.name] = tensor
        if of is not None:
            self.views[tile.name] = of

    def _slice(self, tile: Var, op: Op) -> None:
        rank = op.args[0].type.rank  # type: ignore[union-attr]
        known = self.divider.known
        for start in op.args[1 : 1 + 2 * rank]:
            if not known.is_natural(start):
                raise CutError
        tensor, of = self._source(op.args[0])
        view = self._host("view", (tensor, *op.args[1:]), f"{source_name(tile.name)}.view", drop=op.attr("drop") or ())
        self._hold(tile, view, of)

    def _reshape(self, tile: Var, op: Op) -> None:
        tensor, of = self._source(op.args[0])
        assert isinstance(tensor.type, TensorType)
        if tensor.type.layout != "c":
            source = op.args[0]
            assert isinstance(source, Var)
            self.memory.pop(source.name)
            memory = self._new(source)
            self.views.pop(source.name, None)
            self._emit(source, lambda part: _store(part, memory, op.loc))
            self.memory[source.name] = memory
            tensor, of = memory, None
        self._hold(tile, self._host("tensor_reshape", (tensor, *op.args[1:]), source_name(tile.name)), of)

    def _join(self, tile: Var, op: Op) -> None:
        """Tiles one after the other, or one beside the other."""
        assert isinstance(tile.type, TileType)
        axis = int(op.attr("axis"))  # type: ignore[call-overload]
        sizes = self.sizes.of(tile)
        self._compare(op, axis)
        memory = self._alloc(tile, tuple(size.valid for size in sizes))
        at: Operand = index(0)
        for k, operand in enumerate(op.args):
            assert isinstance(operand, Var)
            if op.op == "stack":
                places = [index(0)] * len(sizes)
                places[axis] = index(k)
                extents = [index(1) if n == axis else size.valid for n, size in enumerate(sizes)]
                part = self._host("view", (memory, *places, *extents), f"{memory.name}.part", drop=(axis,))
                self._emit(operand, lambda value, part=part: _store(value, part, op.loc))
                continue
            offsets = [index(0) if n != axis else at for n in range(len(sizes))]
            self._emit(operand, lambda value, offsets=offsets: _store(value, memory, op.loc, offsets))
            at = self.scalars.op("add", at, self.sizes.of(operand)[axis].valid, "at")
        self.memory[tile.name] = memory

    def _compare(self, op: Op, axis: int) -> None:
        """The host makes sure that tiles which are joined have the same extents, besides those that are added up."""
        known = self.divider.known
        own = [self.sizes.of(a) for a in op.args]
        for other in own[1:]:
            for k, (a, b) in enumerate(zip(own[0], other, strict=True)):
                if op.op == "concat" and k == axis:
                    continue
                if a.declared != b.declared:
                    known.check(self.scalars.block, "eq", a.declared, b.declared, DECLARED, op.loc, axis=k)
                if a.valid != b.valid and not (a.fits or b.fits):
                    known.check(self.scalars.block, "eq", a.valid, b.valid, VALID, op.loc, axis=k)

    def _flip(self, tile: Var, op: Op) -> None:
        """A tile whose first axis is reversed: rows that are taken from memory."""
        tensor, _ = self._source(op.args[0])
        size = self.sizes.of(tile)[0].valid
        last = self.scalars.op("sub", size, index(1), "last")
        rows = self.divider.known.names.fresh("rows", TileType(i64, tile.type.shape[:1]))  # type: ignore[union-attr]
        numbers = Op("arange", (rows,), (last, index(-1), size), (), (), op.loc)
        zeros = (index(0),) * tensor.type.rank  # type: ignore[union-attr]
        self.maker[rows.name] = self.sizes.made[rows.name] = numbers
        self.place[rows.name] = self.place[tile.name] - 0.5
        self.maker[tile.name] = Op("take", (tile,), (tensor, rows, *zeros), (("axis", 0),), (), op.loc)


def _store(tile: Var, tensor: Var, loc: Loc, offsets: Sequence[Operand] = ()) -> Op:
    places = tuple(offsets) or (index(0),) * tensor.type.rank  # type: ignore[union-attr]
    return Op("store", (), (tile, tensor, *places), (), (), loc)


def _long_axes(tile: TileType) -> int:
    return sum(n != 1 for n in tile.shape)
