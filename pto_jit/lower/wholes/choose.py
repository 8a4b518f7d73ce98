# SPDX-License-Identifier: MIT
"""Which axes of what is computed of whole tensors are divided, and into which parts, for `divide`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from math import prod
from typing import Any

from pto_jit.ir.nodes import Const, Func, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TensorType, TileType
from pto_jit.ir.walk import statements, uses
from pto_jit.lower.decisions import Decision
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes, unit_reshape
from pto_jit.lower.names import Scalars, index, source_name
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.folded import FoldLoops, folded_axes
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.lines import STORES, Axis, Kept, Lines, load_and_transpose
from pto_jit.lower.wholes.parted import DividedLine, PartLoops
from pto_jit.lower.wholes.partials import EXTREMES, Limits, looked_for
from pto_jit.lower.wholes.passes import in_passes
from pto_jit.lower.wholes.sizes import Sizes, UnknownSizeError
from pto_jit.semantic.failures import MOST_PLACES, PLACES
from pto_jit.semantic.rules import infer
from pto_jit.semantic.table import effects
from pto_jit.slotted import field, frozen, mutable, replace

_MOVABLE = frozenset("load store full arange copy broadcast_to transpose cumsum cumprod sort argsort".split())
_BY_FUNCTIONS = frozenset("map fold assoc_scan atomic_add atomic_max atomic_min".split())
_IN_BLOCKS = frozenset("topk gather take".split())
"""More of them, of devices whose blocks share memory."""
_SHORT = 256  # columns that stay whole where it is known that they are not longer
_LAYERS = 32  # of a tile of three axes, each of which is a tile of two


@frozen
class Parts:
    """The parts of a device: columns and rows of those that are divided both ways, lines of those of which rows remain
    whole, columns of those of which columns remain whole, both of those that are transposed (0: tensors are loaded
    transposed), elements of vectors; constant: tiles that are large but of known extents are divided here, too;
    bounded: the host says how long the longest part is, for which kernels are compiled when they are launched; flat: a
    core's tiles have two long axes, along one of which it reduces, and their elements do not change places on chip;
    large: elements of a tile that one core should not have alone; room, longest, beside: those of a tile that is
    reduced at once, of a row alone, and of one of unknown extent with other rows or truth values; part: of a row that
    is gone over in passes; step, run, alone: of a row that is scanned in steps, at once, and at once as the only one;
    chunks: of a line that is scanned in steps, at most."""

    columns: int
    rows: int
    lines: int
    narrow: int
    square: int
    elements: int
    constant: bool
    bounded: bool
    flat: bool
    room: int
    longest: int
    beside: int
    part: int
    step: int
    run: int
    alone: int
    chunks: int
    large: int = 8192

    def limits(self, scanned: int | None = None) -> Limits:
        """What a block has room for; scanned: elements of a row that is scanned, if they are not `run`."""
        return Limits(self.room, self.longest, self.beside, self.run if scanned is None else scanned)


PARTS = {
    # a row has a team of threads; what is large and of known extents is divided where registers are counted
    "cuda": Parts(columns=1024, rows=1, lines=1, narrow=32, square=64, elements=4096, constant=False, bounded=True,
                  flat=False, room=32768, longest=65536, beside=65536, part=8192, step=4096, run=32768, alone=16384,
                  chunks=512),
    # a dozen tiles of 16 KiB fit the unified buffer, and rows that are reduced may be as long as it allows; elements
    # that lie apart are rows on chip, of which a transfer takes 4095, and a row is scanned as 16 columns
    "ascend": Parts(columns=512, rows=8, lines=1, narrow=64, square=0, elements=2048, constant=True, bounded=False,
                    flat=True, room=8192, longest=8192, beside=4096, part=2048, step=512, run=512, alone=512,
                    chunks=64),
}


@mutable
class LoopsOverParts:
    """Finds loops over the parts of what operations of one function compute."""

    func: Func
    parts: Parts
    decisions: list[Decision]
    asked: set[str] = field(default_factory=set)
    """Extents of tiles that are read after the operations that are looked at."""
    latest: PartLoops | None = None
    """The loops that were found last."""
    _known: Known | None = None
    _shapes: Sizes | None = None

    @property
    def known(self) -> Known:
        """What is known of the function, where it has something to divide."""
        if self._known is None:
            self._known = Known(self.func)
        return self._known

    def is_movable(self, op: Op) -> bool:
        """Whether parts of a tile can be computed by an operation on parts."""
        if is_movable(op) or (op.op == "reshape" and self.kept(op) is not None):
            return True
        if any(effects(s.op) != "none" for region in op.regions for s in statements(region.body) if isinstance(s, Op)):
            return False
        if op.op == "flip":  # rows in reverse are taken from memory
            return op.attr("axis") != 0
        return op.op in _BY_FUNCTIONS or (not self.parts.flat and op.op in _IN_BLOCKS)

    def kept(self, op: Op) -> Kept | None:
        """Which axes a reshape keeps, as `unit_reshape`, where the numbers that are extents say so, too."""
        if self._shapes is None:
            self._shapes = Sizes(self.known, Scalars(self.known.names, self.func.loc))
        return self._shapes.kept(op)

    def in_parts(self, ops: list[Op], scope: Scope) -> list[Stmt] | None:
        """Operations that end with stores as loops over their parts; None where that is not possible."""
        return self._divided(list(ops), scope)

    def may_be_large(self, stmt: Stmt) -> bool:
        """Whether a statement makes a tile that one core should not have alone."""
        if not isinstance(stmt, Op) or not stmt.results or not isinstance(stmt.results[0].type, TileType):
            return False
        shape = stmt.results[0].type.shape
        return None in shape or (self.parts.constant and prod(shape) > self.parts.large)  # type: ignore[arg-type]

    def _divided(self, tiles: list[Stmt], scope: Scope) -> list[Stmt] | None:
        """Operations on tiles as loops over their parts; None where that is not possible, or has no use."""
        ops = [s for s in tiles if isinstance(s, Op)]
        turned = [part for op in ops for part in self._turned(op)]
        if len(turned) == len(ops):
            return self._parted(ops, scope)
        return self._parted(turned, scope, squares=True) or self._parted(ops, scope)

    def _parted(self, ops: list[Op], scope: Scope, *, squares: bool = False) -> list[Stmt] | None:
        """The same; `squares`: only if both axes of all tiles that are transposed are divided."""
        loops = self.loops(ops, scope, squares=squares)
        if loops is None or (self.parts.flat and any(map(partial(_is_high, loops), ops))):
            return None
        reason = f"what is computed of whole tensors is divided: {loops}"
        self.latest = loops
        self.decisions.append(Decision("grain", (), True, reason, next(op.loc for op in ops if op.op in STORES)))
        return loops.around(ops)

    def loops(self, ops: list[Op], scope: Scope, *, squares: bool = False) -> PartLoops | None:
        """The loops over the parts of operations that end with stores; None as above."""
        stores = [op for op in ops if op.op in STORES]
        made = {r.name for op in ops for r in op.results}
        read = {v.name for op in ops for v in uses(op) if isinstance(v.type, TileType)}
        if not stores or not made.issuperset(read) or not all(map(self.is_movable, ops)):
            return None
        lines = Lines(tuple(ops), self.kept)
        scalars = Scalars(self.known.names, scope.loc)
        told = self._told(ops, lines, scalars)
        if told is None:
            return None
        ops = [op for op in ops if not any(op is one for one in told)]
        found = {line: extent for line in lines.axes(stores[0].args[0]).values()
                 if (extent := self.known.extent(lines, line, ops, scalars)) is not None}  # fmt: skip
        exchanged = _exchanged(ops, lines)
        squares_of = exchanged | self._apart(ops, lines, found)
        chosen = self._parts(_widest(ops, lines, found), lines, found, squares_of) if found else []
        turning = {line.axis for line in chosen} & exchanged
        if not chosen or (squares and exchanged != turning) or (turning and not self.parts.square):
            return None
        given = chosen, found, lines, scalars, self.known.names, scope, self.parts.bounded, told
        return (self._folded(ops, given) if self.parts.flat else None) or PartLoops(*given)

    def in_passes(self, ops: list[Op], scope: Scope) -> list[Stmt] | None:
        """Operations on rows, of which too many elements may be there, as loops over rows and their parts."""
        scalars = Scalars(self.known.names, scope.loc)
        ops = [made for op in ops for made in self.without_places(op, scalars)]
        loops = self.loops(ops, scope)
        if loops is None:
            return None
        scalars.block += loops.scalars.block
        loops = replace(loops, scalars=scalars)
        chosen = {line.axis for line in loops.chosen}
        every = [axis for op in ops for v in (*op.args, *op.results) for axis in loops.lines.axes(v).values()]
        rows: list[DividedLine] = []
        for row in dict.fromkeys(axis for axis in every if axis not in chosen):
            extent = self.known.extent(loops.lines, row, ops, scalars, anywhere=True)
            if extent is None:
                return None
            rows.append(DividedLine(row, extent, self.parts.part))
        out = in_passes(loops, ops, rows)
        if out is not None:
            reason = f"what is reduced along rows is, {self.parts.part} elements at a time, where they are too long"
            self.decisions.append(Decision("reduction", (), True, reason, scope.loc))
        return out

    def without_places(self, op: Op, scalars: Scalars) -> list[Op]:
        """What gives the place of an extreme; other operations themselves, and one that is not along one whole axis."""
        if op.op not in EXTREMES:
            return [op]
        (axis, *more), out = reduced_axes(op), list[Op]()
        try:
            size = Sizes(self.known, scalars).of(op.args[0])[axis]
        except UnknownSizeError:
            return [op]
        if more or not size.whole:  # of no elements it is another number
            return [op]

        def made(name: str, *args: Operand, **attrs: Any) -> Var:
            (kind,) = infer(name, args, attrs)
            result = self.known.names.fresh(source_name(op.results[0].name), kind)
            out.append(Op(name, (result,), args, tuple(attrs.items()), (), op.loc))
            self.known.add({result.name: out[-1]})
            return result

        self.known.check(scalars.block, "le", size.valid, index(MOST_PLACES), PLACES, op.loc, what=op.op)
        last = looked_for(op, size.valid, made)
        return [*out, last]

    def _folded(self, ops: list[Op], given: tuple[Any, ...]) -> PartLoops | None:
        """The loops with one more inside, over parts of columns that are reduced and not read again."""
        chosen, found, lines, scalars = given[:4]
        divided = {line.axis for line in chosen} | set(found)
        stored = {line for op in ops if op.op == "store" for k, line in lines.axes(op.args[0]).items()
                  if op.args[0].type.shape[k] is None}  # type: ignore[union-attr]  # fmt: skip
        if not stored <= {line.axis for line in chosen}:
            return None  # columns that are whole anyway
        folded: list[tuple[DividedLine, list[Op]]] = []
        for axis, inside in folded_axes(ops, lines).items():
            extent = self.known.extent(lines, axis, ops, scalars, anywhere=True)
            sides = [a for op in inside if is_reduction(op) for k, a in lines.axes(op.results[0]).items()
                     if op.results[0].type.shape[k] is None]  # type: ignore[union-attr]  # fmt: skip
            short = isinstance(extent, Const) and int(extent.value) <= _SHORT
            if extent is None or short or not divided.issuperset(sides):
                return None
            folded.append((DividedLine(axis, extent, self.parts.narrow), inside))
        return FoldLoops(*given, folded=folded) if folded else None

    def _told(self, ops: list[Op], lines: Lines, scalars: Scalars) -> list[Op] | None:
        """The operations whose results are read after all of them, extents and what the host computes of them; None
        where there are others."""
        asked = set(self.asked)
        out: list[Op] = []
        for op in reversed(ops):
            if asked.isdisjoint([r.name for r in op.results]):
                continue
            if op.op != "valid" and not is_host(op):
                return None
            if op.op != "valid":
                asked.update(a.name for a in op.args if isinstance(a, Var))
            out.insert(0, op)
        for op in out:
            if op.op != "valid":
                scalars.block.append(op)
                continue
            axis = lines.axes(op.args[0]).get(int(op.attr("axis")))  # type: ignore[call-overload]
            extent = self.known.extent(lines, axis, ops, scalars, anywhere=True)
            if extent is None:
                return None
            scalars.block.append(Op("copy", op.results, (extent,), (), (), op.loc))
        return out

    def _turned(self, op: Op) -> tuple[Op, ...]:
        """An operation; of a load of a transposed tensor a load whose rows lie in a row, and a transpose."""
        maker = self.known.makers.get(op.args[0].name) if op.op == "load" and isinstance(op.args[0], Var) else None
        axes: Any = maker.attr("axes") if maker is not None and maker.op == "tensor_transpose" else None
        if maker is None or axes is None or axes[-1] == len(axes) - 1 or not self.parts.square:
            return (op,)
        fresh = self.known.names.fresh
        return load_and_transpose(op, maker.args[0], axes, lambda name, typ: fresh(source_name(name), typ))

    def _apart(self, ops: list[Op], lines: Lines, found: Collection[Axis]) -> set[Axis]:
        """The last two axes of tiles of tensors that may be transposed ones, where both can be divided: what threads
        that are neighbours read lies in different rows of memory then, which other threads of a square read on."""
        out: set[Axis] = set()
        for op in ops:
            if op.op in ("load", "store"):
                tensor, tile = (op.args[0], op.results[0]) if op.op == "load" else (op.args[1], op.args[0])
                last = list(lines.axes(tile).values())[-2:]
                if len(last) == 2 and set(last) <= set(found) and self._may_be_turned(tensor):
                    out.update(last)
        return out

    def _may_be_turned(self, tensor: Operand) -> bool:
        """Whether elements that lie side by side in memory may do so along another axis than the last one."""
        while isinstance(tensor, Var) and isinstance(tensor.type, TensorType) and tensor.type.layout == "strided":
            maker = self.known.makers.get(tensor.name)
            if maker is None or maker.op == "tensor_transpose":
                return True
            tensor = maker.args[0]  # what steps, or has one element, of rows is not turned by that
        return False

    def _parts(
        self, tile: Var, lines: Lines, found: dict[Axis, Operand], exchanged: Collection[Axis]
    ) -> list[DividedLine]:
        """The axes that are divided, outermost first, and how; `tile`: one that has them all, and most others;
        exchanged: the axes that are the last one of some tiles, and not of others, or along which elements of memory
        lie side by side in some, and not in others.

        Nothing where the tile is small, or of known extents and divided later; so are axes of known extents where
        another one is divided now.
        """
        out: list[DividedLine] = []
        parts = self.parts
        own = lines.axes(tile)
        places = list(own)
        divided = [k for k in places if own[k] in found]
        said = [int(n) for n in tile.type.shape if n is not None]  # type: ignore[union-attr]
        if len(said) == tile.type.rank and (prod(said) <= parts.large or not parts.constant):  # type: ignore[union-attr]
            return []
        constant = parts.constant or not any(isinstance(found[own[k]], Var) for k in divided)
        for k in divided:
            if own[k] in exchanged and parts.square:
                part = parts.square
            elif k == places[-1]:
                part = parts.elements if len(places) == 1 else parts.columns if divided == places else parts.narrow
            elif divided[-1] == places[-1]:
                part = parts.rows if k == divided[-2] and divided == places else 1
            else:  # rows stay whole
                part = parts.lines if k == divided[-1] else 1
            extent = found[own[k]]
            if isinstance(extent, Var) or (constant and int(extent.value) > part):
                out.append(DividedLine(own[k], extent, part))
        by_rows = parts.bounded and len(out) > 1 and out[-1].part == parts.columns and out[-2].part == 1
        if by_rows and not self._is_one(out[-2].extent):
            out = [out[-1], *out[:-1]]  # most often there is one part of columns, and teams of threads share rows
        return out

    def _is_one(self, extent: Operand) -> bool:
        """Whether an extent is 1 most often: that of a tensor whose axes are one, if all have the same extents."""
        maker = self.known.makers.get(extent.name) if isinstance(extent, Var) else None
        made = self.known.makers.get(maker.args[0].name) if maker is not None and maker.op == "dim" else None  # type: ignore
        if maker is None or made is None or made.op != "tensor_reshape":
            return False
        size = made.args[1 + int(maker.attr("axis"))]  # type: ignore[call-overload]
        choice = self.known.makers.get(size.name) if isinstance(size, Var) else None
        return choice is not None and choice.op == "select" and choice.args[1] == index(1)


def is_movable(op: Op) -> bool:
    if op.op == "reshape":
        return unit_reshape(op) is not None
    if op.op == "valid":  # as a mean asks for
        return True
    return is_elementwise(op) or is_reduction(op) or op.op in _MOVABLE or is_host(op)


def _is_high(loops: PartLoops, op: Op) -> bool:
    """Whether a part of what an operation makes has more long axes than two and few layers."""
    typ = op.results[0].type if op.results else None
    if not isinstance(typ, TileType) or typ.rank < 3:
        return False
    single = {loops.lines.place(op.results[0], line.axis) for line in loops.chosen if line.part == 1}
    shape = [1 if k in single else n for k, n in enumerate(typ.shape)]
    few = typ.rank == 3 and shape[0] is not None and shape[0] <= _LAYERS
    return len([n for n in shape if n != 1]) > 2 and not few


def _exchanged(ops: list[Op], lines: Lines) -> set[Axis]:
    """The axes that are the last one of a tile, where transposes give tiles another one."""
    out: set[Axis] = set()
    for op in ops:
        if op.op == "transpose":
            last = [list(lines.axes(tile).values())[-1:] for tile in (op.args[0], op.results[0])]
            if last[0] != last[1]:
                out.update(*last)
    return out


def _widest(ops: list[Op], lines: Lines, found: Collection[Axis]) -> Var:
    """The tile with the most axes of those that have all lines."""
    best: Var | None = None
    for tile in (v for op in ops for v in (*op.args, *op.results)):
        if not isinstance(tile, Var) or not isinstance(tile.type, TileType):
            continue
        if all(lines.place(tile, line) is not None for line in found) and (
            best is None or len(lines.axes(tile)) > len(lines.axes(best))
        ):
            best = tile
    assert best is not None, "a store has all lines"
    return best
