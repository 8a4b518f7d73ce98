# SPDX-License-Identifier: MIT
"""Flash attention: a map over the batch, one over heads, one over blocks of queries, a reduction over blocks of keys.

    python tutorials/fractal/attention.py

The reduction combines what blocks of keys contribute: the largest score m, the sum l of exp(score - m), and that sum
weighted with the values (T. Dao et al., FlashAttention, 2022).  Combining is associative, so blocks come in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl


def contribution(q: Any, k: Any, v: Any) -> Any:
    """One block of keys for one of queries."""
    scores = q @ pl.transpose(k) * (1.0 / q.shape[1] ** 0.5)
    m = pl.max(scores, axis=1, keepdims=True)
    p = pl.exp(scores - m)
    return m, pl.sum(p, axis=1, keepdims=True), p @ v


def combine(a: Any, b: Any) -> Any:
    m = pl.maximum(a[0], b[0])
    left, right = pl.exp(a[0] - m), pl.exp(b[0] - m)
    return m, a[1] * left + b[1] * right, a[2] * left + b[2] * right


def attend(q: Any, keys: Any) -> Any:
    """One block of queries, all keys and values."""
    _, total, out = ft.reduce(combine, ft.zip(*ft.map(lambda kv: contribution(q, kv[0], kv[1]), keys)))
    return out / total


def head(cur: Any) -> Any:
    qs, ks, vs = cur
    return ft.map(attend, qs, keys=ft.zip(ks, vs))


def program(q: Any, k: Any, v: Any) -> Any:
    """softmax(q kᵀ / √d) v for `[batch][head][block]` of [R, d]."""
    return ft.map(lambda heads: ft.map(head, ft.zip(*heads)), ft.zip(q, k, v))


def reference(q: Any, k: Any, v: Any) -> list[list[np.ndarray]]:
    """The same with whole matrices: `[rows, d]` per element of the batch and head."""
    found = []
    for sequence in zip(q.tolist(), k.tolist(), v.tolist(), strict=True):
        heads = []
        for blocks in zip(*sequence, strict=True):
            if not blocks[0]:
                heads.append(np.zeros((0, q.leaf_shape[1]), np.float32))
                continue
            qs, ks, vs = (np.concatenate(b) for b in blocks)
            scores = qs @ ks.T / np.sqrt(qs.shape[1])
            p = np.exp(scores - scores.max(1, keepdims=True))
            heads.append(p / p.sum(1, keepdims=True) @ vs)
        found.append(heads)
    return found


def arguments(lengths: Any = (3, 0, 1, 5), heads: int = 2, rows: int = 4, size: int = 8) -> list[Any]:
    """Random arguments of `program`: sequences of so many blocks."""
    rng = np.random.default_rng(0)
    counts = np.repeat(lengths, heads)
    offsets = [np.arange(len(lengths) + 1) * heads, np.cumsum([0, *counts])]
    shape = (int(counts.sum()), rows, size)
    return [ft.from_flat(rng.standard_normal(shape).astype(np.float32), offsets) for _ in range(3)]


def main() -> None:
    given = arguments()
    out = program(*given)
    for got, want in zip(out, reference(*given), strict=True):
        for head_got, head_want in zip(got, want, strict=True):
            np.testing.assert_allclose(head_got.leaves.reshape(head_want.shape), head_want, atol=1e-5)
    print("attention:", out)


if __name__ == "__main__":
    main()
