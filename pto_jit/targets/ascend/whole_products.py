# SPDX-License-Identifier: MIT
"""Products of whole tensors that are one nest with nothing else: their operands are loaded, and stored before what the
vector cores do with them.

Before::

    %x.1 = tload %x[0, 0] [%m, %k]
    %y.1 = tload %y[0, 0] [%k, %n]
    %r = trelu %x.1
    %t = tdot %r, %y.1
    %u = texp %t
    tstore %u, %y[0, 0]                     // which is an operand, of other tiles of the product, too

After::

    %r.memory = talloc [%m, %k]
    %t.memory = talloc [%m, %n]

    %x.1 = tload %x[0, 0] [%m, %k]
    %r = trelu %x.1
    tstore %r, %r.memory[0, 0]

    %r.1 = tload %r.memory[0, 0] [%m, %k]
    %y.1 = tload %y[0, 0] [%k, %n]
    %t = tdot %r.1, %y.1
    tstore %t, %t.memory[0, 0]

    %t.1 = tload %t.memory[0, 0] [%m, %n]
    %u = texp %t.1
    tstore %u, %y[0, 0]

What follows a product in its own nest stays there: elementwise operations on its tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pto_jit.ir.nodes import Func, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements
from pto_jit.lower.names import Scalars
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.choose import PARTS
from pto_jit.lower.wholes.cut import Cutter
from pto_jit.lower.wholes.divide import Divider
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.lines import root_of
from pto_jit.slotted import replace
from pto_jit.targets.ascend.refusals import unsupported
from pto_jit.targets.cuda.starts import product_and_sum

_SIDE = 128
"""Rows and columns of the tiles of a product."""


def with_whole_products(func: Func, tiled: Callable[[Func], Func]) -> Func:
    """A flat function whose products of whole tensors `tiled` makes nests of, as far as it does."""
    if not any(isinstance(s, Op) and _is_whole(s) for s in statements(func.body)):
        return tiled(func)
    body = _Products(func, tiled).block(func.body)
    return tiled(func if body is func.body else replace(func, body=body))


class _Products(Divider):
    """The scopes of a function, each in one or more."""

    def __init__(self, func: Func, tiled: Callable[[Func], Func]) -> None:
        super().__init__(func, PARTS["ascend"], [])
        self.tiled = tiled

    def _scope(self, scope: Scope) -> list[Stmt]:
        """A scope, or one for each group of operations."""
        ops = [s for s in scope.body if isinstance(s, Op)]
        if len(ops) < len(scope.body) or not any(map(_is_whole, ops)):
            return [scope]
        clash = _clash(ops, self.known)
        if clash is None and self.in_parts(ops, scope) is not None:
            return [scope]
        parts = [part for op in ops for part in self._without_start(op)]
        out = _Cutter(self, scope, parts, Scalars(self.known.names, scope.loc)).stmts()
        if out is not None:
            return out
        if clash is not None:
            name, op = clash
            what = f"a product that is stored into its operand `{name}`"
            raise unsupported(what, op.loc, "store into another tensor")
        return [scope]

    def _without_start(self, op: Op) -> tuple[Op, ...]:
        """A product of whole tensors that is added to a tile as a product and a sum."""
        if not (_is_whole(op) and len(op.args) == 3):
            return (op,)
        result = op.results[0]
        return product_and_sum(op, self.known.names.fresh(result.name, result.type).name)

    def in_parts(self, ops: list[Op], scope: Scope) -> list[Stmt] | None:
        """Operations as a scope, whose products are nests that do all that is done to whole tiles."""
        whole = replace(scope, body=tuple(ops))
        if any(map(_is_whole, ops)):
            (*_, done) = self.tiled(replace(self.func, body=(*self._before(ops), whole))).body
            assert isinstance(done, Scope)
            made = [r.type for s in done.body if isinstance(s, Op) and s.op != "load" for r in s.results]
            if any(isinstance(typ, TileType) and None in typ.shape for typ in made):
                return None
        return [whole]

    def _before(self, ops: list[Op]) -> list[Op]:
        """What the host does for operations, as far as that is known."""
        found: dict[str, Op] = {}

        def find(operands: Iterable[Operand]) -> None:
            for operand in operands:
                maker = self.known.makers.get(operand.name) if isinstance(operand, Var) else None
                if maker is not None and is_host(maker) and maker.results[0].name not in found:
                    find(maker.args)
                    found[maker.results[0].name] = maker

        find(a for op in ops for a in op.args)
        return [*found.values()]


class _Cutter(Cutter):
    """Products are cut off, and what their operands are computed by."""

    def _first(self, tile: Var) -> Var | None:
        products = [op for op in self._needed(tile) if _is_whole(op)]
        for operand in (a for op in products for a in op.args):
            if isinstance(operand, Var) and operand.name not in self.memory and self.maker[operand.name].op != "load":
                return operand
        return next((op.results[0] for op in products if op.results[0].name != tile.name), None)


def _is_whole(op: Op) -> bool:
    if op.op != "dot":
        return False
    shapes = [v.type.shape for v in (*op.args[:2], *op.results)]  # type: ignore[union-attr]
    return all(len(s) == 2 for s in shapes) and any(n is None or n > _SIDE for s in shapes for n in s)


def _clash(ops: list[Op], known: Known) -> tuple[str, Op] | None:
    """A tensor that is stored after a product that reads it, and the store: tiles of the product are computed at
    different times."""
    made = {r.name: op for op in ops for r in op.results}
    read: set[str] = set()
    for op in ops:
        if _is_whole(op):
            read |= {root_of(load.args[0], known.views) for load in _loads(op, made)}
        elif op.op == "store" and root_of(op.args[1], known.views) in read:
            return root_of(op.args[1], known.views), op
    return None


def _loads(op: Op, made: dict[str, Op]) -> list[Op]:
    """The loads that the operands of a product are made of."""
    work, seen, out = list(op.args[:2]), set[str](), []
    while work:
        operand = work.pop()
        if isinstance(operand, Var) and operand.name in made and operand.name not in seen:
            seen.add(operand.name)
            maker = made[operand.name]
            out += [maker] if maker.op == "load" else []
            work += maker.args
    return out
