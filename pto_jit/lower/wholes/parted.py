# SPDX-License-Identifier: MIT
"""Operations on tiles in loops over parts of these, of the lines that `divide` has chosen."""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.lower.names import I64, Names, Scalars, index, source_name
from pto_jit.lower.wholes.lines import STORES, Axis, Lines
from pto_jit.slotted import field, frozen, mutable, replace

PROOF = "lines of tiles that do not depend on each other"


@frozen
class DividedLine:
    """An axis that is divided: its class; how many lines of it there are; how many are a part."""

    axis: Axis
    extent: Operand
    part: int


@mutable
class PartLoops:
    """Loops over parts around operations."""

    chosen: list[DividedLine]
    found: dict[Axis, Operand]
    """How many lines there are of the axes that could be divided."""
    lines: Lines
    scalars: Scalars
    names: Names
    scope: Scope
    bounded: bool
    told: list[Op] = field(default_factory=list)
    """Operations of which the host computes before the loops what they give."""
    at: dict[Axis, Var] = field(default_factory=dict)
    extents: dict[Axis, Operand] = field(default_factory=dict)

    def __str__(self) -> str:
        told = " x ".join(str(line.part) for line in self.chosen)
        return f"parts of {told} along {len(self.chosen)} of its axes"

    def around(self, ops: list[Op]) -> list[Stmt]:
        """The loops, inside which operations are done on a part."""
        for line in self.chosen:
            self.at[line.axis] = self.first(ops)
        stmts = self.on_a_part(ops)
        block: Block = stmts if self.scope.named else (replace(self.scope, body=stmts),)
        for line in reversed(self.chosen):
            block = (For("parallel", self.at[line.axis], index(0), line.extent, index(line.part), block, proof=PROOF,
                         loc=self.scope.loc),)  # fmt: skip
        return [*self.scalars.block, *block]

    def first(self, ops: list[Op]) -> Var:
        """A name for where parts of what is loaded, or else stored, begin."""
        loads = [op for op in ops if op.op == "load"]
        tensors = [op.args[0] for op in sorted(loads, key=lambda op: not self.lines.axes(op.results[0]))]
        tensors += [op.args[1] for op in ops if op.op in STORES]
        name = tensors[0].name if tensors else "part"  # type: ignore[union-attr]
        return self.names.fresh(f"{source_name(name)}_at")

    def on_a_part(self, ops: list[Op]) -> Block:
        """Operations on the part that begins `at` these lines."""
        inner = Scalars(self.names, self.scope.loc)
        for line in self.chosen:
            self.extents[line.axis] = index(1)
            if line.part > 1:
                most: Operand = index(line.part)
                if self.bounded:
                    most = self.scalars.op("min", line.extent, most, "most")
                left = inner.op("sub", line.extent, self.at[line.axis], "left")
                self.extents[line.axis] = inner.op("min", left, most, "some")
        inside = [op for op in ops if not any(op is one for one in self.told)]
        return (*inner.block, *(s for op in inside for s in self.smaller(op)))

    def smaller(self, op: Op) -> list[Stmt]:
        """An operation on a part; what asks for an extent is told that of the whole."""
        if op.op == "valid":
            line = next((n for n in self.chosen if self.lines.place(op.args[0], n.axis) == op.attr("axis")), None)
            if line is not None:
                return [Op("copy", op.results, (line.extent,), (), (), op.loc)]
        before: list[Stmt] = []
        args, results = [self.tile(a) for a in op.args], tuple(self.tile(r) for r in op.results)
        tile = op.args[0] if op.op in STORES else op.results[0]
        for k in range(tile.type.rank if isinstance(tile.type, TileType) else 0):
            line = next((n for n in self.chosen if self.lines.place(tile, n.axis) == k), None)
            if line is None:
                continue
            at, extent = self.at[line.axis], self.extents[line.axis]
            rank = tile.type.rank  # type: ignore[union-attr]
            match op.op:
                case "load":
                    args[1 + k] = moved(op.args[1 + k], at, self.names.fresh, before, op.loc)
                    args[1 + rank + k] = extent
                case "store" | "atomic_add" | "atomic_max" | "atomic_min":
                    args[2 + k] = moved(op.args[2 + k], at, self.names.fresh, before, op.loc)
                case "full" | "broadcast_to" | "reshape":
                    args[1 + k] = extent
                case "arange":
                    args[0], args[2] = first_number(op, at, self.names.fresh, before), extent
                case _:
                    pass
        return [*before, replace(op, args=tuple(args), results=results)]  # type: ignore[arg-type]

    def tile(self, operand: Operand) -> Operand:
        """A tile with the extents of a part."""
        if not isinstance(operand, Var) or not isinstance(operand.type, TileType):
            return operand
        shape = list(operand.type.shape)
        for line in self.chosen:
            k = self.lines.place(operand, line.axis)
            if k is not None:
                known = self.extents[line.axis]
                shape[k] = int(known.value) if isinstance(known, Const) else None
        return Var(operand.name, TileType(operand.type.dtype, tuple(shape)))


def moved(offset: Operand, at: Var, fresh: Callable[[str, Type], Var], before: list[Stmt], loc: Loc) -> Operand:
    """An offset further on by what comes before a part, which is computed `before`."""
    if offset == index(0):
        return at
    result = fresh(f"{offset.name}_at" if isinstance(offset, Var) else "at", I64)
    before.append(Op("add", (result,), (offset, at), (), (), loc))
    return result


def first_number(op: Op, at: Var, fresh: Callable[[str, Type], Var], before: list[Stmt]) -> Operand:
    """The first number of an `arange` in a part."""
    start, step = op.args[:2]
    typ = step.type
    assert isinstance(typ, ScalarType)
    cast, far, result = (fresh(hint, typ) for hint in ("at", "far", "start"))
    before.append(Op("cast", (cast,), (at,), (("dtype", typ.dtype),), (), op.loc))
    before.append(Op("mul", (far,), (cast, step), (), (), op.loc))
    before.append(Op("add", (result,), (start, far), (), (), op.loc))
    return result
