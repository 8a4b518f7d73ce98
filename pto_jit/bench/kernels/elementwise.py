# SPDX-License-Identifier: MIT
"""Elementwise kernels: tiles of rows, or of a vector."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def add16(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """out = a + b, in one tile."""
    pl.store(pl.load(a, [0], [16]) + pl.load(b, [0], [16]), [0], out)


@pto.jit
def vector_add(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """out = a + b, in tiles of 4096."""
    (n,) = a.shape
    for i in pl.range(0, n, 4096, parallel=True):
        pl.store(pl.load(a, [i], [4096]) + pl.load(b, [i], [4096]), [i], out)


@pto.jit
def gelu_tanh(x: pl.Tensor, out: pl.Tensor):
    """GELU in its tanh form, row by row."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=16):
            t = pl.load(x, [r, 0], [1, cols])
            pl.store(pl.gelu(t, approximate="tanh"), [r, 0], out)


@pto.jit
def gelu_erf(x: pl.Tensor, out: pl.Tensor):
    """GELU in its exact form, row by row."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=16):
            t = pl.load(x, [r, 0], [1, cols])
            pl.store(pl.gelu(t), [r, 0], out)


@pto.jit
def silu_mul(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    """out = silu(x) * y, row by row."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=16):
            gate = pl.silu(pl.load(x, [r, 0], [1, cols]))
            pl.store(gate * pl.load(y, [r, 0], [1, cols]), [r, 0], out)


@pto.jit
def bias_relu(x: pl.Tensor, bias: pl.Tensor, out: pl.Tensor):
    """out = relu(x + bias), row by row."""
    rows, cols = x.shape
    with pl.incore():
        b = pl.load(pl.reshape(bias, [1, cols]), [0, 0], [1, cols])
        for r in pl.range(0, rows, chunk=16):
            t = pl.load(x, [r, 0], [1, cols])
            pl.store(pl.relu(t + b), [r, 0], out)
