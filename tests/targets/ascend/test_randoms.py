# SPDX-License-Identifier: MIT
"""Random numbers in written programs, run on the CPU: those of the interpreter, bit by bit where they are uniform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, races, written


@pto.jit
def dropout(x: pl.Tensor, key: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        kept = pl.rand(key[0], i * 40, [8, 40]) < 0.75
        pl.store(pl.where(kept, pl.load(x, [i, 0], [8, 40]) * 1.25, 0.0), [i, 0], out)


@pto.jit
def lines(offsets: pl.Tensor, out: pl.Tensor, normal: pl.Tensor):
    for i in pl.range(offsets.shape[0], parallel=True):
        pl.store(pl.rand(-7, offsets[i], [1, 100]), [i, 0], out)
        pl.store(pl.randn(5, offsets[i] + 3, [1, 100]), [i, 0], normal)


@pto.jit
def counted(counters: pl.Tensor, out: pl.Tensor, column: pl.Tensor):
    for i in pl.range(0, counters.shape[0], 4, parallel=True):
        pl.store(pl.rand(2**40 + 9, pl.load(counters, [i, 0], [4, 20])), [i, 0], out)
        pl.store(pl.rand(3, 2**33 - 2, [4, 1]), [i, 0], column)


F = pl.f32
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "dropout": (dropout, (pto.spec((None, 40), F), pto.spec((1,), pl.i64), pto.spec((None, 40), F))),
    "lines": (lines, (pto.spec((None,), pl.i64), *(pto.spec((None, 100), F),) * 2)),
    "counted": (counted, (pto.spec((None, 20), pl.i32), pto.spec((None, 20), F), pto.spec((None, 1), F))),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("randoms"))


@needs_compiler
@pytest.mark.parametrize("seed", [0, 12345678901234567, -1])
def test_dropout(programs: Programs, seed: int) -> None:
    x = np.random.default_rng(0).standard_normal((19, 40)).astype(np.float32)
    check_interpreted(programs, dropout, "dropout", {"x": x, "key": np.array([seed])}, {"out": np.zeros_like(x)})


@needs_compiler
def test_counters_of_64_bits(programs: Programs) -> None:
    """Those of a line may have different upper halves."""
    offsets = np.array([0, 2**31 - 50, 2**32 - 50, -50, 2**62, -(2**40)])
    outputs = {"out": np.zeros((6, 100), np.float32), "normal": np.zeros((6, 100), np.float32)}

    def close(mine: np.ndarray, wanted: np.ndarray, err_msg: str) -> None:
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=3e-6 if err_msg == "normal" else 0, err_msg=err_msg)

    check_interpreted(programs, lines, "lines", {"offsets": offsets}, outputs, close)


@needs_compiler
def test_tiles_of_counters(programs: Programs) -> None:
    counters = np.random.default_rng(1).integers(-(2**31), 2**31, (7, 20)).astype(np.int32)
    outputs = {"out": np.zeros((7, 20), np.float32), "column": np.zeros((7, 1), np.float32)}
    check_interpreted(programs, counted, "counted", {"counters": counters}, outputs)


def test_each_flag_is_needed() -> None:
    (kernel,) = kernels_of(written(CASES["dropout"][0], *CASES["dropout"][1]))
    for what in mutants(kernel):
        assert races(kernel, first=True), what
