# SPDX-License-Identifier: MIT
"""How many iterations of a divided loop go to a worker at a time, and nests of divided loops as one.

A loop is cut into about 128 pieces, but none of less work than handing one over is worth (`PIECE`): a loop of little
work is one piece and runs where it stands.  The cost of an iteration comes from `cost`; where it or the number of
iterations depends on run-time values, so does the grain, by arithmetic in front of the loop.  Neither depends on the
number of workers, so results do not.

Only the outermost divided loop of a nest is divided.  Where it has few iterations and its body is another divided loop,
the iterations of the outer and *blocks* of the inner loop become one loop: 3 times 1,000,000 iterations are 129 pieces
and not 3.  The same goes for the loop inside of that, and so on: a block of the outer of two inner loops is one
iteration unless the inner one is whole.  The body stands once, and with many outer iterations a block is all of the
inner loops.

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

from collections.abc import Sequence
from functools import reduce

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Call, Const, For, Func, Fuse, If, Module, Op, Operand, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_defs, blocks, map_funcs, statements, with_blocks
from pto_jit.lower.cost import Estimate, is_vector
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import BOOL, Names, Scalars, index, source_name
from pto_jit.semantic.table import effects
from pto_jit.slotted import replace

PIECE = 32_000_000  # picoseconds: about twice what waking another thread costs
PIECES = 128
_ALIGN = 64  # a block of scalar code is a multiple of this, so that whole vectors run
_SPREAD = 32  # ... and of this where loops are inside, around which iterations may be the lanes of vectors
_STRIDE = 1 << 20  # of loops that are divided together: the arithmetic of their ends does not wrap
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
        nest = _nest(loop)
        while len(nest) > 1:
            out = Scalars(self.names, loop.loc)
            collapsed = self.collapse(nest, out)
            if collapsed is not None:
                return (*out.done(), collapsed)
            nest = nest[:-1]
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

    def tell(self, loops: Sequence[For], cost: Operand, grain: Operand, trips: Operand | None, more: str) -> None:
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

    # -- loops as one -------------------------------------------------------------------------------------------------

    def collapse(self, nest: Sequence[For], out: Scalars) -> For | None:
        """The loop over iterations of the outermost loop and blocks of the others; None when there is no need to cut
        the innermost one."""
        outer, inner = nest[0], nest[1:]
        estimate = Estimate(self.module, out)
        cost = estimate.inside(outer, inner[-1])
        rows, *counts = (_count(loop, out) for loop in nest)
        around = _product((rows, *counts[:-1]), out)
        if isinstance(around, Const) and around.value >= PIECES:
            return None
        least = out.op("floordiv", index(PIECE), cost)
        columns = counts[-1]
        if isinstance(least, Const) and isinstance(columns, Const) and columns.value <= 2 * least.value:
            return None
        whole = out.op("mul", around, columns)
        share = out.op("floordiv", out.op("add", whole, index(PIECES - 1)), index(PIECES))
        sizes = self.sizes(inner, counts, out.op("max", least, share), out)
        parts = [
            out.op("floordiv", out.op("add", count, out.op("sub", size, index(1))), size, "blocks")
            for count, size in zip(counts, sizes, strict=True)
        ]
        if parts[-1] == index(1):
            return None
        count = out.op("mul", rows, _product(parts, out), "count")
        size = _product(sizes, out)
        grain = self.grain(estimate.times(cost, size), count, out)

        block = self.names.fresh(f"{outer.var.name}.block")
        body = Scalars(self.names, outer.loc)
        first, *places = self.split(block, parts, body, out)
        row = body.op("add", body.op("mul", first, outer.step), outer.start)
        body.block.append(Op("copy", (outer.var,), (row,), (), (), outer.loc))
        made: list[Stmt] = []
        cut: Block = inner[-1].body
        for k in reversed(range(len(inner))):
            loop, tail, var = inner[k], Scalars(self.names, inner[k].loc), source_name(inner[k].var.name)
            if parts[k] != index(1):
                span = out.op("mul", sizes[k], loop.step)
                low = tail.op("add", tail.op("mul", places[k], span, f"{var}_lo"), loop.start, f"{var}_lo")
                high = tail.op("min", tail.op("add", low, span, f"{var}_end"), loop.stop, f"{var}_hi")
                loop = replace(loop, start=low, stop=high)
            made += tail.block
            cut = (*nest[k].body[:-1], replace(loop, body=cut)) if k else (replace(loop, body=cut),)
        more = "the inner one in blocks" if len(inner) == 1 else "the inner ones in blocks"
        self.tell(nest, cost, size, None, f"; {'both' if len(inner) == 1 else 'all'} loops are divided, {more}")
        return replace(
            outer, var=block, start=index(0), stop=count, step=index(1), grain=grain,
            body=(*body.done(), *outer.body[:-1], *made, *cut),
        )  # fmt: skip

    def sizes(self, inner: Sequence[For], counts: Sequence[Operand], size: Operand, out: Scalars) -> list[Operand]:
        """How many iterations of each inner loop are a block of `size` iterations of the innermost one, or somewhat
        more: one of each loop around a loop that is cut."""
        unit = _lanes(inner[-1])
        mine = out.op("mul", out.op("floordiv", out.op("add", size, index(unit - 1)), index(unit)), index(unit))
        result: list[Operand] = [out.op("max", out.op("min", mine, counts[-1]), index(1), "size")]
        inside = counts[-1]
        for count in reversed(counts[:-1]):
            inside = out.op("max", inside, index(1))
            many = out.op("floordiv", out.op("add", size, out.op("sub", inside, index(1))), inside)
            result.insert(0, out.op("max", out.op("min", many, count), index(1), "size"))
            inside = out.op("mul", inside, count)
        return result

    def split(self, block: Var, parts: Sequence[Operand], body: Scalars, out: Scalars) -> list[Operand]:
        """The outer iteration and the blocks of the inner loops; no division where a block is all of these."""
        first = self.names.fresh("first")
        places: list[Operand] = [index(0)] * len(parts)
        left, loc = block, body.loc
        divide: list[Stmt] = []
        keep: list[Stmt] = [Op("copy", (first,), (block,), (), (), loc)]
        cut = [k for k, part in enumerate(parts) if part != index(1)]
        for k in reversed(cut):
            places[k] = at = self.names.fresh("b")
            rest = first if k == cut[0] else self.names.fresh("rest")
            divide.append(Op("floordiv", (rest,), (left, parts[k]), (), (), loc))
            divide.append(Op("mod", (at,), (left, parts[k]), (), (), loc))
            keep.append(Op("copy", (at,), (index(0),), (), (), loc))
            left = rest
        each = _product(parts, out)
        if isinstance(each, Const):
            body.block += divide
            return [first, *places]
        one = self.names.fresh("whole", BOOL)
        out.block.append(Op("eq", (one,), (each, index(1)), (), (), loc))
        body.block.append(If(one, tuple(keep), tuple(divide), loc))
        return [first, *places]


def _product(factors: Sequence[Operand], out: Scalars) -> Operand:
    return reduce(lambda a, b: out.op("mul", a, b), factors)


def _nest(loop: For) -> tuple[For, ...]:
    """A divided loop and those inside of it that can be divided with it: each is all that an iteration of the one
    around it does, the same in every iteration of all of them."""
    own, found = block_defs(loop.body) | {loop.var.name}, [loop]
    while (inner := _inner(found[-1])) is not None:
        if any(isinstance(b, Var) and b.name in own for b in (inner.start, inner.stop)):
            break
        found.append(inner)
    return tuple(found)


def _inner(loop: For) -> For | None:
    """A divided loop that is all that an iteration of `loop` does."""
    if not loop.body or not isinstance(loop.body[-1], For):
        return None
    inner, head = loop.body[-1], loop.body[:-1]
    if inner.kind not in _DIVIDED or inner.checked or inner.grain is not None or inner.reductions or loop.reductions:
        return None
    if not all(_is_index_arithmetic(s) for s in head):
        return None
    if not all(isinstance(each.step, Const) and 0 < each.step.value <= _STRIDE for each in (loop, inner)):
        return None
    own = block_defs(loop.body) | {loop.var.name}
    if any(v.name in own for v in free_vars(loop.body) if v.name != loop.var.name):
        return None  # a variable that an iteration leaves to the next one
    return inner


def _lanes(loop: For) -> int:
    """What the length of a block of a loop is a multiple of: of iterations that may be the lanes of vectors."""
    if loop.kind != "parallel":
        return 1
    if is_vector(loop):
        return _ALIGN
    for stmt in statements(loop.body):
        if isinstance(stmt, For) and (stmt.kind != "sequential" or stmt.proof):
            return 1  # the lanes are those of the loop inside
        if isinstance(stmt, Call | Fuse):
            return 1
        if isinstance(stmt, Op) and any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results)):
            return 1
    return _SPREAD


def _is_index_arithmetic(stmt: Stmt) -> bool:
    """What may run once per block instead of once per iteration."""
    if not isinstance(stmt, Op) or stmt.regions or stmt.op == "alloc" or effects(stmt.op) != "none":
        return False
    return not any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results))


def _count(loop: For, out: Scalars) -> Operand:
    """The number of iterations of a loop upwards, for any bounds."""
    if isinstance(loop.start, Const) and loop.start.value == 0:
        return _steps(out.op("max", loop.stop, index(0)), loop, out)
    span = out.op("sub", loop.stop, loop.start)
    if isinstance(span, Const):
        return _steps(index(max(int(span.value), 0)), loop, out)
    some, count = out.names.fresh("some", BOOL), out.names.fresh("count")
    out.block.append(Op("lt", (some,), (loop.start, loop.stop), (), (), loop.loc))
    out.block.append(Op("select", (count,), (some, span, index(0)), (), (), loop.loc))
    return _steps(count, loop, out)


def _steps(span: Operand, loop: For, out: Scalars) -> Operand:
    return out.op("floordiv", out.op("add", span, out.op("sub", loop.step, index(1))), loop.step)


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
