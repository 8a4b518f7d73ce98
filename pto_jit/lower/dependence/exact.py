# SPDX-License-Identifier: MIT
"""An exact test for small systems of linear equations and inequalities over the integers.

The Omega test (W. Pugh, "The Omega Test: a fast and practical integer programming algorithm for dependence analysis",
Supercomputing 1991).  Equations are removed by substitutions with determinant 1; then variables are projected away one
at a time (Fourier-Motzkin elimination with constants rounded to integers), those first for which the projection has the
same integer points.  Where it does not, the dark shadow proves a solution, the real shadow proves that there is none,
and between them the few planes next to the lower bounds are searched.  The effort is bounded: `Effort` when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

Row = tuple[dict[int, int], int]
"""Coefficients by variable, and the constant."""

LIMIT = 4000  # inequalities made before the test gives up


class Effort(Exception):
    """The system is too large to be decided with bounded effort."""


def solve(equations: Sequence[Row], inequalities: Sequence[Row]) -> dict[int, int] | None:
    """An integer solution of `row = 0` for all equations and `row >= 0` for all inequalities; None: there is none.

    Variables that no row names, or that may have any value, are left out of the solution.  Raises Effort.
    """
    return _Search(LIMIT).solve([(dict(k), c) for k, c in equations], [(dict(k), c) for k, c in inequalities])


def value(row: Row, solution: dict[int, int]) -> int:
    return row[1] + sum(k * solution.get(v, 0) for v, k in row[0].items())


class _Search:
    def __init__(self, effort: int) -> None:
        self.effort = effort
        self.fresh = 0

    def solve(self, equations: list[Row], inequalities: list[Row]) -> dict[int, int] | None:
        substitutions: list[tuple[int, Row]] = []
        while equations:
            coefficients, const = equations.pop()
            if not coefficients:
                if const:
                    return None
                continue
            divisor = gcd(*coefficients.values())
            if const % divisor:
                return None
            if divisor > 1:
                coefficients, const = {v: k // divisor for v, k in coefficients.items()}, const // divisor
            chosen = min(coefficients, key=lambda v: (abs(coefficients[v]), v))
            lead = coefficients[chosen]
            if abs(lead) == 1:
                row = {v: -k * lead for v, k in coefficients.items() if v != chosen}, -const * lead
            else:  # chosen = new - sum(quotients): the other coefficients become smaller than the leading one
                self.fresh -= 1
                quotients = {v: _nearest(k, lead) for v, k in coefficients.items() if v != chosen}
                row = {self.fresh: 1, **{v: -q for v, q in quotients.items() if q}}, -_nearest(const, lead)
                equations.append((coefficients, const))
            substitutions.append((chosen, row))
            equations = [_substituted(e, chosen, row) for e in equations]
            inequalities = [_substituted(e, chosen, row) for e in inequalities]
            self._spend(len(equations) + len(inequalities))
        solution = self.project(inequalities)
        if solution is None:
            return None
        for variable, row in reversed(substitutions):
            solution[variable] = value(row, solution)
        return solution

    def _spend(self, amount: int) -> None:
        self.effort -= amount
        if self.effort < 0:
            raise Effort

    def project(self, inequalities: list[Row]) -> dict[int, int] | None:
        """A solution of inequalities alone."""
        tight = _tightened(inequalities)
        if tight is None:
            return None
        rows, equal = tight
        if equal:
            return self.solve(equal, rows)
        loose: list[tuple[int, list[Row], list[Row]]] = []  # free on one side: rows with them can always be met
        while True:
            if rows:
                self._spend(len(rows))
            lowers: dict[int, list[Row]] = {}
            uppers: dict[int, list[Row]] = {}
            for row in rows:
                for v, k in row[0].items():
                    (lowers if k > 0 else uppers).setdefault(v, []).append(row)
            free = next((v for v in {*lowers, *uppers} if v not in lowers or v not in uppers), None)
            if free is None:
                break
            loose.append((free, lowers.get(free, []), uppers.get(free, [])))
            rows = [r for r in rows if free not in r[0]]
        rest = self._bounded(rows, lowers, uppers) if rows else {}
        if rest is not None:
            for v, below, above in reversed(loose):
                rest[v] = _pick(v, below, above, rest)
        return rest

    def _bounded(
        self, rows: list[Row], lowers: dict[int, list[Row]], uppers: dict[int, list[Row]]
    ) -> dict[int, int] | None:
        """A solution of tight inequalities that bound every variable on both sides."""
        best, cost = -1, (True, 1 << 60)
        for v, below in lowers.items():
            above = uppers[v]
            exact = all(r[0][v] == 1 for r in below) or all(r[0][v] == -1 for r in above)
            mine = (not exact, len(below) * len(above) - len(below) - len(above))
            if mine < cost:
                best, cost = v, mine
        return self._eliminate(best, lowers[best], uppers[best], rows, exact=not cost[0])

    def _eliminate(
        self, v: int, below: list[Row], above: list[Row], rows: list[Row], *, exact: bool
    ) -> dict[int, int] | None:
        others = [r for r in rows if v not in r[0]]
        shadow, dark = list(others), list(others)
        for low in below:
            for high in above:
                a, b = low[0][v], -high[0][v]
                coefficients = {w: b * k for w, k in low[0].items() if w != v}
                for w, k in high[0].items():
                    if w != v:
                        coefficients[w] = coefficients.get(w, 0) + a * k
                coefficients = {w: k for w, k in coefficients.items() if k}
                const = b * low[1] + a * high[1]
                shadow.append((coefficients, const))
                dark.append((coefficients, const - (a - 1) * (b - 1)))
        self._spend(len(below) * len(above))
        found = self.project(dark)
        if found is not None:
            found[v] = _pick(v, below, above, found)
            return found
        if exact or self.project(shadow) is None:
            return None
        largest = max(-high[0][v] for high in above)
        for low in below:
            a = low[0][v]
            for extra in range((largest * a - largest - a) // largest + 1):
                plane = dict(low[0]), low[1] - extra
                found = self.solve([plane], [(dict(k), c) for k, c in rows])
                if found is not None:
                    return found
        return None


def _nearest(k: int, lead: int) -> int:
    """The whole number nearest to k / lead, so that the remainder is at most half of lead."""
    return (2 * k + lead) // (2 * lead)


def _substituted(row: Row, variable: int, by: Row) -> Row:
    k = row[0].get(variable)
    if k is None:
        return row
    out = {v: c for v, c in row[0].items() if v != variable}
    for v, c in by[0].items():
        total = out.get(v, 0) + k * c
        if total:
            out[v] = total
        else:
            out.pop(v, None)
    return out, row[1] + k * by[1]


def _tightened(rows: list[Row]) -> tuple[list[Row], list[Row]] | None:
    """Rows without common factors, the tightest of those that are parallel, and the equations that opposite rows make.

    None when two contradict each other.
    """
    best: dict[tuple[tuple[int, int], ...], int] = {}
    for coefficients, const in rows:
        if not coefficients:
            if const < 0:
                return None
            continue
        divisor = gcd(*coefficients.values())
        if divisor > 1:
            key = tuple(sorted((v, k // divisor) for v, k in coefficients.items()))
            const = const // divisor
        else:
            key = tuple(sorted(coefficients.items()))
        known = best.get(key)
        if known is None or const < known:
            best[key] = const
    out: list[Row] = []
    equal: list[Row] = []
    for key, const in best.items():
        opposite = best.get(tuple((v, -k) for v, k in key))
        if opposite is not None:
            if const + opposite < 0:
                return None
            if const + opposite == 0:
                if key[0][1] > 0:
                    equal.append((dict(key), const))
                continue
        out.append((dict(key), const))
    return out, equal


def _pick(v: int, below: list[Row], above: list[Row], rest: dict[int, int]) -> int:
    """A value of `v` between its bounds, the others being chosen; near 0 when it is free."""
    low = [-(value((_without(r, v), r[1]), rest) // r[0][v]) for r in below]
    high = [value((_without(r, v), r[1]), rest) // -r[0][v] for r in above]
    if low:
        return max(low) if not high else min(max(low), min(high))
    return min([0, *high])


def _without(row: Row, v: int) -> dict[int, int]:
    return {w: k for w, k in row[0].items() if w != v}
