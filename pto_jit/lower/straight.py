# SPDX-License-Identifier: MIT
"""Branches of scalar code as selections, for lanes and for what looks at operations alone.

Before::

    %c = sgt %right, %left : bool_
    IF %c
      %value = scopy %right : f64
    ELSE
      %value = scopy %left : f64
    ENDIF

After::

    %c = sgt %right, %left : bool_
    %value = sselect %c, %right, %left : f64
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pto_jit.ir.nodes import Block, If, Op, Operand, Region, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import use_counts
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import replace


def straight_function(region: Region) -> Region:
    """A function without its branches; itself where they are more than numbers that can be computed either way."""
    if not any(isinstance(s, If) for s in region.body):
        return region
    body = straight(region.body, {r.name for r in region.results if isinstance(r, Var)})
    return region if body is None else replace(region, body=body)


def straight(block: Block, kept: Collection[str]) -> Block | None:
    """A block without its branches; None where these are more than numbers that can be computed either way.

    kept: the names that are read after the block.
    """
    straightened = _Straight(block, kept)
    return tuple(straightened.out) if straightened.run(block, {}, inside=False) is not None else None


class _Straight:
    def __init__(self, block: Block, kept: Collection[str]) -> None:
        self.read, self.kept = use_counts(block), kept
        self.out: list[Stmt] = []
        self.made = 0

    def run(self, block: Block, before: Mapping[str, Operand], *, inside: bool) -> dict[str, Operand] | None:
        """Write the statements of a block; gives what its variables are after it, where branches have others.

        before: what they are before it; inside: the block is a branch, whose variables get other names.
        """
        values = dict(before)
        for stmt in block:
            if isinstance(stmt, If):
                sides = [self.run(side, values, inside=True) for side in (stmt.then, stmt.orelse)]
                if None in sides:
                    return None
                for var in self._assigned(stmt):
                    chosen = [side.get(var.name, var) for side in sides]  # type: ignore[union-attr]
                    op = Op("select", (var,), (stmt.cond, *chosen), loc=stmt.loc)
                    self._write(op, values, inside=inside)
            elif not inside:
                self.out.append(stmt)
            elif isinstance(stmt, Op) and _is_safe(stmt):
                self._write(stmt, values, inside=True)
            else:
                return None
        return values

    def _write(self, op: Op, values: dict[str, Operand], *, inside: bool) -> None:
        (result,) = op.results
        args = tuple(values.get(a.name, a) if isinstance(a, Var) else a for a in op.args)
        if inside and op.op == "copy":
            values[result.name] = args[0]
            return
        if inside:
            self.made += 1
            values[result.name] = result = replace(result, name=f"{result.name}@{self.made}")
        self.out.append(replace(op, results=(result,), args=args))

    def _assigned(self, stmt: If) -> list[Var]:
        """The variables of branches that are read after them."""
        inside = use_counts((stmt,))
        made = {v.name: v for side in (stmt.then, stmt.orelse) for v in _made(side)}
        return [v for name, v in made.items() if name in self.kept or self.read[name] > inside[name]]


def _made(block: Block) -> list[Var]:
    out: list[Var] = []
    for stmt in block:
        if isinstance(stmt, Op):
            out += stmt.results
        elif isinstance(stmt, If):
            out += [v for side in (stmt.then, stmt.orelse) for v in _made(side)]
    return out


def _is_safe(op: Op) -> bool:
    """Whether an operation computes one number, as it can of any numbers."""
    return is_elementwise(op) and len(op.results) == 1 and isinstance(op.results[0].type, ScalarType)
