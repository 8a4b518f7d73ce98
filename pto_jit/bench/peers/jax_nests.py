# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""Recurrent networks and block-sparse attention in JAX: scans, and the wavefront written by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pto_jit.bench.workloads.nests import WINDOW

Function = Callable[..., Any]


def _inputs(x: jax.Array, y: jax.Array, d: int, weights: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """The products of a layer that do not wait for states, all at once, `[T, S, B, 2H]`, and the weights of the states.

    x and y are `[T, S, B, H]`; those of the first layer have an extent of 1 for what they do not depend on.
    """
    wx, ux, bx, wy, uy, by = weights
    pre = jnp.broadcast_arrays(x @ ux[d] + bx[d], y @ uy[d] + by[d])
    return jnp.concatenate(pre, -1), jnp.concatenate([wx[d], wy[d]], 1)


def _start(src: jax.Array, trg: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The inputs of the first layer."""
    return src.transpose(1, 0, 2)[None], trg.transpose(1, 0, 2)[:, None]


def _ended(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x.transpose(2, 0, 1, 3), y.transpose(2, 0, 1, 3)


def grid_scan(src: jax.Array, trg: jax.Array, *weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Layer by layer, a scan along the target around one along the source."""
    x, y = _start(src, trg)
    hidden = src.shape[2]
    for d in range(len(weights[0])):
        pre, w = _inputs(x, y, d, weights)

        def row(above: jax.Array, pre_row: jax.Array, w: jax.Array = w) -> tuple[jax.Array, Any]:
            def cell(left: jax.Array, cur: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
                h = jnp.tanh(jnp.concatenate([cur[0], left], 1) @ w + cur[1])
                return h[:, hidden:], (h[:, :hidden], h[:, hidden:])

            _, (hx, hy) = jax.lax.scan(cell, jnp.zeros_like(above[0]), (above, pre_row))
            return hx, (hx, hy)

        _, (x, y) = jax.lax.scan(row, jnp.zeros_like(pre[0, :, :, :hidden]), pre)
    return _ended(x, y)


def grid_wavefront(src: jax.Array, trg: jax.Array, *weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Layer by layer, a scan over anti-diagonals, all target positions of one in a single product."""
    x, y = _start(src, trg)
    (batch, source, hidden), target = src.shape, trg.shape[1]
    plane, at = jnp.arange(target + source - 1)[:, None], jnp.arange(target)[None]
    s = plane - at  # the source position of target position `at` in a plane
    inside = ((s >= 0) & (s < source))[:, :, None, None]
    skewed = jnp.clip(s, 0, source - 1)
    back = jnp.arange(target)[:, None] + jnp.arange(source)[None]  # the plane of a position

    def step(w: Any, state: Any, cur: Any) -> tuple[Any, Any]:
        hx, hy = state
        above = jnp.concatenate([jnp.zeros_like(hx[:1]), hx[:-1]], 0)
        c = jnp.concatenate([above, hy], -1).reshape(target * batch, 2 * hidden)
        h = jnp.tanh((c @ w).reshape(target, batch, 2 * hidden) + cur[0])
        h = jnp.where(cur[1], h, 0.0)
        state = h[..., :hidden], h[..., hidden:]
        return state, state

    for d in range(len(weights[0])):
        pre, w = _inputs(x, y, d, weights)
        zeros = jnp.zeros((target, batch, hidden), x.dtype)
        _, (hx, hy) = jax.lax.scan(partial(step, w), (zeros, zeros), (pre[at, skewed], inside))
        x, y = (h[back, jnp.arange(target)[:, None]] for h in (hx, hy))
    return _ended(x, y)


def stacked_rnn(x: jax.Array, w: jax.Array, u: jax.Array, b: jax.Array) -> jax.Array:
    """A scan over layers of the scan over time; the products of the inputs of a layer are made at once."""

    def layer(xs: jax.Array, params: Any) -> tuple[jax.Array, None]:
        wd, ud, bd = params

        def cell(h: jax.Array, pre: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = jnp.tanh(pre + h @ ud)
            return h, h

        return jax.lax.scan(cell, jnp.zeros_like(xs[0]), xs @ wd + bd)[1], None

    states, _ = jax.lax.scan(layer, x.transpose(1, 0, 2), (w, u, b))
    return states.transpose(1, 0, 2)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("nqd,nkd->nqk", q, k) * q.shape[2] ** -0.5
    return jnp.einsum("nqk,nkd->nqd", jax.nn.softmax(scores, axis=-1), v)


def bigbird(q: jax.Array, k: jax.Array, v: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Blocks of keys gathered for every block of queries, then batched products."""
    n, _, dim = q.shape
    near = (jnp.arange(n)[:, None] + jnp.arange(WINDOW) - WINDOW // 2) % n
    seen = jnp.concatenate([near, chosen], 1)
    out = _attention(q, k[seen].reshape(n, -1, dim), v[seen].reshape(n, -1, dim))
    return out, _attention(q[:1], k.reshape(1, -1, dim), v.reshape(1, -1, dim))


FUNCTIONS: dict[tuple[str, str], Function] = {
    ("grid_rnn", "scan"): grid_scan,
    ("grid_rnn", "wavefront"): grid_wavefront,
    ("stacked_rnn", ""): stacked_rnn,
    ("bigbird", ""): bigbird,
    ("products", ""): lambda a, b, c: (a @ b) @ c,
    ("products_any", ""): lambda a, b, c: jnp.linalg.multi_dot([a, b, c]),
}
