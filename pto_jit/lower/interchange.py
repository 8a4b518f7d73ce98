# SPDX-License-Identifier: MIT
"""Exchange loops of perfect nests of element accesses, so that the innermost one runs along contiguous memory.

A loop that is innermost costs, for each element access, nothing where the access does not depend on it, little where it
moves to the next element of the last axis, much where it moves along another axis.  The loops of a nest are ordered by
this cost, the cheapest one inside ("memory order": K. S. McKinley, S. Carr and C.-W. Tseng, "Improving data locality
with loop transformations", TOPLAS 1996), by exchanges of neighbours.  Each exchange is free where the outer loop is
divided, and otherwise made only when the dependences allow it; a refused one is a `Decision` with the two accesses.  A
parallel loop that would end up inside a sequential one is divided into chunks first, so that its iterations stay spread
over the workers.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %n: i64, %m: i64) {
      FOR %j:idx, 0:idx, %m:idx, 1:idx
        FOR %i:idx, 0:idx, %n:idx, 1:idx
          %v = sgetelem %x[%i, %j] : f32
          %w = smul %v, 2.0:f32 : f32
          ssetelem %w, %x[%i, %j]
        ENDFOR
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?x?,f32>, %n: i64, %m: i64) {
      FOR %i:idx, 0:idx, %n:idx, 1:idx
        FOR %j:idx, 0:idx, %m:idx, 1:idx
          %v = sgetelem %x[%i, %j] : f32
          %w = smul %v, 2.0:f32 : f32
          ssetelem %w, %x[%i, %j]
        ENDFOR
      ENDFOR
      return
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pto_jit.ir.flow import free_vars, is_left
from pto_jit.ir.nodes import Block, Const, For, Func, Fuse, Module, Op, Scope, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import (
    TENSOR_VIEWS,
    block_defs,
    blocks,
    def_counts,
    defs,
    map_funcs,
    statements,
    use_counts,
    uses,
    with_blocks,
)
from pto_jit.lower.chunk import take_apart
from pto_jit.lower.decisions import Decision
from pto_jit.lower.dependence import Access, Dependences, Loop
from pto_jit.lower.names import Names, Scalars, index, source_name
from pto_jit.semantic.table import effects
from pto_jit.slotted import field, frozen, mutable, replace

EXCHANGED = ("sequential", "parallel", "in_chunk")
_FAR = 16  # what a step to another cache line costs against one along a line
_INSIDE = 8  # how often a loop inside is taken to run
_LEAST = 64  # iterations in a chunk of a parallel loop that has to be divided
_SOME, _LONG = (8, 256), (32, 1024)  # so many chunks up to such a length of them: long rows of memory matter more


def interchange_loops(module: Module, decisions: list[Decision]) -> Module:
    """Exchange loops for locality in all functions; each exchange considered is a `Decision`."""

    def transform(func: Func) -> Func:
        if not any(isinstance(s, Op) and s.op in ("getelem", "setelem") for s in statements(func.body)):
            return func
        return _Interchange(func, Dependences(func, module), decisions).run()

    return map_funcs(module, transform)


@frozen
class Band:
    """A perfect nest: its loops from the outside, the pure statements between them, the innermost body."""

    loops: list[For]
    between: list[Op]
    body: Block


@mutable
class _Interchange:
    func: Func
    dependences: Dependences
    decisions: list[Decision]
    names: Names | None = None
    uses: Counter[str] = field(default_factory=Counter)
    assigned: Counter[str] = field(default_factory=Counter)

    def run(self) -> Func:
        body = self.block(self.func.body, divided=False)
        return self.func if body is self.func.body else replace(self.func, body=body)

    def block(self, block: Block, *, divided: bool) -> Block:
        """The nests in a block; `divided`: it runs on one worker of several."""
        out: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, For):
                made = self.nest(stmt, divided=divided)
                out += (stmt,) if made is None else made
            elif isinstance(stmt, Op) or not (inner := blocks(stmt)):
                out.append(stmt)
            else:
                out.append(with_blocks(stmt, tuple(self.block(b, divided=divided) for b in inner)))
        same = len(out) == len(block) and all(a is b for a, b in zip(out, block, strict=True))
        return block if same else tuple(out)

    def nest(self, loop: For, *, divided: bool) -> Block | None:
        """What takes the place of a loop, None when it stays as it is."""
        band = band_of(loop, self._assigned())
        if band is not None and _is_elements(band.body):
            return self.ordered(band, divided=divided)
        if band is None:
            self._bound(loop)
        body = self.block(loop.body, divided=divided or loop.kind in ("parallel", "chunk"))
        return None if body is loop.body else (replace(loop, body=body),)

    def _assigned(self) -> Counter[str]:
        if not self.assigned:
            self.assigned = def_counts(self.func.body)
        return self.assigned

    def _bound(self, loop: For) -> None:
        """Say so when two loops of elements would be exchanged, were it not for the bounds of the inner one."""
        last = loop.body[-1] if loop.body else None
        if not isinstance(last, For) or not (_is_exchangeable(loop) and _is_exchangeable(last)):
            return
        if not all(is_pure(s) for s in loop.body[:-1]) or not _is_elements(last.body):
            return
        dependent = _dependent([s for s in loop.body[:-1] if isinstance(s, Op)], {loop.var.name})
        if not dependent & {v.name for v in uses(last)}:
            return
        outer, inner = self.dependences.loop(loop), self.dependences.loop(last)
        if outer is None or inner is None:
            return
        accesses = self.dependences.found.inside(inner)
        if 2 * self._cost(outer, inner, accesses) <= self._cost(inner, inner, accesses):
            self._decide((last, loop), False, f"the bounds of `{inner.name}` depend on `{outer.name}`")

    # -- one nest -------------------------------------------------------------------------------------------------

    def ordered(self, band: Band, *, divided: bool) -> Block | None:
        found = self.dependences.found
        loops = {stmt.var.name: loop for stmt in band.loops if (loop := self.dependences.loop(stmt)) is not None}
        if len(loops) != len(band.loops):
            return None
        accesses = found.inside(loops[band.loops[-1].var.name])
        costs = {name: self._cost(loop, loops[band.loops[-1].var.name], accesses) for name, loop in loops.items()}
        wanted = sorted(band.loops, key=lambda stmt: -costs[stmt.var.name])
        old, new = band.loops[-1], wanted[-1]
        if new is old or 2 * costs[new.var.name] > costs[old.var.name]:
            return None
        reason = self._fixed(band)
        if reason is not None:
            self._decide((new, old), False, reason)
            return None
        top = band.loops[0]
        shared = not divided and top.kind == "parallel"  # the workers share this loop
        if shared and not (isinstance(top.step, Const) and top.step.value > 0):
            if new is top:
                self._decide((old, top), False, f"`{source_name(top.var.name)}` has no positive constant step")
                return None
            wanted = [top, *(stmt for stmt in wanted if stmt is not top)]  # it cannot be cut into chunks
        around = [found.loops[n] for n in loops[top.var.name].outer[:-1]]
        order = self._sorted(band.loops, wanted, loops, around)
        if order[-1] is old:
            return None
        if shared and order[0].kind == "sequential":
            return self._in_chunks(replace(band, loops=order), top)
        return rebuilt(band, order)

    def _sorted(
        self, current: list[For], wanted: list[For], loops: dict[str, Loop], around: list[Loop]
    ) -> list[For]:
        """`current` with the exchanges of neighbours that bring it towards `wanted`, as far as they are legal."""
        rank = {stmt.var.name: k for k, stmt in enumerate(wanted)}
        order = list(current)
        asked: set[tuple[str, str]] = set()
        moved = True
        while moved:
            moved = False
            for k in range(len(order) - 2, -1, -1):
                outer, inner = order[k], order[k + 1]
                pair = (outer.var.name, inner.var.name)
                if rank[pair[0]] < rank[pair[1]] or pair in asked:
                    continue
                outside = [*around, *(loops[stmt.var.name] for stmt in order[:k])]
                answer = self.dependences.may_exchange(loops[pair[0]], loops[pair[1]], outside)
                self._decide((inner, outer), answer.proven, answer.reason)
                if answer.proven:
                    order[k : k + 2] = [inner, outer]
                    moved = True
                else:
                    asked.add(pair)
        return order

    def _decide(self, pair: tuple[For, For], applied: bool, reason: str) -> None:
        inner, outer = pair
        if applied:
            reason = f"`{source_name(outer.var.name)}` runs inside, along contiguous memory: {reason}"
        names = (source_name(inner.var.name), source_name(outer.var.name))
        self.decisions.append(Decision("interchange", names, applied, reason, inner.loc))

    def _cost(self, loop: Loop, innermost: Loop, accesses: Sequence[Access]) -> int:
        """What the accesses cost when `loop` is the innermost one."""
        return sum(_access_cost(self.dependences, loop, a) * _INSIDE ** (len(a.stack) - len(innermost.outer))
                   for a in accesses)  # fmt: skip

    def _fixed(self, band: Band) -> str | None:
        """Why the order of the iterations cannot change whatever the accesses are."""
        inside = block_defs(band.body)
        carried = [v.name for v in free_vars(band.body) if v.name in inside]
        if carried:
            return f"`{source_name(carried[0])}` is carried from one iteration to the next"
        if is_left(band.body):
            return "the nest is left by break or return"
        if not self.uses:
            self.uses = use_counts(self.func.body)
        mine = use_counts((band.loops[0],))
        assigned = inside | {r.name for op in band.between for r in op.results}
        for name in sorted(assigned):
            if self.uses[name] > mine[name]:
                return f"`{source_name(name)}` is used after the nest"
        return None

    def _in_chunks(self, band: Band, loop: For) -> Block:
        """The nest in chunks of its outermost loop, the other loops inside each chunk."""
        if self.names is None:
            self.names = Names(self.func)
        name = source_name(loop.var.name)
        scalars = Scalars(self.names, loop.loc)
        span = scalars.op("sub", loop.stop, loop.start)
        some, long = (
            scalars.op("min", scalars.op("floordiv", span, index(pieces)), index(length))
            for pieces, length in (_SOME, _LONG)
        )
        size = scalars.op("max", scalars.op("max", some, long), index(_LEAST), f"{name}_size")
        apart = take_apart(replace(loop, body=(), chunk=size), self.names, self.decisions, given=False)
        inside = rebuilt(band, [apart.in_chunk if stmt is loop else stmt for stmt in band.loops])
        reason = "divided so that the workers share it and other loops run inside"
        self.decisions.append(Decision("chunk", (name,), True, reason, loop.loc))
        return (*scalars.done(), *apart.before, replace(apart.chunk, body=(*apart.head, *inside)))


# -- nests ----------------------------------------------------------------------------------------------------------


def band_of(loop: For, assigned: Counter[str]) -> Band | None:
    """The largest perfect nest of exchangeable loops with independent bounds that starts with `loop`; None if it is
    one loop.  `assigned` counts the assignments of each variable: only values may stand between the loops."""
    if not _is_exchangeable(loop):
        return None
    loops, between, dependent = [loop], [], {loop.var.name}
    body = loop.body
    while body and isinstance(body[-1], For) and _is_exchangeable(body[-1]) and all(is_pure(s) for s in body[:-1]):
        inner = body[-1]
        level = [s for s in body[:-1] if isinstance(s, Op)]
        if any(assigned[r.name] > 1 for op in level for r in op.results):
            break
        dependent = _dependent(level, dependent)
        bounds = {v.name for v in uses(inner)}
        made = {r.name for op in level for r in op.results}
        if bounds & dependent or (bounds & made and any(op.op != "dim" and op.op in TENSOR_VIEWS for op in level)):
            break
        between += level
        loops.append(inner)
        dependent.add(inner.var.name)
        body = inner.body
    return Band(loops, between, body) if len(loops) > 1 else None


def _dependent(level: list[Op], names: set[str]) -> set[str]:
    """`names`, and what the operations compute from them."""
    out = set(names)
    for op in level:
        if _reads(op) & out:
            out |= {r.name for r in op.results}
    return out


def rebuilt(band: Band, order: list[For]) -> Block:
    """The nest with its loops in another order; each pure statement stands as far out as its operands allow, views
    (which are checked) inside all loops."""
    depth = {stmt.var.name: k + 1 for k, stmt in enumerate(order)}
    levels: list[list[Stmt]] = [[] for _ in range(len(order) + 1)]
    for op in band.between:
        at = max((depth[name] for name in _reads(op) if name in depth), default=0)
        if op.op in TENSOR_VIEWS:
            at = len(order)
        depth.update({r.name: at for r in op.results})
        levels[at].append(op)
    body: Block = (*levels[-1], *band.body)
    for k in range(len(order) - 1, -1, -1):
        body = (*levels[k], replace(order[k], body=body))
    return body


def is_pure(stmt: Stmt) -> bool:
    """Scalar arithmetic and views: the same wherever it stands."""
    if not isinstance(stmt, Op) or stmt.regions or effects(stmt.op) != "none" or stmt.op == "alloc":
        return False
    return not any(isinstance(v.type, TileType) for v in (*stmt.results, *stmt.args))


def _is_exchangeable(loop: For) -> bool:
    return loop.kind in EXCHANGED and loop.chunk is None and not loop.reductions and not loop.checked


def _reads(op: Op) -> set[str]:
    return {a.name for a in op.args if isinstance(a, Var)}


def _is_elements(body: Block) -> bool:
    """Whether a block works on elements alone."""
    elements = False
    for stmt in statements(body):
        if isinstance(stmt, Op):
            elements |= stmt.op in ("getelem", "setelem")
            if any(isinstance(v.type, TileType) for v in (*stmt.results, *stmt.args)):
                return False
        elif isinstance(stmt, (Scope, Fuse)) or any(isinstance(v.type, TileType) for v in defs(stmt)):
            return False
    return elements


def _access_cost(dependences: Dependences, loop: Loop, access: Access) -> int:
    """0: the same element; 1: the next one; more: another line of memory, the further out the axis, the more."""
    atoms = dependences.found.values.atoms
    rank = len(access.spans)
    if not access.space.contiguous:
        return 0  # nothing is known of the strides
    cost = 0
    for axis, span in enumerate(access.spans):
        if span.low is None:
            continue
        for number, k in span.low.terms:
            if number == loop.atom and axis == rank - 1:
                cost = max(cost, min(abs(k), _FAR))
            elif loop.number in atoms[number].varies:
                cost = max(cost, _FAR + rank - 1 - axis)
    return cost
