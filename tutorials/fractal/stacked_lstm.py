# SPDX-License-Identifier: MIT
"""A stacked LSTM over a batch of sequences of any lengths: a map over sequences, a fold over layers, a scan over time.

    python tutorials/fractal/stacked_lstm.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl


def cell(state: Any, x: Any, layer: Any) -> Any:
    h, c = state
    w, u, bias = layer
    i, f, o, g = pl.split(x @ w + h @ u + bias, 4, axis=1)
    c = pl.sigmoid(f) * c + pl.sigmoid(i) * pl.tanh(g)
    return pl.sigmoid(o) * pl.tanh(c), c


def run_layer(xs: Any, layer: Any) -> Any:
    """All hidden states of one layer, from its inputs."""
    zero = ft.zeros(1, layer[1].shape[0])
    hs, _ = ft.scan(cell, xs, initializer=(zero, zero), layer=layer)
    return hs


def program(batch: Any, w: Any, u: Any, b: Any) -> Any:
    """The hidden states of the last layer, `[batch][time]` of [1, H], from such inputs and the weights of all layers:
    w [D, H, 4H] for the input, u [D, H, 4H] for the state, b [D, 4H]; gates i, f, o, g."""
    layers = ft.zip(ft.unbind(w), ft.unbind(u), ft.slices(b))
    return ft.map(lambda xs: ft.fold(run_layer, layers, initializer=xs), batch)


def reference(batch: Any, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The same as loops: `[T, H]` per sequence."""

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    found = []
    for sequence in batch.tolist():
        xs = [x[0] for x in sequence]
        for d in range(len(w)):
            h = c = np.zeros(u.shape[1], u.dtype)
            for t, x in enumerate(xs):
                i, f, o, g = np.split(x @ w[d] + h @ u[d] + b[d], 4)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                h = xs[t] = sigmoid(o) * np.tanh(c)
        found.append(np.array(xs, np.float32).reshape(-1, u.shape[1]))
    return found


def arguments(lengths: Any = (5, 0, 1, 8), depth: int = 3, hidden: int = 8) -> list[Any]:
    """Random arguments of `program`: sequences of those lengths."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(hidden)).astype(np.float32)

    batch = ft.from_flat(normal(sum(lengths), 1, hidden), [np.cumsum([0, *lengths])])
    return [batch, normal(depth, hidden, 4 * hidden), normal(depth, hidden, 4 * hidden), normal(depth, 4 * hidden)]


def main() -> None:
    given = arguments()
    out = program(*given)
    for got, want in zip(out, reference(*given), strict=True):
        np.testing.assert_allclose(got.leaves[:, 0], want, atol=1e-5)
    print("hidden states:", out)


if __name__ == "__main__":
    main()
