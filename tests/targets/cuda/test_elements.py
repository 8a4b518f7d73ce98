# SPDX-License-Identifier: MIT
"""Kernels of scalar code: every thread has iterations of its own."""

from __future__ import annotations

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import grids

from .harness import emulated, needs_compiler

pytestmark = needs_compiler
RNG = np.random.default_rng(8)


def test_a_stencil_and_a_loop_that_ends_at_run_time() -> None:
    x = RNG.standard_normal((12, 45)).astype(np.float32)
    _, (_, out) = emulated(grids.stencil5, x, np.zeros((10, 43), np.float32))
    near = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    np.testing.assert_allclose(out, 0.2 * (x[1:-1, 1:-1] + near), rtol=1e-5, atol=1e-6)
    re, im = np.linspace(-2, 0.6, 40, dtype=np.float32), np.linspace(-1.2, 1.2, 9, dtype=np.float32)
    _, (*_, counts) = emulated(grids.mandelbrot, re, im, np.zeros((9, 40), np.int32))
    expected = np.zeros((9, 40), np.int32)
    grids.mandelbrot(re, im, expected)
    assert np.mean(counts != expected) <= 0.02


@pto.jit
def cubes(x: pl.Tensor, out: pl.Tensor, bias):
    a, b, c, d = x.shape
    for i in pl.range(a, parallel=True):
        for j in pl.range(b, parallel=True):
            for k in pl.range(1, c, 2, parallel=True):
                for m in pl.range(d, parallel=True):
                    if (i + j) % 2 == 0:
                        out[i, j, k, m] = x[i, j, k, m] * 2 + bias
                    else:
                        total = 0
                        for n in pl.range(m, -1, -1):
                            total += x[i, j, k, n]
                        out[i, j, k, m] = total


def test_four_loops_branches_and_a_loop_downwards() -> None:
    x = RNG.integers(-50, 50, (3, 4, 5, 6))
    _, (_, out, _) = emulated(cubes, x, np.zeros_like(x), 3)
    expected = np.zeros_like(x)
    for i, j in np.ndindex(3, 4):
        expected[i, j, 1::2] = x[i, j, 1::2] * 2 + 3 if (i + j) % 2 == 0 else np.cumsum(x[i, j, 1::2], axis=-1)
    np.testing.assert_array_equal(out, expected)
