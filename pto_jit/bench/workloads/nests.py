# SPDX-License-Identifier: MIT
"""Programs on nested lists: recurrent networks with wavefronts, block-sparse attention, back-to-back products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Output, Size, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.nests"
Array = np.ndarray[Any, Any]
WINDOW = 3  # blocks of keys around each block of queries


def _weights(rng: np.random.Generator, shape: Size, inner: int) -> Array:
    """Scaled so that states neither vanish nor saturate."""
    return normal(rng, shape) * np.float32(0.5 / np.sqrt(inner))


# -- grid RNN -----------------------------------------------------------------------------------------------------


def _grid_weights(rng: np.random.Generator, layers: int, hidden: int) -> Arrays:
    found: Arrays = {}
    for direction in "xy":
        found["w" + direction] = _weights(rng, (layers, 2 * hidden, hidden), hidden)
        found["u" + direction] = _weights(rng, (layers, hidden, hidden), hidden)
        found["b" + direction] = _weights(rng, (layers, hidden), 1)
    return found


def _grid_operands(size: Size, rng: np.random.Generator) -> Arrays:
    layers, target, source, batch, hidden = size
    sentences = {"src": normal(rng, (batch, source, hidden)), "trg": normal(rng, (batch, target, hidden))}
    return {**sentences, **_grid_weights(rng, layers, hidden)}


def _grid(src: Array, trg: Array, inputs: Arrays) -> tuple[Array, Array]:
    """h_x and h_y `[B, T, S, H]` of sentences `[B, S, H]` and `[B, T, H]`, cell by cell."""
    wx, ux, bx, wy, uy, by = (inputs[a + d].astype(np.float64) for d in "xy" for a in "wub")
    shape = (len(src), trg.shape[1], src.shape[1], src.shape[2])
    x, y = np.broadcast_to(src[:, None], shape), np.broadcast_to(trg[:, :, None], shape)
    zero = np.zeros((len(src), shape[3]))
    for d in range(len(wx)):
        px, py = x @ ux[d] + bx[d], y @ uy[d] + by[d]
        hx, hy = np.empty(shape), np.empty(shape)
        for t in range(shape[1]):
            for s in range(shape[2]):
                c = np.concatenate([hx[:, t - 1, s] if t else zero, hy[:, t, s - 1] if s else zero], 1)
                hx[:, t, s] = np.tanh(c @ wx[d] + px[:, t, s])
                hy[:, t, s] = np.tanh(c @ wy[d] + py[:, t, s])
        x, y = hx, hy
    return x, y


def _grid_reference(inputs: Arrays) -> list[Array]:
    return list(_grid(inputs["src"].astype(np.float64), inputs["trg"].astype(np.float64), inputs))


def _grid_work(layers: int, cells: int, words: int, hidden: int) -> Work:
    """The products of the words are made once per word in the first layer; those of other layers once per cell."""
    states, inputs = 8 * hidden * hidden * layers * cells, 4 * hidden * hidden * (layers - 1) * cells
    weights = 4 * layers * (6 * hidden * hidden + 2 * hidden)
    flops = states + inputs + 2 * hidden * hidden * words
    return Work(flops, weights + 4 * words * hidden, 8 * cells * hidden, "f32 product")


def _regular_work(layers: int, target: int, source: int, batch: int, hidden: int) -> Work:
    return _grid_work(layers, target * source * batch, (target + source) * batch, hidden)


GRID_RNN = Workload(
    name="grid_rnn",
    summary="stacked two-dimensional grid RNN, pairs of sentences of one length",
    axes=("layers", "target", "source", "batch", "hidden"),
    sizes={"small": (2, 8, 8, 4, 64), "medium": (4, 32, 32, 16, 256)},
    default=("small", "medium"),
    unit="GFLOP/s",
    dtype="f32",
    make=_grid_operands,
    reference=_grid_reference,
    outputs=lambda size: {name: Output((size[3], size[1], size[2], size[4]), "float32") for name in ("hx", "hy")},
    work=lambda size, expected: _regular_work(*size),
    tolerance=Tolerance(relative=1e-4, absolute=1e-4),
    kernels={"": f"{_KERNELS}:grid_rnn"},
)


def jagged_lengths(size: Size) -> tuple[Array, Array]:
    """Lengths of source and target sentences, from a quarter of the longest: the same for one size."""
    _, longest, batch, _ = size
    found = np.random.default_rng(0).integers(max(longest // 4, 1), longest + 1, (2, batch))
    return found[0], found[1]


def _jagged_operands(size: Size, rng: np.random.Generator) -> Arrays:
    layers, _, _, hidden = size
    source, target = jagged_lengths(size)
    sentences = {"src": normal(rng, (int(source.sum()), hidden)), "trg": normal(rng, (int(target.sum()), hidden))}
    offsets = {"src_offsets": np.cumsum([0, *source]), "trg_offsets": np.cumsum([0, *target])}
    return {**sentences, **offsets, **_grid_weights(rng, layers, hidden)}


def _jagged_reference(inputs: Arrays) -> list[Array]:
    """`[cells, H]`: pair by pair, target by target."""
    found: list[tuple[Array, Array]] = []
    source, target = inputs["src_offsets"], inputs["trg_offsets"]
    for k in range(len(source) - 1):
        src = inputs["src"][source[k] : source[k + 1]].astype(np.float64)
        trg = inputs["trg"][target[k] : target[k + 1]].astype(np.float64)
        found.append(_grid(src[None], trg[None], inputs))
    return [np.concatenate([pair[k].reshape(-1, pair[k].shape[-1]) for pair in found]) for k in (0, 1)]


def _jagged_work(size: Size) -> Work:
    source, target = jagged_lengths(size)
    return _grid_work(size[0], int(source @ target), int(source.sum() + target.sum()), size[3])


GRID_RNN_JAGGED = Workload(
    name="grid_rnn_jagged",
    summary="the same for sentences of random lengths, without padding",
    axes=("layers", "longest", "batch", "hidden"),
    sizes={"small": (2, 8, 4, 64), "medium": (4, 32, 16, 256)},
    default=("medium",),
    unit="GFLOP/s",
    dtype="f32",
    make=_jagged_operands,
    reference=_jagged_reference,
    outputs=lambda size: {
        name: Output((int(np.dot(*jagged_lengths(size))), size[3]), "float32") for name in ("hx", "hy")
    },
    work=lambda size, expected: _jagged_work(size),
    tolerance=GRID_RNN.tolerance,
    kernels={"": f"{_KERNELS}:grid_rnn_jagged"},
)


# -- stacked RNN --------------------------------------------------------------------------------------------------


def _rnn_operands(size: Size, rng: np.random.Generator) -> Arrays:
    layers, steps, batch, hidden = size
    return {
        "x": normal(rng, (batch, steps, hidden)),
        "w": _weights(rng, (layers, hidden, hidden), hidden),
        "u": _weights(rng, (layers, hidden, hidden), hidden),
        "b": _weights(rng, (layers, hidden), 1),
    }


def _rnn_reference(inputs: Arrays) -> list[Array]:
    x, w, u, b = (inputs[name].astype(np.float64) for name in ("x", "w", "u", "b"))
    for d in range(len(w)):
        x = x @ w[d] + b[d]
        h = np.zeros(x[:, 0].shape)
        for t in range(x.shape[1]):
            h = x[:, t] = np.tanh(x[:, t] + h @ u[d])
    return [x]


def _rnn_work(size: Size) -> Work:
    layers, steps, batch, hidden = size
    states = 4 * batch * steps * hidden
    flops = layers * steps * batch * 4 * hidden * hidden
    return Work(flops, states + 4 * layers * (2 * hidden + 1) * hidden, states, "f32 product")


STACKED_RNN = Workload(
    name="stacked_rnn",
    summary="layers of h = tanh(x w + h u + b) over a batch of sequences",
    axes=("layers", "steps", "batch", "hidden"),
    sizes={"small": (4, 8, 16, 64), "medium": (32, 64, 256, 256)},
    default=("small", "medium"),
    unit="GFLOP/s",
    dtype="f32",
    make=_rnn_operands,
    reference=_rnn_reference,
    outputs=lambda size: {"h": Output((size[2], size[1], size[3]), "float32")},
    work=lambda size, expected: _rnn_work(size),
    tolerance=Tolerance(relative=1e-4, absolute=1e-4),
    kernels={"": f"{_KERNELS}:stacked_rnn"},
)


# -- block-sparse attention ---------------------------------------------------------------------------------------


def _bigbird_operands(size: Size, rng: np.random.Generator) -> Arrays:
    blocks, rows, dim = size
    tensors = {name: normal(rng, (blocks, rows, dim)) for name in ("q", "k", "v")}
    chosen = np.stack([np.zeros(blocks, np.int64), rng.integers(0, blocks, blocks)], 1)
    return {**tensors, "chosen": chosen}


def _softmax_product(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.T / np.sqrt(q.shape[1])
    p = np.exp(scores - scores.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v


def seen_blocks(chosen: Array) -> Array:
    """Per block of queries the numbers of the blocks of keys that it sees: neighbours, then the chosen ones."""
    n = len(chosen)
    near = (np.arange(n)[:, None] + np.arange(WINDOW) - WINDOW // 2) % n
    return np.concatenate([near, chosen], 1)


def _bigbird_reference(inputs: Arrays) -> list[Array]:
    q, k, v = (inputs[name].astype(np.float64) for name in ("q", "k", "v"))
    dim = q.shape[2]
    rows = [_softmax_product(q[i], k[s].reshape(-1, dim), v[s].reshape(-1, dim))
            for i, s in enumerate(seen_blocks(inputs["chosen"]))]  # fmt: skip
    return [np.stack(rows), _softmax_product(q[0], k.reshape(-1, dim), v.reshape(-1, dim))[None]]


def _bigbird_work(size: Size) -> Work:
    blocks, rows, dim = size
    pairs = blocks * (WINDOW + 2) + blocks  # of blocks: those that each sees, and all that the first one sees
    each = 4 * blocks * rows * dim
    return Work(4 * pairs * rows * rows * dim, 3 * each + 16 * blocks, each + 4 * rows * dim, "f32 product")


BIGBIRD = Workload(
    name="bigbird",
    summary="block-sparse attention: neighbours, the first block and a random one; the first block sees all",
    axes=("blocks", "block", "dim"),
    sizes={"small": (8, 16, 32), "medium": (64, 64, 512)},
    default=("small", "medium"),
    unit="GFLOP/s",
    dtype="f32",
    make=_bigbird_operands,
    reference=_bigbird_reference,
    outputs=lambda size: {"out": Output(size, "float32"), "first": Output((1, *size[1:]), "float32")},
    work=lambda size, expected: _bigbird_work(size),
    tolerance=Tolerance(relative=1e-4, absolute=2e-5),
    kernels={"": f"{_KERNELS}:bigbird"},
)


# -- back-to-back products ----------------------------------------------------------------------------------------


def _products_operands(size: Size, rng: np.random.Generator) -> Arrays:
    m, k, n = size
    return {"a": normal(rng, (m, k)), "b": _weights(rng, (k, n), k), "c": _weights(rng, (n, k), n)}


def _products_work(size: Size) -> Work:
    m, k, n = size
    return Work(4 * m * k * n, 4 * (m * k + 2 * k * n), 4 * m * k, "f32 product")


PRODUCTS = Workload(
    name="products",
    summary="(a @ b) @ c, back to back",
    axes=("m", "k", "n"),
    sizes={"small": (256, 64, 128), "medium": (8192, 64, 256)},
    default=("small", "medium"),
    unit="GFLOP/s",
    dtype="f32",
    make=_products_operands,
    reference=lambda inputs: [np.linalg.multi_dot([inputs[n].astype(np.float64) for n in ("a", "b", "c")])],
    outputs=lambda size: {"out": Output(size[:2], "float32")},
    work=lambda size, expected: _products_work(size),
    tolerance=Tolerance(relative=1e-4, absolute=1e-4),
    kernels={"": f"{_KERNELS}:products"},
)

def _least_work(size: Size) -> Work:
    m, k, n = size
    flops = 2 * min(2 * m * k * n, k * n * k + m * k * k)
    return Work(flops, 4 * (m * k + 2 * k * n), 4 * m * k, "f32 product")


PRODUCTS_ANY = replace(
    PRODUCTS,
    name="products_any",
    summary="the same in any order: ours with fastmath, torch and jax by multi_dot",
    work=lambda size, expected: _least_work(size),
    kernels={"": f"{_KERNELS}:products_any"},
)

WORKLOADS = (GRID_RNN, GRID_RNN_JAGGED, STACKED_RNN, BIGBIRD, PRODUCTS, PRODUCTS_ANY)
