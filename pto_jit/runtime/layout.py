# SPDX-License-Identifier: MIT
"""Where the tasks of a graph stand in a drawing: levels from left to right, neighbours near each other.

Columns are levels.  Inside of a column, tasks are ordered by the mean place of their neighbours in the columns before
and after it, in sweeps to the right and back, and put as near to that as the distance between rows allows (K. Sugiyama
et al., "Methods for Visual Understanding of Hierarchical System Structures", 1981, without nodes for long edges; the
least squares under that distance by pooling neighbours, as in isotonic regression).  Then neighbours in a column
change places where fewer arrows between columns side by side cross each other (E. Gansner et al., "A Technique for
Drawing Directed Graphs", 1993).  How much long arrows should pull differs from graph to graph: of several strengths the
one with the shortest arrows is taken.  The time is that of the edges times the sweeps, so that graphs of some thousand
tasks are drawn in seconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

SWEEPS = 12
EXCHANGES = 20
"""Passes of exchanges at most; they end when a pass changes nothing."""
PULLS = (1, 2, 3)
"""Powers of the distance between levels that the pull of an arrow is divided by."""
LARGE = 4000
"""From this many tasks on only the last of them is tried."""


def rows_of(levels: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[float]:
    """The row of each task, from 0; at least 1 apart inside of a level.

    levels: of each task; edges: pairs of tasks, the first of a lower level.
    """
    if not levels:
        return []
    tried = [_Placing(levels, edges, pull) for pull in (PULLS if len(levels) < LARGE else PULLS[-1:])]
    best = min(tried, key=_Placing.length)
    top = min(best.rows)
    return [row - top for row in best.rows]


class _Placing:
    """The rows of a graph, made when it is created; the pull of an arrow over d levels is 1 / d ** pull."""

    def __init__(self, levels: Sequence[int], edges: Sequence[tuple[int, int]], pull: int) -> None:
        self.levels, self.edges = levels, edges
        self.columns: list[list[int]] = [[] for _ in range(max(levels) + 1)]
        for task, level in enumerate(levels):
            self.columns[level].append(task)
        self.before: list[list[tuple[int, float]]] = [[] for _ in levels]
        self.after: list[list[tuple[int, float]]] = [[] for _ in levels]
        for source, target in edges:
            weight = 1.0 / (levels[target] - levels[source]) ** pull
            self.before[target].append((source, weight))
            self.after[source].append((target, weight))
        self.rows = [0.0] * len(levels)
        for column in self.columns:
            for place, task in enumerate(column):
                self.rows[task] = place - (len(column) - 1) / 2
        both = (self.before, self.after)
        for _ in range(SWEEPS // 2):
            self._sweep(self.columns, self.before)
            self._sweep(self.columns[::-1], self.after)
        self._sweep(self.columns, *both)
        self._exchange()
        for _ in range(2):
            self._sweep(self.columns, *both, order=False)
            self._sweep(self.columns[::-1], *both, order=False)

    def length(self) -> float:
        """Rows that the arrows between columns side by side go up or down."""
        rows, levels = self.rows, self.levels
        return sum(abs(rows[a] - rows[b]) for a, b in self.edges if levels[b] - levels[a] == 1)

    def _sweep(self, columns: Sequence[list[int]], *towards: list[list[tuple[int, float]]], order: bool = True) -> None:
        """Put each column near its neighbours; `order`: also in their order."""
        rows = self.rows
        for column in columns:
            wanted = {task: self._mean(task, towards) for task in column}
            if order:
                column.sort(key=lambda task: (wanted[task], rows[task], task))
            for task, row in zip(column, spread([wanted[task] for task in column]), strict=True):
                rows[task] = row

    def _mean(self, task: int, towards: Sequence[list[list[tuple[int, float]]]]) -> float:
        """The mean row of a task's neighbours by their pull; its own row when it has none."""
        total = pull = 0.0
        for neighbours in towards:
            for other, weight in neighbours[task]:
                total += weight * self.rows[other]
                pull += weight
        return total / pull if pull else self.rows[task]

    def _exchange(self) -> None:
        """Exchange neighbours in columns as long as that takes crossings away."""
        rows, levels = self.rows, self.levels
        sides = [[[o for o, _ in all_[task] if abs(levels[task] - levels[o]) == 1] for task in range(len(levels))]
                 for all_ in (self.before, self.after)]  # fmt: skip

        def gain(upper: int, lower: int) -> int:
            """Crossings of their arrows that an exchange takes away."""
            total = 0
            for side in sides:
                if side[upper] and side[lower]:
                    ends = sorted(rows[o] for o in side[lower])
                    for o in side[upper]:
                        total += bisect_left(ends, rows[o]) - (len(ends) - bisect_right(ends, rows[o]))
            return total

        for _ in range(EXCHANGES):
            changed = False
            for column in self.columns:
                for k in range(len(column) - 1):
                    upper, lower = column[k], column[k + 1]
                    if gain(upper, lower) > 0:
                        column[k], column[k + 1] = lower, upper
                        rows[upper], rows[lower] = rows[lower], rows[upper]
                        changed = True
            if not changed:
                return


def spread(wanted: Sequence[float]) -> list[float]:
    """Places at least 1 apart, in the order of `wanted` and nearest to it in the sense of least squares."""
    blocks: list[tuple[float, int]] = []  # (mean of wanted - index, how many)
    for index, place in enumerate(wanted):
        mean, count = place - index, 1
        while blocks and blocks[-1][0] > mean:
            earlier, many = blocks.pop()
            mean = (mean * count + earlier * many) / (count + many)
            count += many
        blocks.append((mean, count))
    out: list[float] = []
    for mean, count in blocks:
        out += [mean + len(out) + k for k in range(count)]
    return out
