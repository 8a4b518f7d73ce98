# SPDX-License-Identifier: MIT
"""The command line of `pto-bench`."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from pto_jit.bench import report
from pto_jit.bench.compare import compare
from pto_jit.bench.engine import Engine, Settings
from pto_jit.bench.firstcall import measure_first_calls
from pto_jit.bench.machine import core_processors, describe_machine
from pto_jit.bench.overview import markdown, overview
from pto_jit.bench.peers import PEERS, PTO, Peer, chosen_peers
from pto_jit.bench.plot import PlotError, draw, require_matplotlib
from pto_jit.bench.process import WorkerFailure
from pto_jit.bench.record import FirstCall, Record, Row, check_writable, load, save, to_json
from pto_jit.bench.specials import ALL, COMPILE, LAUNCH, SPECIALS, THREADS
from pto_jit.bench.workload import Size, Workload

# Processes started for every figure of the `compile` row.
_FIRST_CALLS = 3


@dataclass(frozen=True, slots=True)
class Item:
    """One row to be measured."""

    workload: Workload
    size: Size
    threads: tuple[int, ...]


def parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    top = argparse.ArgumentParser(
        prog="pto-bench", description="Measure pto_jit on this machine, beside the array libraries installed here."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")

    add("list", "workloads, their sizes, and the peers installed here")
    _add_run(add("run", "check and time workloads"))
    differ = add("compare", "compare two files written by run --json")
    differ.add_argument("first", type=Path, metavar="A.json", help="what was measured before")
    differ.add_argument("second", type=Path, metavar="B.json", help="what was measured after")
    differ.add_argument("--all", action="store_true", help="the peers' rows too, not only those of pto")
    show = add("show", "the best peer of every row in files written by run --json, in Markdown")
    show.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of equal rows the last one counts")
    limits = add("limits", "measure this machine's peak arithmetic rate and memory bandwidth")
    _add_threads(limits)
    add("frontend", "time from source to IR, from there to C, CUDA, ..., and of looking a call up")
    cuda = add("cuda", "kernels on a GPU, beside torch, Triton by torch.compile, and a copy")
    cuda.add_argument("names", nargs="*", metavar="NAME", help="workloads (default: all that there are rows for)")
    _add_rounds(cuda, 7)
    cuda.add_argument("--json", type=Path, metavar="FILE", help="keep the times in a file")
    _add_tasks(add("tasks", "build and run the task graph of a LLaMA-7B layer, beside other runtimes"))
    return top


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("names", nargs="*", metavar="NAME", help="workloads (default: all; see `pto-bench list`)")
    run.add_argument(
        "--size", action="append", metavar="SIZE", help="a size name, all, or extents as 512x1024; may be repeated"
    )
    _add_threads(run)
    run.add_argument(
        "--peers", default="all", metavar="P,...", help=f"all (default), none, or some of {', '.join(PEERS)}"
    )
    _add_rounds(run, 7)
    run.add_argument(
        "--batch", type=_positive_float, default=20.0, metavar="MS", help="least length of one timing (default 20 ms)"
    )
    _add_timeout(run)
    run.add_argument("--seed", type=int, default=0, help="seed of the inputs (default 0)")
    run.add_argument(
        "--allocator", choices=("recycled", "default"), default="recycled",
        help="whether freed memory is kept for reuse (default) or the system's allocator is left as it is",
    )  # fmt: skip
    run.add_argument("--no-limits", action="store_true", help="leave out the share of the machine's limit")
    run.add_argument("--json", type=Path, metavar="FILE", help="keep everything that was measured")
    run.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios (needs matplotlib)")


def _add_tasks(tasks: argparse.ArgumentParser) -> None:
    tasks.add_argument(
        "--tiles", default="32,64,96,128", metavar="N,...",
        help="lengths in tiles of 32 rows (default 32,64,96,128)",
    )  # fmt: skip
    _add_threads(tasks)
    _add_rounds(tasks, 15)
    tasks.add_argument(
        "--peers", default="taskflow,tbb,openmp", metavar="P,...", help="taskflow, tbb, openmp (default: all), or none"
    )
    tasks.add_argument("--taskflow", type=Path, metavar="DIR", help="where taskflow/taskflow.hpp is, if not installed")
    tasks.add_argument(
        "--layer", default="4096,11008,32", metavar="H,F,N",
        help="hidden size, inner size and heads of the layer that is run (default: those of LLaMA-7B), or none",
    )  # fmt: skip
    _add_timeout(tasks)


def _add_threads(command: argparse.ArgumentParser) -> None:
    command.add_argument("--threads", metavar="N,...", help="thread counts (default: 1 and the number of cores)")


def _add_rounds(command: argparse.ArgumentParser, default: int) -> None:
    text = f"timings of each row (default {default})"
    command.add_argument("--rounds", type=_positive_int, default=default, metavar="N", help=text)


def _add_timeout(command: argparse.ArgumentParser) -> None:
    text = "longest wait for one answer (default 180 s)"
    command.add_argument("--timeout", type=_positive_float, default=180.0, metavar="S", help=text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 1 where a result was wrong or a library failed, 2 for wrong usage."""
    top = parser()
    options = top.parse_args(arguments)
    out = report.console()
    try:
        match options.command:
            case "list":
                report.print_list(out, list(ALL.values()))
                return 0
            case "compare":
                return _compare(out, options.first, options.second, everything=options.all)
            case "show":
                out.out(markdown(overview([load(file) for file in options.files])), end="", highlight=False)
                return 0
            case "tasks":
                return _tasks(out, options)
            case "cuda":
                from pto_jit.bench import cuda

                return cuda.run(out, options.names, options.rounds, options.json)
            case "frontend":
                return _frontend(out)
            case "limits":
                return _limits(out, _thread_counts(options.threads))
            case _:
                return _run(out, options)
    except (ValueError, PlotError) as error:
        top.exit(2, f"pto-bench: {error}\n")
    except WorkerFailure as error:
        top.exit(1, f"pto-bench: {error}\n")
    except KeyboardInterrupt:
        top.exit(130, "pto-bench: interrupted\n")


def _frontend(out: Console) -> int:
    from pto_jit.bench import emission, frontend

    for cost in (*frontend.compilation(), *frontend.lookups(), *emission.emission()):
        scale, unit = (1e3, "ms") if cost.seconds >= 1e-4 else (1e6, "us")
        out.print(f"{cost.seconds * scale:9.2f} {unit}  {cost.name}", highlight=False)
    return 0


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _thread_counts(text: str | None) -> list[int]:
    cores = len(core_processors())
    if text is None:
        return sorted({1, cores})
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--threads takes positive numbers, not {text!r}")
    available = describe_machine().processors
    counts = sorted({int(part) for part in parts})
    if counts[-1] > available:
        raise ValueError(f"{counts[-1]} threads on {available} processors would measure the scheduler")
    return counts


def plan(names: Sequence[str], sizes: Sequence[str] | None, threads: Sequence[int]) -> list[Item]:
    """The rows that a command line asks for, those of one thread count together.

    Raises:
        ValueError: an unknown workload, or a size that a named workload does not have.
    """
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise ValueError(f"no workload {', '.join(unknown)}: see `pto-bench list`")
    workloads = [ALL[name] for name in names] or list(ALL.values())
    # Every thread count has processes of its own: they are started once and ended before the next.
    items = [
        Item(workload, size, (count,))
        for count in threads
        for workload in workloads
        if workload not in SPECIALS.values()
        for size in _sizes(workload, sizes, named=bool(names))
    ]
    for workload in workloads:
        if workload == THREADS:
            # With one core there is nothing to gain, but two threads still cost what they cost.
            counts = tuple(threads) if len(threads) > 1 else tuple(sorted({1, max(2, *threads)}))
            items += [Item(workload, size, counts) for size in _sizes(workload, None, named=False)]
        if workload in (COMPILE, LAUNCH):
            items += [Item(workload, size, (1,)) for size in _sizes(workload, None, named=False)]
    return items


def _sizes(workload: Workload, wanted: Sequence[str] | None, *, named: bool) -> list[Size]:
    if not wanted:
        return [workload.sizes[name] for name in workload.default]
    found: list[Size] = []
    for text in wanted:
        if text == "all":
            found += workload.sizes.values()
        else:
            try:
                found.append(workload.size_of(text))
            except ValueError:
                # Of all workloads those that have the size; of named ones every one must.
                if named:
                    raise
    return list(dict.fromkeys(found))


@contextmanager
def _progress(out: Console, total: int) -> Iterator[tuple[Progress, TaskID]]:
    # On the console of the tables, which are then printed above the bar; on standard error where those go to a file.
    console = out if out.is_terminal else report.console(stderr=True)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # Redrawing costs processor time next to what is being measured.
        refresh_per_second=2,
    )
    with bar:
        yield bar, bar.add_task("starting", total=total)


def _run(out: Console, options: argparse.Namespace) -> int:
    if options.plot:
        require_matplotlib()
    if options.json:
        check_writable(options.json)
    threads = _thread_counts(options.threads)
    items = plan(options.names, options.size, threads)
    peers = [PTO, *chosen_peers(options.peers)]
    settings = Settings(
        rounds=options.rounds,
        batch_seconds=options.batch / 1e3,
        timeout=options.timeout,
        seed=options.seed,
        recycle=options.allocator == "recycled",
        with_limits=not options.no_limits,
    )
    rows: list[Row] = []
    firsts: list[FirstCall] = []
    with _progress(out, len(items)) as (bar, task):

        def show(text: str) -> None:
            bar.update(task, description=text)

        with Engine(settings, step=show) as engine:
            report.print_machine(out, _record(engine, settings, peers))
            try:
                for index, item in enumerate(items):
                    if item.workload == COMPILE:
                        firsts = measure_first_calls(
                            engine, item.workload, item.size, peers, _FIRST_CALLS, options.timeout, show
                        )
                        report.print_first_calls(out, firsts)
                    else:
                        row = engine.row(item.workload, item.size, peers, item.threads)
                        rows.append(row)
                        report.print_row(out, row)
                    bar.advance(task)
                    remaining = {count for later in items[index + 1 :] for count in later.threads}
                    for count in set(item.threads) - remaining:
                        engine.forget(count)
            finally:
                # An interrupted run keeps the rows that were finished.
                record = _record(engine, settings, peers, rows, firsts)
                if options.json:
                    save(options.json, to_json(record))
    if options.plot:
        draw(record, options.plot)
    bad = [one for row in rows for one in row.results if one.status in ("wrong", "timeout", "died", "error")]
    return 1 if bad or any(one.status not in ("ok", "missing") for one in firsts) else 0


def _record(
    engine: Engine,
    settings: Settings,
    peers: Sequence[Peer],
    rows: Sequence[Row] = (),
    firsts: Sequence[FirstCall] = (),
) -> Record:
    missing = {peer.name: peer.missing() for peer in peers if peer.missing()}
    return Record(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=describe_machine(),
        versions={peer.name: peer.version() for peer in peers if peer.name not in missing},
        dropped_environment=engine.dropped,
        set_environment=engine.added,
        settings={
            "rounds": settings.rounds,
            "batch_seconds": settings.batch_seconds,
            "timeout": settings.timeout,
            "seed": settings.seed,
        },
        limits=engine.limits,
        rows=tuple(rows),
        first_calls=tuple(firsts),
        missing=missing,
    )


def _compare(out: Console, first: Path, second: Path, *, everything: bool) -> int:
    one, two = load(first), load(second)
    compared, unmatched = compare(one, two)
    shown = [entry for entry in compared if everything or entry.label.split(" ")[0] == PTO.name]
    if one.machine != two.machine:
        out.print("warning: the files come from different machines or systems", style="yellow")
    if compared and not shown:
        out.print("no pto kernel was timed in both; --all shows the peers")
    elif not compared:
        out.print("nothing was timed in both")
    else:
        report.print_comparison(out, shown, first.name, second.name)
    for line in unmatched:
        out.print(Text(f"  {line}", style="dim"))
    return 0


def _limits(out: Console, threads: Sequence[int]) -> int:
    with _progress(out, len(threads)) as (bar, task), Engine(Settings()) as engine:
        for count in threads:
            bar.update(task, description=f"{count} threads")
            report.print_limits(out, engine.measure_limits(count))
            bar.advance(task)
    return 0


def _tasks(out: Console, options: argparse.Namespace) -> int:
    from pto_jit.bench.tasks import table
    from pto_jit.bench.tasks.drivers import DRIVERS, BuildError
    from pto_jit.bench.tasks.measure import TaskRow, measure

    known = [driver.name for driver in DRIVERS]
    peers = [] if options.peers == "none" else [name.strip() for name in options.peers.split(",")]
    if unknown := [name for name in peers if name not in known]:
        raise ValueError(f"no task runtime {', '.join(unknown)}: there are {', '.join(known)}")
    parts = [part.strip() for part in options.tiles.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--tiles takes positive numbers, not {options.tiles!r}")
    sizes = options.layer.split(",")
    if options.layer != "none" and (len(sizes) != 3 or not all(part.isdecimal() and int(part) > 0 for part in sizes)):
        raise ValueError(f"--layer takes three positive numbers or none, not {options.layer!r}")
    layer = None if options.layer == "none" else (int(sizes[0]), int(sizes[1]), int(sizes[2]))
    tiles, threads = [int(part) for part in parts], _thread_counts(options.threads)
    with _progress(out, len(tiles) * len(threads)) as (bar, task):

        def show(text: str) -> None:
            bar.update(task, description=text)

        def done(row: TaskRow) -> None:
            table.print_row(out, row)
            bar.advance(task)

        try:
            measured = measure(
                tiles, threads, options.rounds, peers, options.taskflow, layer, options.timeout, show, done
            )
        except BuildError as error:
            raise ValueError(str(error)) from error
    table.print_build(out, measured)
    table.print_layers(out, measured)
    table.print_missing(out, measured)
    return 0
