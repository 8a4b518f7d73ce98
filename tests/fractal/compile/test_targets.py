# SPDX-License-Identifier: MIT
"""The programs of the tutorials through the targets that write sources: C agrees, CUDA refuses what it does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.errors import PtoError
from tests.fractal.compile.test_nests import same as equal
from tests.fractal.compile.test_programs import load, same
from tests.fractal.compile.test_random import random_program
from tests.targets.c.harness import Batch, needs_compiler
from tests.targets.c.standalone import Programs, needs_arm


@needs_compiler
def test_programs_in_c_agree_with_themselves_run_eagerly() -> None:
    batch, wanted = Batch(), []
    for name in ("bigbird", "convolution", "dilated_rnn"):
        module = load(name)
        batch.add(pto.jit(module.program), *module.arguments())
        wanted.append(module.program(*module.arguments()))
    for found, want in zip(batch.run(), wanted, strict=True):
        same(found, want)


@needs_compiler
def test_plans_in_c_agree() -> None:
    program, given = random_program(0)
    batch = Batch()
    for plan in ("sequential", "wavefront"):
        batch.add(pto.jit(program(plan)), *given)
    for found in batch.run():
        equal(found, program("auto")(*given))


def flat(value: Any) -> list[np.ndarray]:
    """The arrays of a result in the order in which a kernel gives them."""
    if isinstance(value, tuple):
        return [array for item in value for array in flat(item)]
    return [value.leaves, *value.offsets]


@needs_arm
def test_programs_with_neon_agree_under_qemu(tmp_path: Path) -> None:
    programs, wanted = Programs("neon"), []
    for name in ("convolution", "grid_rnn"):
        module = load(name)
        programs.add(pto.jit(module.program), *module.arguments())
        wanted.append(flat(module.program(*module.arguments())))
    binary = programs.build(tmp_path, ("aarch64-linux-gnu-gcc", "-march=armv8.2-a", "-static"))
    for (failure, found), want in zip(programs.run(tmp_path, ["qemu-aarch64", str(binary)]), wanted, strict=True):
        assert failure is None
        for f, w in zip(found, want, strict=True):
            np.testing.assert_allclose(f, w, atol=2e-5)


def test_cuda_refuses_loops_over_elements_by_name() -> None:
    module = load("products")
    with pytest.raises(PtoError, match="PTO-X100: the cuda target does not do a sequential loop over elements"):
        pto.jit(target="cuda")(module.program)(*module.arguments())
