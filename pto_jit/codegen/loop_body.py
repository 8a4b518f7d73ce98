# SPDX-License-Identifier: MIT
"""The body of one run-time loop: the variables it carries, and its exits.

Names that are live where an iteration starts and assigned in the body become mutable variables; every way out of an
iteration (its end, `continue`, `break`) notes the values at that point, and when the body is complete each of them
gets its copies.  What the names stand for after the loop is decided in `loop_results`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.builtins.promote import tile_of
from pto_jit.codegen.control import dead
from pto_jit.codegen.frames import MISSING, Frame, Unusable
from pto_jit.codegen.iteration import untaken_branches
from pto_jit.codegen.loop_results import LoopResults
from pto_jit.codegen.merging import (
    Disagreement,
    Exit,
    Phi,
    both,
    combine,
    copies,
    describe,
    joined_type,
    widened,
)
from pto_jit.codegen.names import LoopNames, stores
from pto_jit.codegen.reductions import ReductionState, updated_reductions
from pto_jit.codegen.regions import GONE, Key, LoopExit, LoopRecord, Status, Target
from pto_jit.codegen.retype import Retype, retyped
from pto_jit.codegen.rotation import Rotation
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import bool_
from pto_jit.errors import CompilationError, Loc, Note, TypeMismatchError
from pto_jit.ir.nodes import Const, Op, Operand, Reduction, Stmt, Var
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.semantic.rules import is_elementwise
from pto_jit.slotted import mutable

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator


@mutable(eq=False)
class Carried:
    """A name that is live where an iteration starts."""

    key: Key
    before: Any  # its value before the loop
    place: ast.AST | None
    header: Any  # what it stands for while the body is compiled
    phis: list[Phi]

    @property
    def unchanged(self) -> bool:
        """Whether no path through the body gives it another value."""
        return all(s is None or p.holds(s) for p in self.phis for s in p.sources[1:])


class RunTimeLoop:
    """One run-time loop: header variables, the body, the exits; `results` once the body is complete."""

    def __init__(
        self, g: Generator, node: ast.For | ast.While, kind: str, loc: Loc, *, runs: bool, forever: bool = False,
        turn: Rotation | None = None, count: int | None = None,
    ) -> None:  # fmt: skip
        self.g = g
        self.node = node
        self.kind = kind
        self.loc = loc
        self.runs = runs  # at least one iteration, for certain
        self.forever = forever  # only a break ends it
        self.turn = turn  # the tensors that its iterations exchange
        self.count = count  # of iterations, if that is known
        self.names: LoopNames = self.g.frame.names.loops[node]
        self.kept = (self.names.exposed | self.names.live_after) - (turn.tensors.keys() if turn else frozenset())
        self.condition: Sequence[Stmt] = ()  # of a `while`: what computes `cond`, as compiled
        self.before: list[Stmt] = []  # the same, complete
        self.cond: Operand = Const(True, ScalarType(bool_))
        self.carried: list[Carried] = []
        self.updated: list[tuple[ReductionState, Carried]] = []
        self.reductions: tuple[Reduction, ...] = ()

    # -- the body --

    def compile(self, body: Callable[[], Status], enter: Callable[[], None]) -> None:
        g = self.g
        self._prepare()
        self.record = LoopRecord(self.kind, self.loc, len(g.control.pending), g.scope_depth)
        g.loops.append(self.record)
        g.loop_stack.append(None)
        self.region = g.control.open_region(self.record)
        self.block = g.e.push()
        for item in self.carried:
            holder, name = item.key
            g.bind(holder, name, item.header, item.place)
        for holder, name in self.blinded:
            g.bind(holder, name, dead(name, self.loc))
        self.start = {key: key[0].vars.get(key[1], MISSING) for key in self.region.journal}
        for way in ("next", "break"):
            self.record.leave[way] = Target(f"leave {way}", g.depth, len(g.loops))
            g.targets.append(self.record.leave[way])
        enter()
        live = self.names.exposed | self.names.live_after
        status = g.control.close_pending(self.record.pending, body(), live=live)
        g.node = self.node
        for target in self.record.leave.values():
            g.targets.remove(target)
        if status is None:
            g.control.record_exit(self.record, "next")
        elif status is not GONE:
            raise AssertionError(f"a run-time loop body ended with {status}")
        g.e.pop(self.block)
        self.changes = g.control.close_region(self.region)
        g.loops.pop()
        g.loop_stack.pop()
        for state, _ in self.updated:
            state.leave()

    def record_test(self) -> None:
        """The condition was compiled: names that it binds leave the loop with the values they have now."""
        region = self.region
        values = {k: k[0].vars.get(k[1], MISSING) for k in region.journal}
        values = {k: v for k, v in values.items() if v is not self.start.get(k, MISSING)}
        if values:
            place = Exit()
            self.g.e.current.append(place)  # type: ignore[arg-type]  # replaced before the block is complete
            self.record.exits.append(LoopExit("test", place, values))

    def _prepare(self) -> None:
        """Make the header variables."""
        g = self.g
        self.blinded: list[Key] = []
        phis: list[Phi]
        for state in updated_reductions(g, self.names):
            state.enter(self.kind, self.loc)
            phis = []
            start = state.holder.vars["value"]
            header = combine([start], lambda items, p=phis: self._header("state", items[0], p))
            item = Carried((state.holder, "value"), start, state.holder.places.get("value"), header, phis)
            self.carried.append(item)
            self.updated.append((state, item))
        for name in self._assigned():
            holder: Frame | None = g.frame.owner(name)
            if holder is None:
                continue
            value = holder.vars.get(name, MISSING)
            if value is MISSING or isinstance(value, Unusable):
                continue
            if self.turn is not None and name in self.turn.tensors:
                continue
            key = (holder, name)
            place = holder.places.get(name)
            if name not in self.names.exposed and holder is g.frame:
                self.blinded.append(key)
                continue
            if isinstance(value, Tensor):
                if name in self.names.augmented_only:
                    continue
                if value.rank and not (g.e.allocated and self._is_shared(name, value)):
                    value = tile_of(g, value, name)
            phis = []
            try:
                header = combine([value], lambda items, n=name, p=phis: self._header(n, items[0], p))
            except Disagreement:
                header, phis = value, []
            self.carried.append(Carried(key, value, place, header, phis))

    def _assigned(self) -> tuple[str, ...]:
        """The names that the body may assign, leaving out branches that are not taken, by a decision made already."""
        names = self.names.assigned
        untaken = untaken_branches(self.g, self.names) if self.names.branches else None
        if not untaken:
            return names
        nodes: list[ast.AST] = [
            *self.node.body,
            self.node.test if isinstance(self.node, ast.While) else self.node.target,
        ]
        kept = stores(nodes, without=untaken) | (self.g.frame.names.shared & set(names))
        return tuple(n for n in names if n in kept)

    def _header(self, name: str, value: Any, phis: list[Phi]) -> Any:
        """The variable that stands for one number or tile of a carried value."""
        g = self.g
        if isinstance(value, Tensor):
            return value
        type_, weak = joined_type([value])
        var = g.e.named(name, type_)
        if weak:
            g.e.weak.add(var.name)
        phis.append(Phi(var, [value], weak))
        if isinstance(value, Tile):
            # what an iteration assigns may be anything, even when the first value is generated
            return g.e.note(Tile(var, value.extents, False, value.origin))
        return Scalar(var, weak, self.loc)

    # -- types, copies --

    def complete(self, before: Sequence[Stmt] = ()) -> list[Stmt]:
        """The finished body; the copies before the loop are in the open block."""
        g = self.g
        exits = self.record.exits
        self.condition = before
        self._check_unexpected()
        types = self._settle({})
        self.results = LoopResults(self, types)
        phis = [*(p for c in self.carried for p in c.phis), *self.results.phis]
        for k, item in enumerate(exits):
            item.place.path = k + 1
            block = g.e.push(item.place.statements)
            copies(g.e, phis, k + 1, self.loc)
            g.e.pop(block)
        g.control.define_before([p for p in self.results.phis if p.sources[0] is None], self.loc)
        copies(g.e, phis, 0, self.loc)
        if self.kind == "parallel":
            self.reductions = tuple(
                state.node_of(item.header, item.phis) for state, item in self.updated if not item.unchanged
            )
        rewriter = Retype(g.e, types)
        try:
            self.before = rewriter.block(before)
            self.cond = rewriter.operand(self.cond, self.before)
            body = rewriter.block(self.block)
        except Disagreement as problem:
            changed = next((c for c in self.carried if any(p.var.name in types for p in c.phis)), self.carried[0])
            raise self._mismatch(changed, problem) from None
        return body

    def _value_at(self, key: Key, k: int) -> Any:
        values = self.record.exits[k].values
        return values.get(key, self.start.get(key, key[0].vars.get(key[1], MISSING)))

    def _settle(self, types: dict[str, ScalarType]) -> dict[str, ScalarType]:
        """Join each carried variable's values over all paths, until no type changes any more."""
        for item in self.carried:
            self._sources(item)
        for _ in range(len(self.carried) + 2):
            seeds = dict(types)
            for item in self.carried:
                for phi in item.phis:
                    values = [retyped(v, types) for v in phi.sources if v is not None]
                    try:
                        type_, weak = joined_type(values)
                    except Disagreement as problem:
                        raise self._mismatch(item, problem) from None
                    if isinstance(type_, TileType) or isinstance(phi.var.type, TileType):
                        if type_ != phi.var.type:
                            unlike = Disagreement(both(phi.var.type, type_), "keep one shape and dtype")
                            raise self._mismatch(item, unlike)
                        continue
                    if ScalarType(type_.dtype) != types.get(phi.var.name, phi.var.type):
                        seeds[phi.var.name] = ScalarType(type_.dtype)
                    phi.weak = weak
            if seeds == types:
                break
            try:
                types = self._followed(seeds)
            except Disagreement as problem:
                item = next(c for c in self.carried if any(p.var.name in seeds for p in c.phis))
                raise self._mismatch(item, problem) from None
        for item in self.carried:
            for phi in item.phis:
                new = types.get(phi.var.name)
                if new is not None:
                    phi.var = Var(phi.var.name, new)
                phi.sources = [None if v is None else retyped(v, types) for v in phi.sources]
        return types

    def _followed(self, types: dict[str, ScalarType]) -> dict[str, ScalarType]:
        """`types` with all variables of the body that change with them."""
        while True:
            trial = Retype(self.g.e, dict(types))
            trial.block([*self.condition, *self.block])
            if trial.types == types:
                return types
            types = trial.types

    def _sources(self, item: Carried) -> None:
        """What each path gives to the variables of one carried name."""
        g = self.g
        exits = self.record.exits
        values = [
            item.header if e.kind == "test" and item.key not in e.values else self._value_at(item.key, k)
            for k, e in enumerate(exits)
        ]
        for k, value in enumerate(values):
            if value is MISSING or isinstance(value, Unusable):
                if isinstance(value, Unusable) and not value.unset:
                    raise g.error(CompilationError, value.message, code=value.code, hint=value.hint, notes=value.notes)
                values[k] = item.header  # unset on this path: whoever reads it is told

            elif isinstance(value, Tensor) and isinstance(item.header, Tile) and item.key[0] is g.frame:
                values[k] = self._elements(item.key, value, exits[k])

        def leaf(items: Sequence[Any]) -> Any:
            header = items[0]
            if isinstance(header, Tensor):
                if any(isinstance(v, Tile) for v in items[1:]):
                    raise Disagreement("a tensor and a tile", "begin with a tile: `pl.load` of the tensor")
                raise Disagreement("a tensor chosen at run time", "load from it or store to it inside the loop")
            phi = next(p for p in item.phis if p.holds(header))
            if isinstance(header, Tile):
                if any(isinstance(v, Tensor) for v in items[1:]):
                    raise Disagreement("a tile and a tensor", "copy the elements of the array: "
                                       f"`{item.key[1]}[...] = `, or take its values: `pl.load` of it")  # fmt: skip
                self._check_extents(item, header, items[1:])
            phi.sources = [phi.sources[0], *items[1:]]
            return header

        try:
            combine([item.header, *values], leaf)
        except Disagreement as problem:
            raise self._mismatch(item, problem) from None
        for phi in item.phis:
            if len(phi.sources) == 1:
                phi.sources += [None] * len(values)

    def _check_extents(self, item: Carried, header: Tile, values: Sequence[Any]) -> None:
        """A carried tile keeps its run-time extents: those of the tile before the loop are used for all iterations."""
        for value in values:
            if not isinstance(value, Tile) or value.rank != header.rank:
                continue  # refused as a change of type
            for axis, (old, new) in enumerate(zip(header.extents, value.extents, strict=True)):
                if old == new or (isinstance(old, Const) and isinstance(new, Const)):
                    continue
                emitter = self.g.e
                if not (emitter.same_extent(old, new) or _follows(emitter.definitions, value.var, header.var, 40)):
                    raise self._mismatch(
                        item,
                        Disagreement(
                            f"the extent of axis {axis} is computed anew in the loop",
                            "compute the extent once, before the loop, and give it to the tile here, too, as in "
                            "`pl.load(v, [0], [n])`, or give the tile a constant shape",
                        ),
                    )

    def _is_shared(self, name: str, array: Tensor) -> bool:
        from pto_jit.codegen.arrays import is_shared  # few kernels need it

        return is_shared(self.g, name, array)

    def _elements(self, key: Key, array: Tensor, at: LoopExit) -> Tensor | Tile:
        """What a carried tile gets where an iteration ends with an array that it made."""
        from pto_jit.codegen.arrays import values_of  # few kernels need it

        e = self.g.e
        frame = self.g.frame  # what only the iteration knows is set anew in the next one, but not after a break
        bound = {name: value for (holder, name), value in at.values.items()
                 if holder is frame and (at.kind == "break" or name in frame.vars)}  # fmt: skip
        block = e.push(at.place.statements)
        tile = values_of(self.g, key[1], array, bound)
        e.pop(block)
        return array if tile is None else tile

    def _mismatch(self, item: Carried, problem: Disagreement) -> CompilationError:
        g = self.g
        holder, name = item.key
        g.meets(item.before)
        subject = "the state of a reduction" if isinstance(holder, Target) else f"`{name}`"
        places = [self.changes.get(item.key, (None, None))[1]]
        place = next((p for p in places if p is not None and p is not item.place), None)
        notes = [Note(f"before the loop {subject} is {describe(item.before)}", g.loc(item.place))] if item.place else []
        if problem.wide is not None:
            notes += widened(g.e.definitions, problem.wide)
        cls = TypeMismatchError if item.phis else CompilationError
        where = place if place is not None else self.node
        return g.error_at(
            where,
            cls,
            f"{subject} changes from one iteration to the next: {problem.message}",
            code="PTO-T001" if item.phis else "PTO-N014",
            hint=problem.hint
            or "only numbers and tiles can change in a run-time loop; unroll it with `pl.static_range` to change "
            "compile-time values",
            notes=[*notes, Note("this loop runs at run time", self.loc)],
        )

    def _check_unexpected(self) -> None:
        """Names the syntax does not show to be assigned in the loop (by a nested function, say)."""
        g = self.g
        known = {c.key for c in self.carried}
        for key, (_, place) in self.changes.items():
            holder, name = key
            if isinstance(holder, Target) or key in known or (holder is g.frame and name in self.names.assigned):
                continue
            if holder.vars.get(name, MISSING) is MISSING:
                continue
            raise g.error_at(
                place or self.node,
                CompilationError,
                f"`{name}` is changed by a function called in a run-time loop",
                code="PTO-N015",
                hint="return the new value from the function and assign it in the loop",
                notes=(Note("this loop runs at run time", self.loc),),
            )

def _follows(definitions: dict[str, Op], var: Operand, header: Var, depth: int) -> bool:
    """Whether a tile has the extents of `header` because it is computed elementwise with it, or a product that is added
    to it (which is checked)."""
    if not isinstance(var, Var) or depth == 0:
        return False
    if var.name == header.name:
        return True
    op = definitions.get(var.name)
    if op is not None and op.op == "dot" and len(op.args) > 2:
        return _follows(definitions, op.args[2], header, depth - 1)
    if op is None or not is_elementwise(op.op, len(op.args)):
        return False
    same = [a for a in op.args if isinstance(a.type, TileType) and a.type.shape == header.type.shape]  # type: ignore[union-attr]
    return any(_follows(definitions, a, header, depth - 1) for a in same)
