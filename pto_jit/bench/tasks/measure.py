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
from pto_jit.bench.tasks.drivers import DRIVERS, BuildError, Driver, build_peer, build_stream, layer_source

_INSIDE = "pto_jit.bench.tasks.inside"
PTO = "pto"


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """What the graph of a number of tiles is like; `bytes` is all memory of our graph.

    `compiled_edges` and `compiled_bytes` are those of the graph that the compiled layer records, which keeps the scores
    and the weights of a tile in one place; None where there is no such layer.
    """

    tiles: int
    tasks: int
    edges: int
    critical_path: int
    max_width: int
    bytes: float
    compiled_edges: int | None = None
    compiled_bytes: float | None = None


@dataclass(slots=True)
class Timings:
    """Milliseconds of each round by what was timed: build, run, rerun, live, compiled."""

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
class LayerRow:
    """The layer with its arithmetic, once: milliseconds of recording its graph and of running it."""

    tiles: int
    threads: int
    build: float
    run: float


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Everything that was measured, and why a runtime is missing; `sizes` of the layers: hidden, inner, heads."""

    rows: tuple[TaskRow, ...]
    layers: tuple[LayerRow, ...]
    sizes: tuple[int, int, int] | None
    missing: dict[str, str]


def measure(
    tiles: Sequence[int],
    threads: Sequence[int],
    rounds: int,
    peers: Sequence[str],
    taskflow: Path | None,
    sizes: tuple[int, int, int] | None,
    timeout: float,
    show: Callable[[str], None],
    done: Callable[[TaskRow], None],
) -> TaskReport:
    """Build the drivers and time them; `done` gets each row as soon as it is measured.

    With `sizes` (hidden, inner, heads) the layer is run with its arithmetic too, on the last number of threads.
    Raises BuildError when our own driver cannot be built.
    """
    rows: list[TaskRow] = []
    layers: list[LayerRow] = []
    missing: dict[str, str] = {}
    layer: str | None = None
    try:
        layer = str(layer_source())
    except BuildError as error:
        missing["compiled layer"] = str(error)
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
                    rows.append(_row(number, count, rounds, stream, layer, built, workers, missing, folder, timeout))
                    done(rows[-1])
                for number in tiles if sizes is not None and layer is not None and count == threads[-1] else ():
                    show(f"the layer, {number} tiles, {count} threads")
                    call = (f"{_INSIDE}:layer_once", (layer, number, sizes))
                    layers.append(LayerRow(number, count, **workers[PTO].request("call", *call, timeout=timeout)))
    return TaskReport(tuple(rows), tuple(layers), sizes, missing)


def _row(
    tiles: int,
    threads: int,
    rounds: int,
    stream: Path,
    layer: str | None,
    built: dict[str, tuple[Driver, Path]],
    workers: dict[str, WorkerProcess],
    missing: dict[str, str],
    folder: Path,
    timeout: float,
) -> TaskRow:
    edges = str(folder / f"edges-{tiles}.npy")
    found = workers[PTO].request("call", f"{_INSIDE}:facts", (str(stream), tiles, edges), timeout=timeout)
    if layer is not None:
        compiled = workers[PTO].request("call", f"{_INSIDE}:compiled_facts", (layer, tiles), timeout=timeout)
        if compiled["tasks"] != found["tasks"]:
            raise BuildError(f"the compiled layer has {compiled['tasks']} tasks, the stream {found['tasks']}")
        found |= {"compiled_edges": compiled["edges"], "compiled_bytes": compiled["bytes"]}
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
                if runtime == PTO and layer is not None:
                    name = f"{_INSIDE}:compiled_once"
                    times |= workers[PTO].request("call", name, (layer, tiles), timeout=timeout)
            except WorkerFailure as error:
                if runtime == PTO:
                    raise
                missing[runtime] = str(error)
                timings.pop(runtime)
                continue
            if round_number > 0:  # the first touches memory for the first time
                timings[runtime].add(times)
    return TaskRow(facts, threads, timings, foreign.cores())
