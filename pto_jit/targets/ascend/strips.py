# SPDX-License-Identifier: MIT
"""Kernels whose tiles are too large for the unified buffer, in strips of rows.

What treats every row alike can be done for a few rows at a time (strip mining: Loveman, 1977).  The strips are the
innermost loop around all the work on tiles, so that what one iteration of a loop leaves in memory for the next one is
there.

Before::

    %x.1 = tload %x[%r, %c] [64, 2048] : !pto.tile<64x2048xf32>
    %m = tmax %x.1 {axes=(1,), keepdims=true} : !pto.tile<64x1xf32>
    ...
    tstore %t2, %y[%r, %c]

After, in strips of 16::

    %x_rows = sdim %x {axis=0} : i64
    %below = ssub %x_rows, %r : i64
    %end = smin %below, 64 : i64
    FOR %strip:idx, 0:idx, %end:idx, 16:idx {kind=parallel}
      %r.1 = sadd %r, %strip : i64
      %x.1 = tload %x[%r.1, %c] [16, 2048] : !pto.tile<16x2048xf32>
      %m = tmax %x.1 {axes=(1,), keepdims=true} : !pto.tile<16x1xf32>
      ...
      tstore %t2, %y[%r.1, %c]

Parts of whole tensors, which `lower.wholes` has made, are done for smaller parts in the same way, rows first.
"""

from __future__ import annotations

from collections.abc import Iterator

from pto_jit.dtypes import bool_, i64
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import block_defs, blocks, rewrite_block, statements, substitute, with_blocks
from pto_jit.lower.groups.axes import is_elementwise, is_reduction, reduced_axes
from pto_jit.lower.names import unused
from pto_jit.lower.wholes.lines import STORES
from pto_jit.lower.wholes.parted import PROOF
from pto_jit.slotted import replace
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.nests import touches_tiles, writes

_INDEX = ScalarType(i64)
_LEAST = 8
_LEAST_COLUMNS = 64


def in_strips(func: Func, facts: Facts) -> Iterator[Func]:
    """The kernel in strips, of ever fewer rows; none where something looks across rows."""
    body, put = _innermost(func.body)
    rows = _rows(body)
    if rows is None or not _is_row_wise(body, rows, facts):
        return
    size = rows // 2
    while size >= _LEAST and size % _LEAST == 0:
        new = _divided(func, body, rows, size)
        if new is not None:
            yield replace(func, body=_with(func.body, put, new))
        size //= 2


def in_smaller_parts(func: Func) -> Iterator[Func]:
    """A kernel that goes over parts of whole tensors, with a loop over ever smaller parts of these inside."""
    while True:
        found = list(_loading(func.body, proven=False))
        if len(found) != 1:
            return
        (body,) = found
        side = next((side for side in _sides(body) if side[2] > side[3]), None)
        if side is None:
            return
        some, at, size, least = side
        whole = func
        while size // 2 >= least:
            size //= 2
            new = _for_smaller(whole, body, some, at, size)
            func = replace(whole, body=_in_place_of(body, new, whole.body))
            yield func


def _loading(block: Block, *, proven: bool) -> Iterator[Block]:
    """The blocks that load tiles, in loops over parts; others are no such blocks."""
    if any(isinstance(s, Op) and s.op == "load" for s in block):
        yield block if proven else ()
    for s in block:
        for inner in blocks(s):
            yield from _loading(inner, proven=proven or (isinstance(s, For) and s.proof == PROOF))


def _in_place_of(old: Block, new: Block, block: Block) -> Block:
    """A block with another one in place of one inside."""
    if block is old:
        return new
    return tuple(
        with_blocks(s, tuple(_in_place_of(old, new, inner) for inner in blocks(s))) if blocks(s) else s for s in block
    )


def _sides(block: Block) -> list[tuple[Var, Var, int, int]]:
    """The extents of the parts that a block is about, rows first, with where they begin, and how many there are at most
    and to be at least."""
    makers = {r.name: s for s in block if isinstance(s, Op) for r in s.results}
    load = next((s for s in block if isinstance(s, Op) and s.op == "load"), None)
    out: list[tuple[Var, Var, int, int]] = []
    extents = load.args[1 + load.args[0].type.rank :] if load is not None else ()  # type: ignore[union-attr]
    for k, extent in enumerate(extents):
        least = makers.get(extent.name) if isinstance(extent, Var) else None
        left = makers.get(least.args[0].name) if least is not None and isinstance(least.args[0], Var) else None
        if least is None or least.op != "min" or not isinstance(least.args[1], Const) or left is None:
            continue
        at = left.args[1]
        if left.op == "sub" and isinstance(at, Var) and isinstance(extent, Var):
            out.append((extent, at, int(least.args[1].value), _LEAST_COLUMNS if k == len(extents) - 1 else _LEAST))
    return out


def _for_smaller(func: Func, block: Block, some: Var, at: Var, size: int) -> Block:
    """A block as a loop over smaller parts of one of its sides."""
    needed = {some.name, at.name}
    before: list[Stmt] = []
    for s in reversed(block):
        if isinstance(s, Op) and any(r.name in needed for r in s.results):
            needed |= {a.name for a in s.args if isinstance(a, Var)}
            before.insert(0, s)
    taken = block_defs(func.body) | {p.name for p in func.params}
    loc = next(s.loc for s in block if isinstance(s, Op))
    strip, first, rest, count = (
        Var(unused(n, taken, "."), _INDEX) for n in ("strip", at.name, "left", some.name)
    )
    head = (
        Op("add", (first,), (at, strip), (), (), loc),
        Op("sub", (rest,), (some, strip), (), (), loc),
        Op("min", (count,), (rest, Const(size, _INDEX)), (), (), loc),
    )
    put = {at.name: first, some.name: count}
    inside = tuple(s for s in block if not any(s is other for other in before) and not isinstance(s, Return))
    moved = substitute(inside, put)
    tail = tuple(s for s in block if isinstance(s, Return))
    loop = For("sequential", strip, Const(0, _INDEX), some, Const(size, _INDEX), (*head, *moved), loc=loc)
    return (*before, loop, *tail)


def _innermost(block: Block) -> tuple[Block, tuple[For, ...]]:
    """The innermost block with all the work on tiles, and the loops around it."""
    loops: list[For] = []
    while True:
        work = [s for s in block if touches_tiles(s)]
        if len(work) != 1 or not isinstance(work[0], For) or work[0].reductions:
            return block, tuple(loops)
        loops.append(work[0])
        block = work[0].body


def _with(block: Block, loops: tuple[For, ...], body: Block) -> Block:
    """A block with another one inside of loops."""
    if not loops:
        return body
    inner = replace(loops[0], body=_with(loops[0].body, loops[1:], body))
    return tuple(inner if s is loops[0] else s for s in block)


def _tiles(op: Op) -> list[Var]:
    return [v for v in (*op.results, *op.args) if isinstance(v, Var) and isinstance(v.type, TileType)]


def _height(var: Operand) -> int | None:
    """Rows of a tile; 1 of one axis, or of none."""
    typ = var.type
    return typ.shape[-2] if isinstance(typ, TileType) and typ.rank >= 2 else 1


def _rows(block: Block) -> int | None:
    """The rows of all tiles that have more than one."""
    found = {_height(v) for s in statements(block) if isinstance(s, Op) for v in _tiles(s)} - {1}
    return found.pop() if len(found) == 1 else None


def _is_row_wise(block: Block, rows: int, facts: Facts) -> bool:
    """Whether nothing looks across rows, and memory that is written is not that which is read."""
    loaded: set[str] = set()
    stored: set[str] = set()
    for s in statements(block):
        if isinstance(s, (While, If)) or (isinstance(s, For) and s.reductions):
            return False
        if not isinstance(s, Op):
            continue
        if s.op == "setelem" or any(v.type.rank > 2 for v in _tiles(s)):  # type: ignore[union-attr]
            return False
        if not touches_tiles(s):
            continue
        if s.op == "load":
            if s.attr("pad"):  # of which all declared rows are valid
                return False
            loaded.add(facts.roots[s.args[0].name])  # type: ignore[union-attr]
        elif writes(s):
            if s.op not in STORES or _height(s.args[0]) != rows:
                return False
            stored.add(facts.roots[s.args[1].name])  # type: ignore[union-attr]
        elif is_reduction(s):
            along = set(reduced_axes(s)) == {s.args[0].type.rank - 1}  # type: ignore[union-attr]
            if not (along and s.attr("keepdims") and s.op in ("sum", "max", "min", "prod")):
                return False
        elif not is_elementwise(s) and s.op != "full":
            return False
    return bool(loaded) and not loaded & stored


def _divided(func: Func, block: Block, rows: int, size: int) -> Block | None:
    """The block as a loop over strips; None where it is not known before it how many rows there are."""
    inside = block_defs(block)
    first = next((s for s in statements(block) if isinstance(s, Op) and s.op == "load" and _height(s.results[0]) == rows
                  and not {a.name for a in s.args if isinstance(a, Var)} & inside - _columns(s)), None)  # fmt: skip
    if first is None:
        return None
    taken = block_defs(func.body) | {p.name for p in func.params}
    loc = first.loc

    def fresh(wish: str) -> Var:
        return Var(unused(wish, taken, "."), _INDEX)

    rank = first.args[0].type.rank  # type: ignore[union-attr]
    extent, below, end, strip = (fresh(n) for n in ("rows", "below", "end", "strip"))
    before: list[Stmt] = [
        Op("dim", (extent,), (first.args[0],), (("axis", rank - 2),), (), loc),
        Op("sub", (below,), (extent, first.args[rank - 1]), (), (), loc),
        Op("min", (end,), (below, Const(rows, _INDEX)), (), (), loc),
    ]
    shifted: dict[Operand, Var] = {}
    head: list[Stmt] = []

    def shift(offset: Operand) -> tuple[Block, Operand]:
        """An offset, from the first row of the strip on; what is known before the strips is computed once in each."""
        if offset == Const(0, _INDEX):
            return (), strip
        if offset in shifted:
            return (), shifted[offset]
        new = fresh(offset.name if isinstance(offset, Var) else "first")
        op = Op("add", (new,), (offset, strip), (), (), loc)
        if isinstance(offset, Var) and offset.name in inside:
            return (op,), new
        shifted[offset] = new
        head.append(op)
        return (), new

    def alike(load: Op) -> Block:
        """A check that a tile has as many valid rows as the first one: of strips, all but the last have."""
        rank, place = load.args[0].type.rank, load.loc  # type: ignore[union-attr]
        there, left, count = (fresh(n) for n in ("rows", "below", "end"))
        same = Var(unused("same", taken, "."), ScalarType(bool_))
        return (
            Op("dim", (there,), (load.args[0],), (("axis", rank - 2),), (), place),
            Op("sub", (left,), (there, load.args[rank - 1]), (), (), place),
            Op("min", (count,), (left, Const(rows, _INDEX)), (), (), place),
            Op("eq", (same,), (count, end), (), (), place),
            Op("assert", (), (same,), (("core", True),), (), place),
        )

    def visit(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Op) or not any(_height(v) == rows for v in _tiles(stmt)):
            return None
        args = list(stmt.args)
        out: Block = ()
        if stmt.op == "load":
            if stmt.args[0] != first.args[0] or stmt.args[rank - 1] != first.args[rank - 1]:
                out = alike(stmt)
            at = stmt.args[0].type.rank - 1  # type: ignore[union-attr]
            moved, args[at] = shift(args[at])
            out = (*out, *moved)
            args[at + stmt.args[0].type.rank] = Const(size, _INDEX)  # type: ignore[union-attr]
        elif writes(stmt):
            out, args[-2] = shift(args[-2])
        elif stmt.op == "full":
            args[-2] = Const(size, _INDEX)
        new = tuple(_thin(a, rows, size) for a in args)
        results = tuple(_thin(r, rows, size) for r in stmt.results)
        return (*out, replace(stmt, args=new, results=results))

    body = rewrite_block(block, visit)
    tail = tuple(s for s in body if isinstance(s, Return))
    body = (*head, *(s for s in body if not isinstance(s, Return)))
    return (*before, For("parallel", strip, Const(0, _INDEX), end, Const(size, _INDEX), body, loc=loc), *tail)


def _columns(load: Op) -> set[str]:
    """What a load reads to know its columns."""
    rank = load.args[0].type.rank  # type: ignore[union-attr]
    return {a.name for k, a in enumerate(load.args) if isinstance(a, Var) and k not in (0, rank - 1, 2 * rank - 1)}


def _thin(operand: Operand, rows: int, size: int) -> Operand:
    if isinstance(operand, Var) and _height(operand) == rows and isinstance(operand.type, TileType):
        typ = operand.type
        return Var(operand.name, TileType(typ.dtype, (*typ.shape[:-2], size, typ.shape[-1])))
    return operand
