# SPDX-License-Identifier: MIT
"""Random groups of tile operations: plain Python and machine code leave the same bits."""

from __future__ import annotations

import pytest

from tests.differential.compare import disagreement
from tests.differential.groups import generate
from tests.differential.rounds import share

COUNT = share(32)
FIRST = 32  # so that 41 is among them: a sum over rows once counted them again for each of another axis
BATCH = 16


@pytest.mark.parametrize("batch", range(COUNT // BATCH))
def test_python_and_machine_code_agree_on_a_random_group(batch: int) -> None:
    for seed in range(FIRST + batch * BATCH, FIRST + (batch + 1) * BATCH):
        kernel = generate(seed)
        why = disagreement(kernel, threads=(), stages=(), machine=True)
        assert why is None, f"{why}\n{kernel}"
