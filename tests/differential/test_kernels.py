# SPDX-License-Identifier: MIT
"""Random kernels of the whole language, evaluated in every way there is.

Plain Python and the interpreter see every kernel; each third one is compiled, too, and runs with one and with three
workers when it has parallel loops.  PTO_TEST_PROGRAMS raises the number of kernels.
"""

from __future__ import annotations

import os

import pytest

from tests.differential.compare import disagreement
from tests.differential.kernels import generate

COUNT = int(os.environ.get("PTO_TEST_PROGRAMS", "600"))
BATCH = 20
COMPILED = 3


@pytest.mark.parametrize("batch", range(COUNT // BATCH))
def test_every_evaluation_of_a_random_kernel_agrees(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        kernel = generate(seed)
        threads = (1, 3) if "parallel" in kernel.source or "chunk" in kernel.source else ()
        why = disagreement(kernel, threads=threads, machine=seed % COMPILED == 0)
        assert why is None, f"{why}\n{kernel}"
