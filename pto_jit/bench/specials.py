# SPDX-License-Identifier: MIT
"""Rows that are not about a kernel's speed: what a launch, a compilation, a second thread cost."""

from __future__ import annotations

from dataclasses import replace

from pto_jit.bench.catalog import WORKLOADS
from pto_jit.bench.workload import Workload
from pto_jit.bench.workloads import elementwise, rows

LAUNCH: Workload = replace(
    elementwise.VECTOR_ADD,
    name="launch",
    summary="one call with three arrays of 16 elements: what dispatch costs",
    sizes={"tiny": (16,)},
    default=("tiny",),
    unit="call",
    kernels={"": "pto_jit.bench.kernels.elementwise:add16", "bound": "pto_jit.bench.kernels.elementwise:add16"},
)

COMPILE: Workload = replace(
    rows.SOFTMAX,
    name="compile",
    summary="softmax in a new process, without and with a warm disk cache; import time",
    sizes={"small": (256, 256)},
    default=("small",),
    unit="call",
    like="softmax",
)

THREADS: Workload = replace(
    rows.SOFTMAX,
    name="threads",
    summary="a softmax of roughly 50 us, with one thread and with more",
    sizes={"small": (384, 512)},
    default=("small",),
    like="softmax",
)

SPECIALS: dict[str, Workload] = {workload.name: workload for workload in (LAUNCH, COMPILE, THREADS)}

# Everything that can be run, by name; the catalog that workers look workloads up in.
ALL: dict[str, Workload] = {**WORKLOADS, **SPECIALS}
