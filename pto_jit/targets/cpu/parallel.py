# SPDX-License-Identifier: MIT
"""Loops divided among the workers: range functions, what they capture, and how much a range holds.

A range function is `int32_t f(worker, context, begin, end)`; the context is a block of 64-bit slots on the stack of
the function that waits for it.  Every LLVM value that the body needs goes through a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from pto_jit.ir.nodes import Call, For, Fuse, Op, Stmt, Var
from pto_jit.ir.types import TileType
from pto_jit.ir.walk import block_uses, statements
from pto_jit.lower.kept import ELEMENTS
from pto_jit.semantic import failures
from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I32, I64, PTR, Index, Value, i64, number, register_type
from pto_jit.targets.cpu.function import FunctionWriter, LoopExits
from pto_jit.targets.cpu.tiles import assign_tile
from pto_jit.targets.cpu.values import Slot, TileSlot, remap

_RANGES = 128  # a loop of unknown cost is divided into about so many ranges


class Capture:
    """Moves LLVM values of one function into another through a context block."""

    def __init__(self, outer: Code) -> None:
        self.outer = outer
        self.slots: dict[Value, int] = {}
        self.block: Value | None = None

    def keep(self, value: Value) -> Value:
        self.slots.setdefault(value, len(self.slots))
        return value

    def pack(self) -> Value:
        """Write the context at the outer function's place of insertion; its address."""
        code = self.outer
        block = code.alloca(I64, "context", count=max(1, len(self.slots)), align=16)
        for value, at in self.slots.items():
            code.b.store(value, code.offset(block, 8 * at), align=8)
        return block

    def unpack(self, inner: Code, context: Value) -> Callable[[Value], Value]:
        """Load everything at the start of the inner function; gives the map from outer to inner values."""
        loaded = {
            value: inner.b.load(inner.offset(context, 8 * at), typ=value.type, align=8)
            for value, at in self.slots.items()
        }
        return lambda value: loaded[value]


def range_function(w: FunctionWriter, name: str) -> ir.Function:
    """A new function `int32_t f(worker, context, begin, end)`."""
    function = ir.Function(
        w.module.llvm, ir.FunctionType(I32, [PTR, PTR, I64, I64]), w.module.unique(f"{w.code.function.name}.{name}")
    )
    function.linkage = "internal"
    function.attributes.add("nounwind")
    return function


def write_parallel(w: FunctionWriter, stmt: For) -> None:
    """A parallel or chunked loop: its body becomes a range function."""
    code = w.code
    start, stop, step = w.index(stmt.start), w.index(stmt.stop), w.index(stmt.step)
    function = range_function(w, stmt.var.name)
    worker, context, begin, end = function.args
    inner = FunctionWriter(w.module, w.func, function, worker, parallel=True)
    inner.mutable, inner.generated, inner.callees = w.mutable, w.generated, w.callees
    inner.hazards, inner.recording = w.hazards, w.recording
    used = block_uses((stmt,))
    if w.module.debug:  # what a race is told about
        used |= {w.root(name) for name in used}
    env = {name: value for name, value in w.env.items() if name in used}
    captured: dict[str, Any] = {}
    for name, value in env.items():
        captured[name] = value_now(w, value)
    capture = Capture(code)
    remap((captured, start, step), capture.keep)
    change = capture.unpack(inner.code, context)
    inner_start, inner_step = remap((start, step), change)
    for name, value in captured.items():
        bind(inner, name, env[name], remap(value, change))

    def iteration(k: Value, _: list[Value]) -> tuple[()]:
        inner.define(stmt.var, _at(inner.code, inner_start, k, inner_step))
        return ()

    lanes = None
    if not w.recording and not any(isinstance(s, (Call, Fuse)) or _is_checked(s) for s in statements(stmt.body)):
        from pto_jit.targets.cpu import spmd  # here: kernels of tiles alone never need it

        lanes = spmd.plan(inner, stmt)
        if lanes is not None:
            inner.module.note_loop(inner.code.function, stmt.body, stmt.var)
            first = _at(inner.code, inner_start, begin, inner_step)
            count = inner.code.sub(end, begin)
            spmd.write(
                inner, stmt, lanes, first, count, inner_step, lambda: _iterations(inner, stmt, begin, end, iteration)
            )
    if lanes is None and any(isinstance(s, Op) and s.op in ELEMENTS for s in statements(stmt.body)):
        from pto_jit.targets.cpu.versions import write_versions  # here: kernels of tiles alone never need it

        write_versions(inner, stmt, lambda: _iterations(inner, stmt, begin, end, iteration))
    elif lanes is None:
        _iterations(inner, stmt, begin, end, iteration)
    inner.code.go(inner.code.leave)
    inner.close()
    count = _trip_count(w, start, stop, step, stmt)
    grain: Index
    if stmt.grain is not None:
        grain = code.max(w.index(stmt.grain), 1)
    elif stmt.kind == "chunk":
        grain = 1
    elif _is_light(stmt):
        grain = code.max(code.div(code.add(count, _RANGES - 1), _RANGES), 1024)
    else:
        grain = code.max(code.div(code.add(count, _RANGES - 1), _RANGES), 1)
    if lanes is not None and not (isinstance(grain, int) and grain % lanes.lanes == 0):  # whole groups
        grain = code.mul(code.div(code.add(grain, lanes.lanes - 1), lanes.lanes), lanes.lanes)
    block = capture.pack()
    status = code.call("pto_parallel_for", I32, [code.worker, function, block, number(I64, 0), i64(count), i64(grain)])
    code.check_status(status)


def _iterations(inner: FunctionWriter, stmt: For, begin: Value, end: Value, bind: Any) -> None:
    """The body for k in [begin, end): a loop with a place for `continue`."""
    code = inner.code
    if _is_light(stmt):
        inner.module.note_loop(code.function, stmt.body, stmt.var)
    body, again, after = code.block("range"), code.block("next"), code.block("end")
    before = code.b.block
    code.b.cbranch(code.b.icmp_signed("<", begin, end), body, after)
    code.at(body)
    k = code.b.phi(I64)
    k.add_incoming(begin, before)
    bind(k, [])
    inner.loops.append(LoopExits(after, again, len(inner.scopes)))
    inner.block(stmt.body)
    inner.loops.pop()
    code.go(again)
    code.at(again)
    following = code.b.add(k, number(I64, 1), flags=("nsw",))
    k.add_incoming(following, again)
    code.b.cbranch(code.b.icmp_signed("<", following, end), body, after)
    code.at(after)


def _is_checked(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.checked


def _is_light(stmt: For) -> bool:
    """Whether an iteration is scalar code without loops."""
    return all(
        isinstance(s, Op) and not any(isinstance(v.type, TileType) for v in (*s.args, *s.results)) for s in stmt.body
    )


def _at(code: Code, start: Index, k: Index, step: Index) -> Index:
    """The index of iteration k, one of those that the loop has."""
    if isinstance(start, int) and isinstance(step, int) and start >= 0 and step > 0:
        return code.add(start, code.mul(k, step))  # between `start` and the end, so nothing overflows
    return code.wrapping("add", start, code.wrapping("mul", k, step))


def _trip_count(w: FunctionWriter, start: Index, stop: Index, step: Index, stmt: For) -> Index:
    code = w.code
    if not isinstance(step, int):
        code.check(code.compare("!=", step, 0), w.module.site(*failures.STEP.at(), stmt.loc))
    elif step == 0:
        code.check(False, w.module.site(*failures.STEP.at(), stmt.loc))
        return 0
    return trip_count(code, start, stop, step)


def trip_count(code: Code, start: Index, stop: Index, step: Index) -> Index:
    """How many numbers are in range(start, stop, step), for a step that is not 0; the three may be any numbers."""
    if isinstance(step, int):
        enter = code.compare("<", start, stop) if step > 0 else code.compare(">", start, stop)
        span = code.wrapping("sub", stop, start) if step > 0 else code.wrapping("sub", start, stop)
        size: Index = abs(step)
    else:
        up = code.compare(">", step, 0)
        low, high = code.pick(up, start, stop), code.pick(up, stop, start)
        enter = code.compare("<", low, high)
        span = code.wrapping("sub", high, low)
        size = code.pick(up, step, code.wrapping("sub", 0, step))
    if isinstance(size, int) and size == 1:
        return code.pick(enter, span, 0)
    if isinstance(span, int) and isinstance(size, int):
        return (span % (1 << 64) - 1) // size + 1 if enter else 0
    # the distance, at least 1 where it counts, fits 64 bits without a sign
    count = code.wrapping("add", code.div(code.wrapping("sub", span, 1), size), 1)
    return code.pick(enter, count, 0)


def value_now(w: FunctionWriter, value: Any) -> Any:
    """A variable as it is now: what the iterations see."""
    if isinstance(value, Slot):
        return w.b.load(value.pointer, typ=register_type(value.dtype))
    if isinstance(value, TileSlot):
        return w.read_slot(value)
    return value


def bind(inner: FunctionWriter, name: str, outer: Any, value: Any) -> None:
    if isinstance(outer, Slot):
        slot = Slot(outer.dtype, inner.code.alloca(register_type(outer.dtype), name))
        inner.b.store(value, slot.pointer)
        inner.env[name] = slot
    elif isinstance(outer, TileSlot):
        shape = tuple(e if isinstance(e, int) else None for e in value.declared)
        if name in inner.mutable:
            assign_tile(inner, Var(name, TileType(outer.dtype, shape)), value)
        else:
            inner.env[name] = value
    else:
        inner.env[name] = value
