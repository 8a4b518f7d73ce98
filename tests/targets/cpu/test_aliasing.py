# SPDX-License-Identifier: MIT
"""Which loads are copied before they are used: those whose memory may be written meanwhile, no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.compiler import lower
from pto_jit.ir.parse import parse
from pto_jit.options import Options
from pto_jit.targets.cpu.analysis import Aliasing, loads_to_copy, may_share

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


CALLS = """
// Entry: @main

// Function Type: InCore
func @step(%x: !pto.memref<gm,8x8,f32>, %y: !pto.memref<gm,8x8,f32>) {
  %t = tload %x[0, 0] [8, 8] : !pto.tile<8x8xf32>
  %own = talloc [8, 8] {dtype=f32} : !pto.memref<gm,8x8,f32>
  tstore %t, %own[0, 0]
  tstore %t, %y[0, 0]
  tstore %t, %own[0, 0]
  return
}

// Function Type: Orchestration
func @main(%p: !pto.memref<gm,8x8,f32>, %q: !pto.memref<gm,8x8,f32>) {
  %a = talloc [8, 8] {dtype=f32} : !pto.memref<gm,8x8,f32>
  %b = talloc [8, 8] {dtype=f32} : !pto.memref<gm,8x8,f32>
CALLED
  return
}
"""


@pytest.mark.parametrize(
    "calls, shares",
    [
        (["a", "b"], False),
        (["p", "a"], False),
        (["p", "q"], True),  # arguments of the program may overlap
        (["a", "b", "b", "a"], False),  # each way by itself
        (["a", "b", "a", "a"], True),
    ],
)
def test_parameters_share_memory_if_those_of_some_call_do(calls: list[str], shares: bool) -> None:
    pairs = zip(calls[::2], calls[1::2], strict=True)
    called = "\n".join(f"  CALL @step(%x -> %{x}, %y -> %{y})" for x, y in pairs)
    module = parse(CALLS.replace("CALLED", called))
    roots = Aliasing(module).of(module.func("step"))
    assert may_share(roots["x"], roots["y"]) is may_share(roots["t"], roots["y"]) is shares
    assert not may_share(roots["own"], roots["x"]) and may_share(roots["own"], roots["own"])
    assert len(roots["x"]) == len(calls) // 2


def test_of_a_function_that_nothing_calls_nothing_is_known() -> None:
    module = parse(CALLS.replace("CALLED\n", ""))
    roots = Aliasing(module).of(module.func("step"))
    assert may_share(roots.get("x"), roots.get("y")) and may_share(roots.get("x"), roots["own"])
