# SPDX-License-Identifier: MIT
"""Random kernels: interpret mode, the meaning of the compiled IR, and machine code give equal bits."""

from __future__ import annotations

import numpy as np
import pytest

from pto_jit.ir.verify import verify
from pto_jit.semantic.interpreter import run
from pto_jit.semantic.rules import infer
from tests.codegen.harness import program
from tests.metaprogramming.programs import ROWS, WIDTH, random_kernel

ARGUMENTS = ((0, 1), (2, 3), (3, -2))


def agree(seed: int, native: bool) -> None:
    kernel, text, dtype = random_kernel(seed)
    x = np.array([3, 1, 4, 2], dtype)
    empty = np.zeros((ROWS, WIDTH), dtype)
    module, _ = program(kernel.__pto_jit__, empty, x, 1, 1)
    verify(module.module, infer)
    compiled = kernel.compile(empty, x, 1, 1) if native else None
    for n, m in ARGUMENTS:
        expected, meant = empty.copy(), empty.copy()
        kernel.interpret(expected, x, n, m)
        run(module.module, [meant, x, n, m])
        assert meant.tolist() == expected.tolist(), f"seed {seed}, n = {n}, m = {m}\n{text}"
        if compiled is not None:
            got = empty.copy()
            compiled(got, x, n, m)
            assert got.tolist() == expected.tolist(), f"machine code, seed {seed}, n = {n}, m = {m}\n{text}"


@pytest.mark.parametrize("block", range(14))
def test_interpret_mode_gives_what_the_compiled_program_means(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        agree(seed, native=seed % 100 == 7)
