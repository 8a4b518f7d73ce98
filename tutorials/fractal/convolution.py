# SPDX-License-Identifier: MIT
"""Convolutions along sequences of any lengths: a map over the windows that `slide` gives.

    python tutorials/fractal/convolution.py

The first layer keeps the length (padding), the second one takes every second position of a dilated window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl


def filtered(window: Any, kernel: Any) -> Any:
    """One output position: the window's vectors in a row times the kernel [K·C, O]."""
    return pl.relu(ft.cat(window, axis=1) @ kernel)


def convolve(xs: Any, first: Any, second: Any) -> Any:
    ys = ft.map(filtered, ft.slide(xs, 3, padding=1), kernel=first)
    return ft.map(filtered, ft.slide(ys, 3, stride=2, dilation=2, padding=2), kernel=second)


def program(batch: Any, first: Any, second: Any) -> Any:
    """`[batch][time]` of [1, O] from `[batch][time]` of [1, C]; kernels first [3C, O], second [3O, O]."""
    return ft.map(convolve, batch, first=first, second=second)


def reference(batch: Any, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """The same on padded arrays: `[T', O]` per sequence."""

    def layer(x: np.ndarray, kernel: np.ndarray, stride: int, dilation: int, padding: int) -> np.ndarray:
        n, channels = x.shape
        count = (n + 2 * padding - 2 * dilation - 1) // stride + 1 if n else 0
        padded = np.pad(x, ((padding, padding), (0, 0)))
        out = np.zeros((max(count, 0), kernel.shape[1]), x.dtype)
        for i in range(len(out)):
            for k in range(3):
                out[i] += padded[i * stride + k * dilation] @ kernel[k * channels : (k + 1) * channels]
        return np.maximum(out, 0)

    found = []
    for sequence in batch.tolist():
        x = np.array(sequence, np.float32).reshape(-1, batch.leaf_shape[1])
        found.append(layer(layer(x, first, 1, 1, 1), second, 2, 2, 2))
    return found


def arguments(lengths: Any = (7, 0, 1, 10), channels: int = 4, filters: int = 8) -> list[Any]:
    """Random arguments of `program`: sequences of those lengths."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(channels)).astype(np.float32)

    batch = ft.from_flat(normal(sum(lengths), 1, channels), [np.cumsum([0, *lengths])])
    return [batch, normal(3 * channels, filters), normal(3 * filters, filters)]


def main() -> None:
    given = arguments()
    out = program(*given)
    for got, want in zip(out, reference(*given), strict=True):
        np.testing.assert_allclose(got.leaves[:, 0], want, atol=1e-5)
    print("filtered:", out)


if __name__ == "__main__":
    main()
