# SPDX-License-Identifier: MIT
"""Tensors of rank 0, whose one element has no indices: on the host, in kernels, as tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

pytestmark = needs_compiler


@pto.jit
def on_the_host(x: pl.Tensor, s: pl.Tensor, out: pl.Tensor):
    s[()] = s[()] * 2
    out[0] = s[()]


@pto.jit
def in_lines(x: pl.Tensor, s: pl.Tensor, out: pl.Tensor):
    for i in pl.range(x.shape[0], parallel=True):
        out[i] = x[i] * s[()]


@pto.jit
def summed(x: pl.Tensor, s: pl.Tensor, out: pl.Tensor):
    s[()] = pl.sum(pl.load(x))


@pto.jit
def with_tiles(x: pl.Tensor, s: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        pl.store(pl.load(x) * pl.load(s), [0], out)


@pto.jit
def added_up(x: pl.Tensor, s: pl.Tensor, out: pl.Tensor):
    for i in pl.range(x.shape[0]):
        s[()] = s[()] + x[i]


VECTOR, NUMBER = pto.spec((37,), pl.f32), pto.spec((), pl.f32)
CASES: dict[str, Any] = {fn.__name__: fn for fn in (on_the_host, in_lines, summed, with_tiles, added_up)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered({name: (fn, (VECTOR, NUMBER, VECTOR)) for name, fn in CASES.items()}, tmp_path_factory.mktemp("zero"))


@pytest.mark.parametrize("name", CASES)
def test_a_tensor_of_rank_0_has_one_element(programs: Programs, name: str) -> None:
    x = np.arange(37, dtype=np.float32)
    outputs = {"s": np.array(1.5, np.float32), "out": np.zeros(37, np.float32)}
    check_interpreted(programs, CASES[name], name, {"x": x}, outputs)
