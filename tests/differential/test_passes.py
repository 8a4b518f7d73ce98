# SPDX-License-Identifier: MIT
"""Properties of every pass on random kernels: each stage is well formed, is its own text, and means the same."""

from __future__ import annotations

import pytest

from pto_jit.ir.parse import parse
from pto_jit.ir.text import to_text
from pto_jit.ir.verify import verify
from pto_jit.lower.pipeline import PIPELINE
from pto_jit.semantic import interpreter
from pto_jit.semantic.rules import infer
from tests.differential.compare import build, difference, lowered, outcome
from tests.differential.kernels import generate
from tests.differential.test_kernels import COUNT

BATCH = 20
STAGES = ["source", *(name for name, _ in PIPELINE)]
HOLDS_FROM = {"chunked": "chunked", "placed": "placed", "outlined": "outlined", "fused": "fused"}


@pytest.mark.parametrize("batch", range(COUNT // 2 // BATCH))
def test_every_stage_of_a_random_kernel_is_well_formed_and_means_the_same(batch: int) -> None:
    for seed in range(20_000 + batch * BATCH, 20_000 + (batch + 1) * BATCH):
        kernel = generate(seed)
        modules = lowered(build(kernel), kernel.arguments()[1])
        assert list(modules) == STAGES
        expected = outcome(kernel, lambda args: interpreter.run(modules["source"], args))
        before = modules["source"]
        holds: list[str] = []
        for stage in STAGES:
            module = modules[stage]
            holds += [HOLDS_FROM[stage]] if stage in HOLDS_FROM else []
            verify(module, infer, properties=holds)
            if module is before and stage != "source":
                continue
            assert parse(to_text(module)) == module, f"{stage} of {kernel}"
            actual = outcome(kernel, lambda args: interpreter.run(module, args))
            why = difference(kernel, expected, actual, exact=True)
            assert why is None, f"{stage}: {why}\n{kernel}"
            before = module
