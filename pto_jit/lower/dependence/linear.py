# SPDX-License-Identifier: MIT
"""Linear forms over the unknowns of a program: what subscripts, bounds and conditions are written in."""

from __future__ import annotations

from pto_jit.slotted import frozen

Terms = tuple[tuple[int, int], ...]


@frozen
class Linear:
    """`const + sum(coefficient * atom)`; atoms are numbers that `values.Values` gives out, in increasing order."""

    const: int
    terms: Terms = ()

    def __add__(self, other: Linear) -> Linear:
        if not other.terms:
            return Linear(self.const + other.const, self.terms) if other.const else self
        if not self.terms:
            return Linear(self.const + other.const, other.terms)
        out = dict(self.terms)
        for atom, k in other.terms:
            out[atom] = out.get(atom, 0) + k
        return Linear(self.const + other.const, tuple(sorted((a, k) for a, k in out.items() if k)))

    def __neg__(self) -> Linear:
        return self.times(-1)

    def __sub__(self, other: Linear) -> Linear:
        if self.terms == other.terms:
            return Linear(self.const - other.const)
        return self + other.times(-1)

    def plus(self, number: int) -> Linear:
        return Linear(self.const + number, self.terms) if number else self

    def times(self, number: int) -> Linear:
        if number == 0:
            return ZERO
        return Linear(self.const * number, tuple([(a, k * number) for a, k in self.terms]))


ZERO = Linear(0)
ONE = Linear(1)


def atom(number: int) -> Linear:
    return Linear(0, ((number, 1),))
