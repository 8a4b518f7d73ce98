# SPDX-License-Identifier: MIT
"""Elements that change places by way of global memory: columns of a tile, of any number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

PAIRS = (5, 10, 16)
TYPES = {"f32": pl.f32, "f16": pl.f16, "i8": pl.i8}


def taken_apart(pairs: int) -> Any:
    """Rows of pairs: the first and the second of each, and the second ones before the first ones."""

    @pto.jit
    def kernel(x: pl.Tensor, first: pl.Tensor, second: pl.Tensor, joined: pl.Tensor):
        for r in pl.range(x.shape[0], parallel=True):
            t = pl.reshape(pl.load(x, [r, 0], [1, 2 * pairs]), [pairs, 2])
            pl.store(pl.reshape(t[:, 0:1], [1, pairs]), [r, 0], first)
            pl.store(pl.reshape(t[:, 1], [1, pairs]), [r, 0], second)
            turned = pl.concat([pl.reshape(t[:, 1], [pairs, 1]), t[:, 0:1]], axis=0)
            pl.store(pl.reshape(turned, [1, 2 * pairs]), [r, 0], joined)

    return kernel


CASES = {
    f"{name}_{pairs}": (taken_apart(pairs), tuple(pto.spec((None, n), dtype) for n in (2 * pairs, pairs, pairs, 2 * pairs)))
    for name, dtype in TYPES.items() for pairs in PAIRS
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_columns_of_pairs(programs: Programs, name: str) -> None:
    fn, specs = CASES[name]
    dtype = specs[0].dtype.numpy
    x = np.random.default_rng(0).integers(-100, 100, (6, specs[0].shape[1])).astype(dtype)
    outputs = {n: np.zeros((6, s.shape[1]), dtype) for n, s in zip(("first", "second", "joined"), specs[1:], strict=True)}
    check_interpreted(programs, fn, name, {"x": x}, outputs)
