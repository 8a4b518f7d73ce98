# SPDX-License-Identifier: MIT
"""Loops over elements as one writes them for an interpreter: every sum in its order, nothing said about vectors."""

from __future__ import annotations

import pto_jit as pto
import pto_jit.language as pl


@pto.jit
def product(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """A matrix product in three loops."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            out[i, j] = s


@pto.jit
def product_parallel(a: pl.Tensor, b: pl.Tensor, out: pl.Tensor):
    """The same with its rows divided among the workers."""
    for i in pl.range(a.shape[0], parallel=True):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            out[i, j] = s


def _row_products(a: pl.Tensor, x: pl.Tensor, out: pl.Tensor):
    """A matrix times a vector: sums along the rows."""
    for i in range(a.shape[0]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * x[k]
        out[i] = s


row_products = pto.jit(_row_products)
row_products_fastmath = pto.jit(fastmath=True)(_row_products)  # sums in any order


@pto.jit
def fir(x: pl.Tensor, taps: pl.Tensor, out: pl.Tensor):
    """A filter of finite impulse response."""
    for i in range(out.shape[0]):
        s = 0.0
        for k in range(taps.shape[0]):
            s += x[i + k] * taps[k]
        out[i] = s


@pto.jit
def viterbi(moves: pl.Tensor, seen: pl.Tensor, score: pl.Tensor, best: pl.Tensor):
    """The most likely sequences of hidden states: for each step and state the score and the state before."""
    for s in range(seen.shape[1]):
        score[0, s] = seen[0, s]
        best[0, s] = 0
    for t in range(1, seen.shape[0]):
        for s in range(seen.shape[1]):
            most = -1e30
            at = 0
            for p in range(seen.shape[1]):
                v = score[t - 1, p] + moves[p, s]
                if v > most:
                    most = v
                    at = p
            score[t, s] = most + seen[t, s]
            best[t, s] = at
