# SPDX-License-Identifier: MIT
"""Which parameters of a kernel must not share memory, and which of those that may are read by several threads."""

from __future__ import annotations

from math import prod

from pto_jit.ir.nodes import Block, For, Func, If, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import blocks, statements
from pto_jit.lower.wholes.parted import PROOF
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.loops import read_tensor, written_tensor
from pto_jit.targets.cuda.thin import streamed_loads


@frozen
class Overlap:
    """Two tensor parameters, one of them written, that must not overlap.

    same: unless they are one region; early: in the order of the program all of the one is read before the other is
    written, so that the kernel may read a copy that was made before it.
    """

    read: str
    written: str
    same: bool
    early: bool = False


def overlaps_of(func: Func, facts: Facts) -> list[Overlap]:
    """Which parameters must not share memory: what an iteration reads late another thread may have written."""
    reads: dict[str, set[object]] = {}
    streamed = streamed_loads(func)
    written: dict[str, set[object]] = {}

    def element(indices: tuple[Operand, ...]) -> object:
        """The place of one element; indices that are assigned again do not say where it is."""
        changing = any(isinstance(i, Var) and i.name in facts.mutable for i in indices)
        return "elements" if changing else ("element", indices)

    read_last: dict[str, int] = {}
    written_first: dict[str, int] = {}
    for at, s in enumerate(statements(func.body)):
        if not isinstance(s, Op):
            continue
        place: object = "elements"
        if (source := read_tensor(s)) is not None:
            if s.op == "load" and s.results[0].name not in streamed:  # those are read later than they are loaded
                place = (s.op, s.args[1 : 1 + source.type.rank], s.results[0].type)  # type: ignore[union-attr]
            elif s.op == "getelem":
                place = element(s.args[1:])
            reads.setdefault(facts.roots[source.name], set()).add(place)
            read_last[facts.roots[source.name]] = at
        elif (target := written_tensor(s)) is not None:
            if s.op in ("store", "setelem"):
                place = ("load", s.args[2:], s.args[0].type) if s.op == "store" else element(s.args[2:])
            written.setdefault(facts.roots[target.name], set()).add(place)
            written_first.setdefault(facts.roots[target.name], at)
    in_order = _is_in_order(func.body)
    out: list[Overlap] = []
    for root, places in written.items():
        for other in dict.fromkeys((*reads, *written)):
            if other == root or (other in written and other < root and other not in reads):
                continue
            mine = reads.get(other, set()) | written.get(other, set())
            same = len(places) == 1 and mine == places and all(isinstance(p, tuple) for p in places)
            early = in_order and other not in written and read_last[other] < written_first[root]
            out.append(Overlap(other, root, same, early))
    return out


def _is_in_order(block: Block) -> bool:
    """Whether statements stand in the order of the program: in no loop, or in one that is over parts of whole tensors,
    the operations on which are one after the other."""
    for s in block:
        if isinstance(s, While) or (isinstance(s, For) and (s.kind != "parallel" or s.proof != PROOF)):
            return False
        if isinstance(s, If) and not all(map(_is_in_order, blocks(s))):
            return False
    return True


def twins_of(func: Func, facts: Facts, teamed: bool, staged: bool = False) -> dict[str, set[str]]:
    """Tensors that may be one memory (`Overlap.same`) where several threads read what one of them writes: numbers,
    tiles with an axis of extent 1, and all tiles where operands of products are staged; the others of each."""
    targets = [t for s in statements(func.body)
               if (t := written_tensor(s)) is not None and (staged or _written_by_one(s, teamed))]  # fmt: skip
    if not targets:
        return {}
    roots = {facts.roots[t.name] for t in targets}
    out: dict[str, set[str]] = {}
    for overlap in overlaps_of(func, facts):
        if overlap.same and overlap.written in roots:
            out.setdefault(overlap.written, set()).add(overlap.read)
            out.setdefault(overlap.read, set()).add(overlap.written)
    return out


def _written_by_one(stmt: Stmt, teamed: bool) -> bool:
    """Whether one thread writes an element that several have; a team has a row of its own."""
    assert isinstance(stmt, Op)
    typ = stmt.args[0].type
    if not isinstance(typ, TileType):
        return True
    return typ.shape[-1] == 1 or (not teamed and prod(n or 2 for n in typ.shape[:-1]) == 1)
