# SPDX-License-Identifier: MIT
"""Atomic updates of elements of tensors: against other iterations of parallel loops, which the library knows of.

Where no other thread works on a loop around, elements are read and written as others are, in vectors.  Elsewhere they
are compared and swapped, a word of several at a time where they lie side by side; single integers are added by the
processor's own instruction.  No order with other memory follows from that: what iterations of a loop tell each other
beyond the element is a race.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from pto_jit.ir.nodes import Op
from pto_jit.targets.cpu.access import load, save
from pto_jit.targets.cpu.constants import I64, Index, Value, i64, storage_type
from pto_jit.targets.cpu.constants import vector as vector_of
from pto_jit.targets.cpu.elements import address, each, line
from pto_jit.targets.cpu.elementwise import from_memory, to_memory
from pto_jit.targets.cpu.function import FunctionWriter
from pto_jit.targets.cpu.indirect import settled
from pto_jit.targets.cpu.tensors import region
from pto_jit.targets.cpu.values import Tensor

_FEW = 2  # elements of rows that are not worth looking for words
_KINDS = {"atomic_add": "add", "atomic_max": "max", "atomic_min": "min"}


def write_atomic(w: FunctionWriter, op: Op) -> None:
    """`atomic_add`, `atomic_max`, `atomic_min` of a tile and what is at some offsets of a tensor."""
    code = w.code
    tile, tensor = settled(w, op.args[0]), w.tensor(op.args[1])
    pointer, inside = region(w, tensor, [w.index(a) for a in op.args[2:]], tile.valid, op.loc)
    w.record(op, tensor, pointer, inside, tensor.strides)
    part = Tensor(tensor.dtype, pointer, inside, tensor.strides)
    update = _Update(w, _KINDS[op.op], part)

    def rows(one: Callable[[Tensor, Tensor], None]) -> Callable[[], Sequence[Value]]:
        def all_of_them() -> Sequence[Value]:
            if not inside:
                where = (Tensor(t.dtype, t.pointer, (1,), (t.dtype.bytes,)) for t in (part, tile))
                one(*where)
            else:
                each(w, inside[:-1], lambda i: one(line(w, part, i), line(w, tile, i)))
            return ()

        return all_of_them

    code.choose(code.shared(), rows(update.swapped), rows(update.plain))


class _Update:
    """Updates of elements of one tensor."""

    def __init__(self, w: FunctionWriter, kind: str, tensor: Tensor) -> None:
        self.w, self.code, self.kind = w, w.code, kind
        self.dtype = tensor.dtype
        self.size = tensor.dtype.bytes

    def plain(self, to: Tensor, values: Tensor) -> None:
        """A row of which no other thread knows."""
        (count,) = to.extents
        lanes = self.w.module.vector_bytes // self.size
        whole: Index = 0
        if lanes > 1 and self.dtype.kind != "b" and not (isinstance(count, int) and count < lanes):
            whole = self.code.pick(self.side_by_side(to, values), self.code.floor(count, lanes), 0)
            self.loop(0, whole, lanes, lambda i: self.change(to, values, i, lanes))
        self.loop(whole, count, 1, lambda i: self.change(to, values, i, 1))

    def swapped(self, to: Tensor, values: Tensor) -> None:
        """A row that other threads may be changing."""
        code, (count,) = self.code, to.extents
        element = self.added if self.kind == "add" and self.dtype.kind in "iu" else self.swap
        lanes = self.word() // self.size
        if lanes < 2 or (isinstance(count, int) and count <= _FEW):
            self.loop(0, count, 1, lambda i: element(to, values, i))
            return
        # words begin where their address is a multiple of their size
        place = code.b.ptrtoint(to.pointer, I64)
        behind = code.b.and_(code.b.neg(place), i64(self.word() - 1))
        first = code.min(count, code.div(behind, self.size))
        first = code.pick(self.side_by_side(to, values), first, count)
        last = code.add(first, code.floor(code.sub(count, first), lanes))
        self.loop(0, first, 1, lambda i: element(to, values, i))
        self.loop(first, last, lanes, lambda i: self.swap(to, values, i, lanes))
        self.loop(last, count, 1, lambda i: element(to, values, i))

    def word(self) -> int:
        """Bytes that the processor compares and swaps at a time."""
        host = self.w.module.host
        if self.dtype.kind == "b":
            return self.size
        return 16 if "+cx16" in host.features or host.triple.startswith(("aarch64", "arm64")) else 8

    def side_by_side(self, *rows: Tensor) -> bool | Value:
        return self.code.all_of([self.code.compare("==", row.strides[0], self.size) for row in rows])

    def loop(self, start: Index, stop: Index, step: int, body: Callable[[Value], None]) -> None:
        def once(i: Value, _: list[Value]) -> Sequence[Value]:
            body(i)
            return ()

        self.code.loop(start, stop, step, body=once, name="atomic")

    def values(self, row: Tensor, i: Value, lanes: int) -> Value:
        return from_memory(self.code.b, load(self.code, address(self.w, row, [i]), self.dtype, lanes, None), self.dtype)

    def combined(self, old: Value, value: Value) -> Value:
        """What is to be stored where `old` was loaded."""
        have = from_memory(self.code.b, old, self.dtype)
        new = self.w.ops.apply(self.kind, (have, value), self.dtype, {}, self.dtype)
        return to_memory(self.code.b, new, self.dtype)

    def change(self, to: Tensor, values: Tensor, i: Value, lanes: int) -> None:
        place = address(self.w, to, [i])
        old = load(self.code, place, self.dtype, lanes, None)
        save(self.code, place, self.combined(old, self.values(values, i, lanes)), self.dtype, None)

    def added(self, to: Tensor, values: Tensor, i: Value) -> None:
        self.code.b.atomic_rmw("add", address(self.w, to, [i]), self.values(values, i, 1), "monotonic")

    def swap(self, to: Tensor, values: Tensor, i: Value, lanes: int = 1) -> None:
        """The bits of an element, or of a word of them, as long as they are not what they were."""
        code, b = self.code, self.code.b
        place, value = address(self.w, to, [i]), self.values(values, i, lanes)
        typ, bits = vector_of(storage_type(self.dtype), lanes), ir.IntType(8 * self.size * lanes)
        first = b.load(place, typ=bits, align=self.size)
        before, head, after = b.block, code.block("swap"), code.block("swapped")
        b.branch(head)
        code.at(head)
        old = b.phi(bits)
        old.add_incoming(first, before)
        new = self.combined(old if typ == bits else b.bitcast(old, typ), value)
        new = new if typ == bits else b.bitcast(new, bits)
        pair = b.cmpxchg(place, old, new, ordering="monotonic", failordering="monotonic")
        old.add_incoming(b.extract_value(pair, 0), b.block)
        b.cbranch(b.extract_value(pair, 1), after, head)
        code.at(after)
