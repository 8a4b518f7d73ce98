# SPDX-License-Identifier: MIT
"""Large task graphs have places of their own in a drawing; a trace is what viewers read and what happened."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pto_jit.runtime import Runtime
from pto_jit.runtime.drawing import SMALL, to_dot
from pto_jit.runtime.graph import TaskGraph
from pto_jit.runtime.layout import rows_of, spread


def test_spread_is_the_nearest_in_least_squares() -> None:
    """Against all places on a grid of halves and quarters: none is nearer."""
    rng = random.Random(3)
    for _ in range(60):
        wanted = sorted(rng.choice([-1.0, 0.0, 0.5, 0.75, 1.0, 2.5]) for _ in range(rng.randint(1, 3)))
        found = spread(wanted)
        assert all(b - a >= 1 - 1e-9 for a, b in itertools.pairwise(found))
        cost = sum((a - b) ** 2 for a, b in zip(found, wanted, strict=True))
        grid = [k / 4 for k in range(-12, 21)]
        for other in itertools.combinations(grid, len(wanted)):
            if all(b - a >= 1 for a, b in itertools.pairwise(other)):
                assert cost <= sum((a - b) ** 2 for a, b in zip(other, wanted, strict=True)) + 1e-9
    assert spread([]) == []


def test_rows_keep_tasks_of_a_level_apart_and_chains_straight() -> None:
    chains, length = 5, 6
    levels = [k for _ in range(chains) for k in range(length)]
    edges = [(c * length + k, c * length + k + 1) for c in range(chains) for k in range(length - 1)]
    rows = rows_of(levels, edges)
    assert min(rows) == 0
    for c in range(chains):
        assert len({round(rows[c * length + k], 6) for k in range(length)}) == 1, "a chain is one line"
    for level in range(length):
        column = sorted(row for row, at in zip(rows, levels, strict=True) if at == level)
        assert all(b - a >= 1 - 1e-9 for a, b in itertools.pairwise(column))
    assert rows_of([], []) == []


def _grid(rows: int, steps: int, buffer_bytes: int = 0) -> TaskGraph:
    """`rows` chains of `steps` tasks; each step reads the row below it too."""
    x = np.zeros((rows, steps + 1))
    graph = TaskGraph(Runtime(2))
    for k in range(steps):
        for r in range(rows):
            reads = [(x, [r, k], [1, 1])] + ([(x, [r + 1, k], [1, 1])] if r + 1 < rows else [])
            graph.add(f"step {k % 3}", lambda *_: 0, reads=reads, writes=[(x, [r, k + 1], [1, 1])],
                      buffer_bytes=buffer_bytes)  # fmt: skip
    return graph


def test_a_large_graph_is_placed_level_by_level(tmp_path: Path) -> None:
    graph = _grid(12, 12, 64)
    assert graph.num_tasks > SMALL
    dot = graph.to_dot()
    places = {int(n): (float(x), float(y)) for n, x, y in re.findall(r't(\d+) \[label.*?pos="([^,"]+),([^"]+)"', dot)}
    assert len(places) == graph.num_tasks
    for source, target in graph.edges:
        assert places[source][0] < places[target][0], "arrows point to the right"
    columns: dict[float, list[float]] = {}
    for x, y in places.values():
        columns.setdefault(x, []).append(y)
    assert len(columns) == graph.critical_path
    high = 72 * float(re.findall(r"height=([\d.]+)", dot)[0])
    for column in columns.values():
        column.sort()
        assert all(b - a > high for a, b in itertools.pairwise(column)), "no task covers another"
    assert len(re.findall(r"-> t\d+ \[pos=\"e,", dot)) == graph.num_edges
    if shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    graph.render(tmp_path / "g.svg")
    drawn = (tmp_path / "g.svg").read_text()
    assert drawn.count('class="node"') == graph.num_tasks and drawn.count('class="edge"') == graph.num_edges


def test_sizes_that_are_not_known_are_left_out() -> None:
    small = _grid(2, 2)
    assert " B" not in to_dot(small.parsed())
    assert '"0: step 0\\n64 B"' in to_dot(_grid(2, 2, 64).parsed())


def test_a_trace_has_every_task_once_in_an_order_that_the_edges_allow(tmp_path: Path) -> None:
    graph = _grid(6, 8)
    graph.run()
    graph.trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert sorted(e["args"]["task"] for e in events) == list(range(graph.num_tasks))
    named = {e["tid"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["tid"] for e in events} == named
    assert all(e["name"] == f"step {e['args']['task'] // 6 % 3}" and e["pid"] == 0 for e in events)
    assert min(e["ts"] for e in events) == 0 and all(e["dur"] >= 0 for e in events)
    at = {e["args"]["task"]: e for e in events}
    for source, target in graph.edges:
        assert at[source]["ts"] + at[source]["dur"] <= at[target]["ts"] + 1e-6
    for worker in named:  # one thing at a time
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == worker)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in itertools.pairwise(mine))
