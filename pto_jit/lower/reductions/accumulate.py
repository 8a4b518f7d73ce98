# SPDX-License-Identifier: MIT
"""What a variable (or a place in memory) is combined with in a loop, when that is all that happens to it.

A value *follows* the variable v when it is v, a copy of a follower, or `f op e` with a follower f and an e that is
none.  If one associative `op` is used throughout, nothing else reads a follower, and nothing else gives one its value,
then by induction every follower is `v0 op E`: v0 is what v was when the iteration began and E does not depend on it.
So the iterations may be grouped: v0 op (E1 op E2) = (v0 op E1) op E2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set

from pto_jit.dtypes import DType
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, Continue, For, Fuse, If, Op, Scope, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TileType, Type
from pto_jit.ir.walk import block_uses, combines, defs, uses
from pto_jit.slotted import frozen

ASSOCIATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor"})


class NoReduction(Exception):
    """Something else happens to the variable or place; `loc` is where."""

    def __init__(self, message: str, loc: Loc, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.loc, self.hint = message, loc, hint


@frozen
class Accumulation:
    """`kind` is the operation; `always`: it happens in every iteration; `followers` are the variables that follow."""

    kind: str
    always: bool
    followers: frozenset[str]


def identity(kind: str, dtype: DType) -> Const:
    """The value that changes nothing it is combined with. -0.0 for float sums: 0.0 would turn -0.0 into 0.0."""
    value: float | int | bool
    if dtype.kind == "b":
        value = kind in ("and", "min", "mul")
    elif dtype.kind == "f":
        value = {"add": -0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[kind]
    else:
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
        high = low + (1 << dtype.bits) - 1
        full = -1 if dtype.kind == "i" else high
        value = {"add": 0, "mul": 1, "max": low, "min": high, "and": full, "or": 0, "xor": 0}[kind]
    return Const(value, ScalarType(dtype))


def direct(block: Block) -> list[Stmt]:
    """All statements of a block, nested ones too, but not those of regions."""
    found: list[Stmt] = []
    rest = [*block[::-1]]
    while rest:
        stmt = rest.pop()
        found.append(stmt)
        if type(stmt) is Op:
            continue
        match stmt:
            case For() | Scope() | Fuse():
                rest += stmt.body[::-1]
            case While():
                rest += (*stmt.body[::-1], *stmt.before[::-1])
            case If():
                rest += (*stmt.orelse[::-1], *stmt.then[::-1])
            case _:
                pass
    return found


def follow(
    body: Block,
    seeds: Iterable[str],
    type: Type,
    reads: Callable[[Op], bool] = lambda op: False,
    writes: Callable[[Op], bool] = lambda op: False,
) -> Accumulation:
    """Follow the variables `seeds`, all of type `type`, through a loop's body.

    For a place in memory `reads` and `writes` tell the operations that read it (their results are the seeds) and that
    write it (only followers may be written).  Raises NoReduction with the first statement that does something else.
    """
    flat = direct(body)
    followers = set(seeds)
    while True:
        before = len(followers)
        for stmt in flat:
            if isinstance(stmt, Op) and _step(stmt, followers, type) is not None:
                followers.update(r.name for r in stmt.results)
        if len(followers) == before:
            break
    kinds: dict[str, Stmt] = {}
    changing: list[Stmt] = []
    for stmt in flat:
        read = {v.name for v in uses(stmt)} | _in_regions(stmt)
        mine = read & followers
        if isinstance(stmt, Op) and writes(stmt):
            value = stmt.args[0]
            if not (isinstance(value, Var) and value.name in followers) or len(mine) > 1:
                raise NoReduction("it is assigned here", stmt.loc)
            changing.append(stmt)
        elif mine:
            kind = _step(stmt, followers, type) if isinstance(stmt, Op) else None
            if kind is None:
                raise _converted(stmt, type) or NoReduction("it is used here", stmt.loc)
            if kind:
                changing.append(stmt)
                kinds.setdefault(kind, stmt)
                if len(kinds) > 1:
                    raise NoReduction("it is combined by another operation here", stmt.loc)
        elif any(v.name in followers for v in defs(stmt)) and not (isinstance(stmt, Op) and reads(stmt)):
            raise NoReduction("it is assigned here", stmt.loc)
    if not kinds:
        raise NoReduction("it is combined with nothing", flat[0].loc)
    (kind,) = kinds
    top = list(_unconditional(body))
    always = any(s in top for s in changing) and not any(isinstance(s, Continue) for s in flat)
    return Accumulation(kind, always, frozenset(followers))


def _converted(stmt: Stmt, type: Type) -> NoReduction | None:
    """`y[0] += x[i]` where x is wider than y: the sum is one of x's dtype, rounded in every iteration."""
    if not isinstance(stmt, Op) or stmt.op != "cast" or not isinstance(type, (ScalarType, TileType)):
        return None
    wide = stmt.results[0].type.dtype  # type: ignore[union-attr]
    return NoReduction(
        f"it is of {type.dtype} and combined in {wide} here", stmt.loc,
        f"convert what it is combined with: `.to(pl.{type.dtype})`, or combine in a variable or tensor of {wide}",
    )  # fmt: skip


def _unconditional(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        if isinstance(stmt, (Scope, Fuse)):
            yield from _unconditional(stmt.body)
        else:
            yield stmt


def _in_regions(stmt: Stmt) -> set[str]:
    """Names that the functions inside a statement read."""
    if isinstance(stmt, Op) and stmt.regions:
        return set().union(*(block_uses(r.body) for r in stmt.regions))
    if isinstance(stmt, For) and stmt.reductions:
        return set().union(*(block_uses(r.body) for r in combines(stmt)))
    return set()


def _step(op: Op, followers: Set[str], type: Type) -> str | None:
    """How the result of an operation follows: the kind of combination, "" for a copy; None: it does not."""
    mine = [k for k, a in enumerate(op.args) if isinstance(a, Var) and a.name in followers]
    if not mine or op.regions or len(op.results) != 1 or not _alike(op.results[0].type, type):
        return None
    if op.op == "copy" or (op.op == "cast" and op.args[0].type == op.results[0].type):
        return ""
    if op.op == "select" and mine == [1, 2]:
        return ""
    if op.op in ASSOCIATIVE and len(op.args) == 2 and len(mine) == 1:
        return op.op
    # a difference is the sum with the negation; a product that is added is a sum
    if (op.op == "sub" and mine == [0]) or (op.op in ("fma", "dot") and mine == [2]):
        return "add"
    return None


def _alike(a: Type, b: Type) -> bool:
    """Whether two types differ in what is known about extents at most."""
    if not isinstance(a, TileType) or not isinstance(b, TileType):
        return a == b
    if a.dtype != b.dtype or a.rank != b.rank:
        return False
    return all(m is None or n is None or m == n for m, n in zip(a.shape, b.shape, strict=True))
