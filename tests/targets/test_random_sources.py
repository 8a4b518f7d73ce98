# SPDX-License-Identifier: MIT
"""Random programs as C and as NEON under qemu, against the reference interpreter: 500, each of them as both."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pto_jit import compiler
from pto_jit.compiler import Stages, lower
from pto_jit.options import Options
from pto_jit.semantic import interpreter
from pto_jit.slotted import mutable
from tests.differential.programs import Program, generate
from tests.differential.rounds import share
from tests.differential.test_random_programs import build
from tests.targets.c.harness import Batch, close, needs_compiler
from tests.targets.c.standalone import ARM, Programs

TOLERANCE = {"f32": 2e-4, "f64": 1e-11}
COMPILER = ("aarch64-linux-gnu-gcc", "-march=armv8.2-a", "-static")
PARTS = 10
PROGRAMS = share(50)  # of each part
record = compiler._record  # without what `conftest` adds: tests.differential reads these programs from their text


@mutable
class Tried:
    """A program, lowered once for both targets; what the interpreter made of it, and what a target did."""

    program: Program
    kernel: Any
    stages: Stages
    expected: Any
    actual: list[Any]


def try_out(seed: int) -> Tried:
    program = generate(seed)
    kernel, expected = build(program), program.args
    parameters = kernel._parameters
    params = parameters.classify(*parameters.bind(expected, {})).params
    with patch.object(compiler, "_record", record):
        stages = lower(kernel.__pto_jit__, params, Options())
    with np.errstate(all="ignore"):
        interpreter.run(stages.modules["source"], expected)
    return Tried(program, kernel, stages, expected[2], [])


def add(batch: Any, tried: list[Tried]) -> None:
    for one in tried:
        one.actual = one.program.args
        batch.add(one.kernel, *one.actual, stages=one.stages)


def compare(tried: list[Tried]) -> None:
    for one in tried:
        text = f"seed {one.program.seed}\n{one.program.source}"
        close(one.actual[2], one.expected, TOLERANCE.get(one.program.dtype, 0), text)


@needs_compiler
@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs_as_c_and_as_neon(part: int, tmp_path: Path) -> None:
    """As C alone where the tools of AArch64 are missing: test_neon says so."""
    tried = [try_out(seed) for seed in range(part * PROGRAMS, (part + 1) * PROGRAMS)]
    batch = Batch()
    add(batch, tried)
    batch.run()
    compare(tried)
    if not all(map(shutil.which, ARM)):
        return
    programs = Programs("neon")
    add(programs, tried)
    binary = programs.build(tmp_path, COMPILER)
    for one, (failure, _) in zip(tried, programs.run(tmp_path, (ARM[1], str(binary))), strict=True):
        assert failure is None, (one.program.seed, failure)
    compare(tried)
