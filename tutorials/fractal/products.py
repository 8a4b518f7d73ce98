# SPDX-License-Identifier: MIT
"""Back-to-back matrix products (A B) C, block by block, so that A B never stands in memory.

    python tutorials/fractal/products.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit as pto
import pto_jit.fractal as ft


def add(x: Any, y: Any) -> Any:
    return x + y


def block(a: Any, parts: Any) -> Any:
    """A block of rows: the sum over the parts of B's columns and C's rows."""
    return ft.reduce(add, ft.map(lambda part: (a @ part[0]) @ part[1], parts))


def program(batch: Any, b: Any, c: Any, count: pto.language.constexpr = 4) -> Any:
    """(A B) C for blocks of rows of A, `[batch][block]` of [R, K]; b [K, N], c [N, K], N taken in `count` parts."""
    parts = ft.zip(ft.split(b, count, axis=1), ft.split(c, count, axis=0))
    return ft.map(lambda blocks: ft.map(block, blocks, parts=parts), batch)


def reference(batch: Any, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    """The same with whole matrices: `[rows, K]` per element of the batch."""
    return [np.concatenate([np.zeros((0, len(b)), b.dtype), *blocks]) @ b @ c for blocks in batch.tolist()]


def arguments(lengths: Any = (3, 0, 1, 5), rows: int = 4, inner: int = 8, wide: int = 16) -> list[Any]:
    """Random arguments of `program`: matrices of so many blocks of rows."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(inner)).astype(np.float32)

    batch = ft.from_flat(normal(sum(lengths), rows, inner), [np.cumsum([0, *lengths])])
    return [batch, normal(inner, wide), normal(wide, inner)]


def main() -> None:
    given = arguments()
    out = program(*given)
    for got, want in zip(out, reference(*given), strict=True):
        np.testing.assert_allclose(got.leaves.reshape(want.shape), want, atol=1e-5)
    print("products:", out)


if __name__ == "__main__":
    main()
