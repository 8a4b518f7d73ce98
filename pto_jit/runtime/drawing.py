# SPDX-License-Identifier: MIT
"""Drawing a task graph: from left to right, the tasks of one level in one column."""

from __future__ import annotations

import shutil
import subprocess
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from pto_jit.errors import ToolchainError

from .dump import Dump
from .files import written
from .layout import rows_of

FORMATS = ("pdf", "svg", "png")
SMALL = 100
"""Up to this many tasks Graphviz places them itself: best to look at, but its time grows faster than the graph."""
FILLS = ("#dbe9f6", "#fde5c8", "#dcf0d9", "#f6d9dd", "#e6dff2", "#efe4d3", "#d5eeee", "#f5f1c4", "#f3dcec", "#e4e4e4")
"""Colours of the functions, in the order in which they appear; then again from the first."""
PITCH, GAP, LETTER = 18.0, 50.0, 5.6
"""Points: between tasks of a column, between columns, width of a letter."""


def _size(count: int) -> str:
    return f"{count} B" if count < 10240 else f"{count / 1024:.1f} KB"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def to_dot(dump: Dump) -> str:
    """The graph in Graphviz's language: a node per task with its name and buffer size, an arrow per dependence.

    Functions have colours, tasks that wait for nothing a bold border; sizes are left out where they are not known
    before a call (0).  In large graphs every node and arrow has its place, from `layout`, in points.
    """
    levels = dump.levels()
    nodes = _nodes(dump)
    if len(nodes) > SMALL:
        lines = _placed(dump, levels, nodes)
    else:
        lines = ["  rankdir=LR;"]
        lines += [f"  t{task.number} [{node}];" for task, node in zip(dump.tasks, nodes, strict=True)]
        columns: dict[int, list[int]] = defaultdict(list)
        for task, level in zip(dump.tasks, levels, strict=True):
            columns[level].append(task.number)
        for level in sorted(columns):
            lines.append("  { rank=same; " + " ".join(f"t{number};" for number in columns[level]) + " }")
        lines += [f"  t{source} -> t{target};" for source, target in dump.edges]
    head = [
        "digraph tasks {",
        '  node [shape=box, style="rounded,filled", color="#5b6b83", fontname="Helvetica", fontsize=10];',
        '  edge [color="#5b6b83", arrowsize=0.7];',
    ]
    return "\n".join([*head, *lines, "}"]) + "\n"


def _nodes(dump: Dump) -> list[str]:
    """What each task looks like."""
    fills: dict[str, str] = {}
    nodes: list[str] = []
    for task in dump.tasks:
        fill = fills.setdefault(task.name, FILLS[len(fills) % len(FILLS)])
        size = f"\\n{_size(task.buffer_bytes)}" if task.buffer_bytes else ""
        label = _quoted(f"{task.number}: {task.name}")[:-1] + f'{size}"'
        bold = ', penwidth=2.2, color="#2e8b45"' if task.ready else ""
        nodes.append(f'label={label}, fillcolor="{fill}"{bold}')
    return nodes


def _placed(dump: Dump, levels: Sequence[int], nodes: Sequence[str]) -> list[str]:
    """Nodes and arrows with their places."""
    high = 34.0 if any(task.buffer_bytes for task in dump.tasks) else 22.0
    wide = [0.0] * (max(levels) + 1)
    for task, level in zip(dump.tasks, levels, strict=True):
        wide[level] = max(wide[level], 14 + LETTER * len(f"{task.number}: {task.name}"))
    centre: list[float] = []
    for k, width in enumerate(wide):
        centre.append(width / 2 if k == 0 else centre[-1] + wide[k - 1] / 2 + GAP + width / 2)
    y = [-row * (high + PITCH) for row in rows_of(levels, dump.edges)]
    lines = [f"  layout=nop2; outputorder=edgesfirst; node [fixedsize=true, height={high / 72:.3f}];"]
    for task, node, level in zip(dump.tasks, nodes, levels, strict=True):
        place = f'pos="{centre[level]:.1f},{y[task.number]:.1f}", width={wide[level] / 72:.3f}'
        lines.append(f"  t{task.number} [{node}, {place}];")
    columns: list[list[float]] = [[] for _ in wide]
    for task, level in zip(dump.tasks, levels, strict=True):
        columns[level].append(y[task.number])
    for column in columns:
        column.sort()
    for source, target in dump.edges:
        first, last = levels[source], levels[target]
        start = (centre[first] + wide[first] / 2, y[source])
        curve = _curve(start, (centre[last] - wide[last] / 2, y[target]), columns[first + 1 : last], high)
        faint = ', color="#5b6b8360"' if last - first > 3 else ""
        lines.append(f'  t{source} -> t{target} [pos="{curve}"{faint}];')
    return lines


def _curve(
    start: tuple[float, float], end: tuple[float, float], between: Sequence[Sequence[float]], high: float
) -> str:
    """An arrow that leaves and arrives level; past the tasks between two of nearly one row in a row of its own.

    between: the places of the tasks in each column that the arrow passes, ascending; high: of a task.
    """
    (x0, y0), (x1, y1) = start, end
    tip = x1 - 6
    points = [(x0, y0)]
    if between and abs(y1 - y0) < high + PITCH:
        side, turn = _passage(max(y0, y1), min(y0, y1), between, high), GAP * 0.6
        third = (tip - x0 - 2 * turn) / 3
        points += [(x0 + turn / 2, y0), (x0 + turn / 2, side), (x0 + turn, side)]
        points += [(x0 + turn + third, side), (tip - turn - third, side), (tip - turn, side)]
        points += [(tip - turn / 2, side), (tip - turn / 2, y1), (tip, y1)]
    else:
        bend = (tip - x0) / 3 if between else (tip - x0) / 2
        points += [(x0 + bend, y0), (tip - bend, y1), (tip, y1)]
    return f"e,{x1:.1f},{y1:.1f} " + " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _passage(upper: float, lower: float, between: Sequence[Sequence[float]], high: float) -> float:
    """Where an arrow passes columns: half a row above or below, a row, ... where no task stands; else above."""
    half = (high + PITCH) / 2
    for steps in (1, 2, 3):
        for side in (upper + steps * half, lower - steps * half):
            if all(bisect_left(c, side - high / 2 - 2) == bisect_left(c, side + high / 2 + 2) for c in between):
                return side
    return upper + half


def render(dump: Dump, path: str | Path) -> None:
    """Write the drawing as .pdf, .svg or .png.

    Raises ValueError for another suffix; ToolchainError without Graphviz (PTO-X140), or with what it said when it
    failed (PTO-X141); OSError when the file cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"{path}: a drawing is written as {', '.join('.' + name for name in FORMATS)}")
    drawing = drawn(dump, kind)
    with written(path) as file:
        file.write(drawing)


def drawn(dump: Dump, kind: str) -> bytes:
    """The drawing in one of the `FORMATS`; ToolchainError as `render` raises it."""
    program = shutil.which("dot")
    if program is None:
        raise ToolchainError(
            "PTO-X140: drawing a task graph needs Graphviz, and `dot` is not on the PATH\n"
            "help: install the system package `graphviz`, or take the text of `to_dot()` elsewhere"
        )
    done = subprocess.run([program, f"-T{kind}"], input=to_dot(dump).encode(), capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip() or "(nothing)"
        raise ToolchainError(f"PTO-X141: dot failed with code {done.returncode}:\n{said}\nhelp: look at `to_dot()`")
    return done.stdout
