# SPDX-License-Identifier: MIT
"""Where the tasks of a graph stand in a drawing: levels from left to right, neighbours near each other.

Columns are levels.  Inside of a column, tasks are ordered by the mean place of their neighbours in the columns before
and after it, in sweeps to the right and back, and put as near to that as the distance between rows allows (K. Sugiyama
et al., "Methods for Visual Understanding of Hierarchical System Structures", 1981, without nodes for long edges; the
least squares under that distance by pooling neighbours, as in isotonic regression).  The time is that of the edges
times the sweeps, so that graphs of some thousand tasks are drawn in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

SWEEPS = 12


def rows_of(levels: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[float]:
    """The row of each task, from 0; at least 1 apart inside of a level.

    levels: of each task; edges: pairs of tasks, the first of a lower level.
    """
    columns: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for task, level in enumerate(levels):
        columns[level].append(task)
    before: list[list[int]] = [[] for _ in levels]
    after: list[list[int]] = [[] for _ in levels]
    for source, target in edges:
        before[target].append(source)
        after[source].append(target)
    rows = [0.0] * len(levels)
    for column in columns:
        for place, task in enumerate(column):
            rows[task] = place - (len(column) - 1) / 2

    def sweep(order: Sequence[list[int]], towards: Sequence[list[list[int]]]) -> None:
        for column in order:
            wanted = {task: _mean(task, rows, levels, towards) for task in column}
            column.sort(key=lambda task: (wanted[task], rows[task], task))
            for task, row in zip(column, spread([wanted[task] for task in column]), strict=True):
                rows[task] = row

    for _ in range(SWEEPS // 2):
        sweep(columns, [before])
        sweep(columns[::-1], [after])
    sweep(columns, [before, after])
    top = min(rows, default=0.0)
    return [row - top for row in rows]


def _mean(task: int, rows: Sequence[float], levels: Sequence[int], towards: Sequence[list[list[int]]]) -> float:
    """The mean row of a task's neighbours, near levels counting more; its own row when it has none."""
    total = weight = 0.0
    for neighbours in towards:
        for other in neighbours[task]:
            near = 1.0 / abs(levels[task] - levels[other])
            total += near * rows[other]
            weight += near
    return total / weight if weight else rows[task]


def spread(wanted: Sequence[float]) -> list[float]:
    """Ascending places nearest to `wanted` (ascending) in the sense of least squares, at least 1 apart."""
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
