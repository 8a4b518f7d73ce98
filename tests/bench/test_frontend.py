# SPDX-License-Identifier: MIT
"""`pto-bench frontend`: the kernel is what it says, and every figure is printed."""

from __future__ import annotations

import pytest

from pto_jit.bench import emission, frontend
from pto_jit.bench.command import main


def test_the_kernel_has_the_lines_and_compiles() -> None:
    assert 90 <= len(frontend.kernel_text(100).splitlines()) <= 100
    costs = frontend.compilation(1)
    assert len(costs) == 3 and all(cost.seconds > 0 for cost in costs)
    assert costs[0].seconds < costs[1].seconds


def test_the_command_prints_every_figure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "_each", lambda call: (call(), 1e-6)[1])
    monkeypatch.setattr(frontend.compilation, "__defaults__", (1,))
    monkeypatch.setattr(emission.emission, "__defaults__", (1, ("operations on tiles",)))
    assert main(["frontend"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12 and all(line.split()[1] in ("ms", "us") for line in lines)
