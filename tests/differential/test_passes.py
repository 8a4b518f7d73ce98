# SPDX-License-Identifier: MIT
"""Properties of every pass on random kernels: each stage is well formed, is its own text, and means the same."""

from __future__ import annotations

import pytest

from pto_jit.lower.pipeline import PIPELINE
from pto_jit.semantic import interpreter
from tests.differential.compare import build, difference, lowered, malformed, outcome
from tests.differential.kernels import generate
from tests.differential.test_kernels import COUNT

BATCH = 20
STAGES = ["source", *(name for name, _ in PIPELINE)]


@pytest.mark.parametrize("batch", range(COUNT // 2 // BATCH))
def test_every_stage_of_a_random_kernel_is_well_formed_and_means_the_same(batch: int) -> None:
    for seed in range(20_000 + batch * BATCH, 20_000 + (batch + 1) * BATCH):
        kernel = generate(seed)
        modules = lowered(build(kernel), kernel.arguments()[1])
        assert list(modules) == STAGES
        why = malformed(modules)
        assert why is None, f"{why}\n{kernel}"
        expected = outcome(kernel, lambda args: interpreter.run(modules["source"], args))
        before = modules["source"]
        for stage in STAGES[1:]:
            module = modules[stage]
            if module is before:
                continue
            actual = outcome(kernel, lambda args: interpreter.run(module, args))
            why = difference(kernel, expected, actual, exact=True)
            assert why is None, f"{stage}: {why}\n{kernel}"
            before = module
