# SPDX-License-Identifier: MIT
"""The plan "wavefront": a sequential loop over hyperplanes, the cells of a plane together.

With the schedule h the nest (x_1 ... x_n) becomes (m, x without x_e), m = h . x; x_e, the innermost loop with
h_e = 1, follows from the others.  A cell reads only cells of earlier planes, at most
`depth` of them back, so that of every array only the last `depth` + 1 planes are kept, as a ring.

Loops on which operands shared by cells depend (the layer, which chooses the weights) stay loops; the cells over all
other loops are gathered to the rows of tiles, computed at once (`batching`), and scattered.  Lists of different lengths
take no more than their cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import load_all
from pto_jit.codegen.emit import I64, index
from pto_jit.codegen.values import Tensor
from pto_jit.fractal.compile.batching import NotBatchable, demanded
from pto_jit.fractal.compile.blocks import Work
from pto_jit.fractal.compile.expr import Expr, Symbol, Writer, binary, number, of, operand
from pto_jit.fractal.compile.hyperplane import Vector
from pto_jit.fractal.compile.layout import Layout, laid_out, leaf_of
from pto_jit.fractal.compile.lists import (
    Access,
    Array,
    Compute,
    Dim,
    Leaf,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    replaced,
)
from pto_jit.fractal.compile.nest import Nest, depends_on
from pto_jit.fractal.compile.sequential import NO_STATE, Sequential, has_effects, transposed, variable_of
from pto_jit.fractal.compile.session import session_of
from pto_jit.ir.nodes import Const, For, If, Operand, Var
from pto_jit.slotted import frozen, mutable

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@frozen(eq=False)
class Ring:
    """The last planes of an array: the rows of (plane modulo `depth`, the indices but the eliminated one)."""

    h: Vector
    depth: Expr
    kept: tuple[int, ...]
    extents: tuple[Expr, ...]
    tensor: Tensor

    def row(self, at: Sequence[Expr]) -> Expr:
        plane = number(0)
        for c, e in zip(self.h, at, strict=True):
            plane = plane + e * c
        total = binary("mod", plane, self.depth)
        for k, extent in zip(self.kept, self.extents, strict=True):
            total = total * extent + at[k]
        return total


@frozen(eq=False)
class Last(Layout):
    """The layout of what is read behind a nest: without the dimensions of folds, whose last element it is."""

    lost: frozenset[int] = frozenset()

    def row(self, at: tuple[Expr, ...]) -> Expr:
        return Layout.row(self, self._left(at))

    def is_whole(self, at: tuple[Expr, ...], own: tuple[Dim, ...]) -> bool:
        return self._left(at) == tuple(of(d.symbol) for d in own) and self._has_lengths_of(own)

    def _left(self, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(e for k, e in enumerate(at) if k not in self.lost)


@mutable(eq=False)
class Planes:
    """A nest on its way: the schedule, the eliminated loop, and the longest each loop can be."""

    nest: Nest
    h: Vector
    eliminated: int | None  # None: nothing is carried, and there is one plane
    plane: Symbol
    single: Symbol  # stands for the index of a segment of one cell
    piece: Symbol  # of the rows of a batch
    strip: Symbol  # of several planes of a group
    longest: list[Expr]
    group: tuple[int, ...]  # loops that stay loops
    batch: tuple[int, ...]  # loops whose cells are rows
    rings: dict[int, Any]  # `Ring`s, or `rows.Packed` ones


class Wavefront:
    """Writes one nest; `escaping`: the arrays that are read behind it."""

    def __init__(self, g: Generator, nest: Nest, escaping: Callable[[Array], bool]) -> None:
        self.g = g
        self.e = g.e
        self.nest = nest
        self.escaping = escaping
        self.plain = Sequential(g, set())

    # -- before the nest -------------------------------------------------------------------------------------------

    def prepare(self, symbol: Callable[[str], Symbol], *, batched: bool) -> Planes:
        """Schedule and roles of the loops.  Raises NoSchedule, NotBatchable."""
        nest = self.nest
        h = nest.hyperplane()
        symbols = nest.symbols
        group: set[int] = set()
        if batched:
            wanted = demanded(nest.cell)
            for item in nest.cell:
                if isinstance(item, ReadLeaf) and str(getattr(variable_of(item.value), "name", "")) in wanted:
                    group |= {symbols.index(s) for s in depends_on(item.read, symbols)}
                elif isinstance(item, Compute):
                    group |= {symbols.index(s) for s in item.expr.symbols() if s in symbols}
        eliminated = None
        if any(h):
            fitting = [k for k, c in enumerate(h) if c == 1 and k not in group and not self._is_needed(k)]
            if not fitting:
                raise NotBatchable("every loop that could follow from the plane chooses shared operands, or lengths")
            eliminated = fitting[-1]
        rest = [k for k in range(len(h)) if k not in group and k != eliminated]
        names = symbol("plane"), symbol("one"), symbol("piece"), symbol("strip")
        return Planes(nest, h, eliminated, *names, [], tuple(sorted(group)), tuple(rest), {})

    def _is_needed(self, k: int) -> bool:
        """Whether the length of another loop depends on loop k."""
        symbol = self.nest.symbols[k]
        return any(symbol in loop.length.symbols() for loop in self.nest.loops)

    def lengths(self, planes: Planes, writer: Writer) -> None:
        """The longest each loop can be: a maximum over the loops that its length depends on."""
        for loop in self.nest.loops:
            planes.longest.append(self.most(loop.length, writer))

    def most(self, e: Expr, writer: Writer) -> Expr:
        """The greatest value of a number that is not negative, over the loops that it depends on; 0 without any."""
        around = self.loops_of(e)
        if not around:
            return e
        most = self.e.fresh("most", I64)
        self.plain.assign(most, index(0))

        def level(w: Writer, left: Sequence[int]) -> None:
            if left:
                first, *rest = left
                outer = self.nest.loops[first]
                self.counted(w, outer.symbol, w.expr(outer.length), lambda w: level(w, rest))
                return
            (more,) = self.e.op("max", [most, w.expr(e)])
            self.plain.assign(most, more)

        level(writer, around)
        return operand(most)

    def around(self, k: int) -> list[int]:
        """The loops that the length of loop k depends on, with those that theirs depend on."""
        return self.loops_of(self.nest.loops[k].length)

    def loops_of(self, e: Expr) -> list[int]:
        """The loops that a number depends on, with those that their lengths depend on."""
        symbols = self.nest.symbols
        found: set[int] = set()
        todo = [e]
        while todo:
            for s in todo.pop().symbols():
                if s in symbols and symbols.index(s) not in found:
                    found.add(symbols.index(s))
                    todo.append(self.nest.loops[symbols.index(s)].length)
        return sorted(found)

    def memory(self, planes: Planes, writer: Writer) -> None:
        """Rings for what cells read of each other, and the memory of what is read behind the nest."""
        done: set[int] = set()
        for item in self.nest.cell:
            if not isinstance(item, WriteLeaf) or id(item.array.root) in done:
                continue
            root = item.array.root
            done.add(id(root))
            distances = self.nest.exact[id(root)]
            if distances:
                planes.rings[id(root)] = self.ring(planes, root, self.depth(planes, distances, writer), writer)
            if self.escaping(root):
                self.behind(root, writer)

    def depth(self, planes: Planes, distances: Sequence[tuple[Expr, ...]], writer: Writer) -> Expr:
        """How many planes are kept: one more than cells look back."""
        back = number(0)
        for d in distances:
            far = number(0)
            for k, (c, x) in enumerate(zip(planes.h, d, strict=True)):
                step = x if x.constant is not None else binary("min", self.most(x, writer), planes.longest[k])
                far = far + step * c
            known, least = far.constant, back.constant
            back = number(max(known, least)) if None not in (known, least) else binary("max", back, far)  # type: ignore[type-var]
        if back.constant is None:  # computed once
            back = operand(writer.expr(back))
        return back + 1

    def ring(self, planes: Planes, root: Array, depth: Expr, writer: Writer) -> Any:
        """Memory for `depth` planes of an array."""
        kept = tuple(k for k in range(len(planes.h)) if k != planes.eliminated)
        extents = tuple(planes.longest[k] for k in kept)
        rows = depth
        for x in extents:
            rows = rows * x
        shape = [writer.expr(rows), *root.leaf.extents]
        (var,) = self.e.op("alloc", shape, {"dtype": root.leaf.dtype}, hint=f"{root.name}_planes")
        return Ring(planes.h, depth, kept, extents, Tensor(var, tuple(shape), self.e.loc))

    def behind(self, root: Array, writer: Writer) -> None:
        lost = frozenset(root.folded)
        dims = tuple(d for k, d in enumerate(root.dims) if k not in lost)
        own = laid_out(writer, dims, frozenset())
        root.layout = Last(own.dims, own.folded, own.prefix, own.table, own.rows, lost)
        shape = [writer.expr(own.rows), *root.leaf.extents]
        (var,) = self.e.op("alloc", shape, {"dtype": root.leaf.dtype}, hint=root.name)
        root.tensor = Tensor(var, tuple(shape), self.e.loc)

    def before(self, work: Work) -> Work:
        """The products of inputs, in blocks for the target."""
        return work

    # -- loops -----------------------------------------------------------------------------------------------------

    def counted(
        self,
        writer: Writer,
        symbol: Symbol,
        stop: Operand,
        body: Callable[[Writer], None],
        *,
        start: Operand | None = None,
        kind: str = "sequential",
    ) -> None:
        e = self.e
        kind = self.kind_of_loop(kind)
        var = e.fresh(symbol.name, I64)
        with e.block() as block:
            body(writer.but({symbol: var}))
        proof, loc = self.proof if kind == "parallel" else "", self.nest.loops[0].loc
        e.append(For(kind, var, start or index(0), stop, index(1), tuple(block), loc=loc, proof=proof))  # type: ignore[arg-type]

    def kind_of_loop(self, kind: str) -> str:
        """The kind of a loop that is asked for as `kind`."""
        return kind

    @property
    def proof(self) -> str:
        """Why the cells of a plane are independent."""
        if has_effects(self.nest.cell):
            return ""
        found = ", ".join(session_of(self.g).drawing.distances(self.nest))
        return f"by the distances {found}: no cell of a plane reads another one" if found else NO_STATE

    def guarded(self, cond: Operand, body: Callable[[], None]) -> None:
        with self.e.block() as block:
            body()
        self.e.append(If(cond, tuple(block), (), self.e.loc))

    def planes(self, planes: Planes, writer: Writer, body: Callable[[Writer], None]) -> None:
        """The loop over planes."""
        count = number(1)
        for c, n in zip(planes.h, planes.longest, strict=True):
            count = count + (n - 1) * c
        self.counted(writer, planes.plane, writer.expr(count), body)

    def eliminated(self, planes: Planes) -> dict[Symbol, Expr]:
        """The eliminated index, by plane and the others."""
        if planes.eliminated is None:
            return {}
        rest = of(planes.plane)
        for k, c in enumerate(planes.h):
            if k != planes.eliminated and c:
                rest = rest - of(self.nest.symbols[k]) * c
        return {self.nest.symbols[planes.eliminated]: rest}

    def bounds(self, planes: Planes, k: int, fixed: set[int]) -> tuple[Expr, Expr]:
        """[low, high) of loop k when those in `fixed` are chosen, as far as the longest loops tell."""
        loop = self.nest.loops[k]
        c = planes.h[k]
        length = loop.length
        if any(s in self.nest.symbols and self.nest.symbols.index(s) not in fixed for s in length.symbols()):
            length = planes.longest[k]
        if c != 1 or planes.eliminated is None:
            return number(0), length
        rest, room = of(planes.plane), number(0)
        for j, cj in enumerate(planes.h):
            if j == k or not cj:
                continue
            if j in fixed:
                rest = rest - of(self.nest.symbols[j]) * cj
            else:
                other = self.nest.loops[j].length
                known = all(s not in self.nest.symbols or self.nest.symbols.index(s) in fixed for s in other.symbols())
                room = room + ((other if known else planes.longest[j]) - 1) * cj
        return binary("max", number(0), rest - room), binary("min", length, rest + 1)

    def inside(self, planes: Planes, writer: Writer) -> Operand | None:
        """Whether a point is in the nest: the eliminated index, and what the bounds do not ensure."""
        if planes.eliminated is None:
            return None
        (at,) = self.eliminated(planes).values()
        value = writer.expr(at)
        low = self.e.scalar("ge", [value, index(0)]).operand
        length = writer.expr(self.nest.loops[planes.eliminated].length)
        high = self.e.scalar("lt", [value, length]).operand
        return self.e.scalar("and", [low, high]).operand

    # -- cells one by one ------------------------------------------------------------------------------------------

    def write_cells(self, planes: Planes, writer: Writer) -> None:
        """Every cell of a plane as an iteration of a parallel loop."""
        self.lengths(planes, writer)
        self.memory(planes, writer)
        order = [k for k in range(len(planes.h)) if k != planes.eliminated]

        def level(w: Writer, left: Sequence[int], fixed: set[int]) -> None:
            if not left:
                cond = self.inside(planes, w)
                if cond is None:
                    self.cell(planes, w)
                else:
                    self.guarded(cond, lambda: self.cell(planes, w))
                return
            first, *rest = left
            low, high = self.bounds(planes, first, fixed)
            start, stop = w.expr(low), w.expr(high)
            symbol = self.nest.symbols[first]
            self.counted(w, symbol, stop, lambda w: level(w, rest, fixed | {first}), start=start, kind="parallel")

        self.planes(planes, writer, lambda w: level(w, order, set()))

    def cell(self, planes: Planes, writer: Writer) -> None:
        mapping = self.eliminated(planes)
        cells = Cells(self.g, planes)
        cells.turned = transposed(self.nest.cell)
        for item in self.nest.cell:
            if isinstance(item, ReadLeaf):
                target = variable_of(item.value)
                assert isinstance(target, Var)
                cells.chosen(replaced(item.read, mapping), item.leaf, target, writer)
            elif isinstance(item, WriteLeaf):
                self.scatter_one(planes, item, variable_of(item.value), writer, mapping)
            elif isinstance(item, Compute):
                self.plain.assign(item.var, writer.expr(item.expr.replace(mapping)))
            else:
                self.e.append(item)

    def scatter_one(
        self, planes: Planes, item: WriteLeaf, value: Operand, writer: Writer, mapping: dict[Symbol, Expr]
    ) -> None:
        root = item.array.root
        at = tuple(x.replace(mapping) for x in item.index)
        ring = planes.rings.get(id(root))
        if ring is not None:
            self.store(ring.tensor, writer.expr(ring.row(at)), value, root.leaf)
        if self.escaping(root):
            self.if_last(
                root, at, writer, lambda: self.store(root.tensor, writer.expr(root.layout.row(at)), value, root.leaf)
            )

    def if_last(self, root: Array, at: Sequence[Expr], writer: Writer, body: Callable[[], None]) -> None:
        """Under the condition that the indices along folds are the last ones."""
        conditions = []
        for k in root.folded:
            length = self.nest.loops[k].length
            last = self.e.scalar("eq", [writer.expr(at[k]), writer.expr(length - 1)]).operand
            conditions.append(last)
        if not conditions:
            body()
            return
        together = conditions[0]
        for other in conditions[1:]:
            together = self.e.scalar("and", [together, other]).operand
        self.guarded(together, body)

    def store(self, tensor: Tensor, row: Operand, value: Operand, leaf: Leaf) -> None:
        if not leaf.extents:
            self.e.op("setelem", [value, tensor.var, row])
            return
        target = leaf_of(self.g, tensor, row, inside=True)
        self.e.op("store", [value, target.var, *([index(0)] * target.rank)], {"inside": True})


class Cells(Sequential):
    """Reads leaves, those of the nest's own arrays from their rings."""

    def __init__(self, g: Generator, planes: Planes) -> None:
        Sequential.__init__(self, g, set())
        self.planes = planes

    def value(self, read: Read, leaf: Leaf, writer: Writer) -> Operand:
        if isinstance(read, Access):
            ring = self.planes.rings.get(id(read.array.root))
            if ring is not None:
                row = writer.expr(ring.row(read.index))
                if not leaf.extents:
                    column = [index(0)] * (ring.tensor.rank - 1)
                    return self.e.scalar("getelem", [ring.tensor.var, row, *column]).operand
                tile = load_all(self.g, leaf_of(self.g, ring.tensor, row))
                if tile.extents != leaf.extents:
                    return self.e.op("reshape", [tile.var, *leaf.extents])[0]
                return tile.var
        return Sequential.value(self, read, leaf, writer)

    def is_inside(self, part: Part) -> bool:
        """Whether a part is whole along each axis, or the element of a loop that is as long as the tensor."""
        if not isinstance(part.source, Tensor):
            return False
        session = session_of(self.g)
        lengths = {loop.symbol: loop.length for loop in self.planes.nest.loops}

        def along(start: Expr, extent: Operand, size: Operand) -> bool:
            if start.constant == 0 and session.is_zero(session.operand(extent) - session.operand(size)):
                return True
            symbol = next(iter(start.symbols()), None)
            length = lengths.get(symbol) if symbol is not None and start == of(symbol) else None
            if length is None or length.symbols() or not (isinstance(extent, Const) and extent.value == 1):
                return False
            return session.is_zero(length - session.operand(size))

        return all(map(along, part.starts, part.extents, part.source.extents))
