# SPDX-License-Identifier: MIT
"""A dilated RNN: in layer l a state skips over 2**l positions, so that each layer sees twice as far.

    python tutorials/fractal/dilated_rnn.py

`dilated_map` takes a sequence apart into its strided parts, scans each, and puts the states back in their places: the
parts are independent.  In a kernel a layer is one loop whose iterations follow the one 2**l before them, so that all
layers together are a wavefront, with the sequences of a batch as the rows of one product per layer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl


def cell(state: Any, x: Any, layer: Any) -> Any:
    w, u, bias = layer
    return pl.tanh(x @ w + state @ u + bias)


def strided(part: Any, layer: Any) -> Any:
    return ft.scan(cell, part, initializer=ft.zeros(1, layer[1].shape[0]), layer=layer)


def run_layer(xs: Any, cur: Any) -> Any:
    dilation, layer = cur
    return ft.dilated_map(strided, xs, dilation, layer=layer)


def program(batch: Any, dilations: Any, w: Any, u: Any, b: Any) -> Any:
    """The states of the last layer, `[batch][time]` of [1, H], from such inputs, the dilations of the layers and their
    weights: w [D, H, H] for the input, u [D, H, H] for the state, b [D, H]."""
    layers = ft.zip(dilations, ft.zip(ft.unbind(w), ft.unbind(u), ft.slices(b)))
    return ft.map(lambda xs: ft.fold(run_layer, layers, initializer=xs), batch)


def reference(batch: Any, dilations: Any, w: np.ndarray, u: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The same as loops: `[T, H]` per sequence."""
    found = []
    for sequence in batch.tolist():
        xs = [x[0] for x in sequence]
        for d, dilation in enumerate(dilations.tolist()):
            zero = np.zeros(u.shape[1], u.dtype)
            hs: list[np.ndarray] = []
            for t, x in enumerate(xs):
                before = hs[t - dilation] if t >= dilation else zero
                hs.append(np.tanh(x @ w[d] + before @ u[d] + b[d]))
            xs = hs
        found.append(np.array(xs, np.float32).reshape(-1, u.shape[1]))
    return found


def arguments(lengths: Any = (9, 0, 1, 14), depth: int = 4, hidden: int = 8) -> list[Any]:
    """Random arguments of `program`: sequences of those lengths, dilations 1, 2, 4, ..."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(hidden)).astype(np.float32)

    batch = ft.from_flat(normal(sum(lengths), 1, hidden), [np.cumsum([0, *lengths])])
    weights = normal(depth, hidden, hidden), normal(depth, hidden, hidden), normal(depth, hidden)
    return [batch, ft.from_flat(2 ** np.arange(depth)), *weights]


def main() -> None:
    given = arguments()
    out = program(*given)
    for got, want in zip(out, reference(*given), strict=True):
        np.testing.assert_allclose(got.leaves[:, 0], want, atol=1e-5)
    print("states:", out)


if __name__ == "__main__":
    main()
