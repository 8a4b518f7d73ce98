# SPDX-License-Identifier: MIT
"""A picture of a run: for every row how long the peers take compared with pto."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from pto_jit.bench.peers import PEERS, PTO
from pto_jit.bench.record import Record, Row
from pto_jit.bench.report import row_title
from pto_jit.bench.summary import Ratio, paired_ratio

MISSING = "--plot needs matplotlib: install pto_jit[viz]"


class PlotError(Exception):
    """A plot that cannot be drawn; the message says why."""


def require_matplotlib() -> None:
    """Raise `PlotError` early, before a long run, where there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotError(MISSING)


def ratios(record: Record) -> list[tuple[str, dict[str, Ratio]]]:
    """For every row with a timed pto kernel: its title and, by peer, peer time over that of the fastest pto variant."""
    found: list[tuple[str, dict[str, Ratio]]] = []
    for row in record.rows:
        entries = _row_ratios(row)
        if entries:
            found.append((row_title(row), entries))
    return found


def _row_ratios(row: Row) -> dict[str, Ratio]:
    pto = [result for result in row.ok() if result.peer == PTO.name and result.threads == row.threads]
    if not pto:
        return {}
    best = min(pto, key=lambda result: result.median)
    return {
        result.label: paired_ratio(result.seconds, best.seconds)
        for result in row.ok()
        if result.peer != PTO.name and result.threads == row.threads
    }


def draw(record: Record, path: Path) -> None:
    """Write the picture in the format that the file's name ends with.

    Raises:
        PlotError: no matplotlib, nothing to draw, or a file that cannot be written.
    """
    require_matplotlib()
    rows = ratios(record)
    if not rows:
        raise PlotError("nothing to plot: no row has both a pto kernel and a peer")
    # Imported by name: type checkers need not have the optional library.
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.35 * len(rows)), layout="constrained")
    colours = {name: f"C{index}" for index, name in enumerate(PEERS)}
    shown: set[str] = set()
    for place, (_, entries) in enumerate(rows):
        for label, ratio in entries.items():
            peer = label.split(" ")[0]
            errors = [[ratio.value - ratio.low], [ratio.high - ratio.value]]
            axes.errorbar(
                ratio.value, place, xerr=errors, fmt="o", color=colours.get(peer, "grey"), markersize=5,
                label=peer if peer not in shown else None,
            )  # fmt: skip
            shown.add(peer)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [title for title, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    # Between powers of ten 2 and 5 are enough: more labels run into each other.
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axes.set_xlabel("peer time / pto time (right of the line, pto is faster)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise PlotError(f"{path}: {error}") from error
    finally:
        pyplot.close(figure)
