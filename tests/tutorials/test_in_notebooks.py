# SPDX-License-Identifier: MIT
"""What a notebook shows of errors and explanations, without IPython: with what stands for it in `sys.modules`."""

from __future__ import annotations

import ast
import shutil
import sys
from types import SimpleNamespace, TracebackType

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.runtime.graph import TaskGraph
from tests.codegen.writer import defined

X = np.ones(8, np.float32)
FILE = "/tmp/ipykernel_17/1234567.py"
CELL = '''@pto.jit
def doubled(x):
    return (x + x) * pl.exp(0)

@pto.jit
def shift(x):
    for i in pl.range(1, x.shape[0], parallel=True):
        x[i] = x[i - 1]

@pto.jit
def outside(x, n):
    return pl.load(x, [n], [4]) * 1
'''


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> dict[str, pto.JitFunction]:
    """The functions of `CELL`, which IPython says is In[3]."""
    names = {FILE: ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=names.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    return defined(CELL, FILE, {"pto": pto, "pl": pl})


def test_errors_name_the_cell(cell: dict[str, pto.JitFunction]) -> None:
    with pytest.raises(pto.ScheduleError) as caught:
        cell["shift"](X.copy())
    text = str(caught.value)
    assert "--> In[3]:8:16" in text and "In[3]:7:5" in text and "ipykernel" not in text
    assert caught.value.filename == FILE  # for programs: the name under which the code is known
    with pytest.raises(pto.BoundsError) as failed:
        cell["outside"](X, -3)
    assert "--> In[3]:12:12" in str(failed.value) and "ipykernel" not in str(failed.value)


def test_explanations_and_sources_name_the_cell(cell: dict[str, pto.JitFunction]) -> None:
    explained = cell["doubled"].explain(X)
    assert str(explained).splitlines()[2] == "In[3]: doubled"
    assert repr(explained) == str(explained)
    for target in ("c", "cuda"):
        written = "\n".join(cell["doubled"].compile(X, target=target).sources.values())
        assert "// In[3]:3" in written and "ipykernel" not in written, target


def test_outside_of_ipython_names_are_those_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    place = pto.errors.Loc(FILE, 3, 4)
    assert str(place) == f"{FILE}:3:5"
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))  # type: ignore[arg-type]
    assert str(place) == f"{FILE}:3:5"  # imported by a program that is not a notebook


def last_frames(error: BaseException) -> list[TracebackType]:
    found, place = [], error.__traceback__
    while place is not None:
        found.append(place)
        place = place.tb_next
    return found


@pytest.mark.parametrize("name, arguments", [("shift", (X.copy(),)), ("outside", (X, -3))])
def test_frames_of_the_library_are_few_and_hidden(
    cell: dict[str, pto.JitFunction], name: str, arguments: tuple[object, ...]
) -> None:
    for call in (cell[name], cell[name]):  # the second time the compiled code is found
        with pytest.raises(pto.PtoError) as caught:
            call(*arguments)
        here, *library, kernel = last_frames(caught.value)
        assert here.tb_frame.f_code.co_filename == __file__
        assert kernel.tb_frame.f_code.co_filename == FILE and kernel.tb_frame.f_code.co_name == name
        assert len(library) <= 3
        assert all(frame.tb_frame.f_locals.get("__tracebackhide__") for frame in library)


def test_tracebacks_leave_the_syntax_trees_of_others_alone(cell: dict[str, pto.JitFunction]) -> None:
    """CPython has one `ast.Load()` for all trees; what IPython makes of a traceback goes wrong when it has a line."""
    with pytest.raises(pto.ScheduleError):
        cell["shift"](X.copy())
    for node in ast.walk(ast.parse("x[0] = y + z")):
        if not isinstance(node, (ast.stmt, ast.expr)):
            assert not hasattr(node, "lineno"), node


def test_small_task_graphs_are_drawn_where_graphviz_is(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = TaskGraph()
    for _ in range(2):
        graph.add("fill", lambda _: None, writes=[(X, [0], [8])])
    picture = graph._repr_svg_()
    assert picture is None if shutil.which("dot") is None else picture is not None and "0: fill" in picture
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert graph._repr_svg_() is None and repr(graph) == "TaskGraph(2 tasks, 1 edges)"


def test_large_task_graphs_are_not_drawn_at_every_glance() -> None:
    graph = TaskGraph()
    for _ in range(101):
        graph.add("fill", lambda _: None, writes=[(X, [0], [8])])
    assert graph._repr_svg_() is None


def test_functions_of_numpy_look_into_tiles_while_a_kernel_is_interpreted() -> None:
    """What one writes to see more, in a notebook or at a breakpoint."""
    seen: dict[str, object] = {}

    def look(tile: pl.Tile) -> pl.Tile:
        functions = (np.sum, np.prod, np.max, np.min, np.mean, np.any, np.all, np.argmax, np.std)
        seen.update({f.__name__: float(f(tile)) for f in functions})
        seen["columns"] = np.asarray(np.max(tile, axis=0, keepdims=True)).tolist()
        with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
            np.sum(tile, out=np.empty(()))
        return tile

    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor) -> None:
        pl.store(look(pl.load(x, [0, 0], [4, 2])), [0, 0], y)

    x = np.array([[1, 5], [2, 4], [3, 0]], np.float32)  # a row less than the tile has
    kernel.interpret(x, np.empty_like(x))
    expected = {"sum": 15, "prod": 0, "max": 5, "min": 0, "mean": 2.5, "any": 1, "all": 0, "argmax": 1}
    assert {name: seen[name] for name in expected} == expected
    assert np.isclose(seen["std"], x.std()) and seen["columns"] == [[3, 5]]
