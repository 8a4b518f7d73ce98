# SPDX-License-Identifier: MIT
"""Kernels that reduce rows: one row is one tile."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl

EPSILON = 1e-5


@pto.jit
def softmax(x: pl.Tensor, y: pl.Tensor):
    """Softmax of every row."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, cols])
            e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(e / pl.sum(e, axis=1, keepdims=True), [r, 0], y)


@pto.jit
def rms_norm(x: pl.Tensor, weight: pl.Tensor, y: pl.Tensor):
    """x / sqrt(mean(x**2) + epsilon) * weight (Zhang and Sennrich, 2019)."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, cols])
            scale = pl.rsqrt(pl.mean(t * t, axis=1, keepdims=True) + EPSILON)
            pl.store(t * scale * pl.load(weight, [0], [cols]), [r, 0], y)


@pto.jit
def layer_norm(x: pl.Tensor, weight: pl.Tensor, bias: pl.Tensor, y: pl.Tensor):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias (Ba, Kiros and Hinton, 2016)."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=64):
            t = pl.load(x, [r, 0], [1, cols])
            c = t - pl.mean(t, axis=1, keepdims=True)
            scale = pl.rsqrt(pl.mean(c * c, axis=1, keepdims=True) + EPSILON)
            pl.store(c * scale * pl.load(weight, [0], [cols]) + pl.load(bias, [0], [cols]), [r, 0], y)


@pto.jit
def cross_entropy(logits: pl.Tensor, labels: pl.Tensor, loss: pl.Tensor):
    """logsumexp(logits) - logits[label] of every row."""
    rows, classes = logits.shape
    with pl.incore():
        for r in pl.range(0, rows, chunk=8):
            t = pl.load(logits, [r, 0], [1, classes])
            top = pl.max(t)
            loss[r] = top + pl.log(pl.sum(pl.exp(t - top))) - logits[r, labels[r]]
