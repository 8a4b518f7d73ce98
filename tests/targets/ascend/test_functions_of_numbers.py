# SPDX-License-Identifier: MIT
"""Functions of single numbers, which the vector core computes: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import reductions

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, races, written


@pto.jit
def beside_tiles(x: pl.Tensor, scales: pl.Tensor, out: pl.Tensor, numbers: pl.Tensor):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        s = scales[i // 8]
        shrink = pl.exp(-s * 0.5)
        if pl.sqrt(s) > 1.0:
            shrink = shrink * pl.sigmoid(s)
        pl.store(pl.load(x, [i, 0], [8, 40]) * shrink, [i, 0], out)
        numbers[i // 8, 0] = pl.log1p(s) + pl.pow(s, 1.5)
        numbers[i // 8, 1] = pl.floor(s) + pl.sign(s - 1.0) * 8.0
        numbers[i // 8, 2] = s % 0.75


@pto.jit
def running(x: pl.Tensor, out: pl.Tensor):
    """The logarithm of a sum of exponentials, a row at a time."""
    with pl.incore():
        most = -1e30
        total = 0.0
        for i in pl.range(x.shape[0]):
            t = pl.load(x, [i, 0], [1, 40])
            now = pl.maximum(most, pl.max(t))
            total = total * pl.exp(most - now) + pl.sum(pl.exp(t - now))
            most = now
        out[0] = most + pl.log(total)


@pto.jit
def recurrence(x: pl.Tensor, out: pl.Tensor):
    """Each element is a function of the one before."""
    for i in pl.range(1, x.shape[0]):
        out[i] = pl.tanh(out[i - 1]) * 0.5 + x[i]


@pto.jit
def places(x: pl.Tensor, at: pl.Tensor, out: pl.Tensor):
    """A place that is made of a function, bits and shifts of integers, and what the scalar unit can do itself."""
    for i in pl.range(at.shape[0], parallel=True):
        k = pl.cast(pl.floor(at[i] * 4.0), pl.i32)
        v = pl.load(x, [k, 0], [1, 40])
        n = ((k << 3) >> 1) | ~k
        if pl.isnan(at[i]):
            n = 0
        pl.store(v + pl.cast(n, pl.f32) + pl.square(at[i]), [i, 0], out)


F, ROWS = pl.f32, pto.spec((None, 40), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "beside": (beside_tiles, (ROWS, pto.spec((None,), F), ROWS, pto.spec((None, 3), F))),
    "running": (running, (ROWS, pto.spec((1,), F))),
    "recurrence": (recurrence, (pto.spec((None,), F),) * 2),
    "places": (places, (ROWS, pto.spec((None,), F), ROWS)),
    "log_sum_exp": (reductions.log_sum_exp, (pto.spec((None,), F), pto.spec((1,), F))),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("numbers"))


def close(mine: np.ndarray, wanted: np.ndarray, err_msg: str) -> None:
    np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5, err_msg=err_msg)


@needs_compiler
def test_numbers_beside_tiles(programs: Programs) -> None:
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((29, 40)).astype(np.float32), "scales": np.array([0.5, 2.25, 1, 3], np.float32)}
    outputs = {"out": np.zeros((29, 40), np.float32), "numbers": np.zeros((4, 3), np.float32)}
    check_interpreted(programs, beside_tiles, "beside", inputs, outputs, close)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 7])
def test_numbers_that_a_loop_carries(programs: Programs, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 40)).astype(np.float32)
    check_interpreted(programs, running, "running", {"x": x}, {"out": np.zeros(1, np.float32)}, close)


@needs_compiler
def test_recurrences(programs: Programs) -> None:
    x = np.random.default_rng(3).standard_normal(30).astype(np.float32)
    check_interpreted(programs, recurrence, "recurrence", {"x": x}, {"out": np.ones(30, np.float32)}, close)


@needs_compiler
def test_places_and_bits(programs: Programs) -> None:
    rng = np.random.default_rng(4)
    inputs = {"x": rng.standard_normal((9, 40)).astype(np.float32), "at": rng.uniform(0, 2, 6).astype(np.float32)}
    check_interpreted(programs, places, "places", inputs, {"out": np.zeros((6, 40), np.float32)}, close)


@needs_compiler
@pytest.mark.parametrize("length", [1, 5000])
def test_logarithm_of_a_sum_of_exponentials(programs: Programs, length: int) -> None:
    x = np.random.default_rng(5).standard_normal(length).astype(np.float32)
    check_interpreted(programs, reductions.log_sum_exp, "log_sum_exp", {"x": x}, {"out": np.zeros(1, np.float32)}, close)


def test_each_flag_is_needed() -> None:
    (kernel,) = kernels_of(written(running, ROWS, pto.spec((1,), F)))
    for what in mutants(kernel):
        assert races(kernel, first=True), what


def test_refused() -> None:
    @pto.jit
    def doubles(x: pl.Tensor, out: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            pl.store(pl.load(out, [i, 0], [1, 40]) * pl.exp(x[i]).to(pl.f32), [i, 0], out)

    with pytest.raises(pto.TargetError, match="`exp` of numbers of f64"):
        written(doubles, pto.spec((None,), pl.f64), ROWS)
