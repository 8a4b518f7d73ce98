# SPDX-License-Identifier: MIT
"""The emission rows of `pto-bench frontend`: kernels of about a hundred lines, which all targets can express."""

from __future__ import annotations

from pto_jit.bench import emission


def test_the_kernels_have_the_lines() -> None:
    for text in (emission.tiles_text(), emission.calls_text()):
        assert 90 <= len(text.splitlines()) <= 100


def test_the_kernels_are_written_for_every_target() -> None:
    names = [cost.name for cost in emission.emission(1)]
    for what in emission.KERNELS:
        targets = [name.partition(" as ")[2].partition(":")[0] for name in names if f", {what}, " in name]
        assert targets == list(emission.TARGETS)
