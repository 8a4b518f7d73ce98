# SPDX-License-Identifier: MIT
"""Scaled dot-product attention over `[heads, sequence, dim]`."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Output, Size, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.attention"
_SIZES = {"small": (8, 512, 64), "medium": (8, 1024, 128), "large": (32, 2048, 128)}


def _operands(size: Size, rng: np.random.Generator) -> Arrays:
    return {name: normal(rng, size) for name in ("q", "k", "v")}


def _attention(inputs: Arrays, causal: bool) -> list[np.ndarray[Any, Any]]:
    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    heads, length, dim = q.shape
    mask = np.triu(np.ones((length, length), bool), 1)
    out = np.empty(q.shape, np.float64)
    # One head at a time: all scores at once would not fit in memory at the large size.
    for head in range(heads):
        scores = q[head].astype(np.float64) @ k[head].astype(np.float64).T / np.sqrt(dim)
        if causal:
            scores[mask] = -np.inf
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[head] = scores / scores.sum(axis=1, keepdims=True) @ v[head].astype(np.float64)
    return [out]


def _work(size: Size, causal: bool) -> Work:
    heads, length, dim = size
    # Causal attention needs half of the square; a peer that computes all of it is not credited for that.
    flops = 4 * heads * length * length * dim // (2 if causal else 1)
    each = 4 * heads * length * dim
    return Work(flops, 3 * each, each, "f32 product")


def _workload(name: str, summary: str, causal: bool) -> Workload:
    return Workload(
        name=name,
        summary=summary,
        axes=("heads", "length", "dim"),
        sizes=_SIZES,
        default=("small", "medium"),
        unit="GFLOP/s",
        dtype="f32",
        make=_operands,
        reference=lambda inputs: _attention(inputs, causal),
        outputs=lambda size: {"out": Output(size, "float32")},
        work=lambda size, expected: _work(size, causal),
        tolerance=Tolerance(relative=1e-4, absolute=2e-5),
        kernels={"": f"{_KERNELS}:{name}_turned"},
    )


ATTENTION = _workload("attention", "softmax(q @ k.T / sqrt(dim)) @ v", causal=False)
ATTENTION_CAUSAL = _workload("attention_causal", "the same, each query seeing keys up to its own", causal=True)

WORKLOADS = (ATTENTION, ATTENTION_CAUSAL)
