# SPDX-License-Identifier: MIT
"""Tiles whose extents a kernel reads from memory: kernels before it find the largest, for which it is made.

Before::

    FOR %i:idx, 0:idx, %count:idx, 1:idx {kind=parallel}
      %n = sgetelem %lengths[%i] : i64
      %x = tload %list[%i, 0] [1, %n]

After::

    %table = talloc [%count] : i64
    CALL @find(%table, ...)                        // %table[%i] = %n, the largest in each iteration
    CALL @most(%table, %found)                     // %found[0] = the largest of these and 1
    %bound = sgetelem %found[0] : i64              // the host waits
    FOR %i:idx, 0:idx, %count:idx, 1:idx {kind=parallel}
      %n = sgetelem %lengths[%i] : i64
      %n.least = smin %n, %bound : i64
      %x = tload %list[%i, 0] [1, %n.least]
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from pto_jit.dtypes import i64
from pto_jit.errors import Loc
from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, Func, If, Op, Operand, Stmt, Var, While
from pto_jit.ir.types import ScalarType, TensorType
from pto_jit.ir.walk import (
    TENSOR_VIEWS,
    block_defs,
    blocks,
    defs,
    rename,
    rewrite_block,
    statements,
    substitute,
    with_blocks,
)
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.slotted import replace
from pto_jit.targets.cuda.ceilings import ceilings
from pto_jit.targets.cuda.facts import changing
from pto_jit.targets.cuda.loops import written_tensor

_INDEX = ScalarType(i64)
_ZERO, _ONE = Const(0, _INDEX), Const(1, _INDEX)
Launch = Callable[[Block, str, list[Stmt]], None]


def bounded(body: Block, func: Func, fresh: Callable[[str], str], launch: Launch, out: list[Stmt]) -> Block:
    """The body of a kernel in which such extents do not exceed numbers that the host has.

    Statements that find the numbers are appended to `out`, kernels for that are made by `launch`.  Extents that depend
    on tiles or on what the kernel writes stay as they are.
    """
    asked = [v for s in statements(body) if isinstance(s, Op) for v in tile_extents(s)]
    if not asked:
        return body
    inner = Func(func.name, "incore", tuple(free_vars(body)), (), body, func.loc)
    mutable, varying = changing(inner)
    known = ceilings(inner, mutable, varying)
    extents = {v.name: v for v in asked if v.name in varying and v.name not in mutable and v.name not in known}
    if not extents:
        return body
    finder = _Finder(body, mutable)
    found = [v for v in extents.values() if finder.want(v)]
    loop = next((s for s in body if isinstance(s, For) and s.kind in ("parallel", "chunk", "in_chunk")), None)
    if not found or loop is None or {loop.start, loop.stop, loop.step} & set(finder.made):
        return body
    bounds = _Prelude(finder, loop, fresh, out).bounds(found, launch)
    return _limited(body, bounds, fresh)


def tile_extents(op: Op) -> list[Var]:
    """The operands that are extents of the tile which an operation makes."""
    rank = op.args[0].type.rank if op.args and not isinstance(op.args[0].type, ScalarType) else 0
    match op.op:
        case "load":
            args = op.args[1 + rank : 1 + 2 * rank]
        case "full" | "reshape" | "broadcast_to":
            args = op.args[1:] if not isinstance(op.results[0].type, TensorType) else ()
        case "arange":
            args = op.args[2:]
        case "tile_slice":
            args = op.args[1 + rank :]
        case _:
            args = ()
    return [a for a in args if isinstance(a, Var)]


class _Finder:
    """The part of a kernel that computes numbers, without tiles."""

    def __init__(self, body: Block, mutable: Collection[str]) -> None:
        self.body = body
        self.mutable = mutable
        self.made = {d.name: s for s in statements(body) if isinstance(s, Op) for d in defs(s)}
        self.around: dict[str, tuple[Stmt, ...]] = {}  # loops and branches around where a name is made
        self._note(body, ())
        self.written = {self._root(x) for s in statements(body) if (x := written_tensor(s)) is not None}
        self.kept: set[str] = set()

    def _note(self, block: Block, around: tuple[Stmt, ...]) -> None:
        for s in block:
            for d in defs(s):
                self.around[d.name] = around
            if isinstance(s, For):
                self.around[s.var.name] = (*around, s)
            for inner in blocks(s):
                self._note(inner, (*around, s))

    def _root(self, tensor: Operand) -> str:
        assert isinstance(tensor, Var)
        made = self.made.get(tensor.name)
        return self._root(made.args[0]) if made is not None and made.op in TENSOR_VIEWS else tensor.name

    def want(self, extent: Var) -> bool:
        """Keep what a number is made of; False, and nothing is kept, where that is more than numbers and elements that
        the kernel does not write."""
        needed: set[str] = set()
        work: list[Var] = [extent]
        while work:
            var = work.pop()
            if var.name in needed or var.name not in self.around:
                continue
            needed.add(var.name)
            op = self.made.get(var.name)
            if var.name in self.mutable or (op is not None and not self._computable(op)):
                return False
            for stmt in self.around[var.name]:
                if isinstance(stmt, While):
                    return False
                heads = (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else (
                    (stmt.cond,) if isinstance(stmt, If) else ())  # fmt: skip
                work += [o for o in heads if isinstance(o, Var)]
            work += [o for o in (op.args if op is not None else ()) if isinstance(o, Var)]
        self.kept |= needed
        return True

    def _computable(self, op: Op) -> bool:
        if op.op == "getelem":
            return self._root(op.args[0]) not in self.written
        numbers = isinstance(op.results[0].type, ScalarType) and all(
            isinstance(a.type, ScalarType) for a in op.args) and is_elementwise(op)  # fmt: skip
        return op.op == "dim" or op.op in TENSOR_VIEWS or numbers

    def slice(self, block: Block, after: dict[str, Stmt]) -> Block:
        """The kept part of a block; `after`: a statement to put behind the one that makes a name."""
        out: list[Stmt] = []
        for s in block:
            if isinstance(s, Op):
                if any(d.name in self.kept for d in defs(s)):
                    out.append(s)
                    out += [after[d.name] for d in defs(s) if d.name in after]
            elif isinstance(s, (For, If)):
                parts = tuple(self.slice(b, after) for b in blocks(s))
                if any(parts):
                    kept = with_blocks(s, parts)
                    out.append(replace(kept, reductions=()) if isinstance(kept, For) else kept)
        return tuple(out)


class _Prelude:
    """The kernels that find the largest of some numbers, and the host code around them."""

    def __init__(self, finder: _Finder, loop: For, fresh: Callable[[str], str], out: list[Stmt]) -> None:
        self.finder = finder
        self.loop = loop
        self.loc: Loc = loop.loc
        self.fresh = fresh
        self.out = out

    def bounds(self, extents: list[Var], launch: Launch) -> dict[str, Var]:
        """The host's number for each extent."""
        loop = self.loop
        count = self._count()
        size = self._number("mul", count, Const(len(extents), _INDEX), out=self.out)
        table = self._memory("table", size)
        found = self._memory("found", Const(len(extents), _INDEX))
        names = [Var(self.fresh(f"{v.name}.most"), _INDEX) for v in extents]
        after: dict[str, Stmt] = {v.name: Op("max", (m,), (m, v), (), (), self.loc)
                                  for v, m in zip(extents, names, strict=True)}  # fmt: skip
        body = self._renamed(self.finder.slice(self.finder.body, after), loop, names, count, table)
        launch(body, f"{extents[0].name}_most", self.out)
        at = Var(self.fresh("at"), _INDEX)
        best = [Var(self.fresh(f"{v.name}.best"), _INDEX) for v in extents]
        inside: list[Stmt] = []
        for k, b in enumerate(best):
            place = self._place(at, k, count, inside)
            element = Var(self.fresh("element"), _INDEX)
            inside.append(Op("getelem", (element,), (table, place), (), (), self.loc))
            inside.append(Op("max", (b,), (b, element), (), (), self.loc))
        fold: list[Stmt] = [Op("copy", (b,), (_ONE,), (), (), self.loc) for b in best]  # no tile is smaller
        fold.append(For("combine", at, _ZERO, count, _ONE, tuple(inside), loc=self.loc))
        fold += [Op("setelem", (), (b, found, Const(k, _INDEX)), (), (), self.loc) for k, b in enumerate(best)]
        launch(tuple(fold), f"{extents[0].name}_bound", self.out)
        out: dict[str, Var] = {}
        for k, v in enumerate(extents):
            bound = Var(self.fresh(f"{v.name}.bound"), _INDEX)
            self.out.append(Op("getelem", (bound,), (found, Const(k, _INDEX)), (), (), self.loc))
            out[v.name] = bound
        return out

    def _renamed(self, body: Block, loop: For, names: list[Var], count: Operand, table: Var) -> Block:
        """The finding kernel with names of its own: every iteration of the outer loop puts the largest numbers that it
        meets into the table."""
        out: list[Stmt] = []
        for s in body:
            if not (isinstance(s, For) and s.var == loop.var):
                out.append(s)
                continue
            kept: list[Stmt] = [Op("copy", (m,), (_ZERO,), (), (), self.loc) for m in names]
            ends: list[Stmt] = []
            step = self._number("sub", s.var, s.start, out=ends)
            index = self._number("floordiv", step, s.step, out=ends)
            for k, m in enumerate(names):
                place = self._place(index, k, count, ends)
                ends.append(Op("setelem", (), (m, table, place), (), (), self.loc))
            inside = rewrite_block(s.body, lambda t: replace(t, kind="sequential") if isinstance(t, For) else None)
            out.append(replace(s, kind="parallel", grain=None, body=(*kept, *inside, *ends)))
        fresh = {name: self.fresh(name) for name in sorted(block_defs(tuple(out)))}
        return rename(tuple(out), fresh)

    def _place(self, at: Operand, k: int, count: Operand, out: list[Stmt]) -> Operand:
        """Where the k-th number of iteration `at` is in the table."""
        if k == 0:
            return at
        first = self._number("mul", count, Const(k, _INDEX), out=out)
        return self._number("add", first, at, out=out)

    def _count(self) -> Operand:
        """How many iterations the outer loop has."""
        loop = self.loop
        if loop.start == _ZERO and loop.step == _ONE:
            return self._number("max", loop.stop, _ZERO, out=self.out)
        length = self._number("sub", loop.stop, loop.start, out=self.out)
        padded = self._number("sub", self._number("add", length, loop.step, out=self.out), _ONE, out=self.out)
        trips = self._number("floordiv", padded, loop.step, out=self.out)
        return self._number("max", trips, _ZERO, out=self.out)

    def _number(self, op: str, *args: Operand, out: list[Stmt]) -> Var:
        result = Var(self.fresh("index"), _INDEX)
        out.append(Op(op, (result,), args, (), (), self.loc))
        return result

    def _memory(self, wish: str, size: Operand) -> Var:
        shape = (int(size.value),) if isinstance(size, Const) else (None,)
        memory = Var(self.fresh(wish), TensorType(i64, shape, "c"))
        self.out.append(Op("alloc", (memory,), (size,), (("dtype", i64),), (), self.loc))
        return memory


def _limited(body: Block, bounds: dict[str, Var], fresh: Callable[[str], str]) -> Block:
    """Tiles take the smaller one of their extents and its bound."""
    least = {name: Var(fresh(f"{name}.least"), _INDEX) for name in bounds}

    def limited(s: Stmt) -> Stmt | Block | None:
        if not isinstance(s, Op):
            return None
        now = s
        if any(v.name in least for v in tile_extents(s)):
            now = substitute((s,), dict(least))[0]
        own = [d for d in defs(s) if d.name in least]
        if own:
            return (now, *(Op("min", (least[d.name],), (d, bounds[d.name]), (), (), s.loc) for d in own))
        return None if now is s else now

    return rewrite_block(body, limited)
