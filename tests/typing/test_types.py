# SPDX-License-Identifier: MIT
"""Decorating keeps the types: checked with pyright."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
@pytest.mark.parametrize("name", ["calls.py", "kernels.py"])
def test_a_type_checker_knows_kernels_their_parameters_and_results(name: str) -> None:
    path = Path(__file__).parent / name
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(path)],
        capture_output=True, text=True, timeout=120, check=False, cwd=path.parents[2],
    )  # fmt: skip
    found = {
        d["range"]["start"]["line"]: d["message"]
        for d in json.loads(done.stdout)["generalDiagnostics"]
        if d["severity"] == "error"
    }
    expected = {
        number: line.split("# error: ")[1]
        for number, line in enumerate(path.read_text().splitlines())
        if "# error: " in line
    }
    assert set(found) == set(expected), found
    for number, word in expected.items():
        assert word in found[number].lower() or word in found[number], found[number]
