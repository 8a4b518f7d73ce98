# SPDX-License-Identifier: MIT
"""Every workload at a small size: what it says of itself, and NumPy's implementation against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from pto_jit.bench.checking import check, poison
from pto_jit.bench.implementation import Case, Unsupported
from pto_jit.bench.peers import numpy_peer
from pto_jit.bench.specials import ALL
from pto_jit.bench.workload import Size, Workload, aligned_empty, dtype_named

CASES = [(workload, tuple(5 + 3 * place for place in range(len(workload.axes)))) for workload in ALL.values()]


@pytest.mark.parametrize(("workload", "size"), CASES, ids=lambda value: getattr(value, "name", None))
def test_numpy_agrees_with_the_reference(workload: Workload, size: Size) -> None:
    inputs = workload.make(size, np.random.default_rng(0))
    expected = workload.reference(inputs)
    outputs = {name: aligned_empty(one.shape, dtype_named(one.dtype)) for name, one in workload.outputs(size).items()}
    for array in outputs.values():
        poison(array)
    try:
        built = numpy_peer.TABLE.build(workload.implemented_as, "", Case(workload, size, 1, inputs, outputs))
    except Unsupported as missing:
        pytest.skip(str(missing))
    for _ in range(2):
        returned = built.call()
        found = check(
            built.collect(returned) if built.collect else list(outputs.values()), expected, workload.tolerance
        )
        assert found.passed, found.message


@pytest.mark.parametrize("workload", ALL.values(), ids=lambda workload: workload.name)
def test_a_workload_is_consistent(workload: Workload) -> None:
    size = workload.size_of(next(iter(workload.sizes)))
    inputs = workload.make(size, np.random.default_rng(0))
    expected = workload.reference(inputs)
    outputs = workload.outputs(size)
    assert [one.shape for one in outputs.values()] == [array.shape for array in expected]
    assert set(workload.default) <= set(workload.sizes)
    assert all(len(one) == len(workload.axes) for one in workload.sizes.values())
    work = workload.work(size, expected)
    assert work.bytes_written == sum(
        int(np.prod(one.shape)) * dtype_named(one.dtype).itemsize for one in outputs.values()
    )
    assert work.bytes_read <= sum(array.nbytes for array in inputs.values())
    assert (work.flops > 0) or workload.unit != "GFLOP/s"


def test_inputs_are_aligned_to_cache_lines() -> None:
    for extent in range(1, 40):
        assert aligned_empty((extent,), np.dtype(np.float32)).ctypes.data % 64 == 0
