# SPDX-License-Identifier: MIT
"""What `TaskGraph`, its dump and its files are given: taken, or refused by name with nothing changed."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_jit.errors import ArgumentError, LaunchError, ParseError, TaskError, ToolchainError
from pto_jit.runtime import Runtime, drawing
from pto_jit.runtime.dump import load_dump, parse_dump
from pto_jit.runtime.files import write_text, written
from pto_jit.runtime.graph import Region, TaskGraph

X = np.zeros((8, 8), np.float32)
ALL = ([0, 0], [8, 8])
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": None}, "PTO-A047: the name of a task is None"),
    ({"name": ""}, "PTO-A047: the name"),
    ({"name": "a\nb"}, "PTO-A047: the name"),
    ({"name": "a\0b"}, "PTO-A047: the name"),
    ({"name": "a\u2028b"}, "PTO-A047: the name"),
    ({"name": " a"}, "PTO-A047: the name"),
    ({"name": "\ud800"}, "PTO-A047: the name"),
    ({"function": "f"}, "PTO-A047: the function of a task is 'f'"),
    ({"function": True}, "PTO-A047: the function of a task is True"),
    ({"function": -1}, "PTO-A047: the address of a function is -1"),
    ({"function": 2**70}, "PTO-A047: the address of a function"),
    ({"slots": 3}, "PTO-A047: slots are 3"),
    ({"slots": "12"}, "PTO-A047: slots are '12'"),
    ({"slots": (1, 1.5)}, "PTO-A047: element 1 of slots is 1.5, not an integer"),
    ({"slots": (2**63,)}, "PTO-A047: element 0 of slots is 9223372036854775808"),
    ({"reads": None}, "PTO-A047: `reads` is None"),
    ({"writes": (X, *ALL)}, "PTO-A047: an element of `writes` does not have the form"),
    ({"updates": [(X, [0, 0])]}, "PTO-A047: an element of `updates` does not have the form"),
    ({"reads": [(X, 0, [8, 8])]}, "PTO-A047: offsets are 0"),
    ({"reads": [(X, [0, 0.0], [8, 8])]}, "PTO-A047: element 1 of offsets is 0.0, not an integer"),
    ({"reads": [(X, [0, 0], [8, True])]}, "PTO-A047: element 1 of extents is True, not an integer"),
    ({"reads": [(2**40, *ALL)]}, "PTO-A043: there is no tensor 1099511627776"),
    ({"reads": [(-1, *ALL)]}, "PTO-A043: there is no tensor -1"),
    ({"reads": [(True, *ALL)]}, "PTO-A042: a tensor is wanted, not bool"),
    ({"buffer_bytes": -1}, "PTO-A047: buffer_bytes is -1"),
    ({"buffer_bytes": 1.5}, "PTO-A047: buffer_bytes is 1.5, not an integer"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=[str(k) for k in range(len(REFUSED))])
def test_an_argument_that_is_not_of_its_kind_changes_nothing(given: dict[str, Any], message: str) -> None:
    graph = TaskGraph(Runtime(1))
    graph.add("first", writes=[(X, *ALL)])
    with pytest.raises(ArgumentError) as caught:
        graph.add(**{"name": "t", **given})
    assert str(caught.value).startswith(message)
    graph.add("next", reads=[(X, *ALL)])
    assert graph.edges == [(0, 1)] and parse_dump(graph.dumps()).edges == [(0, 1)]
    graph.run()


def test_integers_of_any_kind_are_taken() -> None:
    graph, seen = TaskGraph(Runtime(1)), []
    graph.add("t", seen.append, slots=np.arange(3), reads=iter([[X, [0, 0], [1, 1]]]), buffer_bytes=np.int16(7))  # type: ignore[arg-type]
    graph.add("u", writes=[(X, np.array([0, 4]), (np.int8(8), 4))])  # type: ignore[list-item]
    graph.run(np.int32(1))  # type: ignore[arg-type]
    assert seen == [(0, 1, 2)] and graph.tasks[0].buffer_bytes == 7
    assert graph.tasks[1].regions == (Region("write", 0, (0, 4), (8, 4)),)


def test_a_function_that_cannot_be_hashed_is_called_as_any_other() -> None:
    @dataclass
    class Noting:
        seen: list[tuple[int, ...]]

        def __call__(self, slots: tuple[int, ...]) -> None:
            self.seen.append(slots)

    graph, note = TaskGraph(Runtime(1)), Noting([])
    graph.add("t", note, slots=(1,))
    graph.add("t", note, slots=(2,))
    graph.run(1)
    assert sorted(note.seen) == [(1,), (2,)] and len(graph._kinds) == 1


@pytest.mark.parametrize("threads", [0, -1, True, "2", 1.0, 2**40])
def test_numbers_of_threads_that_are_none(threads: Any) -> None:
    with pytest.raises(ArgumentError, match="PTO-A047: num_threads is"):
        TaskGraph(Runtime(1)).run(threads)


def test_what_a_graph_is_made_of() -> None:
    with pytest.raises(TypeError, match="the runtime of a task graph is a Runtime, not 2"):
        TaskGraph(2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="explain is a function, not 3"):
        TaskGraph(Runtime(1), explain=3)  # type: ignore[arg-type]


ACTIONS: dict[str, Callable[[TaskGraph], object]] = {
    "run": lambda graph: graph.run(),
    "add": lambda graph: graph.add("more", writes=[(X, *ALL)]),
    "tensor": lambda graph: graph.tensor(np.zeros(3)),
    "measure": lambda graph: graph.critical_path,
    "tasks": lambda graph: graph.tasks,
    "edges": lambda graph: graph.edges,
    "dumps": lambda graph: graph.dumps(),
    "events": lambda graph: graph.events(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_task_that_asks_something_of_its_running_graph_is_refused(action: str) -> None:
    """It waited for itself for ever, or saw a graph without tasks and remembered that."""
    graph = TaskGraph(Runtime(2))
    graph.add("t", lambda slots: ACTIONS[action](graph), writes=[(X, *ALL)])
    with pytest.raises(TaskError, match="task 0, `t`, failed: PTO-A048: ") as caught:
        graph.run()
    assert isinstance(caught.value.__cause__, LaunchError)
    assert (graph.num_tasks, graph.critical_path, len(graph.tasks), graph.edges) == (1, 1, 1, [])
    assert repr(graph) == "TaskGraph(1 tasks, 0 edges)"


def test_a_running_graph_is_left_alone_by_other_threads() -> None:
    graph, started, over = TaskGraph(Runtime(1)), threading.Event(), threading.Event()
    graph.add("t", lambda slots: (started.set(), over.wait(20)))
    other = threading.Thread(target=graph.run)
    other.start()
    assert started.wait(20)
    assert repr(graph) == "TaskGraph(running)"
    with pytest.raises(LaunchError, match="PTO-A048: the graph is running while a task is added"):
        graph.add("more")
    over.set()
    other.join()
    assert graph.add("more") == 1 and repr(graph) == "TaskGraph(2 tasks, 0 edges)"


def test_a_task_may_run_another_graph() -> None:
    inner, outer, seen = TaskGraph(Runtime(1)), TaskGraph(Runtime(2)), []
    inner.add("inner", seen.append, slots=(1,))
    for k in range(4):
        outer.add("outer", lambda slots: inner.run(), slots=(k,))
    outer.run()
    assert seen == [(1,)] * 4


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_no_failure_of_a_task(kind: type[BaseException]) -> None:
    def body(slots: tuple[int, ...]) -> None:
        raise kind

    graph = TaskGraph(Runtime(1))
    graph.add("t", body)
    with pytest.raises(kind):
        graph.run()


def test_adding_many_tasks_takes_time_in_proportion() -> None:
    """Each task counted the levels of all before it; arrays were kept once for each access."""
    graph, x = TaskGraph(Runtime(1)), np.zeros((8, 8))
    assert [graph.add("t", updates=[(x, *ALL)]) for _ in range(3000)] == list(range(3000))
    assert graph.critical_path == 3000 and len(graph._arrays) == 1


# -- dumps and files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Task 0", "Task " + "1" * 5000), (":  1", ":  " + "1" * 5000), ("buf=0B", "buf=" + "9" * 400 + "B"),
        ("Task 0", "Task \u0660"), ("fanin=0", "fanin=\u00b2"), ("\n\nTASK", "\x0b\nTASK"),
    ],
)  # fmt: skip
def test_numbers_that_no_dump_has(old: str, new: str) -> None:
    graph = TaskGraph(Runtime(1))
    graph.add("only")
    text = graph.dumps()
    assert old in text
    with pytest.raises(ParseError, match="expected") as caught:
        parse_dump(text.replace(old, new, 1))
    assert caught.value.code == "PTO-P050" and caught.value.lineno


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "d.txt"
    path.write_bytes(b"====\n==\xff\xfe")
    with pytest.raises(ParseError, match="expected text in UTF-8") as caught:
        load_dump(path)
    assert (caught.value.lineno, caught.value.code) == (2, "PTO-P050")
    with pytest.raises(TypeError, match="`load_dump` reads files"):
        parse_dump(path)  # type: ignore[arg-type]


def test_a_dump_with_the_line_ends_of_another_system(tmp_path: Path) -> None:
    graph = TaskGraph(Runtime(1))
    graph.add("a", writes=[(X, *ALL)])
    graph.add("b", reads=[(X, *ALL)])
    (tmp_path / "d.txt").write_bytes(graph.dumps().replace("\n", "\r\n").encode())
    assert load_dump(tmp_path / "d.txt") == graph.parsed()


def test_files_with_long_names_and_what_an_ended_writer_left_are_no_hindrance(tmp_path: Path) -> None:
    for path in (tmp_path / "dump.txt", tmp_path / f"{'é' * 120}.txt"):
        path.with_name(f".{path.name[:100]}.{os.getpid()}.new").write_text("half")
        write_text(path, "whole")
        assert path.read_text() == "whole"


def test_a_link_to_itself_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(OSError, match="link"):
        write_text(tmp_path / "link", "text")


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path, link = tmp_path / "g.txt", tmp_path / "link"
    write_text(path, "before\n")
    path.chmod(0o640)
    link.symlink_to(path)
    with pytest.raises(ZeroDivisionError), written(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert path.read_text() == "before\n"
    write_text(link, "after\n")
    assert link.is_symlink() and path.read_text() == "after\n" and stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "none" / "x", "")
    assert caught.value.filename == str(tmp_path / "none" / "x")
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["g.txt", "link"]


def test_a_drawing_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "g.svg"
    path.write_text("before")
    monkeypatch.setattr(drawing, "to_dot", lambda dump: "digraph {")
    fake = tmp_path / "dot"
    fake.write_text("#!/bin/sh\ncat > /dev/null\necho half\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(drawing.shutil, "which", lambda name: str(fake))
    graph = TaskGraph(Runtime(1))
    with pytest.raises(ToolchainError, match="PTO-X141"):
        graph.render(path)
    assert path.read_text() == "before"
