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

from collections.abc import Callable

from pto_jit.ir.nodes import Block, For, Func, If, Op, Scope, Stmt, Var, While
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import blocks, statements, uses, with_blocks
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.cuts import Cuts
from pto_jit.lower.wholes.known import Known
from pto_jit.lower.wholes.lines import root_of
from pto_jit.slotted import replace
from pto_jit.targets.ascend.refusals import unsupported

_SIDE = 128
"""Rows and columns of the tiles of a product."""


def with_whole_products(func: Func, tiled: Callable[[Func], Func]) -> Func:
    """A flat function whose products of whole tensors `tiled` makes nests of, as far as it does."""
    if not any(isinstance(s, Op) and _is_whole(s) for s in statements(func.body)):
        return tiled(func)
    body = _Products(func, tiled).block(func.body)
    return tiled(func if body is func.body else replace(func, body=body))


class _Products:
    """The scopes of a function, each or in groups of operations."""

    def __init__(self, func: Func, tiled: Callable[[Func], Func]) -> None:
        self.func = func
        self.tiled = tiled
        self.known = Known(func)

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, Scope) and any(isinstance(s, Op) and _is_whole(s) for s in stmt.body):
                out += self.scope(stmt)
            elif isinstance(stmt, (If, While)) or (isinstance(stmt, For) and stmt.kind == "sequential"):
                out.append(with_blocks(stmt, tuple(map(self.block, blocks(stmt)))))
            else:
                out.append(stmt)
        return block if all(a is b for a, b in zip(out, block, strict=False)) else tuple(out)

    def scope(self, scope: Scope) -> list[Stmt]:
        """A scope, or one for each group of operations."""
        ops = [s for s in scope.body if isinstance(s, Op)]
        if len(ops) < len(scope.body):
            return [scope]
        before = _host(self.func.body, scope)
        clash = _clash(ops, self.known)
        if clash is None and not self._left([*before, scope]):
            return [scope]
        host: list[Stmt] = []
        parts: list[Op] = []
        made: set[str] = set()  # tiles, and numbers that are made of them
        for op in ops:
            if is_host(op) and not any(v.name in made for v in uses(op)):
                host.append(op)
            else:
                parts += _plain(op, self.known)
                made.update(r.name for r in op.results)
        for behind in (_never, _is_whole) if clash is None else (_is_whole,):
            cuts = Cuts(parts, self.known, scope, behind, _SIDE, _is_whole)
            groups = cuts.cut()
            if groups is None:
                continue
            scopes = [replace(scope, body=(g,) if isinstance(g, For) else tuple(g)) for g in groups]
            whole = [s for s in scopes if any(isinstance(op, Op) and _is_whole(op) for op in s.body)]
            if behind is _is_whole or not any(self._left([*before, *host, *cuts.before, s]) for s in whole):
                return [*host, *cuts.before, *scopes]
        if clash is not None:
            name, op = clash
            what = f"a product that is stored into its operand `{name}`"
            raise unsupported(what, op.loc, "store into another tensor")
        return [scope]

    def _left(self, body: list[Stmt]) -> bool:
        """Whether something is done to whole tiles outside of the nests of products of the last scope."""
        scope = self.tiled(replace(self.func, body=tuple(body))).body[-1]
        assert isinstance(scope, Scope)
        made = [r.type for s in scope.body if isinstance(s, Op) and s.op != "load" for r in s.results]
        return any(isinstance(typ, TileType) and None in typ.shape for typ in made)


def _never(op: Op) -> bool:
    return False


def _is_whole(op: Op) -> bool:
    if op.op != "dot":
        return False
    shapes = [v.type.shape for v in (*op.args[:2], *op.results)]  # type: ignore[union-attr]
    return all(len(s) == 2 for s in shapes) and any(n is None or n > _SIDE for s in shapes for n in s)


def _plain(op: Op, known: Known) -> list[Op]:
    """A product that is added to a tile as a product and a sum."""
    if not (_is_whole(op) and len(op.args) == 3):
        return [op]
    product = known.names.fresh(op.results[0].name, op.results[0].type)
    return [replace(op, args=op.args[:2], results=(product,)),
            Op("add", op.results, (op.args[2], product), (), (), op.loc)]  # fmt: skip


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


def _host(block: Block, scope: Scope) -> list[Stmt]:
    """What the host does before a scope, which is of this block or inside a loop or branch of it."""
    out: list[Stmt] = []
    for stmt in block:
        if stmt is scope:
            break
        inner = [_host(b, scope) for b in blocks(stmt)] if any(s is scope for s in statements((stmt,))) else []
        out += [s for part in inner for s in part] if inner else [stmt] if is_host(stmt) else []
    return out

