# SPDX-License-Identifier: MIT
"""NumPy, written with `out=` where that exists: the natural fast form, with few temporaries."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.bench.implementation import Case, Implementation, Table, Unsupported
from pto_jit.bench.workloads.grids import LIMIT
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Array = np.ndarray[Any, Any]


@TABLE.row("vector_add")
@TABLE.row("launch")
def vector_add(case: Case) -> Implementation:
    """`np.add` into the output."""
    a, b, out = case.arguments
    add = np.add
    return Implementation(lambda: add(a, b, out))


@TABLE.row("column_softmax")
@TABLE.row("softmax")
def softmax(case: Case) -> Implementation:
    """Four passes, all in the output array."""
    x, out = case.arguments

    def call() -> None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(axis=1, keepdims=True), out=out)

    return Implementation(call)


@TABLE.row("vector_sum")
def vector_sum(case: Case) -> Implementation:
    """One ufunc, which sums pairwise."""
    x, out = case.arguments
    return Implementation(lambda: np.sum(x, keepdims=True, out=out))


@TABLE.row("log_sum_exp")
def log_sum_exp(case: Case) -> Implementation:
    """With room for the exponentials."""
    x, out = case.arguments
    room = np.empty_like(x)

    def call() -> None:
        top = x.max()
        np.exp(np.subtract(x, top, out=room), out=room)
        out[0] = top + np.log(room.sum())

    return Implementation(call)


@TABLE.row("rms_norm")
def rms_norm(case: Case) -> Implementation:
    """The sum of squares of a row is one `einsum`."""
    x, weight, out = case.arguments
    cols = x.shape[1]

    def call() -> None:
        scale = 1.0 / np.sqrt(np.einsum("ij,ij->i", x, x) / cols + np.float32(EPSILON))
        np.multiply(x, scale[:, None], out=out)
        np.multiply(out, weight, out=out)

    return Implementation(call)


@TABLE.row("layer_norm")
def layer_norm(case: Case) -> Implementation:
    """Centred in the output array, then scaled there."""
    x, weight, bias, out = case.arguments
    cols = x.shape[1]

    def call() -> None:
        np.subtract(x, x.mean(axis=1, keepdims=True), out=out)
        scale = 1.0 / np.sqrt(np.einsum("ij,ij->i", out, out) / cols + np.float32(EPSILON))
        np.multiply(out, scale[:, None], out=out)
        np.multiply(out, weight, out=out)
        np.add(out, bias, out=out)

    return Implementation(call)


def _gelu_tanh_into(x: Array, out: Array) -> None:
    np.multiply(x, x, out=out)
    np.multiply(out, np.float32(0.044715), out=out)
    np.add(out, np.float32(1.0), out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, np.float32(np.sqrt(2.0 / np.pi)), out=out)
    np.tanh(out, out=out)
    np.add(out, np.float32(1.0), out=out)
    np.multiply(out, x, out=out)
    np.multiply(out, np.float32(0.5), out=out)


@TABLE.row("gelu_tanh")
def gelu_tanh(case: Case) -> Implementation:
    """Every step in the output array."""
    x, out = case.arguments
    return Implementation(lambda: _gelu_tanh_into(x, out))


@TABLE.row("gelu_erf")
def gelu_erf(case: Case) -> Implementation:
    """With SciPy's erf; NumPy has none."""
    try:
        from scipy.special import erf  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Unsupported("NumPy has no erf, and SciPy is not installed") from None
    x, out = case.arguments
    scale = np.float32(np.sqrt(0.5))

    def call() -> None:
        np.multiply(x, scale, out=out)
        erf(out, out=out)
        np.add(out, np.float32(1.0), out=out)
        np.multiply(out, x, out=out)
        np.multiply(out, np.float32(0.5), out=out)

    return Implementation(call, note="with scipy.special.erf")


def _silu_into(x: Array, out: Array) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, np.float32(1.0), out=out)
    np.divide(x, out, out=out)


@TABLE.row("silu_mul")
def silu_mul(case: Case) -> Implementation:
    """Every step in the output array."""
    x, y, out = case.arguments

    def call() -> None:
        _silu_into(x, out)
        np.multiply(out, y, out=out)

    return Implementation(call)


@TABLE.row("bias_relu")
def bias_relu(case: Case) -> Implementation:
    """Two passes."""
    x, bias, out = case.arguments

    def call() -> None:
        np.add(x, bias, out=out)
        np.maximum(out, np.float32(0.0), out=out)

    return Implementation(call)


@TABLE.row("matmul")
def matmul(case: Case) -> Implementation:
    """OpenBLAS."""
    a, b, c = case.arguments
    return Implementation(lambda: np.matmul(a, b, out=c))


@TABLE.row("matmul_bf16")
def matmul_bf16(case: Case) -> Implementation:
    """NumPy has no bf16 product: converted to f32 and back in every call."""
    a, b, c = case.arguments

    def call() -> None:
        c[...] = a.astype(np.float32) @ b.astype(np.float32)

    return Implementation(call, note="through f32, conversions included")


@TABLE.row("matmul_bias_gelu")
def matmul_bias_gelu(case: Case) -> Implementation:
    """OpenBLAS, then the epilogue in passes."""
    a, b, bias, c = case.arguments
    scale = np.float32(1.0 / np.sqrt(a.shape[1]))
    x = np.empty_like(c)

    def call() -> None:
        np.matmul(a, b, out=x)
        np.multiply(x, scale, out=x)
        np.add(x, bias, out=x)
        _gelu_tanh_into(x, c)

    return Implementation(call)


@TABLE.row("swiglu")
def swiglu(case: Case) -> Implementation:
    """Three OpenBLAS products."""
    x, gate, up, down, out = case.arguments
    g = np.empty((x.shape[0], gate.shape[1]), np.float32)
    u, h = np.empty_like(g), np.empty_like(g)

    def call() -> None:
        np.matmul(x, gate, out=g)
        np.matmul(x, up, out=u)
        _silu_into(g, h)
        np.multiply(h, u, out=h)
        np.matmul(h, down, out=out)

    return Implementation(call)


def _attention(case: Case, causal: bool) -> Implementation:
    q, k, v, out = case.arguments
    heads, length, dim = q.shape
    scale = np.float32(1.0 / np.sqrt(dim))
    scores = np.empty((length, length), np.float32)
    mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)

    def call() -> None:
        # One head at a time: its scores stay in a cache where all of them would not.
        for head in range(heads):
            np.matmul(q[head], k[head].T, out=scores)
            np.multiply(scores, scale, out=scores)
            if causal:
                np.add(scores, mask, out=scores)
            np.subtract(scores, scores.max(axis=1, keepdims=True), out=scores)
            np.exp(scores, out=scores)
            total = scores.sum(axis=1, keepdims=True)
            np.matmul(scores, v[head], out=out[head])
            np.divide(out[head], total, out=out[head])

    return Implementation(call, note="computes the whole square" if causal else "")


TABLE.add("attention", lambda case: _attention(case, False))
TABLE.add("attention_causal", lambda case: _attention(case, True))


@TABLE.row("cross_entropy")
def cross_entropy(case: Case) -> Implementation:
    """With one temporary of the size of the logits, made once."""
    logits, labels, loss = case.arguments
    work = np.empty_like(logits)
    rows = np.arange(len(labels))

    def call() -> None:
        top = logits.max(axis=1)
        np.subtract(logits, top[:, None], out=work)
        np.exp(work, out=work)
        np.log(work.sum(axis=1), out=loss)
        np.add(loss, top - logits[rows, labels], out=loss)

    return Implementation(call)


@TABLE.row("stencil5")
def stencil5(case: Case) -> Implementation:
    """Five passes over slices."""
    x, out = case.arguments
    centre, north, south, west, east = x[1:-1, 1:-1], x[:-2, 1:-1], x[2:, 1:-1], x[1:-1, :-2], x[1:-1, 2:]

    def call() -> None:
        np.add(centre, north, out=out)
        np.add(out, south, out=out)
        np.add(out, west, out=out)
        np.add(out, east, out=out)
        np.multiply(out, np.float32(0.2), out=out)

    return Implementation(call)


@TABLE.row("conv3x3")
def conv3x3(case: Case) -> Implementation:
    """Patches gathered into one matrix, then one OpenBLAS product."""
    x, weight, out = case.arguments
    height, width, channels = out.shape
    inner = weight.shape[2]
    patches = np.empty((height, width, 3, 3, inner), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(0, 1)).transpose(0, 1, 3, 4, 2)
    flat, matrix = patches.reshape(height * width, 9 * inner), weight.reshape(9 * inner, channels)
    result = out.reshape(height * width, channels)

    def call() -> None:
        np.copyto(patches, windows)
        np.matmul(flat, matrix, out=result)

    return Implementation(call)


@TABLE.row("mandelbrot")
def mandelbrot(case: Case) -> Implementation:
    """Iterates the points that are still inside, whose indices are kept."""
    re, im, counts = case.arguments
    width = len(re)

    def call() -> None:
        where = np.arange(counts.size)
        cx, cy = np.tile(re, len(im)), np.repeat(im, width)
        x, y = cx.copy(), cy.copy()
        flat = counts.reshape(-1)
        flat.fill(0)
        for _ in range(LIMIT):
            xx, yy = x * x, y * y
            inside = xx + yy <= np.float32(4.0)
            if not inside.all():
                where = where[inside]
                cx, cy, x, y, xx, yy = (array[inside] for array in (cx, cy, x, y, xx, yy))
                if where.size == 0:
                    break
            flat[where] += 1
            y = np.float32(2.0) * x * y + cy
            x = xx - yy + cx

    return Implementation(call)
