# SPDX-License-Identifier: MIT
"""Names and scalar arithmetic for passes that add statements."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from pto_jit.dtypes import bool_, i64
from pto_jit.errors import Loc
from pto_jit.ir.nodes import Block, Const, For, Func, LoopKind, Op, Operand, Stmt, Var
from pto_jit.ir.types import ScalarType, Type
from pto_jit.ir.walk import def_counts, defs, rename, statements

I64 = ScalarType(i64)
BOOL = ScalarType(bool_)


@lru_cache(1024, typed=True)
def index(value: int) -> Const:
    return Const(value, I64)


def source_name(name: str) -> str:
    """The user's variable behind a name: `i.2` and `i_chunk` are `i`."""
    head = name.split(".", 1)[0]
    return head.removesuffix("_chunk")


def kind_in_source(loop: For, chunks: frozenset[str]) -> LoopKind:
    """The kind that a loop has to the user; `chunks` are the chunk loops around it without an in_chunk loop so far.

    The in_chunk loop of a loop that accumulates into copies of a tensor runs in order: its iterations share the copy.
    """
    return "in_chunk" if loop.kind == "sequential" and source_name(loop.var.name) in chunks else loop.kind


def chunks_inside(loop: For, chunks: frozenset[str]) -> frozenset[str]:
    """The chunk loops without an in_chunk loop so far, seen from the body of a loop."""
    name = frozenset({source_name(loop.var.name)})
    return chunks | name if loop.kind == "chunk" else chunks - name


class Taken(set[str]):
    """Names that somebody has, and keeps; of those that were wished for again and again the last number is known."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self.tried: dict[tuple[str, str], int] = {}


def unused(wish: str, taken: set[str], separator: str = "") -> str:
    """A name nobody has so far, numbered from 2 on; it is `taken` from now on."""
    name = wish
    if name in taken:
        tried = taken.tried if isinstance(taken, Taken) else {}
        count = tried.get((wish, separator), 1)
        while name in taken:
            count += 1
            name = f"{wish}{separator}{count}"
        tried[wish, separator] = count
    taken.add(name)
    return name


class Names:
    """Unused variable names of one function."""

    def __init__(self, func: Func) -> None:
        self._taken = {p.name for p in func.params}
        self._taken.update(def_counts(func.body))
        self._last: dict[str, int] = {}

    def fresh(self, hint: str, type: Type = I64) -> Var:
        name, count = hint, self._last.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}.{count}"
        self._taken.add(name)
        self._last[hint] = count
        return Var(name, type)


def with_own_regions(op: Op, names: Names) -> Op:
    """An operation whose regions are those of no other one: their variables are new."""
    made = {v.name: v for region in op.regions for v in region.params}
    made |= {v.name: v for region in op.regions for s in statements(region.body) for v in defs(s)}
    if not made:
        return op
    (new,) = rename((op,), {name: names.fresh(source_name(name), v.type).name for name, v in made.items()})
    assert isinstance(new, Op)
    return new


class Scalars:
    """Collects i64 arithmetic, folding constants and computing nothing twice."""

    def __init__(self, names: Names, loc: Loc) -> None:
        self.names = names
        self.loc = loc
        self.block: list[Stmt] = []
        self.known: dict[tuple[str, Operand, Operand], Var] = {}

    def op(self, name: str, a: Operand, b: Operand, hint: str = "t") -> Operand:
        """`a name b` for add, sub, mul, min, max, floordiv."""
        if isinstance(a, Const) and isinstance(b, Const):
            folded = fold(name, int(a.value), int(b.value))
            if folded is not None:
                return index(folded)
        if isinstance(b, Const):
            if (name, b.value) in (("add", 0), ("sub", 0), ("mul", 1), ("floordiv", 1)):
                return a
            if (name, b.value) == ("mul", 0):
                return index(0)
        if isinstance(a, Const) and (name, a.value) in (("add", 0), ("mul", 1)):
            return b
        if isinstance(a, Const) and (name, a.value) == ("mul", 0):
            return a
        result = self.known.get((name, a, b))
        if result is None:
            result = self.known[name, a, b] = self.names.fresh(hint)
            self.block.append(Op(name, (result,), (a, b), (), (), self.loc))
        return result

    def done(self) -> Block:
        return tuple(self.block)


def fold(name: str, a: int, b: int) -> int | None:
    """Integer arithmetic of constants, or None when it is not known here or leaves 64 bits."""
    match name:
        case "add":
            value = a + b
        case "sub":
            value = a - b
        case "mul":
            value = a * b
        case "min":
            value = min(a, b)
        case "max":
            value = max(a, b)
        case "floordiv":
            value = a // b if b else 0
        case "mod":
            value = a % b if b else 0
        case _:
            return None
    return value if -(2**63) <= value < 2**63 else None
