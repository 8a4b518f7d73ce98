# SPDX-License-Identifier: MIT
"""Two runs side by side.

Times of different runs also differ because the machine does: what peers, which did not change between the runs, show
in the same row is taken as the machine's part.
"""

from __future__ import annotations

from dataclasses import dataclass

from pto_jit.bench.peers import PTO
from pto_jit.bench.record import Record, Result, Row
from pto_jit.bench.summary import Ratio, median, unpaired_ratio
from pto_jit.bench.workload import size_text


@dataclass(frozen=True, slots=True)
class Comparison:
    """One implementation in one row of both runs; ratios are first over second, so above 1 the second is faster.

    `anchor` is the median of the ratios, and of their bounds, of the peers that both runs timed in the row,
    the compared one left out.
    """

    row: str
    label: str
    threads: int
    first: float
    second: float
    ratio: Ratio
    anchor: Ratio | None

    @property
    def beyond(self) -> Ratio:
        """The ratio without what the peers show; the plain ratio where there are none."""
        if self.anchor is None:
            return self.ratio
        ratio, anchor = self.ratio, self.anchor
        return Ratio(ratio.value / anchor.value, ratio.low / anchor.high, ratio.high / anchor.low)

    @property
    def verdict(self) -> str:
        """`"faster"` or `"slower"` when the bounds of `beyond` leave 1 out, else `"within noise"`.

        `"as the peers"` is the noise of a time that did move, but no further than theirs.
        """
        if self.beyond.decided:
            return "faster" if self.beyond.value > 1.0 else "slower"
        return "as the peers" if self.ratio.decided else "within noise"


def compare(first: Record, second: Record) -> tuple[list[Comparison], list[str]]:
    """Everything timed in both runs, and a line for everything in only one of them."""
    compared: list[Comparison] = []
    unmatched: list[str] = []
    rows = {row.key: row for row in second.rows}
    for row in first.rows:
        other = rows.pop(row.key, None)
        if other is None:
            unmatched.append(f"{_row_text(row)}: only in the first")
            continue
        compared += _compare_rows(row, other, unmatched)
    unmatched += [f"{_row_text(row)}: only in the second" for row in rows.values()]
    return compared, unmatched


def _compare_rows(row: Row, other: Row, unmatched: list[str]) -> list[Comparison]:
    ours = {_identity(result): result for result in row.ok()}
    theirs = {_identity(result): result for result in other.ok()}
    both = [key for key in ours if key in theirs]
    ratios = {key: unpaired_ratio(ours[key].seconds, theirs[key].seconds) for key in both}
    for key in [*ours, *(key for key in theirs if key not in ours)]:
        if key not in ratios:
            unmatched.append(f"{_row_text(row)}, {' '.join(map(str, key))}: timed in only one")
    found: list[Comparison] = []
    for key in both:
        anchors = [ratios[peer] for peer in both if peer[0] not in (PTO.name, key[0]) and peer[2] == key[2]]
        one, two = ours[key], theirs[key]
        anchor = _middle(anchors) if anchors else None
        found.append(Comparison(_row_text(row), one.label, one.threads, one.median, two.median, ratios[key], anchor))
    return found


def _middle(ratios: list[Ratio]) -> Ratio:
    return Ratio(*(median([getattr(one, name) for one in ratios]) for name in ("value", "low", "high")))


def _identity(result: Result) -> tuple[str, str, int]:
    return result.peer, result.variant, result.threads


def _row_text(row: Row) -> str:
    return f"{row.workload} {size_text(row.size)}, {row.threads}t"
