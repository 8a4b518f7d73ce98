# SPDX-License-Identifier: MIT
"""Generated tiles made again in every scope that uses them.

`zeros`, `arange`, `rand` and what is computed elementwise from them and scalars fit any valid extent.  A temporary in
global memory does not, and costs memory traffic besides; so a scope that uses such a tile from outside computes it
again, where all that it is made of can still be seen there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pto_jit.ir import walk
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.types import TileType, Type
from pto_jit.semantic.table import is_elementwise, is_generator

_KEEP = frozenset(["reshape", "broadcast_to"])  # and elementwise operations: what they make of generated tiles is, too
_LIMIT = 16  # operations: beyond that a temporary is cheaper


def remake_generated(body: Block, fresh: Callable[[str, Type], Var]) -> Block:
    """`body` with the generated tiles that cross the border of a scope computed again inside."""
    if not any(_free_tiles(s) for s in walk.statements(body) if isinstance(s, Scope)):
        return body
    return _Remaker(body, fresh).block(body, frozenset())


def _free_tiles(scope: Scope) -> list[Var]:
    return [v for v in free_vars(scope.body) if isinstance(v.type, TileType)]


class _Remaker:
    def __init__(self, body: Block, fresh: Callable[[str, Type], Var]) -> None:
        self.fresh = fresh
        self.makers: dict[str, Stmt] = {}
        self.times: Counter[str] = Counter()
        for stmt in walk.statements(body):
            for var in walk.defs(stmt):
                self.makers[var.name] = stmt
                self.times[var.name] += 1

    def block(self, body: Block, seen: frozenset[str]) -> Block:
        """`seen`: names defined before the block, where it stands, and not in a block that has ended."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Scope):
                out.append(self._scope(stmt, seen))
                seen |= {v.name for s in stmt.body for v in walk.defs(s)}
                continue
            around = seen | {stmt.var.name} if isinstance(stmt, For) else seen
            inner = walk.blocks(stmt)
            out.append(walk.with_blocks(stmt, tuple(self.block(b, around) for b in inner)) if inner else stmt)
            if not isinstance(stmt, For):
                seen |= {v.name for v in walk.defs(stmt)}
        return tuple(out)

    def _scope(self, scope: Scope, seen: frozenset[str]) -> Scope:
        made: dict[str, Op] = {}
        names: dict[str, str] = {}
        for var in _free_tiles(scope):
            chain: dict[str, Op] = {}
            if self._chain(var, seen, chain) and len(chain) <= _LIMIT:
                made |= {n: op for n, op in chain.items() if n not in made}
        for name, op in made.items():
            names[name] = self.fresh(name.split(".")[0], op.results[0].type).name
        return (
            Scope(scope.name, walk.rename((*made.values(), *scope.body), names), scope.named, scope.loc)
            if made
            else scope
        )

    def _chain(self, operand: Operand, seen: frozenset[str], chain: dict[str, Op]) -> bool:
        """Collect the operations that make `operand`, in order; False when they cannot be repeated."""
        if not isinstance(operand, Var) or operand.name in chain:
            return True
        maker = self.makers.get(operand.name)
        if maker is None:
            return True  # a parameter
        if self.times[operand.name] > 1:
            return False
        if not isinstance(operand.type, TileType):
            return operand.name in seen
        if not isinstance(maker, Op) or maker.regions or len(maker.results) != 1:
            return False
        if not (is_generator(maker.op) or is_elementwise(maker.op, len(maker.args)) or maker.op in _KEEP):
            return False
        if not all(self._chain(a, seen, chain) for a in maker.args):
            return False
        chain[operand.name] = maker
        return True
