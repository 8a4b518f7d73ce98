# SPDX-License-Identifier: MIT
# pyright: reportMissingImports=false
"""Numba: loops over rows, `prange` where there is more than one thread, fastmath so that reductions vectorise.

Products are left out: inside Numba they are calls of the BLAS that NumPy is measured with.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from numba import prange

from pto_jit.bench.implementation import Builder, Case, Implementation, Table
from pto_jit.bench.workloads.grids import LIMIT
from pto_jit.bench.workloads.rows import EPSILON

TABLE = Table()
Array = np.ndarray[Any, Any]

# The thread count is fixed for the process.  A parallel region for one thread would only cost its launch.
_PARALLEL = int(os.environ.get("NUMBA_NUM_THREADS", "1")) > 1
# Only the `compile` row asks for a disk cache.
_CACHE = "NUMBA_CACHE_DIR" in os.environ

_jit: Callable[..., Any] = numba.njit(parallel=_PARALLEL, fastmath=True, cache=_CACHE)
_jit_serial: Callable[..., Any] = numba.njit(fastmath=True, cache=_CACHE)

_EPSILON = np.float32(EPSILON)
_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_ROOT_HALF = np.float32(math.sqrt(0.5))
_ROOT_2_OVER_PI, _CUBIC = np.float32(math.sqrt(2.0 / math.pi)), np.float32(0.044715)
_FIFTH, _TWO, _FOUR = np.float32(0.2), np.float32(2.0), np.float32(4.0)


@_jit
def _vector_add(a: Array, b: Array, out: Array) -> None:
    for i in prange(a.size):
        out[i] = a[i] + b[i]


@_jit_serial
def _add16(a: Array, b: Array, out: Array) -> None:
    for i in range(a.size):
        out[i] = a[i] + b[i]


@_jit
def _vector_sum(x: Array, out: Array) -> None:
    total = np.float32(0.0)
    for i in prange(x.shape[0]):
        total += x[i]
    out[0] = total


@_jit
def _log_sum_exp(x: Array, out: Array) -> None:
    top = x[0]
    for i in prange(x.shape[0]):
        top = max(top, x[i])
    total = np.float32(0.0)
    for i in prange(x.shape[0]):
        total += np.exp(x[i] - top)
    out[0] = top + np.log(total)


@_jit
def _softmax(x: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        top = x[r, 0]
        for c in range(cols):
            top = max(top, x[r, c])
        total = np.float32(0.0)
        for c in range(cols):
            e = math.exp(x[r, c] - top)
            out[r, c] = e
            total += e
        scale = _ONE / total
        for c in range(cols):
            out[r, c] *= scale


@_jit
def _rms_norm(x: Array, weight: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        total = np.float32(0.0)
        for c in range(cols):
            total += x[r, c] * x[r, c]
        scale = _ONE / np.float32(math.sqrt(total / np.float32(cols) + _EPSILON))
        for c in range(cols):
            out[r, c] = x[r, c] * scale * weight[c]


@_jit
def _layer_norm(x: Array, weight: Array, bias: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        total = np.float32(0.0)
        for c in range(cols):
            total += x[r, c]
        mean = total / np.float32(cols)
        squares = np.float32(0.0)
        for c in range(cols):
            squares += (x[r, c] - mean) * (x[r, c] - mean)
        scale = _ONE / np.float32(math.sqrt(squares / np.float32(cols) + _EPSILON))
        for c in range(cols):
            out[r, c] = (x[r, c] - mean) * scale * weight[c] + bias[c]


@_jit
def _gelu_tanh(x: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        for c in range(cols):
            v = x[r, c]
            out[r, c] = _HALF * v * (_ONE + math.tanh(_ROOT_2_OVER_PI * (v + _CUBIC * v * v * v)))


@_jit
def _gelu_erf(x: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        for c in range(cols):
            out[r, c] = _HALF * x[r, c] * (_ONE + math.erf(x[r, c] * _ROOT_HALF))


@_jit
def _silu_mul(x: Array, y: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        for c in range(cols):
            out[r, c] = x[r, c] / (_ONE + math.exp(-x[r, c])) * y[r, c]


@_jit
def _bias_relu(x: Array, bias: Array, out: Array) -> None:
    rows, cols = x.shape
    for r in prange(rows):
        for c in range(cols):
            out[r, c] = max(x[r, c] + bias[c], np.float32(0.0))


@_jit
def _cross_entropy(logits: Array, labels: Array, loss: Array) -> None:
    rows, classes = logits.shape
    for r in prange(rows):
        top = logits[r, 0]
        for c in range(classes):
            top = max(top, logits[r, c])
        total = np.float32(0.0)
        for c in range(classes):
            total += math.exp(logits[r, c] - top)
        loss[r] = math.log(total) + top - logits[r, labels[r]]


@_jit
def _stencil5(x: Array, out: Array) -> None:
    rows, cols = out.shape
    for i in prange(rows):
        for j in range(cols):
            near = x[i, j + 1] + x[i + 2, j + 1] + x[i + 1, j] + x[i + 1, j + 2]
            out[i, j] = _FIFTH * (x[i + 1, j + 1] + near)


@_jit
def _mandelbrot(re: Array, im: Array, counts: Array) -> None:
    height, width = counts.shape
    for i in prange(height):
        cy = im[i]
        for j in range(width):
            cx = re[j]
            x, y, n = cx, cy, 0
            xx, yy = x * x, y * y
            while n < LIMIT and xx + yy <= _FOUR:
                y = _TWO * x * y + cy
                x = xx - yy + cx
                xx, yy = x * x, y * y
                n += 1
            counts[i, j] = n


@_jit
def _plain_product(a: Array, b: Array, out: Array) -> None:
    for i in prange(a.shape[0]):
        for j in range(b.shape[1]):
            s = np.float32(0.0)
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            out[i, j] = s


@_jit
def _plain_rows(a: Array, x: Array, out: Array) -> None:
    for i in prange(a.shape[0]):
        s = np.float32(0.0)
        for k in range(a.shape[1]):
            s += a[i, k] * x[k]
        out[i] = s


@_jit
def _plain_fir(x: Array, taps: Array, out: Array) -> None:
    for i in prange(out.shape[0]):
        s = np.float32(0.0)
        for k in range(taps.shape[0]):
            s += x[i + k] * taps[k]
        out[i] = s


@_jit_serial
def _plain_viterbi(moves: Array, seen: Array, score: Array, best: Array) -> None:
    for s in range(seen.shape[1]):
        score[0, s] = seen[0, s]
        best[0, s] = 0
    for t in range(1, seen.shape[0]):
        for s in range(seen.shape[1]):
            most = np.float32(-1e30)
            at = 0
            for p in range(seen.shape[1]):
                v = score[t - 1, p] + moves[p, s]
                if v > most:
                    most = v
                    at = p
            score[t, s] = most + seen[t, s]
            best[t, s] = at


def _into(function: Callable[..., None]) -> Builder:
    def build(case: Case) -> Implementation:
        return Implementation(partial(function, *case.arguments))

    return build


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "vector_add": _vector_add,
    "launch": _add16,
    "softmax": _softmax,
    "column_softmax": _softmax,
    "vector_sum": _vector_sum,
    "log_sum_exp": _log_sum_exp,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "silu_mul": _silu_mul,
    "bias_relu": _bias_relu,
    "cross_entropy": _cross_entropy,
    "stencil5": _stencil5,
    "mandelbrot": _mandelbrot,
    "plain_product": _plain_product,
    "plain_rows": _plain_rows,
    "plain_fir": _plain_fir,
    "plain_viterbi": _plain_viterbi,
}
for _name, _function in _FUNCTIONS.items():
    TABLE.add(_name, _into(_function))
