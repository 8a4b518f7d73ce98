# SPDX-License-Identifier: MIT
"""Attention with a running softmax: scores exist one tile at a time (Dao et al., 2022).

In two forms: with a row of scores for each query, as papers write it and devices like it, and turned, a column for each
query: then what is known of the queries (maximum, sum) lies along vectors, keys enter the product as they lie in
memory, and larger tiles make the most of a CPU's caches.
"""

from __future__ import annotations

import math

import pto_jit as pto
import pto_jit.language as pl

QUERIES, KEYS = 128, 256
_LOG2E = math.log2(math.e)


def attend(state, scores, v, axis=1, exponential=pl.exp):
    """One step of the running softmax: a tile of scores and the values that belong to it.

    The keys of the scores lie along `axis`. Weights are rounded to the type of the values, as devices multiply them.
    """
    top, total, acc = state
    new_top = pl.maximum(top, pl.max(scores, axis=axis, keepdims=True))
    shrink = exponential(top - new_top)
    weights = exponential(scores - new_top)
    total = total * shrink + pl.sum(weights, axis=axis, keepdims=True)
    if axis == 0:
        return new_top, total, pl.dot(weights.to(v.dtype).T, v, acc * shrink.T)
    return new_top, total, pl.dot(weights.to(v.dtype), v, acc * shrink)


def in_rows(causal: bool, tile: tuple[int, int], exponential=pl.exp):
    """softmax(q @ k.T / sqrt(dim)) @ v over `[heads, length, dim]`, in tiles of so many queries and keys; `causal`: a
    query sees the keys up to its own, and tiles beyond the diagonal are never computed; `exponential`: exp, or exp2
    of scores that are multiplied by log2(e) with the queries."""
    rows, columns = tile
    in_twos = exponential is pl.exp2

    @pto.jit
    def attention(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
        heads, length, dim = q.shape
        with pl.incore():
            scale = _LOG2E * dim**-0.5 if in_twos else dim**-0.5
            for h in pl.range(heads, parallel=True):
                for i in pl.range(0, length, rows, parallel=True):
                    queries = pl.load(q[h], [i, 0], [rows, dim]) * scale
                    top = pl.full([rows, 1], -math.inf, pl.f32)
                    total = pl.zeros([rows, 1], pl.f32)
                    acc = pl.zeros([rows, dim], pl.f32)
                    # Every query of the tile sees all of these keys.
                    whole = i // columns * columns if causal else length
                    for j in pl.range(0, whole, columns):
                        scores = queries @ pl.load(k[h], [j, 0], [columns, dim]).T
                        values = pl.load(v[h], [j, 0], [columns, dim])
                        top, total, acc = attend((top, total, acc), scores, values, 1, exponential)
                    if causal:  # of these each sees a part
                        for j in pl.range(whole, i + rows, columns):
                            scores = queries @ pl.load(k[h], [j, 0], [columns, dim]).T
                            row = i + pl.reshape(pl.arange(0, rows), [rows, 1])
                            col = j + pl.reshape(pl.arange(0, columns), [1, columns])
                            scores = pl.where(col <= row, scores, -math.inf)
                            values = pl.load(v[h], [j, 0], [columns, dim])
                            top, total, acc = attend((top, total, acc), scores, values, 1, exponential)
                    pl.store(acc / total, [i, 0], out[h])

    return attention


attention, attention_causal = in_rows(False, (64, 128)), in_rows(True, (64, 128))
# For tensor cores: a warp reads keys and values for 32 queries, and the exponential is one instruction.
attention_wide, attention_causal_wide = in_rows(False, (128, 64), pl.exp2), in_rows(True, (128, 64), pl.exp2)


def turned(causal: bool):
    """softmax(q @ k.T / sqrt(dim)) @ v over `[heads, length, dim]`; `causal`: a query sees the keys up to its own."""

    @pto.jit
    def attention(q: pl.Tensor, k: pl.Tensor, v: pl.Tensor, out: pl.Tensor):
        heads, length, dim = q.shape
        with pl.incore():
            scale = dim**-0.5
            for h in pl.range(heads, parallel=True):
                for i in pl.range(0, length, QUERIES, parallel=True):
                    queries = (pl.load(q[h], [i, 0], [QUERIES, dim]) * scale).T
                    top = pl.full([1, QUERIES], -math.inf, pl.f32)
                    total = pl.zeros([1, QUERIES], pl.f32)
                    acc = pl.zeros([QUERIES, dim], pl.f32)
                    # Every query of the tile sees all of these keys.
                    whole = i // KEYS * KEYS if causal else length
                    for j in pl.range(0, whole, KEYS):
                        scores = pl.load(k[h], [j, 0], [KEYS, dim]) @ queries
                        values = pl.load(v[h], [j, 0], [KEYS, dim])
                        top, total, acc = attend((top, total, acc), scores, values, axis=0)
                    if causal:  # of these each sees a part, and of those beyond the diagonal none
                        for j in pl.range(whole, i + QUERIES, QUERIES):
                            scores = pl.load(k[h], [j, 0], [QUERIES, dim]) @ queries
                            key = j + pl.reshape(pl.arange(0, QUERIES), [QUERIES, 1])
                            query = i + pl.reshape(pl.arange(0, QUERIES), [1, QUERIES])
                            scores = pl.where(key <= query, scores, -math.inf)
                            values = pl.load(v[h], [j, 0], [QUERIES, dim])
                            top, total, acc = attend((top, total, acc), scores, values, axis=0)
                    pl.store(acc / total.T, [i, 0], out[h])

    return attention


attention_turned, attention_causal_turned = turned(causal=False), turned(causal=True)
