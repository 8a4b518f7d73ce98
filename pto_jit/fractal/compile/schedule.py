# SPDX-License-Identifier: MIT
"""From records to IR: what nobody reads goes, arrays get memory, a plan is chosen and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pto_jit.fractal.compile.arranging import checks_apart, checks_first, distributed, pruned
from pto_jit.fractal.compile.batching import NotBatchable
from pto_jit.fractal.compile.behind import folds_apart
from pto_jit.fractal.compile.expr import Writer
from pto_jit.fractal.compile.extents import computed_inside, known_before, made_inside, settled, sizes_first
from pto_jit.fractal.compile.fusion import fuse
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.inside import InOrder, has_rows
from pto_jit.fractal.compile.layout import allocate
from pto_jit.fractal.compile.lists import (
    BEHIND,
    CHECKS,
    Array,
    Check,
    Compute,
    Loop,
    ReadLeaf,
    WriteLeaf,
)
from pto_jit.fractal.compile.local import local_arrays
from pto_jit.fractal.compile.maps import ByBlocks, blocks_of, in_order_again, of_map, sums_planned
from pto_jit.fractal.compile.nest import Nest, outside, perfect
from pto_jit.fractal.compile.rows import Rows
from pto_jit.fractal.compile.sequential import RECORDS, Sequential, accessed, read_by, records, transposed
from pto_jit.fractal.compile.tasks import MOST_CASES, Tasks
from pto_jit.fractal.compile.told import Plan, asked_of, decided, unavailable
from pto_jit.fractal.compile.unread import states_of_folds
from pto_jit.lower.decisions import Decision
from pto_jit.lower.pipeline import DEVICES
from pto_jit.slotted import replace

if TYPE_CHECKING:
    from pto_jit.fractal.compile.hoist import Apart
    from pto_jit.fractal.compile.session import Session
    from pto_jit.fractal.compile.wavefront import Planes


IN_ORDER = ("ascend",)  # targets that have the plan "sequential" alone: planes are work of their hosts


def write_pending(session: Session) -> None:
    """Make IR of the records in the open block, in their places."""
    g = session.g
    block = g.e.current
    if not any(isinstance(item, RECORDS) for item in block):
        return
    items = list(block)
    block.clear()
    first = next(k for k, item in enumerate(items) if isinstance(item, RECORDS))
    block.extend(items[:first])
    wholes = [
        whole
        for item in pruned(items[first:])
        for sized in settled(item)
        for checked in checks_first(sized)
        for whole in checks_apart(checked)
    ]
    fuse(session, wholes)
    states_of_folds(session, wholes)
    pending = [part for whole in wholes for part in distributed(whole)]
    writer = Writer(g.e)
    run: list[Any] = []
    while pending:
        item, *later = pending
        for k, (part, nest) in enumerate(parts := planned_parts(session, item, later)):
            if nest is None:
                run.append(part)
                continue
            in_order(session, run, [*(p for p, _ in parts[k:]), *later], writer)
            run = []
            with g.e.at(part.loc):
                nest(writer)
        pending = later
    in_order(session, run, [], writer)


def planned_parts(session: Session, item: Any, later: Sequence[Any]) -> list[tuple[Any, Plan]]:
    """A record or statement in the parts that it is written in, with what writes those that do not run in order."""
    if not isinstance(item, Loop):
        return [(item, None)]
    with session.g.e.at(item.loc):
        found = sums_planned(session, item, later) or folds_planned(session, item, later)
        return found or planned_apart(session, item, later)


def folds_planned(session: Session, loop: Loop, later: Sequence[Any]) -> list[tuple[Any, Plan]] | None:
    """The parts of a map of folds with what writes them, where one of them runs by another plan than in order."""
    if asked_of(loop)[0] in ("sequential", CHECKS):
        return None
    parts = folds_apart(loop)
    if parts is None:
        return None
    decisions = session.g.decisions
    mark = len(decisions)
    found: list[tuple[Any, Plan]] = []
    for k, part in enumerate(parts):
        behind = [*parts[k + 1 :], *later]
        found += planned_apart(session, part, behind) if isinstance(part, Loop) else [(part, None)]
    gains = [nest for _, nest in found if nest is not None and (not isinstance(nest, ByBlocks) or nest.multiplies)]
    if not gains and len(found) == len(parts):  # rows of elements can be those of one iteration
        del decisions[mark:]
        return None
    return found


def planned_apart(session: Session, loop: Loop, later: Sequence[Any]) -> list[tuple[Any, Plan]]:
    """A loop with what writes it; behind the maps of what is computed before it, where that is better."""

    def each(parts: Sequence[Loop]) -> list[tuple[Any, Plan]]:
        return [(part, planned(session, part, [*parts[k + 1 :], *later])) for k, part in enumerate(parts)]

    started = with_starts(session, loop)
    if started is not None:
        decisions = session.g.decisions
        mark = len(decisions)
        found = each([*started.maps, *without_inputs(session, started.rest)])
        if found[-1][1] is not None:
            return found
        reason = decisions[-1].reason.removeprefix("sequential: ").split(f"\n{loop.symbol} < ")[0]
        del decisions[mark:]
        return [(loop, decided(session, loop, "sequential", reason, None))]
    return each(without_inputs(session, loop))


def with_starts(session: Session, loop: Loop) -> Apart | None:
    """The maps that compute what the states of a nest start from, and the nest, which could have another plan then than
    in order."""
    from pto_jit.fractal.compile.hoist import starts_in_memory

    if asked_of(loop)[0] in ("sequential", CHECKS, BEHIND) or session.g.options.target in IN_ORDER:
        return None
    try:
        nest = perfect(loop)
    except NoSchedule:
        return None
    return starts_in_memory(session, loop, nest) if nest.carries else None


def without_inputs(session: Session, loop: Loop) -> list[Loop]:
    """The maps of what a nest computes of its inputs alone, and the nest that reads it; the loop where that is not
    better.  Records the decision."""
    from pto_jit.fractal.compile.cost import is_better_apart
    from pto_jit.fractal.compile.devices import is_better_apart as is_better_apart_on_device
    from pto_jit.fractal.compile.hoist import taken_apart

    asked, tiled = asked_of(loop)
    if asked not in ("auto", "wavefront") or tiled or in_order_again(session):
        return [loop]
    try:
        nest = perfect(loop)
        if not nest.carries or outside(nest) is not None or computed_inside([loop]):
            return [loop]
        found = taken_apart(session, loop, nest)
        if found is None:
            return [loop]
        maps, rest = [perfect(m) for m in found.maps], perfect(found.rest)
    except NoSchedule:
        return [loop]
    rows = [(m, blocks_of(session, m)[0] is not None) for m in maps]
    if session.g.options.target in DEVICES:
        good, figures = is_better_apart_on_device(rows)
    else:
        planes = rows_planes(session, nest, asked), rows_planes(session, rest, asked)
        good, figures = is_better_apart(nest, rest, rows, planes)
    what = f"{', '.join(f'`{o}`' for o in found.ops)} of inputs"
    verb = "is computed before the nest" if good else "could be computed before the nest, which costs more"
    names = tuple(map(str, nest.symbols))
    session.g.decisions.append(Decision("hoist", names, good, f"{what} {verb}: {figures}", loop.loc))
    return [*found.maps, found.rest] if good else [loop]


def rows_planes(session: Session, nest: Nest, asked: str) -> Planes | None:
    """The planes of a nest whose cells will be rows; None where they will not."""
    from pto_jit.fractal.compile.cost import is_batched

    try:
        planes = batches(session, nest, lambda array: True)[1]
    except (NoSchedule, NotBatchable):
        return None
    return planes if asked == "wavefront" or is_batched(nest, planes)[0] else None


def _computes(item: Any) -> bool:
    """Whether a loop does more than copies and checks."""
    return isinstance(item, Loop) and any(not isinstance(i, RECORDS) or _computes(i) for i in item.body)


def in_order(session: Session, items: Sequence[Any], later: Sequence[Any], writer: Writer) -> None:
    """The plan "sequential" for records one after the other."""
    start = next((k for k, item in enumerate(items) if not isinstance(item, (Check, Compute))), len(items))
    sizes, rest = sizes_first(items[start:])
    Sequential(session.g, set()).block([*items[:start], *sizes], writer)  # checks: before memory of sizes they check
    items = rest
    if not items:
        return
    kept = in_memory(items) | read_by(later)
    bodies = {id(loop): loop.body for loop in records(items) if isinstance(loop, Loop)}
    local = {
        key: [(array, outer) for array, outer in arrays if not made_inside(array.root.leaf, bodies[key])]
        for key, arrays in local_arrays(session, items, later, kept).items()
    }
    inside = {id(array) for arrays in local.values() for array, _ in arrays}
    outer = {id(i.array.root): i.array.root for i in records(items) if isinstance(i, WriteLeaf)}
    wanted = [root for key, root in outer.items() if root.tensor is None and key in kept - inside]
    plan = InOrder(session, kept, local)
    plan.turned |= transposed(items)
    for item in items:
        with session.g.e.at(session.g.e.loc if isinstance(item, Compute) else item.loc):
            written = {id(i.array.root) for i in records([item]) if isinstance(i, WriteLeaf)}
            made = [root for root in wanted if id(root) in written and root.tensor is None]
            known_before([item], made)
            for root in made:
                allocate(writer, root)
            plan.block([item], writer)


def planned(session: Session, loop: Loop, later: Sequence[Any]) -> Callable[[Writer], None] | None:
    """What writes a nest by another plan than in order; None when it runs in order.  Records the decision."""
    asked, tiled = asked_of(loop)
    if asked in (CHECKS, BEHIND):
        return None
    if tiled and asked in ("sequential", "wavefront"):
        reason = f"`tile=` makes tasks of several cells, which schedule={asked!r} has none of"
        raise unavailable(session, asked, reason)
    if tiled:
        asked = "tasks"
    if asked == "sequential":
        return decided(session, loop, "sequential", "asked for", None)
    target = session.g.options.target
    if target in DEVICES and asked == "tasks":
        raise unavailable(session, asked, f"the {target} target has no tasks: its launches run one after the other")
    if target in IN_ORDER and asked != "auto":
        raise unavailable(session, asked, f"the {target} target has no planes: each would be launched")
    try:
        nest = perfect(loop)
        reason = outside(nest)
        if reason is not None:
            raise NoSchedule(reason)
        if computed_inside([loop]):
            raise NoSchedule("a cell computes the extents of a tensor that it writes")
        if not nest.carries and asked != "tasks":
            return of_map(session, nest, asked)
        if target in IN_ORDER:
            return decided(session, loop, "sequential", f"the {target} target divides the iterations of maps", None)
    except NoSchedule as problem:
        return in_program_order(session, loop, asked, str(problem), None)
    reads = read_by(later)

    def escaping(array: Array) -> bool:
        return not array.temporary or id(array) in reads

    if target == "cuda" and asked == "auto":
        return on_device(session, nest, escaping)
    try:
        if asked == "tasks":
            return tasks(session, nest, escaping)
        if asked == "wavefront":
            return wavefront(session, nest, escaping, later)
    except NoSchedule as problem:
        return in_program_order(session, loop, asked, str(problem), nest)
    alone = not any(map(_computes, later)) and all(d.kind != "schedule" for d in session.g.decisions)
    return cheapest(session, nest, escaping, alone=alone)


def cheapest(
    session: Session, nest: Nest, escaping: Callable[[Array], bool], *, alone: bool
) -> Callable[[Writer], None] | None:
    """The plan "auto": by cost.  `alone`: no other nest computes something, which tasks would not divide."""
    from pto_jit.fractal.compile.cost import as_tasks, is_batched

    try:
        rows, planes = batches(session, nest, escaping)
        good, figures = is_batched(nest, planes)
        if good:
            return by_planes(session, rows, planes, "", figures)
        reason = "cells cost less by themselves than gathered to rows"
    except (NoSchedule, NotBatchable) as problem:
        reason, figures = str(problem), ""
    if has_rows(session, nest):
        return decided(session, nest.loops[0], "sequential", f"{reason}; the maps in it are rows", nest)
    tile, compared = as_tasks(nest)
    figures = f"{figures}\n{compared}" if figures else compared
    if tile is not None and alone:
        with suppress(NoSchedule):
            return tasks(session, nest, escaping, tile, f"no rows: {reason}\n{figures}")
    return decided(session, nest.loops[0], "sequential", f"{reason}\n{figures}", nest)


def on_device(
    session: Session, nest: Nest, escaping: Callable[[Array], bool]
) -> Callable[[Writer], None] | None:  # fmt: skip
    """The plan "auto" of a target whose planes are launches: planes where the products of their cells can be those of
    rows.

    In order a block has a cell at a time, and reads the right operands of its products for that one row; without
    products a launch per plane has nothing to win that its gathering does not take.
    """
    from pto_jit.fractal.compile.devices import needs_planes

    try:
        refused = in_order_again(session) or needs_planes(nest)
        if refused:
            raise NoSchedule(refused)
        rows, planes = batches(session, nest, escaping)
    except (NoSchedule, NotBatchable) as problem:
        return decided(session, nest.loops[0], "sequential", f"iterations of maps are divided: {problem}", nest)
    return by_planes(session, rows, planes, "", "")


def rows_of(session: Session) -> type[Rows]:
    """What writes planes for the target."""
    if session.g.options.target != "cuda":
        return Rows
    from pto_jit.fractal.compile.devices import DeviceRows

    return DeviceRows


def batches(session: Session, nest: Nest, escaping: Callable[[Array], bool]) -> tuple[Rows, Planes]:
    """The nest by planes whose cells are rows.  Raises NoSchedule, NotBatchable."""
    g = session.g
    rows = rows_of(session)(g, nest, escaping)
    planes = rows.prepare(session.symbol, batched=True)
    block = g.e.push()  # whether the body of a cell can be batched shows when it is written
    try:
        rows.trial(planes, Writer(g.e))
    finally:
        g.e.pop(block)
    if not planes.batch:
        raise NotBatchable("no loop is left over which cells could be batched")
    return rows, planes


def wavefront(
    session: Session, nest: Nest, escaping: Callable[[Array], bool], later: Sequence[Any]
) -> Callable[[Writer], None] | None:
    """The nest by planes: batched where cells can be, else the maps in it as rows, else cell by cell."""
    try:
        rows, planes = batches(session, nest, escaping)
    except NotBatchable as problem:
        if len(nest.carries) == 1 and has_rows(session, nest):
            return rows_in_planes(session, nest, later)
        rows = rows_of(session)(session.g, nest, escaping)
        return by_planes(session, rows, rows.prepare(session.symbol, batched=False), str(problem), "")
    return by_planes(session, rows, planes, "", "")


def rows_in_planes(session: Session, nest: Nest, later: Sequence[Any]) -> Callable[[Writer], None]:
    """Planes that are the iterations of the one loop with a state, the maps in it as rows: the loops in order."""
    loop, names = nest.loops[0], ", ".join(map(str, nest.symbols))
    text = f"planes of hyperplane {nest.hyperplane()} over ({names}), the maps in the loop over "
    text += f"`{nest.symbols[nest.carries[0]]}` as rows of blocks"
    decided(session, loop, "wavefront", text, nest)
    return lambda writer: in_order(session, [_unasked(loop)], later, writer)


def _unasked(item: Any) -> Any:
    """Loops that ask for no plan."""
    if not isinstance(item, Loop):
        return item
    return replace(item, schedule="auto", tile=None, body=[_unasked(i) for i in item.body])


def by_planes(session: Session, rows: Rows, planes: Planes, why: str, figures: str) -> Callable[[Writer], None]:
    """Cells as rows; one by one where `why` says why they are not."""
    nest = planes.nest
    names = nest.symbols

    def write(writer: Writer) -> None:
        session.g.e.current.extend(nest.before)
        (rows.write_cells if why else rows.write_rows)(planes, writer)

    over = ", ".join(str(names[k]) for k in planes.batch)
    how = f", cell by cell: {why}" if why else f", cells over {over} as rows{rows.said(planes)}"
    text = f"planes of hyperplane {planes.h} over ({', '.join(map(str, names))}){how}"
    decided(session, nest.loops[0], "wavefront", f"{text}\n{figures}" if figures else text, nest)
    return write


def tasks(
    session: Session,
    nest: Nest,
    escaping: Callable[[Array], bool],
    tile: tuple[int, ...] | None = None,
    figures: str = "",
) -> Callable[[Writer], None]:
    """The nest as tasks in program order, of `tile` cells unless the program says of how many."""
    from pto_jit.fractal.compile.tiled import Tiled, refused, sizes

    g = session.g
    loop = nest.loops[0]
    tile = sizes(nest) or (tile if tile is not None and max(tile) > 1 else None)
    plan = Tasks(g, nest, escaping)
    text = "one task per cell, in program order"
    if tile is not None or 1 << len(plan.conditions()) > MOST_CASES:
        tile = tile or (1,) * len(nest.loops)
        reason = refused(nest, tile)
        if reason is not None:
            raise NoSchedule(reason)
        plan = Tiled(g, nest, escaping, tile)
        text = text if max(tile) == 1 else f"one task per tile of {tile} cells, in program order{plan.said()}"
    if g.scope_depth or g.loops:
        raise NoSchedule("tasks are made by the function itself, outside of scopes and loops of its own")
    g.tasks = True
    decided(session, loop, "tasks", f"{text}\n{figures}" if figures else text, nest)
    return plan.write_tasks


def in_program_order(session: Session, loop: Loop, asked: str, reason: str, nest: Nest | None) -> None:
    if asked in ("wavefront", "tasks"):
        raise unavailable(session, asked, reason)
    return decided(session, loop, "sequential", reason, nest)


def in_memory(items: Sequence[Any]) -> set[int]:
    """The arrays that are more than the state of one loop that carries tensors."""
    carried: dict[int, Array] = {}
    found: set[int] = set()
    for item in records(items):
        if isinstance(item, ReadLeaf):
            if item.state is not None:
                carried[id(item.state)] = item.state
            elif item.final is None:
                found |= {id(a) for a in accessed(item.read)}
        elif isinstance(item, WriteLeaf) and not item.array.temporary:
            found.add(id(item.array.root))
    return found | {
        id(item.array.root) for item in records(items) if isinstance(item, WriteLeaf) and id(item.array) not in carried
    }
