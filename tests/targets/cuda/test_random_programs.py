# SPDX-License-Identifier: MIT
"""Random kernels, emulated, against the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.device_kernel import emulate
from pto_jit.semantic import interpreter
from tests.differential import compare, kernels
from tests.differential.programs import generate
from tests.differential.test_random_programs import build

from .harness import needs_compiler

pytestmark = needs_compiler


@pytest.mark.parametrize("seed", [3, 32, 101, 137, 222, 304])
def test_a_random_program_agrees_with_the_interpreter(seed: int) -> None:
    program = generate(seed)
    expected, actual = program.args, program.args
    with np.errstate(all="ignore"):
        compiled = build(program).compile(*actual, target="cuda")
        interpreter.run(compiled._lowered().modules["source"], expected)
        emulate(compiled, *actual, order=seed % 3)
    tolerance = {"f32": 2e-4, "f64": 1e-11}.get(program.dtype, 0)
    scale = max(1.0, float(np.max(np.abs(expected[2].astype(float)), initial=0.0)))
    np.testing.assert_allclose(actual[2], expected[2], rtol=tolerance, atol=tolerance * scale)


ELEMENTS = "a sequential loop over elements"  # which one thread would have to run


def test_random_kernels_of_the_whole_language_are_right_or_refused() -> None:
    """Whatever it is given, the compiler says TargetError, which is rare, or gives sources; some of them are run."""
    refused: list[str] = []
    late = 640823  # a tile of three axes of run-time extents that loops alone give a value
    left = [19, 26, 142, late]  # with tiles of three axes, tiles from branches, and indices of two axes
    count = 120
    for seed in (*range(count), late):
        kernel = kernels.generate(seed)
        _, args = kernel.arguments()
        try:
            compiled = compare.build(kernel).compile(*args, target="cuda", cache=False)
        except pto.TargetError as error:
            assert "help: " in str(error), seed
            refused.append(str(error))
            continue
        if seed not in left:
            continue
        left.remove(seed)
        source = compiled._lowered().modules["source"]
        expected = compare.outcome(kernel, lambda a, m=source: interpreter.run(m, a) and None)
        actual = compare.outcome(kernel, lambda a, c=compiled, s=seed: emulate(c, *a, order=s % 3) and None)
        assert compare.difference(kernel, expected, actual) is None, seed
    others = [message for message in refused if ELEMENTS not in message]
    assert not [s for s in left if s < count or s == late] and len(refused) <= 0.05 * count and len(others) <= 0.02 * count, others
