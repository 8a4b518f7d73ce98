# SPDX-License-Identifier: MIT
"""Random kernels of the whole language, evaluated in every way there is.

Plain Python and the interpreter see every kernel; each third one is compiled, too, and runs with one and with three
workers when it has parallel loops.  `pytest --programs N` tries more of them.
"""

from __future__ import annotations

import pytest

from tests.differential.compare import disagreement
from tests.differential.kernels import generate
from tests.differential.rounds import share

COUNT = share(440)
BATCH = 20
COMPILED = 3


@pytest.mark.parametrize("batch", range(COUNT // BATCH))
def test_every_evaluation_of_a_random_kernel_agrees(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        kernel = generate(seed)
        threads = (1, 3) if "parallel" in kernel.source or "chunk" in kernel.source else ()
        why = disagreement(kernel, threads=threads, machine=seed % COMPILED == 0)
        assert why is None, f"{why}\n{kernel}"
