# SPDX-License-Identifier: MIT
"""Every kernel of the benchmark suite, written as C and run, against NumPy."""

from __future__ import annotations

import numpy as np

import pto_jit as pto
from pto_jit.bench.catalog import WORKLOADS
from pto_jit.bench.checking import check, poison
from pto_jit.bench.implementation import Case
from pto_jit.bench.worker import resolve
from pto_jit.bench.workload import aligned_empty, dtype_named

from .harness import Batch, needs_compiler

CASES = [
    (workload, path)
    for workload in WORKLOADS.values()
    for path in dict.fromkeys(workload.kernels.values())
    if not workload.like and isinstance(resolve(path), pto.JitFunction)
]


@needs_compiler
def test_every_kernel_agrees_with_the_reference() -> None:
    batch, checks = Batch(), []
    for workload, path in CASES:
        size = tuple(5 + 3 * place for place in range(len(workload.axes)))
        inputs = workload.make(size, np.random.default_rng(0))
        outputs = {n: aligned_empty(o.shape, dtype_named(o.dtype)) for n, o in workload.outputs(size).items()}
        for array in outputs.values():
            poison(array) if array.dtype.kind == "f" else array.fill(0)
        kernel = resolve(path)
        batch.add(kernel, *Case(workload, size, 1, inputs, outputs).arguments)
        checks.append((workload, outputs, workload.reference(inputs)))
    batch.run()
    wrong = []
    for (workload, outputs, expected), (_, path) in zip(checks, CASES, strict=True):
        found = check(list(outputs.values()), expected, workload.tolerance)
        if not found.passed:
            wrong.append(f"{path}: {found.message}")
    assert not wrong, "\n".join(wrong)
