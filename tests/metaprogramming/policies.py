# SPDX-License-Identifier: MIT
"""A library of kernels that take policies as functions: what a user imports and never edits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pto_jit as pto
import pto_jit.language as pl

Epilogue = Callable[[Any], Any]


def identity(t: Any) -> Any:
    return t


@pto.jit
def matmul(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor, activation: Epilogue = identity, block: pl.constexpr = 8):
    """out = activation(a @ b)."""
    rows, depth = a.shape
    cols = b.shape[1]
    for i in pl.range(0, rows, block, parallel=True):
        for j in pl.range(0, cols, block):
            acc = pl.zeros([block, block], pl.f32)
            for k in pl.range(0, depth, block):
                acc += pl.dot(pl.load(a, [i, k], [block, block], pad=0), pl.load(b, [k, j], [block, block], pad=0))
            pl.store(activation(acc), [i, j], out)


@pto.jit
def rowwise(x: pl.Tensor, out: pl.Tensor, *stages: Epilogue):
    """Every stage is applied to every row, in order."""
    rows, cols = x.shape
    for r in pl.range(rows):
        t = pl.load(x, [r, 0], [1, cols])
        for stage in stages:
            t = stage(t)
        pl.store(t, [r, 0], out)


def _online(state: Any, new: Any, *, causal: bool, row: Any, block: int) -> Any:
    """One step of the online softmax; with `causal`, keys after the query's row do not count."""
    (m, total, acc), (scores, values, first) = state, new
    if causal:
        column = first + pl.arange(0, block)
        scores = pl.where(pl.expand_dims(column, 0) <= row, scores, -1e30)
    top = pl.maximum(m, pl.max(scores, axis=1, keepdims=True))
    weights = pl.exp(scores - top)
    decay = pl.exp(m - top)
    return top, total * decay + pl.sum(weights, axis=1, keepdims=True), acc * decay + weights @ values


@pto.jit
def attention(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor, causal: bool = False, block: pl.constexpr = 4):
    """softmax(q k^T) v; one source for both masks, the loops differ at compile time."""
    rows, width = q.shape
    keys = k.shape[0]
    for r in pl.range(rows, parallel=True):
        query = pl.load(q, [r, 0], [1, width])
        step = functools.partial(_online, row=r, block=block)
        state = (pl.full([1, 1], -1e30, pl.f32), pl.zeros([1, 1], pl.f32), pl.zeros([1, width], pl.f32))
        whole = (r // block) * block if causal else keys
        for c in pl.range(0, whole, block):
            tile, values = pl.load(k, [c, 0], [block, width]), pl.load(v, [c, 0], [block, width])
            state = step(state, (query @ tile.T, values, c), causal=False)
        if causal:
            for c in pl.range(whole, r + 1, block):
                tile, values = pl.load(k, [c, 0], [block, width]), pl.load(v, [c, 0], [block, width])
                state = step(state, (query @ tile.T, values, c), causal=True)
        _, total, acc = state
        pl.store(acc / total, [r, 0], out)
