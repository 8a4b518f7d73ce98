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


def test_few_arrows_between_columns_cross() -> None:
    """Rows of attention: each row's chain starts from its own two tasks, and step j needs the second task of row j."""
    count = 8
    levels = [0] * count + [1] * (2 * count)
    edges = [(i, count + i) for i in range(count)] + [(i, 2 * count + i) for i in range(count)]
    for i in range(count):
        for j in range(count):
            last = count + i if j == 0 else len(levels) - 1
            levels.append(2 + j)
            edges += [(last, len(levels) - 1), (2 * count + j, len(levels) - 1)]
    rows = rows_of(levels, edges)
    crossings = 0
    for level in range(max(levels)):
        here = [(rows[a], rows[b]) for a, b in edges if (levels[a], levels[b]) == (level, level + 1)]
        crossings += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in itertools.combinations(here, 2))
    assert crossings <= 20, "18 when this was written; 24 with means alone"


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


def test_arrows_past_columns_run_where_no_task_stands() -> None:
    """a -> b -> (c, d) -> e with a -> e, many times: c and d stand half a row above and below the others."""
    x = np.zeros((40, 5))
    graph = TaskGraph(Runtime(1))
    for r in range(len(x)):
        for reads, write in (((), 0), ((0,), 1), ((1,), 2), ((1,), 3), ((0, 2, 3), 4)):
            graph.add("step", lambda *_: 0, reads=[(x, [r, k], [1, 1]) for k in reads], writes=[(x, [r, write], [1, 1])])
    dot = graph.to_dot()
    high = 72 * float(re.findall(r"height=([\d.]+)", dot)[0])
    node = r't(\d+) \[label.*?pos="([^,"]+),([^"]+)", width=([\d.]+)'
    boxes = [(float(x), float(y), 36 * float(w)) for _, x, y, w in re.findall(node, dot)]
    long = re.findall(r't(\d+) -> t(\d+) \[pos="e,\S+ ([^"]*)"', dot)
    curves = [c for a, b, c in long if int(b) - int(a) == 4]
    assert len(boxes) == 200 and len(curves) == len(x)
    for curve in curves:
        points = [tuple(map(float, p.split(","))) for p in curve.split()]
        (left, level), (right, same) = points[3], points[6]
        assert level == same
        assert not any(left < at + half and at - half < right and abs(y - level) < high / 2 for at, y, half in boxes)


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
    assert all(e["tid"] >= 1 for e in trace["traceEvents"] if "tid" in e), "0 is the idle task of Perfetto"
    assert {e["pid"] for e in trace["traceEvents"]} == {1}
    assert all(e["name"] == f"step {e['args']['task'] // 6 % 3}" for e in events)
    assert min(e["ts"] for e in events) == 0 and all(e["dur"] >= 0 for e in events)
    at = {e["args"]["task"]: e for e in events}
    for source, target in graph.edges:
        assert at[source]["ts"] + at[source]["dur"] <= at[target]["ts"] + 1e-6
    flows = [e for e in trace["traceEvents"] if e["ph"] in "sf"]
    ends = {ph: {e["id"]: e for e in flows if e["ph"] == ph} for ph in "sf"}
    assert len(ends["s"]) == len(ends["f"]) == graph.num_edges and len(flows) == 2 * graph.num_edges
    for number, (source, target) in enumerate(graph.edges):
        leaves, arrives = ends["s"][number], ends["f"][number]
        for end, task in ((leaves, at[source]), (arrives, at[target])):
            assert end["tid"] == task["tid"] and task["ts"] <= end["ts"] <= task["ts"] + task["dur"]
        assert leaves["ts"] <= arrives["ts"] and arrives["bp"] == "e"
        assert (leaves["cat"], leaves["name"]) == (arrives["cat"], arrives["name"])
    graph.trace(tmp_path / "u.json", dependences=False)
    assert json.loads((tmp_path / "u.json").read_text())["traceEvents"] == [
        e for e in trace["traceEvents"] if e["ph"] not in "sf"
    ]
    for worker in named:  # one thing at a time
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == worker)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in itertools.pairwise(mine))
