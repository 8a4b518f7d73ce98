# SPDX-License-Identifier: MIT
"""Rounds of all runtimes on the same graph, interleaved, each in a process of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pto_jit.bench.machine import ForeignUse, processors_for, without_presets
from pto_jit.bench.process import WorkerFailure, WorkerProcess
from pto_jit.bench.tasks.drivers import DRIVERS, BuildError, Driver, build_peer, build_stream

_INSIDE = "pto_jit.bench.tasks.inside"
PTO = "pto"


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """What the graph of a number of tiles is like; `bytes` is all memory of our graph."""

    tiles: int
    tasks: int
    edges: int
    critical_path: int
    max_width: int
    bytes: float


@dataclass(slots=True)
class Timings:
    """Milliseconds of each round by what was timed: build, run, rerun, live."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, times: dict[str, float]) -> None:
        for name, value in times.items():
            self.rounds.setdefault(name, []).append(value)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One number of tiles on one number of threads: timings by runtime, and what others used of the processors."""

    facts: GraphFacts
    threads: int
    timings: dict[str, Timings]
    foreign_cores: float | None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Everything that was measured, and why a runtime is missing."""

    rows: tuple[TaskRow, ...]
    missing: dict[str, str]


def measure(
    tiles: Sequence[int],
    threads: Sequence[int],
    rounds: int,
    peers: Sequence[str],
    taskflow: Path | None,
    timeout: float,
    show: Callable[[str], None],
    done: Callable[[TaskRow], None],
) -> TaskReport:
    """Build the drivers and time them; `done` gets each row as soon as it is measured.

    Raises BuildError when our own driver cannot be built.
    """
    rows: list[TaskRow] = []
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        show("compiling the drivers")
        stream = build_stream(folder)
        built: dict[str, tuple[Driver, Path]] = {}
        for driver in DRIVERS:
            if driver.name in peers:
                try:
                    built[driver.name] = driver, build_peer(driver, folder, taskflow)
                except BuildError as error:
                    missing[driver.name] = str(error)
        for count in threads:
            with ExitStack() as stack:
                environment, _ = without_presets(os.environ)
                environment["OMP_NUM_THREADS"] = str(count)
                where = processors_for(count)
                workers = {runtime: stack.enter_context(WorkerProcess(environment, where)) for runtime in [PTO, *built]}
                for number in tiles:
                    show(f"{number} tiles, {count} threads")
                    rows.append(_row(number, count, rounds, stream, built, workers, missing, folder, timeout))
                    done(rows[-1])
    return TaskReport(tuple(rows), missing)


def _row(
    tiles: int,
    threads: int,
    rounds: int,
    stream: Path,
    built: dict[str, tuple[Driver, Path]],
    workers: dict[str, WorkerProcess],
    missing: dict[str, str],
    folder: Path,
    timeout: float,
) -> TaskRow:
    edges = str(folder / f"edges-{tiles}.npy")
    found = workers[PTO].request("call", f"{_INSIDE}:facts", (str(stream), tiles, edges), timeout=timeout)
    facts = GraphFacts(tiles=tiles, **found)
    timings = {runtime: Timings() for runtime in workers if runtime not in missing}
    foreign = ForeignUse([os.getpid(), *(workers[runtime].pid for runtime in timings)])
    order = list(timings)
    for round_number in range(rounds + 1):
        turn = round_number % len(order)
        for runtime in order[turn:] + order[:turn]:
            if runtime in missing:
                continue
            if runtime == PTO:
                call, arguments = "pto_once", (str(stream), tiles, threads)
            else:
                driver, path = built[runtime]
                amount = facts.tasks if driver.needs_edges else tiles
                call, arguments = "peer_once", (str(path), threads, amount, edges if driver.needs_edges else None)
            try:
                times = workers[runtime].request("call", f"{_INSIDE}:{call}", arguments, timeout=timeout)
            except WorkerFailure as error:
                if runtime == PTO:
                    raise
                missing[runtime] = str(error)
                timings.pop(runtime)
                continue
            if round_number > 0:  # the first touches memory for the first time
                timings[runtime].add(times)
    return TaskRow(facts, threads, timings, foreign.cores())
