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
    """Building the recorded graph, for each length: the first number of threads that was measured.

    The same calls twice: by the compiled orchestration function, and written in C.
    """
    table = Table(title="LLaMA-7B layer: building the task graph (all three hazards)", title_justify="left")
    for name in ("sequence", "tiles", "tasks", "written as", "edges", "build", "tasks/ms", "best", "memory",
                 "per task"):  # fmt: skip
        table.add_column(name, justify="right")
    first = report.rows[0].threads if report.rows else 0
    for row in report.rows:
        if row.threads != first:
            continue
        facts, rounds = row.facts, row.timings[PTO].rounds
        named = [("C", facts.edges, facts.bytes, rounds["build"])]
        if facts.compiled_edges is not None and facts.compiled_bytes is not None:
            named.insert(0, ("@pto.jit", facts.compiled_edges, facts.compiled_bytes, rounds["compiled"]))
        for place, (name, edges, memory, build) in enumerate(named):
            common = (f"{facts.tiles * ROWS_PER_TILE:,}", str(facts.tiles), f"{facts.tasks:,}")
            table.add_row(
                *(common if place == 0 else ("", "", "")), name, f"{edges:,}", f"{median(build):.3f} ms",
                _rate(facts.tasks, build), _best(facts.tasks, build), f"{memory / 1e6:.2f} MB",
                f"{memory / facts.tasks:.0f} B",
            )  # fmt: skip
    out.print(table)


def print_layers(out: Console, report: TaskReport) -> None:
    """What building the graph is of the time of the layer with its arithmetic."""
    if not report.layers or report.sizes is None:
        return
    hidden, inner, heads = report.sizes
    count = report.layers[0].threads
    title = f"the layer, {_threads(count)}: hidden {hidden}, {heads} heads, inner {inner}, f32"
    table = Table(title=Text(title, no_wrap=True), title_justify="left")
    for name in ("sequence", "tasks", "building the graph", "the run", "share of the run"):
        table.add_column(name, justify="right")
    for row in report.layers:
        table.add_row(
            f"{row.tiles * ROWS_PER_TILE:,}", f"{16 * row.tiles + 3 * row.tiles**2:,}", f"{row.build:.3f} ms",
            f"{row.run:,.1f} ms", f"{100 * row.build / row.run:.2g} %",
        )  # fmt: skip
    out.print(table)


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


def print_row(out: Console, row: TaskRow) -> None:
    """One graph on one number of threads: everybody's rates in tasks per millisecond, empty bodies."""
    titles = {PTO: "pto", **{driver.name: driver.title for driver in DRIVERS}}
    separate = {PTO: True, **{driver.name: driver.separate_build for driver in DRIVERS}}
    title = f"{row.facts.tasks:,} empty tasks, {row.facts.edges:,} edges, {_threads(row.threads)}"
    table = Table(title=title, title_justify="left")
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
