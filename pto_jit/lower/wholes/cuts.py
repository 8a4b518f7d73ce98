# SPDX-License-Identifier: MIT
"""Operations on whole tensors that no loop over parts can do together, cut into groups that such loops do one by one.

Elements that change places, and what is computed along an axis, go by way of memory; each group loads, or computes
again, what it needs.  Lines that are reversed are loaded and stored by loops that are made here.

Before::

    %x.1 = tload %x[0, 0] [%n, 64]
    %y.1 = tload %y[0, 0] [%m, 64]
    %t = tadd %x.1, 1.0
    %c = tconcat %t, %y.1 {axis=0}
    %u = texp %c
    tstore %u, %z[0, 0]

After::

    %k = sadd %n, %m
    %c.memory = talloc [%k, 64]

    %x.1 = tload %x[0, 0] [%n, 64]
    %t = tadd %x.1, 1.0
    tstore %t, %c.memory[0, 0]

    %y.1 = tload %y[0, 0] [%m, 64]
    tstore %y.1, %c.memory[%n, 0]

    %c = tload %c.memory[0, 0] [%k, 64]
    %u = texp %c
    tstore %u, %z[0, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pto_jit.dtypes import f32
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Attr, Block, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.groups.fitting import fitting_axes
from pto_jit.lower.names import Scalars, index, source_name
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.lines import Lines, axis_along, root_of
from pto_jit.lower.wholes.parted import PROOF
from pto_jit.semantic.failures import VALID
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace

_SPLIT = frozenset("sum prod max min any all".split())
"""Reductions along several axes that are one along each."""


class _UncutError(Exception):
    """Too little is known, or groups would read what others have written."""


class Cuts:
    """Cuts operations, in their order, where elements change places, behind `others`, and before what these `products`
    are computed of.

    part: how many elements of a line a loop takes that is made here; before: what the host does before all groups.
    """

    def __init__(self, ops: Sequence[Op], known: Known, scope: Scope, others: Callable[[Op], bool], part: int,
                 products: Callable[[Op], bool] = lambda _: False) -> None:  # fmt: skip
        self.ops = list(ops)
        self.known = known
        self.scope = scope
        self.others = others
        self.products = products
        self.part = part
        self.scalars = Scalars(known.names, scope.loc)
        self.makers = {r.name: op for op in ops for r in op.results}
        self.places = {r.name: k for k, op in enumerate(ops) for r in op.results}
        self.fitting = fitting_axes(tuple(ops))
        self.there: dict[str, tuple[Var, tuple[Operand, ...]]] = {}
        """Tiles that are in memory: a tensor that has their extents, and these."""
        self.now = 0
        self.groups: list[list[Op] | For] = []

    @property
    def before(self) -> list[Stmt]:
        return self.scalars.block

    def cut(self) -> list[list[Op] | For] | None:
        """The groups; None where nothing is cut, or it is not known how."""
        if not any(self._is_cut(op) or self.products(op) for op in self.ops):
            return None
        try:
            for now, op in enumerate(self.ops):
                self.now = now
                if self.products(op):
                    self._operands(op)
                if op.op == "store":
                    tile = op.args[0]
                    assert isinstance(tile, Var)
                    group, (stored,) = self._group((tile,))
                    self.groups.append([*group, replace(op, args=(stored, *op.args[1:]))])
                elif self._is_cut(op):
                    self._moved(op) if changes_places(op) else self._tile(op.results[0])
        except _UncutError:
            return None
        return self.groups

    def _is_cut(self, op: Op) -> bool:
        if not op.results or not isinstance(op.results[0].type, TileType):
            return False
        return changes_places(op) or self.others(op)

    # -- tiles in memory ------------------------------------------------------------------------------------------

    def _moved(self, op: Op) -> None:
        """An operation that changes the places of elements, as another view of memory."""
        (result,) = op.results
        if op.op == "concat":
            self._joined(op)
            return
        memory, extents = self._tile(op.args[0], packed=op.op == "reshape")
        if op.op == "flip":
            self._reversed(op, memory, extents)
            return
        rank = memory.type.rank  # type: ignore[union-attr]
        match op.op:
            case "transpose":
                axes = op.attr("axes")
                assert isinstance(axes, tuple)
                args: tuple[Operand, ...] = (memory,)
                attrs: dict[str, Attr] = {"axes": axes}
                given = tuple(extents[int(a)] for a in axes)  # type: ignore[call-overload]
                name = "tensor_transpose"
            case "tile_slice":
                drop = op.attr("drop") or ()
                starts, sides = op.args[1 : 1 + rank], op.args[1 + rank :]
                clipped = [self._clipped(*one) for one in zip(starts, sides, extents, strict=True)]
                args = (memory, *starts, *clipped)
                attrs = {"drop": drop} if drop else {}
                given = tuple(n for k, n in enumerate(clipped) if k not in drop)  # type: ignore[operator]
                name = "view"
            case _:
                args, attrs, given, name = (memory, *op.args[1:]), {}, op.args[1:], "tensor_reshape"
        view = self._host(name, f"{source_name(result.name)}.moved", args, attrs, op.loc)
        self.there[result.name] = view, given

    def _clipped(self, start: Operand, side: Operand, extent: Operand) -> Operand:
        """How much of a part lies inside."""
        if start == index(0) and side == extent:
            return side
        if not isinstance(start.type, ScalarType) or (isinstance(start, Var) and start.name in self.makers):
            raise _UncutError
        left = self.scalars.op("sub", extent, start, "left")
        return self.scalars.op("max", self.scalars.op("min", side, left, "some"), index(0), "some")

    def _joined(self, op: Op) -> None:
        """Tiles one after the other, each stored at its place."""
        (result,) = op.results
        typ, axis = result.type, int(op.attr("axis"))  # type: ignore[call-overload]
        assert isinstance(typ, TileType)
        groups, sides = [], []
        for tile in op.args:
            assert isinstance(tile, Var)
            group, (own,) = self._group((tile,))
            groups.append((group, own))
            sides.append(self._extents(own, group))
        whole = list(sides[0])
        begins: list[Operand] = [index(0)]
        for k, side in enumerate(sides):
            for other in (n for n in range(typ.rank) if n != axis):
                if side[other] != whole[other]:
                    self.known.check(self.scalars.block, "eq", whole[other], side[other], VALID, op.loc, axis=other)
            begins.append(self.scalars.op("add", begins[-1], side[axis], "at") if k else side[axis])
        whole[axis] = begins[-1]
        memory = self._memory(result, tuple(whole), op.loc)
        for (group, own), begin in zip(groups, begins, strict=False):
            places = tuple(begin if k == axis else index(0) for k in range(typ.rank))
            self.groups.append([*group, Op("store", (), (own, memory, *places), (), (), op.loc)])

    def _operands(self, dot: Op) -> None:
        """Those of a product that are computed are in memory, too."""
        for operand in dot.args:
            maker = self.makers.get(operand.name) if isinstance(operand, Var) else None
            if maker is not None and maker.op != "load" and operand.name not in self.there:  # type: ignore[union-attr]
                self._tile(operand)

    def _reversed(self, op: Op, memory: Var, extents: tuple[Operand, ...]) -> None:
        """Lines along an axis in the other order, a part of one line at a time: along the last axis a part is reversed
        on chip, too."""
        (result,) = op.results
        names, loc = self.known.names, op.loc
        axis, last = int(op.attr("axis")) % len(extents), len(extents) - 1  # type: ignore[call-overload]
        target = self._memory(result, extents, loc)
        at = [names.fresh(f"{source_name(result.name)}_at") for _ in extents]
        inner = Scalars(names, loc)
        some = inner.op("min", inner.op("sub", extents[last], at[last], "left"), index(self.part), "some")
        begin = inner.op("sub", inner.op("sub", extents[axis], at[axis], "left"), some if axis == last else index(1))
        places = tuple(begin if k == axis else place for k, place in enumerate(at))
        tile = names.fresh(source_name(result.name), TileType(result.type.dtype, (*(1,) * last, None)))  # type: ignore
        body = [*inner.block, Op("load", (tile,), (memory, *places, *(index(1),) * last, some), (), (), loc)]
        if axis == last:
            other = names.fresh(source_name(result.name), tile.type)
            body.append(Op("flip", (other,), (tile,), (("axis", axis),), (), loc))
            tile = other
        body.append(Op("store", (), (tile, target, *at), (), (), loc))
        block: Block = tuple(body) if self.scope.named else (replace(self.scope, body=tuple(body)),)
        for k in reversed(range(len(extents))):
            step = index(self.part if k == last else 1)
            block = (For("parallel", at[k], index(0), extents[k], step, block, proof=PROOF, loc=loc),)
        self.groups.append(block[0])  # type: ignore[arg-type]

    def _tile(self, tile: Operand, *, packed: bool = False) -> tuple[Var, tuple[Operand, ...]]:
        """Where a tile is in memory, now at least; packed: as a tensor of its own."""
        assert isinstance(tile, Var)
        if tile.name not in self.there:
            if True in self.fitting.get(tile.name, ()):
                raise _UncutError  # which memory does not tell
            maker = self.makers.get(tile.name)
            if maker is None:
                raise _UncutError
            group, (own,) = self._group((tile,), whole=True)
            extents = self._extents(own, group)
            lies = self._loaded(maker, extents) if not packed else None
            if lies is not None:
                self.there[tile.name] = lies, extents
                return lies, extents
            memory = self._memory(tile, extents, maker.loc)
            places = (index(0),) * len(extents)
            self.groups.append([*group, Op("store", (), (own, memory, *places), (), (), maker.loc)])
        return self.there[tile.name]

    def _loaded(self, op: Op, extents: tuple[Operand, ...]) -> Var | None:
        """The part of a tensor that an operation loads, if it stays as it is."""
        if op.op != "load" or op.attrs or self._is_written(op, len(self.ops)):
            return None
        tensor, starts = op.args[0], op.args[1 : 1 + len(extents)]
        assert isinstance(tensor, Var)
        return self._host("view", f"{source_name(tensor.name)}.part", (tensor, *starts, *extents), {}, op.loc)

    def _memory(self, tile: Var, extents: tuple[Operand, ...], loc: Loc) -> Var:
        typ = tile.type
        assert isinstance(typ, TileType)
        if True in self.fitting.get(tile.name, ()):
            raise _UncutError
        hint = f"{source_name(tile.name)}.memory"
        memory = self._host("alloc", hint, extents, {"dtype": typ.dtype}, loc)
        self.there[tile.name] = memory, extents
        return memory

    def _host(self, name: str, hint: str, args: tuple[Operand, ...], attrs: dict[str, Attr], loc: Loc) -> Var:
        """What the host makes of tensors and numbers."""
        if any(isinstance(a, Var) and a.name in self.makers for a in args):
            raise _UncutError  # of numbers that are made of tiles
        (kind,) = infer(name, args, attrs)
        out = self.known.names.fresh(hint, kind)
        op = Op(name, (out,), args, tuple(attrs.items()), (), loc)
        self.known.add({out.name: op})
        self.scalars.block.append(op)
        return out

    def _extents(self, tile: Var, group: list[Op]) -> tuple[Operand, ...]:
        """How many lines a tile has, whose operations are a group: all that it is declared to have."""
        typ = tile.type
        assert isinstance(typ, TileType)
        lines = Lines(tuple(group))
        out: list[Operand] = []
        for k, n in enumerate(typ.shape):
            if n == 1:
                out.append(index(1))
                continue
            found = self.known.extent(lines, lines.axes(tile).get(k), group, self.scalars, anywhere=True)
            if found is None or (n is not None and found != index(n)):
                raise _UncutError
            out.append(found)
        return tuple(out)

    # -- groups ---------------------------------------------------------------------------------------------------

    def _group(self, tiles: tuple[Var, ...], *, whole: bool = False) -> tuple[list[Op], tuple[Var, ...]]:
        """Operations with names of their own that make tiles, of what is in memory.  whole: these are not there."""
        out: list[Op] = []
        made: dict[str, Operand] = {}
        wanted = {t.name for t in tiles} if whole else set()

        def make(operand: Operand) -> Operand:
            if not isinstance(operand, Var) or (operand.name not in self.makers and operand.name not in self.there):
                return operand
            if operand.name not in made:
                for op in self._makers(operand, wanted):
                    args = tuple(map(make, op.args))
                    results = tuple(self._again(r) for r in op.results)
                    out.append(Op(op.op, results, args, op.attrs, op.regions, op.loc))
                    made.update(zip((r.name for r in op.results), results, strict=True))
            return made[operand.name]

        return out, tuple(make(t) for t in tiles)  # type: ignore[misc]

    def _makers(self, var: Var, wanted: set[str]) -> Iterator[Op]:
        """The operation that makes a variable, or loads it."""
        if var.name in self.there:
            memory, extents = self.there[var.name]
            loc = self.makers[var.name].loc
            yield Op("load", (var,), (memory, *(index(0),) * len(extents), *extents), (), (), loc)
            return
        op = self.makers[var.name]
        if op.op == "valid":
            yield Op("copy", op.results, (self._valid(op.args[0], int(op.attr("axis"))),), (), (), op.loc)  # type: ignore
            return
        if var.name not in wanted and self._is_cut(op) and changes_places(op):
            raise _UncutError
        if op.op in ("load", "getelem", "take") and self._is_written(op, self.now):
            raise _UncutError
        yield op

    def _valid(self, tile: Operand, axis: int) -> Operand:
        """How many lines a tile has along an axis, which need not be made for that."""
        assert isinstance(tile, Var)
        if tile.name in self.there:
            return self.there[tile.name][1][axis]
        group, (own,) = self._group((tile,))
        return self._extents(own, group)[axis]

    def _is_written(self, load: Op, end: int) -> bool:
        """Whether a store between a load and another operation may write what it reads."""
        root = root_of(load.args[0], self.known.views)
        between = self.ops[self.places[load.results[0].name] : end]
        return any(op.op == "store" and root_of(op.args[1], self.known.views) == root for op in between)

    def _again(self, var: Var) -> Var:
        return self.known.names.fresh(source_name(var.name), var.type)


def one_axis_each(op: Op, known: Known) -> list[Op]:
    """A reduction along several axes as one along each, the last one first; of numbers that stay the same so."""
    over = [k for k in reduced_axes(op) if op.args[0].type.shape[k] != 1] if is_reduction(op) else []  # type: ignore
    result = op.results[0].type if op.results else None
    if len(over) < 2 or op.op not in _SPLIT or not isinstance(result, TileType):
        return [op]
    tile = op.args[0]
    assert isinstance(tile, Var) and isinstance(tile.type, TileType)
    if op.op in ("sum", "prod") and (tile.type.dtype != f32 or result.dtype != f32):
        return [op]
    out: list[Op] = []
    left = sorted(reduced_axes(op))
    while len(left) > 1 and len([k for k in left if tile.type.shape[k] != 1]) > 1:
        axis = left.pop()
        attrs = (("axes", (axis,)), ("keepdims", bool(op.attr("keepdims"))))
        (kind,) = infer(op.op, (tile,), dict(attrs))
        part = known.names.fresh(source_name(op.results[0].name), kind)
        out.append(Op(op.op, (part,), (tile,), attrs, (), op.loc))
        tile = part
        assert isinstance(tile.type, TileType)
    attrs = (("axes", tuple(left)), ("keepdims", bool(op.attr("keepdims"))))
    return [*out, Op(op.op, op.results, (tile,), attrs, (), op.loc)]


def is_along(op: Op) -> bool:
    """Whether an operation computes something along an axis."""
    return is_reduction(op) or axis_along(op) is not None


def changes_places(op: Op) -> bool:
    """Whether an operation gives elements other places than those of a tile that it is made of."""
    match op.op:
        case "concat" | "tile_slice" | "flip":
            return True
        case "reshape":
            return unit_reshape(op) is None
        case "transpose":
            shape, axes = op.args[0].type.shape, op.attr("axes")  # type: ignore[union-attr]
            long = [a for a in axes if shape[a] != 1]  # type: ignore[union-attr]
            return long != sorted(long)  # type: ignore[type-var]
        case _:
            return False

