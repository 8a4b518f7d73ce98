# SPDX-License-Identifier: MIT
"""Random kernels and loop nests as C, against the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.semantic import interpreter
from tests.differential import compare, kernels, nests
from tests.differential.programs import generate
from tests.differential.rounds import share
from tests.differential.test_random_programs import build

from .harness import Batch, close, needs_compiler

pytestmark = needs_compiler
TOLERANCE = {"f32": 2e-4, "f64": 1e-11}


def test_random_programs_agree_with_the_interpreter() -> None:
    batch, wanted = Batch(), []
    for seed in range(share(30)):
        program = generate(seed)
        expected, actual = program.args, program.args
        batch.add(build(program), *actual)
        with np.errstate(all="ignore"):
            interpreter.run(batch.items[-1][0]._lowered().modules["source"], expected)  # type: ignore[attr-defined]
        wanted.append((program, actual, expected))
    batch.run()
    for program, actual, expected in wanted:
        text = f"seed {program.seed}\n{program.source}"
        close(actual[2], expected[2], TOLERANCE.get(program.dtype, 0), text)


@pytest.mark.parametrize(("make", "count"), [(kernels.generate, 20), (nests.generate, 12)], ids=["kernels", "nests"])
def test_random_kernels_of_the_whole_language_agree(make: Callable[[int], Any], count: int) -> None:
    batch, tried = Batch(), []
    for seed in range(share(count)):
        kernel = make(seed)
        _, args = kernel.arguments()
        try:
            batch.add(compare.build(kernel), *args)
        except (pto.CompilationError, pto.LaunchError):
            continue  # what no target compiles
        tried.append((seed, kernel))
    batch.build()
    for (compiled, *_), (seed, kernel) in zip(batch.items, tried, strict=True):
        source = compiled._lowered().modules["source"]  # type: ignore[attr-defined]
        expected = compare.outcome(kernel, lambda a, m=source: interpreter.run(m, a) and None)
        actual = compare.outcome(kernel, lambda a, c=compiled: c(*a) and None)
        assert compare.difference(kernel, expected, actual) is None, f"seed {seed}\n{kernel}"
