# SPDX-License-Identifier: MIT
"""A case from inputs to times: who takes part, in which order, and what happens to those who fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pto_jit.bench
from pto_jit.bench.exchange import scratch_directory
from pto_jit.bench.machine import ForeignUse, processors_for, without_presets
from pto_jit.bench.peers import Peer, thread_environment
from pto_jit.bench.process import WorkerFailure, WorkerProcess
from pto_jit.bench.record import Reading, Result, Row, Status
from pto_jit.bench.roofline import Roofline
from pto_jit.bench.workload import Size, Work, Workload

# Freed memory is kept and reused, in huge pages where the system allows: a library that returns a fresh array would
# otherwise be measured by the page faults of its result.
RECYCLING = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:glibc.malloc.hugetlb=1"
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run measures."""

    rounds: int = 7
    batch_seconds: float = 0.02
    timeout: float = 180.0
    start_timeout: float = 180.0
    prepare_timeout: float = 1800.0
    seed: int = 0
    recycle: bool = True
    with_limits: bool = True
    catalog: str = "pto_jit.bench.specials:ALL"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One library's variant with a number of threads: each is a process of its own."""

    peer: Peer
    variant: str
    threads: int

    def failed(self, status: Status, message: str) -> Result:
        """The result of a contestant that is not timed."""
        return Result(self.peer.name, self.variant, self.threads, status, message)


@dataclass(slots=True)
class _Runner:
    contestant: Contestant
    worker: WorkerProcess
    built: Mapping[str, Any]
    seconds: list[float] = field(default_factory=list[float])


class Engine:
    """Runs rows; owns the worker processes, which live until the engine is closed."""

    def __init__(self, settings: Settings, step: Callable[[str], None] = lambda text: None) -> None:
        self._settings = settings
        self._step = step
        kept, self.dropped = without_presets(os.environ)
        package = str(Path(next(iter(pto_jit.bench.__path__))).parents[1])
        path = os.pathsep.join(filter(None, (kept.get("PYTHONPATH", ""), package)))
        self.added = dict(RECYCLING) if settings.recycle else {}
        self._environment = {**kept, **self.added, "PYTHONPATH": path}
        self._workers: dict[Contestant, WorkerProcess] = {}
        self._tables: dict[tuple[str, int], list[tuple[str, str]]] = {}
        self._unusable: dict[tuple[str, int], tuple[Status, str]] = {}
        self._service: WorkerProcess | None = None
        self._roofline = Roofline(self._probe)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def environment(self) -> dict[str, str]:
        """What workers see, thread counts aside."""
        return dict(self._environment)

    @property
    def pids(self) -> list[int]:
        """The processes running now: workers and the one that makes inputs."""
        return [worker.pid for worker in (*self._workers.values(), *([self._service] if self._service else []))]

    @property
    def limits(self) -> tuple[Reading, ...]:
        """Every limit measured so far."""
        return self._roofline.readings

    def close(self) -> None:
        """End all workers."""
        for worker in (*self._workers.values(), *([self._service] if self._service else [])):
            worker.close()
        self._workers.clear()
        self._service = None

    def forget(self, threads: int) -> None:
        """End the workers with this number of threads: nothing more will be asked of them."""
        for contestant in [one for one in self._workers if one.threads == threads]:
            self._workers.pop(contestant).close()

    def row(self, workload: Workload, size: Size, peers: Sequence[Peer], threads: Sequence[int]) -> Row:
        """Measure one row.

        With several thread counts every library takes part once for each, in the same rounds.
        """
        directory = scratch_directory()
        try:
            self._step(f"{workload.name}: inputs and reference")
            work = self.prepare(workload, size, directory)
            failed: dict[Contestant, Result] = {}
            runners: list[_Runner] = []
            for contestant in self._contestants(workload, peers, threads, failed):
                self._step(f"{workload.name}: {contestant.peer.name} {contestant.variant}".rstrip())
                runner = self._build(contestant, workload, size, directory, failed)
                if runner:
                    runners.append(runner)
            foreign = self._rounds(workload, runners, failed)
            results = self._results(runners, failed)
            for runner in runners:
                if runner.contestant in self._workers:
                    self._ask(runner.contestant, "drop", failed=failed)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        limit = None
        if self._settings.with_limits and workload.unit != "call":
            self._step(f"{workload.name}: limits of this machine")
            limit = self._roofline.seconds(work, max(threads))
        return Row(workload.name, size, workload.dtype, workload.unit, max(threads), work, results, limit, foreign)

    def measure_limits(self, threads: int) -> tuple[Reading, ...]:
        """All arithmetic and memory limits for a number of threads."""
        readings: list[Reading] = self._serve("pto_jit.bench.limits:all_limits", threads)
        return tuple(readings)

    def _contestants(
        self, workload: Workload, peers: Sequence[Peer], threads: Iterable[int], failed: dict[Contestant, Result]
    ) -> list[Contestant]:
        found: list[Contestant] = []
        for count in threads:
            for peer in peers:
                table = self._table(peer, count)
                variants = [variant for name, variant in table if name == workload.implemented_as]
                if (peer.name, count) in self._unusable:
                    status, message = self._unusable[peer.name, count]
                    plain = Contestant(peer, "", count)
                    failed[plain] = plain.failed(status, message)
                elif not variants:
                    plain = Contestant(peer, "", count)
                    failed[plain] = plain.failed("unsupported", "not written for this library")
                found += [Contestant(peer, variant, count) for variant in variants]
        return found

    def _table(self, peer: Peer, threads: int) -> list[tuple[str, str]]:
        key = (peer.name, threads)
        if key not in self._tables:
            self._tables[key] = []
            reason = peer.missing()
            if reason:
                self._unusable[key] = ("missing", reason)
                return []
            plain = Contestant(peer, "", threads)
            self._step(f"starting {peer.name}")
            try:
                self._tables[key] = self._worker(plain)[1]["implementations"]
            except WorkerFailure as failure:
                self._unusable[key] = (failure.kind, str(failure))
        return self._tables[key]

    def _worker(self, contestant: Contestant) -> tuple[WorkerProcess, Mapping[str, Any]]:
        if contestant in self._workers:
            return self._workers[contestant], {}
        worker = self.start(contestant)
        try:
            loaded = worker.request("load", contestant.peer.module, timeout=self._settings.start_timeout)
        except WorkerFailure:
            worker.close()
            raise
        self._workers[contestant] = worker
        return worker, loaded

    def start(self, contestant: Contestant, extra: Mapping[str, str] | None = None) -> WorkerProcess:
        """A new process for a contestant, kept on as many processors as it has threads; nothing loaded yet."""
        environment = {
            **self._environment,
            **thread_environment(contestant.threads),
            **contestant.peer.environment,
            **(extra or {}),
        }
        return WorkerProcess(environment, processors_for(contestant.threads))

    def prepare(self, workload: Workload, size: Size, directory: Path) -> Work:
        """Make the inputs and the reference of a case in a directory."""
        settings = self._settings
        fields = self._serve(
            "pto_jit.bench.exchange:prepare", settings.catalog, workload.name, size, settings.seed, str(directory)
        )
        return Work(**fields)

    def _serve(self, path: str, *arguments: object) -> Any:
        if self._service is None:
            self._service = WorkerProcess(self._environment)
        return self._service.request("call", path, arguments, timeout=self._settings.prepare_timeout)

    def _probe(self, path: str, *arguments: object) -> Any:
        return self._serve(f"pto_jit.bench.limits:{path}", *arguments)

    def build_arguments(
        self,
        workload: Workload,
        size: Size,
        contestant: Contestant,
        directory: Path,
        batch_seconds: float | None = None,
    ) -> list[Any]:
        """The arguments of a worker's `build` request; batches are as long as the settings say unless told."""
        batch = self._settings.batch_seconds if batch_seconds is None else batch_seconds
        variant, threads = contestant.variant, contestant.threads
        return [self._settings.catalog, workload.name, size, variant, threads, str(directory), int(batch * 1e9)]

    def _build(
        self,
        contestant: Contestant,
        workload: Workload,
        size: Size,
        directory: Path,
        failed: dict[Contestant, Result],
    ) -> _Runner | None:
        arguments = self.build_arguments(workload, size, contestant, directory)
        built = self._ask(contestant, "build", *arguments, failed=failed)
        if built is None:
            return None
        if built["status"] != "ok":
            failed[contestant] = contestant.failed(built["status"], built["message"])
            return None
        return _Runner(contestant, self._workers[contestant], built)

    def _ask(self, contestant: Contestant, operation: str, *arguments: object, failed: dict[Contestant, Result]) -> Any:
        try:
            worker, _ = self._worker(contestant)
            return worker.request(operation, *arguments, timeout=self._settings.timeout)
        except WorkerFailure as failure:
            if failure.fatal:
                self._workers.pop(contestant, None)
            failed[contestant] = contestant.failed(failure.kind, str(failure))
            return None

    def _rounds(self, workload: Workload, runners: list[_Runner], failed: dict[Contestant, Result]) -> float | None:
        foreign = ForeignUse([os.getpid(), *(runner.worker.pid for runner in runners)])
        for turn in range(self._settings.rounds if runners else 0):
            self._step(f"{workload.name}: round {turn + 1} of {self._settings.rounds}")
            # Whoever follows a memory-hungry neighbour finds colder caches: everybody follows everybody.
            shift = turn % len(runners)
            for runner in runners[shift:] + runners[:shift]:
                if runner.contestant in failed:
                    continue
                handle, calls = runner.built["handle"], runner.built["calls"]
                elapsed = self._ask(runner.contestant, "time", handle, calls, failed=failed)
                if elapsed is not None:
                    runner.seconds.append(elapsed / calls / 1e9)
        return foreign.cores()

    def _results(self, runners: Sequence[_Runner], failed: dict[Contestant, Result]) -> tuple[Result, ...]:
        for runner in runners:
            contestant = runner.contestant
            if contestant in failed:
                continue
            wrong = self._ask(contestant, "verify", runner.built["handle"], failed=failed)
            if wrong:
                failed[contestant] = contestant.failed("wrong", f"after the timing: {wrong}")
        done: list[Result] = []
        for runner in runners:
            if runner.contestant in failed:
                continue
            result = runner.contestant.failed("ok", "")
            fields = {name: runner.built[name] for name in ("calls", "output", "note", "first_seconds", "worst")}
            done.append(replace(result, seconds=tuple(runner.seconds), **fields))
        return (*done, *failed.values())
