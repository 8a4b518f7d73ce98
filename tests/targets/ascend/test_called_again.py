# SPDX-License-Identifier: MIT
"""In-core functions that are called again: one kernel, launched with other arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written


@pto.incore
def scaled(x, y, s):
    pl.store(pl.load(x, [0, 0], [16, 64]) * s + 1.0, [0, 0], y)


@pto.incore
def shares(x, y):
    t = pl.load(x, [0, 0], [16, 64])
    pl.store(t / pl.sum(t, axis=1, keepdims=True), [0, 0], y)


@pto.incore
def rows_of(x, y, n):
    for i in pl.range(0, n, 16, parallel=True):
        pl.store(pl.load(x, [i, 0], [16, 64]) * 2.0, [i, 0], y)


@pto.jit
def repeated(x: pl.Tensor, s: int, out: pl.Tensor):
    """Two functions on the rows of one tensor after the other."""
    scaled(x[0:16], out[0:16], s)
    shares(x[16:32], out[16:32])
    scaled(x[32:48], out[32:48], s + 1)
    shares(out[0:16], out[48:64])


@pto.jit
def unlike(x: pl.Tensor, n: int, out: pl.Tensor):
    """A number that is an extent of the tensor, and one that may be any other."""
    rows_of(x, out, x.shape[0])
    rows_of(x, out, n)


@pto.jit
def elsewhere(x: pl.Tensor, out: pl.Tensor):
    """The same program in two places of the source, whose kernels say where they come from."""
    with pl.incore():
        pl.store(pl.load(x, [0, 0], [16, 64]) * 2.0, [0, 0], out[0:16])
    y = out[16:32]
    with pl.incore():
        pl.store(pl.load(x, [0, 0], [16, 64]) * 2.0, [0, 0], y)


M = pto.spec((64, 64), pl.f32)
ROWS = pto.spec((None, 64), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "repeated": (repeated, (M, 3, M)),
    "unlike": (unlike, (ROWS, 32, ROWS)),
    "elsewhere": (elsewhere, (M, M)),
}
KERNELS = {"repeated": ["scaled", "shares"], "unlike": ["rows_of", "rows_of_1"]}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@pytest.mark.parametrize("name", KERNELS)
def test_functions_that_are_the_same_program_are_one_kernel(name: str) -> None:
    fn, specs = CASES[name]
    program = written(fn, *specs)
    assert [k.name for k in kernels_of(program)] == KERNELS[name]
    assert [f for f in program.sources if f.endswith(".cpp")] == [f"{k}.cpp" for k in KERNELS[name]]


def test_kernels_of_other_places_stay_apart() -> None:
    fn, specs = CASES["elsewhere"]
    assert len(kernels_of(written(fn, *specs))) == 2


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str) -> None:
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32) + 2.0
    more: dict[str, Any] = {"repeated": {"s": 3}, "unlike": {"n": 32}}.get(name, {})

    def close(a: np.ndarray, b: np.ndarray, err_msg: str) -> None:
        np.testing.assert_allclose(a, b, rtol=2e-6, err_msg=err_msg)

    check_interpreted(programs, CASES[name][0], name, {"x": x} | more, {"out": np.zeros_like(x)}, close)
