# SPDX-License-Identifier: MIT
"""Kernels whose reduced axis is the one that is divided: partial results, and a combine phase."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl


def merge(a, b):
    """Two states (maximum, sum of exponentials) of an online softmax (Milakov and Gimelshein, 2018)."""
    m = pl.maximum(a[0], b[0])
    return m, a[1] * pl.exp(a[0] - m) + b[1] * pl.exp(b[0] - m)


@pto.jit
def column_softmax(x: pl.Tensor, y: pl.Tensor):
    """Softmax of every row, 64 rows at a time, with the columns divided: what few long rows need."""
    rows, cols = x.shape
    with pl.incore():
        for r in pl.range(0, rows, 64):
            start = (pl.full([64, 1], -3e38, pl.f32), pl.zeros([64, 1], pl.f32))
            state = pl.reduction(init=start, combine=merge)
            for c in pl.range(0, cols, 2048, chunk=8, combine="tree"):
                t = pl.load(x, [r, c], [64, 2048])
                m = pl.max(t, axis=1, keepdims=True)
                state.update(m, pl.sum(pl.exp(t - m), axis=1, keepdims=True))
            top, total = state.value
            for c in pl.range(0, cols, 2048, chunk=8):
                pl.store(pl.exp(pl.load(x, [r, c], [64, 2048]) - top) / total, [r, c], y)


@pto.jit
def log_sum_exp(x: pl.Tensor, out: pl.Tensor):
    """The logarithm of the sum of the exponentials of a vector, by elements, which are read once."""
    state = pl.reduction(init=(-3e38, 0.0), combine=merge)
    for i in pl.range(x.shape[0], parallel=True):
        state.update(x[i], 1.0)
    top, total = state.value
    out[0] = top + pl.log(total)


@pto.jit
def vector_sum(x: pl.Tensor, total: pl.Tensor):
    """The sum of a vector, by elements."""
    s = 0.0
    for i in pl.range(x.shape[0], parallel=True):
        s += x[i]
    total[0] = s
