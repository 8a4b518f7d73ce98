# SPDX-License-Identifier: MIT
"""The notebooks run from top to bottom and show what they are kept with.

`pytest tests/tutorials --update-golden` stores what they show now, to be reviewed like code.  Nothing that a cell shows
may depend on the machine, the time or the number of workers.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from tests.tutorials import notebook as nb

TUTORIALS = Path(__file__).parents[2] / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
MACHINE = re.compile(
    r"(?<![\w.])/(tmp|home|root|usr|opt|work|Users|var|private)/|\b0x[0-9a-f]{6,}|ipykernel|\b\d+\.\d+ ?(s|ms|µs|us|ns)\b"
)
"""Directories, addresses, times."""


def test_there_are_seven_notebooks() -> None:
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"{k:02}" for k in range(1, 8)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_is_kept_with(path: Path, request: pytest.FixtureRequest) -> None:
    notebook = nb.read(path)
    cells, now = nb.code_cells(notebook), nb.run(notebook)
    if request.config.getoption("--update-golden"):
        for number, (cell, outputs) in enumerate(zip(cells, now, strict=True), 1):
            nb.keep(cell, number, outputs)
        nb.write(path, notebook)
    for number, (cell, outputs) in enumerate(zip(cells, now, strict=True), 1):
        before, after = nb.stored(cell), [output for output in outputs if output[0] != "picture"]
        if before != after and nb.GENERATED not in cell["metadata"].get("tags", ()):
            texts = ["\n".join(f"[{kind}]\n{text}" for kind, text in side).splitlines() for side in (before, after)]
            lines = difflib.unified_diff(*texts, f"{path.name}, In[{number}]", "now", lineterm="")
            head = "a cell shows something else; if that is right, run with --update-golden"
            pytest.fail("\n".join([head, *lines]), pytrace=False)
        assert cell["execution_count"] == number


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_of_no_machine(path: Path) -> None:
    notebook = nb.read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)  # cells have no identifiers yet
    assert notebook["metadata"] == nb.METADATA
    first = notebook["cells"][0]
    assert first["cell_type"] == "markdown"
    assert re.match(r"<!-- SPDX-License-Identifier: MIT -->\n\n?# \d ", nb.text_of(first["source"]))
    for cell in notebook["cells"]:
        assert cell["metadata"] in ({}, {"tags": [nb.GENERATED]}) and "id" not in cell and "attachments" not in cell
        shown = nb.stored(cell) if cell["cell_type"] == "code" else []
        for kind, text in [("source", nb.text_of(cell["source"])), *shown]:
            assert kind != "stderr" and not MACHINE.search(text), text
            assert all(line == line.rstrip() for line in text.splitlines()) or kind != "source", text


def test_the_layout_is_that_of_jupyter(tmp_path: Path) -> None:
    for path in NOTEBOOKS:
        nb.write(tmp_path / path.name, nb.read(path))
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), f"{path.name}: run with --update-golden"


# -- the runner itself ------------------------------------------------------------------------------------------------


def notebook(*sources: str) -> nb.Notebook:
    """A notebook of code cells that were never run."""
    empty = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    return {"cells": [{**empty, "source": text.splitlines(keepends=True)} for text in sources]}


def test_cells_share_a_namespace_and_show_what_they_print_and_their_last_expression() -> None:
    given = notebook("import sys\na = 2\na", "print(a, end='!')\nprint('é', file=sys.stderr)\na += 1\n_ * 10", "a", "None")
    assert nb.run(given) == [
        [("result", "2")], [("stdout", "2!"), ("stderr", "é\n"), ("result", "20")], [("result", "3")], []
    ]  # fmt: skip


def test_functions_and_classes_of_cells_are_those_of_main() -> None:
    given = notebook(
        "import dataclasses, inspect, sys, typing\n@dataclasses.dataclass\nclass A:\n    n: 'int' = 3",
        "def f(v):\n    return v + 1\nA(), f.__module__, inspect.getsource(f), typing.get_type_hints(A)",
    )
    kept = "(A(n=3), '__main__', 'def f(v):\\n    return v + 1\\n', {'n': <class 'int'>})"
    assert nb.run(given) == [[], [("result", kept)]]


def test_an_exception_passes_with_the_line_of_the_cell() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        nb.run(notebook("a = 0", "def f():\n    return 1 / a\nf()"))
    last = caught.traceback[-1]
    assert (last.frame.code.raw.co_filename, last.lineno + 1) == ("In[2]", 2)


def test_what_is_kept_is_what_is_stored_and_pictures_beside_it() -> None:
    drawn = "class A:\n    _repr_svg_ = lambda _: '<!-- 1\\n2 -->\\n<svg/>'\n    __repr__ = lambda _: 'A()'\n"
    given = notebook(drawn + "print('a\\nb')\nA()")
    (outputs,) = nb.run(given)
    assert nb.stored(given["cells"][0]) == []
    nb.keep(given["cells"][0], 1, outputs)
    assert nb.stored(given["cells"][0]) == [("stdout", "a\nb\n"), ("result", "A()")]
    assert given["cells"][0]["outputs"][1]["data"] == {"image/svg+xml": ["<svg/>"], "text/plain": ["A()"]}
