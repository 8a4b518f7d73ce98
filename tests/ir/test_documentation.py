# SPDX-License-Identifier: MIT
"""docs/pto-assembly.md: its programs are programs, its table of operations is the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import check
from pto_jit.semantic.rules import infer, rows
from pto_jit.semantic.table import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "pto-assembly.md"
EXAMPLES = re.findall(r"^```pto\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
BEGIN, END = "<!-- operations -->\n", "<!-- /operations -->\n"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_is_a_program_that_survives_text(number: int) -> None:
    module = parse(EXAMPLES[number], "docs/pto-assembly.md", ops=NAMES, infer=infer)
    check(module, infer)
    assert parse(to_text(module)) == module


def test_the_examples_show_every_statement() -> None:
    text = "".join(EXAMPLES)
    words = "FOR WHILE IF SCOPE FUSE CALL BREAK return WITH YIELD alloc_tile alloc_scalar"
    for word in words.split():
        assert word in text


def test_the_first_example_is_written_as_it_prints() -> None:
    assert to_text(parse(EXAMPLES[0])) == EXAMPLES[0]


def operations() -> str:
    """The table of operations in Markdown, by family."""
    lines: list[str] = []
    family = ""
    for row in rows():
        if row.family != family:
            family = row.family
            lines += ["", f"### {family.capitalize()}", "", "| operation | meaning |", "|---|---|"]
        lines.append(f"| `{row.signature}` | {row.doc} |")
    return "\n".join(lines[1:]) + "\n"


def test_the_table_of_operations_is_the_one_of_the_compiler(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    table, tail = rest.split(END)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(head + BEGIN + operations() + END + tail, encoding="utf-8")
        return
    assert table == operations(), "run with --update-golden"
