# SPDX-License-Identifier: MIT
"""Proof that two iterations of a loop touch one element, whatever the arguments are.

An argument can make almost any program right by making its loops empty, so the proof supposes as little as it must: the
loop has at least two iterations, the loops inside it run where their bounds do not depend on it, and an access is not
entirely outside its tensor.  Under these the conflict has to exist for all arguments: of a loop with run-time bounds
the first two iterations are looked at (of one with constant bounds, all), of the loops inside the first iteration (or
all), and every argument has to drop out of the equations.  Accesses under conditions count where the conditions are
linear and hold; different arguments are taken not to share memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from pto_jit.lower.dependence import exact
from pto_jit.lower.dependence.accesses import Access, Accesses, Loop, Span
from pto_jit.lower.dependence.linear import ZERO, Linear
from pto_jit.slotted import frozen

Row = tuple[dict[int, int], int]


@frozen
class Violation:
    """Two accesses of different iterations of a loop to one element, at least one of them a write.

    `first` and `second` are the loop's indices in the example, as the user would write them.
    """

    loop: Loop
    a: Access
    b: Access
    first: str
    second: str


def violation(found: Accesses, loop: Loop, a: Access, b: Access) -> Violation | None:
    """The proof for two accesses inside `loop`, or None when there is none."""
    if not _provable(loop, a, b):
        return None
    proof = _Proof(found, loop, a, b)
    return proof.attempt()


def _provable(loop: Loop, a: Access, b: Access) -> bool:
    if a.root != b.root or a.root.kind == "unknown" or a.space.key != b.space.key or not (a.certain and b.certain):
        return False
    if loop.number in a.root.loops:
        return False
    depth = len(loop.outer)
    return not any(form is None for access in (a, b) for d, form in access.conditions if d >= depth)


class _Proof:
    """What varies with the loops around (`shared`) alone is the same on both sides.

    An argument is *universal*: the proof holds for all of its values.  So is the index of a loop around, unless the
    bounds of that loop are constants (`open`): then the iteration may be chosen.
    """

    def __init__(self, found: Accesses, loop: Loop, a: Access, b: Access) -> None:
        self.found, self.loop, self.pair = found, loop, (a, b)
        self.atoms = found.values.atoms
        self.shared = frozenset(loop.outer[:-1])
        self.open: frozenset[int] = frozenset()
        if not any(depth < len(loop.outer) for depth, _ in (*a.conditions, *b.conditions)):
            for number in loop.outer[:-1]:
                if not self._known(found.loops[number]):
                    break
                self.open |= {number}
        self.replaced: dict[int, Linear] = {}  # columns of loop variables that are fixed, as forms of one side
        self.equations: list[Row] = []
        self.inequalities: list[Row] = []

    def attempt(self) -> Violation | None:
        a, b = self.pair
        if not self.found.values.varies(*a.space.extents) <= self.shared:
            return None
        for swapped in (False, True):
            self.replaced, self.equations, self.inequalities = {}, [], []
            if not self._iterations(swapped) or not self._inner_loops():
                return None
            self._conditions()
            fixed = self.equations, self.inequalities
            for equations, inequalities in self._meeting():
                self.equations, self.inequalities = [*fixed[0], *equations], [*fixed[1], *inequalities]
                solution = self._solved()
                if solution is not None:
                    return Violation(self.loop, a, b, self._index(0, solution), self._index(1, solution))
            self.equations, self.inequalities = fixed
            if a is b:
                break
        return None

    # -- rows -----------------------------------------------------------------------------------------------------

    def universal(self, number: int) -> bool:
        varies = self.atoms[number].varies
        return not varies or (varies <= self.shared and not varies <= self.open)

    def column(self, number: int, side: int) -> int:
        return 3 * number + (2 if self.atoms[number].varies <= self.shared else side)

    def row(self, *parts: tuple[Linear, int, int]) -> Row:
        """The sum of `factor * form` of given sides, with what is fixed put in."""
        out: dict[int, int] = {}
        const = 0
        todo = list(parts)
        while todo:
            form, side, factor = todo.pop()
            const += factor * form.const
            for number, k in form.terms:
                column = self.column(number, side)
                fixed = self.replaced.get(column)
                if fixed is not None:
                    todo.append((fixed, side, factor * k))
                    continue
                total = out.get(column, 0) + factor * k
                if total:
                    out[column] = total
                else:
                    out.pop(column, None)
        return out, const

    # -- iterations -----------------------------------------------------------------------------------------------

    def _known(self, loop: Loop) -> bool:
        """Whether nothing universal takes part in a loop's bounds: any of its iterations may be chosen."""
        facts = self.atoms[loop.atom].facts
        mine = {loop.atom}
        return bool(facts) and not loop.step.terms and not any(
            n not in mine and self.universal(n) for fact in facts for n, _ in fact.terms
        )  # fmt: skip

    @staticmethod
    def _first(loop: Loop) -> Linear | None:
        """The value of a loop's atom in its first iteration."""
        return loop.start if loop.start is None or not loop.counted else ZERO

    def _iterations(self, swapped: bool) -> bool:
        """Two different iterations of the loop."""
        for number in self.open:
            self.inequalities += [self.row((f, 0, 1)) for f in self.atoms[self.found.loops[number].atom].facts]
        loop = self.loop
        first, second = self.column(loop.atom, 0), self.column(loop.atom, 1)
        if swapped:
            first, second = second, first
        if self._known(loop):
            self.inequalities.append(({second: 1, first: -1}, -1))
            for fact in self.atoms[loop.atom].facts:
                self.inequalities += [self.row((fact, 0, 1)), self.row((fact, 1, 1))]
            return True
        start = self._first(loop)
        if start is None:
            return False
        self.replaced[first] = start
        self.replaced[second] = start.plus(1) if loop.counted else start + loop.step
        if self._never(loop, 0) or self._never(loop, 1):
            return False
        return all(self.universal(n) for n, _ in (*start.terms, *loop.step.terms))

    def _inner_loops(self) -> bool:
        """One iteration of every loop inside: any where the bounds are constants, else the first."""
        depth = len(self.loop.outer)
        for side, access in enumerate(self.pair):
            for number in access.stack[depth:]:
                loop = self.found.loops[number]
                facts = self.atoms[loop.atom].facts
                if self._known(loop):
                    self.inequalities += [self.row((fact, side, 1)) for fact in facts]
                    continue
                start = self._first(loop)
                if start is None:
                    return False
                self.replaced[self.column(loop.atom, side)] = start
                if self._never(loop, side):
                    return False
                runs = self.found.values.varies(*facts, loop.value) - {loop.number} <= self.shared
                if not runs:
                    self.inequalities += [self.row((fact, side, 1)) for fact in facts]
        return True

    def _never(self, loop: Loop, side: int) -> bool:
        """Whether the fixed iteration is certainly outside the loop's bounds."""
        rows = [self.row((fact, side, 1)) for fact in self.atoms[loop.atom].facts]
        return any(not coefficients and const < 0 for coefficients, const in rows)

    def _conditions(self) -> None:
        depth = len(self.loop.outer)
        for side, access in enumerate(self.pair):
            for d, condition in access.conditions:
                if d >= depth:
                    self.inequalities += [self.row((form, side, 1)) for form in condition or ()]

    # -- elements -------------------------------------------------------------------------------------------------

    def _meeting(self) -> Iterator[tuple[list[Row], list[Row]]]:
        """Ways in which the rectangles can have an element in common: along each axis the first position of one of the
        two lies in the other."""
        choices: list[list[tuple[list[Row], list[Row]]]] = []
        a, b = self.pair
        for one, other, extent in zip(a.spans, b.spans, a.space.extents, strict=True):
            if one.low is None or other.low is None:
                return
            equal = self.row((other.low, 1, 1), (one.low, 0, -1))
            if (one.point and other.point) or equal == ({}, 0):
                choices.append([([equal], [])])
                continue
            ways: list[tuple[list[Row], list[Row]]] = [([equal], [])]
            for first, second, side in ((one, other, 0), (other, one, 1)):
                # Else only the first element is sure to be there.  A tile loaded from beside has what is stored first
                # in the other iteration, as that loads it too.
                if self.pair[side].whole or (a is b and a.aligned):
                    ways.append(([], self._within(first, second, side, extent)))
            choices.append(ways)
        if sum(len(c) > 1 for c in choices) > 4:
            return
        for chosen in product(*choices):
            yield [r for e, _ in chosen for r in e], [r for _, i in chosen for r in i]

    def _within(self, one: Span, other: Span, side: int, extent: Linear) -> list[Row]:
        """The first position of `other`, which is inside the tensor, lies in `one`, which is of `side`."""
        assert one.low is not None and other.low is not None
        rows = [self.row((other.low, 1 - side, 1), (one.low, side, -1))]
        rows += [self.row((high.plus(-1), side, 1), (other.low, 1 - side, -1)) for high in one.highs if high != extent]
        return rows

    # -- the answer -----------------------------------------------------------------------------------------------

    def _solved(self) -> dict[int, int] | None:
        """A solution for all arguments: none of them may be left in the rows."""
        rows = [*self.equations, *self.inequalities]
        inequalities = list(self.inequalities)
        seen: set[int] = set()
        todo = [column for coefficients, _ in rows for column in coefficients]
        loops = {self.found.loops[n].atom for access in self.pair for n in access.stack}
        while todo:
            column = todo.pop()
            if column in seen:
                continue
            seen.add(column)
            number, side = divmod(column, 3)
            if self.universal(number) or not self.atoms[number].free:
                return None
            if number in loops:
                continue
            for fact in self.atoms[number].facts:  # a quotient is given by its facts
                row = self.row((fact, side, 1))
                inequalities.append(row)
                todo += row[0]
        try:
            solution = exact.solve(self.equations, inequalities)
            if solution is None or exact.solve(self.equations, [*inequalities, *self._supposed()]) is None:
                return None
        except exact.Effort:
            return None
        return solution

    def _supposed(self) -> list[Row]:
        """What the proof supposes of the arguments: all loops run. It has to be possible."""
        out: list[Row] = []
        for side, access in enumerate(self.pair):
            for number in access.stack:
                facts = self.atoms[self.found.loops[number].atom].facts
                out += [self.row((fact, side, 1)) for fact in facts]
        return out

    def _index(self, side: int, solution: dict[int, int]) -> str:
        coefficients, const = self.row((self.loop.value, side, 1))
        numbers: dict[int, int] = {}
        for column, k in coefficients.items():
            if self.universal(column // 3):
                numbers[column // 3] = numbers.get(column // 3, 0) + k
            else:
                const += k * solution.get(column, 0)
        return self.found.values.text(Linear(const, tuple(sorted(numbers.items()))))
