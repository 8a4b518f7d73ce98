# SPDX-License-Identifier: MIT
"""Tiles that are too large for a block, divided along an axis whose lines do not depend on each other.

Without products a block has as much of them as its registers hold (`in_parts`); with products, whose operands are in
shared memory, they are divided where they do not fit as they are (`in_smaller_parts`), and few rows of exact products
for more blocks (`in_columns`).  Of tiles of more than two axes a block has one line of the leading ones (`in_batches`).

Before::

    %t = tload %x[%r, %c] [64, 2048]
    %m = tmax %t {axes=(1,), keepdims=true}
    tstore %m, %y[%r, 0]

After::

    FOR %part, 0, 64, 8 {kind=parallel}
      %r_at = sadd %r, %part
      %t = tload %x[%r_at, %c] [8, 2048]
      %m = tmax %t {axes=(1,), keepdims=true}
      tstore %m, %y[%r_at, 0]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Return, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.ir.walk import TENSOR_VIEWS, block_defs, defs, rewrite_block, statements, uses
from pto_jit.lower.groups.axes import is_elementwise, touches_tiles
from pto_jit.lower.groups.fitting import NOTHING, Fitting, fitting_axes
from pto_jit.lower.names import unused
from pto_jit.lower.wholes.lines import STORES, Axis, Lines
from pto_jit.lower.wholes.parted import first_number, moved
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cuda.loops import chain_of
from pto_jit.targets.cuda.shapes import axes_of, is_high
from pto_jit.targets.cuda.wholes import Wholes
from pto_jit.targets.cuda.written import Written

MOST = 8192
"""Elements of a tile that a block is to hold at most: 16 for each of 512 threads."""
LEAST = 4  # lines of a part
LINE = 128  # elements of a line of leading axes that has a block of its own
COLUMNS = 64
"""Columns of a part of few rows: blocks of 64 x 64 sums still wait for their multiply-adds rather than for what they
read, and more of them run."""
LEAST_OF_PRODUCTS = 16  # and of one whose kernel multiplies: those of a warp's fragments
_INDEX = ScalarType(i64)


def in_batches(func: Func, fitting: Fitting = NOTHING) -> Func:
    """A kernel whose tiles of more than two axes are divided along the leading ones, as far as lines of these do not
    depend on each other; the same where lines are too short for a block of their own."""
    while any(map(is_high, _made(func))):
        tiles = _tiles(func)
        high = {n: t for n, t in tiles.items() if axes_of(t.shape) > 2}
        multiplies = any(isinstance(s, Op) and s.op == "dot" for s in statements(func.body))
        largest = max(_sizes(high).items(), key=lambda item: item[1], default=("", 0))
        leading = [(n, t.rank - axes_of(t.shape)) for n, t in high.items()]
        found = _independent(func, tiles, leading, fitting)
        if found is None or not (multiplies or largest[1] >= LINE * found.extent):
            return func
        divided = _Divider(func, found, 1).divided_inside()
        if divided is None:
            return func
        func = divided
    return func


def _made(func: Func) -> Iterator[Var]:
    """What the operations of a function make."""
    return (r for s in statements(func.body) if isinstance(s, Op) for r in s.results)


def in_parts(func: Func, fitting: Fitting = NOTHING) -> Func:
    """A kernel without products whose largest tile is divided; the same where its lines depend on each other.

    fitting: along which axes tiles of other kernels fit any valid extent.
    """
    tiles = _tiles(func)
    sizes = _sizes(tiles)
    if max(sizes.values(), default=0) <= MOST:
        return func
    found = _independent(func, tiles, _of_largest(tiles), fitting)
    if found is None:
        return func
    part, lines = found.extent, max(sizes.values()) // found.extent
    while part % 2 == 0 and part > LEAST and lines * part > MOST:
        part //= 2
    return _Divider(func, found, part).divided() if part < found.extent else func


def in_smaller_parts(func: Func) -> Iterator[Func]:
    """A kernel in parts of half as many lines, a quarter and so on; nothing where lines depend on each other."""
    tiles = _tiles(func)
    found = _independent(func, tiles, _of_largest(tiles), NOTHING)
    part = found.extent if found is not None else 0
    while found is not None and part % 2 == 0 and part > LEAST_OF_PRODUCTS:
        part //= 2
        yield _Divider(func, found, part).divided()


def in_columns(func: Func) -> Func | None:
    """A kernel in parts of `COLUMNS` columns; None where parts would not divide all of its products."""
    tiles = _tiles(func)
    found = _independent(func, tiles, _of_largest(tiles), NOTHING)
    if found is None or found.extent <= COLUMNS or found.extent % COLUMNS:
        return None
    products = [s.results[0] for s in statements(func.body) if isinstance(s, Op) and s.op == "dot"]
    return _Divider(func, found, COLUMNS).divided() if all(found.of(p) == p.type.rank - 1 for p in products) else None  # type: ignore


def _tiles(func: Func) -> dict[str, TileType]:
    names = [v for s in statements(func.body) for v in (*defs(s), *uses(s))]
    return {v.name: v.type for v in names if isinstance(v.type, TileType)}


def _sizes(tiles: dict[str, TileType]) -> dict[str, int]:
    return {n: prod(t.shape) for n, t in tiles.items() if None not in t.shape}  # type: ignore[arg-type]


def _of_largest(tiles: dict[str, TileType]) -> list[Axis]:
    """The axes of the largest tile of known extents."""
    sizes = _sizes(tiles)
    largest = max(sizes, key=lambda n: sizes[n], default=None)
    return [] if largest is None else [(largest, k) for k in range(tiles[largest].rank)]


@frozen
class _Line:
    """The axis that is divided, of all tiles that have it; fitting: along which axes tiles fit any valid extent."""

    axes: Lines
    axis: Axis
    extent: int
    fitting: Fitting

    def of(self, tile: Operand) -> int | None:
        """Which axis of a tile it is."""
        return self.axes.place(tile, self.axis)


def _independent(
    func: Func, tiles: dict[str, TileType], candidates: Sequence[Axis], fitting: Fitting
) -> _Line | None:
    """The first of some axes whose lines do not depend on each other.

    No tile has it twice, as the product of a tile and its transpose would: parts of both are blocks of its diagonal.
    """
    if not candidates:
        return None
    axes = Lines(func.body)
    written = Written(func, axes)
    all_fitting = {**fitting_axes(func.body), **{n: fitting[n] for n in tiles if n in fitting}}
    for line in dict.fromkeys(map(axes.find, candidates)):
        extents = {t.shape[k] for n, t in tiles.items() for k in range(t.rank) if t.shape[k] != 1
                   and axes.find((n, k)) == line}  # fmt: skip
        extent = extents.pop() if len(extents) == 1 else None
        once = all([axes.find((n, k)) for k in range(t.rank) if t.shape[k] != 1].count(line) <= 1
                   for n, t in tiles.items())  # fmt: skip
        if extent is None or not once or line in axes.bound or not written.in_parts(line, extent):
            continue
        found = _Line(axes, line, extent, all_fitting)
        if _Divider(func, found, extent).wholes.known:
            return found
    return None


class _Divider:
    def __init__(self, func: Func, line: _Line, part: int) -> None:
        self.func, self.line, self.part = func, line, part
        self.taken = block_defs(func.body) | {p.name for p in func.params}
        self.at = Var(self._fresh("part"), _INDEX)
        self.wholes = Wholes(func.body, line.of, line.extent, line.fitting, self._fresh)

    def divided_inside(self) -> Func | None:
        """The function with parts for the lines that lie in a tensor: others would be empty, while what has one line
        for all is not.  None where that is not known before tiles are made."""
        chain = chain_of(self.func.body)
        body = chain[-1].body if chain else self.func.body
        early: list[Stmt] = []
        late: set[str] = set()  # what is made beside tiles, or of them
        for s in body:
            pure = isinstance(s, Op) and not touches_tiles(s) and (s.op in (*TENSOR_VIEWS, "dim") or is_elementwise(s))
            if pure and not late & {v.name for v in uses(s)}:
                early.append(s)
            else:
                late |= block_defs((s,))
        conditions: dict[tuple[Operand, ...], Var | None] = {}
        for s in statements(body):
            axis = self.line.of(s.results[0]) if isinstance(s, Op) and s.op == "load" else None
            if axis is not None:
                assert isinstance(s, Op)
                if s.attr("pad"):
                    return self.divided()
                if any(isinstance(o, Var) and o.name in late for o in (s.args[0], s.args[1 + axis])):
                    return None
                conditions[s.args[0], s.args[1 + axis], Const(axis, _INDEX)] = None
        if not conditions:
            return self.divided()
        inside = self._inside(list(conditions), early)
        rest = tuple(s for s in body if not any(s is e for e in early) and not isinstance(s, Return))
        checked = (*early, If(inside, rest, (), body[0].loc), *(s for s in body if isinstance(s, Return)))
        whole = rewrite_block(self.func.body, lambda s: replace(s, body=checked) if _same(s, chain[-1]) else None) if (  # type: ignore
            chain) else checked  # fmt: skip
        self.func = replace(self.func, body=whole)
        return self.divided()

    def _inside(self, places: list[tuple[Operand, ...]], out: list[Stmt]) -> Var:
        """Whether this part lies in one of several tensors at least: (tensor, offset, axis) of each."""
        found: Var | None = None
        loc = self.func.loc
        for tensor, offset, axis in places:
            assert isinstance(axis, Const)
            at = moved(offset, self.at, self._var, out, loc)
            size, below = Var(self._fresh("size"), _INDEX), Var(self._fresh("inside"), ScalarType(bool_))
            out.append(Op("dim", (size,), (tensor,), (("axis", int(axis.value)),), (), loc))
            out.append(Op("lt", (below,), (at, size), (), (), loc))
            if found is not None:
                either = Var(self._fresh("inside"), ScalarType(bool_))
                out.append(Op("or", (either,), (found, below), (), (), loc))
                below = either
            found = below
        assert found is not None
        return found

    def divided(self) -> Func:
        chain = chain_of(self.func.body)
        if chain:
            return replace(self.func, body=rewrite_block(
                self.func.body, lambda s: replace(s, body=self._loop(s.body, s.loc)) if _same(s, chain[-1]) else None))  # type: ignore[union-attr] # fmt: skip
        body = self.func.body
        rest = body[:-1] if body and isinstance(body[-1], Return) else body
        return replace(self.func, body=(*self._loop(rest, self.func.loc), *body[len(rest) :]))

    def _loop(self, body: Block, loc: Loc) -> Block:
        stop, step, zero = (Const(n, _INDEX) for n in (self.line.extent, self.part, 0))
        return (For("parallel", self.at, zero, stop, step, rewrite_block(body, self._smaller), loc=loc),)

    def _smaller(self, s: Stmt) -> Stmt | Block | None:
        if not isinstance(s, Op) or not touches_tiles(s):
            return None
        if self.wholes.asks(s):
            return self.wholes.answer(s)
        before: list[Stmt] = []
        args = tuple(self._tile(a) for a in s.args)
        results = tuple(self._tile(r) for r in s.results)
        tile = s.results[0] if s.op in ("load", "full", "arange", "reshape", "broadcast_to") else s.args[0]
        for k in range(tile.type.rank if isinstance(tile, Var) and isinstance(tile.type, TileType) else 0):
            assert isinstance(tile, Var) and isinstance(tile.type, TileType)
            if not self._has(tile, k):
                continue
            rank = tile.type.rank
            if s.op in ("load", *STORES):
                place = 1 + k if s.op == "load" else 2 + k
                args = _put(args, place, moved(s.args[place], self.at, self._var, before, s.loc))
            if s.op == "arange":
                args = (first_number(s, self.at, self._var, before), s.args[1], Const(self.part, _INDEX))
            if s.op in ("load", "full", "reshape", "broadcast_to"):
                args = _put(args, 1 + rank + k if s.op == "load" else 1 + k, Const(self.part, _INDEX))
        return (*before, replace(s, args=args, results=results), *self.wholes.after(s))  # type: ignore[arg-type]

    def _has(self, tile: Var, axis: int) -> bool:
        return self.line.of(tile) == axis

    def _tile(self, operand: Operand) -> Operand:
        if not isinstance(operand, Var) or not isinstance(operand.type, TileType):
            return operand
        shape = tuple(self.part if self._has(operand, k) else n for k, n in enumerate(operand.type.shape))
        return Var(operand.name, TileType(operand.type.dtype, shape))

    def _var(self, wish: str, typ: Type) -> Var:
        return Var(self._fresh(wish), typ)

    def _fresh(self, wish: str) -> str:
        return unused(wish, self.taken)


def _same(s: Stmt, loop: For) -> bool:
    return isinstance(s, For) and s.var == loop.var and s.kind == loop.kind


def _put(args: tuple[Operand, ...], at: int, value: Operand) -> tuple[Operand, ...]:
    return (*args[:at], value, *args[at + 1 :])
