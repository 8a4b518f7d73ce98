# SPDX-License-Identifier: MIT
"""Let values be computed where they are kept: copies into carried tiles go, products accumulate in place.

`%t = op ...; ...; %acc = copy %t` becomes `%acc = op ...` when `%t` has no other reader, nothing touches `%acc`
in between, and nothing leaves the loop there, also where each branch of an `IF` has a `%t = op ...` (unless axes of
`%acc` are exchanged: of a tile that is assigned once a product reads them where they lie); `%acc = tadd
%acc, (tdot %a, %b)` becomes `%acc = tdot %a, %b, %acc`.

For targets whose products round their results as they make them, `%c = tcast (tdot %a, %b)` to the 16 bits of `%a`
becomes `%c = tdot %a, %b {dtype}`, which is summed in f32 and rounded once, too.

Before::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,8x8,f32>, %n: i64) {
      %acc = tfull 0.0:f32, 8, 8 : !pto.tile<8x8xf32>
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %p = tload %a[0, 0] [8, 8] : !pto.tile<8x8xf32>
        %d = tdot %p, %p : !pto.tile<8x8xf32>
        %t = tadd %acc, %d : !pto.tile<8x8xf32>
        %acc = tcopy %t : !pto.tile<8x8xf32>
      ENDFOR
      tstore %acc, %a[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,8x8,f32>, %n: i64) {
      %acc = tfull 0.0:f32, 8, 8 : !pto.tile<8x8xf32>
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        %p = tload %a[0, 0] [8, 8] : !pto.tile<8x8xf32>
        %acc = tdot %p, %p, %acc : !pto.tile<8x8xf32>
      ENDFOR
      tstore %acc, %a[0, 0]
      return
    }
"""

from __future__ import annotations

from collections import Counter

from pto_jit.dtypes import bf16, f16
from pto_jit.ir.nodes import Block, Break, Continue, Func, If, Module, Op, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import (
    block_defs,
    block_uses,
    def_counts,
    map_blocks,
    map_funcs,
    map_statements,
    statements,
    use_counts,
)
from pto_jit.slotted import replace


def coalesce(module: Module, *, rounds: bool = False) -> Module:
    """Rewrite every block of every function; rounds: a product may be the cast of its sums to 16 bits, too."""
    return map_funcs(module, lambda func: _func(func, rounds))


def _func(func: Func, rounds: bool) -> Func:
    uses, counts = Counter(use_counts(func.body)), Counter(def_counts(func.body))  # copies: they follow what changes
    ops = {stmt.op for stmt in statements(func.body) if type(stmt) is Op}
    turned = {
        stmt.args[0].name
        for stmt in (statements(func.body) if "transpose" in ops else ())
        if isinstance(stmt, Op) and stmt.op == "transpose" and isinstance(stmt.args[0], Var)
    }

    def block(block: Block) -> Block:
        block = _chain(_copies(block, uses, counts, turned) if "copy" in ops else block, uses, counts)
        if "dot" not in ops:
            return block
        block = _accumulate(block, uses)
        return _rounded(block, uses, counts) if rounds and "cast" in ops else block

    body = map_blocks(func.body, block)
    return func if body is func.body else replace(func, body=body)


def _single(stmt: Stmt, uses: Counter[str], counts: Counter[str]) -> str | None:
    """The name of a tile computed by `stmt` alone and read once."""
    if isinstance(stmt, Op) and len(stmt.results) == 1 and isinstance(stmt.results[0].type, TileType):
        name = stmt.results[0].name
        if uses[name] == 1 and counts[name] == 1 and stmt.op != "copy":
            return name
    return None


def _touches(stmts: list[Stmt], name: str) -> bool:
    """Whether `name` is read or assigned, or may be read elsewhere after a `break` or `continue`, before the end."""
    block = tuple(stmts)
    leaves = any(isinstance(s, (Break, Continue)) for s in statements(block))
    return leaves or name in block_uses(block) or name in block_defs(block)


def _copies(block: Block, uses: Counter[str], counts: Counter[str], turned: set[str]) -> Block:
    stmts = list(block)
    changed = False
    k = 0
    while k < len(stmts):
        stmt = stmts[k]
        if isinstance(stmt, Op) and stmt.op == "copy" and isinstance(stmt.args[0], Var):
            source, target = stmt.args[0], stmt.results[0]
            once = counts[source.name] == 1 or target.name not in turned
            if once and isinstance(source.type, TileType) and source.type == target.type and uses[source.name] == 1:
                at = _made_from(stmts[:k], source.name, counts[source.name])
                made = None if at is None else tuple(stmts[at:k])
                if made is not None and _after(made, source.name, target.name, False) is not None:
                    stmts[at : k + 1] = _renamed(made, source.name, target)
                    counts[target.name] += counts.pop(source.name) - 1
                    uses[source.name] = 0
                    changed = True
                    continue
        k += 1
    return tuple(stmts) if changed else block


def _made_from(stmts: list[Stmt], name: str, count: int) -> int | None:
    """The place of the first statement that assigns a tile, or has inside what does, when they make all `count`
    assignments."""
    for at in range(len(stmts) - 1, -1, -1):
        made = [r.name for s in statements((stmts[at],)) if isinstance(s, Op) for r in s.results]
        count -= made.count(name)
        if count == 0:
            return at
    return None


def _after(block: Block, source: str, target: str, made: bool) -> bool | None:
    """Whether `source` may be assigned when a block ends, if it may be when the block begins (`made`); None when it
    cannot be assigned in the memory of `target`, which the block assigns, or reads or may be left with after that."""
    for stmt in block:
        match stmt:
            case If():
                ends = [_after(branch, source, target, made) for branch in (stmt.then, stmt.orelse)]
                if None in ends:
                    return None
                made = any(ends)
            case Break() | Continue():
                if made:
                    return None
            case Op() if not stmt.regions:
                names = [r.name for r in stmt.results]
                if target in names or (made and any(type(a) is Var and a.name == target for a in stmt.args)):
                    return None
                made = made or source in names
            case _:
                names = block_defs((stmt,))
                makes = source in names
                again = makes and not isinstance(stmt, Op)  # what a loop does first may follow what it did last
                if target in names or ((made or again) and target in block_uses((stmt,))):
                    return None
                made |= makes
    return made


def _renamed(block: Block, name: str, target: Var) -> Block:
    """A block that assigns `target` where it assigned `name`."""

    def visit(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Op) or all(r.name != name for r in stmt.results):
            return stmt
        return replace(stmt, results=tuple(target if r.name == name else r for r in stmt.results))

    return map_statements(block, visit)


def _chain(block: Block, uses: Counter[str], counts: Counter[str]) -> Block:
    """`%t = mul %acc, %s; ...; %acc = add %t, %d`: compute `%t` in `%acc` too."""
    stmts = list(block)
    changed = False
    for k in range(len(stmts) - 1, -1, -1):
        stmt = stmts[k]
        if not (isinstance(stmt, Op) and len(stmt.results) == 1 and counts[stmt.results[0].name] > 1):
            continue
        target = stmt.results[0]
        for position, arg in enumerate(stmt.args):
            if not isinstance(arg, Var) or uses[arg.name] != 1 or counts[arg.name] != 1:
                continue
            if arg.type != target.type or arg.name == target.name:
                continue
            at = next((j for j in range(k - 1, -1, -1) if _single(stmts[j], uses, counts) == arg.name), None)
            if at is None or _touches(stmts[at + 1 : k], target.name):
                continue
            if any(isinstance(a, Var) and a.name == target.name for a in stmt.args):
                continue
            maker = stmts[at]
            assert isinstance(maker, Op)
            if not any(isinstance(a, Var) and a.name == target.name for a in maker.args):
                continue
            stmts[at] = replace(maker, results=(target,))
            args = (*stmt.args[:position], target, *stmt.args[position + 1 :])
            stmts[k] = replace(stmt, args=args)
            changed = True
            break
    return tuple(stmts) if changed else block


def _accumulate(block: Block, uses: Counter[str]) -> Block:
    """`%d = dot a, b; ...; %r = add %s, %d` as `%r = dot a, b, %s` at the place of the add."""
    stmts = list(block)
    changed = False
    k = 0
    while k < len(stmts):
        stmt = stmts[k]
        if isinstance(stmt, Op) and stmt.op == "add" and isinstance(stmt.results[0].type, TileType):
            found = _product(stmts, k, uses)
            if found is not None:
                at, addend = found
                product = stmts[at]
                assert isinstance(product, Op)
                loc = replace(product.loc, added=stmt.loc)
                stmts[k] = replace(product, results=stmt.results, args=(*product.args, addend), loc=loc)
                del stmts[at]
                changed = True
                continue
        k += 1
    return tuple(stmts) if changed else block


def _product(stmts: list[Stmt], k: int, uses: Counter[str]) -> tuple[int, Var] | None:
    add = stmts[k]
    assert isinstance(add, Op)
    for position, arg in enumerate(add.args):
        other = add.args[1 - position]
        if not (isinstance(arg, Var) and isinstance(other, Var) and uses[arg.name] == 1):
            continue
        if not (arg.type == other.type == add.results[0].type):
            continue
        for at in range(k - 1, -1, -1):
            product = stmts[at]
            if isinstance(product, Op) and product.op == "dot" and product.results[0].name == arg.name:
                # the operands are tiles, and tiles are values: only an assignment in between could change them
                between = block_defs(tuple(stmts[at + 1 : k]))
                if len(product.args) == 2 and not any(isinstance(a, Var) and a.name in between for a in product.args):
                    return at, other
    return None


def _rounded(block: Block, uses: Counter[str], counts: Counter[str]) -> Block:
    """Products whose only reader is a cast, in the same block, back to the 16 bits of their operands, as one."""
    made: dict[str, int] = {}  # products by the names of their results
    stmts: list[Stmt | None] = list(block)
    for k, stmt in enumerate(block):
        if not isinstance(stmt, Op):
            continue
        name = _single(stmt, uses, counts)
        if stmt.op == "dot" and len(stmt.args) == 2 and name is not None:
            made[name] = k
        elif stmt.op == "cast" and isinstance(stmt.args[0], Var) and stmt.args[0].name in made:
            at, result = made.pop(stmt.args[0].name), stmt.results[0]
            assert isinstance(result.type, TileType)
            product = block[at]
            assert isinstance(product, Op)
            operands = {arg.type.dtype for arg in product.args if isinstance(arg.type, TileType)}
            if result.type.dtype in (f16, bf16) and operands == {result.type.dtype} and counts[result.name] == 1:
                rounds = (("dtype", result.type.dtype),)
                stmts[at], stmts[k] = replace(product, results=(result,), attrs=rounds), None
    return tuple(stmt for stmt in stmts if stmt is not None) if None in stmts else block
