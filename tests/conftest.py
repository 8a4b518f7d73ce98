# SPDX-License-Identifier: MIT
"""Golden text: expected output kept in files, rewritten with `pytest --update-golden` and reviewed like code."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected text of golden tests")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with the file `golden/<name>` beside the test."""

    def compare(name: str, text: str) -> None:
        path = Path(request.path).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"there is no {path}; run with --update-golden and review it")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", lineterm="")
            head = "the text differs; if that is right, run with --update-golden"
            pytest.fail("\n".join([head, *lines]), pytrace=False)

    return compare
