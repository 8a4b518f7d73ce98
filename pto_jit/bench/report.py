# SPDX-License-Identifier: MIT
"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from pto_jit.bench.compare import Comparison
from pto_jit.bench.peers import PEERS, PTO
from pto_jit.bench.record import FirstCall, Reading, Record, Result, Row
from pto_jit.bench.summary import Ratio, paired_ratio
from pto_jit.bench.workload import Workload, size_text

FOREIGN_LIMIT = 0.1
_FAILURES = {"wrong": "WRONG RESULT, not timed", "timeout": "no answer", "died": "died", "error": "failed"}


def console(*, stderr: bool = False) -> Console:
    """A console whose tables are whole and plain where the output is not a terminal."""
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, width=140, no_color=True)
    return made


def time_text(seconds: float) -> str:
    """A duration with three significant digits and a fitting unit."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{_three(seconds / scale)} {unit}"
    return f"{_three(seconds * 1e9)} ns"


def ratio_text(ratio: Ratio) -> str:
    """A ratio, with a mark where the noise does not let it differ from 1."""
    return f"{_factor(ratio.value)}{'' if ratio.decided else ' ~'}"


def row_title(row: Row) -> str:
    """`softmax 512x512 f32, 1 thread`."""
    counts = sorted({result.threads for result in row.results} | {row.threads})
    return f"{row.workload} {size_text(row.size)} {row.dtype}, {' and '.join(map(_threads, counts))}"


def print_row(out: Console, row: Row) -> None:
    """One row: everybody who took part, the pto kernels first, then why others did not."""
    pto = [result for result in row.ok() if result.peer == PTO.name]
    mixed = len({result.threads for result in row.results}) > 1
    table = Table(title=row_title(row), title_justify="left", title_style="bold")
    # The names alone may wrap: in a narrow terminal figures would lose digits.
    table.add_column("", min_width=9)
    headings = ["time", "spread"]
    headings += [row.unit] if row.unit != "call" else []
    headings += ["of\nlimit"] if row.limit_seconds else []
    headings += [f"time /\n{_name(result, mixed)}" for result in pto]
    for heading in (*headings, "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in row.ok():
        table.add_row(*_cells(row, result, pto, mixed), style="bold" if result.peer == PTO.name else None)
    if row.ok():
        out.print(table)
    else:
        out.print(Text(f"{row_title(row)}: nothing timed", style="bold"))
    for line in _notes(row, mixed):
        out.print(line)
    out.print()


def _notes(row: Row, mixed: bool) -> list[Text]:
    lines: list[Text] = []
    notes: dict[str, list[str]] = {}
    for result in row.ok():
        if result.output == "returned":
            notes.setdefault("a fresh result array in each call", []).append(_name(result, mixed))
        if result.note:
            notes.setdefault(result.note, []).append(_name(result, mixed))
    lines += [Text(f"  {', '.join(names)}: {note}", style="dim") for note, names in notes.items()]
    for result in row.results:
        if result.status in _FAILURES:
            text = f"  {_name(result, mixed)}: {_FAILURES[result.status]}: {result.message}"
            lines.append(Text(text, style="red"))
    absent = [f"{_name(one, mixed)} ({one.message})" for one in row.results if one.status in ("missing", "unsupported")]
    if absent:
        lines.append(Text(f"  without {', '.join(absent)}", style="dim"))
    if row.foreign_cores is not None and row.foreign_cores > FOREIGN_LIMIT:
        lines.append(Text(f"  warning: other processes used {row.foreign_cores:.1f} cores meanwhile", style="yellow"))
    return lines


def _cells(row: Row, result: Result, pto: Sequence[Result], mixed: bool) -> list[str]:
    cells = [_name(result, mixed), time_text(result.median), f"{result.spread:.0%}"]
    if row.unit != "call":
        cells.append(_three(rate(row, result) / 1e9))
    if row.limit_seconds:
        # With several thread counts in one row the limit is that of the largest.
        cells.append(f"{row.limit_seconds / result.median:.0%}" if result.threads == row.threads else "")
    cells += [ratio_text(paired_ratio(result.seconds, one.seconds)) if result is not one else "1" for one in pto]
    return [*cells, f"{result.worst:.2g}"]


def rate(row: Row, result: Result) -> float:
    """Work per second: operations for products and the like, bytes (every tensor once) otherwise."""
    return (row.work.flops if row.unit == "GFLOP/s" else row.work.bytes_moved) / result.median


def print_first_calls(out: Console, calls: Sequence[FirstCall]) -> None:
    """The `compile` row."""
    timed = [call for call in calls if call.status == "ok"]
    table = Table(title="compile: softmax in a new process", title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for heading in ("import", "first call, cold", "first call, warm", "process, cold", "process, warm"):
        table.add_column(heading, justify="right")
    for call in timed:
        seconds = (call.import_seconds, call.cold_first, call.warm_first, call.cold_total, call.warm_total)
        table.add_row(call.peer, *(time_text(one) for one in seconds), style="bold" if call.peer == "pto" else None)
    out.print(table if timed else "[bold]compile[/bold]: nothing timed")
    for call in calls:
        if call.status != "ok":
            out.print(Text(f"  {call.peer}: {call.status}: {call.message}"))
    out.print()


def print_limits(out: Console, readings: Sequence[Reading]) -> None:
    """Measured limits."""
    table = Table(title="measured limits", title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("working set", justify="right")
    table.add_column("threads", justify="right")
    table.add_column("rate", justify="right")
    table.add_column("unit")
    table.add_column("lowest", justify="right")
    table.add_column("median", justify="right")
    for one in readings:
        place = bytes_text(one.bytes) if one.bytes else ""
        cells = (_three(one.rate), one.unit, _three(one.low), _three(one.median))
        table.add_row(one.name, place, str(one.threads), *cells)
    out.print(table)


def print_machine(out: Console, record: Record) -> None:
    """Where the figures come from, and what was changed for them."""
    machine = record.machine
    caches = ", ".join(f"L{one.level} {bytes_text(one.size)}" for one in machine.caches)
    out.print(
        f"{machine.cpu}, {machine.cores} cores, {caches}; {machine.system}, Python {machine.python}", markup=False
    )
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items() if version)
    if versions:
        out.print(versions, markup=False)
    if record.dropped_environment:
        dropped = ", ".join(f"{name}={value}" for name, value in record.dropped_environment.items())
        out.print(f"dropped for the measurement: {dropped}", markup=False)
    out.print()


def print_list(out: Console, workloads: Sequence[Workload]) -> None:
    """What can be run, and who can take part."""
    table = Table(title="workloads", title_justify="left", title_style="bold")
    for heading in ("name", "what", "extents", "sizes (* measured by default)"):
        table.add_column(heading)
    for one in workloads:
        sizes = ", ".join(
            f"{name}{'*' if name in one.default else ''} {size_text(size)}" for name, size in one.sizes.items()
        )
        table.add_row(one.name, escape(one.summary), " x ".join(one.axes), sizes)
    out.print(table)
    table = Table(title="peers", title_justify="left", title_style="bold")
    for heading in ("name", "version", ""):
        table.add_column(heading)
    for peer in PEERS.values():
        reason = peer.missing()
        table.add_row(peer.name, "" if reason else peer.version(), escape(reason))
    out.print(table)


def print_comparison(out: Console, comparisons: Sequence[Comparison], first: str, second: str) -> None:
    """How two runs differ."""
    table = Table(title=f"{first} / {second}: above 1, the second is faster", title_justify="left", title_style="bold")
    for heading in ("row", "by"):
        table.add_column(heading, no_wrap=True)
    for heading in (first, second, "ratio", "noise bounds", "the peers' ratio", "beyond them"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for one in comparisons:
        bounds = f"{_factor(one.ratio.low)} .. {_factor(one.ratio.high)}"
        anchor = "" if one.anchor is None else _factor(one.anchor.value)
        beyond = "" if one.anchor is None else _factor(one.beyond.value)
        times = (time_text(one.first), time_text(one.second))
        table.add_row(one.row, one.label, *times, _factor(one.ratio.value), bounds, anchor, beyond, one.verdict)
    out.print(table)


def bytes_text(size: int) -> str:
    """A size in binary units."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.3g} {unit}"
    return f"{size} B"


def _name(result: Result, mixed: bool) -> str:
    return f"{result.label}, {_threads(result.threads)}" if mixed else result.label


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _three(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
