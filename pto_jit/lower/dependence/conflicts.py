# SPDX-License-Identifier: MIT
"""Whether two accesses can touch one element in two given kinds of iterations.

Both accesses are written in their own copies of the atoms that differ between their iterations (side 0 and side 1); two
that lie in the same iteration of a loop share the atoms that vary with that loop alone.  The question becomes a system:
equations where both touch a single element along an axis, pairs of inequalities where the spans overlap, the loops'
bounds, and the order asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from pto_jit.ir.nodes import For
from pto_jit.lower.dependence.accesses import Access, Accesses, Loop, Root, Span
from pto_jit.lower.dependence.linear import ONE, Linear
from pto_jit.lower.dependence.linear import atom as linear_atom
from pto_jit.lower.dependence.quick import Interval, Relation, Row, apart, distances, impossible
from pto_jit.slotted import frozen

Verdict = Literal["yes", "no", "unknown"]

SHARED = 2
DIVIDED = ("parallel", "chunk", "in_chunk")

@frozen
class Conflict:
    """Whether two accesses touch one element: "no" is proven; "yes" with an example; "unknown" otherwise.

    `iterations` gives the indices of the loops around each access in the example, by loop number.
    """

    verdict: Verdict
    iterations: tuple[dict[int, int], dict[int, int]] | None = None
    why: str = ""


NO = Conflict("no")


def may_alias(one: Root, other: Root) -> bool:
    """Whether what two tensors are of can be the same memory."""
    if one.name == other.name and one.kind == other.kind:
        return True
    if "alloc" in (one.kind, other.kind):  # nothing else has the memory of an allocation but views of it
        return "unknown" in (one.kind, other.kind)
    return True


def is_divided(loop: Loop) -> bool:
    """Whether the user promised that the loop's iterations are independent, and they do not reduce."""
    return isinstance(loop.stmt, For) and loop.stmt.kind in DIVIDED and not loop.stmt.reductions


def conflict(
    found: Accesses, a: Access, b: Access, same: Iterable[int], order: Sequence[tuple[Loop, Relation]]
) -> Conflict:
    """Whether `a` and `b` touch one element, in the same iteration of the loops `same` and in iterations of the loops
    of `order` related as it says.  The answer is kept: refusing a loop and describing it ask the same."""
    shared = frozenset(same)
    question = (a.order, b.order, shared, tuple((loop.number, relation) for loop, relation in order))
    answer = found.answers.get(question)
    if answer is None:
        answer = found.answers[question] = _conflict(found, a, b, shared, order)
    return answer


def _conflict(
    found: Accesses, a: Access, b: Access, shared: frozenset[int], order: Sequence[tuple[Loop, Relation]]
) -> Conflict:
    if not may_alias(a.root, b.root):
        return NO
    if not a.shares_root(b) or a.root.kind == "unknown":
        why = "the arguments may share memory" if a.root.kind == b.root.kind == "argument" else ""
        return Conflict("unknown", why=why)
    if any(loop.number in a.root.loops for loop, relation in order if relation != "="):
        return NO  # a new tensor in each iteration
    known = distances(found, a, b)
    if known is None:
        return NO
    for number, distance in known.items():
        if distance and number in shared:
            return NO
    for loop, relation in order:
        distance = known.get(loop.number)
        if distance is not None and relation != ("<" if distance > 0 else ">" if distance < 0 else "="):
            return NO
    if apart(found, a, b, shared, order):
        return NO
    system = System(found, a, b, shared)
    if not system.elements():
        return Conflict("unknown", why="the places are not linear in the loops")
    unknown = False
    for variant in system.orders(order):
        result = variant.decide()
        if result.verdict == "yes":
            return result
        unknown |= result.verdict == "unknown"
    return Conflict("unknown") if unknown else NO


class System:
    """The equations and inequalities of one question."""

    def __init__(self, found: Accesses, a: Access, b: Access, shared: frozenset[int]) -> None:
        self.found = found
        self.atoms = found.values.atoms
        self.pair = (a, b)
        self.shared = shared
        self.equations: list[Row] = []
        self.inequalities: list[Row] = []
        self.differences: dict[tuple[int, int], Interval] = {}
        self.order: tuple[tuple[Loop, Relation], ...] = ()
        self.exact = True
        self.made: set[tuple[int, int]] = set()  # atoms that stand for a min, max or product, by side

    # -- rows -----------------------------------------------------------------------------------------------------

    def column(self, number: int, side: int) -> int:
        """The variable of an atom on a side."""
        where = SHARED if self.atoms[number].varies <= self.shared else side
        return 3 * number + where

    def row(self, *parts: tuple[Linear, int, int]) -> Row:
        """The sum of `factor * form` on given sides: parts are (form, side, factor)."""
        out: dict[int, int] = {}
        const = 0
        for form, side, factor in parts:
            const += factor * form.const
            for number, k in form.terms:
                column = self.column(number, side)
                total = out.get(column, 0) + factor * k
                if total:
                    out[column] = total
                else:
                    out.pop(column, None)
        return out, const

    # -- the question -----------------------------------------------------------------------------------------------

    def elements(self) -> bool:
        """Both touch one element; False when nothing can be said about the places."""
        a, b = self.pair
        if a.space.key != b.space.key:
            return self._flat()
        if a.space.key is not None and not self.found.values.varies(*a.space.extents) <= self.shared:
            return self._flat()
        return self.axes(a.spans, b.spans)

    def axes(self, left: Sequence[Span], right: Sequence[Span]) -> bool:
        for one, other in zip(left, right, strict=True):
            if one.low is None or other.low is None:
                self.exact = False
            elif one.point and other.point:
                self.equations.append(self.row((one.low, 0, 1), (other.low, 1, -1)))
            else:
                self._overlap(one, other, 0)
                self._overlap(other, one, 1)
        return True

    def _overlap(self, one: Span, other: Span, side: int) -> None:
        """`other` begins before each end of `one`, and `one` is not empty."""
        assert one.low is not None and other.low is not None
        for high in one.highs:
            self.inequalities.append(self.row((high.plus(-1), side, 1), (other.low, 1 - side, -1)))
            if (high - one.low).terms:
                self.inequalities.append(self.row((high.plus(-1), side, 1), (one.low, side, -1)))

    def _flat(self) -> bool:
        """Compare the flat positions of elements in spaces with different extents."""
        spans: list[Span] = []
        for access in self.pair:
            space = access.space
            if space.offset is None or space.strides is None:
                return False
            low, high = space.offset, space.offset
            for span, stride in zip(access.spans, space.strides, strict=True):
                if span.low is None:
                    return False
                low = low + self.found.values.product(span.low, stride)
                high = high + self.found.values.product(span.highs[0].plus(-1), stride)
            spans.append(Span(low, (high.plus(1),)))
            if not spans[-1].point:
                self.exact = False  # elements between the rows of the rectangle count, too
        return self.axes(spans[:1], spans[1:])

    # -- the order ------------------------------------------------------------------------------------------------

    def orders(self, order: Sequence[tuple[Loop, Relation]]) -> list[System]:
        """This system with the order of iterations added; a loop whose direction is not known makes two of it."""
        systems: list[System] = [self]
        for loop, relation in order:
            systems = [after for system in systems for after in system._ordered(loop, relation)]
        for system in systems:
            system.order = tuple(order)
            system._chunks()
        return systems

    def _copy(self) -> System:
        new = System(self.found, *self.pair, self.shared)
        new.equations, new.inequalities = list(self.equations), list(self.inequalities)
        new.differences, new.exact = dict(self.differences), self.exact
        return new

    def _ordered(self, loop: Loop, relation: Relation) -> list[System]:
        first, second = self.column(loop.atom, 0), self.column(loop.atom, 1)
        if first == second:
            return [self] if relation == "=" else []
        if relation == "=":
            self.equations.append(({first: 1, second: -1}, 0))
            self.differences[first, second] = (0, 0)
            return [self]
        before, after = (first, second) if relation == "<" else (second, first)
        if not loop.step.terms:
            self._apart(before, after, ONE)
            return [self]
        up = self._apart(before, after, loop.step)
        if loop.rising:
            return [self]
        down = self._copy()  # the step may be negative
        del down.inequalities[len(down.inequalities) - up :]
        down.differences.clear()
        down._apart(after, before, -loop.step)
        return [self, down]

    def _apart(self, before: int, after: int, step: Linear) -> int:
        """The index `after` is at least `step` beyond `before`, step is at least 1."""
        self.differences[before, after] = (1, None)
        rows = [({after: 1, before: -1}, -1)]
        if step != ONE:
            coefficients, const = self.row((step, 0, -1))
            coefficients[after] = coefficients.get(after, 0) + 1
            coefficients[before] = coefficients.get(before, 0) - 1
            rows = [(coefficients, const), self.row((step.plus(-1), 0, 1))]
        self.inequalities += rows
        return len(rows)

    def _chunks(self) -> None:
        """A later chunk has later iterations: the ranges of a chunk loop's in_chunk loop do not overlap."""
        relations = {loop.number: relation for loop, relation in self.order}
        for number in set(self.pair[0].stack) & set(self.pair[1].stack) - self.shared:
            loop = self.found.loops[number]
            outer = chunk_loop(self.found, loop)
            if outer is None or relations.get(outer.number) not in ("<", ">"):
                continue
            ranges = self.found.values.varies(*self.atoms[loop.atom].facts, loop.value)
            if not ranges <= self.shared | {outer.number, number}:
                continue  # the chunks of different iterations around the chunk loop are not the same
            side = 1 if relations[outer.number] == "<" else 0  # which one is later
            coefficients, const = self.row((loop.value, side, 1), (loop.value, 1 - side, -1))
            self.inequalities.append((coefficients, const - 1))
            if loop.value.terms == ((loop.atom, 1),):
                self.differences[self.column(loop.atom, 1 - side), self.column(loop.atom, side)] = (1, None)

    # -- the answer ---------------------------------------------------------------------------------------------------

    def decide(self) -> Conflict:
        ranges = self._bounded()
        if impossible(self.equations, self.inequalities, ranges, self._distances(ranges)):
            return NO
        from pto_jit.lower.dependence import exact

        try:
            solution = exact.solve(self.equations, self.inequalities)
        except exact.Effort:
            return Conflict("unknown", why="the test was given up")
        if solution is None:
            return NO
        sure = self.exact and all(self._holds(number, side, solution) for number, side in self.made)
        return Conflict("yes" if sure else "unknown", self._example(solution))

    def _holds(self, number: int, side: int, solution: dict[int, int]) -> bool:
        """Whether a solution gives an atom that is a min, max or product the value that its parts make."""
        kind, parts = self.found.values.choices[number]
        made = {"min": min, "max": max, "product": math.prod}[kind]
        return self._value(linear_atom(number), side, solution) == made(self._value(p, side, solution) for p in parts)

    def _value(self, form: Linear, side: int, solution: dict[int, int]) -> int:
        coefficients, const = self.row((form, side, 1))
        return const + sum(k * solution.get(c, 0) for c, k in coefficients.items())

    def _bounded(self) -> dict[int, Interval]:
        """Add the bounds of the loops, the conditions, and what is known of all atoms; the ranges of variables that
        constants bound."""
        todo: list[tuple[int, int]] = []
        seen: set[int] = set()
        ranges: dict[int, Interval] = {}

        def meet(number: int, side: int) -> None:
            column = self.column(number, side)
            if column not in seen:
                seen.add(column)
                todo.append((number, side))

        for coefficients, _ in (*self.equations, *self.inequalities):
            for column in coefficients:
                number, side = divmod(column, 3)
                meet(number, 0 if side == SHARED else side)
        for side, access in enumerate(self.pair):
            for number in access.stack:
                meet(self.found.loops[number].atom, side)
            for _, condition in access.conditions:
                if condition is None:
                    self.exact = False
                else:
                    for form in condition:
                        self.inequalities.append(self.row((form, side, 1)))
                        for number, _ in form.terms:
                            meet(number, side)
        while todo:
            number, side = todo.pop()
            atom = self.atoms[number]
            if not atom.free:
                kind, parts = self.found.values.choices.get(number, ("", ()))
                if kind in ("min", "max", "product"):
                    self.made.add((number, side))
                    for part in parts:
                        for other, _ in part.terms:
                            meet(other, side)
                else:
                    self.exact &= kind == "quotient"  # given by its facts
            for fact in atom.facts:
                row = self.row((fact, side, 1))
                self.inequalities.append(row)
                for other, _ in fact.terms:
                    meet(other, side)
                if len(row[0]) == 1:
                    ((column, k),) = row[0].items()
                    low, high = ranges.get(column, (None, None))
                    if k == 1:
                        low = -row[1] if low is None else max(low, -row[1])
                    elif k == -1:
                        high = row[1] if high is None else min(high, row[1])
                    ranges[column] = low, high
        return ranges

    def _distances(self, ranges: dict[int, Interval]) -> dict[tuple[int, int], Interval]:
        """The differences of indices with the extents of the loops."""
        out: dict[tuple[int, int], Interval] = {}
        for (x, y), (low, high) in self.differences.items():
            start, stop = ranges.get(x, (None, None))
            if start is not None and stop is not None and (y == x or ranges.get(y) == (start, stop)):
                high = stop - start if high is None else min(high, stop - start)
            out[x, y] = low, high
        return out

    def _example(self, solution: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        out: list[dict[int, int]] = []
        for side, access in enumerate(self.pair):
            indices: dict[int, int] = {}
            for number in access.stack:
                loop = self.found.loops[number]
                indices[number] = self._value(loop.value, side, solution)
            out.append(indices)
        return out[0], out[1]


def chunk_loop(found: Accesses, loop: Loop) -> Loop | None:
    """The chunk loop whose chunks an in_chunk loop runs over: the nearest one of the same source loop."""
    stmt = loop.stmt
    if not isinstance(stmt, For) or stmt.kind != "in_chunk":
        return None
    for number in reversed(loop.outer[:-1]):
        outer = found.loops[number]
        is_chunk = isinstance(outer.stmt, For) and outer.stmt.kind == "chunk"
        if is_chunk and outer.name == loop.name:
            return outer
    return None
