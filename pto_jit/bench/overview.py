# SPDX-License-Identifier: MIT
"""Kept runs at a glance: a line per workload and size with the best peer and how far behind the pto kernel it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pto_jit.bench.peers import PTO
from pto_jit.bench.record import Record, Result, Row
from pto_jit.bench.report import FOREIGN_LIMIT, ratio_text
from pto_jit.bench.summary import Ratio, paired_ratio
from pto_jit.bench.workload import size_text


@dataclass(frozen=True, slots=True)
class Standing:
    """The fastest peer of a row, its time over that of the fastest pto kernel, and whether others used the machine."""

    peer: str
    ratio: Ratio
    disturbed: bool

    def __str__(self) -> str:
        return f"{ratio_text(self.ratio)}{' !' if self.disturbed else ''} ({self.peer})"


@dataclass(frozen=True, slots=True)
class Line:
    """A workload at a size, and its standings by number of threads."""

    name: str
    standings: dict[int, Standing]


def overview(records: Sequence[Record]) -> list[Line]:
    """A line per workload and size that somebody else was timed on too, in the order of the files.

    Where several files have the same row, the last one counts.
    """
    lines: dict[str, dict[int, Standing]] = {}
    for record in records:
        for row in record.rows:
            found = _standing(row)
            if found is not None:
                lines.setdefault(f"{row.workload} {size_text(row.size)} {row.dtype}", {})[row.threads] = found
    return [Line(name, standings) for name, standings in lines.items()]


def markdown(lines: Sequence[Line]) -> str:
    """The lines as a table in Markdown."""
    counts = sorted({count for line in lines for count in line.standings})
    heads = ["", *(f"{count} thread{'' if count == 1 else 's'}" for count in counts)]
    rows = [[line.name, *(str(line.standings.get(count, "")) for count in counts)] for line in lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, ["---"] * len(heads), *rows]) + "\n"


def _standing(row: Row) -> Standing | None:
    timed = [result for result in row.ok() if result.threads == row.threads]
    ours = [result for result in timed if result.peer == PTO.name]
    others = [result for result in timed if result.peer != PTO.name]
    if not ours or not others:
        return None

    def median(result: Result) -> float:
        return result.median

    best = min(others, key=median)
    disturbed = row.foreign_cores is not None and row.foreign_cores > FOREIGN_LIMIT
    return Standing(best.label, paired_ratio(best.seconds, min(ours, key=median).seconds), disturbed)
