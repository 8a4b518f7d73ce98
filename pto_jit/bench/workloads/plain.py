# SPDX-License-Identifier: MIT
"""Loops over elements as one writes them for an interpreter; their peers are compilers of the same loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from pto_jit.bench.workload import Arrays, Output, Size, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal

_KERNELS = "pto_jit.bench.kernels.plain"


def _viterbi(inputs: Arrays) -> list[np.ndarray[Any, Any]]:
    moves, seen = inputs["moves"], inputs["seen"]
    score, best = np.empty_like(seen), np.zeros(seen.shape, np.int32)
    score[0] = seen[0]
    for t in range(1, len(seen)):
        each = score[t - 1][:, None] + moves
        best[t] = each.argmax(axis=0)
        score[t] = each.max(axis=0) + seen[t]
    return [score, best]


def _product_work(size: Size, expected: object) -> Work:
    n, k, m = size
    return Work(2 * n * k * m, 4 * (n * k + k * m), 4 * n * m, "f32 product")


PLAIN_PRODUCT = Workload(
    name="plain_product",
    summary="matrix product in three loops over elements; parallel: its rows divided",
    axes=("n", "k", "m"),
    sizes={"small": (64, 64, 64), "medium": (256, 256, 256)},
    default=("medium",),
    unit="GFLOP/s",
    dtype="f32",
    make=lambda size, rng: {"a": normal(rng, size[:2]), "b": normal(rng, size[1:])},
    reference=lambda inputs: [inputs["a"].astype(np.float64) @ inputs["b"]],
    outputs=lambda size: {"out": Output((size[0], size[2]), "float32")},
    work=_product_work,
    tolerance=Tolerance(relative=1e-4, absolute=1e-3),
    kernels={"": f"{_KERNELS}:product", "parallel": f"{_KERNELS}:product_parallel"},
)

PLAIN_ROWS = Workload(
    name="plain_rows",
    summary="matrix times vector in two loops over elements; fastmath: sums in any order",
    axes=("rows", "cols"),
    sizes={"small": (64, 64), "medium": (500, 500)},
    default=("medium",),
    unit="GFLOP/s",
    dtype="f32",
    make=lambda size, rng: {"a": normal(rng, size), "x": normal(rng, size[1:])},
    reference=lambda inputs: [inputs["a"].astype(np.float64) @ inputs["x"]],
    outputs=lambda size: {"out": Output(size[:1], "float32")},
    work=lambda size, expected: Work(2 * size[0] * size[1], 4 * (size[0] + 1) * size[1], 4 * size[0]),
    tolerance=Tolerance(relative=1e-4, absolute=1e-3),
    kernels={"": f"{_KERNELS}:row_products", "fastmath": f"{_KERNELS}:row_products_fastmath"},
)

PLAIN_FIR = Workload(
    name="plain_fir",
    summary="filter of finite impulse response in two loops over elements",
    axes=("n", "taps"),
    sizes={"small": (1000, 16), "medium": (100_000, 64)},
    default=("medium",),
    unit="GFLOP/s",
    dtype="f32",
    make=lambda size, rng: {"x": normal(rng, (size[0] + size[1] - 1,)), "taps": normal(rng, size[1:])},
    reference=lambda inputs: [np.correlate(inputs["x"].astype(np.float64), inputs["taps"], "valid")],
    outputs=lambda size: {"out": Output(size[:1], "float32")},
    work=lambda size, expected: Work(2 * size[0] * size[1], 4 * (size[0] + 2 * size[1] - 1), 4 * size[0]),
    tolerance=Tolerance(relative=1e-4, absolute=1e-3),
    kernels={"": f"{_KERNELS}:fir"},
)

PLAIN_VITERBI = Workload(
    name="plain_viterbi",
    summary="Viterbi's recurrence in three loops over elements",
    axes=("steps", "states"),
    sizes={"small": (50, 16), "medium": (500, 64)},
    default=("medium",),
    unit="GFLOP/s",
    dtype="f32",
    make=lambda size, rng: {"moves": normal(rng, (size[1], size[1])), "seen": normal(rng, size)},
    reference=_viterbi,
    outputs=lambda size: {"score": Output(size, "float32"), "best": Output(size, "int32")},
    work=lambda size, expected: Work(
        2 * (size[0] - 1) * size[1] ** 2, 4 * (size[0] + size[1]) * size[1], 8 * size[0] * size[1]
    ),
    tolerance=Tolerance(0.0, 0.0),
    kernels={"": f"{_KERNELS}:viterbi"},
)

WORKLOADS = (PLAIN_PRODUCT, PLAIN_ROWS, PLAIN_FIR, PLAIN_VITERBI)
