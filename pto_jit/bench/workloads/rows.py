# SPDX-License-Identifier: MIT
"""Workloads that reduce the rows of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Output, Size, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.rows"
EPSILON = 1e-5


def _same_shape(size: Size) -> dict[str, Output]:
    return {"out": Output(size, "float32")}


def _in_and_out(size: Size, expected: Sequence[np.ndarray[Any, Any]]) -> Work:
    return Work(0, 4 * size[0] * size[1], 4 * size[0] * size[1])


def _softmax(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x = inputs["x"].astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return [e / e.sum(axis=1, keepdims=True)]


def _rms_norm(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x = inputs["x"].astype(np.float64)
    return [x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + EPSILON) * inputs["weight"]]


def _layer_norm(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x = inputs["x"].astype(np.float64)
    centred = x - x.mean(axis=1, keepdims=True)
    variance = np.mean(centred * centred, axis=1, keepdims=True)
    return [centred / np.sqrt(variance + EPSILON) * inputs["weight"] + inputs["bias"]]


def _cross_entropy(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    x, labels = inputs["logits"].astype(np.float64), inputs["labels"]
    top = x.max(axis=1)
    total = np.log(np.exp(x - top[:, None]).sum(axis=1)) + top
    return [total - x[np.arange(len(labels)), labels]]


SOFTMAX = Workload(
    name="softmax",
    summary="softmax of every row",
    axes=("rows", "cols"),
    sizes={"small": (512, 512), "medium": (4096, 1024), "large": (4096, 4096), "wide": (1024, 32768)},
    default=("small", "medium"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=_softmax,
    outputs=_same_shape,
    work=_in_and_out,
    tolerance=Tolerance(relative=2e-5, absolute=1e-9),
    kernels={"": f"{_KERNELS}:softmax"},
)

RMS_NORM = Workload(
    name="rms_norm",
    summary="root-mean-square norm of every row, with weights",
    axes=("rows", "cols"),
    sizes={"small": (512, 512), "medium": (2048, 2048), "large": (4096, 4096)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size), "weight": normal(rng, size[1:])},
    reference=_rms_norm,
    outputs=_same_shape,
    work=_in_and_out,
    tolerance=Tolerance(relative=2e-5, absolute=1e-6),
    kernels={"": f"{_KERNELS}:rms_norm"},
)

LAYER_NORM = Workload(
    name="layer_norm",
    summary="layer norm of every row, with weights and bias",
    axes=("rows", "cols"),
    sizes={"small": (512, 512), "medium": (2048, 2048), "large": (4096, 4096)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, size), "weight": normal(rng, size[1:]), "bias": normal(rng, size[1:])},
    reference=_layer_norm,
    outputs=_same_shape,
    work=_in_and_out,
    tolerance=Tolerance(relative=2e-5, absolute=1e-5),
    kernels={"": f"{_KERNELS}:layer_norm"},
)

CROSS_ENTROPY = Workload(
    name="cross_entropy",
    summary="loss of every row: logsumexp(logits) - logits[label]",
    axes=("rows", "classes"),
    sizes={"small": (256, 1024), "large": (512, 32000)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {
        "logits": normal(rng, size),
        "labels": rng.integers(0, size[1], size[0], dtype=np.int32),
    },
    reference=_cross_entropy,
    outputs=lambda size: {"loss": Output(size[:1], "float32")},
    work=lambda size, expected: Work(0, 4 * size[0] * size[1], 4 * size[0]),
    tolerance=Tolerance(relative=2e-5, absolute=2e-5),
    kernels={"": f"{_KERNELS}:cross_entropy"},
)

WORKLOADS = (SOFTMAX, RMS_NORM, LAYER_NORM, CROSS_ENTROPY)
