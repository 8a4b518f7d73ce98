# SPDX-License-Identifier: MIT
"""Parallel loops directly inside each other that reduce the same, and their chunks.

All of them are parallel, so their chunk loops may stand outside of all in_chunk loops.  A loop without `chunk` gets
one that depends on its extent alone: in the whole nest so many partial results as `Division` says at most, each of
enough work to be worth it.

The function of an explicit reduction need not be commutative, so its states are combined in the order of the source.
Chunks that the compiler chooses keep to it: either an outer loop has one iteration per chunk, or the loops inside have
one chunk.  Chunks that are given do not: iterations of the outer loop would stand between those of the inner one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import Block, Const, For, If, Op, Operand, Reduction, Region, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import defs, statements
from pto_jit.lower.chunk import Expansion, take_apart
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import BOOL, Names, Scalars, index, source_name
from pto_jit.lower.reductions.arrays import find_arrays
from pto_jit.lower.reductions.partials import State, has_tiles
from pto_jit.lower.reductions.places import Subscripts
from pto_jit.lower.reductions.recognise import states_of
from pto_jit.semantic.failures import STEP
from pto_jit.semantic.table import effects
from pto_jit.slotted import frozen, replace

ELEMENTS = 1 << 22  # elements of all copies of a tensor together, where the compiler chooses
ALIGN = 64  # a chunk of scalar code is a multiple of this, so that whole vectors run


@frozen
class Division:
    """How the compiler divides a nest: into `parts` partial results at most, each of `grain` iterations of scalar code
    at least."""

    parts: int
    grain: int


USUAL = Division(64, 8192)
MANY_BLOCKS = Division(4096, 2048)
"""For GPUs, one block of threads a part: they only reach the bandwidth of their memory where every multiprocessor has
several blocks, and some thousand numbers are merged by one block in no time."""
MANY_MERGES = Division(1024, 8192)
"""The same where functions merge: in a block these take longer than what a thread computes of a short part."""
MANY_TILES = Division(512, 8192)
"""The same of tiles, which are merged in two steps."""


def division_of(states: Sequence[State], device: str | None) -> Division:
    """How a nest that reduces into such states, and no arrays, is divided for a target."""
    if device != "cuda" or any(state.flagged for state in states):
        return USUAL
    if any(map(has_tiles, states)):
        return MANY_TILES
    return MANY_MERGES if any(isinstance(state.combine, Region) for state in states) else MANY_BLOCKS


@frozen
class Nest:
    """`loops` from the outside in, `heads` the statements between one and the next, `body` that of the innermost."""

    loops: tuple[For, ...]
    heads: tuple[Block, ...]
    states: tuple[State, ...]
    body: Block


def find_nest(
    loop: For, states: Sequence[State], live: frozenset[str], views: dict[str, str], decisions: list[Decision]
) -> Nest:
    """`loop` with the loops inside it that can be split together with it."""
    nest = Nest((loop,), (), tuple(states), loop.body)
    while True:
        inner = _inner(nest, live, views)
        if inner is None:
            return nest
        ordered = [state.name for state in nest.states if isinstance(state.combine, Region)]
        if ordered and not _keeps_order(inner.loops):
            pair = (source_name(inner.loops[-1].var.name), source_name(nest.loops[-1].var.name))
            reason = f"`{ordered[0]}` is combined in the order of the source, as its function may not commute"
            decisions.append(Decision("interchange", pair, False, reason, inner.loops[-1].loc))
            return nest
        nest = inner


def _keeps_order(loops: Sequence[For]) -> bool:
    """Whether the chunks of all loops, one after the other, have the iterations in the order of the source."""
    outer = 0
    while outer < len(loops) - 1 and loops[outer].chunk == index(1):
        outer += 1
    return outer == len(loops) - 1 or all(one.chunk is None for one in loops[outer:])


def may_have_empty_chunks(loop: For) -> bool:
    """Whether there may be chunks without an iteration: those between borders that a step goes over."""
    return loop.chunk is not None and loop.policy == "aligned" and loop.step != index(1)


def _inner(nest: Nest, live: frozenset[str], views: dict[str, str]) -> Nest | None:
    outer, body = nest.loops[-1], nest.body
    places = [k for k, s in enumerate(body) if isinstance(s, For)]
    if len(places) != 1:
        return None
    at = places[0]
    inner = body[at]
    assert isinstance(inner, For)
    made = {v.name for s in body[:at] for v in defs(s)} | {outer.var.name}
    bounds = (inner.start, inner.stop, inner.step, *(() if inner.chunk is None else (inner.chunk,)))
    if inner.checked:  # runs in the source's order
        return None
    if inner.kind != "parallel" or any(isinstance(b, Var) and b.name in made for b in bounds):
        return None
    subscripts = Subscripts(inner)
    if find_arrays(subscripts, views):  # which it accumulates into alone: inside the outer loop it does so in order
        return None
    following = live | {v.name for v in free_vars(body)} | {v.name for v in free_vars(body[at + 1 :])}
    found = states_of(subscripts, following, views)
    if len(found) != len(nest.states):
        return None
    links: set[int] = set()
    states: list[State] = []
    for state in nest.states:
        match = next((other for other in found if _same(state, other, body, at, links)), None)
        if match is None:
            return None
        states.append(replace(match, name=state.name, targets=state.targets))
    head = tuple(s for k, s in enumerate(body) if k != at and id(s) not in links)
    if any(not _is_index_arithmetic(s) for s in head) or any(id(s) not in links for s in body[at + 1 :]):
        return None
    return Nest((*nest.loops, inner), (*nest.heads, head), tuple(states), inner.body)


def _same(outer: State, inner: State, body: Block, at: int, links: set[int]) -> bool:
    """Whether the inner loop reduces for the outer one; `links` are the copies from and to its variables."""
    if outer.place is not None or inner.place is not None:
        return (
            outer.place is not None
            and inner.place is not None
            and {id(op) for op in outer.place.writes} == {id(op) for op in inner.place.writes}
        )
    if len(outer.vars) != len(inner.vars):
        return False
    mine: set[int] = set()
    for a, b in zip(outer.vars, inner.vars, strict=True):
        if a.name == b.name:
            continue
        to = _copy(body[:at], a, b)
        back = _copy(body[at + 1 :], b, a)
        if to is None or back is None:
            return False
        mine |= {id(to), id(back)}
    links |= mine
    return True


def _copy(block: Block, source: Var, target: Var) -> Stmt | None:
    for stmt in block:
        if isinstance(stmt, Op) and stmt.op == "copy" and stmt.args == (source,) and stmt.results == (target,):
            return stmt
    return None


def _is_index_arithmetic(stmt: Stmt) -> bool:
    if not isinstance(stmt, Op) or stmt.regions or stmt.op == "alloc" or effects(stmt.op) != "none":
        return False
    return not any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results))


# -- chunks --------------------------------------------------------------------------------------------------------


def extent(loop: For, out: Scalars) -> Operand:
    """The number of iterations of a loop with a positive step, as arithmetic before it."""
    span = out.op("add", out.op("sub", loop.stop, loop.start), out.op("sub", loop.step, index(1)))
    name = f"{source_name(loop.var.name)}_extent"
    return out.op("max", out.op("floordiv", span, loop.step, name), index(0), name)


def most_parts(parts: int, copies: Sequence[tuple[Operand, ...]], out: Scalars) -> Operand:
    """How many partial results there may be, when each has copies of tensors with these extents."""
    most: Operand = index(parts)
    for extents in copies:
        size: Operand = index(1)
        for n in extents:
            size = out.op("min", out.op("mul", size, n), index(ELEMENTS))  # no overflow
        fitting = out.op("floordiv", index(ELEMENTS), out.op("max", size, index(1)))
        most = out.op("max", out.op("min", most, fitting), index(1), "parts")
    return most


def chosen_chunks(
    nest: Nest, out: Scalars, decisions: list[Decision], names: Names, division: Division,
    copies: Sequence[tuple[Operand, ...]],
) -> tuple[Nest, tuple[bool, ...]]:  # fmt: skip
    """`nest` with a chunk for every loop, and which of them were given.

    copies: the extents of the tensors that each partial result has a copy of.
    """
    loops: list[For] = []
    heads = list(nest.heads)
    body = nest.body
    budget = most_parts(division.parts, copies, out)
    for k, loop in enumerate(nest.loops):
        last = k == len(nest.loops) - 1
        if loop.chunk is None and not (isinstance(loop.step, Const) and loop.step.value > 0):
            loop, first = _forward(loop, out, names)
            if last:
                body = (*first, *body)
            else:
                heads[k] = (*first, *heads[k])
        count = extent(loop, out)
        if loop.chunk is None:
            var = source_name(loop.var.name)
            least = division.grain if last and _is_light(body) else 1
            size = out.op("floordiv", out.op("add", count, out.op("sub", budget, index(1))), budget, f"{var}_size")
            if least > 1:
                size = out.op("mul", out.op("floordiv", out.op("add", size, index(ALIGN - 1)), index(ALIGN)),
                              index(ALIGN), f"{var}_size")  # fmt: skip
            size = out.op("max", size, index(least), f"{var}_size")
            reason = f"no chunk is given: at most {division.parts} partial results, of at least {least} iterations"
            decisions.append(Decision("chunk", (var,), True, reason, loop.loc))
            loop = replace(loop, chunk=size)
        loops.append(loop)
        if not last:
            assert loop.chunk is not None
            made = out.op("floordiv", out.op("add", count, out.op("sub", loop.chunk, index(1))), loop.chunk)
            budget = out.op("max", out.op("floordiv", budget, out.op("max", made, index(1))), index(1), "budget")
    given = tuple(loop.chunk is not None for loop in nest.loops)
    return Nest(tuple(loops), tuple(heads), nest.states, body), given


def _forward(loop: For, out: Scalars, names: Names) -> tuple[For, Block]:
    """A loop whose step may be negative as one that counts its iterations, and what gives its variable."""
    sign = out.op("max", out.op("min", loop.step, index(1)), index(-1))
    if not isinstance(loop.step, Const):
        ok = names.fresh("t", BOOL)
        out.block.append(Op("ne", (ok,), (loop.step, index(0)), (), (), loop.loc))
        attrs = (("always", True), ("error", "LaunchError"), ("message", STEP.text()))
        out.block.append(Op("assert", (), (ok,), attrs, (), loop.loc))
    span = out.op("sub", out.op("add", out.op("sub", loop.stop, loop.start), loop.step), sign)
    var = source_name(loop.var.name)
    count = out.op("max", out.op("floordiv", span, loop.step), index(0), f"{var}_extent")
    counter = names.fresh(var)
    moved = names.fresh("t")
    value = (
        Op("mul", (moved,), (counter, loop.step), (), (), loop.loc),
        Op("add", (loop.var,), (moved, loop.start), (), (), loop.loc),
    )
    return replace(loop, var=counter, start=index(0), stop=count, step=index(1)), value


def _is_light(body: Block) -> bool:
    """Whether an iteration is scalar code without loops."""
    for stmt in statements(body):
        if not isinstance(stmt, (Op, If)):
            return False
        if isinstance(stmt, Op) and any(isinstance(v.type, TileType) for v in (*stmt.args, *stmt.results)):
            return False
    return True


# -- chunk loops outside, in_chunk loops inside ------------------------------------------------------------------------


@frozen
class Pieces:
    """A nest taken apart; `slot` numbers the chunks of all its loops together."""

    nest: Nest
    expansions: tuple[Expansion, ...]
    numbering: Block
    slot: Operand

    def in_chunks(self, body: Block, reductions: tuple[Reduction, ...]) -> For:
        """The in_chunk loops around a body."""
        heads = (*self.nest.heads, ())
        inner: For | None = None
        for expansion, head in zip(reversed(self.expansions), reversed(heads), strict=True):
            inside = body if inner is None else (*head, inner)
            inner = replace(expansion.in_chunk, body=inside, reductions=reductions)
        assert inner is not None
        return inner

    def chunks(self, body: Block) -> Block:
        """The chunk loops around what each chunk does."""
        inside: Block = (*self.numbering, *body)
        for expansion in reversed(self.expansions):
            inside = (replace(expansion.chunk, body=(*expansion.head, *inside)),)
        return inside


def take_nest_apart(
    nest: Nest, given: Sequence[bool], out: Scalars, names: Names, decisions: list[Decision]
) -> tuple[Pieces, Operand]:
    """The pieces of a nest, and the number of its chunks."""
    expansions: list[Expansion] = []
    inner = Scalars(names, nest.loops[0].loc)
    total: Operand = index(1)
    slot: Operand = index(0)
    for loop, mine in zip(nest.loops, given, strict=True):
        plain = replace(loop, combine="sequential", reductions=())
        expansion = take_apart(plain, names, decisions, given=mine)
        expansions.append(expansion)
        out.block += expansion.before
        first, last = expansion.chunk.start, expansion.chunk.stop
        count = last if first == index(0) else out.op("max", out.op("sub", last, first), index(0), "chunks")
        total = out.op("mul", total, count, "chunks")
        slot = inner.op("add", inner.op("mul", slot, count), inner.op("sub", expansion.chunk.var, first), "slot")
    for outside, inside in zip(nest.loops, nest.loops[1:], strict=False):
        pair = (source_name(inside.var.name), source_name(outside.var.name))
        reason = "every loop concerned is parallel or chunked"
        decisions.append(Decision("interchange", pair, True, reason, inside.loc))
    return Pieces(nest, tuple(expansions), inner.done(), slot), total
