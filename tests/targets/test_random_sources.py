# SPDX-License-Identifier: MIT
"""Random programs as C and as NEON under qemu, against the reference interpreter: half of them each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_jit.semantic import interpreter
from tests.differential.programs import Program, generate
from tests.differential.rounds import share
from tests.differential.test_random_programs import build
from tests.targets.c.harness import Batch, close, needs_compiler
from tests.targets.c.standalone import ARM, Programs, needs_arm

TOLERANCE = {"f32": 2e-4, "f64": 1e-11}
COMPILER = ("aarch64-linux-gnu-gcc", "-march=armv8.2-a", "-static")
PARTS = range(5)
PROGRAMS = share(50)  # of each part and target


def seeds(part: int, target: int) -> range:
    """The programs of a part for the first or the second target: 500 different ones in all."""
    first = (2 * part + target) * PROGRAMS
    return range(first, first + PROGRAMS)


class Tried:
    """Programs with what they are given, and what the interpreter makes of that."""

    def __init__(self) -> None:
        self.items: list[tuple[Program, list[Any], list[Any]]] = []

    def add(self, batch: Any, seed: int) -> None:
        program = generate(seed)
        expected, actual = program.args, program.args
        batch.add(build(program), *actual)
        with np.errstate(all="ignore"):
            interpreter.run(batch.items[-1][0]._lowered().modules["source"], expected)
        self.items.append((program, actual, expected))

    def compare(self) -> None:
        for program, actual, expected in self.items:
            text = f"seed {program.seed}\n{program.source}"
            close(actual[2], expected[2], TOLERANCE.get(program.dtype, 0), text)


@needs_compiler
@pytest.mark.parametrize("part", PARTS)
def test_random_programs_as_c(part: int) -> None:
    tried, batch = Tried(), Batch()
    for seed in seeds(part, 0):
        tried.add(batch, seed)
    batch.run()
    tried.compare()


@needs_arm
@pytest.mark.parametrize("part", PARTS)
def test_random_programs_as_neon(part: int, tmp_path: Path) -> None:
    tried, programs = Tried(), Programs("neon")
    for seed in seeds(part, 1):
        tried.add(programs, seed)
    binary = programs.build(tmp_path, COMPILER)
    for seed, (failure, _) in zip(seeds(part, 1), programs.run(tmp_path, (ARM[1], str(binary))), strict=True):
        assert failure is None, (seed, failure)
    tried.compare()
