# SPDX-License-Identifier: MIT
"""From records to IR: what nobody reads goes, arrays get memory, a plan is chosen and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pto_jit.codegen.values import Scalar
from pto_jit.errors import ScheduleError
from pto_jit.fractal.compile.batching import NotBatchable
from pto_jit.fractal.compile.expr import Expr, Known, Writer
from pto_jit.fractal.compile.hyperplane import NoSchedule
from pto_jit.fractal.compile.layout import allocate
from pto_jit.fractal.compile.lists import (
    Array,
    Check,
    Compute,
    Computed,
    Loop,
    Part,
    Read,
    ReadLeaf,
    WriteLeaf,
    expressions,
    sources,
)
from pto_jit.fractal.compile.nest import outside, perfect
from pto_jit.fractal.compile.rows import Rows
from pto_jit.fractal.compile.sequential import RECORDS, Sequential, accessed, records, variable_of
from pto_jit.ir import walk
from pto_jit.ir.nodes import Op, Var

if TYPE_CHECKING:
    from pto_jit.fractal.compile.session import Session


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
    pending = pruned(items[first:])
    writer = Writer(g.e)
    run: list[Any] = []
    for k, item in enumerate(pending):
        nest = planned(session, item, pending[k + 1 :]) if isinstance(item, Loop) else None
        if nest is None:
            run.append(item)
            continue
        in_order(session, run, pending[k:], writer)
        run = []
        nest(writer)
    in_order(session, run, [], writer)


def in_order(session: Session, items: Sequence[Any], later: Sequence[Any], writer: Writer) -> None:
    """The plan "sequential" for records one after the other."""
    if not items:
        return
    kept = in_memory(items) | {
        id(a) for item in records(later) if isinstance(item, ReadLeaf) for a in accessed(item.read)
    }
    for item in records(items):
        if isinstance(item, WriteLeaf):
            root = item.array.root
            if root.tensor is None and id(root) in kept:
                allocate(session.g, writer, root)
    Sequential(session.g, kept).block(items, writer)


def planned(session: Session, loop: Loop, later: Sequence[Any]) -> Callable[[Writer], None] | None:
    """What writes a nest as a wavefront; None when it runs in order."""
    g = session.g
    if loop.schedule == "sequential":
        return None
    try:
        nest = perfect(loop)
        reason = outside(nest)
        if reason is not None:
            raise NoSchedule(reason)
        if not nest.carries:
            raise NoSchedule("no loop carries a state")
    except NoSchedule as problem:
        return refused(session, loop, str(problem))
    reads = {id(a) for item in records(later) if isinstance(item, ReadLeaf) for a in accessed(item.read)}

    def escaping(array: Array) -> bool:
        return not array.temporary or id(array) in reads

    rows = Rows(g, nest, escaping)
    try:
        planes = rows.prepare(session.symbol, batched=True)
    except (NoSchedule, NotBatchable) as problem:
        return refused(session, loop, str(problem))

    def write(writer: Writer) -> None:
        g.e.current.extend(nest.before)
        rows.write_rows(planes, writer)

    return write


def refused(session: Session, loop: Loop, reason: str) -> None:
    if loop.schedule == "wavefront":
        raise session.g.error(
            ScheduleError,
            f'schedule="wavefront" cannot be had: {reason}',
            code="PTO-F150",
            hint='use schedule="auto", which says what it chose in `decisions`',
        )


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


# -- what nobody reads ---------------------------------------------------------------------------------------------


def pruned(items: Sequence[Any]) -> list[Any]:
    """Without reads and integers inside of loops that nobody uses, and without loops that then do nothing."""
    return [new for item in items for new in [_loop(item) if isinstance(item, Loop) else item] if new is not None]


def _loop(loop: Loop) -> Loop | None:
    used: set[str] = set()
    kept: list[Any] = []
    for item in reversed(loop.body):
        if isinstance(item, Loop):
            new = _loop(item)
            if new is None:
                continue
            item = new
        elif isinstance(item, (ReadLeaf, Compute)):
            var = item.var if isinstance(item, Compute) else variable_of(item.value)
            if isinstance(var, Var) and var.name not in used and not (isinstance(item, ReadLeaf) and item.state):
                continue
        kept.append(item)
        used |= uses(item)
    body = kept[::-1]
    if not any(isinstance(i, (Loop, WriteLeaf, Check)) or not isinstance(i, (*RECORDS, Op)) for i in body) and not any(
        isinstance(i, Op) and not i.results for i in body
    ):
        return None
    loop.body = body
    return loop


def uses(item: Any) -> set[str]:
    """The names of the IR variables that a statement or record reads."""
    match item:
        case Loop():
            return _in(item.length).union(*(uses(i) for i in item.body))
        case ReadLeaf():
            return _read(item.read) | {x.name for x in item.leaf.extents if isinstance(x, Var)}
        case WriteLeaf():
            value = variable_of(item.value)
            return ({value.name} if isinstance(value, Var) else set()).union(*map(_in, item.index))
        case Compute():
            return _in(item.expr)
        case Check():
            return _in(item.condition.value)
    found = {v.name for v in walk.uses(item)}
    for block in walk.blocks(item):
        found = found.union(*(uses(i) for i in block))
    return found


def _in(expr: Expr) -> set[str]:
    return {a.var.name for a in expr.atoms() if isinstance(a, Known)}


def _read(read: Read) -> set[str]:
    found = set().union(*map(_in, expressions(read)))
    for source in sources(read):
        if isinstance(source, Computed):
            value = source.value.operand if isinstance(source.value, Scalar) else source.value.var
            if isinstance(value, Var):
                found.add(value.name)
        elif isinstance(source, Part):
            found.add(source.source.var.name)
    return found
