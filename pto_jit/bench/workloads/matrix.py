# SPDX-License-Identifier: MIT
"""Matrix products, alone and with something fused to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, FlopKind, Output, Size, Tolerance, Work, Workload, dtype_named
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.matrix"
# Sums of k products of standard normal values grow as sqrt(k); f32 rounding stays well inside this.
_F32 = Tolerance(relative=1e-4, absolute=2e-3)
# A result rounded to bf16 (8 bits) may differ from another correct rounding by one unit in the last place.
_BF16 = Tolerance(relative=2**-7, absolute=2e-2)
_SIZES = {
    "small": (256, 256, 256),
    "medium": (512, 512, 512),
    "square": (1024, 1024, 1024),
    "large": (4096, 4096, 4096),
    "row": (1, 4096, 4096),
    "skinny": (32, 4096, 4096),
    "flat": (4096, 64, 4096),
}


def _operands(size: Size, rng: np.random.Generator) -> Arrays:
    m, k, n = size
    return {"a": normal(rng, (m, k)), "b": normal(rng, (k, n))}


def _bf16_operands(size: Size, rng: np.random.Generator) -> Arrays:
    return {name: array.astype(dtype_named("bfloat16")) for name, array in _operands(size, rng).items()}


def _product(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    return [inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)]


def _bf16_product(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    # Products of bf16 values are exact in f32; f32 sums are far more exact than the bf16 result.
    return [inputs["a"].astype(np.float32) @ inputs["b"].astype(np.float32)]


def _product_work(item: int, kind: FlopKind, size: Size) -> Work:
    m, k, n = size
    return Work(2 * m * k * n, item * (m * k + k * n), item * m * n, kind)


def _bias_gelu(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x = _product(inputs)[0] / np.sqrt(inputs["a"].shape[1]) + inputs["bias"]
    return [0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))]


def _bias_gelu_operands(size: Size, rng: np.random.Generator) -> Arrays:
    operands = _operands(size, rng)
    return {**operands, "bias": normal(rng, size[2:])}


def _swiglu_operands(size: Size, rng: np.random.Generator) -> Arrays:
    tokens, hidden, inner = size
    # Weights are scaled as in a trained net, so that activations neither vanish nor saturate.
    return {
        "x": normal(rng, (tokens, hidden)),
        "gate": normal(rng, (hidden, inner)) / np.float32(np.sqrt(hidden)),
        "up": normal(rng, (hidden, inner)) / np.float32(np.sqrt(hidden)),
        "down": normal(rng, (inner, hidden)) / np.float32(np.sqrt(inner)),
    }


def _swiglu(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x, gate, up, down = (inputs[name].astype(np.float64) for name in ("x", "gate", "up", "down"))
    g = x @ gate
    return [(g / (1.0 + np.exp(-g)) * (x @ up)) @ down]


def _swiglu_work(size: Size, expected: Sequence[np.ndarray[Any, Any]]) -> Work:
    tokens, hidden, inner = size
    read, written = 4 * (tokens * hidden + 3 * hidden * inner), 4 * tokens * hidden
    return Work(6 * tokens * hidden * inner, read, written, "f32 product")


MATMUL = Workload(
    name="matmul",
    summary="c = a @ b",
    axes=("m", "k", "n"),
    sizes=_SIZES,
    default=("small", "square", "skinny", "row"),
    unit="GFLOP/s",
    dtype="f32",
    make=_operands,
    reference=_product,
    outputs=lambda size: {"c": Output((size[0], size[2]), "float32")},
    work=lambda size, expected: _product_work(4, "f32 product", size),
    tolerance=_F32,
    kernels={"": f"{_KERNELS}:matmul", "tiled": f"{_KERNELS}:matmul_tiled"},
)

MATMUL_BF16 = Workload(
    name="matmul_bf16",
    summary="c = a @ b in bf16, summed in f32",
    axes=("m", "k", "n"),
    sizes=_SIZES,
    default=("small", "square", "skinny", "row"),
    unit="GFLOP/s",
    dtype="bf16",
    make=_bf16_operands,
    reference=_bf16_product,
    outputs=lambda size: {"c": Output((size[0], size[2]), "bfloat16")},
    work=lambda size, expected: _product_work(2, "bf16", size),
    tolerance=_BF16,
    kernels={"": f"{_KERNELS}:matmul_bf16", "tiled": f"{_KERNELS}:matmul_bf16_tiled"},
)

MATMUL_BIAS_GELU = Workload(
    name="matmul_bias_gelu",
    summary="gelu(a @ b / sqrt(k) + bias), tanh form",
    axes=("m", "k", "n"),
    sizes={
        "small": (256, 256, 256),
        "square": (1024, 1024, 1024),
        "large": (512, 4096, 4096),
        "skinny": (32, 4096, 4096),
    },
    default=("small", "square"),
    unit="GFLOP/s",
    dtype="f32",
    make=_bias_gelu_operands,
    reference=_bias_gelu,
    outputs=lambda size: {"c": Output((size[0], size[2]), "float32")},
    work=lambda size, expected: _product_work(4, "f32 product", size),
    tolerance=Tolerance(relative=1e-4, absolute=1e-4),
    kernels={"": f"{_KERNELS}:matmul_bias_gelu", "tiled": f"{_KERNELS}:matmul_bias_gelu_tiled"},
)

SWIGLU = Workload(
    name="swiglu",
    summary="MLP: (silu(x @ gate) * (x @ up)) @ down",
    axes=("tokens", "hidden", "inner"),
    sizes={"small": (16, 256, 704), "medium": (128, 1024, 2816), "large": (512, 2048, 5632), "token": (1, 2048, 5632)},
    default=("small", "medium"),
    unit="GFLOP/s",
    dtype="f32",
    make=_swiglu_operands,
    reference=_swiglu,
    outputs=lambda size: {"out": Output(size[:2], "float32")},
    work=_swiglu_work,
    tolerance=Tolerance(relative=1e-4, absolute=1e-4),
    kernels={"": f"{_KERNELS}:swiglu"},
)

WORKLOADS = (MATMUL, MATMUL_BF16, MATMUL_BIAS_GELU, SWIGLU)
