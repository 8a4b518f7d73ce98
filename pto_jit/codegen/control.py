# SPDX-License-Identifier: MIT
"""Run-time branches, early exits out of them, and the merging of what they change.

A branch that leaves a function being inlined or an unrolled loop (a `Target`) keeps its `if` pending: the code that
follows is compiled into the other side, so guard clauses become plain nested branches.  Where only part of a side
leaves, the target's `left` variable, merged like any other, guards the rest.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pto_jit.codegen.emit import index
from pto_jit.codegen.frames import MISSING, Frame, Unusable
from pto_jit.codegen.merging import Disagreement, Exit, Phi, combine, copies, describe, joined_type, parts, rebuilt
from pto_jit.codegen.regions import (
    GONE,
    SPLIT,
    Branch,
    Changes,
    Key,
    LoopExit,
    LoopRecord,
    Pending,
    Region,
    Status,
    Target,
)
from pto_jit.codegen.values import Scalar, Tensor, Tile
from pto_jit.dtypes import bool_
from pto_jit.errors import Loc, Note, ScheduleError
from pto_jit.ir.nodes import Break, Const, Continue, If, Op, Operand, Return
from pto_jit.ir.types import ScalarType, TileType
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.codegen.generator import Generator

Run = Callable[[], Status]


class Control:
    """Compiles branches of one function."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.pending: list[Pending] = []

    # -- regions ------------------------------------------------------------------------------------------------

    def open_region(self, loop: LoopRecord | None = None) -> Region:
        g = self.g
        g.depth += 1
        region = Region(g.depth, g.inner, g.e.loc, loop)
        g.inner = region
        return region

    def close_region(self, region: Region) -> Changes:
        """Leave a region: what changed in it, with the old values back in force."""
        g = self.g
        assert g.inner is region
        g.inner = region.parent
        g.depth -= 1
        changes: Changes = {}
        for (holder, name), (old, place) in region.journal.items():
            changes[holder, name] = (holder.vars.get(name, MISSING), holder.places.get(name))
            restore(holder, name, old, place)
        return changes

    def apply(self, changes: Changes) -> None:
        """Make the changes of a closed region in the current one."""
        for (holder, name), (value, place) in changes.items():
            if value is MISSING:
                self.g.unbind(holder, name)
            else:
                self.g.bind(holder, name, value, place)

    def branch(self, run: Run, live: frozenset[str] | None = None) -> Branch:
        """Compile one side of a branch on its own. `live`: names of this function read after it (None: any may be)."""
        g = self.g
        region = self.open_region()
        block = g.e.push()
        mark = len(self.pending)
        status = self.close_pending(mark, run(), live=live)
        g.e.pop(block)
        return Branch(block, self.close_region(region), status, region)

    # -- if -----------------------------------------------------------------------------------------------------

    def run_if(self, cond: Scalar, then: Run, orelse: Run, node: ast.AST, live: frozenset[str] | None) -> Status:
        """A branch decided at run time. `live`: names of this function read afterwards (None: any may be)."""
        g = self.g
        loc = g.loc(node)
        a = self.branch(then, live)
        g.node = node
        if a.status is GONE:  # the rest need not be nested
            g.e.append(If(cond.operand, tuple(a.block), (), loc))
            return orelse()
        if a.status is not None:
            return self._after_gone(cond, a, orelse, node, loc)
        b = self.branch(orelse, live)
        g.node = node
        if b.status is GONE:
            g.e.append(If(self.negated(cond).operand, tuple(b.block), (), loc))
            g.e.current.extend(a.block)
            self.apply(a.changes)
            return None
        if b.status is not None:
            self._reopen(cond, b, a, node, loc)
            return None
        self.merge_if(cond, a, b, loc, live)
        return None

    def _after_gone(self, cond: Scalar, gone: Branch, orelse: Run, node: ast.AST, loc: Loc) -> Status:
        g = self.g
        region = self.open_region()
        block = g.e.push()
        mark = len(self.pending)
        self.pending.append(Pending(cond, gone, True, region, block, loc, node))
        status = orelse()
        if status is None:
            return None
        return self.close_pending(mark, status)

    def _reopen(self, cond: Scalar, gone: Branch, stays: Branch, node: ast.AST, loc: Loc) -> None:
        """The second side left for a target: continue in the first."""
        g = self.g
        region = self.open_region()
        block = g.e.push(stays.block)
        self.pending.append(Pending(cond, gone, False, region, block, loc, node))
        self.apply(stays.changes)

    def close_pending(
        self, mark: int, status: Status, *, live: frozenset[str] | None = None, over: Frame | None = None
    ) -> Status:
        """Finish the branches opened since `mark`.

        `live`: names of this function that are read afterwards (None: any may be); variables of `over` (a function
        that is over) are not merged at all.
        """
        g = self.g
        while len(self.pending) > mark:
            item = self.pending.pop()
            g.e.pop(item.block)
            stays = Branch(item.block, self.close_region(item.open), status, item.open)
            gone = item.gone
            if status is GONE:
                cond = self.negated(item.cond) if item.gone_is_then else item.cond
                g.e.append(If(cond.operand, tuple(stays.block), (), item.loc))
                g.e.current.extend(gone.block)
                self.apply(gone.changes)
                status = gone.status
                continue
            first, second = (gone, stays) if item.gone_is_then else (stays, gone)
            self.merge_if(item.cond, first, second, item.loc, live, over)
            if status is not None and status is not gone.status:
                status = SPLIT
        return status

    def negated(self, cond: Scalar) -> Scalar:
        if isinstance(cond.operand, Const):
            return Scalar(Const(not cond.operand.value, ScalarType(bool_)))
        return self.g.e.scalar("not", [cond.operand])

    def merge_if(
        self, cond: Scalar, a: Branch, b: Branch, loc: Loc, live: frozenset[str] | None, over: Frame | None = None,
        *, hold: bool = False,
    ) -> None:
        """Append the `if` of two finished sides and bind what they changed to the merged values.

        `hold`: a name that one side sets holds its value, for where it is known that this side was run.
        """
        g = self.g
        keys = list(a.changes)
        keys += [k for k in b.changes if k not in a.changes]
        phis: list[Phi] = []
        merged: list[tuple[Key, Any, ast.AST | None]] = []
        for key in keys:
            holder, name = key
            if holder is over:
                continue
            old = holder.vars.get(name, MISSING), holder.places.get(name)
            (va, pa), (vb, pb) = a.changes.get(key, old), b.changes.get(key, old)
            place = pa if key in a.changes else pb
            if live is not None and holder is g.frame and name not in live:
                value: Any = va if va is vb else dead(name, loc)
            else:
                if holder is g.frame and va is not vb and (isinstance(va, Tensor) or isinstance(vb, Tensor)):
                    va, vb = self._value(name, va, vb, a, live), self._value(name, vb, va, b, live)
                value = self.meet(name, [(va, pa, a.status), (vb, pb, b.status)], phis, holder, hold=hold)
            merged.append((key, value, place))
        for path, side in enumerate((a, b)):
            block = g.e.push(side.block)
            copies(g.e, phis, path, loc)
            g.e.pop(block)
        self.define_before(phis, loc)
        if a.block or b.block:
            g.e.append(If(cond.operand, tuple(a.block), tuple(b.block), loc))
        self._extents_after(merged)
        for (holder, name), value, place in merged:
            if value is MISSING:
                g.unbind(holder, name)
            else:
                g.bind(holder, name, value, place)

    def _value(self, name: str, value: Any, other: Any, side: Branch, live: frozenset[str] | None) -> Any:
        """What one side of a branch gives to a name that is a tile or another array on the other side."""
        if not isinstance(value, Tensor) or not isinstance(other, (Tensor, Tile)):
            return value
        from pto_jit.codegen.arrays import values_of  # few kernels need it

        bound = {n: v for (holder, n), (v, _) in side.changes.items() if holder is self.g.frame}
        block = self.g.e.push(side.block)
        tile = values_of(self.g, name, value, bound, live)
        self.g.e.pop(block)
        return value if tile is None else tile

    def meet(
        self,
        name: str,
        paths: Sequence[tuple[Any, ast.AST | None, Status]],
        phis: list[Phi],
        holder: Any,
        *,
        inner: bool = False,
        hold: bool = False,
    ) -> Any:
        """One value of a name out of several paths; `Unusable` when they do not go together.

        `inner`: even a value that all paths share may be computed where code after the meeting cannot see it.
        `hold`: what only some paths set keeps its value, as `Unusable.held`.
        """
        g = self.g
        values = [v for v, _, _ in paths]
        if all(v is values[0] for v in values) and not (inner and g.find_runtime(values[0]) is not None):
            return values[0]
        if hold:
            values = [v.held if isinstance(v, Unusable) and v.held is not MISSING else v for v in values]
        for value in values:
            if isinstance(value, Unusable) and not value.unset:
                return value
        missing = [k for k, v in enumerate(values) if v is MISSING or isinstance(v, Unusable)]
        if len(missing) == len(values):
            return values[missing[0]]
        present = [v for k, v in enumerate(values) if k not in missing]
        unset = None
        if missing and not (isinstance(holder, Target) or all(_irrelevant(values[k], paths[k][2]) for k in missing)):
            known = next(p for k, (_, p, _) in enumerate(paths) if k not in missing)
            notes = (Note("assigned here, but not on every path", g.loc(known)),) if known is not None else ()
            unset = Unusable(f"`{name}` may be unset here", "PTO-N012", notes,
                             f"assign `{name}` before the branch or loop", unset=True)  # fmt: skip
            if not hold:
                return unset

        at = [k for k in range(len(values)) if k not in missing]

        def leaf(items: Sequence[Any]) -> Any:
            return self.phi(name, items, len(values), at, phis)

        count = len(phis)
        try:
            # where only some paths have the value, or only the inside of a loop, it is kept in variables
            value = combine(present, leaf, every=inner or bool(missing))
        except Disagreement as problem:
            del phis[count:]
            return unset or self.disagreement(name, [(v, p) for v, p, _ in paths if v is not MISSING], problem)
        return value if unset is None else replace(unset, held=value)

    def phi(self, name: str, items: Sequence[Any], count: int, at: Sequence[int], phis: list[Phi]) -> Any:
        """A variable for values that differ; `at` says which paths the items are of."""
        g = self.g
        type_, weak = joined_type(items)
        var = g.e.fresh(name, type_)
        if weak:
            g.e.weak.add(var.name)
        sources: list[Any] = [None] * count
        for k, item in zip(at, items, strict=True):
            sources[k] = item
        phis.append(Phi(var, sources, weak))
        if isinstance(type_, TileType):
            tiles = [v for v in items if isinstance(v, Tile)]
            extents = [e if all(t.extents[k] == e for t in tiles) else None for k, e in enumerate(tiles[0].extents)]
            if None not in extents:
                g.e.extents[var.name] = tuple(extents)  # type: ignore[arg-type]
            return Tile(var, tuple(extents), all(t.generated for t in tiles), g.e.loc)  # type: ignore[arg-type]
        return Scalar(var, weak, g.e.loc)

    def disagreement(self, name: str, values: Sequence[tuple[Any, ast.AST | None]], problem: Disagreement) -> Unusable:
        notes = tuple(
            Note(f"here `{name}` is {describe(value)}", self.g.loc(place))
            for value, place in values
            if place is not None and not isinstance(value, Unusable)
        )
        for value, _ in values:
            self.g.meets(value)
        arrays = all(isinstance(v, (Tensor, np.ndarray)) for v, _ in values if not isinstance(v, Unusable))
        hint = problem.hint or (
            f"copy the elements, if the shapes agree: `{name}[...] = `" if arrays else
            "a value that is not a number or tile is decided at compile time and cannot change under a run-time branch "
            "or loop; make the decision with a compile-time condition or select between numbers or tiles"
        )
        return Unusable(f"`{name}` has no one type here: {problem.message}", "PTO-T001", notes, hint)

    def define_before(self, phis: Sequence[Phi], loc: Loc) -> None:
        """What only some paths set gets a value before the branch, so that every path defines it."""
        e = self.g.e
        for phi in phis:
            if all(s is not None for s in phi.sources):
                continue
            type_ = phi.var.type
            assert isinstance(type_, (ScalarType, TileType))
            zero = e.cast(0, type_.dtype).operand
            if isinstance(type_, ScalarType):
                e.append(Op("copy", (phi.var,), (zero,), (), (), loc))
            else:  # never read: the extents that are not constants do not matter
                extents = [index(1 if extent is None else extent) for extent in type_.shape]
                e.append(Op("full", (phi.var,), (zero, *extents), (), (), loc))

    def _extents_after(self, merged: list[tuple[Key, Any, ast.AST | None]]) -> None:
        """Extents of merged tiles that the paths do not agree on are asked of the variable."""
        for k, (key, value, place) in enumerate(merged):
            merged[k] = (key, self.with_extents(value), place)

    def with_extents(self, value: Any) -> Any:
        """A merged value whose tiles have all their extents (`None` ones are read from the variable)."""
        if isinstance(value, Tile):
            if all(e is not None for e in value.extents):
                return value
            extents: list[Operand] = []
            for axis, extent in enumerate(value.extents):
                if extent is None:
                    (var,) = self.g.e.op("extent", [value.var], {"axis": axis})
                    extent = var
                extents.append(extent)
            return Tile(value.var, tuple(extents), value.generated, value.origin)
        items = None if isinstance(value, (Scalar, Unusable)) else parts(value)
        if items is None:
            return value
        done = [self.with_extents(v) for v in items]
        result = value if all(x is y for x, y in zip(items, done, strict=True)) else rebuilt(value, done)
        return self.g.adopt(result)

    # -- leaving ------------------------------------------------------------------------------------------------

    def leave(self, target: Target, node: ast.AST) -> Status:
        """Go to the end of `target`: by an IR `break` when run-time loops are in between, else in structured form."""
        g = self.g
        g.bind(target, "left", True, node)
        if len(g.loops) > target.loops:
            return self.leave_loop("break", node, target)
        return target

    def leave_loop(self, kind: str, node: ast.AST, beyond: Target | None = None) -> Status:
        """`break` ("break") or `continue` ("next") of the innermost run-time loop, perhaps to leave more than it."""
        g = self.g
        loop = g.loops[-1]
        if loop.kind == "parallel" and kind == "break":
            raise g.error_at(
                node,
                ScheduleError,
                f"`{'break' if beyond is None else beyond.statement}` in a parallel or chunked loop",
                code="PTO-L001",
                hint="iterations run in any order: make the loop sequential, or guard the body with an `if`",
                notes=(Note("the loop is parallel", loop.loc),),
            )
        if g.scope_depth > loop.scope_depth:  # an IR `break` does not leave a scope: it follows the scope
            target = loop.leave[kind]
            g.bind(target, "left", True, node)
            return target
        self.record_exit(loop, kind, beyond)
        g.e.append(Break(g.loc(node)) if kind == "break" else Continue(g.loc(node)))
        return GONE

    def record_exit(self, loop: LoopRecord, kind: str, beyond: Target | None = None) -> None:
        """Mark a way out of an iteration, with the values of all names changed since its start."""
        g = self.g
        values: dict[Key, Any] = {}
        region = g.inner
        while region is not None:
            for key in region.journal:
                values.setdefault(key, key[0].vars.get(key[1], MISSING))
            if region.loop is loop:
                break
            region = region.parent
        assert region is not None
        values = {k: v for k, v in values.items() if k[0].region < region.depth}  # others end with the iteration
        place = Exit()
        g.e.current.append(place)  # type: ignore[arg-type]  # replaced before the block is complete
        loop.exits.append(LoopExit(kind, place, values, beyond))

    def after_statement(self, node: ast.AST) -> Status:
        """Continue after a statement that may have left some target on some paths."""
        g = self.g
        for target in reversed(g.targets):
            left = target.vars["left"]
            if left is False:
                continue
            if left is True:
                return self._left_for_good(target, node)
            status = self._if_left(target, left, node)
            if status is not None:
                return status
        return None

    def _left_for_good(self, target: Target, node: ast.AST) -> Status:
        """Every path has left the target."""
        g = self.g
        if len(g.loops) > target.loops:
            return self.leave_loop("break", node, target)
        if target.kind == "entry" and not g.scope_depth:
            return self.return_now(target, node)
        return target

    def _if_left(self, target: Target, left: Scalar, node: ast.AST) -> Status:
        g = self.g
        crossing = len(g.loops) > target.loops
        if target.kind in ("leave next", "leave break") and not g.scope_depth > g.loops[-1].scope_depth:

            def leave() -> Status:
                g.bind(target, "left", True)
                return self.leave_loop(target.kind.split()[1], node)

            block = self.branch(leave)
            g.e.append(If(left.operand, tuple(block.block), (), g.loc(node)))
            g.bind(target, "left", False)
            return None
        if crossing or (target.kind == "entry" and not g.scope_depth):

            def go() -> Status:
                g.bind(target, "left", True)
                if crossing:
                    return self.leave_loop("break", node, target)
                return self.return_now(target, node)

            block = self.branch(go)
            g.e.append(If(left.operand, tuple(block.block), (), g.loc(node)))
            g.bind(target, "left", False)
            return None
        cond = self.negated(left)
        region = self.open_region()
        block = g.e.push()
        skipped = Branch([], {(target, "left"): (True, None)}, target, region)
        self.pending.append(Pending(cond, skipped, False, region, block, g.loc(node), node))
        g.bind(target, "left", False)
        return None

    def return_now_value(self, value: Any, node: ast.AST) -> None:
        """An IR `return` of a value (the body of a lambda)."""
        self.g.e.append(Return(self.g.calls.results(value, node), self.g.loc(node)))

    def return_now(self, target: Target, node: ast.AST) -> Status:
        """An IR `return` of the entry function."""
        g = self.g
        values = g.calls.results(target.vars.get("result"), node)
        g.e.append(Return(values, g.loc(node)))
        return GONE


def restore(holder: Any, name: str, value: Any, place: ast.AST | None) -> None:
    """Give a name back the value and the place of its assignment that it had."""
    if value is MISSING:
        holder.vars.pop(name, None)
    else:
        holder.vars[name] = value
    if place is None:
        holder.places.pop(name, None)
    else:
        holder.places[name] = place


def _irrelevant(value: Any, status: Status) -> bool:
    """Whether a path's lack of a value does not matter: its function is over, or nothing reads the name after it."""
    if isinstance(value, Unusable) and value.dead:
        return True
    return isinstance(status, Target) and status.kind in ("function", "entry")


def dead(name: str, loc: Loc) -> Unusable:
    """A name that nothing reads any more, by the analysis of the source; reading it after all is refused."""
    return Unusable(f"`{name}` may be unset here", "PTO-N012", (Note("changed in this branch or loop", loc),),
                    f"assign `{name}` again before this use", unset=True, dead=True)  # fmt: skip
