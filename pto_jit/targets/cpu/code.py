# SPDX-License-Identifier: MIT
"""Writing one LLVM function: index arithmetic that folds, structured control flow, failures.

Indices, extents and byte offsets are `Index` values: a Python int when known while compiling, else an i64 of LLVM.
Every method that takes several of them folds what it can, so the callers write plain arithmetic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from pto_jit.targets.cpu.constants import I1, I8, I32, I64, PTR, VOID, Index, Value, i64, number

PLAIN = "plain"  # in the names of blocks that loops begin with which the optimiser is to leave as they are
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
            "!=": operator.ne}  # fmt: skip


class Code:
    """The builder of one LLVM function that returns an i32 status and takes the worker first.

    `b` is llvmlite's builder at the place of insertion.  Allocas go to the entry block, which ends with a jump to the
    first block of the body when `finish` is called.
    """

    def __init__(self, function: ir.Function, worker: Value) -> None:
        self.function = function
        self.module: ir.Module = function.module
        self.worker = worker
        self.entry: ir.Block = function.append_basic_block("entry")
        self.b: Any = ir.IRBuilder(function.append_basic_block("body"))  # llvmlite is untyped
        self._first: ir.Block = self.b.block
        self._entry_builder: Any = ir.IRBuilder(self.entry)
        self.leave: ir.Block = function.append_basic_block("leave")
        self.status = self.alloca(I32, "status")
        self._entry_builder.store(number(I32, 0), self.status)
        self._shared: Value | None = None
        self._failure: list[Any] | None = None  # phis: the site and the numbers of the check that failed
        self.lines = getattr(self.module, "lines", None)  # `lines.Lines` when places are kept
        if self.lines is not None:
            self.lines.begin(self)

    def at_entry_lines(self, place: Any) -> None:
        """The place of what is put into the entry block."""
        self._entry_builder.debug_metadata = place

    def alloca(self, typ: ir.Type, name: str = "", count: int = 1, align: int | None = None) -> Value:
        """Stack memory that lives as long as the call."""
        size = None if count == 1 else number(I64, count)
        slot = self._entry_builder.alloca(typ, size=size, name=name)
        slot.type = PTR
        if align:
            slot.align = align
        return slot

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Put code into the entry block, before everything else."""
        saved, self.b = self.b, self._entry_builder
        try:
            yield
        finally:
            self.b = saved

    def shared(self) -> Value:
        """Whether other threads may run other iterations of a loop around, or this is a task; asked once for a call."""
        if self._shared is None:
            with self.at_entry():
                answer = self.call("pto_in_piece", I32, [self.worker], ["nounwind"])
                self._shared = self.b.icmp_signed("!=", answer, number(I32, 0))
        return self._shared

    def finish(self) -> None:
        """Close the entry block; the body must have jumped to `leave` already."""
        self._entry_builder.branch(self._first)
        # keep `leave` last: blocks print in the order of the function's list
        self.function.blocks.remove(self.leave)
        self.function.blocks.append(self.leave)

    # -- index arithmetic ---------------------------------------------------------------------------------------

    constant = staticmethod(i64)
    """A number as a value of the builder."""

    def add(self, *terms: Index) -> Index:
        fixed = sum(t for t in terms if isinstance(t, int))
        live = [t for t in terms if not isinstance(t, int)]
        if not live:
            return fixed
        out = live[0]
        for term in live[1:]:
            out = self.b.add(out, term, flags=("nsw",))
        return out if fixed == 0 else self.b.add(out, self.constant(fixed), flags=("nsw",))

    def sub(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        if isinstance(y, int):
            return self.add(x, -y)
        return self.b.sub(self.constant(x), y, flags=("nsw",))

    def mul(self, *factors: Index) -> Index:
        fixed = 1
        live = []
        for f in factors:
            if isinstance(f, int):
                fixed *= f
            else:
                live.append(f)
        if fixed == 0 or not live:
            return fixed
        out = live[0]
        for factor in live[1:]:
            out = self.b.mul(out, factor, flags=("nsw",))
        return out if fixed == 1 else self.b.mul(out, self.constant(fixed), flags=("nsw",))

    def wrapping(self, op: str, x: Index, y: Index) -> Index:
        """`add`, `sub` or `mul` of numbers that may be anything, modulo 2**64.

        `add`, `sub` and `mul` above are for extents, strides and places in memory, which are known not to overflow.
        """
        if isinstance(x, int) and isinstance(y, int):
            value = x + y if op == "add" else x - y if op == "sub" else x * y
            return (value + (1 << 63)) % (1 << 64) - (1 << 63)
        if isinstance(x, int) and op != "sub":
            x, y = y, x
        if isinstance(y, int):
            if y == (1 if op == "mul" else 0):
                return x
            if y == 0:
                return 0
        return getattr(self.b, op)(self.constant(x), self.constant(y))

    def bytes(self, size: int, extents: Sequence[Index]) -> Index:
        """The bytes of an array of elements of `size` bytes; what no memory can hold is the largest number."""
        most = (1 << 63) - 1
        out: Index = size
        for extent in extents:
            if isinstance(out, int) and isinstance(extent, int):
                out = min(out * extent, most)
                continue
            pair = ir.LiteralStructType([I64, I1])
            arguments = [i64(out), i64(extent)]
            both = self.call("llvm.smul.with.overflow.i64", pair, arguments)
            out = self.b.select(self.b.extract_value(both, 1), number(I64, most), self.b.extract_value(both, 0))
        return out

    def floor(self, x: Index, step: int) -> Index:
        """`x` rounded down to a multiple of a power of two."""
        if isinstance(x, int):
            return x // step * step
        return self.b.and_(x, i64(-step))

    def min(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        if x is y:
            return x
        return self.call("llvm.smin.i64", I64, [i64(x), i64(y)])

    def max(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        if x is y:
            return x
        return self.call("llvm.smax.i64", I64, [i64(x), i64(y)])

    def div(self, x: Index, y: Index) -> Index:
        """Unsigned quotient of non-negative numbers."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        if isinstance(y, int) and y == 1:
            return x
        return self.b.udiv(i64(x), i64(y))

    def mod(self, x: Index, y: Index) -> Index:
        """Unsigned remainder of non-negative numbers."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        if isinstance(y, int) and y == 1:
            return 0
        return self.b.urem(i64(x), i64(y))

    def compare(self, op: str, x: Index, y: Index) -> bool | Value:
        """A signed comparison: a Python bool when both sides are known."""
        if isinstance(x, int) and isinstance(y, int):
            return _COMPARE[op](x, y)
        if x is y:
            return op in ("<=", ">=", "==")
        return self.b.icmp_signed(op, self.constant(x), self.constant(y))

    def all_of(self, conditions: Sequence[bool | Value]) -> bool | Value:
        out: bool | Value = True
        for c in conditions:
            if isinstance(c, bool):
                if not c:
                    return False
            else:
                out = c if out is True else self.b.and_(out, c)
        return out

    def any_of(self, conditions: Sequence[bool | Value]) -> bool | Value:
        out: bool | Value = False
        for c in conditions:
            if isinstance(c, bool):
                if c:
                    return True
            else:
                out = c if out is False else self.b.or_(out, c)
        return out

    def pick(self, condition: bool | Value, x: Index, y: Index) -> Index:
        """`x` where the condition holds, else `y`."""
        if isinstance(condition, bool):
            return x if condition else y
        if x is y or (isinstance(x, int) and isinstance(y, int) and x == y):
            return x
        return self.b.select(condition, self.constant(x), self.constant(y))

    def offset(self, pointer: Value, distance: Index, inbounds: bool = True) -> Value:
        """`pointer` moved by a number of bytes; `inbounds`: to a place in the same memory."""
        if isinstance(distance, int) and distance == 0:
            return pointer
        return self.b.gep(pointer, [i64(distance)], source_etype=I8, inbounds=inbounds)

    # -- control flow -------------------------------------------------------------------------------------------

    def block(self, name: str) -> ir.Block:
        return self.function.append_basic_block(name)

    @property
    def terminated(self) -> bool:
        return self.b.block.is_terminated

    def go(self, block: ir.Block) -> None:
        """Jump to `block` unless the current block already ended."""
        if not self.terminated:
            self.b.branch(block)

    def at(self, block: ir.Block) -> None:
        self.b.position_at_end(block)

    @contextmanager
    def when(self, condition: bool | Value, likely: bool | None = None) -> Iterator[None]:
        """Run the code inside where the condition holds. (Nothing is emitted for a constant True.)"""
        if condition is True:
            yield
            return
        if condition is False:
            dead = self.block("dead")
            after = self.b.block
            self.at(dead)
            yield
            if not self.terminated:
                self.b.unreachable()
            self.at(after)
            return
        then, after = self.block("then"), self.block("after")
        branch = self.b.cbranch(condition, then, after)
        if likely is not None:
            branch.set_weights([99, 1] if likely else [1, 99])
        self.at(then)
        yield
        self.go(after)
        self.at(after)

    def choose(
        self, condition: bool | Value, then: Callable[[], Sequence[Value]], other: Callable[[], Sequence[Value]]
    ) -> list[Value]:
        """The values of one of two pieces of code."""
        if isinstance(condition, bool):
            return list(then() if condition else other())
        t, e, after = self.block("then"), self.block("else"), self.block("after")
        self.b.cbranch(condition, t, e)
        self.at(t)
        xs, t = then(), self.b.block
        self.b.branch(after)
        self.at(e)
        ys, e = other(), self.b.block
        self.b.branch(after)
        self.at(after)
        out = []
        for x, y in zip(xs, ys, strict=True):
            if x is y:
                out.append(x)
                continue
            phi = self.b.phi(x.type)
            phi.add_incoming(x, t)
            phi.add_incoming(y, e)
            out.append(phi)
        return out

    def loop(
        self,
        start: Index,
        stop: Index,
        step: int | Index = 1,
        init: Sequence[Value] = (),
        body: Callable[[Value, list[Value]], Sequence[Value]] | None = None,
        name: str = "loop",
    ) -> list[Value]:
        """Run `body(i, values)` for i in range(start, stop, step), step > 0; it returns the next `values`.

        Gives the last values. The loop is written with its test at the bottom, behind one test of its own.
        """
        assert body is not None
        head, after = self.block(name), self.block(name + ".end")
        before = self.b.block
        enter = self.compare("<", start, stop)
        if enter is False:
            self.function.blocks.remove(head)
            self.function.blocks.remove(after)
            return list(init)
        if enter is True:
            self.b.branch(head)
        else:
            self.b.cbranch(enter, head, after)
        self.at(head)
        i = self.b.phi(I64, name="i")
        i.add_incoming(i64(start), before)
        phis = []
        for v in init:
            phi = self.b.phi(v.type)
            phi.add_incoming(v, before)
            phis.append(phi)
        nexts = list(body(i, phis))
        latch = self.b.block
        following = self.b.add(i, i64(step), flags=("nsw",))
        self.b.cbranch(self.b.icmp_signed("<", following, i64(stop)), head, after)
        i.add_incoming(following, latch)
        for phi, v in zip(phis, nexts, strict=True):
            phi.add_incoming(v, latch)
        self.at(after)
        if enter is True:
            return nexts
        out = []
        for first, v in zip(init, nexts, strict=True):
            phi = self.b.phi(v.type)
            phi.add_incoming(first, before)
            phi.add_incoming(v, latch)
            out.append(phi)
        return out

    # -- failures -----------------------------------------------------------------------------------------------

    def call(self, name: str, result: ir.Type, args: Sequence[Value], attributes: Sequence[str] = ()) -> Value:
        """Call a function of the run-time library or an intrinsic, declared at the first use."""
        declared = self.module.globals.get(name)
        if declared is None:
            declared = ir.Function(self.module, ir.FunctionType(result, [a.type for a in args]), name)
            for a in attributes:
                declared.attributes.add(a)
        return self.b.call(declared, args)

    def copy(
        self, to: Value, source: Value, size: int, extents: Sequence[Index], out: Sequence[Index], into: Sequence[Index]
    ) -> None:
        """Copy a region of elements of `size` bytes: its extents, the strides of `to` and those of `source`.

        Elements that are known to lie side by side in both are moved at once.
        """
        axes, run = len(extents), size
        while axes and out[axes - 1] == into[axes - 1] == run and isinstance(extents[axes - 1], int):
            axes -= 1
            run *= max(extents[axes], 0)
        if axes == 0 or (axes == 1 and out[0] == into[0] == run):
            count = self.mul(run, self.max(extents[0], 0)) if axes else run
            self.call("llvm.memcpy.p0.p0.i64", VOID, [to, source, i64(count), number(I1, False)])
            return
        numbers = (*extents, *out, *into)
        room = self.alloca(I64, "numbers", len(numbers), align=8)
        for k, value in enumerate(numbers):
            self.b.store(i64(value), self.offset(room, 8 * k), align=8)
        self.call("pto_copy", VOID, [i64(len(extents)), to, source, i64(size), room], ["cold", "nounwind"])

    def leave_with(self, status: Value) -> None:
        """Return `status` from the function, by way of its last block."""
        self.b.store(status, self.status)
        self.b.branch(self.leave)

    def check(self, ok: bool | Value, site: int, *values: Index) -> None:
        """Fail with a numbered site and up to three numbers unless `ok`."""
        if ok is True:
            return
        good, here = self.block("good"), self.b.block
        if self._failure is None:
            self.at(self.block("bad"))
            self._failure = [self.b.phi(typ) for typ in (I32, I64, I64, I64)]
            self.leave_with(self.call("pto_fail", I32, [self.worker, *self._failure], ["cold"]))
            self.at(here)
        what = (number(I32, site), *map(i64, values), *[i64(0)] * (3 - len(values)))
        for phi, value in zip(self._failure, what, strict=True):
            phi.add_incoming(value, here)
        bad = self._failure[0].parent
        if ok is False:
            self.b.branch(bad)
        else:
            self.b.cbranch(ok, good, bad).set_weights([2000, 1])
        self.at(good)

    def check_status(self, status: Value) -> None:
        """Leave with `status` unless it is zero."""
        good, bad = self.block("good"), self.block("bad")
        self.b.cbranch(self.b.icmp_signed("==", status, number(I32, 0)), good, bad).set_weights([2000, 1])
        self.at(bad)
        self.leave_with(status)
        self.at(good)
