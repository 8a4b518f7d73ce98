# SPDX-License-Identifier: MIT
"""Fold integer constants, forward copies of values, drop what nobody reads.

Before::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>) {
      %a = sadd 1, 2 : i64
      %b = scopy %a : i64
      %c = smul %b, 7 : i64
      ssetelem 1.0:f32, %x[%b]
      return
    }

After::

    // Function Type: Orchestration
    func @f(%x: !pto.memref<gm,?,f32>) {
      ssetelem 1.0:f32, %x[3]
      return
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.ir.nodes import (
    Block,
    Break,
    Const,
    Continue,
    For,
    Func,
    Fuse,
    If,
    Module,
    Op,
    Operand,
    Return,
    Scope,
    Stmt,
    Var,
)
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import (
    block_defs,
    def_counts,
    map_blocks,
    map_funcs,
    rewrite_func,
    statements,
    substitute,
    use_counts,
)
from pto_jit.lower.names import BOOL, I64, fold, index
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

_COMPARE = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip


def simplify(module: Module) -> Module:
    """Simplify every function until nothing changes."""
    return map_funcs(module, simplified)


def simplified(func: Func) -> Func:
    """One function, simplified until nothing changes."""
    for _ in range(8):  # each round enables the next; programs settle after two or three
        after = _drop_dead(_fold(func))
        if after is func:
            return func
        func = after
    return func


def _fold(func: Func) -> Func:
    """Replace values known at compile time, and copies of values assigned once, by what they are."""
    counts = _with_reduced(def_counts(func.body), func.body)
    params = {p.name for p in func.params}
    known: dict[str, Operand] = {}
    for stmt in statements(func.body):
        if type(stmt) is not Op or len(stmt.results) != 1 or type(stmt.results[0].type) is TileType:
            continue
        if counts[stmt.results[0].name] == 1:
            value = _value(stmt, counts, params, known)
            if value is not None:
                known[stmt.results[0].name] = value
    body = substitute(func.body, known) if known else func.body

    def visit(stmt: Stmt) -> Block | None:
        if isinstance(stmt, If) and isinstance(stmt.cond, Const):
            return stmt.then if stmt.cond.value else stmt.orelse
        return None

    result = func if body is func.body else replace(func, body=body)
    folded = rewrite_func(result, visit, plain=False)
    return folded if folded is result else replace(folded, body=map_blocks(folded.body, _reached))


def _reached(block: Block) -> Block:
    """A block without what stands behind a jump, where a branch was that is always taken."""
    jump = next((at for at, stmt in enumerate(block) if isinstance(stmt, (Break, Continue, Return))), len(block))
    return block if jump >= len(block) - 1 else block[: jump + 1]


def _value(op: Op, counts: Counter[str], params: set[str], known: dict[str, Operand]) -> Operand | None:
    """What a scalar or tensor that an operation gives stands for, if it is known."""
    result = op.results[0]
    args = [known.get(a.name, a) if isinstance(a, Var) else a for a in op.args]
    if op.op == "copy":
        source = args[0]
        if isinstance(source, Const):
            return source
        return _alias(source, counts, params)
    if op.op == "not" and isinstance(args[0], Const) and result.type == BOOL:
        return Const(not args[0].value, BOOL)
    if op.op in ("and", "or") and result.type == BOOL:
        for known_one, other in (args, args[::-1]):
            if isinstance(known_one, Const):
                if bool(known_one.value) == (op.op == "or"):
                    return known_one
                return other if isinstance(other, Const) else _alias(other, counts, params)
        return None
    if result.type == I64 and len(args) == 2:
        a, b = args
        if isinstance(a, Const) and isinstance(b, Const):
            folded = fold(op.op, int(a.value), int(b.value))
            return None if folded is None else index(folded)
        return None
    if op.op in _COMPARE and all(a.type == I64 for a in args):
        assert isinstance(result.type, ScalarType)
        a, b = args
        if isinstance(a, Const) and isinstance(b, Const):
            return Const(bool(_COMPARE[op.op](int(a.value), int(b.value))), result.type)
        return Const(bool(_COMPARE[op.op](0, 0)), result.type) if a == b else None
    return None


def _alias(source: Var, counts: Counter[str], params: set[str]) -> Var | None:
    """A variable that another may stand for: neither is ever assigned again."""
    once = counts[source.name] == 1 or (source.name in params and counts[source.name] == 0)
    return source if once else None


def _drop_dead(func: Func) -> Func:
    used = _with_reduced(use_counts(func.body), func.body)
    if not _has_dead(func.body, used):
        return func

    def visit(stmt: Stmt) -> Block | None:
        if type(stmt) is Op:
            return () if _is_dead(stmt, used) else None
        if isinstance(stmt, Scope) and not stmt.body:  # nobody wanted what it computed
            return ()
        if isinstance(stmt, Fuse):  # a group read from text
            made = block_defs(stmt.body)
            keep = tuple(name for name in stmt.keep if name in made)
            if keep != stmt.keep or not stmt.body:
                return (replace(stmt, keep=keep),) if stmt.body else ()
        return None

    return rewrite_func(func, visit)


def _is_dead(op: Op, used: Counter[str]) -> bool:
    """Whether an operation is not needed."""
    for var in op.results:
        if var.name in used:
            return False
    return bool(op.results) and is_pure(op)


def _has_dead(body: Block, used: Counter[str]) -> bool:
    """Whether there is anything that `_drop_dead` may change: most often there is not."""
    stmts = list(statements(body))
    if any(isinstance(s, Fuse) or (isinstance(s, Scope) and not s.body) for s in stmts if type(s) is not Op):
        return True
    return any(_is_dead(s, used) for s in stmts if type(s) is Op)


def _with_reduced(counts: Counter[str], body: Block) -> Counter[str]:
    """Counts with the variables that loops reduce: they read and assign them, even if their bodies do not any more."""
    reduced = [v.name for s in statements(body) if type(s) is For for r in s.reductions for v in r.state]
    return counts + Counter(reduced) if reduced else counts


def is_pure(op: Op) -> bool:
    """Whether dropping `op` changes nothing but its results. A load checks its offsets and stays checked."""
    return effects(op.op) == "none" or op.op in ("load", "getelem", "take")
