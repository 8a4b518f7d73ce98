# SPDX-License-Identifier: MIT
"""Matrix products: as one expression over whole tensors, and with tiles chosen by hand."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl

BM, BN, BK = 128, 256, 256


@pto.jit
def matmul(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """c = a @ b, tiles left to the compiler."""
    c[...] = a @ b


@pto.jit
def matmul_bf16(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """c = a @ b of bf16 tensors, summed in f32."""
    c[...] = pl.cast(pl.dot(a, b), pl.bf16)


@pto.jit
def matmul_bias_gelu(a: pl.Tensor, b: pl.Tensor, bias: pl.Tensor, c: pl.Tensor):
    """c = gelu(a @ b / sqrt(k) + bias)."""
    k = a.shape[1]
    c[...] = pl.gelu((a @ b) * k**-0.5 + bias, approximate="tanh")


@pto.jit
def matmul_tiled(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """c = a @ b, one tile of c at a time."""
    (m, k), n = a.shape, b.shape[1]
    with pl.incore():
        for i in pl.range(0, m, BM, parallel=True):
            for j in pl.range(0, n, BN, parallel=True):
                acc = pl.zeros([BM, BN], pl.f32)
                for p in pl.range(0, k, BK):
                    acc = pl.dot(pl.load(a, [i, p], [BM, BK]), pl.load(b, [p, j], [BK, BN]), acc)
                pl.store(acc, [i, j], c)


@pto.jit
def matmul_bf16_tiled(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """c = a @ b of bf16 tensors, one tile of c at a time, summed in f32."""
    (m, k), n = a.shape, b.shape[1]
    with pl.incore():
        for i in pl.range(0, m, BM, parallel=True):
            for j in pl.range(0, n, BN, parallel=True):
                acc = pl.zeros([BM, BN], pl.f32)
                for p in pl.range(0, k, BK):
                    acc = pl.dot(pl.load(a, [i, p], [BM, BK]), pl.load(b, [p, j], [BK, BN]), acc)
                pl.store(acc.to(pl.bf16), [i, j], c)


@pto.jit
def matmul_bias_gelu_tiled(a: pl.Tensor, b: pl.Tensor, bias: pl.Tensor, c: pl.Tensor):
    """c = gelu(a @ b / sqrt(k) + bias), the epilogue applied to each tile while it is at hand."""
    (m, k), n = a.shape, b.shape[1]
    with pl.incore():
        scale = k**-0.5
        for i in pl.range(0, m, BM, parallel=True):
            for j in pl.range(0, n, BN, parallel=True):
                acc = pl.zeros([BM, BN], pl.f32)
                for p in pl.range(0, k, BK):
                    acc = pl.dot(pl.load(a, [i, p], [BM, BK]), pl.load(b, [p, j], [BK, BN]), acc)
                t = acc * scale + pl.load(bias, [j], [BN])
                pl.store(pl.gelu(t, approximate="tanh"), [i, j], c)


@pto.jit
def swiglu(x: pl.Tensor, gate: pl.Tensor, up: pl.Tensor, down: pl.Tensor, out: pl.Tensor):
    """(silu(x @ gate) * (x @ up)) @ down (Shazeer, 2020)."""
    hidden = pl.silu(x @ gate) * (x @ up)
    out[...] = hidden @ down
