# SPDX-License-Identifier: MIT
"""Gather consecutive tile operations into loop nests.

Before::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,?x?,f32>, %b: !pto.memref<gm,?x?,f32>, %r: i64, %cols: i64) {
      %x = tload %a[%r, 0] [1, %cols] : !pto.tile<1x?xf32>
      %m = tmax %x {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
      %d = tsub %x, %m : !pto.tile<1x?xf32>
      %e = texp %d : !pto.tile<1x?xf32>
      tstore %e, %b[%r, 0]
      return
    }

After::

    // Function Type: InCore
    func @f(%a: !pto.memref<gm,?x?,f32>, %b: !pto.memref<gm,?x?,f32>, %r: i64, %cols: i64) {
      FUSE
        %x = tload %a[%r, 0] [1, %cols] : !pto.tile<1x?xf32>
        %m = tmax %x {axes=(1,), keepdims=true} : !pto.tile<1x1xf32>
        %d = tsub %x, %m : !pto.tile<1x?xf32>
        %e = texp %d : !pto.tile<1x?xf32>
        tstore %e, %b[%r, 0]
      ENDFUSE
      return
    }

A group runs as one *row nest*: loops over the leading axes of a common iteration space and, per row, one or several
passes over the last axis with scalar work between them.  Operations go together when

* they are elementwise, loads, stores, generated tiles, reductions, or reshapes that only insert or remove axes of
  extent 1;
* the axes of all their tiles, identified with each other wherever an elementwise operation lines them up, form one
  sequence of which every tile has a subsequence;
* nothing reads a result that is complete only after the last row (a reduction over the leading axes), and the operand
  of such a reduction has all of the row axes;
* nothing is loaded after something was stored: the two may share memory;
* all that the group gives is made of the same tiles that may be empty along an axis of extent 1 (`units`);
* nothing costly is computed in each row that is the same in all of them: that is a group before (`rows`);
* no generated tile that is stored, reduced or read outside meets others: it has extents of its own, and the group those
  of the others (`fitting`).

Integers and views that stand between tile operations move before them (`views`); else order is kept, so the pass is
legal wherever the grouping is.  A group is at most a maximal run.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_jit.ir import walk
from pto_jit.ir.nodes import Block, For, Func, Fuse, If, Module, Op, Scope, Stmt, Var, While
from pto_jit.lower.complete import Complete
from pto_jit.lower.groups.axes import (
    GENERATED,
    Axial,
    axes_of_group,
    never_grouped,
    remember_axes,
    touches_tiles,
    unit_reshape,
)
from pto_jit.lower.groups.fitting import Fitting, always_fitting, fitting_axes, narrows
from pto_jit.lower.groups.recompute import recompute
from pto_jit.lower.groups.rows import common_rows, rows_first
from pto_jit.lower.groups.units import Units, operations, over_what_is_valid, uneven
from pto_jit.lower.groups.viewed import view_once
from pto_jit.lower.groups.views import move_views
from pto_jit.lower.maps import expand_maps
from pto_jit.semantic.table import REDUCTIONS
from pto_jit.slotted import replace

_LIMIT = 96  # operations in a group: beyond this the loop bodies no longer fit the registers anyway


def fuse(module: Module) -> Module:
    """Form the groups of every function (in-core code and orchestration with tiles alike)."""
    module = move_views(view_once(expand_maps(module)))
    funcs = tuple(recompute(_function(f)) for f in module.funcs)
    if all(a is b for a, b in zip(funcs, module.funcs, strict=True)):
        return module
    return replace(module, funcs=funcs)


def _function(func: Func) -> Func:
    """The groups of a function."""
    grouper = _Grouper(func.body)
    fused = grouper.function(func)
    other = over_what_is_valid(func, fused)
    if other is None:
        grouper.complete = uneven(fused)
        if grouper.complete is None:
            return fused
        fused = grouper.function(func)
        other = over_what_is_valid(func, fused)
    return fused if other is None else _function(other)


class _Grouper:
    """fitting: the axes along which tiles fit any valid extent, always or, of variables, at times; complete: what is
    known to be complete, where groups could give a part of what they compute; before: the groups that were found
    without it, by the identity of the block, which is kept, and the place in it."""

    def __init__(self, body: Block) -> None:
        self.uses = walk.use_counts(body)
        self.mutable = {name for name, count in walk.def_counts(body).items() if count > 1}
        self.fitting: Fitting = fitting_axes(body)
        self.always: Fitting = always_fitting(body, self.fitting) if self.fitting else self.fitting
        self.complete: Complete | None = None
        self.before: dict[tuple[int, int], tuple[Block, Fuse | None]] = {}

    def function(self, func: Func) -> Func:
        """A function with groups."""
        body = self.block(func.body)
        return func if body is func.body else replace(func, body=body)

    def block(self, block: Block) -> Block:
        out: list[Stmt] = []
        at = 0
        changed = False
        while at < len(block):
            stmt = block[at]
            if isinstance(stmt, Op) and touches_tiles(stmt):
                group = self._group(block, at)
                if group is not None:
                    ops = operations(group)
                    first = rows_first(ops, common_rows(ops, axes_of_group(group.body), self.mutable))
                    if first is not ops:
                        block = (*block[:at], *first, *block[at + len(ops) :])
                        continue
                    out.append(group)
                    at += len(group.body)
                    changed = True
                    continue
            inner = self._inside(stmt)
            changed |= inner is not stmt
            out.append(inner)
            at += 1
        return tuple(out) if changed else block

    def _inside(self, stmt: Stmt) -> Stmt:
        match stmt:
            case For() | Scope():
                body = self.block(stmt.body)
                return stmt if body is stmt.body else replace(stmt, body=body)
            case While():
                before, body = self.block(stmt.before), self.block(stmt.body)
                same = before is stmt.before and body is stmt.body
                return stmt if same else replace(stmt, before=before, body=body)
            case If():
                then, orelse = self.block(stmt.then), self.block(stmt.orelse)
                same = then is stmt.then and orelse is stmt.orelse
                return stmt if same else replace(stmt, then=then, orelse=orelse)
            case _:
                return stmt

    def _group(self, block: Block, start: int) -> Fuse | None:
        """The longest group of statements from `start` on; one that was found before stays if it is none of those that
        could give a part."""
        place = id(block), start
        if self.complete is None:
            group = self._longest(block, start)
            self.before[place] = block, group
            return group
        if place in self.before:
            _, group = self.before[place]
            if group is None or not Units(operations(group), group.keep, self.complete).apart:
                return group
        return self._longest(block, start)

    def _longest(self, block: Block, start: int) -> Fuse | None:
        state = Axial()
        best = 0
        ops: list[Op] = []
        made: set[str] = set()
        reduced: set[str] = set()  # variables whose value from before the group is reduced in it
        admitted = True
        works = False
        for stmt in block[start : start + _LIMIT]:
            if type(stmt) is not Op or stmt.regions or never_grouped(stmt):
                break
            if reduced and any(r.name in reduced for r in stmt.results):
                break
            admitted = state.admit(stmt)
            if not admitted:
                break
            ops.append(stmt)
            made.update([r.name for r in stmt.results])
            if stmt.op in REDUCTIONS and len(stmt.args) == 1:
                reduced.update([a.name for a in stmt.args if type(a) is Var and a.name not in made])
            if _works(stmt):
                works = works or stmt.op not in GENERATED
                if not state.pending:
                    best = len(ops)
        if not works:
            best = 0  # nothing but views
        states: list[Axial] = []
        while best:
            if admitted and (best == len(ops) or _may_forget(state, ops, best)):
                last = state
            else:  # operations were admitted that are not part of it: what was before them is made again
                last = states[best - 1] if states else _after(ops[:best])
            if last.work and not last.pending:
                body = tuple(ops[:best])
                keep = self._keep(body)
                if self._sound(body, last, set(keep)):
                    remember_axes(body, last)
                    return Fuse(body, keep, body[0].loc)
            best -= 1
            while best and not _works(ops[best - 1]):
                best -= 1
            if best and not states:
                states = _states(ops[:best])
        first = block[start]
        if isinstance(first, Op) and first.op in GENERATED:
            return Fuse((first,), self._keep((first,)), first.loc)
        return None

    def _keep(self, ops: Sequence[Op]) -> tuple[str, ...]:
        """Results read outside of the group, or assigned elsewhere too."""
        inside: dict[str, int] = {}
        for op in ops:
            for a in op.args:
                if type(a) is Var:
                    inside[a.name] = inside.get(a.name, 0) + 1
        out: dict[str, None] = {}
        for op in ops:
            for r in op.results:
                if r.name in self.mutable or self.uses.get(r.name, 0) > inside.get(r.name, 0):
                    out[r.name] = None
        return tuple(out)

    def _sound(self, ops: Sequence[Op], state: Axial, keep: set[str]) -> bool:
        """Whether every store and result that needs memory is of each row (else an empty nest would miss it)."""
        rows = {state.find(a) for a in state.space[:-1]}
        if not all(rows <= {state.find(a) for a in axes if a is not None} for axes in state.stores):
            return False
        if self._narrows(ops, state, keep) or _stores_apart(ops):
            return False
        if state.again and not state.again <= common_rows(ops, state, self.mutable):
            return False
        if self.complete is not None and Units(ops, keep, self.complete).apart:
            return False
        loads = {op.results[0].name for op in ops if op.op == "load"}
        for name in keep - loads - state.late - state.hoisted:
            if name in state.floating:
                if len(ops) > 1:
                    return False
                continue
            axes = state.axes.get(name)
            have = set() if axes is None else {state.find(a) for a in axes if a is not None}
            if not rows <= have:
                return False
        return True

    def _narrows(self, ops: Sequence[Op], state: Axial, keep: set[str]) -> bool:
        """Whether a generated tile that can be seen would be cut to the extents of others."""
        may = self.fitting
        if not may or may.keys().isdisjoint([v.name for op in ops for v in (*op.results, *op.args) if type(v) is Var]):
            return False
        return narrows(ops, state, keep, may, self.always)


def _stores_apart(ops: Sequence[Op]) -> bool:
    """Whether single elements from outside are stored among other operations.

    Nothing is gained, and they would depend on whether there is anything of other tiles.
    """
    made = {r.name for op in ops if op.op != "load" for r in op.results}
    return any(
        op.op == "store" and isinstance(op.args[0], Var) and op.args[0].name not in made
        and all(extent == 1 for extent in op.args[0].type.shape)  # pyright: ignore[reportAttributeAccessIssue]
        for op in ops
    ) and sum(map(_works, ops)) > 1  # fmt: skip


def _may_forget(state: Axial, ops: list[Op], best: int) -> bool:
    """Make the state that of the first `best` operations, where the others are numbers of names of their own."""
    made = {r.name for op in ops[:best] for r in op.results}
    if any(r.name in made for op in ops[best:] for r in op.results) or not state.forget(ops[best:]):
        return False
    del ops[best:]
    return True


def _after(ops: Sequence[Op]) -> Axial:
    """What is known of the axes after operations that were admitted."""
    state = Axial()
    for op in ops:
        state.admit(op)
    return state


def _states(ops: Sequence[Op]) -> list[Axial]:
    """The same after each of them."""
    states = [Axial()]
    for op in ops:
        states.append(states[-1].clone())
        states[-1].admit(op)
    return states[1:]


def _works(op: Op) -> bool:
    """Whether a group may end with this operation: it touches tiles and is no mere view or measure."""
    if op.op in ("load", "valid", "extent"):
        return False
    return touches_tiles(op) and not (op.op == "reshape" and unit_reshape(op) is not None)
