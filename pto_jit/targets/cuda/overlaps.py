# SPDX-License-Identifier: MIT
"""Which parameters of a kernel must not share memory, and which of those that may are read by several threads."""

from __future__ import annotations

from math import prod

from pto_jit.ir.nodes import Func, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import statements
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.facts import Facts
from pto_jit.targets.cuda.loops import read_tensor, written_tensor
from pto_jit.targets.cuda.thin import streamed_loads


@frozen
class Overlap:
    """Two tensor parameters, one of them written, that must not overlap; `same`: unless they are one region."""

    read: str
    written: str
    same: bool


def overlaps_of(func: Func, facts: Facts) -> list[Overlap]:
    """Which parameters must not share memory: what an iteration reads late another thread may have written."""
    reads: dict[str, set[object]] = {}
    streamed = streamed_loads(func)
    written: dict[str, set[object]] = {}

    def element(indices: tuple[Operand, ...]) -> object:
        """The place of one element; indices that are assigned again do not say where it is."""
        changing = any(isinstance(i, Var) and i.name in facts.mutable for i in indices)
        return "elements" if changing else ("element", indices)

    for s in statements(func.body):
        if not isinstance(s, Op):
            continue
        place: object = "elements"
        if (source := read_tensor(s)) is not None:
            if s.op == "load" and s.results[0].name not in streamed:  # those are read later than they are loaded
                place = (s.op, s.args[1 : 1 + source.type.rank], s.results[0].type)  # type: ignore[union-attr]
            elif s.op == "getelem":
                place = element(s.args[1:])
            reads.setdefault(facts.roots[source.name], set()).add(place)
        elif (target := written_tensor(s)) is not None:
            if s.op in ("store", "setelem"):
                place = ("load", s.args[2:], s.args[0].type) if s.op == "store" else element(s.args[2:])
            written.setdefault(facts.roots[target.name], set()).add(place)
    out: list[Overlap] = []
    for root, places in written.items():
        for other in dict.fromkeys((*reads, *written)):
            if other == root or (other in written and other < root and other not in reads):
                continue
            mine = reads.get(other, set()) | written.get(other, set())
            same = len(places) == 1 and mine == places and all(isinstance(p, tuple) for p in places)
            out.append(Overlap(other, root, same))
    return out


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
