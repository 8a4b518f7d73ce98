# SPDX-License-Identifier: MIT
"""The kernels of the workloads as plain Python give what the reference says, and no two iterations conflict."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pto_jit as pto
from pto_jit.bench.catalog import WORKLOADS
from pto_jit.bench.checking import check
from pto_jit.bench.implementation import Case
from pto_jit.bench.worker import resolve
from pto_jit.bench.workload import Workload, aligned_empty, dtype_named
from tests.jit.conftest import settings

__all__ = ["settings"]

CASES = [
    (workload, path)
    for workload in WORKLOADS.values()
    for path in dict.fromkeys(workload.kernels.values())
    if not workload.like
]


@pytest.mark.parametrize(("workload", "path"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_kernel_interpreted_and_compiled_agrees_with_the_reference(
    workload: Workload, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = resolve(path)
    prepares = getattr(kernel, "prepares", False)  # the case of a kernel that is another name of its module
    size = tuple(5 + (1 if prepares else 3) * place for place in range(len(workload.axes)))
    inputs = workload.make(size, np.random.default_rng(0))
    if prepares:
        module = inspect.getmodule(kernel)
        jitted = {name: value for name, value in vars(module).items() if isinstance(value, pto.JitFunction)}
        for interpreted in (False, True):
            for name, value in jitted.items():
                monkeypatch.setattr(module, name, value.interpret if interpreted else value)
            outputs = {name: aligned_empty(one.shape, dtype_named(one.dtype)) for name, one in workload.outputs(size).items()}
            ready = kernel(Case(workload, size, 1, inputs, outputs))
            found = check(ready.collect(ready.call()), workload.reference(inputs), workload.tolerance)
            assert found.passed, f"interpreted {interpreted}: {found.message}"
        return
    assert isinstance(kernel, pto.JitFunction)
    for call in (kernel.interpret, kernel):
        outputs = {name: aligned_empty(one.shape, dtype_named(one.dtype)) for name, one in workload.outputs(size).items()}
        for array in outputs.values():
            array[...] = 0
        call(*Case(workload, size, 1, inputs, outputs).arguments)
        found = check(list(outputs.values()), workload.reference(inputs), workload.tolerance)
        assert found.passed, f"{call}: {found.message}"
