# SPDX-License-Identifier: MIT
"""Move numbers and views that stand between tile operations, those of `x[i - 1:j] + x[i + 1:j]`, before them.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %i: i64) {
      %a = tload %x[%i, 0] [1, 6] : !pto.tile<1x6xf32>
      %b = texp %a : !pto.tile<1x6xf32>
      %v = tview %x[%i, 1] [1, 6] : !pto.memref<gm,?x?,f32,inner>
      tstore %b, %v[0, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %i: i64) {
      %v = tview %x[%i, 1] [1, 6] : !pto.memref<gm,?x?,f32,inner>
      %a = tload %x[%i, 0] [1, 6] : !pto.tile<1x6xf32>
      %b = texp %a : !pto.tile<1x6xf32>
      tstore %b, %v[0, 0]
      return
    }
"""

from __future__ import annotations

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Block, Func, Module, Op, Stmt, Var
from pto_jit.ir.types import ScalarType
from pto_jit.ir.walk import def_counts, map_blocks, map_funcs, statements
from pto_jit.lower.groups.axes import touches_tiles
from pto_jit.semantic.table import effects, is_elementwise
from pto_jit.slotted import replace

_INTEGERS = frozenset("add sub mul min max neg dim copy".split())  # that cannot fail


def move_views(module: Module) -> Module:
    """Of each run of such statements in every block those that can be passed by the others; the order is else kept."""
    return map_funcs(module, _func)


def _func(func: Func) -> Func:
    if not any(type(stmt) is Op and stmt.op == "view" for stmt in statements(func.body)):
        return func
    mutable = {name for name, count in def_counts(func.body).items() if count > 1}
    body = map_blocks(func.body, lambda block: _views_first(block, mutable))
    return func if body is func.body else replace(func, body=body)


def _views_first(block: Block, mutable: set[str]) -> Block:
    """The block with numbers and views moved before the tile operations of their run that they do not depend on.

    Neither reads nor writes memory, and tile operations that write none can be passed.  What comes after the last
    tile operation of a run stays there.
    """
    if not any(type(stmt) is Op and stmt.op == "view" for stmt in block):
        return block
    out: list[Stmt] = []
    tiles: list[Stmt] = []  # of this run, with what depends on them
    held: list[Stmt] = []  # what may move before the tiles when more of them follow
    made: set[str] = set()  # by the tiles
    for stmt in block:
        if not isinstance(stmt, Op) or stmt.regions or not _is_passable(stmt, mutable):
            store = isinstance(stmt, Op) and stmt.op == "store"
            out += (*held, *tiles, stmt) if store else (*tiles, *held, stmt)
            tiles, held, made = [], [], set()
        elif not touches_tiles(stmt) and not any(isinstance(a, Var) and a.name in made for a in stmt.args):
            held.append(stmt)
        else:
            out += held
            held = []
            tiles.append(stmt)
            made.update(r.name for r in stmt.results)
    out += (*tiles, *held)
    return block if all(a is b for a, b in zip(out, block, strict=True)) else tuple(out)


def _is_passable(op: Op, mutable: set[str]) -> bool:
    """Whether an operation touches no memory that others write, and makes what nothing else assigns."""
    if any(r.name in mutable for r in op.results):
        return False
    if touches_tiles(op):
        return effects(op.op) == "none" or op.op == "load"
    if op.op == "view":
        return True
    (type,) = [r.type for r in op.results] if len(op.results) == 1 else (None,)
    if not isinstance(type, ScalarType):
        return False
    return op.op in _INTEGERS if type.dtype == i64 else type.dtype.kind == "f" and is_elementwise(op.op, len(op.args))
