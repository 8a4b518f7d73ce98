# SPDX-License-Identifier: MIT
"""Work on tiles outside of parallel loops: one kernel, where nothing on the host stands between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.ascend.ordering import races

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, written


@pto.jit
def unrolled(x: pl.Tensor, out: pl.Tensor):
    """Steps that share a tile, which no kernel has to keep for the next one."""
    with pl.incore():
        w = pl.load(x, [0, 0], [1, 64])
        for i in pl.static_range(4):
            pl.store(pl.load(x, [i * 16, 0], [16, 64]) * w, [i * 16, 0], out)


@pto.jit
def chained(x: pl.Tensor, out: pl.Tensor):
    """Scopes that read what the one before has written."""
    for i in pl.static_range(3):
        with pl.incore():
            t = pl.load(x, [i * 8, 0], [8, 64])
            if i > 0:
                t = t + pl.load(out, [i * 8 - 8, 0], [8, 64])
            pl.store(t, [i * 8, 0], out)


@pto.jit
def between(x: pl.Tensor, n: pl.Tensor, out: pl.Tensor):
    """The host reads a number between two steps."""
    with pl.incore():
        pl.store(pl.load(x, [0, 0], [8, 64]) * 2.0, [0, 0], out)
    first = pl.cast(n[0], pl.f32)
    with pl.incore():
        pl.store(pl.load(x, [8, 0], [8, 64]) * first, [8, 0], out)


@pto.jit
def aside(x: pl.Tensor, out: pl.Tensor):
    """Views that the host makes of one tensor: two names, whose order nothing would keep."""
    upper, lower = out[0:8, :], out[4:12, :]
    with pl.incore():
        pl.store(pl.load(x, [0, 0], [8, 64]) * 2.0, [0, 0], upper)
    with pl.incore():
        pl.store(pl.load(lower, [0, 0], [8, 64]) + 1.0, [0, 0], lower)


@pto.jit
def large(x: pl.Tensor, out: pl.Tensor):
    """Steps that are done in strips each, which one kernel of both would not be."""
    with pl.incore():
        t = pl.load(x, [0, 0], [64, 1024])
        pl.store(t * pl.exp(t), [0, 0], out)
        u = pl.load(x, [0, 512], [128, 512])
        pl.store(u * pl.exp(u), [0, 512], out)


M = pto.spec((64, 64), pl.f32)
LARGE = pto.spec((128, 1024), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "unrolled": (unrolled, (M, M)),
    "chained": (chained, (M, M)),
    "between": (between, (M, pto.spec((1,), pl.i32), M)),
    "aside": (aside, (M, M)),
    "large": (large, (LARGE, LARGE)),
}
KERNELS = {"unrolled": 1, "chained": 1, "between": 2, "aside": 2, "large": 2}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@pytest.mark.parametrize("name", CASES)
def test_how_many_kernels_there_are(name: str) -> None:
    fn, specs = CASES[name]
    assert len(kernels_of(written(fn, *specs))) == KERNELS[name]


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_steps_give_the_numbers_of_the_interpreter(programs: Programs, name: str) -> None:
    shape = (128, 1024) if name == "large" else (64, 64)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    inputs = {"x": x} | ({"n": np.array([3], np.int32)} if name == "between" else {})

    def close(a: np.ndarray, b: np.ndarray, err_msg: str) -> None:
        np.testing.assert_allclose(a, b, rtol=2e-6, err_msg=err_msg)

    check_interpreted(programs, CASES[name][0], name, inputs, {"out": np.zeros_like(x)}, close)


def test_the_host_keeps_no_memory_that_nothing_reads() -> None:
    host = written(unrolled, M, M).sources["unrolled_orchestration.c"]
    assert "aclrtMalloc" not in host and host.count("launch_") == 2


def test_without_a_flag_or_barrier_steps_are_not_ordered() -> None:
    (kernel,) = kernels_of(written(chained, M, M))
    for what in mutants(kernel):
        assert races(kernel, first=True), f"nobody misses it: {what}"
