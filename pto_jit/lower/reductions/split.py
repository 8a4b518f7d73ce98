# SPDX-License-Identifier: MIT
"""Give every chunk of a parallel loop that reduces a partial result of its own, and merge these after the loop.

The chunks do not depend on the number of workers, and so does no result.  A parallel loop without `chunk` that reduces
gets one, from its extent alone.  Chunked loops directly inside each other that reduce the same are split together: the
chunk loops stand outside, the in_chunk loops inside.  In the order of `combine`:

* "sequential": one loop folds all partial results into the result.
* "tree": neighbours are merged, then neighbours of these, and so on: a combine loop per level, whose iterations are
  independent (a loop of levels when the number of chunks is a run-time value).  The last one is folded into the result.
* "loop": a loop merges all partial results into the first, which is folded into the result.

Before::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %s = scopy 0.0:f32 : f32
      FOR %i:idx, 0:idx, 4096:idx, 1:idx {kind=parallel, chunk=1024}
        %e = sgetelem %x[%i] : f32
        %s = sadd %s, %e : f32
      ENDFOR
      ssetelem %s, %y[0]
      return
    }

After::

    // Function Type: InCore
    func @f(%x: !pto.memref<gm,?,f32>, %y: !pto.memref<gm,?,f32>) {
      %s = scopy 0.0:f32 : f32
      %s_parts = talloc [4] {dtype=f32} : !pto.memref<gm,4,f32>
      FOR %i_chunk:idx, 0:idx, 4:idx, 1:idx {kind=chunk}
        %i_lo = smul %i_chunk, 1024 : i64
        %i_end = sadd %i_lo, 1024 : i64
        %i_hi = smin %i_end, 4096 : i64
        %s_part = scopy -0.0:f32 : f32
        FOR %i:idx, %i_lo:idx, %i_hi:idx, 1:idx {kind=in_chunk}
          REDUCE %s_part FROM -0.0:f32 BY add
          %e = sgetelem %x[%i] : f32
          %s_part = sadd %s_part, %e : f32
        ENDFOR
        ssetelem %s_part, %s_parts[%i_chunk]
      ENDFOR
      FOR %i.1:idx, 0:idx, 4:idx, 1:idx {kind=combine}
        %s.1 = sgetelem %s_parts[%i.1] : f32
        %s = sadd %s, %s.1 : f32
      ENDFOR
      ssetelem %s, %y[0]
      return
    }
"""

from __future__ import annotations

from collections.abc import Callable

from pto_jit.ir.flow import free_vars
from pto_jit.ir.nodes import (
    Block,
    Const,
    For,
    Func,
    If,
    Module,
    Op,
    Operand,
    Reduction,
    Scope,
    Stmt,
    Var,
    While,
)
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import (
    TENSOR_VIEWS,
    blocks,
    defs,
    map_funcs,
    statements,
    uses,
)
from pto_jit.lower.decisions import Decision
from pto_jit.lower.names import Names, Scalars, index, source_name
from pto_jit.lower.reductions.arrays import Array, copies_of, extents_of, find_arrays, on_partials
from pto_jit.lower.reductions.merge import GROUP, in_groups, merge
from pto_jit.lower.reductions.nest import (
    MANY_TILES,
    USUAL,
    Nest,
    chosen_chunks,
    division_of,
    find_nest,
    may_have_empty_chunks,
    take_nest_apart,
)
from pto_jit.lower.reductions.partials import (
    FALSE,
    Emit,
    Partials,
    State,
    allocate,
    fold,
    has_tiles,
    known_reduction,
    slots_of,
    when,
)
from pto_jit.lower.reductions.places import Subscripts
from pto_jit.lower.reductions.recognise import states_of
from pto_jit.lower.reductions.spread import is_read_by_loops, spread
from pto_jit.lower.simplify import simplify
from pto_jit.semantic.table import is_generator
from pto_jit.slotted import replace


def split_reductions(module: Module, decisions: list[Decision], *, device: str | None = None) -> Module:
    """Split the reductions of all parallel loops.

    device: the target, if it is one where partial results that are numbers are for one kernel to merge, whose threads
    share that in an order of their own; `combine` says how tiles are merged.

    Raises ScheduleError for a parallel loop that carries something that is not a reduction.
    """
    after = map_funcs(module, lambda func: _Splitter(func, decisions, device).func())
    return after if after is module else simplify(after)


def _is_concerned(stmt: Stmt) -> bool:
    """Whether a statement is a parallel loop, or has one inside."""
    if type(stmt) is Op:
        return False
    if isinstance(stmt, For) and stmt.kind == "parallel":
        return True
    return any(_is_concerned(inner) for block in blocks(stmt) for inner in block)


class _Splitter:
    """Splits the loops of one function, outer ones first."""

    def __init__(self, func: Func, decisions: list[Decision], device: str | None) -> None:
        self.function = func
        self.device = device
        self.decisions = decisions
        self.names_: Names | None = None
        self.scopes = int(func.kind == "incore")  # around the statement being looked at
        self.movable: set[int] = set()  # statements of ours that may run earlier, by id
        self.kept: list[Stmt] = []  # what `movable` refers to: ids stay unique
        self.rest: list[Stmt] = []  # of the scope, after the statement being looked at
        self.kept_tiles: list[tuple[Var, Callable[[Emit], Operand]]] = []  # results that parallel loops of `rest` read
        self.views: dict[str, str] = {}
        self.generators: dict[str, Op | None] = {}

    @property
    def names(self) -> Names:
        if self.names_ is None:
            self.names_ = Names(self.function)
        return self.names_

    def func(self) -> Func:
        func = self.function
        if not any(isinstance(s, For) and s.kind == "parallel" for s in statements(func.body)):
            return func
        for stmt in statements(func.body):
            for var in defs(stmt):
                made = isinstance(stmt, Op) and is_generator(stmt.op) and var.name not in self.generators
                self.generators[var.name] = stmt if made else None  # pyright: ignore[reportArgumentType]
            if isinstance(stmt, Op) and stmt.op in TENSOR_VIEWS and isinstance(stmt.args[0], Var):
                source = stmt.args[0].name
                self.views[stmt.results[0].name] = self.views.get(source, source)
        body = self.block(func.body, frozenset(), divided=False)
        return func if body is func.body else replace(func, body=body)

    # -- the walk ---------------------------------------------------------------------------------------------------

    def block(self, block: Block, live: frozenset[str], *, divided: bool, scope: bool = False) -> Block:
        """`live` may be read after the block; `divided`: it runs inside a loop that is divided already; `scope`: it is
        the body of an in-core scope."""
        if not any(map(_is_concerned, block)):
            return block
        after: list[frozenset[str]] = []
        for stmt in reversed(block):
            after.append(live)
            if isinstance(stmt, Op):
                live -= {v.name for v in stmt.results}
            plain = isinstance(stmt, Op) and not stmt.regions  # which reads nothing that it assigned itself
            live |= {v.name for v in (uses(stmt) if plain else free_vars((stmt,)))}
        result: list[Stmt] = []
        pending = list(zip(block, reversed(after), strict=True))
        while pending:
            (stmt, following), *pending = pending
            self.rest = [s for s, _ in pending] if scope else []
            self.kept_tiles = []
            result += self.statement(stmt, following, result, divided)
            for var, read in self.kept_tiles:
                pending = spread(var, pending, read, self.names)
        same = len(result) == len(block) and all(a is b for a, b in zip(result, block, strict=True))
        return block if same else tuple(result)

    def statement(self, stmt: Stmt, live: frozenset[str], before: list[Stmt], divided: bool) -> Block:
        match stmt:
            case _ if not _is_concerned(stmt):
                return (stmt,)
            case For():
                around = live | {v.name for v in free_vars(stmt.body)}
                whole = stmt
                arrays: list[Array] = []
                states: list[State] = []
                if stmt.kind == "parallel":
                    subscripts = Subscripts(stmt)
                    arrays = find_arrays(subscripts, self.views)
                    if arrays and (divided or not self.scopes):
                        stmt = self.in_order(stmt, [one.base for one in arrays], divided)
                    else:
                        states = states_of(subscripts, live, self.views)
                if not self.scopes and (tiles := [one.name for one in states if has_tiles(one)]):
                    stmt, states = self.in_order(stmt, tiles, divided), []
                if stmt.kind == "parallel" and (states or arrays):
                    return self.reduce(stmt, states, arrays, around, before, divided)
                inner = self.block(stmt.body, around, divided=divided or stmt.kind != "sequential")
                if inner is whole.body and stmt is whole:
                    return (stmt,)
                if stmt.kind != "sequential":
                    return (replace(stmt, body=inner),)
                early, inner = self.hoisted(inner, {stmt.var.name})
                return (*early, replace(stmt, body=inner))
            case While():
                around = live | {v.name for v in free_vars((stmt,))}
                condition = self.block(stmt.before, around, divided=divided)
                body = self.block(stmt.body, around, divided=divided)
                same = condition is stmt.before and body is stmt.body
                return (stmt,) if same else (replace(stmt, before=condition, body=body),)
            case If():
                then = self.block(stmt.then, live, divided=divided)
                orelse = self.block(stmt.orelse, live, divided=divided)
                same = then is stmt.then and orelse is stmt.orelse
                return (stmt,) if same else (replace(stmt, then=then, orelse=orelse),)
            case Scope():
                self.scopes += 1
                body = self.block(stmt.body, live, divided=divided, scope=True)
                self.scopes -= 1
                if body is stmt.body:
                    return (stmt,)
                early, body = self.hoisted(body, set())
                return (*early, replace(stmt, body=body))
            case _:
                return (stmt,)

    def in_order(self, loop: For, updated: list[str], divided: bool) -> For:
        """A loop that has no copies of what it accumulates into: one inside a loop that is divided already, or one of
        orchestration, where no tiles can be merged."""
        names = ", ".join(f"`{source_name(name)}`" for name in updated)
        where = "inside one that is divided already" if divided else "outside of the in-core scopes"
        reason = f"the loop runs {where}, and updates {names} in order"
        self.decisions.append(Decision("reduction", (source_name(loop.var.name),), False, reason, loop.loc))
        return replace(loop, kind="sequential", chunk=None, policy="leading_full", combine="sequential")

    def hoisted(self, body: Block, bound: set[str]) -> tuple[Block, Block]:
        """Memory for partial results, and what its size is computed from, taken out of a block where possible."""
        early: list[Stmt] = []
        stay: list[Stmt] = []
        for stmt in body:
            if id(stmt) in self.movable and not any(v.name in bound for v in uses(stmt)):
                early.append(stmt)
            else:
                stay.append(stmt)
                bound |= {v.name for s in statements((stmt,)) for v in defs(s)}
        return tuple(early), tuple(stay)

    def may_move(self, block: Block) -> Block:
        free = [s for s in block if not (isinstance(s, Op) and s.op == "assert")]
        self.movable |= {id(s) for s in free}
        self.kept += free
        return block

    # -- one nest of loops --------------------------------------------------------------------------------------------

    def reduce(
        self, loop: For, states: list[State], arrays: list[Array], live: frozenset[str], before: list[Stmt],
        divided: bool,
    ) -> Block:  # fmt: skip
        rest = self.rest
        if arrays:  # iterations of one chunk share its copies: to the check of the promise that would be a race
            loop = replace(loop, checked=False)
        # a loop inside runs over the elements of an array: it would divide the copies, not the work on them
        nest = Nest((loop,), (), tuple(states), loop.body)
        if not arrays:
            nest = find_nest(loop, states, live, self.views, self.decisions)
        if any(map(may_have_empty_chunks, nest.loops)):
            nest = replace(nest, states=tuple(replace(state, always=False) for state in nest.states))
        forward = isinstance(loop.step, Const) and loop.step.value > 0
        if loop.chunk is None and loop.checked and not forward and not arrays:  # is checked by its own variable
            return self.undivided(loop, states, live)
        if divided and all(one.chunk is None or (self.device and _is_sure(one.chunk)) for one in nest.loops):
            return self.undivided(replace(loop, chunk=None, policy="leading_full"), states, live)
        names, loc = self.names, loop.loc
        setup = Scalars(names, loc)
        sizes = Emit(names, loc)
        extents = [extents_of(one, sizes) for one in arrays]
        division = USUAL if arrays else division_of(nest.states, self.device)
        room = extents
        if division is MANY_TILES:
            room = [self.extents(state, var, sizes, before) for state in nest.states for var in state.vars]
        setup.block += sizes.done()
        nest, given = chosen_chunks(nest, setup, self.decisions, names, division, room)
        pieces, count = take_nest_apart(nest, given, setup, names, self.decisions)
        if isinstance(count, Const) and count.value < 1:
            return ()  # the loop never runs
        memory = Emit(names, loc)
        partials = [self.allocated(state, count, memory, before) for state in nest.states]
        copies = [copies_of(a, n, count, memory, names) for a, n in zip(arrays, extents, strict=True)]
        body = on_partials(nest.body, partials, copies, self.names)
        body = self.block(body, live | {v.name for v in free_vars(body)}, divided=True)
        inner = Emit(names, loc)
        for one in (*partials, *copies):
            one.start(inner, pieces.slot)
        reductions = tuple(r for one in partials for r in known_reduction(one))
        run = pieces.in_chunks(body, reductions)
        if copies:  # the iterations of a chunk share its copies: they are not independent of each other
            run = replace(run, kind="sequential", reductions=())
        end = Emit(names, loc)
        for one in partials:
            one.save(end, pieces.slot)
        result = [*self.may_move(setup.done()), *self.may_move(memory.done())]
        result += pieces.chunks((*inner.done(), run, *end.done()))
        merged: list[Partials] = partials
        few = isinstance(count, Const) and count.value <= GROUP
        if division is MANY_TILES and loop.combine == "sequential" and not few:
            groups, memory = Scalars(names, loc), Emit(names, loc)
            some = groups.op("floordiv", groups.op("add", count, index(GROUP - 1)), index(GROUP), "groups")
            merged = [allocate(one.state, one.extents, one.starts, some, memory) for one in partials]
            result[len(result) - 1 : len(result) - 1] = [*self.may_move(groups.done()), *self.may_move(memory.done())]
            result.append(in_groups(partials, merged, (count, some), nest.loops[0], names))
            count = some
        for state in nest.states:
            if state.place is None:
                result += self.sunk(state, before)
        result += merge([*merged, *copies], count, nest.loops[0], names, alone=self.device is not None)
        kept: list[tuple[Var, Callable[[Emit], Operand]]] = []
        for one in partials:
            for target, extents in zip(one.state.targets, one.extents, strict=False):
                if is_read_by_loops(target, rest):
                    result += self.in_memory(target, extents, kept)
        self.kept_tiles = kept
        variables = tuple(source_name(one.var.name) for one in nest.loops)
        for state in nest.states:
            reason = f"`{state.name}` has a partial result per chunk, merged by combine={loop.combine!r}"
            self.decisions.append(Decision("reduction", variables, True, reason, loc))
        for array in arrays:
            reason = f"every chunk has a copy of `{source_name(array.base)}`, merged by combine={loop.combine!r}"
            self.decisions.append(Decision("reduction", variables, True, reason, loc))
        return tuple(result)

    def in_memory(
        self, target: Var, extents: tuple[Operand, ...], kept: list[tuple[Var, Callable[[Emit], Operand]]]
    ) -> Block:
        """Write a result to global memory, from where later loops read it."""
        memory = Emit(self.names, self.function.loc)
        slots = slots_of(target, source_name(target.name), extents, index(1), memory)
        end = Emit(self.names, self.function.loc)
        slots.write(end, index(0), target)
        kept.append((target, lambda e: slots.read(e, index(0), target.name)))
        return (*self.may_move(memory.done()), *end.done())

    def undivided(self, loop: For, states: list[State], live: frozenset[str]) -> Block:
        """A loop inside one that is divided already: its iterations are one chunk."""
        bounds = loop.start, loop.stop, loop.step
        if all(isinstance(b, Const) for b in bounds) and not range(*(int(b.value) for b in bounds)):  # type: ignore[union-attr]
            return ()  # the loop never runs
        e = Emit(self.names, loop.loc)
        reductions: list[Reduction] = []
        later: list[Partials] = []
        for state in states:
            if state.place is None:
                if not has_tiles(state):
                    reductions.append(Reduction(state.vars, state.init, state.combine))
                continue
            one = self.local(state)
            later.append(one)
            one.start(e, index(0))
            reductions += known_reduction(one)
        body = on_partials(loop.body, later, [], self.names)
        body = self.block(body, live | {v.name for v in free_vars(body)}, divided=True)
        inner = replace(loop, kind="in_chunk", body=body, reductions=tuple(reductions))
        e.block.append(inner)
        for one in later:
            touched = one.flag
            if touched is None:
                forward = isinstance(loop.step, Const) and loop.step.value > 0
                if not forward:
                    touched = self.ran(e, loop)
                else:
                    touched = e.op("lt", loop.start, loop.stop, hint="touched")
            when(e, touched, lambda e, one=one: fold(e, one.state, lambda e: list(one.vars)))
        names = ", ".join(f"`{state.name}`" for state in states)
        self.decisions.append(
            Decision("reduction", (source_name(loop.var.name),), False,
                     f"the loop runs inside one that is divided already: {names} needs no partial results", loop.loc)
        )  # fmt: skip
        return e.done()

    @staticmethod
    def ran(e: Emit, loop: For) -> Var:
        """Whether a loop whose step has any sign has an iteration."""
        up = e.op("gt", loop.step, index(0))
        below, above = e.op("lt", loop.start, loop.stop), e.op("gt", loop.start, loop.stop)
        return e.op("select", up, below, above, hint="touched")

    def allocated(self, state: State, count: Operand, memory: Emit, before: list[Stmt]) -> Partials:
        starts = [self.generator(i) for i in state.init]
        extents = [self.extents(state, var, memory, before) for var in state.vars]
        return allocate(state, extents, starts, count, memory)

    def local(self, state: State) -> Partials:
        """A place's value in a variable."""
        assert state.place is not None
        extents: tuple[Operand, ...] = ()
        if isinstance(state.place.type, TileType):
            rank = len(state.place.type.shape)
            extents = state.place.read.args[1 + rank : 1 + 2 * rank]
        flag = None if state.always else self.names.fresh(f"{state.name}_touched", FALSE.type)
        var = self.names.fresh(f"{state.name}_part", state.place.type)
        return Partials(state, (var,), (), (None,), (extents,), flag, None)

    def generator(self, operand: Operand) -> Op | None:
        """What generates a tile from scalars alone."""
        return self.generators.get(operand.name) if isinstance(operand, Var) else None

    def extents(self, state: State, var: Var, e: Emit, before: list[Stmt]) -> tuple[Operand, ...]:
        """The declared extents of a state's tile, before the loop."""
        if not isinstance(var.type, TileType):
            return ()
        shape = var.type.shape
        if all(n is not None for n in shape):
            return tuple(index(n) for n in shape if n is not None)
        if state.place is not None:
            e.block += state.computed
            return state.place.read.args[1 + len(shape) : 1 + 2 * len(shape)]
        position = state.vars.index(var)
        made = self.generator(self.origin(state.targets[position], before))
        if made is not None and made.op == "full":
            return made.args[1:]
        return tuple(e.op("extent", state.targets[position], axis=axis, hint="extent") for axis in range(len(shape)))

    @staticmethod
    def origin(var: Var, before: list[Stmt]) -> Operand:
        """What a variable was a copy of when the loop began."""
        for stmt in reversed(before):
            if isinstance(stmt, Op) and any(r.name == var.name for r in stmt.results):
                return stmt.args[0] if stmt.op == "copy" else var
            if any(v.name == var.name for s in statements((stmt,)) for v in defs(s)):
                break
        return var

    def sunk(self, state: State, before: list[Stmt]) -> Block:
        """Generated tiles that the results are folded into are generated after the loops: no tile lives across."""
        moved: list[Stmt] = []
        for target in state.targets:
            if not isinstance(target.type, TileType):
                continue
            for at in range(len(before) - 1, -1, -1):
                stmt = before[at]
                if isinstance(stmt, Op) and stmt.results == (target,):
                    made = self.generator(stmt.args[0]) if stmt.op == "copy" else None
                    if made is not None:
                        del before[at]
                        moved.append(replace(made, results=(target,)))
                    break
                if any(v.name == target.name for s in statements((stmt,)) for v in (*uses(s), *defs(s))):
                    break
        return tuple(moved)


def _is_sure(chunk: Operand) -> bool:
    """Whether a chunk is known to be one: what a device divides in its own way need not be divided by it."""
    return isinstance(chunk, Const) and chunk.value >= 1
