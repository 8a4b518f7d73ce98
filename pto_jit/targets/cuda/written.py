# SPDX-License-Identifier: MIT
"""Whether the parts of what a kernel computes write different elements.

A kernel whose tiles are divided along a line of `n` elements has parts that share nothing, not even an order.  What it
stores, in sequential loops too, lies at `offset + k * n` of an axis of a tensor, for one offset and some `k`s; so each
element of the tensor belongs to one part, whichever store writes it::

    pl.store(t, [r, 0], y)          # n is 64: rows r to r + 63
    pl.store(u, [r + 64, 0], y)     # the same part writes row r + 64 + i as writes row r + i
    pl.store(u, [r + 1, 0], y)      # another part writes row r + 1 + i: not divided
"""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from pto_jit.ir.nodes import Const, For, Func, Op, Operand, Var, While
from pto_jit.ir.types import TensorType
from pto_jit.ir.walk import block_defs, def_counts, statements
from pto_jit.lower.wholes.lines import STORES, Axis, Lines, root_of
from pto_jit.slotted import frozen
from pto_jit.targets.cuda.loops import chain_of


@frozen
class _Number:
    """`const + sum(factor * variable)`."""

    const: int
    terms: frozenset[tuple[str, int]] = frozenset()

    def plus(self, other: _Number, times: int = 1) -> _Number:
        terms = Counter(dict(self.terms))
        for name, factor in other.terms:
            terms[name] += factor * times
        return _Number(self.const + other.const * times, frozenset((n, k) for n, k in terms.items() if k))


class Written:
    """What a kernel writes."""

    def __init__(self, func: Func, lines: Lines) -> None:
        self.lines = lines
        chain = chain_of(func.body)
        body = chain[-1].body if chain else func.body
        ops = [s for s in statements(body) if isinstance(s, Op)]
        read = {root_of(s.args[0], lines.views) for s in ops if s.op in ("load", "getelem", "take")}
        stores = [s for s in lines.writes if s.op in (*STORES, "setelem")]
        self.is_read = any(root_of(s.args[1], lines.views) in read for s in stores)
        counts = def_counts(func.body) + Counter(p.name for p in func.params)
        self.makers = {s.results[0].name: s for s in ops if len(s.results) == 1 and counts[s.results[0].name] == 1}
        inner = [s for s in statements(body) if isinstance(s, (For, While))]
        self.loops = {s.var.name: s for s in inner if isinstance(s, For) and counts[s.var.name] == 1}
        self.varying = {n for n, k in counts.items() if k > 1}.union(*(block_defs((s,)) for s in inner))

    def in_parts(self, line: Axis, extent: int) -> bool:
        """Whether all tiles that are written have a line of so many elements, each element of a tensor is written by
        one part of it, and nothing that is written is read.

        Elements that are written one by one do not depend on the line, or it would be bound: all parts write the same.
        """
        places: dict[str, set[object]] = {}
        for s in self.lines.writes:
            place = self._place(s, line, extent) if s.op in STORES else s.op
            if place is None or (s.op not in STORES and s.op != "setelem"):
                return False
            places.setdefault(root_of(s.args[1], self.lines.views), set()).add(place)
        return not self.is_read and all(len(of_one) == 1 for of_one in places.values())

    def _place(self, store: Op, line: Axis, extent: int) -> object:
        """The axis of a tensor that a store has the line along, and the offset there but for multiples of the extent;
        None where that is not known.  Updates that are not the same have an order."""
        axis = self.lines.place(store.args[0], line)
        at = None if axis is None else self._number(store.args[2 + axis])
        tensor = store.args[1]
        while at is not None and isinstance(tensor, Var) and tensor.name in self.lines.views:
            view = self.makers.get(tensor.name)
            if view is None or view.op != "view":  # turned, say: what else is stored has to be to this very view
                if tensor.name in self.varying:
                    return None
                break
            source, drop = view.args[0], view.attr("drop") or ()
            assert isinstance(source, Var) and isinstance(source.type, TensorType) and isinstance(drop, tuple)
            axis = [k for k in range(source.type.rank) if k not in drop][axis]  # type: ignore[index]
            offset = self._number(view.args[1 + axis])
            at = None if offset is None else at.plus(offset)
            tensor = source
        at = None if at is None else self._without_loops(at, extent)
        return None if at is None else (tensor, axis, _Number(at.const % extent, at.terms))

    def _without_loops(self, number: _Number, extent: int) -> _Number | None:
        """A number but for what loops add to it, if these are multiples of the extent."""
        for name, factor in number.terms:
            loop = self.loops.get(name)
            if loop is None:
                continue
            start = self._number(loop.start)
            if start is None or not isinstance(loop.step, Const) or factor * int(loop.step.value) % extent:
                return None
            rest = number.plus(_Number(0, frozenset([(name, -factor)]))).plus(start, factor)
            return self._without_loops(rest, extent)
        return number

    def _number(self, operand: Operand) -> _Number | None:
        """A number made of variables of loops, and of those that keep their value; None where it is not."""
        if isinstance(operand, Const):
            return _Number(int(operand.value))
        op = self.makers.get(operand.name)
        if op is not None and op.op in ("add", "sub", "mul", "copy"):
            numbers = [n for n in map(self._number, op.args) if n is not None]
            if op.op == "copy" and numbers:
                return numbers[0]
            if len(numbers) == 2 and op.op != "mul":
                return numbers[0].plus(numbers[1], -1 if op.op == "sub" else 1)
            for factor, number in permutations(numbers, 2):
                if op.op == "mul" and not factor.terms:
                    return _Number(0).plus(number, factor.const)
        known = operand.name in self.loops or operand.name not in self.varying
        return _Number(0, frozenset([(operand.name, 1)])) if known else None
