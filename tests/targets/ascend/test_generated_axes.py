# SPDX-License-Identifier: MIT
"""Tiles with rows that were loaded and columns that were generated, or repeated: the columns fit those of other tiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import SEEDS, Programs, check_interpreted, needs_compiler, ordered

pytestmark = needs_compiler


@pto.jit
def masked(x: pl.Tensor, lens: pl.Tensor, a: pl.Tensor, b: pl.Tensor):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        lengths = pl.load(lens, [i], [16])[:, None]
        columns = pl.arange(64).to(pl.f32)[None, :]
        pl.store(pl.sum(pl.where(columns < lengths, t, t - t), axis=1), [i], a)
        pl.store(pl.sum(pl.minimum(columns, lengths), axis=1), [i], b)


@pto.jit
def repeated(x: pl.Tensor, lens: pl.Tensor, a: pl.Tensor, b: pl.Tensor):
    for i in pl.range(0, x.shape[0], 16, parallel=True):
        t = pl.load(x, [i, 0], [16, 64])
        some = pl.broadcast_to(pl.load(lens, [i], [16])[:, None], [16, 64])
        pl.store(pl.sum(pl.where(some > 0, t, t - t), axis=1), [i], a)
        pl.store(pl.sum(some, axis=1), [i], b)


SPECS = (pto.spec((None, None), pl.f32), *[pto.spec((None,), pl.f32)] * 3)
CASES = {fn.__name__: (fn, SPECS) for fn in (masked, repeated)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("generated"))


@pytest.mark.parametrize("name", CASES)
def test_columns_fit_narrower_ones_and_count_in_full(programs: Programs, name: str) -> None:
    x, lens = np.ones((20, 20), np.float32), np.full(20, 50, np.float32)
    wanted = np.zeros((2, 20), np.float32)
    CASES[name][0].interpret(x, lens, *wanted)
    for seed in SEEDS:
        out = np.zeros((2, 20), np.float32)
        programs.run(name, seed, x=x, lens=lens, a=out[0], b=out[1])
        np.testing.assert_array_equal(out, wanted)


@pto.jit
def counted(x: pl.Tensor, out: pl.Tensor):
    """Of run-time extents: generated tiles count in full."""
    with pl.incore():
        line = pl.arange(x.shape[0], dtype=pl.f32)
        square = line[:, None] * 2.0 + line
        low = pl.min(pl.sort(line * -1.0)) + pl.max(pl.argsort(line).to(pl.f32))
        across = pl.sum(square, axis=1) + pl.argmax(square, axis=0).to(pl.f32) + pl.cumsum(line, axis=0)
        some = pl.any(square > 5.0, axis=1)
        out[...] = pl.where(some, across, x) + low + pl.sum(pl.full((x.shape[0], 3), 0.5, pl.f32))


def test_run_time_extents_of_generated_tiles(tmp_path: Path) -> None:
    programs = ordered({"counted": (counted, (pto.spec((None,), pl.f32),) * 2)}, tmp_path)
    for count in (1, 2, 7, 33, 60):
        x = np.arange(count, dtype=np.float32)
        check_interpreted(programs, counted, "counted", {"x": x}, {"out": np.full(count, np.nan, np.float32)})
