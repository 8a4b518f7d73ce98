# SPDX-License-Identifier: MIT
"""Control flow under masks.

A branch whose condition differs from lane to lane writes both sides under masks, with a jump around a side that is
worth one when no lane takes it.  A loop that lanes leave at different times runs until no lane is left in it.  What all
lanes have in common stays scalar code with ordinary jumps.

Whatever a jump could be worth (memory, loops, long computations) runs only when at least one lane is active; a load
from one address for all lanes relies on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from llvmlite import ir

from pto_jit.lower.packs import PACK
from pto_jit.slotted import mutable
from pto_jit.targets.cpu.code import PLAIN
from pto_jit.targets.cpu.constants import I64, Index, Value, number, vector
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.spmd.form import Branch, Compute, Leave, Node, Repeat
from pto_jit.targets.cpu.spmd.lanes import Lanes, Mask
from pto_jit.targets.cpu.spmd.squares import LINES
from pto_jit.targets.cpu.spmd.variance import DIVISIONS, MATH
from pto_jit.targets.cpu.vector import call_intrinsic

_LONG = 12  # operations of one side of a branch from which on a jump around it pays


@mutable
class _Loop:
    """A loop that is being written. `live`: the lanes in it; `now`: those that are still in this iteration."""

    node: Repeat | None
    again: ir.Block
    done: ir.Block | None
    live: list[Value] | None
    now: list[Value] | None


class LaneWriter(Lanes):
    """Writes the nodes of a form for one group of lanes."""

    loops: list[_Loop]
    """From the outside in, the group itself first."""

    def iteration(self, nodes: Sequence[Node], mask: Mask) -> None:
        """One group: the nodes in the lanes of a mask that has at least one."""
        code = self.code
        after = code.block("lanes")
        now = None
        if self.variance.root_leaves:
            now = self.mask_slots()
            self.save_mask(mask, now)
        self.loops = [_Loop(None, after, None, None, now)]
        self.mask = mask
        self.block(nodes)
        code.go(after)
        code.at(after)

    def block(self, nodes: Sequence[Node]) -> None:
        """Nodes in order; afterwards `mask` is for the caller to restore."""
        for k, node in enumerate(nodes):
            if self.code.terminated:
                return
            match node:
                case Compute():
                    lines = self.code.lines
                    with lines.statement(self.code, node.op.loc) if lines is not None else nullcontext():
                        self.operate(node.op, node.masked)
                case Branch():
                    self._branch(node)
                case Repeat():
                    self._repeat(node)
                case Leave():
                    self._leave(node)
            rest = nodes[k + 1 :]
            if isinstance(node, Branch) and node.leaves and rest and not self.code.terminated:
                if _needs_lanes(rest):
                    with self.code.when(self.any(self.mask)):
                        self.block(rest)
                else:
                    self.block(rest)
                return

    def _remaining(self, mask: Mask) -> Mask:
        """The lanes of a mask that have not left the iteration since."""
        now = self.loops[-1].now
        return mask if now is None else self.both(mask, self.load_mask(now))

    # -- branches -----------------------------------------------------------------------------------------------------

    def _branch(self, node: Branch) -> None:
        code, mask = self.code, self.mask
        if not node.varying:
            then, after = code.block("if"), code.block("endif")
            orelse = code.block("else") if node.orelse else after
            code.b.cbranch(self.w.scalar(node.cond), then, orelse)
            for place, side in ((then, node.then), (orelse, node.orelse)):
                if place is after:
                    continue
                code.at(place)
                self.mask = mask
                self.block(side)
                code.go(after)
            code.at(after)
        else:
            cond = self.vectors(node.cond)
            sides: list[tuple[list[Node], Mask]] = []
            if node.then:
                sides.append((node.then, self.both(mask, cond)))
            if node.orelse:
                sides.append((node.orelse, self.without(mask, cond)))
            for side, lanes in sides:
                self.mask = lanes
                if _needs_lanes(side):
                    with code.when(self.any(lanes)):
                        self.block(side)
                else:
                    self.block(side)
        self.mask = self._remaining(mask) if node.leaves else mask

    def _leave(self, node: Leave) -> None:
        code, loop = self.code, self.loops[-1]
        if not node.varying:
            if not node.again and loop.node is not None:
                self._capture(loop.node, self.mask)
            target = loop.again if node.again else loop.done
            assert target is not None
            code.b.branch(target)
            return
        gone = self.full(self.mask)
        if not node.again:
            assert loop.node is not None and loop.live is not None
            self._capture(loop.node, gone)
            self.save_mask(self.without(self.load_mask(loop.live), gone), loop.live)
        assert loop.now is not None
        self.save_mask(self.without(self.load_mask(loop.now), gone), loop.now)

    # -- loops --------------------------------------------------------------------------------------------------------

    def _capture(self, node: Repeat, mask: Mask) -> None:
        """What the lanes of a mask take along out of a loop."""
        for (outer, mine), masked in zip(node.captures, node.masked, strict=True):
            self.move(outer, mine, mask if masked else None)

    def _repeat(self, node: Repeat) -> None:
        code, around = self.code, self.mask
        for mine, outer in node.entries:
            self.move(mine, outer, None)
        limit = self._start(node)
        head, body, again, done = (code.block(n) for n in (f"while.{PLAIN}", "do", "again", "done"))
        live = now = None
        if node.varying:
            live = self.mask_slots()
            self.save_mask(around, live)
        if node.leaves:
            now = self.mask_slots()
        self.loops.append(_Loop(node, again, done, live, now))
        code.b.branch(head)

        code.at(head)
        self.mask = self.load_mask(live) if live is not None else around
        self.block(node.before)
        self._test(node, limit, body, done)

        code.at(body)
        self.mask = self.load_mask(live) if live is not None else around
        if now is not None:
            self.save_mask(self.mask, now)
        saved, self.phase = self.phase, self._phase(node)
        self.block(node.body)
        self.phase = saved
        code.go(again)

        code.at(again)
        self._advance(node)
        if live is not None and node.leaves:
            code.b.cbranch(self.any(self.load_mask(live)), head, done)
        else:
            code.b.branch(head)
        self.loops.pop()
        code.at(done)
        self.mask = around

    def _phase(self, node: Repeat) -> Value | None:
        """Which iteration of a square this one of a loop that reads any is; None also where lanes run one by one."""
        squares = self.variance.squares
        if self.width == 1 or not any(isinstance(n, Compute) and id(n.op) in squares for n in node.body):
            return None
        assert node.counter is not None and node.bounds is not None
        past = self.code.sub(self.w.scalar(node.counter), self.w.index(node.bounds[0]))
        return self.code.b.and_(past, number(I64, LINES - 1))

    def _start(self, node: Repeat) -> Index | list[Value]:
        """Set the counter; gives where it stops."""
        if node.bounds is None or node.counter is None:
            return 0
        start, stop, _ = node.bounds
        stops = self.vectors(stop) if self.varies(stop) else self.w.index(stop)
        if self.varies(node.counter):
            first = self.vectors(start)
            self.declare(node.counter)
            for v, slot in zip(first, self.slots[node.counter.name], strict=True):
                self.code.b.store(v, slot)
        else:
            value = self.w.index(start)
            self.declare(node.counter)
            self.code.b.store(as_i64(value), self.w.env[node.counter.name].pointer)
        return stops

    def _advance(self, node: Repeat) -> None:
        if node.bounds is None or node.counter is None:
            return
        b, step = self.code.b, node.bounds[2]
        typ = vector(I64, self.width) if self.varies(node.counter) else I64
        slots = self.slots[node.counter.name] if self.varies(node.counter) else [self.w.env[node.counter.name].pointer]
        for slot in slots:
            here = b.load(slot, typ=typ)
            if abs(step) == 1:  # not past the end
                b.store(b.add(here, number(typ, step)), slot)
            else:  # a step past the largest number ends the loop, too
                b.store(call_intrinsic(b, "sadd.sat", typ, here, number(typ, step)), slot)

    def _test(self, node: Repeat, limit: Index | list[Value], body: ir.Block, done: ir.Block) -> None:
        """To the body with the lanes that go on, or out of the loop."""
        code = self.code
        uniform: list[Value] = []
        different: list[list[Value]] = []
        if node.bounds is not None and node.counter is not None:
            sign = "<" if node.bounds[2] > 0 else ">"
            if self.varies(node.counter) or isinstance(limit, list):
                limits = limit if isinstance(limit, list) else [splat(code.b, as_i64(limit), self.width)] * self.parts
                at = self.vectors(node.counter)
                different.append([code.b.icmp_signed(sign, i, n) for i, n in zip(at, limits, strict=True)])
            else:
                uniform.append(code.b.icmp_signed(sign, self.w.scalar(node.counter), as_i64(limit)))
        for cond in node.conds:
            if self.varies(cond):
                different.append(self.vectors(cond))
            else:
                uniform.append(self.w.scalar(cond))
        mask = self.mask
        if different:
            # lanes that stay will copy again when they leave
            self._capture(node, mask)
            live = self.loops[-1].live
            assert live is not None
            self.narrow_mask(live, different)
            # of what is kept: else it would be made in the body, of one bit per lane
            onward = code.all_of([*uniform, self.any(self.load_mask(live))])
            code.b.cbranch(onward, body, done)
            return
        for cond in uniform:
            onward = code.block("common")
            if node.captures:
                out = code.block("out")
                code.b.cbranch(cond, onward, out)
                code.at(out)
                self._capture(node, mask)
                code.b.branch(done)
            else:
                code.b.cbranch(cond, onward, done)
            code.at(onward)
        code.b.branch(body)


def _needs_lanes(nodes: Sequence[Node]) -> bool:
    """Whether code may run only when at least one lane is active, or is long enough for a jump around it."""
    count = 0
    for node in nodes:
        match node:
            case Compute():
                if node.op.op in ("getelem", "setelem", PACK) or node.op.op in MATH or node.op.op in DIVISIONS:
                    return True
                count += 1
            case Branch():
                if _needs_lanes(node.then) or _needs_lanes(node.orelse):
                    return True
                count += len(node.then) + len(node.orelse)
            case Repeat():
                return True
            case Leave():
                count += 2
    return count > _LONG
