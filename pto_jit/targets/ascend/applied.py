# SPDX-License-Identifier: MIT
"""Functions of the program, as `pl.associative_scan` takes them, applied to tiles: each operation on numbers is one on
tiles of them.

Both sides of a branch are computed, and what they assign is chosen from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, If, Op, Operand, Region, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import replace
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.ascend.values import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pto_jit.targets.ascend.vector import VectorWriter

_LASTING = 1 << 30
"""Of operands: more reads to come than there are, so that no result lies where they do."""


def write_map(w: VectorWriter, op: Op) -> None:
    """`pl.map`."""
    results = apply(w, op.regions[0], [v if isinstance(v := w.value(a), Value) else a for a in op.args], op.loc)
    for value, result in zip(results, op.results, strict=True):
        w.elementwise.unary("TMOV", value, w.destination(result), op.loc)


def apply(w: VectorWriter, region: Region, given: Sequence[Value | Operand], loc: Loc) -> list[Value]:
    """What a function gives, of tiles and numbers that are broadcast; a result may be a tile that was given."""
    shape = w.elementwise.joint([v for v in given if isinstance(v, Value)], loc)
    call = _Call(w, loc)
    for parameter, operand in zip(region.params, given, strict=True):
        call.known[parameter.name] = call.held(parameter, operand) if isinstance(operand, Value) else operand
    call.block(region.body)
    results = [call.now(r) for r in region.results]
    for op in call.ops:
        for operand in op.args:
            if isinstance(operand, Var) and operand.name in call.tiles and w.left[operand.name] < _LASTING:
                w.left[operand.name] += 1
    for r in results:
        if isinstance(r, Var):
            w.left[r.name] = _LASTING
    for op in call.ops:
        w.statement(op)
    out: list[Value] = []
    for r, parameter in zip(results, region.results, strict=True):
        value = w.value(r)
        if isinstance(value, str):
            whole = w.temp(parameter.type.dtype, *shape)  # type: ignore[union-attr]
            w.fill(whole, value, loc)
            value = whole
        out.append(w.elementwise.broadcast(value, *shape, w.temp, loc))
    return out


class _Call:
    """The operations of a function, on tiles.  known: what its variables are now; tiles: those that are tiles."""

    def __init__(self, w: VectorWriter, loc: Loc) -> None:
        self.w, self.loc = w, loc
        self.known: dict[str, Operand] = {}
        self.tiles: set[str] = set()
        self.ops: list[Op] = []

    def held(self, parameter: Var, value: Value) -> Var:
        out = self.fresh(parameter, tile=True)
        self.w.hold(out, value)
        self.w.left[out.name] = _LASTING
        return out

    def fresh(self, var: Var, *, tile: bool) -> Var:
        """A variable of its own for each time that the function is applied."""
        typ = var.type
        assert isinstance(typ, (ScalarType, TileType))
        out = Var(self.w.names.fresh(var.name), TileType(typ.dtype, (None, None)) if tile else typ)
        if tile:
            self.tiles.add(out.name)
        return out

    def now(self, operand: Operand) -> Operand:
        return self.known.get(operand.name, operand) if isinstance(operand, Var) else operand

    def is_tile(self, operand: Operand) -> bool:
        return isinstance(operand, Var) and operand.name in self.tiles

    def is_number(self, op: Op) -> bool:
        """Whether it is the same for all elements, and read from memory."""
        return op.op in ("getelem", "dim") and not any(self.is_tile(self.now(a)) for a in op.args)

    def block(self, block: Block) -> None:
        for stmt in block:
            if isinstance(stmt, If):
                self.branch(stmt)
            elif isinstance(stmt, Op) and (is_elementwise(stmt) or self.is_number(stmt)):
                self.operation(stmt)
            else:
                what = f"`{stmt.op}`" if isinstance(stmt, Op) else f"a {type(stmt).__name__.lower()} loop"
                raise unsupported(
                    f"{what} in a function that tiles are combined by", getattr(stmt, "loc", self.loc),
                    "use elementwise operations and if statements, or carry a tile through a loop",
                )  # fmt: skip

    def operation(self, op: Op) -> None:
        args = tuple(map(self.now, op.args))
        (result,) = op.results
        if op.op == "copy":
            self.known[result.name] = args[0]
            return
        out = self.fresh(result, tile=any(map(self.is_tile, args)))
        self.known[result.name] = out
        self.ops.append(replace(op, args=args, results=(out,)))

    def branch(self, stmt: If) -> None:
        condition, before = self.now(stmt.cond), self.known
        sides: list[dict[str, Operand]] = []
        for block in (stmt.then, stmt.orelse):
            self.known = dict(before)
            self.block(block)
            sides.append(self.known)
        self.known = before
        for name, one in sides[0].items():
            other = sides[1].get(name)
            if other is None or one == other:  # of one side only it is not read after the branch
                self.known[name] = one
                continue
            typ = one.type if isinstance(one.type, (ScalarType, TileType)) else other.type
            like = Var(name, ScalarType(typ.dtype))  # type: ignore[union-attr]
            out = self.fresh(like, tile=any(map(self.is_tile, (condition, one, other))))
            self.ops.append(Op("select", (out,), (condition, one, other), (), (), stmt.loc))
            self.known[name] = out
