# SPDX-License-Identifier: MIT
"""TaskGraph: what it says about a program of tasks, running it, failures, cancelling, threads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_jit.errors import ArgumentError, LaunchError, TaskError, ToolchainError
from pto_jit.runtime import Runtime
from pto_jit.runtime.graph import Region, TaskFailure, TaskGraph

FULL = ([0, 0], [8, 8])


def softmax_rows(tiles: int, graph: TaskGraph) -> None:
    """The seed's example: five tasks for each tile of 8 x 8."""
    x, shifted, exped, y = (graph.tensor(np.zeros((8 * tiles, 8), np.float32)) for _ in range(4))
    peak, total = (graph.tensor(np.zeros((8 * tiles, 1), np.float32)) for _ in range(2))
    for i in range(tiles):
        tile, column = ([8 * i, 0], [8, 8]), ([8 * i, 0], [8, 1])
        graph.add("rowmax", reads=[(x, *tile)], writes=[(peak, *column)], buffer_bytes=288)
        graph.add("rowexpandsub", reads=[(x, *tile), (peak, *column)], writes=[(shifted, *tile)], buffer_bytes=544)
        graph.add("elem_exp", reads=[(shifted, *tile)], writes=[(exped, *tile)], buffer_bytes=512)
        graph.add("rowsum", reads=[(exped, *tile)], writes=[(total, *column)], buffer_bytes=288)
        graph.add("rowexpanddiv", reads=[(exped, *tile), (total, *column)], writes=[(y, *tile)], buffer_bytes=544)


def test_a_graph_knows_its_measures() -> None:
    graph = TaskGraph(Runtime(2))
    softmax_rows(3, graph)
    assert (graph.num_tasks, graph.num_edges, graph.critical_path, graph.max_width) == (15, 15, 5, 3)
    assert graph.edges[:5] == [(0, 1), (1, 2), (2, 3), (2, 4), (3, 4)]
    assert graph.build_seconds > 0
    assert repr(graph) == "TaskGraph(15 tasks, 15 edges)"
    task = graph.tasks[6]
    assert (task.name, task.fanin, task.fanout, task.buffer_bytes) == ("rowexpandsub", 1, 1, 544)
    assert task.regions == (
        Region("read", 0, (8, 0), (8, 8)), Region("read", 4, (8, 0), (8, 1)), Region("write", 1, (8, 0), (8, 8)),
    )  # fmt: skip


def test_an_empty_graph_has_nothing_and_runs() -> None:
    graph = TaskGraph(Runtime(2))
    assert (graph.num_tasks, graph.num_edges, graph.critical_path, graph.max_width, graph.bytes_per_task) == (0,) * 5
    graph.run()
    assert graph.tasks == () and graph.edges == [] and graph.events() == []


def test_all_three_hazards_and_partial_overlap_make_edges() -> None:
    graph, x = TaskGraph(Runtime(1)), np.zeros((8, 8))
    graph.add("w", writes=[(x, [0, 0], [4, 4])])
    graph.add("r", reads=[(x, [3, 3], [5, 5])])  # after 0: they share one element
    graph.add("w", writes=[(x, [7, 7], [1, 1])])  # after 1: it reads that element
    graph.add("w", writes=[(x, [0, 0], [1, 8])])  # after 0: nobody read what they share
    graph.add("w", writes=[(x, [4, 0], [4, 3])])  # alone
    assert graph.edges == [(0, 1), (0, 3), (1, 2)]


def test_a_write_over_everything_hides_what_was_before() -> None:
    graph, x = TaskGraph(Runtime(1)), np.zeros((8, 8))
    for i in range(8):
        graph.add("row", writes=[(x, [i, 0], [1, 8])])
    graph.add("all", writes=[(x, *FULL)])
    graph.add("column", reads=[(x, [0, 3], [8, 1])])
    assert graph.edges == [(i, 8) for i in range(8)] + [(8, 9)]


def test_tasks_are_ordered_by_address_through_any_view() -> None:
    x = np.zeros((6, 8), np.float32)
    graph = TaskGraph(Runtime(1))
    graph.add("w", writes=[(x, [0, 0], [3, 8])])
    graph.add("flat", reads=[(x.reshape(-1), [16], [16])])  # rows 2 and 3
    graph.add("transposed", writes=[(x.T, [0, 3], [8, 1])])  # row 3
    graph.add("reversed", writes=[(x[::-1, ::-1], [0, 0], [1, 8])])  # row 5
    graph.add("even", reads=[(x[:, ::2], [5, 0], [1, 4])])
    graph.add("odd", writes=[(x[:, 1::2], [5, 0], [1, 4])])
    graph.add("odd before", updates=[(x[:, 1::2], [0, 0], [2, 4])])
    assert graph.edges == [(0, 1), (0, 6), (1, 2), (3, 4), (3, 5)]


def test_a_short_last_tile_is_one_only_at_the_end() -> None:
    for first in (0, 8):  # the tiles are known from a whole one, or looked at from the short one
        graph = TaskGraph(Runtime(1))
        x = graph.tensor(np.zeros((10, 8)))
        for row, rows in ((0, 4), (4, 4), (first, 4 if first == 0 else 2), (8, 2), (0, 2), (2, 2), (0, 4)):
            graph.add("w", writes=[(x, [row, 0], [rows, 8])])
        assert graph.tasks[4].regions == (Region("write", x, (0, 0), (2, 8)),)
        last = {0: [(0, 2), (2, 4), (2, 5)], 8: [(0, 4), (0, 5), (2, 3)]}[first]
        assert graph.edges == [*last, (4, 6), (5, 6)]


def test_regions_without_elements_are_no_accesses() -> None:
    graph, x = TaskGraph(Runtime(1)), np.zeros((4, 4))
    graph.add("w", writes=[(x, [0, 0], [4, 4])])
    graph.add("none", updates=[(x, [2, 2], [0, 2]), (np.zeros((0, 3)), [0, 0], [0, 3])])
    assert graph.edges == []
    assert [region.tensor for region in graph.tasks[1].regions] == [-1, -1]


def test_bytes_per_task_stay_small_for_many_tasks() -> None:
    graph = TaskGraph(Runtime(1))
    tensors = [graph.tensor(np.zeros((256, 8))) for _ in range(3)]
    for i in range(20000):
        at = [i % 256, 0]
        graph.add("t", slots=(i, 1), reads=[(tensors[0], at, [1, 8])], updates=[(tensors[1], at, [1, 8])])
    assert 40 < graph.bytes_per_task < 128


def test_a_region_outside_its_tensor_is_refused_by_name() -> None:
    graph, x = TaskGraph(Runtime(1)), np.zeros((4, 4))
    with pytest.raises(
        ArgumentError, match=r"PTO-A043: the region \[0, 2\] \+ \[4, 3\] is outside tensor 0 of shape \[4, 4\]"
    ):
        graph.add("w", writes=[(x, [0, 2], [4, 3])])
    with pytest.raises(ArgumentError, match="has 2 offsets and extents"):
        graph.add("w", writes=[(x, [0], [4])])
    with pytest.raises(ArgumentError, match="there is no tensor 7"):
        graph.add("w", writes=[(7, [0], [4])])
    with pytest.raises(ArgumentError, match="PTO-A042"):
        graph.tensor("text")
    graph.add("w", writes=[(x, *([0, 0], [4, 4]))])
    assert graph.num_tasks == 1


def test_python_functions_run_as_tasks_in_order() -> None:
    graph, x, seen = TaskGraph(Runtime(3)), np.zeros(4), []
    for i in range(40):
        graph.add("step", lambda slots: seen.append(slots), slots=(i, i % 4), updates=[(x, [i % 4], [1])])
    graph.run()
    assert sorted(seen) == [(i, i % 4) for i in range(40)]
    for column in range(4):
        assert [i for i, c in seen if c == column] == list(range(column, 40, 4))
    graph.run(1)
    assert len(seen) == 80


def test_a_failing_task_is_a_task_error_with_its_name_arguments_and_cause() -> None:
    graph, x, ran = TaskGraph(Runtime(2)), np.zeros((4, 4)), []

    def body(slots: tuple[int, ...]) -> None:
        ran.append(slots[0])
        if slots[0] >= 3:
            raise ZeroDivisionError(f"division {slots[0]}")

    for i in range(8):
        graph.add("divide", body, slots=(i, 10), updates=[(x, [1, 0], [2, 3])])
    with pytest.raises(TaskError) as caught:
        graph.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert str(caught.value) == (
        "PTO-A040: task 3, `divide`, failed: division 3\n"
        "  slots: 3, 10\n"
        "  update: tensor 0[1:3, 0:3]\n"
        "help: tasks before it have run, tasks after it were not started"
    )
    assert ran == [0, 1, 2, 3]
    with pytest.raises(TaskError, match="task 3"):  # the next run works as the first
        graph.run()


def test_of_several_failures_the_one_of_a_serial_run_is_reported() -> None:
    def body(slots: tuple[int, ...]) -> None:
        time.sleep(0.001 * (10 - slots[0] % 10))
        if slots[0] >= 5:
            raise ValueError(slots[0])

    for _ in range(5):
        graph = TaskGraph(Runtime(4))
        for i in range(12):
            graph.add("free", body, slots=(i,))
        with pytest.raises(TaskError, match="task 5,"):
            graph.run()


def test_a_failure_of_compiled_code_is_explained_by_the_host(kernels: Any) -> None:
    seen: list[TaskFailure] = []

    def explain(failure: TaskFailure) -> BaseException:
        seen.append(failure)
        return IndexError(f"site {failure.site}")

    graph = TaskGraph(Runtime(2), explain=explain)
    graph.add("fine", kernels.address("task_fail_if"), slots=(0, 5))
    graph.add("bad", kernels.address("task_fail_if"), slots=(1, 6))
    with pytest.raises(TaskError, match="`bad`, failed: site 7") as caught:
        graph.run()
    assert isinstance(caught.value.__cause__, IndexError)
    assert seen == [TaskFailure(graph.address, 1, "bad", (1, 6), (), 1, 7, (1, 6, 0))]


def test_a_running_graph_can_be_cancelled_from_another_thread() -> None:
    graph, x, ran = TaskGraph(Runtime(2)), np.zeros(1), []
    started = threading.Event()

    def body(slots: tuple[int, ...]) -> None:
        ran.append(slots[0])
        started.set()
        time.sleep(0.002)

    for i in range(500):
        graph.add("slow", body, slots=(i,), updates=[(x, [0], [1])])
    other = threading.Thread(target=lambda: (started.wait(), graph.cancel()))
    other.start()
    with pytest.raises(LaunchError, match="PTO-A044"):
        graph.run()
    other.join()
    assert 0 < len(ran) < 500


def test_many_python_threads_build_and_run_graphs_at_once() -> None:
    runtime = Runtime(3)
    results: list[list[int]] = []

    def work(seed: int) -> None:
        x, order = np.zeros(8), []
        for _ in range(5):
            graph = TaskGraph(runtime)
            for i in range(60):
                graph.add("step", lambda slots: order.append(slots[0]), slots=(i,), updates=[(x, [i % 2], [1])])
            graph.run()
        results.append(order)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for order in results:
        for begin in range(0, 300, 60):
            assert [i for i in order[begin : begin + 60] if i % 2 == 0] == list(range(0, 60, 2))


def test_the_trace_has_an_event_for_each_task_and_a_row_for_each_worker(tmp_path: Path, kernels: Any) -> None:
    graph, x = TaskGraph(Runtime(2)), np.zeros(8, np.int64)
    with pytest.raises(LaunchError, match="PTO-A045"):
        graph.add("first", updates=[(x, [0], [1])])
        graph.trace(tmp_path / "none.json")
    for i in range(30):
        graph.add("wait", kernels.address("task_wait"), slots=(20000 * (i % 3),), updates=[(x, [i % 4], [1])])
    graph.run()
    graph.trace(tmp_path / "t.json")
    shown = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    events = [event for event in shown if event["ph"] == "X"]
    assert sorted(event["args"]["task"] for event in events) == list(range(31))
    assert {event["tid"] for event in events} <= {1, 2}
    assert {event["tid"] for event in shown if event["name"] == "thread_name"} == {event["tid"] for event in events}
    ends = {event["args"]["task"]: event["ts"] + event["dur"] for event in events}
    begins = {event["args"]["task"]: event["ts"] for event in events}
    assert min(begins.values()) == 0
    for before, after in graph.edges:
        assert ends[before] <= begins[after] + 1e-3


def test_recording_by_a_function_times_it_and_reports_its_status() -> None:
    addresses: list[int] = []
    kept = object()
    graph = TaskGraph.record(lambda address: addresses.append(address) or 0, Runtime(1), keep=[kept])
    assert addresses == [graph.address] and graph.build_seconds >= 0
    with pytest.raises(LaunchError, match="PTO-A041: the program needs a value that a recorded task would write"):
        TaskGraph.record(lambda address: 5, Runtime(1))
    with pytest.raises(MemoryError):
        TaskGraph.record(lambda address: 2, Runtime(1))


def test_a_drawing_is_written_in_every_format(tmp_path: Path) -> None:
    graph = TaskGraph(Runtime(1))
    softmax_rows(2, graph)
    dot = graph.to_dot()
    assert "rankdir=LR" in dot and dot.count("rank=same") == 5 and dot.count("->") == 10
    assert '"1: rowexpandsub\\n544 B"' in dot
    if shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    for suffix, start in ((".pdf", b"%PDF"), (".svg", b"<?xml"), (".png", b"\x89PNG")):
        graph.render(tmp_path / f"g{suffix}")
        assert (tmp_path / f"g{suffix}").read_bytes().startswith(start)
    with pytest.raises(ValueError, match=r"\.pdf, \.svg, \.png"):
        graph.render(tmp_path / "g.bmp")


def test_drawing_without_graphviz_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    graph = TaskGraph(Runtime(1))
    with pytest.raises(ToolchainError, match=r"PTO-X140(?s:.*)package `graphviz`"):
        graph.render(tmp_path / "g.pdf")


def test_graphs_give_their_memory_back() -> None:
    runtime, x = Runtime(2), np.zeros(4)
    for _ in range(3):
        graph = TaskGraph(runtime)
        for i in range(3000):
            graph.add("t", slots=(i,), updates=[(x, [i % 4], [1])])
        graph.run()
        del graph
    assert runtime.statistics().buffers_live == 0


def test_the_interpreter_ends_cleanly_with_graphs_alive() -> None:
    program = (
        "import numpy as np\n"
        "from pto_jit.runtime.graph import TaskGraph\n"
        "g, x = TaskGraph(), np.zeros(3)\n"
        "for i in range(9): g.add('t', lambda slots: None, slots=(i,), updates=[(x, [i % 3], [1])])\n"
        "g.run()\nkeep = [g]\nprint('done')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
