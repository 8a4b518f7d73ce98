# SPDX-License-Identifier: MIT
"""How many iterations of a divided loop go to a worker at a time, and nests of two divided loops as one.

A loop is cut into about 128 pieces, but none of less work than handing one over is worth (`PIECE`): a loop of little
work is one piece and runs where it stands.  The cost of an iteration comes from `cost`; where it or the number of
iterations depends on run-time values, so does the grain, by arithmetic in front of the loop.  Neither depends on the
number of workers, so results do not.

Only the outermost divided loop of a nest is divided.  Where it has few iterations and its body is another divided loop,
the iterations of the outer and *blocks* of the inner loop become one loop: 3 times 1,000,000 iterations are 129 pieces
and not 3.  The body stands once, and with many outer iterations a block is the whole inner loop.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,3x1000000,f32>) {
      FOR %i:idx, 0:idx, 3:idx, 1:idx {kind=parallel}
        FOR %j:idx, 0:idx, 1000000:idx, 1:idx {kind=parallel}
          ssetelem 1.0:f32, %x[%i, %j]
        ENDFOR
      ENDFOR
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,3x1000000,f32>) {
      FOR %i.block:idx, 0:idx, 21:idx, 1:idx {kind=parallel, grain=1}
        %first = sfloordiv %i.block, 7 : i64
        %b = smod %i.block, 7 : i64
        %i = scopy %first : i64
        %j_lo = smul %b, 160000 : i64
        %j_end = sadd %j_lo, 160000 : i64
        %j_hi = smin %j_end, 1000000 : i64
        FOR %j:idx, %j_lo:idx, %j_hi:idx, 1:idx {kind=parallel}
          ssetelem 1.0:f32, %x[%i, %j]
        ENDFOR
      ENDFOR
      return
    }
"""

from __future__ import annotations

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Call, Const, For, Func, If, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, blocks, map_funcs, with_blocks
from pto_jit.lower.cost import Estimate
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import BOOL, Names, Scalars, index, source_name
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

PIECE = 32_000_000  # picoseconds: about twice what waking another thread costs
PIECES = 128
_ALIGN = 64  # a block of scalar code is a multiple of this, so that whole vectors run
_DIVIDED = ("parallel", "chunk")


def choose_grains(module: Module, decisions: list[Decision]) -> Module:
    """Give every divided loop that no other one surrounds its grain; each choice is a `Decision`."""
    inside = _called_inside(module)

    def transform(func: Func) -> Func:
        if func.name in inside:
            return func
        grains = _Grains(module, func, decisions)
        body = grains.block(func.body)
        return func if body is func.body else replace(func, body=body)

    return map_funcs(module, transform)


class _Grains:
    def __init__(self, module: Module, func: Func, decisions: list[Decision]) -> None:
        self.module = module
        self.func = func
        self.decisions = decisions
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        if self._names is None:
            self._names = Names(self.func)
        return self._names

    def block(self, block: Block) -> Block:
        result: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, For) and stmt.kind in _DIVIDED:
                result += self.loop(stmt) if stmt.grain is None and not stmt.checked else (stmt,)
                continue
            inner = blocks(stmt) if not isinstance(stmt, Op) else ()
            result.append(with_blocks(stmt, tuple(self.block(b) for b in inner)) if inner else stmt)
        same = len(result) == len(block) and all(a is b for a, b in zip(result, block, strict=True))
        return block if same else tuple(result)

    def loop(self, loop: For) -> Block:
        out = Scalars(self.names, loop.loc)
        inner = _inner(loop)
        if inner is not None:
            collapsed = self.collapse(loop, inner, out)
            if collapsed is not None:
                return (*out.done(), collapsed)
            out = Scalars(self.names, loop.loc)
        estimate = Estimate(self.module, out)
        cost = estimate.iteration(loop)
        trips = estimate.trips(loop)
        grain = self.grain(cost, trips, out)
        self.tell((loop,), cost, grain, trips, "")
        return (*out.done(), replace(loop, grain=grain))

    def grain(self, cost: Operand, trips: Operand | None, out: Scalars) -> Operand:
        least = out.op("floordiv", index(PIECE), cost)
        if trips is None:  # the target divides by what it counts
            return out.op("max", least, index(1), "grain")
        share = out.op("floordiv", out.op("add", trips, index(PIECES - 1)), index(PIECES))
        return out.op("max", out.op("max", least, share), index(1), "grain")

    def tell(self, loops: tuple[For, ...], cost: Operand, grain: Operand, trips: Operand | None, more: str) -> None:
        price = "what an iteration costs depends on run-time extents"
        if isinstance(cost, Const):
            price = f"an iteration costs about {_time(int(cost.value))}"
        if not isinstance(grain, Const):
            reason = f"{price}; workers get pieces of at least {_time(PIECE)}, at most {PIECES} of them"
        elif isinstance(trips, Const) and grain.value >= trips.value:
            reason = f"{price}: {trips.value} of them are not worth another worker"
        else:
            reason = f"{price}; a worker gets {grain.value} iterations at a time"
        variables = tuple(source_name(loop.var.name) for loop in loops)
        self.decisions.append(Decision("grain", variables, True, reason + more, loops[0].loc))

    # -- two loops as one -------------------------------------------------------------------------------------------

    def collapse(self, outer: For, inner: For, out: Scalars) -> For | None:
        """The loop over outer iterations and blocks of the inner loop; None when the outer iterations are enough."""
        estimate = Estimate(self.module, out)
        cost = estimate.inside(outer, inner)
        rows, columns = _count(outer, out), _count(inner, out)
        if isinstance(rows, Const) and rows.value >= PIECES:
            return None
        least = out.op("floordiv", index(PIECE), cost)
        if isinstance(least, Const) and isinstance(columns, Const) and columns.value <= 2 * least.value:
            return None
        whole = out.op("mul", rows, columns)
        share = out.op("floordiv", out.op("add", whole, index(PIECES - 1)), index(PIECES))
        size = out.op("max", least, share)
        if inner.kind == "parallel":
            size = out.op("mul", out.op("floordiv", out.op("add", size, index(_ALIGN - 1)), index(_ALIGN)),
                          index(_ALIGN))  # fmt: skip
        size = out.op("max", out.op("min", size, columns), index(1), "size")
        parts = out.op("floordiv", out.op("add", columns, out.op("sub", size, index(1))), size, "blocks")
        if isinstance(parts, Const) and parts.value == 1:
            return None
        count = out.op("mul", rows, parts, "count")
        cost_of_block = estimate.times(cost, size)
        grain = self.grain(cost_of_block, count, out)

        names = self.names
        block = names.fresh(f"{outer.var.name}.block")
        body = Scalars(names, outer.loc)
        first, at = self.split(block, parts, body, out)
        row = body.op("add", first, outer.start)
        body.block.append(Op("copy", (outer.var,), (row,), (), (), outer.loc))
        head = outer.body[:-1]
        tail = Scalars(names, inner.loc)
        var = source_name(inner.var.name)
        low = tail.op("add", tail.op("mul", at, size, f"{var}_lo"), inner.start, f"{var}_lo")
        high = tail.op("min", tail.op("add", low, size, f"{var}_end"), inner.stop, f"{var}_hi")
        cut = replace(inner, start=low, stop=high)
        self.tell((outer, inner), cost, size, None, "; both loops are divided, the inner one in blocks")
        return replace(
            outer, var=block, start=index(0), stop=count, step=index(1), grain=grain,
            body=(*body.done(), *head, *tail.done(), cut),
        )  # fmt: skip

    def split(self, block: Var, parts: Operand, body: Scalars, out: Scalars) -> tuple[Operand, Operand]:
        """The outer iteration and the block of the inner loop; no division where a block is the whole inner loop."""
        first, at = self.names.fresh("first"), self.names.fresh("b")
        loc = body.loc
        divide: Block = (
            Op("floordiv", (first,), (block, parts), (), (), loc), Op("mod", (at,), (block, parts), (), (), loc)
        )  # fmt: skip
        if isinstance(parts, Const):
            body.block += divide
            return first, at
        one = self.names.fresh("whole", BOOL)
        out.block.append(Op("eq", (one,), (parts, index(1)), (), (), loc))
        keep: Block = (Op("copy", (first,), (block,), (), (), loc), Op("copy", (at,), (index(0),), (), (), loc))
        body.block.append(If(one, keep, divide, loc))
        return first, at


def _inner(loop: For) -> For | None:
    """A divided loop that is all that an iteration of `loop` does, the same one in every iteration."""
    if not loop.body or not isinstance(loop.body[-1], For):
        return None
    inner, head = loop.body[-1], loop.body[:-1]
    if inner.kind not in _DIVIDED or inner.checked or inner.grain is not None or inner.reductions or loop.reductions:
        return None
    if not all(_is_index_arithmetic(s) for s in head):
        return None
    if not all(isinstance(each.step, Const) and each.step.value == 1 for each in (loop, inner)):
        return None
    own = block_defs(loop.body) | {loop.var.name}
    if any(isinstance(b, Var) and b.name in own for b in (inner.start, inner.stop)):
        return None
    if any(v.name in own for v in free_vars(loop.body) if v.name != loop.var.name):
        return None  # a variable that an iteration leaves to the next one
    return inner


def _is_index_arithmetic(stmt: Stmt) -> bool:
    """What may run once per block instead of once per iteration."""
    if not isinstance(stmt, Op) or stmt.regions or stmt.op == "alloc" or effects(stmt.op) != "none":
        return False
    return not any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results))


def _count(loop: For, out: Scalars) -> Operand:
    """The number of iterations of a loop by 1, for any bounds."""
    if isinstance(loop.start, Const) and loop.start.value == 0:
        return out.op("max", loop.stop, index(0))
    span = out.op("sub", loop.stop, loop.start)
    if isinstance(span, Const):
        return index(max(int(span.value), 0))
    some, count = out.names.fresh("some", BOOL), out.names.fresh("count")
    out.block.append(Op("lt", (some,), (loop.start, loop.stop), (), (), loop.loc))
    out.block.append(Op("select", (count,), (some, span, index(0)), (), (), loop.loc))
    return count


def _called_inside(module: Module) -> set[str]:
    """Functions that run inside divided loops only: what they divide runs in order."""
    inside: set[str] = set()
    outside: set[str] = {module.entry}

    def walk(block: Block, divided: bool) -> None:
        for stmt in block:
            if isinstance(stmt, Call):
                (inside if divided else outside).add(stmt.callee)
            deeper = divided or (isinstance(stmt, For) and stmt.kind in _DIVIDED)
            for inner in blocks(stmt):
                walk(inner, deeper)

    for func in module.funcs:
        walk(func.body, func.name in inside and func.name not in outside)
    return inside - outside


def _time(picoseconds: int) -> str:
    for unit, size in (("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if picoseconds >= size:
            return f"{picoseconds / size:.3g} {unit}"
    return f"{picoseconds / 1000:.2g} ns"
