# SPDX-License-Identifier: MIT
"""Drawing a task graph: from left to right, the tasks of one level in one column."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

from pto_jit.errors import ToolchainError

from .dump import Dump

FORMATS = ("pdf", "svg", "png")


def _size(count: int) -> str:
    return f"{count} B" if count < 10240 else f"{count / 1024:.1f} KB"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_dot(dump: Dump) -> str:
    """The graph in Graphviz's language: a node per task with its name and buffer size, an arrow per dependence."""
    lines = [
        "digraph tasks {",
        "  rankdir=LR;",
        '  node [shape=box, style="rounded,filled", fillcolor="#eef3fb", fontname="Helvetica", fontsize=10];',
        '  edge [color="#5b6b83", arrowsize=0.7];',
    ]
    columns: dict[int, list[int]] = defaultdict(list)
    for task, level in zip(dump.tasks, dump.levels(), strict=True):
        columns[level].append(task.number)
        color = ', fillcolor="#d9f0dd"' if task.ready else ""
        label = _quoted(f"{task.number}: {task.name}")[:-1] + f'\\n{_size(task.buffer_bytes)}"'
        lines.append(f"  t{task.number} [label={label}{color}];")
    for level in sorted(columns):
        lines.append("  { rank=same; " + " ".join(f"t{number};" for number in columns[level]) + " }")
    lines += [f"  t{source} -> t{target};" for source, target in dump.edges]
    return "\n".join([*lines, "}"]) + "\n"


def render(dump: Dump, path: str | Path) -> None:
    """Write the drawing as .pdf, .svg or .png.

    Raises ValueError for another suffix; ToolchainError without Graphviz (PTO-X140), or with what it said when it
    failed (PTO-X141).  Some thousand tasks take Graphviz minutes: draw a smaller instance of the program.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"{path}: a drawing is written as {', '.join('.' + name for name in FORMATS)}")
    program = shutil.which("dot")
    if program is None:
        raise ToolchainError(
            "PTO-X140: drawing a task graph needs Graphviz, and `dot` is not on the PATH\n"
            "help: install the system package `graphviz`, or take the text of `to_dot()` elsewhere"
        )
    done = subprocess.run(
        [program, f"-T{kind}", "-o", str(path)], input=to_dot(dump), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip() or "(nothing)"
        raise ToolchainError(f"PTO-X141: dot failed with code {done.returncode}:\n{said}\nhelp: look at `to_dot()`")
