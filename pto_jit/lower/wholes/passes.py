# SPDX-License-Identifier: MIT
"""Rows that are reduced and may be too long for a block, of unknown extents: each is read once for each time that it is
reduced, and once more for what is stored, a part at a time.

Before::

    FOR %x_at:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      %x.1 = tload %x[%x_at, 0] [1, %m] : !pto.tile<1x?xf32>
      %max = tmax %x.1 {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
      %t = tsub %x.1, %max : !pto.tile<1x?xf32>
      tstore %t, %y[%x_at, 0]
    ENDFOR

After::

    %fits = sle %m, 65536 : bool_
    IF %fits
      ...
    ELSE
      FOR %x_at:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
        %max.all = tfull -inf:f32, [1, 1] : !pto.tile<1x1xf32>
        FOR %x_at.1:idx, 0:idx, %m:idx, 8192:idx {kind=sequential}
          %x.2 = tload %x[%x_at, %x_at.1] [1, %some] : !pto.tile<1x?xf32>
          %part = tmax %x.2 {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
          %more = tmax %max.all, %part : !pto.tile<1x1xf32>
          %max.all = tcopy %more : !pto.tile<1x1xf32>
        ENDFOR
        %max = tcopy %max.all : !pto.tile<1x1xf32>
        FOR %x_at.2:idx, 0:idx, %m:idx, 8192:idx {kind=sequential}
          %x.1 = tload %x[%x_at, %x_at.2] [1, %some.1] : !pto.tile<1x?xf32>
          %t = tsub %x.1, %max : !pto.tile<1x?xf32>
          tstore %t, %y[%x_at, %x_at.2]
        ENDFOR
      ENDFOR
    ENDIF

So one more kernel is written, and the host launches it where a row does not fit.  Running sums and products along rows
go on from part to part, in each pass that needs them, where a core has the parts of a row one after the other.  So do
the sums of products along rows that both operands have.
"""

from __future__ import annotations

from collections.abc import Collection

from pto_jit.dtypes import f32, i32
from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import rename
from pto_jit.lower.groups.axes import is_elementwise, reduced_axes, touches_tiles
from pto_jit.lower.names import Scalars, index, source_name
from pto_jit.lower.reductions.accumulate import identity
from pto_jit.lower.wholes.lines import STORES, SUMS, Axis, Lines
from pto_jit.lower.wholes.parted import PROOF, DividedLine, PartLoops
from pto_jit.lower.wholes.partials import combining, divides, starting, working
from pto_jit.slotted import replace

_PLAIN = frozenset("load full arange copy broadcast_to reshape map store".split())


def in_passes(loops: PartLoops, ops: list[Op], rows: list[DividedLine]) -> list[Stmt] | None:
    """Loops over lines that are independent, inside which rows are gone over in passes; None where operations need more
    than parts of them.

    loops: over all axes but those of the rows, of which tiles that only meet once they are reduced have their own.
    """
    return _Passes(loops, ops, rows).around() if _are_known(loops, ops, {row.axis for row in rows}) else None


def body_in_passes(
    loops: PartLoops, ops: list[Op], rows: list[DividedLine], *, products: bool = False
) -> Block | None:  # fmt: skip
    """What a loop does for one of its lines, in passes over rows of it; None as above.

    products: among the operations may be such, transposes, and reductions along other axes, whose extents `loops` has,
    and whatever does not meet rows.
    """
    known = _are_known(loops, ops, {row.axis for row in rows}, running=not loops.bounded, products=products)
    return _Passes(loops, ops, rows).inside() if known else None


def _folds(op: Op, lines: Lines, rows: Collection[Axis]) -> bool:
    """Whether an operation combines the elements of rows: a reduction, or a product along an axis of both operands."""
    own = lines.axes(op.args[0]) if op.args else {}
    if op.op == "dot":
        return own.get(op.args[0].type.rank - 1) in rows  # type: ignore[union-attr]
    return divides(op) and any(own.get(k) in rows for k in reduced_axes(op))


def _are_known(
    loops: PartLoops, ops: list[Op], rows: set[Axis], *, running: bool = False, products: bool = False
) -> bool:  # fmt: skip
    """Whether operations are elementwise, or reduce rows, or with `running` scan them forwards, or are what `products`
    says; and nothing is loaded that may have been stored before."""
    lines = loops.lines
    stored = False
    for op in ops:
        along = rows & {axis for v in (*op.args, *op.results) for axis in lines.axes(v).values()}
        if len(along) > 1:
            return False
        if products and (not along or op.op in ("dot", "transpose", *STORES) or divides(op)):
            if any(not isinstance(r.type, TileType) for r in op.results) and along:
                return False
            if not (stored and op.op == "load"):
                stored |= op.op in STORES
                continue
        if op.op == "extract" and not along:
            continue
        stored |= op.op in STORES
        if divides(op):
            own = lines.axes(op.args[0])
            if not rows.issuperset(own[k] for k in reduced_axes(op) if k in own):
                return False
        elif running and op.op in SUMS:
            if op.attr("reverse") or op.args[0].type.dtype not in (f32, i32):  # type: ignore[union-attr]
                return False
        elif op.op == "valid":
            if int(op.attr("axis")) not in lines.axes(op.args[0]):  # type: ignore[call-overload]
                return False
        elif (stored and op.op == "load") or (touches_tiles(op) and not (is_elementwise(op) or op.op in _PLAIN)):
            return False
    return True


class _Passes:
    """How often rows have been gone over before a variable is known, `level`; the row that an operation is on, of the
    *wide* ones."""

    def __init__(self, loops: PartLoops, ops: list[Op], rows: list[DividedLine]) -> None:
        extents = {**loops.extents, **{row.axis: row.extent for row in rows}}
        self.loops = replace(loops, chosen=[*loops.chosen, *rows], at={}, extents=extents)
        self.ops, self.names, self.loc = ops, loops.names, loops.scope.loc
        self.outer, self.rows = loops.chosen, rows
        self.level: dict[str, int] = {}
        self.wide: dict[int, DividedLine] = {}
        self.folding = {id(op) for op in ops if _folds(op, loops.lines, {row.axis for row in rows})}
        for op in ops:
            before = max((self.level.get(a.name, 0) for a in op.args if isinstance(a, Var)), default=0)
            tiles = (*op.args, *op.results)
            on = [row for row in rows if any(loops.lines.place(v, row.axis) is not None for v in tiles)]
            if op.op == "valid":
                before = 0
            elif on:
                self.wide[id(op)] = on[0]
            for r in op.results:
                self.level[r.name] = before + (id(op) in self.folding)

    def around(self) -> list[Stmt]:
        """The loops over rows."""
        head = Scalars(self.names, self.loc)
        for line in self.outer:
            self.loops.at[line.axis] = self.loops.first(self.ops)
            self.loops.extents[line.axis] = self._some(line, head)
        body = (*head.block, *self.inside())
        scope = self.loops.scope
        block: Block = body if scope.named else (replace(scope, body=body),)
        for line in reversed(self.outer):
            block = (For("parallel", self.loops.at[line.axis], index(0), line.extent, index(line.part), block,
                         proof=PROOF, loc=self.loc),)  # fmt: skip
        return [*self.loops.scalars.block, *block]

    def inside(self) -> Block:
        """What is done for the lines of a part."""
        body = self._narrow(0)
        for level in range(1, max(self.level.values(), default=0) + 1):
            for row in self.rows:
                reductions = [op for op in self.ops if id(op) in self.folding and self.wide.get(id(op)) is row
                              and self.level[op.results[0].name] == level]  # fmt: skip
                body += self._reduced(row, reductions) if reductions else []
            body += self._narrow(level)
        stores = [op for op in self.ops if op.op in STORES]
        for row in self.rows:
            wide = [op for op in stores if self.wide.get(id(op)) is row]
            body += self._pass(row, wide, {}, []) if wide else []
        return (*body, *(s for op in stores if id(op) not in self.wide for s in self.loops.smaller(op)))

    def _some(self, line: DividedLine, scalars: Scalars) -> Operand:
        """How many lines a part has."""
        if line.part == 1:
            return index(1)
        most: Operand = index(line.part)
        if self.loops.bounded:
            most = self.loops.scalars.op("min", line.extent, most, "most")
        return scalars.op("min", scalars.op("sub", line.extent, self.loops.at[line.axis], "left"), most, "some")

    def _narrow(self, level: int) -> list[Stmt]:
        """What is computed for rows as a whole, as soon as that is possible."""
        ops = [op for op in self.ops if id(op) not in self.wide and op.op not in STORES]
        return [s for op in ops if self.level[op.results[0].name] == level for s in self.loops.smaller(op)]

    def _pass(self, row: DividedLine, last: list[Op], own: dict[str, str], more: list[Stmt]) -> list[Stmt]:
        """A loop over the parts of rows that does some operations, and what they need; own: what variables are called
        in it; more: what follows them."""
        at = self.loops.at[row.axis] = self.loops.first(self.ops)
        inner = Scalars(self.names, self.loc)
        self.loops.extents[row.axis] = self._some(row, inner)
        starts, made = list[Stmt](), list[Stmt]()
        for op in (*self._needed(last), *(op for op in last if op.op in STORES)):
            runs = op.op in SUMS and self.loops.lines.place(op.args[0], row.axis) == int(op.attr("axis"))  # type: ignore
            made += self._running(op, row, starts) if runs else self.loops.smaller(op)
        body = (*inner.block, *rename(tuple(made), own), *more)
        return [*starts, For("sequential", at, index(0), row.extent, index(row.part), body, loc=self.loc)]

    def _running(self, op: Op, row: DividedLine, starts: list[Stmt]) -> list[Stmt]:
        """A running sum or product of a part, from what those before come to on; starts: what that begins with."""
        fold, both = SUMS[op.op]
        *before, scan = self.loops.smaller(op)
        assert isinstance(scan, Op)
        (result,), (part,), k = scan.results, scan.args, self.loops.lines.place(op.args[0], row.axis)
        typ = result.type
        assert isinstance(typ, TileType)
        line = TileType(typ.dtype, tuple(1 if j == k else n for j, n in enumerate(typ.shape)))
        name = source_name(result.name)
        mine = self.names.fresh(f"{name}.own", typ)
        sofar, some, more = (self.names.fresh(f"{name}.{w}", line) for w in ("before", "part", "more"))
        sides = (index(1) if j == k else side for j, side in enumerate(self._sides(op.args[0])))
        starts.append(Op("full", (sofar,), (identity(both, typ.dtype), *sides), (), (), op.loc))
        return [
            *before, replace(scan, results=(mine,)), Op(both, (result,), (sofar, mine), (), (), op.loc),
            Op(fold, (some,), (part,), (("axes", (k,)), ("keepdims", True)), (), op.loc),
            Op(both, (more,), (sofar, some), (), (), op.loc), Op("copy", (sofar,), (more,), (), (), op.loc),
        ]  # fmt: skip

    def _needed(self, last: Collection[Op]) -> list[Op]:
        """The operations on rows that others need, in order."""
        needed = {a.name for op in last for a in op.args if isinstance(a, Var)}
        out: list[Op] = []
        for op in reversed(self.ops):
            if id(op) in self.wide and id(op) not in self.folding and any(r.name in needed for r in op.results):
                out.insert(0, op)
                needed |= {a.name for a in op.args if isinstance(a, Var)}
        return out

    def _reduced(self, row: DividedLine, reductions: list[Op]) -> list[Stmt]:
        """A pass that reduces rows, between where its results begin and what they are called."""
        heads, more, tails = list[Stmt](), list[Stmt](), list[Stmt]()
        own = {r.name: self.names.fresh(source_name(r.name), r.type).name
               for op in self._needed(reductions) for r in op.results}  # fmt: skip
        for op in reductions:
            if op.op == "dot":
                self._multiplied(op, own, heads, more, tails)
                continue
            kind, work = working(op)
            result, part = self.loops.tile(op.results[0]), self.loops.tile(op.args[0])
            assert isinstance(result, Var) and isinstance(result.type, TileType)
            assert isinstance(part, Var) and isinstance(part.type, TileType)
            axes = self.loops.lines.axes(op.args[0])
            shape = tuple(None if axes.get(k) == row.axis else n for k, n in enumerate(part.type.shape))
            part = Var(own.get(part.name, part.name), TileType(part.type.dtype, shape))
            if part.type.dtype != work:  # type: ignore[union-attr]
                wide = self.names.fresh(source_name(part.name), TileType(work, shape))
                more.append(Op("cast", (wide,), (part,), (("dtype", work),), (), op.loc))
                part = wide
            line = TileType(work, result.type.shape)
            every, some, both = (self.names.fresh(f"{source_name(result.name)}.{w}", line)
                                 for w in ("all", "part", "more"))  # fmt: skip
            heads.append(Op("full", (every,), (starting(op), *self._sides(op.results[0])), (), (), op.loc))
            more += [Op(kind, (some,), (part,), op.attrs, (), op.loc),
                     Op(combining(kind), (both,), (every, some), (), (), op.loc),
                     Op("copy", (every,), (both,), (), (), op.loc)]  # fmt: skip
            if result.type.dtype == work:
                tails.append(Op("copy", (result,), (every,), (), (), op.loc))
            else:
                tails.append(Op("cast", (result,), (every,), (("dtype", result.type.dtype),), (), op.loc))
        return [*heads, *self._pass(row, reductions, own, more), *tails]

    def _multiplied(self, op: Op, own: dict[str, str], heads: list[Stmt], more: list[Stmt], tails: list[Stmt]) -> None:
        """The same, of a product along rows: each part is added to what those before come to."""
        (result,), (left, right, *start) = op.results, op.args
        assert isinstance(result.type, TileType)
        every, both = (self.names.fresh(f"{source_name(result.name)}.{w}", result.type) for w in ("all", "more"))
        kind = result.type.dtype
        zero = Const(0.0, ScalarType(kind)) if kind.kind == "f" else identity("add", kind)
        heads.append(Op("copy", (every,), (start[0],), (), (), op.loc) if start else
                     Op("full", (every,), (zero, *self._sides(result)), (), (), op.loc))  # fmt: skip
        (part,) = rename((replace(self.loops.smaller(op)[-1], args=(  # type: ignore[arg-type]
            self.loops.tile(left), self.loops.tile(right))),), own)  # fmt: skip
        assert isinstance(part, Op)
        more += [replace(part, results=(both,), args=(*part.args, every)),
                 Op("copy", (every,), (both,), (), (), op.loc)]  # fmt: skip
        tails.append(Op("copy", (result,), (every,), (), (), op.loc))

    def _sides(self, tile: Operand) -> list[Operand]:
        """The extents of a part of what rows come to; of axes that are in each part those that are declared."""
        own, typ = self.loops.lines.axes(tile), tile.type
        assert isinstance(typ, TileType)
        return [self.loops.extents.get(own[k]) or index(n or 1) if k in own else index(1)
                for k, n in enumerate(typ.shape)]  # fmt: skip
