# SPDX-License-Identifier: MIT
"""Running combinations along an axis that is longer than a block has room for: reduce, then scan.

Each chunk of lines is reduced first, what they come to is scanned, and then each chunk is scanned from there on (S.
Sengupta, M. Harris, Y. Zhang, J. D. Owens, "Scan primitives for GPU computing", 2007), with whatever is computed of
it. The order in which elements are combined is always the same.

Before, of a vector::

    %x.1 = tload %x[0] [%n] : !pto.tile<?xf32>
    %s = tcumsum %x.1 {axis=0, reverse=false} : !pto.tile<?xf32>
    %t = tmul %s, 2.0:f32 : !pto.tile<?xf32>
    tstore %t, %y[0]

After::

    %s.ends = talloc [%parts] {dtype=f32} : !pto.memref<gm,?,f32>
    FOR %chunk:idx, 0:idx, %parts:idx, 1:idx {kind=parallel}
      ...                                                      // the sum of each chunk
    %s.1 = tload %s.ends[0] [%parts] : !pto.tile<?xf32>
    %s.2 = tcumsum %s.1 {axis=0, reverse=false} : !pto.tile<?xf32>
    tstore %s.2, %s.memory[0]
    FOR %chunk:idx, 0:idx, %parts:idx, 1:idx {kind=parallel}
      %before = tfull -0.0:f32, [1] : !pto.tile<1xf32>
      IF %later                                                // not the first chunk
        %before.1 = tload %s.memory[%previous] [1] : !pto.tile<1xf32>
        %before = tcopy %before.1 : !pto.tile<1xf32>
      FOR %x_at:idx, %first:idx, %last:idx, 4096:idx {kind=sequential}
        %x.2 = tload %x[%x_at] [%some] : !pto.tile<?xf32>
        %own = tcumsum %x.2 {axis=0, reverse=false} : !pto.tile<?xf32>
        %s = tadd %before, %own : !pto.tile<?xf32>
        %part = tsum %x.2 {axes=(0,), keepdims=true} : !pto.tile<1xf32>
        %more = tadd %before, %part : !pto.tile<1xf32>
        %before = tcopy %more : !pto.tile<1xf32>
        %t = tmul %s, 2.0:f32 : !pto.tile<?xf32>
        tstore %t, %y[%x_at]

Functions that have no state which changes nothing combine from the second step on only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pto_jit.dtypes import DType, f32
from pto_jit.ir.nodes import Const, If, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TensorType, TileType
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import BOOL, index, source_name, with_own_regions
from pto_jit.lower.reductions.accumulate import identity
from pto_jit.lower.wholes.chunks import ROWS, ChunkLoops, Chunks, chunks_of
from pto_jit.lower.wholes.lines import SCANS, SUMS, Axis
from pto_jit.lower.wholes.memory import CutError, Store, TilesInMemory, stored
from pto_jit.lower.wholes.parted import PartLoops
from pto_jit.lower.wholes.sizes import Size
from pto_jit.slotted import frozen, replace


@frozen
class Scan:
    """A running combination, along one axis of its operands.

    work: the types of its states: those of 16 bits are rounded once.
    """

    op: Op

    @property
    def axis(self) -> int:
        return int(self.op.attr("axis"))  # type: ignore[call-overload]

    @property
    def backwards(self) -> bool:
        return bool(self.op.attr("reverse"))

    @property
    def work(self) -> tuple[DType, ...]:
        kinds = tuple(a.type.dtype for a in self.op.args)  # type: ignore[union-attr]
        return tuple(f32 if k.kind == "f" and k.bits == 16 else k for k in kinds) if self.op.op in SUMS else kinds

    @property
    def start(self) -> Const | None:
        """The state that changes nothing, if there is one."""
        return identity(SUMS[self.op.op][1], self.work[0]) if self.op.op in SUMS else None

    def come_to(self, tiles: Sequence[Operand], results: Sequence[Var]) -> Op:
        """What tiles come to along the axis, which stays."""
        loc = self.op.loc
        if self.op.op in SUMS:
            attrs: tuple[Any, ...] = (("axes", (self.axis,)), ("keepdims", True))
            return Op(SUMS[self.op.op][0], tuple(results), tuple(tiles), attrs, (), loc)
        (region,), count = self.op.regions, len(tiles)
        if self.backwards:  # what comes last is the first operand
            region = replace(region, params=(*region.params[count:], *region.params[:count]))
        attrs = (("axis", self.axis), ("init", False), ("keepdims", True), ("n", count))
        return Op("fold", tuple(results), tuple(tiles), attrs, (region,), loc)

    def combined(self, before: Sequence[Operand], tiles: Sequence[Operand], results: Sequence[Var]) -> Op:
        """States, and those after them."""
        if self.op.op in SUMS:
            return Op(SUMS[self.op.op][1], tuple(results), (*before, *tiles), (), (), self.op.loc)
        return Op("map", tuple(results), (*before, *tiles), (), self.op.regions, self.op.loc)

    def elementwise(self) -> Op:
        """An operation whose results have the lines of the operands, none of which depends on another one."""
        if len(self.op.args) == 1:
            return Op("copy", self.op.results, self.op.args, (), (), self.op.loc)
        return Op("map", self.op.results, self.op.args, (), self.op.regions, self.op.loc)


class RunningLines(TilesInMemory):
    """Finds them in what a tile is made of, and computes them in chunks."""

    def _running(self, tile: Operand) -> list[Op]:
        """The scans that a tile is made of."""
        return [op for op in self._needed(tile) if op.op in SCANS]

    def _scan(self, tile: Var, store: Store) -> bool:
        """Compute and store a tile that is made of scans along one axis; False where that is not so."""
        ops = self._group(tile, store)
        found = self._one_run(ops)
        if found is None:
            return False
        loops, along = found
        scans = [Scan(op) for op in ops if op.op in SCANS]
        last = list(loops.lines.axes(ops[-1].args[0]).values())[-1]
        step = self.divider.parts.step if last == along else ROWS
        chunks = self._chunks(self._extent(scans[0]), step, self.divider.parts.chunks)
        ends = [self._ends(scan, chunks) for scan in scans]
        self._write(_scanned(scans, ends, ops, loops, along, chunks))
        reason = f"what runs along axis {scans[0].axis} does so in up to {self.divider.parts.chunks} parts"
        self.divider.decisions.append(Decision("reduction", (), True, reason, scans[0].op.loc))
        return True

    def _is_one_line(self, ops: list[Op]) -> bool:
        """Whether operations are scans of a single line, besides what is elementwise."""
        found = self._one_run(ops)
        return found is not None and len(found[0].lines.axes(ops[-1].args[0])) == 1

    def _one_run(self, ops: list[Op]) -> tuple[PartLoops, Axis] | None:
        """Loops over the parts of operations, of which all that are not elementwise are scans along one axis, and that
        axis."""
        scans = [Scan(op) for op in ops if op.op in SCANS]
        after: set[str] = set()
        for op in ops:
            if any(isinstance(a, Var) and a.name in after for a in op.args):
                if op.op in SCANS:
                    return None
                after.update(r.name for r in op.results)
            elif op.op in SCANS:
                after.update(r.name for r in op.results)
        loops = self._lines_of(ops) if scans else None
        if loops is None or len({scan.backwards for scan in scans}) > 1:
            return None
        axes = {loops.lines.axes(scan.op.args[0]).get(scan.axis) for scan in scans}
        stored = set(loops.lines.axes(ops[-1].args[0]).values())
        every = {axis for op in ops for v in op.results for axis in loops.lines.axes(v).values()}
        if len(axes) > 1 or not axes <= stored or not stored | every <= set(loops.found):
            return None
        along = axes.pop()
        assert along is not None
        most = self.divider.known.most(self._extent(scans[0]))
        return (loops, along) if most is None or most > self.divider.parts.chunks else None

    def _extent(self, scan: Scan) -> Operand:
        """How many lines there are along its axis."""
        return self.sizes.of(self._origin(scan.op).args[0])[scan.axis].valid

    def _lines_of(self, ops: list[Op]) -> PartLoops | None:
        """Loops over the parts of operations, as if no line of a scan depended on another one."""
        return self.divider.loops([Scan(op).elementwise() if op.op in SCANS else op for op in ops], self.scope)

    def _chunks(self, extent: Operand, step: int, most: int) -> Chunks:
        """As `chunks_of`."""
        chunks = chunks_of(extent, step, most, self.scalars)
        self.divider.known.bound(chunks.count, most)
        return chunks

    def _ends(self, scan: Scan, chunks: Chunks) -> list[Var]:
        """The tensors that have what all elements up to the end of each chunk come to."""
        near, loc = self._origin(scan.op), scan.op.loc
        extents = [chunks.count if k == scan.axis else size.valid for k, size in enumerate(self.sizes.of(near.args[0]))]
        name = source_name(near.results[0].name)
        memory = [self._host("alloc", extents, f"{name}.ends", dtype=dtype) for dtype in scan.work]
        typ = near.results[0].type
        assert isinstance(typ, TileType)
        pseudo = self.divider.known.names.fresh("memory", TensorType(typ.dtype, typ.shape, "c"))
        ops = self._group(near.results[0], lambda mine: stored(mine, pseudo, loc))
        loops = self._lines_of(ops)
        mine = next(op for op in ops if op.op in SCANS)
        own = loops.lines.axes(mine.args[0]) if loops is not None else {}
        if loops is None or any(line not in loops.found for line in own.values()):
            raise CutError
        self._write(_come_to(Scan(mine), [op for op in ops[:-1] if op is not mine], loops, chunks, memory))
        many = int(chunks.count.value) if isinstance(chunks.count, Const) else None
        wholes: list[Var] = []
        for tensor, dtype, arg in zip(memory, scan.work, near.args, strict=True):
            assert isinstance(arg.type, TileType)
            shape = tuple(many if k == scan.axis else n for k, n in enumerate(arg.type.shape))
            whole = self._made(TileType(dtype, shape), None, near.results[0])
            self.sizes.found[whole.name] = tuple(
                Size(chunks.count, chunks.count) if k == scan.axis else replace(size, fits=False)
                for k, size in enumerate(self.sizes.of(arg))
            )
            self.memory[whole.name] = tensor
            wholes.append(whole)
        results = tuple(self._made(whole.type, None, near.results[0]) for whole in wholes)
        op = replace(near, results=results, args=tuple(wholes))
        for r in results:
            self.maker[r.name] = self.sizes.made[r.name] = op
            self.place[r.name] = self.place[results[0].name]
        for r in results:
            self._remember(r)
        return [self.memory[r.name] for r in results]

    def _origin(self, op: Op) -> Op:
        """The operation that one of a group was made of."""
        return self.maker[self.origin[op.results[0].name]]


def _come_to(scan: Scan, ops: list[Op], loops: PartLoops, chunks: Chunks, memory: list[Var]) -> list[Stmt]:
    """Loops that store what each chunk comes to, of tiles that operations make."""
    tile, loc = scan.op.args[0], scan.op.loc
    assert isinstance(tile, Var)
    chunked = ChunkLoops(loops, ops, tile, loops.lines.axes(tile)[scan.axis], chunks, loc, backwards=scan.backwards)
    state = _State(scan, chunked)
    body: list[Stmt] = [s for made in ops for s in chunked.parts.smaller(made)]
    tiles = state.widened(body)
    later = None
    if scan.start is None:
        later = chunked.parts.names.fresh("later", BOOL)
        body.append(Op("ne", (later,), (chunked.var, chunked.first), (), (), loc))
    body += state.step(tiles, later)
    places = chunked.places(tile, scan.axis, chunked.where)
    end = [Op("store", (), (v, m, *places), (), (), loc) for v, m in zip(state.before, memory, strict=True)]
    return chunked.around(state.begin(), body, end)


def _scanned(
    scans: list[Scan], ends: list[list[Var]], ops: list[Op], loops: PartLoops, along: Axis, chunks: Chunks
) -> list[Stmt]:  # fmt: skip
    """Loops that do what operations do, each chunk from what all chunks before it come to."""
    value, loc, backwards = ops[-1].args[0], scans[0].op.loc, scans[0].backwards
    assert isinstance(value, Var)
    chunked = ChunkLoops(loops, ops, value, along, chunks, loc, backwards=backwards)
    names, head = chunked.parts.names, chunked.head
    before: list[Stmt] = []
    body: list[Stmt] = []
    some, later = names.fresh("some", BOOL), None
    edge = head.op("sub", chunks.count, index(1), "last") if backwards else index(0)
    previous = head.op("add" if backwards else "sub", chunked.where, index(1), "previous")
    before.append(Op("ne", (some,), (chunked.where, edge), (), (), loc))
    if any(scan.start is None for scan in scans):
        further, later = (names.fresh(hint, BOOL) for hint in ("further", "later"))
        body += [Op("ne", (further,), (chunked.var, chunked.first), (), (), loc),
                 Op("or", (later,), (some, further), (), (), loc)]  # fmt: skip
    states = [_State(scan, chunked) for scan in scans]
    loaded: list[Stmt] = []
    for state, memory in zip(states, ends, strict=True):
        before += state.begin()
        loaded += state.loaded(memory, previous)
    before.append(If(some, tuple(loaded), (), loc=loc))
    state_of = {id(scan.op): state for scan, state in zip(scans, states, strict=True)}
    for op in ops:
        body += state_of[id(op)].scanned(later) if id(op) in state_of else chunked.parts.smaller(op)
    return chunked.around(before, body, [])


class _State:
    """The states of a scan in the loops over a chunk; before: what all elements before a part come to."""

    def __init__(self, scan: Scan, chunked: ChunkLoops) -> None:
        self.scan, self.chunked, self.names = scan, chunked, chunked.parts.names
        self.tile = scan.op.args[0]
        self.lines = [TileType(k, chunked.line_of(self.tile, scan.axis).shape) for k in scan.work]
        self.before = self._fresh("before")

    def _fresh(self, hint: str) -> list[Var]:
        return [self.names.fresh(hint, line) for line in self.lines]

    def begin(self) -> list[Stmt]:
        """What a chunk starts from; anything where nothing is the beginning."""
        extents, loc = self.chunked.extents(self.tile, self.scan.axis), self.scan.op.loc
        starts = [self.scan.start or _zero(k) for k in self.scan.work]
        return [Op("full", (v,), (start, *extents), (), (), loc) for v, start in zip(self.before, starts, strict=True)]

    def loaded(self, memory: list[Var], place: Operand) -> list[Stmt]:
        """What a chunk starts from where that is in memory."""
        axis, loc, read = self.scan.axis, self.scan.op.loc, self._fresh("end")
        where = (*self.chunked.places(self.tile, axis, place), *self.chunked.extents(self.tile, axis))
        loads = [Op("load", (v,), (m, *where), (), (), loc) for v, m in zip(read, memory, strict=True)]
        return [*loads, *self._copies(self.before, read)]

    def widened(self, out: list[Stmt]) -> list[Operand]:
        """The operands for a part, of the types of the states."""
        tiles: list[Operand] = []
        for arg, kind in zip(self.scan.op.args, self.scan.work, strict=True):
            tile = self.chunked.parts.tile(arg)
            assert isinstance(tile, Var) and isinstance(tile.type, TileType)
            if tile.type.dtype != kind:
                wide = self.names.fresh(source_name(tile.name), TileType(kind, tile.type.shape))
                out.append(Op("cast", (wide,), (tile,), (("dtype", kind),), (), self.scan.op.loc))
                tile = wide
            tiles.append(tile)
        return tiles

    def step(self, tiles: Sequence[Operand], later: Var | None) -> list[Stmt]:
        """What is before the next part; later: whether something is before this one, where that has to be asked."""
        part, more = self._fresh("part"), self._fresh("more")
        come_to = with_own_regions(self.scan.come_to(tiles, part), self.names)
        going_on = [self._combined(part, more), *self._copies(self.before, more)]
        return [come_to, *self._or_first(later, going_on, self._copies(self.before, part))]

    def scanned(self, later: Var | None) -> list[Stmt]:
        """The scan of a part, and what is before the next one."""
        op, out = self.scan.op, list[Stmt]()
        tiles = self.widened(out)
        results = [self.chunked.parts.tile(r) for r in op.results]
        own = [self.names.fresh("own", tile.type) for tile in tiles]
        out.append(replace(op, results=tuple(own), args=tuple(tiles)))
        wide = [r if r.type == v.type else self.names.fresh(source_name(r.name), v.type)  # type: ignore[union-attr]
                for r, v in zip(results, own, strict=True)]  # fmt: skip
        later = later if self.scan.start is None else None
        out += self._or_first(later, [self._combined(own, wide)], self._copies(wide, own))  # type: ignore
        for r, v in zip(results, wide, strict=True):
            if r is not v:
                out.append(Op("cast", (r,), (v,), (("dtype", r.type.dtype),), (), op.loc))  # type: ignore
        return [*out, *self.step(tiles, later)]

    def _combined(self, tiles: Sequence[Operand], results: Sequence[Var]) -> Op:
        return with_own_regions(self.scan.combined(self.before, tiles, results), self.names)

    def _or_first(self, later: Var | None, going_on: Sequence[Stmt], first: Sequence[Stmt]) -> Sequence[Stmt]:
        return going_on if later is None else [If(later, tuple(going_on), tuple(first), loc=self.scan.op.loc)]

    def _copies(self, to: Sequence[Var], values: Sequence[Operand]) -> list[Stmt]:
        return [Op("copy", (v,), (w,), (), (), self.scan.op.loc) for v, w in zip(to, values, strict=True)]


def _zero(dtype: DType) -> Const:
    return Const({"b": False, "f": 0.0}.get(dtype.kind, 0), ScalarType(dtype))
