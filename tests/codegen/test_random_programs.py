# SPDX-License-Identifier: MIT
"""Random control flow over numbers: compiled programs and CPython agree.

Programs nest branches, run-time and unrolled loops, `while`, `break`, `continue`, `else`, early returns of helpers,
conditional expressions, short-circuit conditions and parallel assignment, over variables that are compile-time
numbers first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit.language as pl
from tests.codegen.harness import program, run
from tests.codegen.writer import Writer, defined


def written(seed: int, elements: tuple[str, ...] = ()) -> tuple[Any, str]:
    text = Writer(seed, elements).text()
    filename = f"<random program {seed} {len(elements)}>"
    return defined(text, filename, {"pl": pl})["f"], text


def agree(seed: int, elements: tuple[str, ...]) -> None:
    fn, text = written(seed, elements)
    x = np.array([3, -1, 4, 2], np.float32)
    compiled, _ = program(fn, np.zeros(4), x, 1, 1)
    for n, m in ((0, 1), (2, 3), (4, 0), (3, -2)):
        expected, got = np.zeros(4), np.zeros(4)
        fn(expected, x, n, m)
        run(compiled.module, [got, x, n, m])
        assert got.tolist() == expected.tolist(), f"seed {seed}, n = {n}, m = {m}\n{text}"


@pytest.mark.parametrize("block", range(12))
def test_compiled_control_flow_is_pythons(block):
    for seed in range(block * 10, block * 10 + 10):
        agree(seed, ())


@pytest.mark.parametrize("block", range(12))
def test_variables_take_the_dtype_of_elements_wherever_they_meet_them(block):
    for seed in [*range(block * 10, block * 10 + 10), *((533, 1462) if block == 0 else ())]:
        agree(seed, ("x[2]", "x[abs(n) % 4]"))
