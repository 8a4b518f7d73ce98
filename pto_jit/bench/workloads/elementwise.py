# SPDX-License-Identifier: MIT
"""Workloads without a reduction: what they cost is reading and writing memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Output, Size, Tolerance, Work, Workload

_KERNELS = "pto_jit.bench.kernels.elementwise"
_CLOSE = Tolerance(relative=1e-5, absolute=1e-6)
# erf and tanh are near -1 for x below -2: what is left of 1 + erf(x) has their absolute error, times x.
_GELU = Tolerance(relative=1e-5, absolute=3e-6)
_GRID = {"small": (512, 512), "medium": (2048, 2048), "large": (4096, 4096)}


def normal(rng: np.random.Generator, shape: Size) -> np.ndarray[Any, Any]:
    """Standard normal f32 values."""
    return rng.standard_normal(shape, dtype=np.float32)


def _same_shape(size: Size) -> dict[str, Output]:
    return {"out": Output(size, "float32")}


def _traffic(reads: int) -> Callable[[Size, Sequence[np.ndarray[Any, Any]]], Work]:
    def work(size: Size, expected: Sequence[np.ndarray[Any, Any]]) -> Work:
        bytes_each = 4 * int(np.prod(size))
        return Work(0, reads * bytes_each, bytes_each)

    return work


def _gelu_erf(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    from math import erf, sqrt

    x = inputs["x"]
    # NumPy has no erf; the reference interpolates a fine table, far inside the tolerance.
    grid = np.linspace(-8.0, 8.0, 1 << 16)
    table = np.array([erf(value / sqrt(2.0)) for value in grid])
    wide = x.astype(np.float64)
    return [0.5 * wide * (1.0 + np.interp(wide, grid, table))]


def _gelu_tanh(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x = inputs["x"].astype(np.float64)
    return [0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))]


def _silu_mul(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x, y = inputs["x"].astype(np.float64), inputs["y"].astype(np.float64)
    return [x / (1.0 + np.exp(-x)) * y]


VECTOR_ADD = Workload(
    name="vector_add",
    summary="out = a + b",
    axes=("n",),
    sizes={"small": (1 << 16,), "medium": (1 << 20,), "large": (1 << 24,)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"a": normal(rng, size), "b": normal(rng, size)},
    reference=lambda inputs: [inputs["a"] + inputs["b"]],
    outputs=_same_shape,
    work=_traffic(2),
    tolerance=Tolerance(0.0, 0.0),
    kernels={"": f"{_KERNELS}:vector_add"},
)

GELU_TANH = Workload(
    name="gelu_tanh",
    summary="GELU, tanh form",
    axes=("rows", "cols"),
    sizes=_GRID,
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=_gelu_tanh,
    outputs=_same_shape,
    work=_traffic(1),
    tolerance=_GELU,
    kernels={"": f"{_KERNELS}:gelu_tanh"},
)

GELU_ERF = Workload(
    name="gelu_erf",
    summary="GELU, exact form with erf",
    axes=("rows", "cols"),
    sizes=_GRID,
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=_gelu_erf,
    outputs=_same_shape,
    work=_traffic(1),
    tolerance=_GELU,
    kernels={"": f"{_KERNELS}:gelu_erf"},
)

SILU_MUL = Workload(
    name="silu_mul",
    summary="out = silu(x) * y",
    axes=("rows", "cols"),
    sizes=_GRID,
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size), "y": normal(rng, size)},
    reference=_silu_mul,
    outputs=_same_shape,
    work=_traffic(2),
    tolerance=_CLOSE,
    kernels={"": f"{_KERNELS}:silu_mul"},
)

BIAS_RELU = Workload(
    name="bias_relu",
    summary="out = max(x + bias, 0)",
    axes=("rows", "cols"),
    sizes=_GRID,
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size), "bias": normal(rng, size[1:])},
    reference=lambda inputs: [np.maximum(inputs["x"] + inputs["bias"], 0.0)],
    outputs=_same_shape,
    work=_traffic(1),
    tolerance=_CLOSE,
    kernels={"": f"{_KERNELS}:bias_relu"},
)

WORKLOADS = (VECTOR_ADD, GELU_TANH, GELU_ERF, SILU_MUL, BIAS_RELU)
