# SPDX-License-Identifier: MIT
"""Tiles that one kernel makes and reads, handed on as values where they went through memory.

An in-core function that orchestration calls in a parallel loop stores the tile that it returns into a temporary, and
the scopes behind it load that.  All of them are one kernel here.

Before::

    FOR %r:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      %t_tmp = talloc [1, 64] {dtype=f32, tile=true} : !pto.memref<gm,1x64,f32>
      SCOPE @row {named}
        %t = texp %x.1 : !pto.tile<1x64xf32>
        tstore %t, %t_tmp[0, 0]
      ENDSCOPE
      SCOPE @k_incore_0
        %t.1 = tload %t_tmp[0, 0] [1, 64] : !pto.tile<1x64xf32>
        tstore %t.1, %y[%r, 0]
      ENDSCOPE
    ENDFOR

After::

    FOR %r:idx, 0:idx, %n:idx, 1:idx {kind=parallel}
      SCOPE @row {named}
        %t = texp %x.1 : !pto.tile<1x64xf32>
      ENDSCOPE
      SCOPE @k_incore_0
        tstore %t, %y[%r, 0]
      ENDSCOPE
    ENDFOR

What loops and branches store anew, or read before they do, becomes a variable that is assigned where memory was
written: `%t_tmp = tcopy %t`, and `%t.1 = tcopy %t_tmp` where it was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pto_jit.ir.nodes import Block, Const, For, Op, Operand, Scope, Stmt, Var
from pto_jit.ir.walk import blocks, def_counts, rename, rewrite_block, statements, uses
from pto_jit.targets.cuda.loops import is_parallel


def handed_on(body: Block) -> Block:
    """The body of a flat function without the temporaries of parallel loops that are stored and loaded as a whole."""
    if not any(map(_is_temporary, statements(body))):
        return body
    counts = def_counts(body)
    gone: dict[int, Block] = {}
    names: dict[str, str] = {}
    for loop in statements(body):
        if not (isinstance(loop, For) and is_parallel(loop)):
            continue
        for block in _blocks((loop,)):
            for stmt in block:
                if isinstance(stmt, Op) and _is_temporary(stmt) and id(stmt) not in gone:
                    _hand_on(block, stmt, counts, gone, names)
    if not gone:
        return body
    for name, tile in names.items():
        while tile in names:
            tile = names[tile]
        names[name] = tile
    return rename(rewrite_block(body, lambda stmt: gone.get(id(stmt))), names)


def _is_temporary(stmt: Stmt) -> bool:
    return isinstance(stmt, Op) and stmt.op == "alloc" and stmt.attr("tile") is True


def _blocks(block: Block) -> Iterator[Block]:
    """The blocks in a block."""
    for stmt in block:
        for inner in blocks(stmt):
            yield inner
            yield from _blocks(inner)


def _hand_on(
    block: Block, temporary: Op, counts: Counter[str], gone: dict[int, Block], names: dict[str, str]
) -> None:
    """Add what uses a temporary in its block to `gone`, with what stands there instead, and what stands for its tile,
    where that is one, to `names`."""
    (memory,) = temporary.results
    using = [s for s in statements(block) if any(v.name == memory.name for v in uses(s))]
    views = [s for s in using if isinstance(s, Op) and s.op == "view"]
    sources = {memory.name, *(view.results[0].name for view in views)}
    using += [s for s in statements(block) if any(v.name in sources - {memory.name} for v in uses(s))]
    stores = [s for s in using if isinstance(s, Op) and s.op == "store" and isinstance(s.args[0], Var)]
    loads = [s for s in using if isinstance(s, Op) and s.op == "load"]
    rank, whole = len(temporary.args), tuple(temporary.args)
    if not stores or len(using) != len(views) + len(loads) + len(stores):
        return
    tile = stores[0].args[0]
    if not (
        all(_at_origin(s.args[1 : 1 + rank]) and not s.attr("drop") for s in views)  # they end where the tile does
        and all(s.args[0].type == tile.type and _at_origin(s.args[2:]) for s in stores)
        and all(_at_origin(s.args[1 : 1 + rank]) and s.args[1 + rank :] == whole for s in loads)
        and all(s.results[0].type == tile.type for s in loads)
        and all(counts[v.name] == 1 for v in (memory, *(s.results[0] for s in loads)))
    ):
        return
    order = {id(s): k for k, s in enumerate(statements(block))}
    gone.update({id(s): () for s in (temporary, *views)})
    assert isinstance(tile, Var)
    if (
        len(stores) == 1
        and counts[tile.name] == 1
        and any(s is stores[0] for s in _of_scopes(block))
        and all(order[id(s)] > order[id(stores[0])] for s in loads)
    ):
        gone.update({id(s): () for s in (*stores, *loads)})
        names.update((s.results[0].name, tile.name) for s in loads)
        return
    held = Var(memory.name, tile.type)
    gone.update({id(s): (Op("copy", (held,), s.args[:1], (), (), s.loc),) for s in stores})
    gone.update({id(s): (Op("copy", s.results, (held,), (), (), s.loc),) for s in loads})


def _of_scopes(block: Block) -> Iterator[Stmt]:
    """The statements of a block that run one after the other, those of its scopes among them."""
    for stmt in block:
        if isinstance(stmt, Scope):
            yield from _of_scopes(stmt.body)
        else:
            yield stmt


def _at_origin(offsets: tuple[Operand, ...]) -> bool:
    return all(isinstance(offset, Const) and offset.value == 0 for offset in offsets)
