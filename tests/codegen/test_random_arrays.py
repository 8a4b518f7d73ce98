# SPDX-License-Identifier: MIT
"""Random control flow over numbers and the elements of arrays that loops, branches and helpers make: as in NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import CompilationError
from tests.codegen.harness import program, run
from tests.codegen.writer import VARIABLES, Writer, defined

NUMBERS = ((0, 1), (2, 3), (4, 0), (3, -2))


class ArrayWriter(Writer):
    """Writes programs whose blocks begin with new arrays, now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ("x[2]",))
        self.count = 0

    def block(self, indent: int, loop: bool, helper: bool) -> None:
        r, before = self.r, self.elements
        if r.random() < 0.4:
            self.count += 1
            name = f"v{self.count}"
            self.line(indent, f"{name} = {self.new()}")
            self.elements = (*before, f"{name}[{r.randint(-3, 2)}]", f"{name}[abs(n) % 3]", f"{name}.sum()")
        super().block(indent, loop, helper)
        self.elements = before

    def new(self) -> str:
        r = self.r
        return r.choice([
            "np.zeros(3)", "np.ones(3)", f"np.full(3, {self.expression(1)})", f"np.arange({r.randint(0, 2)}.0, 9.0, 3.0)",
            f"np.array([{self.expression(1)}, {r.randint(0, 5)}.0, {self.expression(0)}])", "np.eye(3)[1].copy()",
        ])  # fmt: skip

    def statement(self, indent: int, loop: bool, helper: bool) -> bool:
        arrays = sorted({e.split("[")[0] for e in self.elements if e.startswith("v") and "[" in e})
        if not arrays or self.r.random() < 0.7:
            return super().statement(indent, loop, helper)
        place = self.r.choice(["0", "-1", "abs(m) % 3", "abs(n) % 2"])
        self.line(indent, f"{self.r.choice(arrays)}[{place}] {self.r.choice(['', '+', '-'])}= {self.expression(1)}")
        return False


def written(seed: int) -> tuple[Any, str]:
    text = ArrayWriter(seed).text()
    return defined(text, f"<random arrays {seed}>", {"pl": pl, "np": np})["f"], text


def agree(compiled: Any, fn: Any, text: str) -> None:
    x = np.array([3.0, -1.0, 4.0, 2.0])
    for n, m in NUMBERS:
        expected, got = np.zeros(len(VARIABLES)), np.zeros(len(VARIABLES))
        fn(expected, x, n, m)
        compiled([got, x, n, m])
        np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=f"n = {n}, m = {m}\n{text}")


def check(seeds: Sequence[int], compiled: Callable[[Any], Callable[[list[Any]], None]]) -> None:
    """Programs agree with NumPy, but for those in which integers and floats meet in one variable."""
    count = 0
    for seed in seeds:
        fn, text = written(seed)
        with contextlib.suppress(CompilationError):
            agree(compiled(fn), fn, text)
            count += 1
    assert count >= len(seeds) // 3


def interpreted(fn: Any) -> Callable[[list[Any]], None]:
    compiled, _ = program(fn, np.zeros(4), np.zeros(4), 1, 1)
    return lambda args: run(compiled.module, args)


@pytest.mark.parametrize("block", range(8))
def test_arrays_are_numpys(block: int) -> None:
    check(range(block * 10, block * 10 + 10), interpreted)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("block", range(2))
def test_machine_code_agrees(block: int, debug: bool) -> None:
    check(range(1000 + block * 6, 1006 + block * 6), lambda fn: _calls(pto.jit(fn, debug=debug)))


def _calls(kernel: Any) -> Callable[[list[Any]], None]:
    return lambda args: kernel(*args)
