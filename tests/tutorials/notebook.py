# SPDX-License-Identifier: MIT
"""Notebooks without Jupyter: read, run cell by cell in one namespace, compared, written.

A code cell is compiled under a file name of its own, `In[3]` for the third, whose text `linecache` has: so do IPython's
kernels, under names that only IPython knows (`errors.shown_file` turns those into these).  A last statement that is an
expression is displayed.  Magics, `display` and trailing semicolons are not there: the tutorials do without.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

Notebook = dict[str, Any]
Output = tuple[str, str]
"""What a cell showed: "stdout", "stderr" or "result" with the text, or the "picture" of a result, as SVG."""

GENERATED = "nbval-ignore-output"
"""The tag of a cell that shows generated code or a plan, which any work on what makes it changes: it asserts what matters."""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(path: Path) -> Notebook:
    """A notebook (nbformat 4, JSON) as values."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, notebook: Notebook) -> None:
    """As Jupyter lays notebooks out, so that saving one there changes no more than what was changed."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    """The cells that are run, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def text_of(lines: str | list[str]) -> str:
    """Text of a notebook, which may be in lines."""
    return lines if isinstance(lines, str) else "".join(lines)


def stored(cell: dict[str, Any]) -> list[Output]:
    """The outputs that a code cell is kept with, but for pictures: other versions of Graphviz draw otherwise."""
    found: list[Output] = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            found.append((output["name"], text_of(output["text"])))
        else:
            found.append(("result", text_of(output["data"]["text/plain"])))
    return found


def keep(cell: dict[str, Any], number: int, outputs: list[Output]) -> None:
    """Store outputs in a code cell, the one with that number."""
    cell["execution_count"], cell["outputs"] = number, []
    for kind, text in outputs:
        lines = text.splitlines(keepends=True)
        if kind == "picture":  # of the result before it
            cell["outputs"][-1]["data"] = {"image/svg+xml": lines, **cell["outputs"][-1]["data"]}
        elif kind == "result":
            output = {"data": {"text/plain": lines}, "execution_count": number, "metadata": {}}
            cell["outputs"].append({**output, "output_type": "execute_result"})
        else:
            cell["outputs"].append({"name": kind, "output_type": "stream", "text": lines})


class _Streams(io.StringIO):
    """Standard output or error of a cell: appends to what the cell showed, in the order of both."""

    def __init__(self, kind: str, shown: list[Output]) -> None:
        super().__init__()
        self.kind, self.shown = kind, shown

    def write(self, text: str, /) -> int:
        if self.shown and self.shown[-1][0] == self.kind:
            text, length = self.shown.pop()[1] + text, len(text)
        else:
            length = len(text)
        self.shown.append((self.kind, text))
        return length


@contextlib.contextmanager
def session() -> Iterator[dict[str, Any]]:
    """The namespace of the module `__main__`, which is another one meanwhile; cells are forgotten at the end."""
    main = ModuleType("__main__")
    before, known = sys.modules["__main__"], set(linecache.cache)
    sys.modules["__main__"] = main
    try:
        yield main.__dict__
    finally:
        sys.modules["__main__"] = before
        for name in set(linecache.cache) - known:
            if name.startswith("In["):
                del linecache.cache[name]


def run_cell(source: str, number: int, namespace: dict[str, Any]) -> list[Output]:
    """What a cell shows. Exceptions pass."""
    name = f"In[{number}]"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    shown: list[Output] = []
    with contextlib.redirect_stdout(_Streams("stdout", shown)), contextlib.redirect_stderr(_Streams("stderr", shown)):
        exec(compile(tree, name, "exec"), namespace)
        if last is not None:
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None:
                namespace["_"] = value
                shown.append(("result", repr(value)))
                picture = getattr(value, "_repr_svg_", lambda: None)()
                if picture is not None:
                    shown.append(("picture", re.sub(r"<!--.*?-->\n?", "", picture, flags=re.DOTALL)))
    return shown


def run(notebook: Notebook) -> list[list[Output]]:
    """What each code cell shows, the cells run in order."""
    with session() as namespace:
        cells = enumerate(code_cells(notebook), 1)
        return [run_cell(text_of(cell["source"]), number, namespace) for number, cell in cells]
