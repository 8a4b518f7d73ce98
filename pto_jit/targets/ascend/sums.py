# SPDX-License-Identifier: MIT
"""Sums of products that are read after more was added to them, which L0C cannot hold: nothing is copied there.

Products that are added up have one place, whatever they are called::

    %half = tcopy %acc
    %acc = tdot %a, %b, %acc
    tstore %half, %x[0, 0]                  // where half of the sum was, there is all of it

The vector cores can: such kernels are of both kinds of cores.
"""

from __future__ import annotations

from collections.abc import Set

from pto_jit.ir.nodes import Block, For, Func, If, Op, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import blocks, statements, uses

_PASSED_ON = ("copy", "cast", "dot")


def overwritten(func: Func) -> bool:
    """Whether a kernel of products reads one that was added to, under another name, or begun again."""
    place: dict[str, str] = {}  # of names of products: the one that stands for all that share their place

    def root(name: str) -> str:
        while name in place:
            name = place[name]
        return name

    for s in statements(func.body):
        if isinstance(s, Op) and s.op in _PASSED_ON and isinstance(s.results[0].type, TileType):
            source = s.args[2] if s.op == "dot" and len(s.args) == 3 else s.args[0] if s.op != "dot" else None
            if isinstance(source, Var) and root(source.name) != root(s.results[0].name):
                place[root(source.name)] = root(s.results[0].name)
    return _Reads({name: root(name) for name in place}).overwritten(func.body, frozenset())[1]


class _Reads:
    """Who reads what later; roots: of names that share their place with others, the one that stands for all."""

    def __init__(self, roots: dict[str, str]) -> None:
        self.roots = roots | {root: root for root in roots.values()}

    def overwritten(self, block: Block, after: Set[str]) -> tuple[Set[str], bool]:
        """Names that are read in a block or after it, and were assigned before; and whether one of them that shares its
        place with another is written under that other name in the block; after: names that are read after it."""
        found = False
        for s in reversed(block):
            if isinstance(s, Op):
                made = {r.name for r in s.results}
                if s.op in ("dot", "full"):
                    mine = self.roots.get(s.results[0].name)
                    found = found or (mine is not None and any(self.roots.get(n) == mine for n in after - made))
                after = (after - made) | {v.name for v in uses(s)}
                continue
            inner = blocks(s)
            if isinstance(s, If):
                sides = [self.overwritten(b, after) for b in inner]
                after = frozenset().union(*(names for names, _ in sides)) | {v.name for v in uses(s)}
            else:  # a loop may run again, or not at all
                before = frozenset().union(*(self.overwritten(b, after)[0] for b in inner))
                sides = [self.overwritten(b, after | before) for b in inner]
                after = after | before | frozenset().union(*(names for names, _ in sides)) | {v.name for v in uses(s)}
                after -= {s.var.name} if isinstance(s, For) else frozenset()
            found = found or any(told for _, told in sides)
        return after, found
