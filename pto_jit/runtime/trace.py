# SPDX-License-Identifier: MIT
"""When and where tasks ran, in the event format that Perfetto and chrome://tracing show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pto_jit.slotted import frozen


@frozen
class TaskEvent:
    """One run of a task: times in nanoseconds on a monotonic clock, `worker` 0 for the thread that ran the graph."""

    task: int
    name: str
    worker: int
    begin_ns: int
    end_ns: int


def to_trace_events(events: Iterable[TaskEvent], title: str) -> dict[str, Any]:
    """The trace as the JSON object that viewers read: a row per worker, times in microseconds from the first event."""
    listed = sorted(events, key=lambda event: (event.begin_ns, event.task))
    start = listed[0].begin_ns if listed else 0
    rows: list[dict[str, Any]] = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}}]
    for worker in sorted({event.worker for event in listed}):
        name = "caller" if worker == 0 else f"worker {worker}"
        rows.append({"ph": "M", "pid": 0, "tid": worker, "name": "thread_name", "args": {"name": name}})
    rows += [
        {
            "ph": "X", "pid": 0, "tid": event.worker, "cat": "task", "name": event.name,
            "ts": (event.begin_ns - start) / 1000, "dur": (event.end_ns - event.begin_ns) / 1000,
            "args": {"task": event.task},
        }
        for event in listed
    ]  # fmt: skip
    return {"displayTimeUnit": "ns", "traceEvents": rows}


def write_trace(events: Iterable[TaskEvent], path: str | Path, title: str = "task graph") -> None:
    """Write the trace to a .json file."""
    Path(path).write_text(json.dumps(to_trace_events(events, title), separators=(",", ":")) + "\n", "utf-8")
