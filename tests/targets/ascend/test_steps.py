# SPDX-License-Identifier: MIT
"""Slices of tensors with steps: run on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


@pto.jit
def halves(x: pl.Tensor, y: pl.Tensor):
    y[:, 1::2] = x[:, ::2] * 2.0
    y[:, ::2] = x[:, 1::2]


@pto.jit
def thirds(x: pl.Tensor, y: pl.Tensor):
    y[::3] = x[::3] + pl.sum(x[1::3], axis=0)


@pto.jit
def pairs(x: pl.Tensor, y: pl.Tensor):
    """Inside of a kernel."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 8, parallel=True):
            even, odd = pl.load(x[:, ::2], [i, 0], [8, 24]), pl.load(x[:, 1::2], [i, 0], [8, 24])
            pl.store(even * 0.5 - odd, [i, 0], y[:, ::2])
            pl.store(even + odd * 0.5, [i, 0], y[:, 1::2])


@pto.jit
def rows(x: pl.Tensor, y: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        a, b = x[i, ::2], x[i, 1::2]
        y[i, ::2] = a - b
        y[i, 1::2] = a * b


@pto.jit
def in_place(x: pl.Tensor, y: pl.Tensor):
    y[1::3, ::2] = y[1::3, 1::2] + x[1::3, ::2]
    y[::2, :] += 1.0


FUNCTIONS = (halves, thirds, pairs, rows, in_place)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {fn.__name__: (fn, (pto.spec((None, None), pl.f32),) * 2)
                                                 for fn in FUNCTIONS}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("steps"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(5, 48), (17, 6), (40, 48)])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[0])
    x, y = (rng.integers(-9, 9, shape).astype(np.float32) for _ in range(2))
    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"y": y})
