# SPDX-License-Identifier: MIT
"""Products whose result tiles have numbers, from which programs compute their places: in groups, and several a core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

SIDE = 32


@pto.jit
def grouped(a, b, c):
    """Tiles of two rows of the grid, one column after the other."""
    rows, columns = (a.shape[0] + SIDE - 1) // SIDE, (b.shape[1] + SIDE - 1) // SIDE
    for number in pl.range(rows * columns, parallel=True):
        first = number // (2 * columns) * 2
        height = min(rows - first, 2)
        row = first + number % (2 * columns) % height
        column = number % (2 * columns) // height
        acc = pl.zeros([SIDE, SIDE], pl.f32)
        for k in pl.range(0, a.shape[1], SIDE):
            left = pl.load(a, [row * SIDE, k], [SIDE, SIDE])
            acc = pl.dot(left, pl.load(b, [k, column * SIDE], [SIDE, SIDE]), acc)
        pl.store(acc, [row * SIDE, column * SIDE], c)


@pto.jit
def persistent(a, b, c):
    columns = (b.shape[1] + SIDE - 1) // SIDE
    count = (a.shape[0] + SIDE - 1) // SIDE * columns
    for core in pl.range(3, parallel=True):
        for number in pl.range(core, count, 3):
            acc = pl.zeros([SIDE, SIDE], pl.f32)
            for k in pl.range(0, a.shape[1], SIDE):
                left = pl.load(a, [number // columns * SIDE, k], [SIDE, SIDE])
                acc += left @ pl.load(b, [k, number % columns * SIDE], [SIDE, SIDE])
            pl.store(acc, [number // columns * SIDE, number % columns * SIDE], c)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    spec = pto.spec((None, None), pl.f32)
    directory: Path = tmp_path_factory.mktemp("numbered")
    return ordered({k.__name__: (k, (spec, spec, spec)) for k in (grouped, persistent)}, directory)


@needs_compiler
@pytest.mark.parametrize("kernel", [grouped, persistent], ids=lambda k: k.__name__)
@pytest.mark.parametrize("shape", [(85, 70, 77), (32, 64, 32), (7, 9, 100)], ids=str)
def test_numbered_tiles(programs: Programs, kernel: Any, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, s).astype(np.float32) / 8 for s in ((m, k), (k, n)))
    check_interpreted(programs, kernel, kernel.__name__, {"a": a, "b": b}, {"c": np.zeros((m, n), np.float32)})
