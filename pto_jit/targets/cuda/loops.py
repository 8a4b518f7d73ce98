# SPDX-License-Identifier: MIT
"""The parallel loops of a kernel, and which statements touch tiles and memory."""

from __future__ import annotations

from collections.abc import Container

from pto_jit.ir.nodes import Block, Break, Const, Continue, For, Op, Operand, Return, Stmt, Var, While
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import WRITES, blocks, defs, statements, uses
from pto_jit.lower.groups import axes
from pto_jit.slotted import replace

PARALLEL = ("parallel", "chunk", "in_chunk")
DIMENSIONS = ("x", "y", "z")
"""The axes of a grid, which the innermost loops of a chain are, the last loop first."""


def touches_tiles(stmt: Stmt) -> bool:
    """Whether a statement makes or reads tiles, in any of its parts."""
    if type(stmt) is Op and not stmt.regions:
        return axes.touches_tiles(stmt)
    return any(isinstance(v.type, TileType) for s in statements((stmt,)) for v in (*uses(s), *defs(s)))


def is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind in PARALLEL


def writes(stmt: Stmt) -> bool:
    return isinstance(stmt, Op) and stmt.op in WRITES


def read_tensor(stmt: Stmt) -> Var | None:
    """The tensor whose elements a statement reads; what it updates is not counted."""
    reads = isinstance(stmt, Op) and stmt.op in ("load", "getelem", "take")
    return stmt.args[0] if reads and isinstance(stmt.args[0], Var) else None  # type: ignore[union-attr]


def written_tensor(stmt: Stmt) -> Var | None:
    """The tensor whose elements a statement writes."""
    tensor = stmt.args[WRITES[stmt.op]] if isinstance(stmt, Op) and stmt.op in WRITES else None
    return tensor if isinstance(tensor, Var) else None


def jump_out_of(body: Block) -> Break | Continue | None:
    """A `break` or `continue` of a loop around these statements."""
    for s in body:
        if isinstance(s, (Break, Continue)):
            return s
        found = None if isinstance(s, (For, While)) else jump_out_of(tuple(x for b in blocks(s) for x in b))
        if found is not None:
            return found
    return None


def chain_of(body: Block) -> tuple[For, ...]:
    """The parallel loops of a kernel from the outermost in: each stands in its parent's body with scalars only.

    A loop whose bounds are read from memory is none of them: the host does not know how often it runs.
    """
    out: list[For] = []
    read: set[str] = set()  # what depends on elements
    while True:
        loops = [s for s in body if is_parallel(s)]
        others = [s for s in body if not is_parallel(s)]
        plain = all(
            isinstance(s, Return) or (isinstance(s, Op) and not touches_tiles(s) and not writes(s)) for s in others
        )
        if len(loops) != 1 or not plain:
            return tuple(out)
        loop = loops[0]
        assert isinstance(loop, For)
        for s in others:
            if (isinstance(s, Op) and s.op == "getelem") or any(v.name in read for v in uses(s)):
                read |= {v.name for v in defs(s)}
        if any(isinstance(o, Var) and o.name in read for o in (loop.start, loop.stop, loop.step)):
            return tuple(out)
        out.append(loop)
        body = loop.body


def longest_first(body: Block, chain: tuple[For, ...], mutable: Container[str], varying: Container[str]) -> list[For]:
    """The loops of a grid, of those of a chain, that run as often as ever where those around them are at their start: a
    grid made for that covers all iterations.

    mutable, varying: as in `Facts`.  So it is where the bounds are always the same, and where a loop begins later and
    later (as loops around it count upwards) and ends at a bound that stays, or so much after its start at most.
    """
    makers = {s.results[0].name: s for s in statements(body) if isinstance(s, Op) and len(s.results) == 1}
    counted = {loop.var.name for loop in chain}

    def made(operand: Operand) -> Op | None:
        return None if isinstance(operand, Const) or operand.name in mutable else makers.get(operand.name)

    def stays(operand: Operand) -> bool:
        return isinstance(operand, Const) or operand.name not in varying

    def rises(operand: Operand) -> bool:
        if isinstance(operand, Const) or stays(operand) or (operand.name in counted and operand.name not in mutable):
            return True
        op = made(operand)
        if op is not None and op.op == "mul":
            return any(isinstance(a, Const) and a.value >= 0 for a in op.args) and all(map(rises, op.args))
        return op is not None and op.op in ("add", "min", "max", "copy") and all(map(rises, op.args))

    def follows(stop: Operand, start: Operand) -> bool:
        op = None if stays(stop) else made(stop)
        if op is not None and op.op == "min":
            return all(follows(a, start) for a in op.args)
        if op is not None and op.op == "add":
            return any(a == start and stays(b) for a, b in (op.args, op.args[::-1]))
        return stays(stop)

    return [loop for loop in chain[-len(DIMENSIONS) :] if isinstance(loop.step, Const) and loop.step.value > 0
            and rises(loop.start) and follows(loop.stop, loop.start)]  # fmt: skip


def with_makers(body: Block, makers: dict[str, Block]) -> Block:
    """`body`, in whose innermost parallel loop tiles are made: `makers`, name -> what makes the tile.  Each where it is
    first met, as registers are short, and before anything that may write what it is made from.
    """
    chain = chain_of(body)
    if not chain:
        return _with_makers(body, makers)
    inner: Stmt = replace(chain[-1], body=_with_makers(chain[-1].body, makers))
    for old, around in zip(chain[:0:-1], chain[-2::-1], strict=True):
        new = inner
        inner = replace(around, body=tuple(new if s is old else s for s in around.body))
    return tuple(inner if s is chain[0] else s for s in body)


def _with_makers(block: Block, makers: dict[str, Block]) -> Block:
    left = dict(makers)
    out: list[Stmt] = []
    for s in block:
        inside = list(statements((s,)))
        # a tile that a branch changes is made before it, too
        met = {v.name for t in inside for v in (*uses(t), *defs(t))}
        everything = any(map(writes, inside))
        for name in [n for n in left if everything or n in met]:
            out += left.pop(name)
        out.append(s)
    assert not left, f"tiles that no iteration reads: {', '.join(left)}"
    return tuple(out)
