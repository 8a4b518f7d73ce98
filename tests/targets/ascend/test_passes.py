# SPDX-License-Identifier: MIT
"""Rows of unknown extents that may not fit the unified buffer: a kernel of its own goes over their parts."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.ascend.harness import Programs, check_interpreted, needs_compiler, ordered

FLAT, LINE, PLACES = pto.spec((None, None), pl.f32), pto.spec((None,), pl.f32), pto.spec((None,), pl.i32)


@pto.jit
def softmax(x, y):
    e = pl.exp(x - pl.max(x, axis=1, keepdims=True))
    y[...] = e / pl.sum(e, axis=1, keepdims=True)


@pto.jit
def layer_norm(x, y):
    d = x - pl.mean(x, axis=1, keepdims=True)
    y[...] = d / pl.sqrt(pl.mean(d * d, axis=1, keepdims=True) + 1e-5)


@pto.jit
def largest(x, y):
    y[...] = pl.argmax(x, axis=1)


@pto.jit
def sums(x, y):
    y[...] = pl.sum(x * x, axis=1)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "softmax": (softmax, (FLAT, FLAT)), "layer_norm": (layer_norm, (FLAT, FLAT)),
    "largest": (largest, (FLAT, PLACES)), "sums": (sums, (FLAT, LINE)),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("passes"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", [1, 4096, 8192, 8193, 20011])
def test_rows_of_any_extent(programs: Programs, name: str, columns: int) -> None:
    x = np.random.default_rng(columns).standard_normal((3, columns), np.float32)
    y = np.zeros(x.shape if CASES[name][1][1] is FLAT else 3, np.int32 if name == "largest" else np.float32)
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"y": y}, close)
