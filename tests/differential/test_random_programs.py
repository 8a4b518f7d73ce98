# SPDX-License-Identifier: MIT
"""Random kernels: the reference interpreter and the compiled code must agree, whatever the schedule."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.semantic import interpreter
from tests.differential.programs import Program, generate
from tests.differential.rounds import share

COUNT = share(450)
BATCH = 25


def build(program: Program) -> pto.JitFunction:
    filename = f"<random program {program.seed}>"
    linecache.cache[filename] = (len(program.source), None, program.source.splitlines(True), filename)
    namespace: dict[str, object] = {"pto": pto, "pl": pl}
    exec(compile(program.source, filename, "exec"), namespace)
    return namespace["kernel"]  # type: ignore[return-value]


def check(program: Program) -> None:
    kernel = build(program)
    expected, actual = program.args, program.args
    with np.errstate(all="ignore"):
        compiled = kernel.compile(*actual, cache=False)
        interpreter.run(compiled._lowered().modules["source"], expected)
        compiled(*actual)
    tolerance = {"f32": 2e-4, "f64": 1e-11}.get(program.dtype, 0)
    scale = max(1.0, float(np.max(np.abs(expected[2].astype(float)), initial=0.0)))
    np.testing.assert_allclose(
        actual[2], expected[2], rtol=tolerance, atol=tolerance * scale, err_msg=f"seed {program.seed}\n{program.source}"
    )


@pytest.mark.parametrize("batch", range(COUNT // BATCH))
def test_interpreter_and_compiled_code_agree_on_random_kernels(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        check(generate(seed))
