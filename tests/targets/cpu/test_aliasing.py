# SPDX-License-Identifier: MIT
"""Which loads are copied before they are used: those whose memory may be written meanwhile, no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.compiler import lower
from pto_jit.options import Options
from pto_jit.targets.cpu.analysis import Aliasing, loads_to_copy

RNG = np.random.default_rng(1)


@pto.jit(cache=False)
def allocated(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor):
    a = pl.empty([64, 32], pl.f32)
    b = pl.empty([64, 32], pl.f32)
    with pl.incore():
        pl.store(pl.load(x) * 2, [0, 0], a)
    with pl.incore():
        t = pl.load(a)
        pl.store(t @ pl.load(w), [0, 0], b)
        pl.store(t + pl.load(b), [0, 0], out)


@pto.jit(cache=False)
def same(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor):
    a = pl.empty([64, 32], pl.f32)
    with pl.incore():
        pl.store(pl.load(x) * 2, [0, 0], a)
        t = pl.load(a)
        pl.store(t @ pl.load(w), [0, 0], a)
        pl.store(t + pl.load(a), [0, 0], out)


@pto.jit(cache=False)
def argument(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        t = pl.load(x)
        pl.store(t @ pl.load(w), [0, 0], out)
        pl.store(t * 2 + pl.load(out), [0, 0], out)


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x * 2 + (x * 2) @ w


@pytest.mark.parametrize("kernel", [allocated, same])
def test_a_tile_keeps_what_it_was_loaded_with(kernel: Any) -> None:
    x, w, out = (RNG.standard_normal(s, np.float32) for s in ((64, 32), (32, 32), (64, 32)))
    kernel(x, w, out)
    np.testing.assert_allclose(out, expected(x, w), rtol=1e-4, atol=1e-4)


def test_an_argument_may_be_what_is_written() -> None:
    x, w = (RNG.standard_normal(s, np.float32) for s in ((64, 32), (32, 32)))
    wanted = x * 2 + x @ w
    argument(x, w, x)
    np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-4)


def _copies(kernel: Any, *, known: bool = True) -> int:
    """How many loads of a compiled kernel are copied."""
    x, w, out = (np.zeros(s, np.float32) for s in ((64, 32), (32, 32), (64, 32)))
    parameters = kernel._parameters
    call = parameters.classify(*parameters.bind((x, w, out), {}))
    module = lower(kernel.__pto_jit__, call.params, Options()).last
    aliasing = Aliasing(module)
    found: set[str] = set()
    for func in module.funcs:
        found |= loads_to_copy(func.body, lambda func=func: aliasing.of(func) if known else {})
    return len(found)


def test_memory_of_its_own_is_not_copied() -> None:
    assert _copies(allocated) == 0 < _copies(allocated, known=False)
    assert _copies(same) == 1
    assert _copies(argument) == 1
