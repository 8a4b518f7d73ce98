# SPDX-License-Identifier: MIT
"""When and where tasks ran, in the event format that Perfetto and chrome://tracing show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pto_jit.slotted import frozen

from .files import write_text


@frozen
class TaskEvent:
    """One run of a task: times in nanoseconds on a monotonic clock, `worker` 0 for the thread that ran the graph."""

    task: int
    name: str
    worker: int
    begin_ns: int
    end_ns: int


_PROCESS = 1
"""Process and threads are counted from 1: Perfetto takes 0 for the idle task, whose rows it joins with others."""


def to_trace_events(events: Iterable[TaskEvent], edges: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """The trace as the JSON object that viewers read: a row per worker, times in microseconds from the first event.

    Each of the `edges` between tasks that ran becomes a flow: an arrow from the end of one to the begin of the other.
    """
    listed = sorted(events, key=lambda event: (event.begin_ns, event.task))
    start = listed[0].begin_ns if listed else 0
    rows: list[dict[str, Any]] = [{"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": "task graph"}}]
    for worker in sorted({event.worker for event in listed}):
        name = "caller" if worker == 0 else f"worker {worker}"
        thread = {"ph": "M", "pid": _PROCESS, "tid": 1 + worker}
        rows.append({**thread, "name": "thread_name", "args": {"name": name}})
        rows.append({**thread, "name": "thread_sort_index", "args": {"sort_index": worker}})
    rows += [
        {
            "ph": "X", "pid": _PROCESS, "tid": 1 + event.worker, "cat": "task", "name": event.name,
            "ts": (event.begin_ns - start) / 1000, "dur": (event.end_ns - event.begin_ns) / 1000,
            "args": {"task": event.task},
        }
        for event in listed
    ]  # fmt: skip
    ran = {event.task: event for event in listed}
    flow = {"pid": _PROCESS, "cat": "dependence", "name": "dependence"}
    for number, (source, target) in enumerate(edges):
        if source in ran and target in ran:
            first, last = ran[source], ran[target]
            leaves = max(first.begin_ns, first.end_ns - 1)  # inside of the slice that it belongs to
            rows.append({"ph": "s", "id": number, "tid": 1 + first.worker, "ts": (leaves - start) / 1000, **flow})
            rows.append({"ph": "f", "bp": "e", "id": number, "tid": 1 + last.worker,
                         "ts": (last.begin_ns - start) / 1000, **flow})  # fmt: skip
    return {"displayTimeUnit": "ns", "traceEvents": rows}


def write_trace(events: Iterable[TaskEvent], path: str | Path, edges: Iterable[tuple[int, int]]) -> None:
    """Write the trace to a .json file."""
    write_text(path, json.dumps(to_trace_events(events, edges), separators=(",", ":")) + "\n")
