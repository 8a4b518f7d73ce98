# SPDX-License-Identifier: MIT
"""`TaskGraph`: tasks recorded with the regions they read and write; run, measured, dumped, drawn and traced.

The C side is the part "task graphs" of `csrc/runtime/pto_runtime.h`.  Compiled code fills a graph through `record`;
`tensor` and `add` do the same by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pto_jit.errors import ArgumentError, LaunchError, TaskError, ToolchainError
from pto_jit.slotted import frozen

from . import _native
from .adding import boxes, integer, integers, task_function, task_name
from .drawing import SMALL, drawn, render, to_dot
from .dump import Dump, parse_dump
from .files import write_text
from .handles import Runtime, default_runtime
from .tensors import as_tensor
from .trace import TaskEvent, write_trace

_lib, _ffi = _native.lib, _native.ffi

ACCESSES = {_lib.PTO_READ: "read", _lib.PTO_WRITE: "write", _lib.PTO_READ_WRITE: "update"}
_MODES = {name: mode for mode, name in ACCESSES.items()}

MOST_ARROWS = 20_000
"""Dependences that a trace shows unless told."""

Box = tuple[Any, Sequence[int], Sequence[int]]
"""What an access of `TaskGraph.add` is: an array (or a number from `TaskGraph.tensor`), offsets and extents."""


@frozen
class Region:
    """A box of a tensor: `access` is read, write or update; `tensor` its number; offsets and extents in elements.

    An access without elements has the tensor -1 and no extents.
    """

    access: str
    tensor: int
    offsets: tuple[int, ...]
    extents: tuple[int, ...]


@frozen
class Task:
    """A recorded task: `fanin` tasks before it, `fanout` tasks that wait for it, the slots it is called with."""

    number: int
    name: str
    fanin: int
    fanout: int
    buffer_bytes: int
    regions: tuple[Region, ...]
    slots: tuple[int, ...]


@frozen
class TaskFailure:
    """What is known of a failed task: its number in the graph at an address, its name, slots and regions, and the
    failure record's site and values."""

    graph: int
    task: int
    name: str
    slots: tuple[int, ...]
    regions: tuple[Region, ...]
    status: int
    site: int
    values: tuple[int, int, int]


Explain = Callable[[TaskFailure], BaseException | None]
"""Finds the error that a failed task stands for; it becomes the cause of the TaskError, unless it is one itself."""


def _status_text(status: int) -> str:
    return _ffi.string(_lib.pto_status_text(status)).decode("ascii")


def describe(graph: Any, number: int) -> tuple[str, int, int, int, tuple[int, ...], tuple[Region, ...]]:
    """Name, buffer bytes, fanin, fanout, slots and regions of a task of a `pto_graph *`."""
    facts = _ffi.new("pto_task_facts *")
    if _lib.pto_graph_task(graph, number, facts) != _lib.PTO_OK:
        raise IndexError(f"no task {number}")
    kind = facts.kind
    regions: list[Region] = []
    tensor, rank = _ffi.new("int32_t *"), _ffi.new("int32_t *")
    for index in range(kind.num_accesses):
        access = ACCESSES[kind.accesses[index]]
        _lib.pto_graph_region(graph, number, index, tensor, _ffi.NULL, _ffi.NULL)
        if tensor[0] < 0:
            regions.append(Region(access, -1, (), ()))
            continue
        _lib.pto_graph_tensor_facts(graph, tensor[0], _ffi.NULL, _ffi.NULL, rank, _ffi.NULL, _ffi.NULL)
        offsets, extents = _ffi.new("int64_t[]", rank[0] + 1), _ffi.new("int64_t[]", rank[0] + 1)
        _lib.pto_graph_region(graph, number, index, tensor, offsets, extents)
        regions.append(Region(access, tensor[0], tuple(offsets)[: rank[0]], tuple(extents)[: rank[0]]))
    slots = tuple(facts.slots[i] for i in range(kind.num_slots))
    name = _ffi.string(kind.name).decode("utf-8")
    return name, kind.buffer_bytes, facts.fanin, facts.fanout, slots, tuple(regions)


def task_at(address: int, number: int) -> tuple[int, Task]:
    """A task of the `pto_graph` at an address (of a live graph the one that failed), and where its kind is."""
    graph = _ffi.cast("pto_graph *", address)
    name, buffer_bytes, fanin, fanout, slots, regions = describe(graph, number)
    facts = _ffi.new("pto_task_facts *")
    _lib.pto_graph_task(graph, number, facts)
    kind = int(_ffi.cast("uintptr_t", facts.kind))
    return kind, Task(number, name, fanin, fanout, buffer_bytes, regions, slots)


class TaskGraph:
    """A recorded graph of tasks.

    `runtime` runs it (None: the one of the process for all CPUs); `explain` finds the error behind a failed task.
    `build_seconds` is the time that recording took.  One thread at a time may add to a graph or look at it, and none
    while it runs: that is a LaunchError (PTO-A048), as is a task that runs its own graph.  Runs of one graph wait for
    each other.
    """

    __slots__ = ("__weakref__", "_added", "_arrays", "_explain", "_facts", "_graph", "_inside", "_kept", "_kinds",
                 "_lock", "_raised", "_tasks", "build_seconds", "runtime")  # fmt: skip

    def __init__(self, runtime: Runtime | None = None, *, explain: Explain | None = None) -> None:
        if runtime is not None and not isinstance(runtime, Runtime):
            raise TypeError(f"the runtime of a task graph is a Runtime, not {runtime!r}")
        if explain is not None and not callable(explain):
            raise TypeError(f"explain is a function, not {explain!r}")
        self.runtime = runtime if runtime is not None else default_runtime()
        self.build_seconds = 0.0
        self._explain = explain
        self._lock = threading.Lock()
        self._kept: list[Any] = []  # names, callbacks and whatever else tasks refer to
        self._arrays: dict[int, Any] = {}  # by identity
        self._inside: set[int] = set()  # threads that run a task in Python
        self._added: int | None = None  # tasks, when they were counted
        self._kinds: dict[tuple[Any, ...], Any] = {}
        self._raised: dict[int, BaseException] = {}
        self._tasks: tuple[Task, ...] | None = None
        self._facts: Any = None
        out = _ffi.new("pto_graph **")
        self._check(_lib.pto_graph_create(_ffi.cast("pto_runtime *", self.runtime.address), out), "create")
        self._graph = _ffi.gc(out[0], _lib.pto_graph_destroy)

    @classmethod
    def record(
        cls,
        build: Callable[[int], int],
        runtime: Runtime | None = None,
        *,
        explain: Explain | None = None,
        keep: Iterable[Any] = (),
    ) -> TaskGraph:
        """The graph that `build` fills: it gets the address of the `pto_graph` and returns a status.

        `keep` stays alive as long as the graph: compiled code, arrays, frames.
        Raises LaunchError (PTO-A041) when the program needs a value that a recorded task would write.
        """
        graph = cls(runtime, explain=explain)
        graph._kept.extend(keep)
        begin = time.perf_counter()
        status = build(graph.address)
        graph.build_seconds = time.perf_counter() - begin
        graph._check(status, "record")
        return graph

    @property
    def address(self) -> int:
        """The `pto_graph *` as a number."""
        return int(_ffi.cast("uintptr_t", self._graph))

    # ---- adding by hand ----

    def tensor(self, array: Any) -> int:
        """The number of a tensor: a NumPy array or whatever `as_tensor` takes, kept alive by the graph."""
        self._check_idle("a tensor is added")
        view = as_tensor(array, "array")
        if view is None:
            raise ArgumentError(f"PTO-A042: a tensor is wanted, not {type(array).__name__}")
        number = _ffi.new("int32_t *")
        rank = len(view.shape)
        pointer = _ffi.cast("void *", view.pointer)
        shape, strides = list(view.shape), list(view.strides)
        status = _lib.pto_graph_tensor(self._graph, pointer, view.itemsize, rank, shape, strides, number)
        self._check(status, "add a tensor to")
        self._arrays[id(view.owner)] = view.owner
        return number[0]

    def add(
        self,
        name: str,
        function: int | Callable[[tuple[int, ...]], object] | None = None,
        *,
        slots: Sequence[int] = (),
        reads: Iterable[Box] = (),
        writes: Iterable[Box] = (),
        updates: Iterable[Box] = (),
        buffer_bytes: int = 0,
    ) -> int:
        """Add a task; its number.

        `function` is the address of a `pto_task_fn`, or a Python function that is called with the slots (it holds the
        interpreter's lock, so such tasks do not run in parallel; what it raises fails the task), or None.
        `reads`, `writes` and `updates` are regions (array or tensor number, offsets, extents); a task reads what it
        updates before it writes it.
        Raises ArgumentError for a region outside its tensor (PTO-A043) and for arguments that are not of their kind
        (PTO-A042, PTO-A047).
        """
        begin = time.perf_counter()
        self._check_idle("a task is added")
        name, function, values = task_name(name), task_function(function), integers(slots, "slots")
        buffer_bytes = integer(buffer_bytes, "buffer_bytes", 0)
        accesses: list[int] = []
        words: list[int] = []
        for word, access, listed in (("reads", "read", reads), ("updates", "update", updates),
                                     ("writes", "write", writes)):  # fmt: skip
            for tensor, offsets, extents in boxes(listed, word):
                number = tensor if isinstance(tensor, int) and not isinstance(tensor, bool) else self.tensor(tensor)
                low, size = integers(offsets, "offsets"), integers(extents, "extents")
                self._check_region(number, low, size)
                accesses.append(_MODES[access])
                words += [number, *low, *size]
        kind = self._kind(name, function, buffer_bytes, len(values), tuple(accesses))
        number = self.num_tasks if self._added is None else self._added
        self._check(_lib.pto_task(self._graph, kind, values, words), "add a task to")
        self._facts = self._tasks = None
        self._added = number + 1
        self.build_seconds += time.perf_counter() - begin
        return number

    def _check_region(self, number: int, offsets: Sequence[int], extents: Sequence[int]) -> None:
        rank = _ffi.new("int32_t *")
        graph, null = self._graph, _ffi.NULL
        known = 0 <= number < 2**31
        if not known or _lib.pto_graph_tensor_facts(graph, number, null, null, rank, null, null) != _lib.PTO_OK:
            raise ArgumentError(f"PTO-A043: there is no tensor {number}; take the number that `tensor` returned")
        shape = _ffi.new("int64_t[]", rank[0] + 1)
        _lib.pto_graph_tensor_facts(graph, number, null, null, null, shape, null)
        limits = list(shape)[: rank[0]]
        if len(offsets) != len(limits) or len(extents) != len(limits):
            raise ArgumentError(f"PTO-A043: a region of tensor {number} has {len(limits)} offsets and extents")
        for offset, extent, limit in zip(offsets, extents, limits, strict=True):
            if offset < 0 or extent < 0 or offset + extent > limit:
                box = f"{list(offsets)} + {list(extents)}"
                raise ArgumentError(f"PTO-A043: the region {box} is outside tensor {number} of shape {limits}")

    def _kind(self, name: str, function: Any, buffer_bytes: int, num_slots: int, accesses: tuple[int, ...]) -> Any:
        identity = function if isinstance(function, Hashable) else ("id", id(function))  # its callback keeps it alive
        key = (name, identity, buffer_bytes, num_slots, accesses)
        kind = self._kinds.get(key)
        if kind is None:
            text = _ffi.new("char[]", name.encode("utf-8"))
            modes = _ffi.new("int32_t[]", [*accesses, 0])
            entry = self._entry(function, num_slots)
            kind = _ffi.new(
                "pto_task_kind *",
                {
                    "name": text, "function": entry, "buffer_bytes": buffer_bytes,
                    "num_slots": num_slots, "num_accesses": len(accesses), "accesses": modes,
                },
            )  # fmt: skip
            self._kept += [text, modes, entry]
            self._kinds[key] = kind
        return kind

    def _entry(self, function: Any, num_slots: int) -> Any:
        if function is None:
            return _ffi.NULL
        if isinstance(function, int):
            return _ffi.cast("pto_task_fn", function)
        raised, inside = self._raised, self._inside

        def run(worker: Any, slots: Any) -> int:
            inside.add(threading.get_ident())
            try:
                function(tuple(slots[i] for i in range(num_slots)))
            except BaseException as error:
                identity = id(error)
                raised[identity] = error
                return _lib.pto_fail(worker, 0, identity, 0, 0)
            finally:
                inside.discard(threading.get_ident())
            return 0

        return _ffi.callback("pto_task_fn", run)

    # ---- looking ----

    def _measured(self) -> Any:
        if self._facts is None:
            self._check_idle("it is measured")
            facts = _ffi.new("pto_graph_facts *")
            self._check(_lib.pto_graph_measure(self._graph, facts), "measure")
            self._facts = facts
        return self._facts

    @property
    def num_tasks(self) -> int:
        return self._measured().tasks

    @property
    def num_edges(self) -> int:
        return self._measured().edges

    @property
    def critical_path(self) -> int:
        """Tasks on the longest path."""
        return self._measured().critical_path

    @property
    def max_width(self) -> int:
        """Most tasks on one level, a task's level being the longest path to it."""
        return self._measured().max_width

    @property
    def bytes_per_task(self) -> float:
        """Memory of the graph over its tasks (0.0 without tasks): records, edges, regions, slots and the index."""
        facts = self._measured()
        return facts.bytes / facts.tasks if facts.tasks else 0.0

    @property
    def tasks(self) -> tuple[Task, ...]:
        if self._tasks is None:
            self._check_idle("its tasks are read")
            self._tasks = tuple(self._task(number) for number in range(self.num_tasks))
        return self._tasks

    def _task(self, number: int) -> Task:
        name, buffer_bytes, fanin, fanout, slots, regions = describe(self._graph, number)
        return Task(number, name, fanin, fanout, buffer_bytes, regions, slots)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs (task, task that waits for it), ascending."""
        self._check_idle("its edges are read")
        found: list[tuple[int, int]] = []
        facts = _ffi.new("pto_task_facts *")
        for number in range(self.num_tasks):
            self._check(_lib.pto_graph_task(self._graph, number, facts), "look at")
            out = np.empty(facts.fanout, np.int64)
            _lib.pto_graph_successors(self._graph, number, _ffi.cast("int64_t *", out.ctypes.data))
            found += [(number, later) for later in out.tolist()]
        return found

    def dumps(self) -> str:
        """The dump as text."""
        self._check_idle("it is dumped")
        length = _lib.pto_graph_dump(self._graph, _ffi.NULL, 0)
        if length < 0:
            self._check(-length, "dump")
        text = _ffi.new("char[]", length + 1)
        _lib.pto_graph_dump(self._graph, text, length)
        return _ffi.buffer(text, length)[:].decode("utf-8")

    def dump(self, path: str | Path) -> None:
        """Write the dump to a file, which `load_dump` and `python -m pto_jit graph` read."""
        write_text(path, self.dumps())

    def parsed(self) -> Dump:
        """The dump as values."""
        return parse_dump(self.dumps())

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        return to_dot(self.parsed())

    def render(self, path: str | Path) -> None:
        """Draw the graph as .pdf, .svg or .png; ToolchainError without Graphviz."""
        render(self.parsed(), path)

    # ---- running ----

    def run(self, num_threads: int | None = None, *, trace: bool = True) -> None:
        """Run all tasks and wait for them.

        `num_threads` limits the threads (None: all of the runtime's); `trace` keeps when and where each task ran (some
        40 ns per task).  Raises TaskError (PTO-A040) for the failed task that a serial run would have met first, after
        all tasks before it have run and none that follows has been started since.  KeyboardInterrupt and SystemExit of
        a task are raised as themselves.
        """
        threads = 0 if num_threads is None else integer(num_threads, "num_threads", 1, 2**31 - 1)
        if threading.get_ident() in self._inside:
            raise LaunchError("PTO-A048: a task runs the graph that it is part of\nhelp: run another graph, or call it")
        failure = _ffi.new("pto_failure *")
        with self._lock:
            self._raised.clear()
            status = _lib.pto_graph_execute(self._graph, _ffi.NULL, threads, bool(trace), failure)
            if status == _lib.PTO_OK:
                return
            if not failure.task:
                self._check(status, "run")
            self._raise(failure)

    def cancel(self) -> None:
        """Let a run on another thread end soon, with LaunchError (PTO-A044); no effect when none is under way."""
        _lib.pto_graph_cancel(self._graph)

    def events(self) -> list[TaskEvent]:
        """When and where the tasks of the last traced run ran, by task; those that did not are left out."""
        self._check_idle("its trace is read")
        count = _ffi.new("int64_t *")
        found = _lib.pto_graph_trace(self._graph, count)
        names = [task.name for task in self.tasks]
        return [
            TaskEvent(number, names[number], found[number].worker, found[number].begin_ns, found[number].end_ns)
            for number in range(count[0])
            if found[number].begin_ns
        ]

    def trace(self, path: str | Path, *, dependences: bool | None = None) -> None:
        """Write the trace of the last run for Perfetto or chrome://tracing, one row per worker.

        `dependences`: also an arrow for each; None: when there are at most 20,000, as they make most of a large file.
        Raises LaunchError (PTO-A045) before the first traced run.
        """
        events = self.events()
        if not events and self.num_tasks:
            raise LaunchError("PTO-A045: the graph has no trace yet\nhelp: call `run()` first, without `trace=False`")
        wanted = self.num_edges <= MOST_ARROWS if dependences is None else dependences
        write_trace(events, path, edges=self.edges if wanted else ())

    # ---- errors ----

    def _raise(self, record: Any) -> NoReturn:
        number = record.task - 1
        name, _, _, _, slots, regions = describe(self._graph, number)
        values = (record.v0, record.v1, record.v2)
        failure = TaskFailure(self.address, number, name, slots, regions, record.status, record.site, values)
        cause = self._raised.get(record.v0) if record.site == 0 else None
        if cause is None and record.site == _lib.PTO_SITE_NO_MEMORY:
            cause = MemoryError(f"{name}: {record.v0} bytes could not be had")
        if cause is None and self._explain is not None:
            cause = self._explain(failure)
        if isinstance(cause, TaskError) or not (cause is None or isinstance(cause, Exception)):
            raise cause
        raise task_error(failure, cause) from cause

    def _check_idle(self, what: str) -> None:
        if self._lock.locked():
            raise LaunchError(f"PTO-A048: the graph is running while {what}\nhelp: wait until `run()` has returned")

    def _check(self, status: int, what: str) -> None:
        if status == _lib.PTO_OK:
            return
        if status == _lib.PTO_NO_MEMORY:
            raise MemoryError(f"task graph: no memory to {what}")
        if status == _lib.PTO_NOT_RUN:
            raise LaunchError(
                "PTO-A041: the program needs a value that a recorded task would write\n"
                "help: call the function instead of recording it, or pass the value as an argument"
            )
        if status == _lib.PTO_CANCELLED:
            raise LaunchError("PTO-A044: the run was cancelled")
        raise LaunchError(f"PTO-A046: task graph, {what}: {_status_text(status)}")

    def _repr_svg_(self) -> str | None:
        """The drawing of up to 100 tasks, for notebooks; None where Graphviz cannot draw or the graph runs."""
        if (self._facts is None and self._lock.locked()) or self.num_tasks > SMALL:
            return None
        try:
            return drawn(self.parsed(), "svg").decode()
        except ToolchainError:
            return None

    def __repr__(self) -> str:
        if self._facts is None and self._lock.locked():
            return "TaskGraph(running)"
        return f"TaskGraph({self.num_tasks} tasks, {self.num_edges} edges)"


def task_error(failure: TaskFailure, cause: BaseException | None) -> TaskError:
    """The error of a failed task: its name, slots and regions, and the reason."""
    lines = [f"PTO-A040: task {failure.task}, `{failure.name}`, failed" + (f": {cause}" if cause is not None else "")]
    if cause is None:
        lines[0] += f" (site {failure.site}, values {', '.join(map(str, failure.values))})"
    if failure.slots:
        lines.append("  slots: " + ", ".join(map(str, failure.slots)))
    for region in failure.regions:
        if region.tensor >= 0:
            box = ", ".join(f"{o}:{o + e}" for o, e in zip(region.offsets, region.extents, strict=True))
            lines.append(f"  {region.access}: tensor {region.tensor}[{box}]")
    lines.append("help: tasks before it have run, tasks after it were not started")
    error = TaskError("\n".join(lines))
    error.code = "PTO-A040"
    return error
