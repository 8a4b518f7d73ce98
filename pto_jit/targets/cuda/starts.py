# SPDX-License-Identifier: MIT
"""Products of whole tensors that start from a loaded tile, as products to which it is added.

A product by tiles starts from zeros, and what is elementwise follows on its tiles: the load of a part, too.

Before::

    %x.1 = tload %x[0, 0] [%n, %m] : !pto.tile<?x?xf32>
    %t = tdot %a.1, %b.1, %x.1 : !pto.tile<?x?xf32>

After::

    %x.1 = tload %x[0, 0] [%n, %m] : !pto.tile<?x?xf32>
    %t.product = tdot %a.1, %b.1 : !pto.tile<?x?xf32>
    %t = tadd %t.product, %x.1 : !pto.tile<?x?xf32>
"""

from __future__ import annotations

from pto_jit.ir.nodes import Block, For, Func, If, Op, Scope, Stmt, Var, While
from pto_jit.ir.walk import block_defs, blocks, with_blocks
from pto_jit.lower.names import Taken, unused
from pto_jit.semantic.rules import infer
from pto_jit.slotted import replace
from pto_jit.targets.cuda.flatten import unsupported
from pto_jit.targets.cuda.forms import TILE
from pto_jit.targets.cuda.loops import PARALLEL


def without_starts(func: Func) -> Func:
    """Rewrite the products of a flat function, outside of parallel loops."""
    taken = Taken(block_defs(func.body) | {p.name for p in func.params})
    return replace(func, body=_block(func.body, taken))


def _block(block: Block, taken: Taken) -> Block:
    loads: set[str] = set()
    out: list[Stmt] = []
    for stmt in block:
        if isinstance(stmt, (If, While, Scope)) or (isinstance(stmt, For) and stmt.kind not in PARALLEL):
            out.append(with_blocks(stmt, tuple(_block(inner, taken) for inner in blocks(stmt))))
        elif isinstance(stmt, Op) and stmt.op == "dot" and _starts(stmt, loads):
            out += product_and_sum(stmt, unused(f"{stmt.results[0].name}.product", taken, "."))
        else:
            out.append(stmt)
        if isinstance(stmt, Op) and stmt.op == "load":
            loads.add(stmt.results[0].name)
    return tuple(out)


def product_and_sum(dot: Op, name: str) -> tuple[Op, Op]:
    """A product that is added to a tile as a product of that name and a sum.

    Unsupported where only the tile says that an extent is 1: a sum would repeat the tile along it.
    """
    *operands, start = dot.args
    (kind,) = infer("dot", tuple(operands), dict(dot.attrs))
    if any(n == 1 and m is None for n, m in zip(start.type.shape, kind.shape, strict=True)):  # type: ignore[union-attr]
        raise unsupported(
            "a product of run-time extents that is added to a tile with a constant extent of 1", dot.loc,
            "give the operand that extent as a constant, too, as of `x: pl.Tensor[[1, None], pl.f32]`",
        )  # fmt: skip
    product = Var(name, kind)
    added = Op("add", dot.results, (product, start), (), (), dot.loc)
    return replace(dot, results=(product,), args=tuple(operands)), added


def _starts(dot: Op, loads: set[str]) -> bool:
    """Whether a product is of tiles larger than a block has, and starts from one that is loaded."""
    if len(dot.args) != 3 or not all(isinstance(a, Var) and a.name in loads for a in dot.args):
        return False
    if any(a.type.rank != 2 for a in dot.args):  # type: ignore[union-attr]
        return False
    shapes = [n for a in dot.args[:2] for n in a.type.shape]  # type: ignore[union-attr]
    (kind,) = infer("dot", dot.args[:2], dict(dot.attrs))
    return any(n is None or n > TILE for n in shapes) and kind == dot.results[0].type == dot.args[2].type
