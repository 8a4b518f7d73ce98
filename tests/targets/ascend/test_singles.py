# SPDX-License-Identifier: MIT
"""Tiles of f64 whose numbers f32 has, or that are rounded to f32 at once: the same bits, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered, written


@pto.jit
def one_hot(x: pl.Tensor, labels: pl.Tensor, dx: pl.Tensor):
    """The gradient of cross entropy."""
    for i in pl.range(x.shape[0], parallel=True):
        t = pl.load(x, [i, 0], [1, 40])
        hot = pl.where(pl.arange(40) == labels[i].to(pl.i32), 1.0, 0.0)
        pl.store(t - hot, [i, 0], dx)


@pto.jit
def chosen(x: pl.Tensor, h: pl.Tensor, out: pl.Tensor, halves: pl.Tensor, truths: pl.Tensor):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [i, 0], [8, 40])
        signs = pl.where(t > 0, 1.0, -0.5)
        pl.store(t / pl.where(t > 1, signs, 3.0), [i, 0], out)
        pl.store(pl.maximum(signs, pl.abs(pl.load(h, [i, 0], [8, 40]).to(pl.f64))), [i, 0], halves)
        pl.store((-signs > 0.25) & (pl.sqrt(pl.where(t > 0, 4.0, 2.0)).to(pl.f32) > 1.5), [i, 0], truths)


@pto.jit
def counted(out: pl.Tensor):
    for i in pl.range(0, out.shape[0], 8, parallel=True):
        places = (pl.arange(64)[None, :] * 0.375).to(pl.f32) + pl.zeros([8, 64], pl.f32)
        pl.store(pl.exp(-(pl.arange(64) * 0.25).to(pl.f32))[None, :] * places, [i, 0], out)


F, ROWS = pl.f32, pto.spec((None, 40), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "one_hot": (one_hot, (ROWS, pto.spec((None,), pl.i64), ROWS)),
    "chosen": (chosen, (ROWS, pto.spec((None, 40), pl.f16), ROWS, pto.spec((None, 40), pl.f16), pto.spec((None, 40), pl.bool_))),
    "counted": (counted, (pto.spec((None, 64), F),)),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("singles"))


@needs_compiler
def test_one_hot(programs: Programs) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 40)).astype(np.float32)
    check_interpreted(programs, one_hot, "one_hot", {"x": x, "labels": rng.integers(0, 40, 9)}, {"dx": np.zeros_like(x)})


@needs_compiler
def test_numbers_that_are_chosen(programs: Programs) -> None:
    """NaNs and infinities, too; quotients are rounded as those of f64 are."""
    rng = np.random.default_rng(1)
    x = (3 * rng.standard_normal((13, 40))).astype(np.float32)
    x[2, :3] = np.nan, np.inf, -np.inf
    inputs = {"x": x, "h": rng.standard_normal((13, 40)).astype(np.float16)}
    outputs = {"out": np.zeros_like(x), "halves": np.zeros((13, 40), np.float16), "truths": np.zeros((13, 40), bool)}
    check_interpreted(programs, chosen, "chosen", inputs, outputs)


@needs_compiler
def test_places_times_a_number(programs: Programs) -> None:
    out = np.zeros((11, 64), np.float32)
    counted.interpret(out)
    mine = np.zeros_like(out)
    programs.run("counted", out=mine)
    np.testing.assert_allclose(mine, out, rtol=1e-6)


@pytest.mark.parametrize("what", ["number", "twice", "kept"])
def test_what_needs_64_bits_is_refused(what: str) -> None:
    @pto.jit
    def kernel(x: pl.Tensor, out: pl.Tensor):
        for i in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [i, 0], [8, 40])
            if what == "number":  # 0.1 is no f32
                pl.store(t - pl.where(t > 0, 0.1, 0.0), [i, 0], out)
            elif what == "twice":  # a rounded difference goes on
                pl.store((t - pl.where(t > 0, 1.0, 0.0)) * 3.0, [i, 0], out)
            else:
                pl.store((t - pl.where(t > 0, 1.0, 0.0)).to(pl.f16).to(pl.f32), [i, 0], out)

    with pytest.raises(pto.TargetError, match="tiles of f64"):
        written(kernel, ROWS, ROWS)
