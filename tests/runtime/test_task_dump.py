# SPDX-License-Identifier: MIT
"""The dump: the seed's text, read back, and refused where it is malformed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pto_jit.errors import ParseError
from pto_jit.runtime import Runtime, _native
from pto_jit.runtime.dump import Dump, DumpedTask, load_dump, parse_dump
from pto_jit.runtime.graph import TaskGraph

from .test_task_graph import softmax_rows

EXPECTED = """\
================================================================================
PTO RUNTIME DUMP
================================================================================

SUMMARY
  Total tasks scheduled:  5
  Ready queue size:      1

TASK TABLE
  Task 0: rowmax          [READY] fanin=0 buf=288B fanout=[1]
  Task 1: rowexpandsub    [WAIT] fanin=1 buf=544B fanout=[2]
  Task 2: elem_exp        [WAIT] fanin=1 buf=512B fanout=[3,4]
  Task 3: rowsum          [WAIT] fanin=1 buf=288B fanout=[4]
  Task 4: rowexpanddiv    [WAIT] fanin=2 buf=544B fanout=[]

DEPENDENCY GRAPH
  Task 0 -> Task 1
  Task 1 -> Task 2
  Task 2 -> Task 3
  Task 2 -> Task 4
  Task 3 -> Task 4
"""


def graph_of(tiles: int) -> TaskGraph:
    graph = TaskGraph(Runtime(1))
    softmax_rows(tiles, graph)
    return graph


def test_the_dump_is_the_documented_text() -> None:
    assert graph_of(1).dumps() == EXPECTED


def test_a_dump_is_read_back_as_it_was(tmp_path: Path) -> None:
    graph = graph_of(40)
    graph.dump(tmp_path / "g.txt")
    dump = load_dump(tmp_path / "g.txt")
    assert dump.edges == graph.edges and dump.ready == 40
    assert [(task.name, task.fanin, task.buffer_bytes) for task in dump.tasks] == [
        (task.name, task.fanin, task.buffer_bytes) for task in graph.tasks
    ]
    assert max(dump.levels()) + 1 == graph.critical_path
    assert max(np.bincount(dump.levels())) == graph.max_width


def test_the_c_library_writes_the_same_file_and_reports_a_path_it_cannot_write(tmp_path: Path) -> None:
    graph = graph_of(3)
    path = tmp_path / "c.txt"
    handle = _native.ffi.cast("pto_graph *", graph.address)
    assert _native.lib.pto_runtime_dump(handle, str(path).encode()) == _native.lib.PTO_OK
    assert path.read_text() == graph.dumps()
    assert _native.lib.pto_runtime_dump(handle, str(tmp_path / "no" / "where").encode()) == _native.lib.PTO_NO_FILE


def test_the_c_library_writes_the_dump_to_the_standard_output() -> None:
    program = (
        "from pto_jit.runtime.graph import TaskGraph\nfrom pto_jit.runtime import _native\n"
        "g = TaskGraph()\ng.add('only', buffer_bytes=7)\n"
        "_native.lib.pto_runtime_dump_stdout(_native.ffi.cast('pto_graph *', g.address))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert parse_dump(ended.stdout) == Dump((DumpedTask(0, "only", True, 0, 7, ()),), 1)


def test_sizes_with_units_are_read() -> None:
    text = EXPECTED.replace("288B fanout=[1]", "288.0KB fanout=[1]").replace("544B fanout=[]", "1.5MB fanout=[]")
    dump = parse_dump(text)
    assert (dump.tasks[0].buffer_bytes, dump.tasks[4].buffer_bytes) == (288 * 1024, 1536 * 1024)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("PTO RUNTIME DUMP", "DUMP", 2, "expected 'PTO RUNTIME DUMP'"),
        ("scheduled:  5", "scheduled:  6", 15, "6 tasks are announced, 5 listed"),
        ("queue size:      1", "queue size:      2", 7, "2 ready tasks are announced, 1 listed"),
        ("queue size:      1", "queue size:      x", 7, "expected `Ready queue size:` and a number"),
        ("Task 3: rowsum ", "Task 4: rowsum ", 13, "expected task 3"),
        ("[WAIT] fanin=2", "[WAIT] fanin=1", 14, "fanin is 1, but 2 tasks have it in their fanout"),
        ("[READY] fanin=0", "[WAIT] fanin=0", 10, "a task is ready when its fanin is 0"),
        ("fanout=[3,4]", "fanout=[4,3]", 12, "ascending"),
        ("fanout=[3,4]", "fanout=[1,4]", 12, "lists later tasks"),
        ("fanout=[3,4]", "fanout=[3,9]", 12, "there is no task 9"),
        ("fanout=[3,4]", "fanout=[3,4", 12, "expected `  Task N: name"),
        ("Task 2 -> Task 3", "Task 2 -> Task 2", 19, "expected `  Task 2 -> Task 3`"),
        ("  Task 3 -> Task 4\n", "", 21, "expected `  Task 3 -> Task 4`"),
        ("  Task 3 -> Task 4\n", "  Task 3 -> Task 4\nmore\n", 22, "expected the end"),
    ],
)
def test_a_malformed_dump_is_refused_at_its_line(old: str, new: str, line: int, message: str) -> None:
    assert EXPECTED.count(old) == 1
    with pytest.raises(ParseError) as caught:
        parse_dump(EXPECTED.replace(old, new), "g.txt")
    assert caught.value.lineno == line and message in str(caught.value) and "PTO-P050" in str(caught.value)


def test_any_cut_of_a_dump_is_a_parse_error_and_never_another() -> None:
    for end in range(len(EXPECTED) - 1):
        with pytest.raises(ParseError):
            parse_dump(EXPECTED[:end])


def test_the_command_draws_a_dump(tmp_path: Path) -> None:
    graph_of(2).dump(tmp_path / "g.txt")
    command = [sys.executable, "-m", "pto_jit", "graph", str(tmp_path / "g.txt")]
    subprocess.run([*command, str(tmp_path / "g.dot")], check=True, timeout=60)
    assert (tmp_path / "g.dot").read_text() == graph_of(2).to_dot()
    (tmp_path / "bad.txt").write_text("nothing\n")
    ended = subprocess.run(
        [*command[:-1], str(tmp_path / "bad.txt"), str(tmp_path / "g.pdf")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1 and "bad.txt:1:1" in ended.stderr + ended.stdout
    ended = subprocess.run([*command, str(tmp_path / "g.bmp")], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2 and ".pdf, .svg, .png" in ended.stderr
