# SPDX-License-Identifier: MIT
"""The documentation: what is written from the code is current, and its programs and command lines run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.commands import main
from pto_jit.docs import reference

ROOT = Path(__file__).parent.parent
IMPORTS = """
import numpy as np
import pto_jit as pto
import pto_jit.fractal as ft
import pto_jit.language as pl
"""
SOFTMAX = """
@pto.jit
def softmax(x, y):
    for r in pl.range(0, x.shape[0], chunk=64):
        t = pl.load(x, [r, 0], [1, x.shape[1]])
        e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
        pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)

x = np.random.default_rng(0).standard_normal((8, 16), dtype=np.float32)
y = np.empty_like(x)
"""
LAYER = """
class Layer:
    def __init__(self, factor):
        self.factor = factor

    @pto.jit
    def forward(self, x, y):
        y[...] = x[...] * self.factor

layer = Layer(2.5)
"""

# What a page takes for granted before its first line.
BEFORE = {
    "ascend.md": SOFTMAX,
    "sources.md": SOFTMAX,
    "language.md": "x = y = np.ones((64, 128), np.float32)",
    "tasks.md": """
n, x = 4, np.ones((32, 64), np.float32)
y = np.zeros_like(x)
def fill(slots): x[...] = 3
def double(slots): y[...] = 2 * x
""",
    "fractal.md": """
batch = ft.from_list([[np.ones((1, 64), np.float32)] * 3, [np.ones((1, 64), np.float32)]])
w = ft.from_list([np.eye(64, dtype=np.float32)] * 2)
""",
}
# What becomes of it, as an expression that holds; and what is printed, which the page shows in a comment.
AFTER = {
    "comprehensions.md": "np.array_equal(C, np.full((3, 5), 4, np.float32))",
    "guide.md": "np.allclose(y, x / (1 + np.exp(-x)))",
    "fractal.md": "[len(row) for row in compiled(batch, w)] == [3, 1]",
    "tasks.md": "(y == 6).all() and graph.num_edges == 1",
    "sources.md": "np.allclose(y.sum(1), 1) and compiled.sources.keys() >= {'README.md'}",
    "ascend.md": "'README.md' in compiled.sources",
}
PRINTED = {
    "comprehensions.md": ["{'i': (0, N - T + 1), 'k': (0, T)}"],
    "guide.md": ["chunk r\n└─ incore tiles_incore_0\n   └─ in_chunk r"],
    "fractal.md": [
        "FractalTensor([3, 0, 2] of pl.Tensor[[1, 64], pl.f32])",
        "      read w[j]\n      read 0.0 if k == 0 else h1[i, j, k - 1]\n      read batch[i][k] if j == 0",
    ],
}
# Pages with lines that the tests do not run, and why.
ELSEWHERE = {
    "builder.md": "tests/builder/test_documentation.py",
    "cuda.md": "launches on a GPU: tests/targets/cuda",
    "operations.md": "doctests of the operations: tests/language/test_names.py",
    "pto-assembly.md": "a form of calls; its programs: tests/ir/test_documentation.py",
    "vector-math.md": "a form of calls: tests/targets/test_vecmath.py",
}
GRAPHVIZ = shutil.which("dot") is not None


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for name, text in found if name == language]


def run(code: str, directory: Path) -> dict[str, Any]:
    """Run a module of this text; kernels are compiled from their source."""
    path = directory / "page.py"
    path.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, str(path), "exec"), names)
    return names


PAGES = sorted(p for p in (ROOT / "docs").glob("*.md") if blocks(p, "python") and p.name not in ELSEWHERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_of_a_page_run_as_they_stand(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(blocks(page, "python")).splitlines()
    if not GRAPHVIZ:
        lines = [line for line in lines if ".render(" not in line]
    names = run("\n".join([IMPORTS, BEFORE.get(page.name, ""), *lines]), tmp_path)
    assert eval(AFTER.get(page.name, "True"), names)
    out = capsys.readouterr().out
    for text in PRINTED.get(page.name, []):
        assert text in out and text in page.read_text(encoding="utf-8")


def test_the_first_program_prints_what_the_readme_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "README.md"
    run("\n".join(blocks(page, "python")), tmp_path)
    assert capsys.readouterr().out == blocks(page, "")[0]


def test_the_error_that_the_page_of_errors_shows_is_what_one_sees(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(
        "@pto.jit\n"
        "def sums(x, y):\n"
        "    acc = 0.0\n"
        "    for k in pl.range(0, 8, 4):\n"
        "        acc = acc + pl.load(x, [k], [4])\n"
        "    pl.store(acc, [0], y)\n"
    )
    names: dict[str, Any] = {"pto": pto, "pl": pl, "__name__": "sums"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(pto.TypeMismatchError) as caught:
        names["sums"](np.ones(8, np.float32), np.ones(8, np.float32))
    (shown,) = blocks(ROOT / "docs" / "errors.md", "")
    assert str(caught.value).replace(f"{tmp_path}/", "") == shown.rstrip()


def test_every_page_of_errors_is_in_the_table_of_codes() -> None:
    table = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    pages = sorted((ROOT / "pto_jit" / "error_pages").glob("*.md"))
    assert pages and [p.name for p in pages if f"(../pto_jit/error_pages/{p.name})" not in table] == []


def test_the_index_of_the_documentation_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(([a-z0-9-]+\.md)\)", index))
    assert linked == {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"}


def command_lines() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "tutorials" / "README.md"]:
        for block in [*blocks(page, "sh"), *blocks(page, "console"), *blocks(page, "")]:
            for line in block.splitlines():
                if line.startswith("python -m pto_jit "):
                    found.append((page.name, line))
    return found


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_line_runs_as_it_stands(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    softmax = blocks(ROOT / "docs" / "pto-assembly.md", "pto")[0]
    Path("softmax.pto").write_text(softmax, encoding="utf-8")
    Path("kernels.py").write_text(IMPORTS + SOFTMAX + LAYER, encoding="utf-8")
    for name in ("in.npy", "out.npy"):
        np.save(name, np.ones((4, 8), np.float32))
    words = shlex.split(line, comments=True)[3:]
    words = [str(found) for word in words for found in (sorted(Path().glob(word)) if "*" in word else [word])]
    assert main(words) == 0, capsys.readouterr().err


def test_the_reference_of_operations_is_current() -> None:
    page = ROOT / "docs" / "operations.md"
    assert page.read_text(encoding="utf-8") == reference(), "run `make docs`"
