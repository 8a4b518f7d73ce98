# SPDX-License-Identifier: MIT
"""A stacked two-dimensional grid RNN over pairs of sentences of any lengths: map, scan, fold, no loop.

    python tutorials/fractal/grid_rnn.py

Cell (d, t, s) reads the cells (d-1, t, s), (d, t-1, s) and (d, t, s-1): all cells with one d + t + s are independent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pto_jit.fractal as ft
import pto_jit.language as pl


def vanilla_cell(state: Any, cur: Any, rnn_params: Any) -> Any:
    i2h, h2h, bias = rnn_params
    return pl.tanh(cur @ i2h + state @ h2h + bias)


def grid_cell(state: Any, cur_input: Any, block_params: Any) -> Any:
    """state: (h_x, h_y) of the source position before; cur_input: h_x of the target position before, the two inputs."""
    _, state_y = state
    state_x, (x_t, y_t) = cur_input
    rnn_param_x, rnn_param_y = block_params
    s = ft.cat(state_x, state_y, axis=1)
    return vanilla_cell(x_t, s, rnn_param_x), vanilla_cell(y_t, s, rnn_param_y)


def direction_y(state: Any, cur_input: Any, block_params: Any) -> Any:
    """One target position: a scan along the source."""
    state_xs, _ = state
    zero = ft.zeros(1, block_params[0][2].shape[1])
    cells = ft.zip(state_xs, ft.zip(*cur_input))
    return ft.scan(grid_cell, cells, initializer=(zero, zero), block_params=block_params)


def direction_x(state: Any, block_params: Any, zeros: Any) -> Any:
    """One layer: a scan along the target."""
    return ft.zip(*ft.scan(direction_y, state, initializer=(zeros, zeros), block_params=block_params))


def stacked_grid_rnn(pair: Any, src_words: Any, trg_words: Any, layers: Any) -> Any:
    """One pair of sentences: a fold over the layers."""
    src = ft.map(lambda word: ft.index(src_words, word), pair[0])
    trg = ft.map(lambda word: ft.index(trg_words, word), pair[1])
    zeros = ft.map(lambda x: ft.zeros(1, x.shape[1]), src)
    return ft.zip(*ft.fold(direction_x, layers, initializer=ft.zip(*ft.product(src, trg)), zeros=zeros))


def program(src_batch: Any, trg_batch: Any, src_emb: Any, trg_emb: Any, wx: Any, ux: Any, bx: Any, wy: Any, uy: Any,
            by: Any) -> Any:  # fmt: skip
    """(h_x, h_y) of the last layer: `[batch][target][source]` of [1, H], from words, embeddings [V, H] and, for both
    directions, weights of all layers: w [D, 2H, H] for the states, u [D, H, H] for the input, b [D, H]."""
    along_x = ft.zip(ft.unbind(wx), ft.unbind(ux), ft.slices(bx))
    along_y = ft.zip(ft.unbind(wy), ft.unbind(uy), ft.slices(by))
    layers = ft.zip(along_x, along_y)
    words = ft.slices(src_emb, axis=0), ft.slices(trg_emb, axis=0)
    return ft.map(stacked_grid_rnn, ft.zip(src_batch, trg_batch), src_words=words[0], trg_words=words[1], layers=layers)


Array = np.ndarray


def reference(src_batch: Any, trg_batch: Any, src_emb: Array, trg_emb: Array, wx: Array, ux: Array, bx: Array,
              wy: Array, uy: Array, by: Array) -> list[tuple[Array, Array]]:  # fmt: skip
    """The same as loops: per pair h_x and h_y `[T, S, H]`."""
    found = []
    for src_ids, trg_ids in zip(src_batch.tolist(), trg_batch.tolist(), strict=True):
        src, trg = src_emb[np.array(src_ids, int)], trg_emb[np.array(trg_ids, int)]
        (n_s, size), n_t = src.shape, len(trg)
        x, y = np.broadcast_to(src[None], (n_t, n_s, size)), np.broadcast_to(trg[:, None], (n_t, n_s, size))
        zero = np.zeros(size, src.dtype)
        for d in range(len(wx)):
            hx, hy = np.empty((n_t, n_s, size), src.dtype), np.empty((n_t, n_s, size), src.dtype)
            for t in range(n_t):
                for s in range(n_s):
                    c = np.concatenate([hx[t - 1, s] if t else zero, hy[t, s - 1] if s else zero])
                    hx[t, s] = np.tanh(c @ wx[d] + x[t, s] @ ux[d] + bx[d])
                    hy[t, s] = np.tanh(c @ wy[d] + y[t, s] @ uy[d] + by[d])
            x, y = hx, hy
        found.append((x, y))
    return found


PAIRS = ((5, 4), (2, 7), (1, 1), (3, 0))


def arguments(lengths: Any = PAIRS, depth: int = 3, hidden: int = 8, words: int = 20) -> list[Any]:
    """Random arguments of `program`: pairs of sentences of those (source, target) lengths."""
    rng = np.random.default_rng(0)

    def sentences(which: int) -> ft.FractalTensor:
        counts = [pair[which] for pair in lengths]
        return ft.from_flat(rng.integers(0, words, sum(counts)), [np.cumsum([0, *counts])])

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(hidden)).astype(np.float32)

    weights = [(depth, 2 * hidden, hidden), (depth, hidden, hidden), (depth, hidden)] * 2
    return [sentences(0), sentences(1), normal(words, hidden), normal(words, hidden), *(normal(*s) for s in weights)]


def main() -> None:
    given = arguments()
    out = program(*given)
    for k, wanted in enumerate(reference(*given)):
        for got, want in zip(out, wanted, strict=True):
            np.testing.assert_allclose(got[k].leaves.reshape(want.shape), want, atol=1e-5)
    print("h_x:", out[0])


if __name__ == "__main__":
    main()
