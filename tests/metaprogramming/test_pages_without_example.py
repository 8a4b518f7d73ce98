# SPDX-License-Identifier: MIT
"""Why a page of an error has no example: each reason is checked here, or in the test that the table names."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.codegen.builtins.registry import HANDLERS
from pto_jit.codegen.intrinsics import CONTROL
from pto_jit.codegen.syntax import ELSEWHERE, REFUSED, SUPPORTED
from pto_jit.error_pages import pages
from pto_jit.errors import CompilationError, ToolchainError
from tests.codegen.writer import defined

PACKAGE = Path(pto.__file__).parent
TESTS = Path(__file__).parent.parent
X = np.ones(4, np.float32)

CHECKED = {
    **dict.fromkeys(
        ["PTO-H000", "PTO-L000", "PTO-N000", "PTO-R000", "PTO-S000", "PTO-T000"],
        "test_every_error_of_a_program_is_raised_with_a_code_and_a_way_out",
    ),
    **dict.fromkeys(["PTO-S021", "PTO-S022", "PTO-S023"], "test_the_function_around_asynchronous_code_is_refused_first"),
    "PTO-S030": "test_all_syntax_has_a_name",
    "PTO-R094": "test_a_statement_whose_source_is_gone",
    "PTO-X141": "test_graphviz_fails",
    "PTO-X131": "tests/targets/cuda/test_refusals.py",
    "PTO-X133": "tests/targets/cuda/test_refusals.py",
    "PTO-X134": "tests/targets/cuda/test_driver.py",
    "PTO-X146": "tests/targets/cuda/test_driver.py",
    "PTO-X147": "tests/targets/cuda/test_emulation.py",
    "PTO-X201": "tests/targets/neon/test_neon.py",
}
DEVICE = {"PTO-X132", "PTO-X142", "PTO-X143"}
GUARDS = {"PTO-A046", "PTO-N041", "PTO-R091", "PTO-T186", "PTO-T187", "PTO-T238", "PTO-T243", "PTO-X110"}
"""Guards of invariants behind what other errors refuse: no program gets there."""


def test_every_page_without_an_example_is_in_a_table() -> None:
    without = {page.code for page in pages().values() if page.example is None}
    assert without == set(CHECKED) | DEVICE | GUARDS
    for code, place in CHECKED.items():
        if place.startswith("test_"):
            assert place in globals(), code
        else:
            assert code in (TESTS.parent / place).read_text(encoding="utf-8"), code
    for code in GUARDS:
        assert "No example: it guards an invariant: " in pages()[code].text, code
    for code in DEVICE:
        assert "No example: it needs a GPU" in pages()[code].text, code


def test_every_error_of_a_program_is_raised_with_a_code_and_a_way_out() -> None:
    classes = {name for name, value in vars(pto).items() if inspect.isclass(value) and issubclass(value, CompilationError)}
    classes |= {"ExtentError", "OffsetError", "HoleError"}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
                given = {keyword.arg for keyword in node.keywords}
                assert None in given or given >= {"code", "hint"}, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("body", ["async for i in x:\n        pass", "async with x:\n        pass", "await x"])
def test_the_function_around_asynchronous_code_is_refused_first(body: str) -> None:
    kernel = pto.jit(defined(f"async def kernel(x):\n    {body}\n", f"<async {body}>", {})["kernel"])
    for call in (kernel, kernel.interpret):
        with pytest.raises(pto.UnsupportedSyntaxError, match="PTO-S020"):
            call(X)


def test_all_syntax_has_a_name() -> None:
    known = {*SUPPORTED, *REFUSED, *ELSEWHERE}
    classes = {n for n, v in vars(ast).items() if n[0] != "_" and inspect.isclass(v) and issubclass(v, ast.AST)}
    assert classes <= known


def test_every_operation_can_be_called_in_kernels() -> None:
    names = {getattr(value, "__pto_builtin__", None) for value in (getattr(pl, name) for name in pl.__all__)}
    missing = {name for name in names - {None} if name not in HANDLERS and name not in CONTROL}
    assert missing == {"exists", "pad"}, "parts of comprehensions; others need a handler"


def test_a_statement_whose_source_is_gone() -> None:
    from pto_jit.comprehensions.interpretation import run_statement

    scope: dict[str, Any] = {}
    exec(compile("import sys\nframe = sys._getframe()", "<nowhere>", "exec"), scope)
    with pytest.raises(CompilationError) as caught:
        run_statement(scope["frame"])
    assert caught.value.code == "PTO-R094"


def test_graphviz_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pto_jit.runtime import drawing

    done = SimpleNamespace(returncode=3, stderr=b"no layout")
    monkeypatch.setattr(drawing.shutil, "which", lambda _: "dot")
    monkeypatch.setattr(drawing.subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(drawing, "to_dot", lambda _: "")
    with pytest.raises(ToolchainError, match=r"PTO-X141: dot failed with code 3:\nno layout\nhelp: "):
        drawing.render(None, tmp_path / "graph.svg")  # type: ignore[arg-type]
