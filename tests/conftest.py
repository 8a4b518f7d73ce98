# SPDX-License-Identifier: MIT
"""For all tests: golden text, and every program that is compiled survives its text.

Golden text is expected output kept in files, rewritten with `pytest --update-golden` and reviewed like code.
"""

from __future__ import annotations

import difflib
import functools
import gc
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--programs", type=int, help="how many random programs the differential tests try, about")
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected text of golden tests")


def pytest_configure(config: pytest.Config) -> None:
    count = config.getoption("--programs")
    if count is not None:  # read by tests.differential.rounds, in the processes of xdist too
        os.environ["PTO_TEST_PROGRAMS"] = str(count)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # what was collected lives to the end: half of the objects that tests would look through for garbage


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


@pytest.fixture(autouse=True, scope="session")
def programs_survive_text() -> Iterator[None]:
    """`parse(print(m)) == m` for the programs that the tests compile.

    Of each program the first and the last stage, and all stages of one in eight, chosen by their text: reading takes
    time, and stages of one program differ little. What was read lately is not read again.
    """
    from pto_jit import compiler
    from pto_jit.ir.parse import parse
    from pto_jit.ir.text import to_text
    from pto_jit.lower.pipeline import PIPELINE

    record = compiler._record
    last = PIPELINE[-1][0]
    read = functools.lru_cache(256)(parse)
    before: Any = None
    text = ""

    def checked(stages: Any, name: str, module: Any, start: float) -> None:
        nonlocal before, text
        record(stages, name, module, start)
        if module is not before:  # else the pass had nothing to do
            before, text = module, to_text(module)
        if name in ("source", last) or zlib.crc32(text.encode()) % 8 == 0:
            assert read(text) == module, f"stage {name} does not survive its text:\n{text}"

    compiler._record = checked
    yield
    compiler._record = record
