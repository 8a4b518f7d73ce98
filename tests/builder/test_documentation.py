# SPDX-License-Identifier: MIT
"""docs/builder.md: its examples run, its table of instructions is the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.ir.isa import ROWS, Parameter

PAGE = Path(__file__).parents[2] / "docs" / "builder.md"
BEGIN, END = "<!-- instructions -->\n", "<!-- /instructions -->\n"


def form(parameter: Parameter) -> str:
    mark = "*" if parameter.role in "so" else ""
    default = f"={parameter.default!r}" if parameter.optional and parameter.default is not None else ""
    return f"{parameter.name}{mark}{default}"


def instructions() -> str:
    """The table of instructions in Markdown, by family."""
    lines: list[str] = []
    for family in dict.fromkeys(row.family for row in ROWS):
        lines += ["", f"### {family.capitalize()}", "", "| method | word | meaning |", "|---|---|---|"]
        for row in (r for r in ROWS if r.family == family):
            doc = row.doc.replace("|", "\\|")
            lines.append(f"| `.{row.name}({', '.join(map(form, row.parameters))})` | `{row.spelling}` | {doc} |")
    return "\n".join(lines[1:]) + "\n"


def test_the_table_of_instructions_is_the_one_of_the_builder(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    table, tail = rest.split(END)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(head + BEGIN + instructions() + END + tail, encoding="utf-8")
        return
    assert table == instructions(), "run with --update-golden"


def test_the_examples_run(tmp_path: Path) -> None:
    path = tmp_path / "example.py"  # kernels are compiled from their source
    path.write_text(
        "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
    )
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    x, y, top = names["x"], np.zeros((32, 8), np.float32), np.zeros((32, 1), np.float32)
    names["kernel"](x, y, top)
    np.testing.assert_array_equal(top, x.max(1, keepdims=True))
    np.testing.assert_array_equal(y, x - top)
    names["module"].compile().scale(x[:8], y[:8], 2.0)
    np.testing.assert_array_equal(y[:8], 2 * x[:8])
    assert pto.parse_pto(str(names["module"])) == names["module"]
