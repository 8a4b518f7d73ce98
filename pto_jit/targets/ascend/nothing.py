# SPDX-License-Identifier: MIT
"""What is left of statements where tiles have no elements, which instructions do not take.

The sum over nothing is 0, the maximum -inf, and a product over nothing adds nothing; what is computed of a tile without
elements is one, too, and a store of it stores nothing.

Before::

    %t = tload %x[%j, 0] [%n, 64]                            // where %n is 0
    %e = texp %t
    %sum = tsum %e {axes=(0,), keepdims=true}
    %acc = tadd %acc, %sum
    tstore %e, %y[%j, 0]

After::

    %sum = tfull 0.0:f32, [1, 64]
    %acc = tadd %acc, %sum
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set

from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.ir.walk import block_uses, blocks, def_counts, statements, use_counts, uses, with_blocks
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.names import Names, Scalars, index
from pto_jit.lower.wholes.lines import STORES
from pto_jit.semantic.table import effects
from pto_jit.slotted import frozen

Starts = Callable[[Op], frozenset[int]]
"""Of an operation that makes a tile of given extents, or loads one: the axes that have no elements, from the last."""
_OF_NOTHING = {
    "sum": 0, "prod": 1, "max": -math.inf, "min": math.inf, "any": False, "all": True, "argmax": 0, "argmin": 0,
}  # fmt: skip
_OF_THE_SAME_SHAPE = ("cumsum", "cumprod", "sort", "argsort", "flip")


class _Unknown(Exception):
    """Something is done with a tile without elements of which it is not known here what is left."""


def what_is_left(body: Block, starts: Starts, func: Func, extents: Extents) -> Block | None:
    """A part of a kernel's body where tiles have no elements; None where that is not known, or where such a tile is
    read behind it."""
    inside, everywhere = def_counts(body), def_counts(func.body)
    mine = {name for name, count in inside.items() if everywhere[name] == count}
    read, everywhere_read = use_counts(body), use_counts(func.body)
    read_behind = {name for name in inside if everywhere_read[name] > read[name]}
    lasting = read_behind | {name for name in inside if name not in mine}
    for names in (None, Names(func)):  # tiles of declared extents, which fit others; or as they would have been cut
        left = _Left(starts, extents, mine, names)
        try:
            out = left.block(body)
        except _Unknown:
            continue
        if not any(name in read_behind for name in left.empty):
            return _without_idle(out, lasting)
    return None


@frozen
class Extent:
    """Of a tile along an axis: what was declared (None: not known); sure: it is as long; cut: else, where it was loaded
    from (a tensor, the axis, and from where on)."""

    declared: Operand | None
    sure: bool = False
    cut: tuple[Var, int, Operand] | None = None


_ONE = Extent(index(1), True)


class Extents:
    """The extents of the tiles of a kernel, as far as they are known."""

    def __init__(self, func: Func, dims: dict[str, tuple[str, int]]) -> None:
        self.dims = dims
        flat = list(statements(func.body))
        self.made = {s.results[0].name: s for s in flat if isinstance(s, Op) and s.results}
        self.loops = {s.var.name: s for s in flat if isinstance(s, For)}
        self.counts = def_counts(func.body)
        self.known: dict[str, tuple[Extent, ...]] = {}

    def of(self, tile: Operand) -> tuple[Extent, ...]:
        assert isinstance(tile, Var) and isinstance(tile.type, TileType)
        known = self.known.get(tile.name)
        if known is None:
            self.known[tile.name] = tuple(Extent(None if n is None else index(n), n == 1) for n in tile.type.shape)
            op = self.made.get(tile.name)
            if op is not None and self.counts[tile.name] == 1:
                self.known[tile.name] = self._made(op, tile.type)
            known = self.known[tile.name]
        return known

    def _made(self, op: Op, typ: TileType) -> tuple[Extent, ...]:
        """Of the result of an operation."""
        plain = self.known[op.results[0].name]
        tiles = [a for a in op.args if isinstance(a.type, TileType)]
        if op.op == "load":
            rank = op.args[0].type.rank  # type: ignore[union-attr]
            if typ.rank != rank:
                return plain
            sizes = op.args[1 + rank : 1 + 2 * rank]
            return tuple(self._loaded(op, axis, size) for axis, size in enumerate(sizes))
        if op.op in ("full", "arange"):
            return tuple(Extent(size, True) for size in op.args[-typ.rank :])
        if op.op == "transpose":
            order = op.attr("axes")
            assert isinstance(order, tuple)
            return tuple(self.of(tiles[0])[int(a)] for a in order)  # type: ignore[arg-type]
        if op.op == "dot" and typ.rank == 2:
            return self.of(tiles[0])[-2], self.of(tiles[1])[-1]
        if is_elementwise(op) or op.op in _OF_THE_SAME_SHAPE:
            return tuple(self._together(tiles, axis - typ.rank) for axis in range(typ.rank))
        if is_reduction(op):
            over = {a % tiles[0].type.rank for a in reduced_axes(op)}  # type: ignore[union-attr]
            sizes = [_ONE if a in over else size for a, size in enumerate(self.of(tiles[0]))]
            return tuple(s for a, s in enumerate(sizes) if op.attr("keepdims") or a not in over)
        return plain

    def _together(self, tiles: list[Operand], axis: int) -> Extent:
        """Of what is computed of tiles, along an axis, from the last: that of those which are not repeated along it."""
        sizes = [self.of(t)[axis] for t in tiles if t.type.rank >= -axis]  # type: ignore[union-attr]
        long = [s for s in sizes if s.declared != index(1)] or sizes
        return next((s for s in long if s.sure), next((s for s in long if s.cut), long[0]))

    def _loaded(self, op: Op, axis: int, size: Operand) -> Extent:
        tensor, offset = op.args[0], op.args[1 + axis]
        assert isinstance(tensor, Var)
        sure = bool(op.attr("pad")) or self._fits(tensor, axis, offset, size)
        return Extent(size, sure, None if sure else (tensor, axis, offset))

    def _fits(self, tensor: Operand, axis: int, offset: Operand, size: Operand) -> bool:
        """Whether so many elements from an offset on are sure to lie inside a tensor."""
        assert isinstance(tensor, Var) and isinstance(tensor.type, TensorType)
        limit = tensor.type.shape[axis]
        if isinstance(size, Const) and limit is not None:
            last = self._last(offset)
            return last is not None and last + int(size.value) <= limit
        if not isinstance(size, Var) or offset != index(0):
            return False
        view = self.made.get(tensor.name)
        if view is not None and view.op == "view":
            rank = view.args[0].type.rank  # type: ignore[union-attr]
            axis = [a for a in range(rank) if a not in (view.attr("drop") or ())][axis]  # type: ignore[operator]
            return view.args[1 + rank + axis] == size and self._fits(view.args[0], axis, view.args[1 + axis], size)
        measure = self.made.get(size.name)
        if measure is not None and measure.op == "dim":
            return measure.args[0] == tensor and measure.attr("axis") == axis
        return self.dims.get(size.name) == (tensor.name, axis)

    def _last(self, offset: Operand) -> int | None:
        """The largest value of an index."""
        if isinstance(offset, Const):
            return int(offset.value)
        loop = self.loops.get(offset.name)
        if loop is None or self.counts[offset.name] != 1:
            return None
        heads = [int(o.value) for o in (loop.start, loop.stop, loop.step) if isinstance(o, Const)]
        return max(range(*heads), default=0) if len(heads) == 3 and heads[2] > 0 else None


class _Left:
    """empty: tiles, and which of their axes, counted from the last, have no elements; mine: names that only the
    statements assign that are looked at; unsure: tiles that fit whatever extents they meet, for they may be longer than
    what stands in their place elsewhere; names: for numbers that tell how long that is, None: they are not computed."""

    def __init__(self, starts: Starts, extents: Extents, mine: Set[str], names: Names | None) -> None:
        self.starts, self.extents, self.mine, self.names = starts, extents, mine, names
        self.empty: dict[str, frozenset[int]] = {}
        self.others: set[str] = set()  # what is assigned and not empty
        self.unsure: set[str] = set()

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for s in block:
            if isinstance(s, Op):
                out += self.operation(s)
                continue
            if any(v.name in self.empty for v in uses(s)):
                raise _Unknown
            if isinstance(s, For) and s.reductions:
                if any(v.name in self.empty for inner in statements((s,)) for v in uses(inner)):
                    raise _Unknown
                out.append(s)
                continue
            for inner in blocks(s):  # what a loop carries, its next iteration reads
                self.block(inner)
            out.append(with_blocks(s, tuple(map(self.block, blocks(s)))))
        return tuple(out)

    def operation(self, op: Op) -> Block:
        """What is left of an operation."""
        begun = self.starts(op)
        if not begun and not any(isinstance(a, Var) and a.name in self.empty for a in op.args):
            if any(v.name in self.empty for inner in statements((op,)) for v in uses(inner)):
                raise _Unknown
            self.note(op, [a.name for a in op.args if isinstance(a, Var) and isinstance(a.type, TileType)])
            return (op,)
        left = begun or self.of_nothing(op)
        if isinstance(left, tuple):
            last = left[-1]
            assert isinstance(last, Op)
            self.note(last, [a.name for a in last.args if isinstance(a, Var) and isinstance(a.type, TileType)])
            return left
        for r in op.results:
            if r.name not in self.mine or r.name in self.others or self.empty.get(r.name, left) != left:
                raise _Unknown
            self.empty[r.name] = left
        return ()

    def note(self, op: Op, tiles: list[str]) -> None:
        """Of an operation that is done: tiles that it makes have elements."""
        if any(r.name in self.empty for r in op.results):
            raise _Unknown
        if op.op in STORES and isinstance(op.args[0], Var) and op.args[0].name in self.unsure:
            raise _Unknown
        self.others.update(r.name for r in op.results)
        if tiles and self.unsure.issuperset(tiles):
            self.unsure.update(r.name for r in op.results)

    def of_nothing(self, op: Op) -> Block | frozenset[int]:
        """What an operation on tiles without elements leaves: other operations, or a tile without elements along some
        axes (none for a store)."""
        axes = [self.empty.get(a.name, frozenset[int]()) if isinstance(a, Var) else frozenset[int]() for a in op.args]
        if op.op in STORES or op.op == "put":
            if not axes[0]:
                raise _Unknown
            return axes[0]
        if op.regions:
            raise _Unknown
        if is_elementwise(op):
            return frozenset[int]().union(*axes)
        if op.op in _OF_THE_SAME_SHAPE:
            return axes[0]
        if op.op == "transpose":
            order = op.attr("axes")
            assert isinstance(order, tuple)
            rank = len(order)
            return frozenset(new - rank for new, old in enumerate(order) if int(old) - rank in axes[0])  # type: ignore[arg-type]
        if op.op == "reshape":
            moved, rank = unit_reshape(op), op.args[0].type.rank  # type: ignore[union-attr]
            if moved is None:
                raise _Unknown
            places = {old - rank: new - len(moved) for new, old in enumerate(moved) if old is not None}
            return frozenset(places[axis] for axis in axes[0])
        if op.op in ("valid", "extent"):
            return self.measured(op, axes[0])
        if op.op == "dot":
            return self.product(op, axes)
        if is_reduction(op):
            rank = op.args[0].type.rank  # type: ignore[union-attr]
            over = {a % rank - rank for a in reduced_axes(op)}
            if axes[0] <= over:
                return self.filled(op, _OF_NOTHING[op.op])
            if op.attr("keepdims"):
                return axes[0] - over
            return frozenset(axis + sum(a > axis for a in over) for axis in axes[0] - over)
        raise _Unknown

    def measured(self, op: Op, axes: frozenset[int]) -> Block:
        """How many elements a tile has along an axis, or is declared to have."""
        axis = int(op.attr("axis")) - op.args[0].type.rank  # type: ignore[union-attr, arg-type]
        extent = self.extents.of(op.args[0])[axis]
        if op.op == "valid" and axis in axes:
            extent = Extent(index(0), True)
        if extent.declared is None or not (extent.sure or op.op == "extent"):
            raise _Unknown
        return (Op("copy", op.results, (extent.declared,), (), (), op.loc),)

    def product(self, op: Op, axes: list[frozenset[int]]) -> Block | frozenset[int]:
        if -2 in axes[0] or -1 in axes[1]:
            lost = (axes[0] & {-2}) | (axes[1] & {-1})
            if len(op.args) == 3 and axes[2] != lost:
                raise _Unknown
            return lost
        if len(op.args) == 2:
            return self.filled(op, 0)
        if axes[2]:
            raise _Unknown
        return (Op("copy", op.results, (op.args[2],), (), (), op.loc),)

    def filled(self, op: Op, value: float) -> Block:
        """A result that does not depend on any element."""
        result = op.results[0]
        assert isinstance(result.type, (ScalarType, TileType))
        dtype = result.type.dtype
        if dtype.kind in "iu" and math.isinf(value):
            low = -(2 ** (dtype.bits - 1)) if dtype.kind == "i" else 0
            value = low if value < 0 else low + 2**dtype.bits - 1
        const = Const(float(value) if dtype.is_float else bool(value) if dtype.kind == "b" else int(value),
                      ScalarType(dtype))  # fmt: skip
        if isinstance(result.type, ScalarType):
            return (Op("copy", op.results, (const,), (), (), op.loc),)
        if dtype.kind == "b":
            raise _Unknown
        numbers: list[Stmt] = []
        sizes: list[Operand] = []
        for extent in self.extents.of(result):
            if extent.declared is None:
                raise _Unknown
            size = extent.declared
            if extent.cut is not None and self.names is not None:
                size = self.left_of(extent.cut, size, op, numbers)
            elif not extent.sure:
                self.unsure.add(result.name)
            sizes.append(size)
        return (*numbers, Op("full", op.results, (const, *sizes), (), (), op.loc))

    def left_of(self, cut: tuple[Var, int, Operand], size: Operand, op: Op, out: list[Stmt]) -> Operand:
        """How many elements of a tensor there are from a place on, at most `size`."""
        tensor, axis, offset = cut
        assert self.names is not None
        limit = self.names.fresh(f"{tensor.name}_d{axis}")
        out.append(Op("dim", (limit,), (tensor,), (("axis", axis),), (), op.loc))
        numbers = Scalars(self.names, op.loc)
        least = numbers.op("min", size, numbers.op("sub", limit, offset, "left"), "left")
        out += numbers.done()
        return least


def _without_idle(body: Block, lasting: Set[str]) -> Block:
    """Without what only tiles were made of that are no more, and loops and branches in which nothing is left."""

    def kept(block: Block, read: Set[str]) -> Block:
        out: list[Stmt] = []
        for s in block:
            if isinstance(s, Op) and not s.regions:
                if not s.results or effects(s.op) == "writes" or any(r.name in read for r in s.results):
                    out.append(s)
                continue
            inner = tuple(kept(b, read) for b in blocks(s)) if not isinstance(s, Op) else ()
            if not isinstance(s, Op):
                s = with_blocks(s, inner)
            if isinstance(s, Op) or any(inner):
                out.append(s)
        return tuple(out)

    while True:
        left = kept(body, block_uses(body) | lasting)
        if sum(1 for _ in statements(left)) == sum(1 for _ in statements(body)):
            return left
        body = left
