# SPDX-License-Identifier: MIT
"""Block-sparse attention of BigBird: each block of queries sees its neighbours, a global block and random ones.

    python tutorials/fractal/bigbird.py

Neighbours are windows around the ends of the sequence (`shifted_slide`); the others are gathered by number and joined
to them; nothing of this moves a key.  The first block is global: it is seen by all, and sees all
(M. Zaheer et al., Big Bird, 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl

WINDOW = 3


def attend(q: Any, ks: Any, vs: Any) -> Any:
    """A block of queries [R, d] with lists of blocks of keys and values."""
    scores = q @ pl.transpose(ft.cat(ks, axis=0)) * (1.0 / q.shape[1] ** 0.5)
    p = pl.exp(scores - pl.max(scores, axis=1, keepdims=True))
    return p @ ft.cat(vs, axis=0) / pl.sum(p, axis=1, keepdims=True)


def sparse(cur: Any, ks: Any, vs: Any) -> Any:
    q, chosen, k_near, v_near = cur
    return attend(q, ft.join(k_near, ft.gather(ks, chosen)), ft.join(v_near, ft.gather(vs, chosen)))


def sequence(cur: Any) -> Any:
    qs, ks, vs, chosen = cur
    near = ft.zip(qs, chosen, ft.shifted_slide(ks, WINDOW), ft.shifted_slide(vs, WINDOW))
    return ft.map(sparse, near, ks=ks, vs=vs), ft.map(attend, ft.slice(qs, 0, 1), ks=ks, vs=vs)


def program(q: Any, k: Any, v: Any, chosen: Any) -> Any:
    """(sparse, global): attention of all blocks to a few, `[batch][block]` of [R, d], and of the first to all.

    chosen: for each block the numbers of those it sees besides its neighbours, `[batch][block][...]`.
    """
    return ft.map(sequence, ft.zip(q, k, v, chosen))


def reference(q: Any, k: Any, v: Any, chosen: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same with concatenated blocks: per sequence `[blocks, R, d]` and `[1, R, d]`."""

    def attention(q: np.ndarray, ks: Any, vs: Any) -> np.ndarray:
        scores = q @ np.concatenate(ks).T / np.sqrt(q.shape[1])
        p = np.exp(scores - scores.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True) @ np.concatenate(vs)

    found = []
    for qs, ks, vs, rows in zip(q.tolist(), k.tolist(), v.tolist(), chosen.tolist(), strict=True):
        n = len(qs)
        seen = [[(i + s) % n for s in range(-(WINDOW // 2), WINDOW // 2 + 1)] + row for i, row in enumerate(rows)]
        few = [attention(qs[i], [ks[j] for j in seen[i]], [vs[j] for j in seen[i]]) for i in range(n)]
        every = [attention(block, ks, vs) for block in qs[:1]]
        found.append((np.array(few).reshape(-1, *q.leaf_shape), np.array(every).reshape(-1, *q.leaf_shape)))
    return found


def arguments(lengths: Any = (6, 0, 4, 9), rows: int = 4, size: int = 8) -> list[Any]:
    """Random arguments of `program`: sequences of so many blocks, each of which sees block 0 and a random one."""
    rng = np.random.default_rng(0)
    offsets = np.cumsum([0, *lengths])
    shape = (sum(lengths), rows, size)
    tensors = [ft.from_flat(rng.standard_normal(shape).astype(np.float32), [offsets]) for _ in range(3)]
    chosen = np.stack([np.zeros(sum(lengths), int), rng.integers(0, np.repeat(lengths, lengths))], 1)
    return [*tensors, ft.from_flat(chosen.reshape(-1), [offsets, np.arange(sum(lengths) + 1) * 2])]


def main() -> None:
    given = arguments()
    out = program(*given)
    for k, wanted in enumerate(reference(*given)):
        for got, want in zip(out, wanted, strict=True):
            np.testing.assert_allclose(got[k].leaves, want, atol=1e-5)
    print("attention:", out[0])


if __name__ == "__main__":
    main()
