# SPDX-License-Identifier: MIT
"""The emission rows of `pto-bench frontend`: kernels of about a hundred lines, which all targets can express."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pto_jit.bench import emission
from tests.bench.growing import KERNELS, TARGETS

Counts = dict[str, dict[str, list[int]]]


def test_the_kernels_have_the_lines() -> None:
    texts = (emission.tiles_text(), emission.calls_text(), emission.tasks_text(), emission.scopes_text())
    for text in texts:
        assert 90 <= len(text.splitlines()) <= 101


def test_the_kernels_are_written_for_every_target() -> None:
    names = [cost.name for cost in emission.emission(1)]
    for what in emission.KERNELS:
        targets = [name.partition(" as ")[2].partition(":")[0] for name in names if f", {what}, " in name]
        assert targets == list(emission.TARGETS)


@pytest.fixture(scope="module")
def counts() -> Counts:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.bench.growing"]
    return json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_the_work_grows_with_the_lines(counts: Counts, name: str, target: str) -> None:
    """And not with their square: the second doubling of the lines adds about twice as much as the first one."""
    large, middle, small = counts[name][target]
    assert large - middle < 2.06 * (middle - small)
