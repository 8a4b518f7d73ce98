# SPDX-License-Identifier: MIT
"""All workloads by name, in the order in which they are listed and run."""

from __future__ import annotations

from pto_jit.bench.workload import Workload
from pto_jit.bench.workloads import attention, elementwise, grids, loops, matrix, nests, plain, reductions, rows

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        elementwise.VECTOR_ADD,
        *rows.WORKLOADS[:3],
        *elementwise.WORKLOADS[1:],
        *matrix.WORKLOADS[:3],
        *attention.WORKLOADS,
        matrix.SWIGLU,
        rows.CROSS_ENTROPY,
        *reductions.WORKLOADS,
        *grids.WORKLOADS,
        *loops.WORKLOADS,
        *plain.WORKLOADS,
        *nests.WORKLOADS,
    )
}
