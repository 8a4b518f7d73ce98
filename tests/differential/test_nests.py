# SPDX-License-Identifier: MIT
"""Random loop nests, evaluated in every way there is.

Plain Python and the interpreter see every nest; each fifth one is well formed after every stage, means the same there,
and is compiled and run with one and two workers.
"""

from __future__ import annotations

import pytest

from tests.differential.compare import disagreement
from tests.differential.nests import generate
from tests.differential.rounds import share

BATCH = 15
EVERYTHING = 5


@pytest.mark.parametrize("batch", range(share(150) // BATCH))
def test_every_evaluation_of_a_random_nest_agrees(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        kernel = generate(seed)
        everything = seed % EVERYTHING == 0
        why = disagreement(kernel, threads=(1, 2), stages=None if everything else ("fused",), machine=everything)
        assert why is None, f"{why}\n{kernel}"
