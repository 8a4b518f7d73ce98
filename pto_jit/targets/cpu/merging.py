# SPDX-License-Identifier: MIT
"""Unsigned integers sorted by vectors: blocks by Batcher's bitonic network in registers, then runs merged a vector at a
time.

Both are comparisons of whole vectors (`min`, `max`) and shuffles, without a branch that depends on the numbers.  A
merge keeps a vector of the largest numbers so far, takes the next vector of the run that goes on with the smaller
number and stores the smaller half of the two (Inoue and others, "AA-Sort", PACT 2007).
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from pto_jit.targets.cpu.code import Code
from pto_jit.targets.cpu.constants import I1, I32, I64, PTR, VOID, Value, i64, number, numbers, undefined, vector, zero

_VECTORS = 8  # of a block


def block_length(width: int, bits: int) -> int:
    """The integers of `bits` bits that are sorted at once; `width`: bytes of a register."""
    return _VECTORS * _lanes(width, bits)


def _lanes(width: int, bits: int) -> int:
    return width * 8 // bits


def merge_sort(code: Code, width: int, bits: int, keys: Value, count: Value, spare: Value) -> Value:
    """Sort `count` integers, whole blocks of them; `spare`: as much memory; an integer before and behind both is read.

    Gives where they are then, in one of the two.
    """
    return code.b.call(_function(code.module, width, bits), [keys, count, spare])


def _function(module: ir.Module, width: int, bits: int) -> ir.Function:
    """`ptr sort(keys, count, spare)`."""
    name = f"pto.sort.{bits}"
    if known := module.globals.get(name):
        return known
    function = ir.Function(module, ir.FunctionType(PTR, [PTR, I64, PTR]), name)
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    keys, count, spare = function.args
    code = Code(function, zero(PTR))
    sorter = _Sorter(code, width, bits)
    block = block_length(width, bits)
    size = bits // 8
    code.loop(0, count, block, body=lambda i, _: sorter.block(code.offset(keys, code.mul(i, size))), name="block")

    def level(_: Value, state: list[Value]) -> Sequence[Value]:
        source, target, run = state
        total = code.mul(count, size)

        def pair(at: Value, _: list[Value]) -> Sequence[Value]:
            middle = code.min(code.add(at, run), total)
            end = code.min(code.add(middle, run), total)
            first, second, last = (code.offset(source, place) for place in (at, middle, end))
            alone = code.compare("==", middle, end)
            with code.when(alone):
                sorter.move(first, last, code.offset(target, at))
            with code.when(code.b.not_(alone)):
                sorter.merge(first, second, last, code.offset(target, at))
            return ()

        code.loop(0, total, code.add(run, run), body=pair, name="pair")
        return [target, source, code.add(run, run)]

    blocks = code.div(count, block)
    zeros = code.call("llvm.ctlz.i64", I64, [code.b.sub(i64(blocks), number(I64, 1)), number(I1, False)])
    levels = code.sub(64, zeros)  # the binary logarithm, rounded up; one block is 0 levels
    out = code.loop(0, levels, init=[keys, spare, number(I64, block * size)], body=level, name="level")
    code.b.ret(out[0])
    code.at(code.leave)
    code.b.unreachable()
    code.finish()
    return function


class _Sorter:
    """Compares and shuffles vectors of unsigned integers."""

    def __init__(self, code: Code, width: int, bits: int) -> None:
        self.code = code
        self.lanes = _lanes(width, bits)
        self.typ = vector(ir.IntType(bits), self.lanes)
        self.size = bits // 8

    # -- vectors --------------------------------------------------------------------------------------------------

    def load(self, address: Value) -> Value:
        return self.code.b.load(address, typ=self.typ, align=self.size)

    def store(self, value: Value, address: Value) -> None:
        self.code.b.store(value, address, align=self.size)

    def sorted(self, x: Value, y: Value) -> tuple[Value, Value]:
        """The smaller and the larger number of every lane."""
        name = f".v{self.lanes}i{8 * self.size}"
        return tuple(self.code.call(f"llvm.{op}{name}", self.typ, [x, y]) for op in ("umin", "umax"))  # pyright: ignore

    def shuffled(self, x: Value, order: Sequence[int]) -> Value:
        return self.code.b.shuffle_vector(x, undefined(self.typ), numbers(I32, tuple(order)))

    def reversed(self, x: Value) -> Value:
        return self.shuffled(x, range(self.lanes - 1, -1, -1))

    def exchanged(self, x: Value, across: int, above: int) -> Value:
        """Lanes compared with those whose numbers differ by the bits of `across`; those with the bit `above` keep the
        larger number."""
        low, high = self.sorted(x, self.shuffled(x, [k ^ across for k in range(self.lanes)]))
        chosen = tuple(self.lanes + k if k & above else k for k in range(self.lanes))
        return self.code.b.shuffle_vector(low, high, numbers(I32, chosen))

    def cleaned(self, x: Value, half: int) -> Value:
        """Bitonic sequences of `2 * half` lanes, in order."""
        while half:
            x = self.exchanged(x, half, half)
            half //= 2
        return x

    # -- blocks ---------------------------------------------------------------------------------------------------

    def block(self, address: Value) -> Sequence[Value]:
        """Sort a block where it lies: the lanes of every vector, then pairs of vectors, fours, eights."""
        many = 1
        while many <= _VECTORS:
            self.runs(address, many)
            many *= 2
        return ()

    def runs(self, address: Value, many: int) -> None:
        """Put runs of so many vectors in order, whose halves are (of single vectors nothing is known)."""
        step = self.lanes * self.size

        def body(at: Value, _: list[Value]) -> Sequence[Value]:
            places = [self.code.offset(address, self.code.add(at, k * step)) for k in range(many)]
            rows = [self.load(place) for place in places]
            rows = self.joined(rows) if many > 1 else [self.ordered(rows[0])]
            for row, place in zip(rows, places, strict=True):
                self.store(row, place)
            return ()

        self.code.loop(0, _VECTORS * step, many * step, body=body, name="runs")

    def ordered(self, x: Value) -> Value:
        """The lanes of a vector in order."""
        length = 2
        while length <= self.lanes:
            x = self.cleaned(self.exchanged(x, length - 1, length // 2), length // 4)
            length *= 2
        return x

    def joined(self, rows: list[Value]) -> list[Value]:
        """Vectors whose halves are sorted, in order."""
        count = len(rows)
        for k in range(count // 2):
            rows[k], high = self.sorted(rows[k], self.reversed(rows[count - 1 - k]))
            rows[count - 1 - k] = self.reversed(high)
        half = count // 4
        while half:
            for k in range(count):
                if not k & half:
                    rows[k], rows[k + half] = self.sorted(rows[k], rows[k + half])
            half //= 2
        return [self.cleaned(x, self.lanes // 2) for x in rows]

    # -- runs -----------------------------------------------------------------------------------------------------

    def merge(self, first: Value, second: Value, end: Value, target: Value) -> None:
        """The sorted runs [first, second) and [second, end), whole blocks each, to `target` in order.

        The smaller half is merged from the front and the larger one from the back, in one loop: neither waits for the
        other.
        """
        code, b = self.code, self.code.b
        step = self.lanes * self.size
        length = b.sub(b.ptrtoint(end, I64), b.ptrtoint(first, I64))
        last = code.offset(target, code.sub(length, step))

        def both(i: Value, state: list[Value]) -> Sequence[Value]:
            x, y, most, x_end, y_end, least = state
            smaller = b.and_(b.icmp_unsigned("<", x, second), b.icmp_unsigned("<=", self.head(x), self.head(y)))
            from_first = b.or_(smaller, b.icmp_unsigned(">=", y, end))
            low, high = self.sorted(most, self.reversed(self.load(b.select(from_first, x, y))))
            x_tail, y_tail = (self.head(code.offset(p, -self.size)) for p in (x_end, y_end))
            larger = b.and_(b.icmp_unsigned(">", x_end, first), b.icmp_unsigned(">=", x_tail, y_tail))
            to_first = b.or_(larger, b.icmp_unsigned("<=", y_end, second))
            before = code.offset(b.select(to_first, x_end, y_end), -step)
            other_low, other_high = self.sorted(least, self.reversed(self.load(before)))
            half = self.lanes // 2
            self.store(self.cleaned(low, half), code.offset(target, i))
            self.store(self.cleaned(other_high, half), code.offset(last, code.sub(0, i)))
            x, y = (code.offset(p, code.pick(c, step, 0)) for p, c in ((x, from_first), (y, b.not_(from_first))))
            x_end, y_end = (
                code.offset(p, code.pick(c, -step, 0)) for p, c in ((x_end, to_first), (y_end, b.not_(to_first)))
            )
            return [x, y, self.cleaned(high, half), x_end, y_end, self.cleaned(other_low, half)]

        behind = code.offset(end, -step)
        start = [code.offset(first, step), second, self.load(first), second, behind, self.load(behind)]
        code.loop(0, code.div(length, 2), step, init=start, body=both, name="merge")

    def head(self, address: Value) -> Value:
        """One number."""
        return self.code.b.load(address, typ=ir.IntType(8 * self.size), align=self.size)

    def move(self, first: Value, end: Value, target: Value) -> None:
        """A run without another one."""
        b = self.code.b
        length = b.sub(b.ptrtoint(end, I64), b.ptrtoint(first, I64))
        self.code.call("llvm.memcpy.p0.p0.i64", VOID, [target, first, length, number(I1, False)])


__all__ = ["block_length", "merge_sort"]
