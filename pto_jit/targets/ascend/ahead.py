# SPDX-License-Identifier: MIT
"""Which products of a loop a cube core can take one iteration ahead of the vector cores.

In attention the scores of the next tile do not need the softmax of this one.  A cube core that takes them first works
while the vector cores do (software pipelining: Lam, 1988)::

    for j                                    for j, and one more
      scores = q @ k[j].T                      if there is a j: scores = q @ k[j].T
      (weights: the vector cores)     =>       if there is one before: out += weights @ v[before]
      out += weights @ v[j]
"""

from __future__ import annotations

from collections.abc import Container

from pto_jit.ir.nodes import Const, For, Op, Stmt, Var
from pto_jit.ir.walk import statements, uses
from pto_jit.targets.cuda.loops import PARALLEL, touches_tiles

Parts = tuple[tuple[Stmt, ...], tuple[Stmt, ...], frozenset[str]]
"""What goes ahead, the rest, and the names of the products that go ahead."""


def parts_of(loop: For, sent: Container[str], mutable: Container[str]) -> Parts | None:
    """Divide the body of a loop; None where nothing can go ahead.

    sent: operands of products that the vector cores make.  What goes ahead comes before all that is sent, so that
    neither kind of cores waits for the other.  Loops that may be dealt to the cores stay as they are.
    """
    if not isinstance(loop.step, Const) or loop.step.value <= 0 or loop.kind in PARALLEL:
        return None
    if any(not isinstance(s, Op) and any(_is_product(o) for o in statements((s,))) for s in loop.body):
        return None
    ops = [s for s in loop.body if isinstance(s, Op)]
    made = {r.name: s for s in ops for r in s.results}
    products = [s for s in ops if _is_product(s)]
    begun = next((k for k, s in enumerate(ops) if any(r.name in sent for r in s.results)), len(ops))
    early = [s for s in ops[:begun] if _is_product(s)]
    if not early or len(early) == len(products) or any(s.results[0].name in mutable for s in early):
        return None
    wanted = {s.results[0].name for s in early}
    pending = [a for s in early for a in s.args[:2]]
    while pending:
        operand = pending.pop()
        if isinstance(operand, Var) and operand.name in made and operand.name not in wanted:
            if operand.name in mutable:
                return None
            wanted.add(operand.name)
            pending += made[operand.name].args
    first = tuple(s for s in ops if any(r.name in wanted for r in s.results))
    tiles = {r.name for s in first if touches_tiles(s) for r in s.results}
    rest = tuple(s for s in loop.body if not (isinstance(s, Op) and any(r.name in tiles for r in s.results)))
    shared = {v.name for s in rest if isinstance(s, Op) and _is_product(s) for v in uses(s)} & tiles
    return None if shared else (first, rest, frozenset(s.results[0].name for s in early))


def _is_product(stmt: Stmt) -> bool:
    return isinstance(stmt, Op) and stmt.op == "dot"
