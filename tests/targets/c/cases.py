# SPDX-License-Identifier: MIT
"""Kernels that between them have every elementwise operation, conversion and reduction, for each dtype."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import pto_jit as pto
import pto_jit.language as pl

FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
INTS = {n: np.dtype(n.replace("i", "int").replace("u", "u")) for n in ("i8", "i16", "i32", "i64")} | {
    f"u{b}": np.dtype(f"uint{b}") for b in (8, 16, 32, 64)
}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 1e-6, "f64": 4e-15}
LIMITS = {n: (int(np.iinfo(d).min), int(np.iinfo(d).max)) for n, d in INTS.items()}
LENGTH = 37

UNARY_FLOAT = [
    pl.exp, pl.exp2, pl.expm1, pl.sin, pl.cos, pl.tanh, pl.erf, pl.sigmoid, pl.silu, pl.relu, pl.gelu, pl.abs, pl.sign,
    pl.square, pl.floor, pl.ceil, pl.round, pl.trunc, operator.neg,
]  # fmt: skip
UNARY_POSITIVE = [pl.log, pl.log2, pl.log1p, pl.sqrt, pl.rsqrt, pl.reciprocal]
BINARY_FLOAT = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
                pl.maximum, pl.minimum, pl.atan2]  # fmt: skip
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BINARY_INT = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.and_, operator.or_,
              operator.xor, pl.maximum, pl.minimum]  # fmt: skip
UNARY_INT = [pl.abs, pl.sign, pl.square, pl.relu, operator.neg, operator.invert]
REDUCTIONS = [pl.sum, pl.max, pl.min]


@pto.jit
def unary(x: pl.Tensor, positive: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    for k, f in enumerate(UNARY_FLOAT):
        y[k, :] = f(x)
    for k, f in enumerate(UNARY_POSITIVE):
        z[k, :] = f(positive)


@pto.jit
def binary(a: pl.Tensor, b: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    for k, f in enumerate(BINARY_FLOAT):
        y[k, :] = f(a, b)
    for k, f in enumerate(COMPARISONS):
        z[k, :] = pl.where(f(a, b), a, b)


@pto.jit
def integers(a: pl.Tensor, b: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    for k, f in enumerate(BINARY_INT):
        y[k, :] = f(a, b)
    for k, f in enumerate(UNARY_INT):
        z[k, :] = f(a)
    for k, f in enumerate(COMPARISONS):
        z[len(UNARY_INT) + k, :] = pl.where(f(a, b), a, b)


@pto.jit
def reductions(x: pl.Tensor, rows: pl.Tensor, columns: pl.Tensor, places: pl.Tensor):
    for k, f in enumerate(REDUCTIONS):
        rows[k, :] = pl.cast(f(x, axis=1), rows.dtype)
        columns[k, :] = pl.cast(f(x, axis=0), columns.dtype)
    places[0, :] = pl.argmax(x, axis=1)
    places[1, :] = pl.argmin(x, axis=1)


@pto.jit
def conversions(x: pl.Tensor, i: pl.Tensor, u: pl.Tensor, f: pl.Tensor, h: pl.Tensor, b: pl.Tensor, n: pl.Tensor):
    i[...] = pl.cast(x, pl.i32)
    u[...] = pl.cast(x, pl.u8)
    f[...] = pl.cast(x, pl.f32)
    h[...] = pl.cast(x, pl.f16)
    b[...] = pl.cast(x, pl.bf16)
    n[...] = pl.cast(x, pl.i64)


@pto.jit
def padded(x: pl.Tensor, tiles: pl.Tensor, lines: pl.Tensor, turned: pl.Tensor, whole: pl.Tensor):
    """Tiles inside of their tensor, partly and not at all, and of it as it lies and turned."""
    for k in pl.range(3):
        tiles[k, 0] = pl.load(x, [0, 20 * k], [4, 20], pad=1)
        tiles[k, 1] = pl.load(x, [3, 20 * k], [4, 20], pad=2)
        tiles[k, 2] = pl.load(x, [9, 20 * k], [4, 20], pad=3)
        lines[k, :] = pl.load(x[1, :], [20 * k], [20], pad=4)
        turned[k, :, :] = pl.load(x.T, [20 * k, 3], [20, 4], pad=5)
    whole[...] = pl.load(x, [0, 0], x.shape, pad=6)


@pto.jit
def variables(x: pl.Tensor, y: pl.Tensor, z: pl.Tensor):
    """Tiles of run-time extents in variables: first assigned in a loop, in a branch, and stored along four axes."""
    t = pl.load(x)
    for _ in range(3):
        last = t  # its memory grows in the loop
        t = t * 2
    y[0, :] = last
    counts = pl.arange(0, x.shape[0])
    if x.shape[0] % 2 == 1:
        counts = counts + counts
    y[1, :] = counts.to(y.dtype)
    for k in pl.range(0, x.shape[0], 16, parallel=True):
        part = pl.load(x, [k], [16])
        total = pl.zeros([16, 16], x.dtype)
        for j in pl.range(0, x.shape[0], 16):
            total = total + pl.reshape(part, [16, 1]) * pl.load(x, [j], [16], pad=0)
        pl.store(pl.reshape(total, [1, 1, 16, 16]), [0, 0, k, 0], z)


@pto.jit
def limits(x: pl.Tensor, low: pl.Tensor, high: pl.Tensor, y: pl.Tensor):
    """Integers beside the limits of their type, which some comparisons need not look at."""
    for k, limit in enumerate(LIMITS[x.dtype.name]):
        for m, f in enumerate(COMPARISONS):
            y[k, m, :] = pl.where(f(x, limit), low, high)


def array(rng: np.random.Generator, dtype: Any, shape: Any, low: float, high: float) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        lowest = max(int(low), int(np.iinfo(dtype).min))
        return rng.integers(lowest, int(high), shape, endpoint=True).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def cases() -> list[tuple[str, Callable[..., Any], list[np.ndarray], float]]:
    """Name, kernel, arguments and tolerance; what is written to starts as zeros."""
    rng = np.random.default_rng(7)
    out: list[tuple[str, Callable[..., Any], list[np.ndarray], float]] = []

    def empty(rows: int, dtype: Any, n: int = LENGTH) -> np.ndarray:
        return np.zeros((rows, n), dtype)

    for name, dtype in FLOATS.items():
        x, positive = array(rng, dtype, LENGTH, -5, 5), array(rng, dtype, LENGTH, 0.1, 20)
        special = x.copy()
        special[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
        y, z = empty(len(UNARY_FLOAT), dtype), empty(len(UNARY_POSITIVE), dtype)
        out.append((f"unary {name}", unary, [x, positive, y, z], TOLERANCE[name]))
        y, z = empty(len(BINARY_FLOAT), dtype), empty(len(COMPARISONS), dtype)
        out.append((f"binary {name}", binary, [special, x, y, z], TOLERANCE[name]))
        shape = (11, LENGTH)
        parts = [np.zeros((3, 11), dtype), np.zeros((3, LENGTH), dtype), np.zeros((2, 11), np.int32)]
        out.append((f"reductions {name}", reductions, [array(rng, dtype, shape, -1, 1), *parts], 4 * TOLERANCE[name]))
    for name, dtype in INTS.items():
        a, b = array(rng, dtype, LENGTH, -100, 100), array(rng, dtype, LENGTH, -9, 9)
        y, z = empty(len(BINARY_INT), dtype), empty(len(UNARY_INT) + len(COMPARISONS), dtype)
        out.append((f"integers {name}", integers, [a, b, y, z], 0))
        a = np.resize(np.array([*LIMITS[name], 0, 1, 7], dtype), LENGTH)
        out.append((f"limits {name}", limits, [a, b, b[::-1].copy(), np.zeros((2, len(COMPARISONS), LENGTH), dtype)], 0))
    for name, dtype in (FLOATS | INTS).items():
        x = array(rng, dtype, LENGTH, 0, 100)
        kinds = (np.int32, np.uint8, np.float32, np.float16, ml_dtypes.bfloat16, np.int64)
        out.append((f"conversions {name}", conversions, [x, *(np.zeros(LENGTH, k) for k in kinds)], 0))
        x = array(rng, dtype, (5, LENGTH), 0, 100)
        shapes = ((3, 3, 4, 20), (3, 20), (3, 20, 4), x.shape)
        y, z = np.zeros((2, LENGTH), dtype), np.zeros((1, 1, LENGTH, 16), dtype)
        out.append((f"variables {name}", variables, [x[0].copy(), y, z], TOLERANCE.get(name, 0)))
        out.append((f"padded {name}", padded, [x, *(np.zeros(shape, dtype) for shape in shapes)], 0))
    return out
