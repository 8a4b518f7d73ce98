# SPDX-License-Identifier: MIT
"""Tiles in memory, for what `cut` divides in several loops: those that are computed have a tensor of their own, parts
of tiles and other shapes are views of it, and tiles that are joined are stored one after the other.

Before::

    %t = tmul %x.1, 2.0:f32 : !pto.tile<?x?xf32>
    %u = ttile_slice %t[1, 0] [%n1, %m] {drop=()} : !pto.tile<?x?xf32>

After::

    %t.memory = talloc [%n, %m] {dtype=f32} : !pto.memref<gm,?x?,f32>
    FOR ...  // %t, to its memory
    %u.view = tview %t.memory[1, 0] [%n1, %m] {drop=()} : !pto.memref<gm,?x?,f32,inner>
    ...
    %u = tload %u.view[...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TensorType, TileType, Type
from pto_jit.ir.walk import rename
from pto_jit.lower.names import Scalars, index, source_name, with_own_regions
from pto_jit.lower.wholes.parted import PROOF
from pto_jit.lower.wholes.sizes import Sizes
from pto_jit.semantic.failures import DECLARED, RESHAPE, VALID
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.lower.wholes.choose import LoopsOverParts

Store = Callable[[Var], Op]
"""What stores a tile."""


class CutError(Exception):
    """Operations that are not cut."""


class TilesInMemory(ABC):
    """The tiles that a run of operations makes, and those of them that are in memory.

    maker, place: what makes a tile, and where that stands; memory: tensors that hold tiles; views: what memory that is
    a view is a part of, a tile that is loaded of a tensor which the operations may write; origin: what a tile of a
    group was before; out: what is written; branch: how many branches of the host are around that, before which numbers
    are computed.
    """

    def __init__(
        self, divider: LoopsOverParts, scope: Scope, ops: list[Op], scalars: Scalars, *, branch: int = 0
    ) -> None:  # fmt: skip
        self.divider, self.scope, self.ops, self.scalars, self.branch = divider, scope, ops, scalars, branch
        self.sizes = Sizes(divider.known, scalars)
        self.maker: dict[str, Op] = {}
        self.place: dict[str, float] = {}
        self.memory: dict[str, Var] = {}
        self.views: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        self.out: list[Stmt] = []

    @abstractmethod
    def _emit(self, tile: Var, store: Store) -> None:
        """Write what computes a tile and stores it."""

    # -- what is needed -------------------------------------------------------------------------------------------

    @property
    def memory_of_our_own(self) -> set[str]:
        """The tiles that are in memory that nothing else writes."""
        return {name for name in self.memory if name not in self.views}

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

    def _group(self, tile: Var, store: Store) -> list[Op]:
        """The operations that make a tile and store it, under names of their own."""
        names = self.divider.known.names
        mine: dict[str, str] = {}
        ops: list[Op] = []
        # at once, as a block has registers for all; of a core's memory each takes its part until it is read
        loads: list[Op] = ops if self.divider.parts.flat else []

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
            op = self._maker(var)
            for r in op.results:
                mine.setdefault(r.name, names.fresh(source_name(r.name), r.type).name)
            for a in op.args:
                if isinstance(a, Var) and isinstance(a.type, TileType):
                    read(a)
            (ops if op.op != "load" else loads).append(op)

        read(tile)
        self.origin |= {new: old for old, new in mine.items()}
        renamed = rename(tuple(ops) if loads is ops else (*loads, *ops), mine)
        made = [with_own_regions(op, names) for op in renamed if isinstance(op, Op)]
        whole = [*made, store(Var(mine[tile.name], tile.type))]
        known = self.divider.known
        known.add({r.name: op for op in whole for r in op.results})
        known.assigned.update(r.name for op in whole for r in op.results)
        return whole

    def _maker(self, tile: Var) -> Op:
        """What makes a tile that is not in memory; CutError where another run does, or a loop."""
        op = self.maker.get(tile.name)
        if op is None:
            raise CutError
        return op

    def _is_view(self, op: Op) -> bool:
        """Whether the result of an operation is a part of memory, or is put there piece by piece."""
        flat = self.divider.parts.flat
        match op.op:
            case "tile_slice" | "concat" | "stack":
                return True
            case "reshape":
                return self.sizes.kept(op) is None
            case "flip":
                return flat or op.attr("axis") == 0
            case "transpose":
                return flat and _exchanges(op)
            case _:
                return False

    def _is_loaded(self, tile: Var) -> bool:
        return tile.name in self.memory or self._maker(tile).op == "load"

    def _write(self, stmts: Sequence[Stmt]) -> None:
        """Put statements behind what the numbers that they need are computed by."""
        if not self.branch:
            self.out += self.scalars.block
            self.scalars.block.clear()
        self.out += stmts

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
        op = self._maker(tile)
        if op.op == "flip" and not self.divider.parts.flat:
            self._take_rows(tile, op)
        else:
            self._remember(tile)

    def _remember(self, tile: Operand) -> None:
        """Put a tile into memory, if it is not there."""
        assert isinstance(tile, Var)
        if tile.name in self.memory_of_our_own:
            return
        op = self._maker(tile)
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
            case "flip" if self.divider.parts.flat:
                self._reverse(tile, op)
            case _:
                memory = self._new(tile)
                self.memory.pop(tile.name, None)
                self.views.pop(tile.name, None)
                self._emit(tile, lambda part: stored(part, memory, op.loc))
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

    def _source(self, tile: Operand) -> tuple[Var, str | None]:
        """The tensor that a tile is a whole of, and, where it is no memory of our own, what it is loaded as."""
        assert isinstance(tile, Var)
        known = self.memory.get(tile.name)
        if known is not None:
            return known, self.views.get(tile.name)
        op = self._maker(tile)
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
            self._emit(source, lambda part: stored(part, memory, op.loc))
            self.memory[source.name] = memory
            tensor, of = memory, None
        before, after = self.sizes.elements(op.args[0]), self.sizes.elements(tile)
        if before != after:
            self.divider.known.check(self.scalars.block, "eq", before, after, RESHAPE, op.loc)
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
                self._emit(operand, lambda value, part=part: stored(value, part, op.loc))
                continue
            offsets = [index(0) if n != axis else at for n in range(len(sizes))]
            self._emit(operand, lambda value, offsets=offsets: stored(value, memory, op.loc, offsets))
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

    def _take_rows(self, tile: Var, op: Op) -> None:
        """A tile whose first axis is reversed: rows that are taken from memory."""
        tensor, _ = self._source(op.args[0])
        sizes = self.sizes.of(tile)
        numbers = (self.scalars.op("sub", sizes[0].valid, index(1), "last"), index(-1), sizes[0].valid)
        rows = self._made(infer("arange", numbers, {})[0], Op("arange", (), numbers, (), (), op.loc), tile)
        zeros = (index(0),) * len(sizes)
        taken = Op("take", (), (tensor, rows, *zeros), (("axis", 0),), (), op.loc)
        (kind,) = infer(taken.op, taken.args, dict(taken.attrs))
        if kind == tile.type:
            self.maker[tile.name] = replace(taken, results=(tile,))
            return
        # fewer rows may be there than the constant number of them that is declared
        whole = self._made(kind, taken, tile)
        declared = tuple(size.declared for size in sizes)
        self.maker[tile.name] = Op("tile_slice", (tile,), (whole, *zeros, *declared), (("drop", ()),), (), op.loc)

    def _reverse(self, tile: Var, op: Op) -> None:
        """Lines in the other order, a part of one line at a time; along the last axis a part is reversed, too."""
        tensor, _ = self._source(op.args[0])
        extents = [size.valid for size in self.sizes.of(tile)]
        memory = self._alloc(tile, tuple(extents))
        names, loc, width = self.divider.known.names, op.loc, self.divider.parts.elements
        axis, last = int(op.attr("axis")), len(extents) - 1  # type: ignore[call-overload]
        at = [names.fresh(f"{source_name(tile.name)}_at") for _ in extents]
        inner = Scalars(names, loc)
        some = inner.op("min", inner.op("sub", extents[last], at[last], "left"), index(width), "some")
        begin = inner.op("sub", inner.op("sub", extents[axis], at[axis], "left"), some if axis == last else index(1))
        places = tuple(begin if k == axis else place for k, place in enumerate(at))
        part = names.fresh(source_name(tile.name), TileType(tile.type.dtype, (*(1,) * last, None)))  # type: ignore
        extent = (*(index(1),) * last, some)
        body: list[Stmt] = [*inner.block, Op("load", (part,), (tensor, *places, *extent), (), (), loc)]
        if axis == last:
            turned = names.fresh(source_name(tile.name), part.type)
            body.append(Op("flip", (turned,), (part,), (("axis", axis),), (), loc))
            part = turned
        body.append(Op("store", (), (part, memory, *at), (), (), loc))
        block: Block = tuple(body) if self.scope.named else (replace(self.scope, body=tuple(body)),)
        for k in reversed(range(len(extents))):
            step = index(width if k == last else 1)
            block = (For("parallel", at[k], index(0), extents[k], step, block, proof=PROOF, loc=loc),)
        self._write(block)
        self.memory[tile.name] = memory


def _exchanges(transpose: Op) -> bool:
    """Whether axes change places that are longer than 1."""
    shape = transpose.args[0].type.shape  # type: ignore[union-attr]
    long = [k for k in transpose.attr("axes") if shape[k] != 1]  # type: ignore[union-attr, call-overload]
    return long != sorted(long)


def stored(tile: Var, tensor: Var, loc: Loc, offsets: Sequence[Operand] = ()) -> Op:
    """What stores a tile in memory."""
    places = tuple(offsets) or (index(0),) * tensor.type.rank  # type: ignore[union-attr]
    return Op("store", (), (tile, tensor, *places), (), (), loc)
