# SPDX-License-Identifier: MIT
"""Workloads whose reduced axis is the long one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pto_jit.bench.workload import Output, Tolerance, Work, Workload
from pto_jit.bench.workloads.elementwise import normal
from pto_jit.bench.workloads.rows import SOFTMAX

_KERNELS = "pto_jit.bench.kernels.reductions"

COLUMN_SOFTMAX = replace(
    SOFTMAX,
    name="column_softmax",
    summary="softmax of few long rows, the columns divided over the threads",
    sizes={"small": (64, 16384), "medium": (64, 131072), "large": (64, 1048576)},
    default=("large",),
    kernels={"": f"{_KERNELS}:column_softmax"},
)

VECTOR_SUM = Workload(
    name="vector_sum",
    summary="the sum of a vector",
    axes=("n",),
    sizes={"small": (1 << 14,), "medium": (1 << 20,), "large": (1 << 25,)},
    default=("small", "large"),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": np.abs(normal(rng, size))},
    reference=lambda inputs: [inputs["x"].sum(dtype=np.float64, keepdims=True)],
    outputs=lambda size: {"total": Output((1,), "float32")},
    work=lambda size, expected: Work(size[0], 4 * size[0], 4),
    tolerance=Tolerance(relative=1e-3, absolute=0.0),
    kernels={"": f"{_KERNELS}:vector_sum"},
)

LOG_SUM_EXP = replace(
    VECTOR_SUM,
    name="log_sum_exp",
    summary="the logarithm of the sum of exponentials of a vector, by a function of two states",
    make=lambda size, rng: {"x": normal(rng, size)},
    reference=lambda inputs: [np.logaddexp.reduce(inputs["x"].astype(np.float64), keepdims=True)],
    work=lambda size, expected: Work(4 * size[0], 4 * size[0], 4),
    tolerance=Tolerance(relative=1e-5, absolute=0.0),
    kernels={"": f"{_KERNELS}:log_sum_exp"},
)

WORKLOADS = (COLUMN_SOFTMAX, VECTOR_SUM, LOG_SUM_EXP)
