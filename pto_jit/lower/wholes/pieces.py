# SPDX-License-Identifier: MIT
"""The pieces of a scope, some of which `divide` makes loops over parts of."""

from __future__ import annotations

from collections.abc import Mapping

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Break, Call, Continue, For, If, Op, Return, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.ir.walk import TENSOR_VIEWS, defs, statements, uses
from pto_jit.lower.names import I64
from pto_jit.lower.outwards import is_host
from pto_jit.lower.wholes.lines import root_of
from pto_jit.semantic.table import effects, tensor_arg

_TOLD = {**dict.fromkeys((*TENSOR_VIEWS, "load", "reshape", "broadcast_to", "full"), 1), "arange": 2}
"""From which operand on operations say where parts of tensors begin, and how large tiles are."""
Piece = tuple[list[Stmt], list[Stmt] | None]
"""Statements of a scope, and what does the same with loops over parts, if they are divided."""


def without_crossing_tiles(pieces: list[Piece]) -> list[Piece]:
    """Pieces from one that makes a tile to the last one that reads it stay whole: they are one scope, which no tile
    leaves."""
    whole: set[int] = set()
    first: dict[str, int] = {}
    for k, (stmts, _) in enumerate(pieces):
        for var in free_vars(tuple(stmts)):
            if isinstance(var.type, TileType) and first.get(var.name, k) < k:
                whole.update(range(first[var.name], k + 1))
        for made in (d for s in statements(tuple(stmts)) for d in defs(s)):
            first.setdefault(made.name, k)
    return [(stmts, None if k in whole else loops) for k, (stmts, loops) in enumerate(pieces)]


def late_names(block: Block) -> set[str]:
    """The variables that the host does not know before the block runs: what is made of tiles, or read from memory."""
    late: set[str] = set()
    flat = [s for s in statements(block) if isinstance(s, (Op, Call))]
    before = -1
    while before < len(late):  # variables of loops may be made of what is assigned later
        before = len(late)
        for s in flat:
            if not is_host(s) or late & {v.name for v in uses(s)}:
                late.update(d.name for d in defs(s))
    return late


def places_read(stmts: list[Stmt]) -> set[int]:
    """The reads of elements that say where parts of tensors begin, or how large tiles are, by identity, as far as
    nothing before them writes memory: a host that waits for them can make the views itself."""
    asked: set[str] = set()
    for s in reversed(stmts):
        if any(d.name in asked for d in defs(s)):
            asked |= {v.name for v in uses(s) if isinstance(v.type, ScalarType)}
        elif isinstance(s, Op):
            asked |= {a.name for a in s.args[_TOLD.get(s.op, len(s.args)) :] if isinstance(a, Var) and a.type == I64}
    out: set[int] = set()
    for s in stmts:
        if not isinstance(s, Op) or effects(s.op) == "writes":
            break
        if s.op == "getelem" and s.results[0].name in asked:
            out.add(id(s))
    return out


def host_first(stmts: list[Stmt], assigned: Mapping[str, int]) -> tuple[list[Stmt], list[Stmt]]:
    """What the host can do before the rest of some statements, and the rest.

    assigned: how often variables are.
    """
    host: list[Stmt] = []
    rest: list[Stmt] = []
    late: set[str] = set()  # what the rest gives
    for s in stmts:
        apart = is_host(s) and s.op != "assert" and all(assigned[d.name] == 1 for d in defs(s))  # type: ignore[union-attr]
        if apart and not late & {v.name for v in uses(s)}:
            host.append(s)
        else:
            rest.append(s)
            late.update(d.name for inner in statements((s,)) for d in defs(inner))
    return host, rest


def leaves(block: Block) -> bool:
    """Whether a block ends an iteration of a loop around it, or the function."""
    return any(
        isinstance(s, Return)
        or (isinstance(s, (Break, Continue)) or (isinstance(s, If) and (leaves(s.then) or leaves(s.orelse))))
        or (isinstance(s, (For, While)) and any(isinstance(inner, Return) for inner in statements((s,))))
        for s in block
    )


def segments(tiles: list[Stmt], makers: Mapping[str, Op]) -> list[list[Stmt]]:
    """Operations in runs that share no tiles, in an order in which each meets the memory that it met before.

    makers: what makes a variable that is assigned once.
    """
    owner: dict[str, int] = {}
    of = list(range(len(tiles)))  # the segment of each operation

    def join(a: int, b: int) -> None:
        of[:] = [a if k == b else k for k in of]

    for k, s in enumerate(tiles):
        for name in [v.name for v in uses(s)]:
            if name in owner and of[owner[name]] != of[k]:
                join(of[owner[name]], of[k])
        owner |= {d.name: k for d in defs(s)}
    accesses = [(k, access) for k, s in enumerate(tiles) if (access := _access(s, makers)) is not None]
    meet = [(k, later) for n, (k, access) in enumerate(accesses) for later, other in accesses[n + 1 :]
            if _meet(access, other)]  # fmt: skip
    out: list[list[Stmt]] = []
    left = list(dict.fromkeys(of))
    while left:
        before = {k: {of[a] for a, b in meet if of[b] == k and of[a] != k} & set(left) for k in left}
        ready = next((k for k in left if not before[k]), None)
        if ready is None:  # they wait for each other
            cycle = _cycle(before)
            for k in cycle[1:]:
                join(cycle[0], k)
                left.remove(k)
            continue
        out.append([s for s, k in zip(tiles, of, strict=True) if k == ready])
        left.remove(ready)
    return out


def _cycle(before: Mapping[int, set[int]]) -> list[int]:
    """Some of these each of which has another one of them before it, where all have one before them."""
    path = [next(iter(before))]
    while (step := min(before[path[-1]])) not in path:
        path.append(step)
    return path[path.index(step) :]


_Access = tuple[str | None, bool, bool]
"""A tensor that is no view of another one, None for anything; whether it is new; whether it is written."""


def _access(stmt: Stmt, makers: Mapping[str, Op]) -> _Access | None:
    """What an operation reads or writes."""
    if not isinstance(stmt, Op):
        return None, False, True
    effect = effects(stmt.op)
    if effect == "none":
        return None
    place = tensor_arg(stmt.op)
    tensor = stmt.args[place] if place is not None and place < len(stmt.args) else None
    if not isinstance(tensor, Var):
        return None, False, True
    root = root_of(tensor, {name: op.args[0] for name, op in makers.items() if op.op in TENSOR_VIEWS})
    return root, root in makers and makers[root].op == "alloc", effect == "writes"


def _meet(a: _Access, b: _Access) -> bool:
    """Whether two operations may touch the same memory, and their order matters: arguments may overlap."""
    apart = a[0] != b[0] and (a[1] or b[1]) and None not in (a[0], b[0])
    return (a[2] or b[2]) and not apart
