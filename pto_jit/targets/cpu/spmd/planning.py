# SPDX-License-Identifier: MIT
"""Which loops are written lane-wise, with how many lanes, and the loop over groups of lanes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pto_jit.ir.nodes import Block, Const, For, Func, Op, Operand, Region, Var, While
from pto_jit.ir.walk import blocks, statements
from pto_jit.lower.commuting import commutes
from pto_jit.lower.extrema import extrema
from pto_jit.lower.groups.axes import is_elementwise
from pto_jit.lower.independent import carried_by
from pto_jit.lower.kept import keep_elements
from pto_jit.lower.once import read_once
from pto_jit.lower.packs import packs
from pto_jit.lower.scans import OF_INTEGERS, scanned, scans
from pto_jit.lower.straight import straight, straight_function
from pto_jit.slotted import frozen, replace
from pto_jit.targets.cpu.access import edges
from pto_jit.targets.cpu.code import PLAIN
from pto_jit.targets.cpu.constants import Index, Value, i64
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.parallel import trip_count
from pto_jit.targets.cpu.spmd.apart import compared, in_order, is_proven, lie_apart
from pto_jit.targets.cpu.spmd.form import Form, Unfit, build, read_later
from pto_jit.targets.cpu.spmd.lanes import Linear
from pto_jit.targets.cpu.spmd.merging import finish, start, write_shares
from pto_jit.targets.cpu.spmd.packing import can_pack
from pto_jit.targets.cpu.spmd.searching import write_search
from pto_jit.targets.cpu.spmd.squares import SIDES, reads_by_squares
from pto_jit.targets.cpu.spmd.streaming import Stream, stream_of
from pto_jit.targets.cpu.spmd.variance import Traits, Variance
from pto_jit.targets.cpu.spmd.writer import LaneWriter

PARALLEL = ("parallel", "in_chunk")
_AROUND = 12  # statements around loops that are worth writing twice
_ENOUGH = 4  # operations for each element collected from all over, where lanes leave a loop at different times
_DIVIDED = 8  # operations in loops inside for each division of integers there, where lanes leave at different times
_FEW = 4  # operations of loops inside of which eight are better than four iterations next to each other
_UNROLLED = 32  # iterations of loops inside that the optimiser writes one after the other
_LEAST = 4  # lanes that have a running extreme together sooner than one after the other
_LEAST_SUM = 8  # and a running sum, which is a cycle for each
_SHORT = 24  # operations of a body that is worth several vectors side by side


@frozen
class Plan:
    """How a loop is written: lanes of a vector, vectors side by side."""

    form: Form
    variance: Variance
    traits: Traits
    width: int
    parts: int
    running: bool = False
    """Whether lanes need what those before them have: then all of a group have an iteration."""
    ordered: bool = False
    """Whether lanes are added up one after the other."""
    shared: bool = False
    """Whether a lane has iterations that follow each other, as what combines lanes may count on their order."""

    @property
    def lanes(self) -> int:
        return self.width * self.parts

    @property
    def least(self) -> int:
        """Fewer iterations than this are better written one by one: idle lanes cost as much as the others."""
        if self.width == 1:
            return 0
        if self.ordered:
            return self.lanes
        return self.lanes // 2 if self.traits.loss_inside else 2 * bool(self.variance.squares)


def plan(w: FunctionWriter, loop: For) -> Plan | None:
    """How to write `loop` several iterations at a time; None when it is better (or has to be) written one by one."""
    key = w.func.name, id(loop)
    known = w.module.plans.get(key)
    if known is None or known[0] is not loop:
        known = w.module.plans[key] = loop, _plan(w, loop)
    return known[1]


def _plan(w: FunctionWriter, loop: For) -> Plan | None:
    if not (loop.kind in PARALLEL or is_proven(loop)) or w.module.debug:
        return None
    running = scans(loop, w.root) if is_proven(loop) else ()
    ordered = any(s.in_order for s in running)
    if ordered and w.module.fast:
        return None  # the loop vectoriser adds them up in any order
    packed = packs(loop, w.root) if is_proven(loop) and not running else None
    if packed is not None and not can_pack(w.module.host, packed.dtypes):
        return None
    if read_later(w.func, loop, packed.counters if packed is not None else [s.var for s in running]):
        return None
    inner = [s for s in statements(loop.body) if isinstance(s, For) and is_proven(s)]
    if any(_is_along(w, s) for s in inner):
        return None  # what the program has inside runs in vectors along its rows
    shared = not all(commutes(r.combine) for r in loop.reductions)
    if shared and not _can_share(loop):
        return None
    kept = [v for r in loop.reductions for v in r.state]
    try:
        body = scanned(loop, running, w.root) if running else loop.body if packed is None else packed.body
        body = keep_elements(body, w.root) if is_proven(loop) else body
        body = read_once(body)
        form = build(body, [loop.var], kept=kept)
    except Unfit:
        return None
    step = int(loop.step.value) if isinstance(loop.step, Const) else None
    names = frozenset(v.name for v in kept)
    along = _along_inside(body)
    apart = None if shared else step
    variance = Variance(form, {loop.var.name, *names}, {loop.var.name: apart}, names, frozenset(along)).settle()
    if shared:
        return _shares(w, form, variance, _most(w.func, loop))
    traits = _with_squares(w, variance)
    if traits.apart_inside and not traits.math and along.total() >= traits.apart_inside:
        return None  # only lanes lie apart: the loop vectoriser goes along the rows
    if traits.repeats and not (traits.control or traits.math) and _rounds(loop.body) <= _UNROLLED:
        return None  # the optimiser leaves nothing of the loops inside, and takes these iterations together itself
    if traits.apart_inside and not traits.math and 2 * along.total() >= traits.apart_inside and not traits.control:
        return None  # so it does with most: what sums side by side would gain is lost there
    found = _choose(w, form, variance, traits, _most(w.func, loop), alone=is_proven(loop), packs=packed is not None,
                    ordered=ordered)  # fmt: skip
    if packed is not None:
        return None if found is None else replace(found, running=True)
    if not running or found is None:
        return found
    least = _LEAST if any(s.kind not in OF_INTEGERS for s in running) else _LEAST_SUM
    if found.width < least or (traits.math and not ordered):
        return None
    return replace(found, running=True, ordered=ordered)


def _is_along(w: FunctionWriter, inner: For) -> bool:
    """Whether a loop inside runs in vectors of its own iterations: lanes that each have a sum to themselves need not
    take them one after the other."""
    running = scans(inner, w.root)
    if any(s.in_order for s in running):
        return False
    return (_rounds(inner.body) <= _UNROLLED and not (running or extrema(inner))) or plan(w, inner) is not None


def _can_share(loop: For) -> bool:
    """Whether the lanes of a loop may be far from each other, as it has no other loops and writes nothing, and their
    states can be combined side by side."""
    inside = list(statements(loop.body))
    regions = [straight_function(r.combine) for r in loop.reductions if isinstance(r.combine, Region)]
    functions = [s for region in regions for s in region.body]
    return all(isinstance(s, Op) and is_elementwise(s) for s in functions) and not any(
        isinstance(s, (For, While)) or (isinstance(s, Op) and s.op == "setelem") for s in inside)  # fmt: skip


def _shares(w: FunctionWriter, form: Form, variance: Variance, most: int | None) -> Plan | None:
    """A plan for lanes with shares of the iterations: what they read is collected, so that there must be some."""
    traits = variance.traits()
    width = w.module.host.width // max(traits.floats, traits.integers, 1)
    parts = 1 if traits.math or traits.operations > _SHORT else 2
    if width < _LEAST or (most is not None and most < 64 * width):
        return None
    return Plan(form, variance, traits, width, parts, shared=True)


def _with_squares(w: FunctionWriter, variance: Variance) -> Traits:
    """What a form consists of, with squares where rows are read in loops that nothing else would take along them."""
    traits = variance.traits()
    side = w.module.host.width // (traits.floats or traits.integers or 8)
    if traits.apart_inside and side in SIDES and not w.module.fast:
        variance.squares = reads_by_squares(variance)
        traits = variance.traits()
    return traits


def _rounds(block: Block) -> float:
    """How many iterations of innermost loops a block has; infinity where that is not known."""
    total = 0.0
    for stmt in block:
        if isinstance(stmt, While):
            return math.inf
        inner = sum(map(_rounds, blocks(stmt))) if not isinstance(stmt, Op) else 0.0
        if isinstance(stmt, For):
            ends = stmt.start, stmt.stop, stmt.step
            if not all(isinstance(e, Const) for e in ends):
                return math.inf
            inner = max(inner, 1.0) * len(range(*(int(e.value) for e in ends if isinstance(e, Const))))
        total += inner
    return total


def _along_inside(body: Block) -> Counter[str]:
    """Innermost loops that carry nothing and run along consecutive elements, with how many accesses they have."""
    along: Counter[str] = Counter()
    for inner in statements(body):
        if not isinstance(inner, For) or any(isinstance(s, (For, While)) for s in statements(inner.body)):
            continue
        try:
            form = build(inner.body, [inner.var])
        except Unfit:  # it carries something, for one
            continue
        step = int(inner.step.value) if isinstance(inner.step, Const) else None
        traits = Variance(form, {inner.var.name}, {inner.var.name: step}).settle().traits()
        if traits.unit and not traits.apart:
            along[inner.var.name] += traits.unit
    return along


def _choose(
    w: FunctionWriter,
    form: Form,
    variance: Variance,
    traits: Traits,
    most: int | None,
    *,
    alone: bool,
    packs: bool,
    ordered: bool,
) -> Plan | None:
    """alone: the loop vectoriser does not know that iterations are independent, or would ask for all loops around;
    packs: it cannot do it; ordered: nor add up in order."""
    # to collect elements from all over costs more than to load them one by one: something must make up for it
    enough = _ENOUGH if traits.branches_inside else 4 * _ENOUGH
    light = not (traits.control and traits.operations_inside >= enough * traits.apart_inside)
    if traits.apart_inside and light and not (traits.math or traits.branches_inside):
        return _side_by_side(w, form, variance, traits)
    if light and traits.loss_inside > traits.gain_inside:
        return None
    divisions = traits.divisions + (traits.divisions_wide if w.module.host.width < 64 else 0)
    if traits.operations_inside < _DIVIDED * divisions and not traits.math:
        return None  # one lane after the other divides, and all wait for the one that does so most often
    widest = max(traits.floats, traits.integers) if packs else traits.floats or traits.integers or 8
    simple = not (traits.control or traits.math or traits.repeats)
    if simple and not ordered and (traits.apart or (widest < 4 and not alone)):
        return None  # the loop vectoriser does these as well, and packs narrow numbers
    ours = simple or traits.math or traits.repeats or traits.apart or packs or ordered
    if alone and not ours and w.module.host.width == 64:
        return None  # where masks have registers, it does these, too
    width = w.module.host.width // widest
    parts = 2 if traits.repeats else 1  # a loop waits for its own results: two chains fill the time
    if not traits.repeats and not traits.math and traits.operations <= _SHORT:
        parts = 2 if traits.control else 4
    if most is not None:
        while parts > 1 and most <= width * parts // 2:
            parts //= 2
        while width > 2 and most <= width // 2:
            width //= 2
    return None if width * parts < 2 or (most is not None and most < 2) else Plan(form, variance, traits, width, parts)


def _side_by_side(w: FunctionWriter, form: Form, variance: Variance, traits: Traits) -> Plan | None:
    """Iterations next to each other as scalar code: loops inside wait for their last sums, and lanes would lie apart.

    ("Unroll and jam": S. Carr and K. Kennedy, "Improving the ratio of memory operations to floating-point operations in
    loops", TOPLAS 1994.)  With `fastmath` the loop vectoriser takes such sums along their rows.
    """
    if not traits.waits or traits.control or w.module.fast:
        return None
    return Plan(form, variance, traits, 1, 8 if traits.operations_inside <= _FEW else 4)


def _most(func: Func, loop: For) -> int | None:
    """A bound of the number of iterations, where it is known."""
    if not isinstance(loop.step, Const) or loop.step.value == 0:
        return None
    made: dict[str, Op] = {r.name: s for s in statements(func.body) if isinstance(s, Op) for r in s.results}
    step = int(loop.step.value)
    ends = (loop.start, loop.stop) if step > 0 else (loop.stop, loop.start)
    distance = _distance(*ends, made)
    return None if distance is None else -(-max(0, distance) // abs(step))


def _distance(start: Operand, stop: Operand, made: Mapping[str, Op], depth: int = 4) -> int | None:
    """What `stop - start` does not exceed, where that is known, or is negative."""
    if isinstance(start, Const) and isinstance(stop, Const):
        return int(stop.value) - int(start.value)
    first = made.get(start.name) if isinstance(start, Var) else None
    last = made.get(stop.name) if isinstance(stop, Var) else None
    if last is not None and last.op == "add" and last.args[0] == start and isinstance(last.args[1], Const):
        return int(last.args[1].value)
    if first is not None and first.op == "sub" and first.args[0] == stop and isinstance(first.args[1], Const):
        return int(first.args[1].value)
    if depth == 0:
        return None
    found: list[int | None] = []
    if last is not None and last.op == "min":
        found += [_distance(start, end, made, depth - 1) for end in last.args]
    if first is not None and first.op == "max":
        found += [_distance(end, stop, made, depth - 1) for end in first.args]
    if first is not None and first.op == "min" and stop in first.args:  # it is not behind the stop
        found += [_distance(end, stop, made, depth - 1) for end in first.args if end != stop]
    return min((max(0, d) for d in found if d is not None), default=None)


def write_loop(w: FunctionWriter, loop: For) -> bool:
    """Write `loop` in this frame if it has a plan; gives whether it was written.

    A sequential loop is also written in order, for when the tensors in it share memory.
    """
    step = int(loop.step.value) if isinstance(loop.step, Const) else 0
    found = plan(w, loop) if step else None
    body = straight(loop.body, carried_by(loop)) if found is not None and found.shared else None
    if body is not None and write_search(w, replace(loop, body=body)):
        return True  # one that looks for an extremum needs no lanes far from each other
    if found is None:
        if is_proven(loop) and write_search(w, loop):
            return True
        return loop.kind == "sequential" and w.apart is None and _write_around(w, loop)
    code, start, stop = w.code, w.index(loop.start), w.index(loop.stop)
    w.module.note_elements(code.function, loop)
    count = trip_count(code, start, stop, step)
    proven = is_proven(loop)

    def single() -> None:
        in_order(w, loop, start, stop, step, plain=proven)

    if not proven:
        write(w, loop, found, start, count, step, single)
        return True
    if w.apart is False:
        single()
        return True
    pairs = [] if w.apart else compared(w, [loop])
    if pairs is None:
        return False
    worth = code.all_of([lie_apart(w, pairs), code.compare(">=", count, found.least)])
    code.choose(worth, lambda: write(w, loop, found, start, count, step) or (), lambda: single() or ())
    return True


def _write_around(w: FunctionWriter, loop: For) -> bool:
    """Write a loop around such that are written lane-wise, where it consists of little else: what their tensors are is
    asked once, in front of it."""
    inner = [s for s in statements(loop.body) if isinstance(s, For) and is_proven(s) and plan(w, s)]
    most = sum(1 for _ in statements(loop.body)) - sum(1 for s in inner for _ in statements(s.body))
    pairs = compared(w, inner) if inner and most <= _AROUND else None
    if not pairs or not all(var.name in w.env for pair in pairs for var in pair):
        return False
    start, stop, step = w.index(loop.start), w.index(loop.stop), w.index(loop.step)

    def written(apart: bool) -> tuple[()]:
        w.apart = apart
        w.sequential(loop, start, stop, step)
        w.apart = None
        return ()

    w.code.choose(lie_apart(w, pairs), lambda: written(True), lambda: written(False))
    return True


def write(
    w: FunctionWriter,
    loop: For,
    plan: Plan,
    first: Index,
    count: Index,
    step: Index,
    single: Callable[[], None] | None = None,
) -> None:
    """Write `count` iterations (any number), whose variable starts at `first` and moves by `step`; `single` writes them
    one by one, for when there are few."""
    merged = any(isinstance(r.combine, Region) for r in loop.reductions)  # a function runs once for each halving
    least = plan.lanes * 3 // 4 if merged and not plan.shared else 0 if loop.reductions else plan.least
    if single is None or not least:
        _write(w, loop, plan, first, count, step)
        return
    few = w.code.compare("<", count, least)
    w.code.choose(few, lambda: single() or (), lambda: _write(w, loop, plan, first, count, step) or ())


def _write(w: FunctionWriter, loop: For, plan: Plan, first: Index, count: Index, step: Index) -> None:
    code, traits = w.code, plan.traits
    once = traits.control or traits.repeats  # long: written once
    saved, w.mutable = w.mutable, w.mutable | plan.form.slots

    def group(lanes: LaneWriter, k: Value, stop: Index | None) -> None:
        lanes.values[loop.var.name] = _lanes_at(w, first, k, step)
        lanes.iteration(plan.form.nodes, None if stop is None else lanes.first(code.sub(stop, k)))

    def groups(begin: Index, stop: Index, parts: int, masked: bool, streams: bool = False) -> None:
        lanes = LaneWriter(w, plan.variance, plan.width, parts)
        lanes.streams = streams
        for reduction in loop.reductions:
            start(lanes, reduction)

        def body(k: Value, _: list[Value]) -> Sequence[Value]:
            group(lanes, k, stop if masked else None)
            return ()

        code.loop(begin, stop, lanes.count, body=body, name=f"groups.{PLAIN}" if once else "groups")
        for reduction in loop.reductions:
            finish(lanes, reduction)

    if plan.shared:
        lanes = LaneWriter(w, plan.variance, plan.width, plan.parts)

        def one(at: Linear) -> None:
            lanes.values[loop.var.name] = at
            lanes.iteration(plan.form.nodes, None)

        done = write_shares(w, loop, lanes, traits.floats or 8, first, count, step, one)
        w.mutable = saved
        begin, stop = (code.wrapping("add", first, code.wrapping("mul", k, step)) for k in (done, count))
        in_order(w, loop, begin, stop, step, plain=True)
        return
    stream = None
    if not (traits.control or traits.repeats or loop.reductions or plan.running):
        stream = stream_of(w, loop, plan.form, plan.variance, plan.width, _lanes_at(w, first, 0, step))
    if stream is not None:
        _streamed(w, stream, count, plan, once, groups, group)
    elif plan.width == 1 or plan.running:
        whole = code.floor(count, plan.lanes)
        groups(0, whole, plan.parts, masked=False)
        if plan.width > 1 and plan.parts > 1:
            several, whole = whole, code.floor(count, plan.width)
            groups(several, whole, 1, masked=False)
        w.mutable = saved
        begin, stop = (code.wrapping("add", first, code.wrapping("mul", k, step)) for k in (whole, count))
        in_order(w, loop, begin, stop, step, plain=True)
    elif once and not plan.variance.squares and w.module.host.width == 64:  # masks cost little there
        groups(0, count, plan.parts, masked=True)
    else:
        whole = code.floor(count, plan.lanes)
        groups(0, whole, plan.parts, masked=False)
        groups(whole, count, 1, masked=True)
    w.mutable = saved


def _lanes_at(w: FunctionWriter, first: Index, k: Index, step: Index) -> Linear:
    """The loop's variable in the lanes of the group that begins with iteration `k`."""
    return Linear(w.code.wrapping("add", first, w.code.wrapping("mul", k, step)), step)


def _streamed(w: FunctionWriter, stream: Stream, count: Index, plan: Plan, once: bool, groups: Any, group: Any) -> None:
    """The loop in two forms, the streaming one between the first and the last aligned store; the rest under masks."""
    code = w.code

    def streaming() -> Sequence[Value]:
        ahead = code.min(stream.ahead, count)
        stop = code.add(ahead, code.floor(code.sub(count, ahead), plan.lanes))
        groups(ahead, stop, plan.parts, masked=False, streams=True)
        return i64(ahead), i64(stop)

    def plain() -> Sequence[Value]:
        stop = 0 if once else code.floor(count, plan.lanes)
        groups(0, stop, plan.parts, masked=False)
        return i64(0), i64(stop)

    head, start = code.choose(stream.large, streaming, plain)
    lanes = LaneWriter(w, plan.variance, plan.width, plan.parts if once else 1)
    edges(code, head, start, count, lanes.count, lambda k, stop: group(lanes, k, stop))
