# SPDX-License-Identifier: MIT
"""Columns of whole tensors that are reduced a part at a time, whatever their length.

Before::

    %x.1 = tload %x[0, 0] [%n, %m]
    %a = tabs %x.1
    %s = tsum %a {axes=(0,), keepdims=false}
    %u = texp %s
    tstore %u, %y[0]

After::

    FOR %x_at:idx, 0:idx, %m:idx, 64:idx {kind=parallel}
      %some = smin ..., 64
      %s.all = tfull 0.0, [%some]
      FOR %x_at.1:idx, 0:idx, %n:idx, 64:idx
        %some.1 = smin ..., 64
        %x.1 = tload %x[%x_at.1, %x_at] [%some.1, %some]
        %a = tabs %x.1
        %s.part = tsum %a {axes=(0,), keepdims=false}
        %s.more = tadd %s.all, %s.part
        %s.all = tcopy %s.more
      ENDFOR
      %s = tcopy %s.all
      %u = texp %s
      tstore %u, %y[%x_at]
    ENDFOR

Not where the columns are read again once they are reduced: these stay on chip, as far as they fit.
"""

from __future__ import annotations

from pto_jit.dtypes import f32
from pto_jit.ir.nodes import Block, For, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.lower.names import Scalars, index
from pto_jit.lower.wholes.lines import Axis, Lines
from pto_jit.lower.wholes.parted import PROOF, DividedLine, PartLoops
from pto_jit.lower.wholes.partials import combining, starting
from pto_jit.slotted import field, mutable, replace

_PLAIN = frozenset("load full arange copy broadcast_to reshape transpose".split())


def folded_axes(ops: list[Op], lines: Lines) -> dict[Axis, list[Op]]:
    """The axes that operations reduce, before anything else is done, and those that lead there; none where columns are
    read again, or their parts cannot be combined."""
    axes = {axis: None for op in ops if is_reduction(op) for axis in _reduced(op, lines)}
    out = {axis: _inside(axis, ops, lines) for axis in axes}
    rest = [op for op in ops if op.op != "valid" and not any(op in inside for inside in out.values())]
    own = {r.name for axis, inside in out.items() for op in inside if axis not in _over(op, lines) for r in op.results}
    for op in rest:
        if any(isinstance(v, Var) and (v.name in own or any(lines.place(v, axis) is not None for axis in axes))
               for v in (*op.args, *op.results)):  # fmt: skip
            return {}
    return out if all(_can_be_folded(axis, inside, lines) for axis, inside in out.items()) else {}


def _inside(axis: Axis, ops: list[Op], lines: Lines) -> list[Op]:
    """What reductions along an axis are made of, and these."""
    inside: list[Op] = []
    needed: set[str] = set()
    for op in reversed(ops):
        if axis in _over(op, lines) or any(r.name in needed for r in op.results):
            inside.insert(0, op)
            needed |= {a.name for a in op.args if isinstance(a, Var)}
    return inside


def _can_be_folded(axis: Axis, inside: list[Op], lines: Lines) -> bool:
    """Whether lines along an axis are on their own until they are reduced, and none are the elements of a row."""
    for op in inside:
        over = _over(op, lines)
        if over and (over != [axis] or not _is_exact(op)):
            return False
        if not over and not (is_elementwise(op) or op.op in _PLAIN):
            return False
        if any(isinstance(v.type, TileType) and lines.place(v, axis) == v.type.rank - 1
               for v in (*op.args, *op.results)):  # fmt: skip
            return False
    reduced = {op.results[0].name for op in inside if _over(op, lines)}
    return not any(isinstance(a, Var) and a.name in reduced for op in inside for a in op.args)


def _over(op: Op, lines: Lines) -> list[Axis]:
    """The axes that an operation reduces."""
    return _reduced(op, lines) if is_reduction(op) else []


def _reduced(op: Op, lines: Lines) -> list[Axis]:
    own = lines.axes(op.args[0])
    return [own[k] for k in reduced_axes(op) if k in own]


def _is_exact(op: Op) -> bool:
    """Whether parts of it may be combined one after the other."""
    result = op.results[0].type
    if not isinstance(result, TileType) or op.op not in ("sum", "prod", "max", "min"):
        return False
    return op.op in ("max", "min") or result.dtype == op.args[0].type.dtype == f32  # type: ignore[union-attr]


@mutable
class FoldLoops(PartLoops):
    """Loops over parts, with one over parts of a folded axis inside."""

    folded: list[tuple[DividedLine, list[Op]]] = field(default_factory=list)
    """Axes that are folded, and what is done for each part of them."""

    def __str__(self) -> str:
        told = " and ".join(str(line.part) for line, _ in self.folded)
        return f"{PartLoops.__str__(self)}, folded {told} at a time"

    def around(self, ops: list[Op]) -> list[Stmt]:
        outer = list(self.chosen)
        self.chosen = [*outer, *(line for line, _ in self.folded)]
        for line in self.chosen:
            self.at[line.axis] = self.first(ops)
        stmts = self._body(ops, outer)
        block: Block = stmts if self.scope.named else (replace(self.scope, body=stmts),)
        for line in reversed(outer):
            block = (For("parallel", self.at[line.axis], index(0), line.extent, index(line.part), block, proof=PROOF,
                         loc=self.scope.loc),)  # fmt: skip
        return [*self.scalars.block, *block]

    def _body(self, ops: list[Op], outer: list[DividedLine]) -> Block:
        ops = [op for op in ops if not any(op is one for one in self.told)]
        before = Scalars(self.names, self.scope.loc)
        for line in outer:
            self._some(line, before)
        folds = [s for line, inside in self.folded for s in self._fold(line, inside)]
        rest = [op for op in ops if not any(op in inside for _, inside in self.folded)]
        return (*before.block, *folds, *(s for op in rest for s in self.smaller(op)))

    def _some(self, line: DividedLine, scalars: Scalars) -> None:
        """How many lines are in a part."""
        self.extents[line.axis] = index(1)
        if line.part > 1:
            left = scalars.op("sub", line.extent, self.at[line.axis], "left")
            self.extents[line.axis] = scalars.op("min", left, index(line.part), "some")

    def _fold(self, line: DividedLine, inside: list[Op]) -> list[Stmt]:
        """The loop over parts of an axis, between where its results begin and what they are called."""
        inner = Scalars(self.names, self.scope.loc)
        self._some(line, inner)
        body: list[Stmt] = [*inner.block]
        heads: list[Stmt] = []
        tails: list[Stmt] = []
        for op in inside:
            smaller = self.smaller(op)
            if not _over(op, self.lines):
                body += smaller
                continue
            result = self.tile(op.results[0])
            assert isinstance(result, Var) and isinstance(result.type, TileType)
            names = (f"{result.name}.{word}" for word in ("all", "part", "more"))
            every, part, more = (self.names.fresh(name, result.type) for name in names)
            heads.append(Op("full", (every,), (starting(op), *self._sides(op.results[0])), (), (), op.loc))
            body += [replace(s, results=(part,)) if s is smaller[-1] else s for s in smaller]  # type: ignore[type-var]
            body.append(Op(combining(op.op), (more,), (every, part), (), (), op.loc))
            body.append(Op("copy", (every,), (more,), (), (), op.loc))
            tails.append(Op("copy", (result,), (every,), (), (), op.loc))
        at, loc = self.at[line.axis], self.scope.loc
        loop = For("sequential", at, index(0), line.extent, index(line.part), tuple(body), loc=loc)
        return [*heads, loop, *tails]

    def _sides(self, tile: Operand) -> list[Operand]:
        """The extents of a part of a tile."""
        typ = tile.type
        assert isinstance(typ, TileType)
        out: list[Operand] = []
        for k, n in enumerate(typ.shape):
            axis = self.lines.axes(tile).get(k)
            known = self.extents.get(axis) if axis is not None else None  # type: ignore[arg-type]
            out.append(known or (index(n) if n is not None else self.found[axis]))  # type: ignore[index]
        return out
