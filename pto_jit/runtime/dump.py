# SPDX-License-Identifier: MIT
"""The text of a task graph read back: what `pto_runtime_dump` writes, as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pto_jit.errors import ParseError
from pto_jit.slotted import frozen

_RULE = "=" * 80
_N = r"[0-9]{1,19}"
_TASK = re.compile(
    rf"  Task (?P<number>{_N}): (?P<name>\S.*?) +\[(?P<state>READY|WAIT)\] fanin=(?P<fanin>{_N})"
    rf" buf=(?P<size>{_N}(?:\.{_N})?)(?P<unit>B|KB|MB) fanout=\[(?P<fanout>(?:{_N}(?:,{_N})*)?)\]"
)
_EDGE = re.compile(rf"  Task (?P<source>{_N}) -> Task (?P<target>{_N})")
_UNITS = {"B": 1, "KB": 1024, "MB": 1024 * 1024}


@frozen
class DumpedTask:
    """One line of the task table: `fanout` are the tasks that wait for this one, ascending."""

    number: int
    name: str
    ready: bool
    fanin: int
    buffer_bytes: int
    fanout: tuple[int, ...]


@frozen
class Dump:
    """A dump: tasks by number; `ready` of them wait for nothing."""

    tasks: tuple[DumpedTask, ...]
    ready: int

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Pairs (task, task that waits for it), ascending."""
        return [(task.number, later) for task in self.tasks for later in task.fanout]

    def levels(self) -> list[int]:
        """The level of each task, from 0: the longest path that leads to it."""
        level = [0] * len(self.tasks)
        for task in self.tasks:
            for later in task.fanout:
                level[later] = max(level[later], level[task.number] + 1)
        return level


class _Lines:
    """The lines of a file with the place of the one at hand."""

    def __init__(self, text: str, filename: str) -> None:
        self.lines = re.split(r"\r?\n", text)
        self.filename = filename
        self.at = 0

    def error(self, message: str, column: int = 0) -> ParseError:
        line = self.lines[self.at] if self.at < len(self.lines) else ""
        error = ParseError(message, self.filename, self.at + 1, column, line)
        error.code = "PTO-P050"
        return error

    def peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def expect(self, wanted: str) -> None:
        if self.peek() != wanted:
            raise self.error(f"expected {wanted!r}" if wanted else "expected an empty line")
        self.at += 1

    def number_after(self, label: str) -> int:
        line = self.peek() or ""
        found = re.fullmatch(rf"  {re.escape(label)} +({_N})", line)
        if found is None:
            raise self.error(f"expected `{label}` and a number")
        self.at += 1
        return int(found[1])


def _read_tasks(lines: _Lines) -> list[DumpedTask]:
    tasks: list[DumpedTask] = []
    while (line := lines.peek()) not in (None, ""):
        found = _TASK.fullmatch(line or "")
        if found is None:
            raise lines.error("expected `  Task N: name [READY|WAIT] fanin=N buf=NB fanout=[N,...]`")
        if int(found["number"]) != len(tasks):
            raise lines.error(f"expected task {len(tasks)}", found.start("number"))
        fanout = tuple(int(part) for part in found["fanout"].split(",") if part)
        if any(later <= len(tasks) for later in fanout) or list(fanout) != sorted(set(fanout)):
            raise lines.error("a task's fanout lists later tasks, ascending", found.start("fanout"))
        fanin = int(found["fanin"])
        if (found["state"] == "READY") != (fanin == 0):
            raise lines.error("a task is ready when its fanin is 0", found.start("state"))
        size = round(float(found["size"]) * _UNITS[found["unit"]])
        tasks.append(DumpedTask(len(tasks), found["name"], fanin == 0, fanin, size, fanout))
        lines.at += 1
    return tasks


def _check(tasks: Sequence[DumpedTask], lines: _Lines, first: int) -> None:
    """Every fanin is the number of tasks that have the task in their fanout."""
    counted = [0] * len(tasks)
    for task in tasks:
        for later in task.fanout:
            if later >= len(tasks):
                lines.at = first + task.number
                raise lines.error(f"there is no task {later}")
            counted[later] += 1
    for task in tasks:
        if counted[task.number] != task.fanin:
            lines.at = first + task.number
            raise lines.error(f"fanin is {task.fanin}, but {counted[task.number]} tasks have it in their fanout")


def parse_dump(text: str, filename: str = "<dump>") -> Dump:
    """The task graph that a dump describes; sizes may have a unit (B, KB, MB).

    Raises ParseError (PTO-P050) at the line that is not as it must be, also where two parts contradict each other.
    """
    if not isinstance(text, str):
        raise TypeError(f"the text of a dump is a string, not {type(text).__name__}; `load_dump` reads files")
    lines = _Lines(text, filename)
    for wanted in (_RULE, "PTO RUNTIME DUMP", _RULE, "", "SUMMARY"):
        lines.expect(wanted)
    total = lines.number_after("Total tasks scheduled:")
    ready = lines.number_after("Ready queue size:")
    lines.expect("")
    lines.expect("TASK TABLE")
    first = lines.at
    tasks = _read_tasks(lines)
    end = lines.at
    if len(tasks) != total:
        raise lines.error(f"{total} tasks are announced, {len(tasks)} listed")
    _check(tasks, lines, first)
    lines.at = end
    if sum(task.ready for task in tasks) != ready:
        lines.at = first - 3
        raise lines.error(f"{ready} ready tasks are announced, {sum(task.ready for task in tasks)} listed")
    lines.expect("")
    lines.expect("DEPENDENCY GRAPH")
    dump = Dump(tuple(tasks), ready)
    for source, target in dump.edges:
        found = _EDGE.fullmatch(lines.peek() or "")
        if found is None or (int(found["source"]), int(found["target"])) != (source, target):
            raise lines.error(f"expected `  Task {source} -> Task {target}`, as the table says")
        lines.at += 1
    while lines.peek() == "":
        lines.at += 1
    if lines.peek() is not None:
        raise lines.error("expected the end of the dump")
    return dump


def load_dump(path: str | Path) -> Dump:
    """`parse_dump` of a file; OSError when it cannot be read."""
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").split("\n")
        wrong = ParseError("expected text in UTF-8", str(path), len(before), len(before[-1]))
        wrong.code = "PTO-P050"
        raise wrong from None
    return parse_dump(text, str(path))
