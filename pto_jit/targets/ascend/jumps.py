# SPDX-License-Identifier: MIT
"""Loops that are left early as loops of branches: what comes after `continue` or `break` is what else is done.

Before::

    FOR %j:idx, 0:idx, %n:idx, 1:idx
      %t0 = sgt %j, %i : bool_
      IF %t0
        CONTINUE
      ENDIF
      %k = tload ...
      %t1 = sge %j, 4 : bool_
      IF %t1
        BREAK
      ENDIF
      ...

After::

    %j_left = scopy false : bool_
    FOR %j:idx, 0:idx, %n:idx, 1:idx
      %j_stays = snot %j_left : bool_
      IF %j_stays
        %t0 = sgt %j, %i : bool_
        %t2 = snot %t0 : bool_
        IF %t2
          %k = tload ...
          %t1 = sge %j, 4 : bool_
          IF %t1
            %j_left = scopy true : bool_
          ELSE
            ...

The pipes are ordered for branches taken or not, but not for places in the middle of a body from where a loop goes on.
A for loop that is left counts on to its end, where nothing is done any more; the condition of a while loop is computed
once more, and is false, so what it is made of must read no memory.
"""

from __future__ import annotations

from pto_jit.dtypes import bool_
from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Func, If, Op, Stmt, Var, While
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import block_defs, blocks, rewrite_block, statements
from pto_jit.lower.names import unused
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

_TRUTH = ScalarType(bool_)


def without_jumps(func: Func) -> Func:
    """The kernel without `continue` and `break`, where branches are left by one or go on to their end in one place."""
    if not any(isinstance(s, (Break, Continue)) for s in statements(func.body)):
        return func
    taken = block_defs(func.body) | {p.name for p in func.params}

    def visit(stmt: Stmt) -> Block | None:
        return _in_branches(stmt, taken) if isinstance(stmt, (For, While)) and _leaves(stmt.body) else None

    return replace(func, body=rewrite_block(func.body, visit, plain=False))


def _in_branches(loop: For | While, taken: set[str]) -> Block | None:
    """A loop of branches, and what comes before it; None where what follows a branch would have to be there twice."""
    name = loop.var.name if isinstance(loop, For) else "loop"
    left = Var(unused(f"{name}_left", taken, "."), _TRUTH) if _breaks(loop.body) else None
    body = _branched(loop.body, left, taken)
    if body is None:
        return None
    if left is None:
        return (replace(loop, body=body),)
    stays = Var(unused(f"{name}_stays", taken, "."), _TRUTH)
    test = Op("not", (stays,), (left,), (), (), loc=loop.loc)
    if isinstance(loop, For):
        inside = (test, If(stays, body, (), loop.loc))
        return (_set(left, False, loop), replace(loop, body=inside))
    if not all(isinstance(s, Op) and not s.regions and effects(s.op) == "none" for s in loop.before):
        return None
    more = Var(unused(f"{name}_goes_on", taken, "."), _TRUTH)
    both = Op("and", (more,), (loop.cond, stays), (), (), loc=loop.loc)
    return (_set(left, False, loop), replace(loop, before=(*loop.before, test, both), cond=more, body=body))


def _branched(block: Block, left: Var | None, taken: set[str]) -> Block | None:
    """A block without jumps: what follows a branch that jumps is on its other side."""
    for at, stmt in enumerate(block):
        if isinstance(stmt, Continue):
            return block[:at]
        if isinstance(stmt, Break):
            assert left is not None
            return (*block[:at], _set(left, True, stmt))
        if not isinstance(stmt, If) or not _leaves(stmt.then + stmt.orelse):
            continue
        sides, rest = [stmt.then, stmt.orelse], block[at + 1 :]
        if rest and all(map(_goes_on, sides)):
            return None
        sides[_goes_on(stmt.orelse)] += rest
        then, orelse = (_branched(side, left, taken) for side in sides)
        return None if then is None or orelse is None else (*block[:at], *_branch(stmt, then, orelse, taken))
    return block


def _branch(stmt: If, then: Block, orelse: Block, taken: set[str]) -> Block:
    """A branch with other sides; where there is nothing on the first, that of the opposite condition."""
    if then or not orelse:
        return (replace(stmt, then=then, orelse=orelse),) if then else ()
    other = Var(unused(f"{stmt.cond.name if isinstance(stmt.cond, Var) else 'cond'}_not", taken, "."), _TRUTH)
    return (Op("not", (other,), (stmt.cond,), (), (), loc=stmt.loc), If(other, orelse, (), stmt.loc))


def _set(left: Var, value: bool, stmt: Stmt) -> Op:
    return Op("copy", (left,), (Const(value, _TRUTH),), (), (), loc=stmt.loc)


def _jumps(block: Block) -> list[Stmt]:
    """What leaves the iteration of a loop that a block is in, in its branches too."""
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, (Break, Continue)):
            out.append(stmt)
        elif isinstance(stmt, If):
            out += [jump for inner in blocks(stmt) for jump in _jumps(inner)]
    return out


def _leaves(block: Block) -> bool:
    return bool(_jumps(block))


def _breaks(block: Block) -> bool:
    return any(isinstance(jump, Break) for jump in _jumps(block))


def _goes_on(block: Block) -> bool:
    """Whether the end of a block may be reached."""
    for stmt in block:
        if isinstance(stmt, (Break, Continue)):
            return False
        if isinstance(stmt, If) and not _goes_on(stmt.then) and not _goes_on(stmt.orelse):
            return False
    return True
