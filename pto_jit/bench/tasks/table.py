# SPDX-License-Identifier: MIT
"""The tables of `pto-bench tasks`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pto_jit.bench.report import FOREIGN_LIMIT, ratio_text
from pto_jit.bench.summary import median, paired_ratio
from pto_jit.bench.tasks.drivers import DRIVERS
from pto_jit.bench.tasks.measure import PTO, TaskReport, TaskRow

ROWS_PER_TILE = 32


def _rate(tasks: int, milliseconds: list[float]) -> str:
    return f"{tasks / median(milliseconds):,.0f}"


def _best(tasks: int, milliseconds: list[float]) -> str:
    return f"{tasks / min(milliseconds):,.0f}"


def print_build(out: Console, report: TaskReport) -> None:
    """Building the recorded graph, for each length: the first number of threads that was measured."""
    table = Table(title="LLaMA-7B layer: building the task graph (all three hazards)", title_justify="left")
    for name in ("sequence", "tiles", "tasks", "edges", "build", "tasks/ms", "best", "memory", "per task", "path"):
        table.add_column(name, justify="right")
    first = report.rows[0].threads if report.rows else 0
    for row in report.rows:
        if row.threads != first:
            continue
        facts, build = row.facts, row.timings[PTO].rounds["build"]
        table.add_row(
            f"{facts.tiles * ROWS_PER_TILE:,}", str(facts.tiles), f"{facts.tasks:,}", f"{facts.edges:,}",
            f"{median(build):.3f} ms", _rate(facts.tasks, build), _best(facts.tasks, build),
            f"{facts.bytes / 1e6:.2f} MB", f"{facts.bytes / facts.tasks:.0f} B", str(facts.critical_path),
        )  # fmt: skip
    out.print(table)


def print_row(out: Console, row: TaskRow) -> None:
    """One graph on one number of threads: everybody's rates in tasks per millisecond, empty bodies."""
    titles = {PTO: "pto", **{driver.name: driver.title for driver in DRIVERS}}
    separate = {PTO: True, **{driver.name: driver.separate_build for driver in DRIVERS}}
    count = f"{row.threads} thread{'' if row.threads == 1 else 's'}"
    table = Table(title=f"{row.facts.tasks:,} empty tasks, {row.facts.edges:,} edges, {count}", title_justify="left")
    table.add_column("tasks/ms")
    for name in ("build", "run", "run again", "build + run", "run / pto", "build + run / pto"):
        table.add_column(name, justify="right")
    ours = row.timings[PTO].rounds
    our_total = [build + run for build, run in zip(ours["build"], ours["run"], strict=True)]
    for name, timings in row.timings.items():
        times = timings.rounds
        total = [build + run for build, run in zip(times["build"], times["run"], strict=True)]
        alone = separate[name]
        table.add_row(
            titles[name],
            _rate(row.facts.tasks, times["build"]) if alone else "-",
            _rate(row.facts.tasks, times["run"]) if alone else "-",
            _rate(row.facts.tasks, times["rerun"]) if alone else "-",
            _rate(row.facts.tasks, total),
            ratio_text(paired_ratio(times["run"], ours["run"])) if alone and name != PTO else "",
            ratio_text(paired_ratio(total, our_total)) if name != PTO else "",
        )
    live = ours["live"]
    table.add_row("pto, built while it runs", "", "", "", _rate(row.facts.tasks, live), "",
                  ratio_text(paired_ratio(live, our_total)))  # fmt: skip
    out.print(table)
    if row.foreign_cores is not None and row.foreign_cores > FOREIGN_LIMIT:
        out.print(Text(f"  warning: other processes used {row.foreign_cores:.1f} cores meanwhile", style="yellow"))


def print_missing(out: Console, report: TaskReport) -> None:
    for name, reason in report.missing.items():
        out.print(Text(f"  {name}: left out, {reason}", style="dim"))
