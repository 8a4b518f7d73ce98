# SPDX-License-Identifier: MIT
"""Loops that go on behind the end of a tensor: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import attention
from pto_jit.targets.ascend.form import Loop

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written
from .harness import blocks as blocks_of

ROWS = pto.spec((None, 32), pl.f32)
HEADS = pto.spec((None, None, 64), pl.f32)


@pto.jit
def blocks(x: pl.Tensor, low: pl.Tensor, high: pl.Tensor, sums: pl.Tensor, copies: pl.Tensor):
    """Blocks of 48 rows, 16 at a time."""
    with pl.incore():
        for i in pl.range(0, x.shape[0], 48, parallel=True):
            here = pl.load(x, [i, 0], [48, 32])
            small, large = pl.full([1, 32], 9.0, pl.f32), pl.full([1, 32], -9.0, pl.f32)
            total = pl.zeros([1, 32], pl.f32)
            for j in pl.range(i, i + 48, 16):
                t = pl.exp(pl.load(x, [j, 0], [16, 32]))
                small = pl.minimum(small, pl.min(t, axis=0, keepdims=True))
                large = pl.maximum(large, pl.max(t.to(pl.f16).to(pl.f32), axis=0, keepdims=True)) * 0.5
                total = total + pl.sum(t * 2.0, axis=0, keepdims=True)
                pl.store(t, [j, 0], copies)
            pl.store(here * small, [i, 0], low)
            pl.store(here * large, [i, 0], high)
            pl.store(here + total, [i, 0], sums)


@pto.jit
def beside(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    """What of the loop is not made of tiles behind the end is done all the same."""
    with pl.incore():
        for i in pl.range(0, out.shape[0], 48, parallel=True):
            top, count = pl.full([1, 32], -9.0, pl.f32), pl.zeros([1, 32], pl.f32)
            for j in pl.range(i, i + 48, 16):
                top = pl.maximum(top, pl.max(pl.load(x, [j, 0], [16, 32]), axis=0, keepdims=True))
                count = count + pl.load(y, [j // 16, 0], [1, 32])
            pl.store(pl.load(out, [i, 0], [48, 32]) + top + count, [i, 0], out)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "wide": (attention.attention_causal_wide, (HEADS,) * 4),
    "blocks": (blocks, (ROWS,) * 5),
    "beside": (beside, (ROWS,) * 3),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("behind"))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


close = partial(np.testing.assert_allclose, rtol=2e-6, atol=2e-6)


@needs_compiler
@pytest.mark.parametrize("length", [1, 64, 65, 128, 130, 192, 250])
def test_causal_attention_of_every_length(programs: Programs, length: int) -> None:
    """Of 1 to 64 queries in the last 128, the last 64 keys are all behind the end."""
    q, k, v = (numbers(1 + n, length, 64)[n:] for n in range(3))
    inputs, outputs = {"q": q, "k": k, "v": v}, {"out": np.full_like(q, np.nan)}
    check_interpreted(programs, attention.attention_causal_wide, "wide", inputs, outputs, close)


@needs_compiler
@pytest.mark.parametrize("rows", [5, 16, 40, 49, 96])
def test_what_is_reduced_behind_the_end_changes_nothing(programs: Programs, rows: int) -> None:
    x = numbers(rows, 32)
    outputs = {name: np.full_like(x, np.nan) for name in ("low", "high", "sums", "copies")}
    check_interpreted(programs, blocks, "blocks", {"x": x}, outputs, close)


@needs_compiler
@pytest.mark.parametrize("rows", [5, 20, 64])
def test_what_is_made_of_other_tiles_is_done_all_the_same(programs: Programs, rows: int) -> None:
    x, y = numbers(rows, 32), numbers(6, 32)
    check_interpreted(programs, beside, "beside", {"x": x, "y": y}, {"out": x.copy()}, close)


@pytest.mark.parametrize("fn", [attention.attention_causal, attention.attention_causal_turned])
def test_loops_whose_steps_end_with_their_block_stay_one(fn: Any) -> None:
    """Blocks of 64 queries end where 128 keys do, or in their middle."""
    (form,) = kernels_of(written(fn, *(HEADS,) * 4))
    loops = [node for block in blocks_of(form.body) for node in block if isinstance(node, Loop)]
    assert len(loops) == 4
