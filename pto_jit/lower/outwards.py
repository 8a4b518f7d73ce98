# SPDX-License-Identifier: MIT
"""Move chunk loops outwards: exchange them with the loops around them, where nothing but loops lies between.

Past a divided loop this is free.  Past a sequential one no dependence may run from one chunk to another, because the
chunks of all its iterations then run at once.
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, For, Func, Op, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, block_uses, def_counts, statements, use_counts, uses
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Dependences
from pto_jit.lower.names import source_name
from pto_jit.semantic.table import effects
from pto_jit.slotted import field, mutable, replace


def is_host(stmt: Stmt) -> bool:
    """Scalar arithmetic, checks and views: what the host can do as well as a core."""
    if not isinstance(stmt, Op) or stmt.regions or any(isinstance(v.type, TileType) for v in stmt.results):
        return False
    if any(isinstance(a.type, TileType) for a in stmt.args):
        return False
    return stmt.op == "assert" or effects(stmt.op) == "none"


@mutable
class Mover:
    """Moves the chunk loops of one function; each exchange considered is a `Decision`."""

    func: Func
    dependences: Dependences
    decisions: list[Decision]
    uses: Counter[str] = field(default_factory=Counter)
    assigned: Counter[str] = field(default_factory=Counter)

    def outwards(self, body: Block) -> Block:
        """`body` with its chunk loops as far outside as they can go."""
        result: list[Stmt] = []
        changed = False
        for stmt in body:
            if isinstance(stmt, For) and stmt.kind != "combine":
                inner = self.outwards(stmt.body)
                if inner is not stmt.body:
                    stmt, changed = replace(stmt, body=inner), True
                moved = self._out(stmt, ()) if stmt.kind != "chunk" else None
                if moved is not None:
                    result += moved
                    changed = True
                    continue
            result.append(stmt)
        return tuple(result) if changed else body

    def _out(self, loop: For, passed: tuple[For, ...]) -> Block | None:
        """`FOR i { pure; FOR c (chunk) { pure; rest } }` as `pure; FOR c { pure; FOR i { pure; rest } }`, or None.

        `passed` are the chunk loops that have just left the loop.
        """
        chunk = next((s for s in loop.body if isinstance(s, For) and s.kind == "chunk"), None)
        if chunk is None:
            return None
        pair = (source_name(chunk.var.name), source_name(loop.var.name))
        reason = self._obstacle(loop, chunk)
        if reason is None:
            needed = {v.name for v in uses(chunk)}
            hoisted, sunk = _split(loop.body[:-1], needed)
            head = tuple(s for s in chunk.body if is_host(s))
            if loop.var.name in block_uses(hoisted) or loop.var.name in needed:
                reason = f"the bounds of `{pair[0]}` depend on `{pair[1]}`"
            elif self._depends(head, loop, sunk):
                reason = f"the chunks of `{pair[0]}` depend on `{pair[1]}`"
            else:
                allowed, reason = self._legal(loop, chunk, passed)
                if allowed:
                    self.decisions.append(Decision("interchange", pair, True, reason, chunk.loc))
                    inner = replace(loop, body=(*sunk, *chunk.body[len(head) :]))
                    rest = self._out(inner, (*passed, chunk)) or (inner,)
                    return (*hoisted, replace(chunk, body=(*head, *rest)))
        self.decisions.append(Decision("interchange", pair, False, reason, chunk.loc))
        return None

    def _obstacle(self, loop: For, chunk: For) -> str | None:
        """What stands between the two loops and is more than arithmetic, or why they are not to be exchanged at all."""
        if loop.checked or chunk.checked:
            return "debug: loops that are checked for races run in the source's order"
        before = True
        for stmt in loop.body:
            if stmt is chunk:
                before = False
            elif not before or not is_host(stmt):
                where = f"{'before' if before else 'after'} the chunks of `{source_name(chunk.var.name)}`"
                return f"the statement in line {stmt.loc.lineno} stands {where}"
        return None

    def _depends(self, head: Block, loop: For, sunk: Block) -> bool:
        """Whether what a chunk begins with cannot stand outside of `loop`."""
        if not self.assigned:
            self.assigned = def_counts(self.func.body)
        used = block_uses(head)
        return loop.var.name in used or bool(used & block_defs(sunk)) or any(
            self.assigned[name] > 1 for name in block_defs(head)
        )  # fmt: skip

    def _legal(self, loop: For, chunk: For, passed: tuple[For, ...]) -> tuple[bool, str]:
        """Whether the exchange keeps the program's meaning, and why."""
        if loop.kind in ("parallel", "in_chunk", "chunk") and not loop.reductions:
            return True, "every loop concerned is parallel or chunked"
        name, assigned = source_name(loop.var.name), block_defs(loop.body)
        for var in free_vars(loop.body):
            if var.name in assigned:
                return False, f"`{source_name(var.name)}` is carried from one iteration of `{name}` to the next"
        if not self.uses:
            self.uses = use_counts(self.func.body)
        mine = use_counts((loop,))
        for variable in sorted(assigned):
            if self.uses[variable] > mine[variable]:
                return False, f"`{source_name(variable)}` is used after the loop over `{name}`"
        outer, inner = self.dependences.loop(loop), self.dependences.loop(chunk)
        others = [self.dependences.loop(p) for p in passed]
        if outer is None or inner is None or None in others:
            return False, f"another loop has the same variable as `{name}`"
        found = self.dependences.found
        around = [*(found.loops[n] for n in outer.outer[:-1]), *(o for o in others if o is not None)]
        answer = self.dependences.may_exchange(outer, inner, around)
        return answer.proven, answer.reason


def _split(before: Block, needed: set[str]) -> tuple[Block, Block]:
    """Statements that `needed` is computed from, and the others."""
    hoisted: list[Stmt] = []
    sunk: list[Stmt] = []
    wanted = set(needed)
    for stmt in reversed(before):
        if block_defs((stmt,)) & wanted or (isinstance(stmt, Op) and stmt.op == "assert"):
            wanted |= block_uses((stmt,))
            hoisted.append(stmt)
        else:
            sunk.append(stmt)
    return tuple(reversed(hoisted)), tuple(reversed(sunk))


def variables_of(body: Block) -> list[Var]:
    """The variables that the operations of a block read and assign."""
    found: list[Var] = []
    for stmt in statements(body):
        if isinstance(stmt, Op):
            found += stmt.results
            found += [a for a in stmt.args if isinstance(a, Var)]
    return found
