# SPDX-License-Identifier: MIT
"""Workloads small enough to be measured in a test."""

from __future__ import annotations

import numpy as np

from pto_jit.bench.workload import Output, Tolerance, Work, Workload

DOUBLE = Workload(
    name="double",
    summary="out = 2 x",
    axes=("n",),
    sizes={"small": (8,), "large": (4096,)},
    default=("small",),
    unit="GB/s",
    dtype="f32",
    make=lambda size, rng: {"x": rng.standard_normal(size, dtype=np.float32)},
    reference=lambda inputs: [2 * inputs["x"]],
    outputs=lambda size: {"out": Output(size, "float32")},
    work=lambda size, expected: Work(size[0], 4 * size[0], 4 * size[0]),
    tolerance=Tolerance(1e-6, 0.0),
)

WORKLOADS = {"double": DOUBLE}
