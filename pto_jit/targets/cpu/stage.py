# SPDX-License-Identifier: MIT
"""One vector loop of a row nest.

The main loop takes vectors a small factor wider than a register, which LLVM splits again: one instruction of the text
becomes two to four independent ones of the processor, enough to hide their latency.  What is left at the end of a row
is done one register at a time under a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from pto_jit.dtypes import DType, i32
from pto_jit.ir.nodes import Const
from pto_jit.targets.cpu.access import edges, load, prefetch, save
from pto_jit.targets.cpu.constants import I64, Index, Value, i64, number, numbers, register_type, storage_type, vector
from pto_jit.targets.cpu.elementwise import from_memory, splat, to_memory
from pto_jit.targets.cpu.strided import load_apart, save_apart
from pto_jit.targets.loops.form import (
    Accumulate,
    Arg,
    Compute,
    Fold,
    Kept,
    Memory,
    Place,
    Places,
    Position,
    Read,
    RowBuffer,
    Segment,
    Stored,
    Write,
)  # fmt: skip
from pto_jit.targets.loops.schedule import arguments

if TYPE_CHECKING:
    from pto_jit.targets.cpu.nest import NestWriter


_AHEAD = 2048  # bytes in front of what is read, in loops that stream: at 4 KiB the hardware's prefetchers begin anew


class StageWriter:
    """One vector loop."""

    def __init__(self, nest: NestWriter, steps: Segment, lanes: int, wide: int) -> None:
        self.n = nest
        self.code = nest.code
        self.steps = steps
        self.lanes = lanes
        self.wide = wide
        self.folds = [s for s in steps if isinstance(s, Fold)]
        self.splats: dict[tuple[Any, int], Value] = {}
        self.ahead = {s for s in steps if isinstance(s, Read) and self._again(s)}

    def _again(self, step: Read) -> bool:
        """Whether this is the second stage that reads some memory: it came from far away in the first."""
        stages = [k for k, stage in enumerate(self.n.nest.stages) if any(
            isinstance(s, Read) and (s.place, s.axes) == (step.place, step.axes) for s in stage)]  # fmt: skip
        return isinstance(step.place, Memory) and len(stages) > 1 and self.n.nest.stages[stages[1]] is self.steps

    def _far(self, step: Read) -> bool:
        """Whether a nest that streams reads this from memory: each element once, in order."""
        if not isinstance(step.place, Memory) or not self._dense(step):
            return False
        return self.n.nest.stages[0] is self.steps and set(range(self.n.nest.rank)) <= set(step.axes)

    def _dense(self, step: Read | Write) -> bool:
        """Whether the elements lie side by side in memory."""
        return (step.place, step.axes) not in self.n.packs and (step.place, step.axes) not in self.n.apart

    @property
    def b(self) -> Any:
        """The builder at the place of insertion."""
        return self.code.b

    def write(self, count: Index) -> None:
        code, n = self.code, self.n
        known = count if isinstance(count, int) else None
        body_end = code.floor(count, self.wide)
        stream = self._stream()
        whole = known if known is not None else 1 if self.folds else n.divisor
        masked = whole % self.wide != 0 or stream is not False
        self._prepare(self.wide)
        if masked:
            self._prepare(self.lanes)
        state = [v for f in self.folds for v in n.folds.initial(f, self.wide)]
        if stream is False:
            state = self._main(0, body_end, state, False)
            head: Index = 0
        else:
            head, body_end = self._streamed(stream, count)
        groups = self._grouped(state)
        if masked:
            groups = [n.folds.narrow(f, g, self.lanes) for f, g in zip(self.folds, groups, strict=True)]
            flat = self._tail(head, body_end, count, [v for g in groups for v in g])
            groups = self._grouped(flat)
        for f, g in zip(self.folds, groups, strict=True):
            n.values[f.dst] = n.folds.result(f, g)

    def vectors(self, i: Value, mask: Value | None) -> None:
        """The vector from column `i` on, or its lanes in a mask, of a stage without folds."""
        self._prepare(self.wide)
        self._body(i, self.wide, mask, [], False)

    def _grouped(self, state: Sequence[Value]) -> list[tuple[Value, ...]]:
        out = []
        at = 0
        for f in self.folds:
            size = len(self.n.folds.initial(f, 1))
            out.append(tuple(state[at : at + size]))
            at += size
        return out

    def _stream(self) -> Any:
        """Whether this stage stores past the caches: False, or an i1 known when the nest runs."""
        if self.folds:
            return False
        writes = [s for s in self.steps if isinstance(s, (Write, Accumulate))]
        if len(writes) != 1 or not isinstance(writes[0], Write) or not isinstance(writes[0].place, Stored):
            return False
        write = writes[0]
        assert isinstance(write.place, Stored)
        if not self._dense(write) or self.lanes * write.dtype.bytes != self.n.width:
            return False
        return self.n.inputs.streams.get(write.place.number, False)

    def _main(self, start: Index, stop: Index, state: list[Value], stream: bool) -> list[Value]:
        return self.code.loop(
            start, stop, self.wide, state, lambda i, s: self._body(i, self.wide, None, s, stream), name="main"
        )

    def _streamed(self, stream: Any, count: Index) -> tuple[Index, Index]:
        """The main loop in two forms, the streaming one from the first aligned element on; gives where it began
        and ended."""
        code, n = self.code, self.n
        write = next(s for s in self.steps if isinstance(s, Write))
        address = self.b.ptrtoint(n.rows[write.place, write.axes], I64)
        size = write.dtype.bytes
        ahead = code.div(self.b.and_(self.b.sub(number(I64, 0), address), number(I64, n.width - 1)), size)
        ahead = code.min(ahead, count)
        stop_streaming = code.add(ahead, code.floor(code.sub(count, ahead), self.wide))

        def streaming() -> Sequence[Value]:
            self._main(ahead, stop_streaming, [], True)
            return i64(ahead), i64(stop_streaming)

        def plain() -> Sequence[Value]:
            stop = code.floor(count, self.wide)
            self._main(0, stop, [], False)
            return i64(0), i64(stop)

        head, stop = code.choose(stream, streaming, plain)
        return head, stop

    def _tail(self, head: Index, start: Index, count: Index, state: list[Value]) -> list[Value]:
        """What the main loop left, under a mask: [0, head) and [start, count)."""
        code = self.code
        lanes = self.lanes
        counter = ir.IntType(min(32, 8 * self.n.width // lanes))  # one comparison for all lanes
        iota = numbers(counter, range(lanes)) if lanes > 1 else None

        def masked(i: Value, limit: Index, state: list[Value]) -> Sequence[Value]:
            if iota is None:
                return self._body(i, 1, None, state, False)
            left = self.b.trunc(code.min(code.sub(limit, i), lanes), counter)
            mask = self.b.icmp_signed("<", iota, splat(self.b, left, lanes))
            return self._body(i, lanes, mask, state, False)

        if isinstance(head, int) and head == 0:
            return code.loop(start, count, lanes, state, lambda i, s: masked(i, count, s), name="tail")
        edges(code, head, start, count, lanes, lambda i, stop: masked(i, stop, []))
        return state

    # -- one iteration --------------------------------------------------------------------------------------------

    def _prepare(self, lanes: int) -> None:
        """Row-level operands in every lane, before the loop."""
        inner = {s.dst for s in self.steps if isinstance(s, (Read, Compute, Position))}
        for step in self.steps:
            for arg in arguments(step):
                if isinstance(arg, int) and arg in inner:
                    continue
                key = (arg, lanes)
                if key not in self.splats:
                    scalar = self.n.scalar(arg)
                    if isinstance(arg, Const):
                        self.splats[key] = number(vector(scalar.type, lanes), arg.value)
                    else:
                        self.splats[key] = splat(self.b, scalar, lanes)

    def _body(self, i: Value, lanes: int, mask: Value | None, state: Sequence[Value], stream: bool) -> list[Value]:
        n = self.n
        env: dict[int, Value] = {}

        def get(arg: Arg) -> Value:
            return env[arg] if isinstance(arg, int) and arg in env else self.splats[arg, lanes]

        out: list[Value] = []
        groups = iter(self._grouped(state))
        for step in self.steps:
            if self.code.lines is not None and isinstance(step, (Compute, Fold)):
                self.code.lines.place(self.code, step.loc)
            match step:
                case Read():
                    address = self._address(step.place, step.axes, step.dtype, i)
                    apart = n.apart.get((step.place, step.axes))
                    if step.place in n.held:
                        raw = self.b.load(n.held[step.place], typ=vector(storage_type(step.dtype), lanes))
                    elif apart is None:
                        raw = load(self.code, address, step.dtype, lanes, mask)
                    else:
                        raw = load_apart(self.code, address, step.dtype, lanes, apart, mask)
                    if mask is None and step in self.ahead:  # the next row, which most often follows this one
                        self._prefetch(step, i, lanes, self.code.mul(n.count, step.dtype.bytes))
                    elif mask is None and n.block and n.inner - 1 in step.axes and self._dense(step):
                        self._prefetch(step, i, lanes, n.stride(step.place, step.axes, n.inner - 1))
                    elif mask is None and stream and self._far(step):
                        self._prefetch(step, i, lanes, _AHEAD)
                    env[step.dst] = from_memory(self.b, raw, step.dtype)
                case Position():
                    env[step.dst] = self._position(step, i, lanes)
                case Compute():
                    args = [get(a) for a in step.args]
                    env[step.dst] = n.ops.apply(step.op, args, step.operand, dict(step.attrs), step.dtype)
                case Fold():
                    before = next(groups)
                    index = None
                    if step.op in ("argmax", "argmin"):
                        index = self._position(Position(-1, n.inner, i32), i, lanes)
                    after = n.folds.step(step, before, get(step.arg), index)
                    if mask is not None:
                        after = [self.b.select(mask, x, y) for x, y in zip(after, before, strict=True)]
                    out.extend(after)
                case Write():
                    value = to_memory(self.b, get(step.arg), step.dtype)
                    address = self._address(step.place, step.axes, step.dtype, i)
                    apart = n.apart.get((step.place, step.axes))
                    if step.place in n.held:
                        self.b.store(value, n.held[step.place])
                    elif apart is None:
                        save(self.code, address, value, step.dtype, mask, n.width if stream else 0)
                    else:
                        save_apart(self.code, address, value, step.dtype, apart, mask)
                case Accumulate():
                    address = self._address(Kept(step.name), step.axes, step.dtype, i)
                    n.accumulate(step, address, get(step.arg), lanes, mask)
        return out

    def _prefetch(self, step: Read, i: Index, lanes: int, ahead: Index) -> None:
        """Fetch what lies so many bytes behind the elements from i on."""
        code = self.code
        start = code.offset(self._address(step.place, step.axes, step.dtype, i), ahead, inbounds=False)
        prefetch(code, start, lanes * step.dtype.bytes)

    def _address(self, place: Place, axes: Places, dtype: DType, i: Index) -> Value:
        n = self.n
        base = n.buffers[place] if isinstance(place, RowBuffer) else n.rows[place, axes]
        return self.code.offset(base, self.code.mul(i, dtype.bytes, n.apart.get((place, axes), 1)))

    def _position(self, step: Position, i: Value, lanes: int) -> Value:
        n = self.n
        if step.axis != n.inner:
            return splat(self.b, n.index(n.indices[step.axis], step.dtype), lanes)
        typ = register_type(step.dtype)
        if step.dtype.kind == "f":
            wide = self.b.add(splat(self.b, i, lanes), numbers(I64, range(lanes))) if lanes > 1 else i
            return self.b.sitofp(wide, vector(typ, lanes))
        assert isinstance(typ, ir.IntType)
        start = i if step.dtype.bits == 64 else self.b.trunc(i, typ)
        return start if lanes == 1 else self.b.add(splat(self.b, start, lanes), numbers(typ, range(lanes)))
