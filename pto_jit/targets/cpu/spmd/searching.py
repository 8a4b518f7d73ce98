# SPDX-License-Identifier: MIT
"""Loops that look for a greatest or a least element (`lower.extrema`), by lanes.

Every lane looks for it among its own iterations and notes the number of the one that won.  Of the lanes with the best
element the first iteration wins where the comparison is strict, else the last; that iteration is run once more as it is
written, and gives the variables their values.  Where the loop looks for several, the winners run in their order.

The last group begins so early that it ends with the loop: to look at an iteration twice changes nothing.

Loops that write have no winners: what they look for is the best of what the lanes found, and the last group is masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from llvmlite import ir

from pto_jit.dtypes import i64
from pto_jit.ir.nodes import Const, For, Var
from pto_jit.ir.types import ScalarType
from pto_jit.lower.extrema import Extremum, extrema, searched, writes
from pto_jit.lower.independent import carried_by
from pto_jit.slotted import frozen
from pto_jit.targets.cpu.code import PLAIN
from pto_jit.targets.cpu.constants import I32, I64, Index, Value, number, numbers, register_type, vector
from pto_jit.targets.cpu.constants import i64 as as_i64
from pto_jit.targets.cpu.elementwise import splat
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.parallel import trip_count
from pto_jit.targets.cpu.spmd.apart import compared, in_order, lie_apart
from pto_jit.targets.cpu.spmd.form import Form, Unfit, build, read_later
from pto_jit.targets.cpu.spmd.lanes import Linear
from pto_jit.targets.cpu.spmd.variance import Variance
from pto_jit.targets.cpu.spmd.writer import LaneWriter
from pto_jit.targets.cpu.vector import call_intrinsic

_BLOCK = 1 << 30  # iterations whose numbers are compared: they fit 32 bits
_NONE = (1 << 63) - 1  # the number of no iteration
_MOST = 3  # what a loop may look for: the iteration is written once more for each
_LEAST = 4  # lanes
_SHORT = 24  # operations of a body of which there may be four vectors side by side
_PARTS = 4


@frozen
class _Search:
    found: tuple[Extremum, ...]
    number: Var
    form: Form
    variance: Variance
    width: int
    parts: int
    writes: bool

    @property
    def lanes(self) -> int:
        return self.width * self.parts


def write_search(w: FunctionWriter, loop: For) -> bool:
    """Write a loop that looks for extrema, if it is one; gives whether it was written."""
    search = _plan(w, loop)
    if search is None:
        return False
    assert isinstance(loop.step, Const)
    code, step = w.code, int(loop.step.value)
    start, stop = w.index(loop.start), w.index(loop.stop)
    w.module.note_elements(code.function, loop)
    count = trip_count(code, start, stop, step)

    def single() -> tuple[()]:
        in_order(w, loop, start, stop, step, plain=True)
        return ()

    def lanes() -> tuple[()]:
        writer = _Writer(w, loop, search, start, count, step)
        (writer.write_stores if search.writes else writer.write)()
        return ()

    if not search.writes:
        code.choose(code.compare(">=", count, search.lanes), lanes, single)
        return True
    pairs = [] if w.apart else None if w.apart is False else compared(w, [loop])
    if pairs is None:
        return False
    worth = code.all_of([lie_apart(w, pairs), code.compare(">=", count, search.width)])
    code.choose(worth, lanes, single)
    return True


def _plan(w: FunctionWriter, loop: For) -> _Search | None:
    found = extrema(loop)
    if not found or len(found) > _MOST or w.module.debug or not isinstance(loop.step, Const) or not loop.step.value:
        return None
    if read_later(w.func, loop, [Var(name, ScalarType(i64)) for name in carried_by(loop)]):
        return None
    counter = Var(f"{loop.var.name}@number", ScalarType(i64))
    stores = writes(loop)
    kept = [e.var for e in found] if stores else [v for e in found for v in (e.var, e.winner)]
    body = loop.body if stores else searched(loop, found, counter)
    try:
        form = build(body, [loop.var, counter], kept=kept)
    except Unfit:
        return None
    names = frozenset(v.name for v in kept)
    steps: dict[str, int | None] = {loop.var.name: int(loop.step.value), counter.name: 1}
    variance = Variance(form, {*steps, *names}, steps, names).settle()
    traits = variance.traits()
    if traits.apart:
        return None  # to collect elements costs as much as to wait
    widest = max(traits.floats, traits.integers, *(e.counted.bytes for e in found))
    width = w.module.host.width // widest
    parts = 1 if traits.operations > _SHORT or traits.math else 2 if stores else _PARTS
    return _Search(found, counter, form, variance, width, parts, stores) if width >= _LEAST else None


class _Writer:
    """Writes the iterations of a loop, of which there is a group or more."""

    def __init__(self, w: FunctionWriter, loop: For, search: _Search, first: Index, count: Index, step: int) -> None:
        self.w, self.code = w, w.code
        self.loop, self.search = loop, search
        self.first, self.count, self.step = first, count, step

    def write(self) -> None:
        self.code.loop(0, self.count, _BLOCK, body=self._block, name=f"blocks.{PLAIN}")

    def write_stores(self) -> None:
        """The iterations of a loop that writes."""
        code, group = self.code, self.search.lanes
        saved, self.w.mutable = self.w.mutable, self.w.mutable | self.search.form.slots
        lanes = LaneWriter(self.w, self.search.variance, self.search.width, self.search.parts)
        for e in self.search.found:
            value = self.w.scalar(e.var)
            if e.greatest and not e.strict:  # the zero of an element comes after one that was there before
                value = code.b.fadd(value, number(value.type, 0.0))
            self._start(lanes, e.var, value)

        def iterations(k: Index, rest: Index | None) -> None:
            lanes.values[self.loop.var.name] = Linear(self._iteration(self.first, k), self.step)
            lanes.iteration(self.search.form.nodes, None if rest is None else lanes.first(rest))

        def body(k: Value, _: list[Value]) -> Sequence[Value]:
            iterations(k, None)
            return ()

        whole = code.floor(self.count, group)
        code.loop(0, whole, group, body=body, name=f"groups.{PLAIN}")
        with code.when(code.compare("<", whole, self.count)):
            iterations(whole, code.sub(self.count, whole))
        found = [self._best(e, lanes.vectors(e.var)) for e in self.search.found]
        self.w.mutable = saved
        for e, value in zip(self.search.found, found, strict=True):
            self.w.define(e.var, value)

    def _block(self, at: Value, _: list[Value]) -> Sequence[Value]:
        """The iterations from number `at` on whose numbers fit together."""
        code, group = self.code, self.search.lanes
        begin = code.min(at, code.sub(self.count, group))
        many = code.min(_BLOCK, code.sub(self.count, begin))
        first = self._iteration(self.first, begin)
        saved, self.w.mutable = self.w.mutable, self.w.mutable | self.search.form.slots
        lanes = LaneWriter(self.w, self.search.variance, self.search.width, self.search.parts)
        for e in self.search.found:
            self._start(lanes, e.var, self.w.scalar(e.var))
            self._start(lanes, e.winner, number(register_type(e.counted), _unset(e)))
        last = code.sub(many, group)

        def body(k: Value, _: list[Value]) -> Sequence[Value]:
            here = code.min(k, last)
            lanes.values[self.loop.var.name] = Linear(self._iteration(first, here), self.step)
            lanes.values[self.search.number.name] = Linear(here, 1)
            lanes.iteration(self.search.form.nodes, None)
            return ()

        code.loop(0, many, group, body=body, name=f"groups.{PLAIN}")
        winners = [self._winner(lanes, e) for e in self.search.found]
        self.w.mutable = saved
        self._run(first, winners)
        return ()

    def _iteration(self, first: Index, number: Index) -> Index:
        return self.code.wrapping("add", first, self.code.wrapping("mul", number, self.step))

    def _start(self, lanes: LaneWriter, var: Var, value: Value) -> None:
        lanes.declare(var)
        for slot in lanes.slots[var.name]:
            self.code.b.store(splat(self.code.b, value, self.search.width), slot)

    def _best(self, e: Extremum, elements: Sequence[Value]) -> Value:
        """The best element of all lanes."""
        b = self.code.b
        assert isinstance(e.var.type, ScalarType)
        dtype = e.var.type.dtype

        def better(x: Value, y: Value) -> Value:
            if e.nan or dtype.kind != "f":
                return self.w.ops.apply("max" if e.greatest else "min", (x, y), dtype, {}, dtype)
            return b.select(b.fcmp_ordered(">" if e.greatest else "<", y, x), y, x)

        return _folded(b, reduce(better, elements), self.search.width, better)

    def _winner(self, lanes: LaneWriter, e: Extremum) -> Value:
        """The number of the iteration that won, `_NONE` where none did."""
        b, width = self.code.b, self.search.width
        elements, places = lanes.vectors(e.var), lanes.vectors(e.winner)
        is_float = isinstance(e.var.type, ScalarType) and e.var.type.dtype.kind == "f"
        best = splat(b, self._best(e, elements), width)
        unset = number(vector(register_type(e.counted), width), _unset(e))
        candidates: list[Value] = []
        for element, place in zip(elements, places, strict=True):
            among = b.fcmp_ordered("==", element, best) if is_float else b.icmp_signed("==", element, best)
            if e.nan:
                among = b.or_(among, b.fcmp_unordered("uno", element, element))
            candidates.append(b.select(among, place, unset))
        sign = "<" if e.strict else ">"
        joint = reduce(lambda x, y: b.select(b.icmp_signed(sign, y, x), y, x), candidates)
        name = "vector.reduce.smin" if e.strict else "vector.reduce.smax"
        place = call_intrinsic(b, name, register_type(e.counted), joint, overloads=(joint.type,))
        won = b.icmp_signed("!=", place, number(register_type(e.counted), _unset(e)))
        wide = place if place.type == I64 else b.sext(place, I64)
        return b.select(won, wide, number(I64, _NONE))

    def _run(self, first: Index, winners: Sequence[Value]) -> None:
        """The iterations that won, in their order."""
        b = self.code.b
        last: Value = number(I64, -1)
        for _ in winners:
            following: Value = number(I64, _NONE)
            for winner in winners:
                sooner = b.and_(b.icmp_signed(">", winner, last), b.icmp_signed("<", winner, following))
                following = b.select(sooner, winner, following)
            here = self._iteration(first, following)
            there = b.add(as_i64(here), number(I64, self.step))
            stop = b.select(b.icmp_signed("==", following, number(I64, _NONE)), as_i64(here), there)
            in_order(self.w, self.loop, here, stop, self.step, plain=True)
            last = following


def _unset(e: Extremum) -> int:
    """The number of no iteration, to which any other is preferred."""
    return (1 << (8 * e.counted.bytes - 1)) - 1 if e.strict else -1


def _folded(b: ir.IRBuilder, value: Value, width: int, both: Callable[[Value, Value], Value]) -> Value:
    """One number of all lanes, halves with halves."""
    while width > 2:
        width //= 2
        low, high = (b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined),
                                      numbers(I32, tuple(range(at, at + width)))) for at in (0, width))  # fmt: skip
        value = both(low, high)
    return both(*(b.extract_element(value, number(I32, k)) for k in range(2)))
