# SPDX-License-Identifier: MIT
"""Elements that change places: columns of a tile, of any number of rows, by way of global memory or on chip."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered, written

PAIRS = (5, 10, 16)
TYPES = {"f32": pl.f32, "f16": pl.f16, "i8": pl.i8}


def taken_apart(pairs: int) -> Any:
    """Rows of pairs: the first and the second of each, and the second ones before the first ones."""

    @pto.jit
    def kernel(x: pl.Tensor, first: pl.Tensor, second: pl.Tensor, joined: pl.Tensor):
        for r in pl.range(x.shape[0], parallel=True):
            t = pl.reshape(pl.load(x, [r, 0], [1, 2 * pairs]), [pairs, 2])
            pl.store(pl.reshape(t[:, 0:1], [1, pairs]), [r, 0], first)
            pl.store(pl.reshape(t[:, 1], [1, pairs]), [r, 0], second)
            turned = pl.concat([pl.reshape(t[:, 1], [pairs, 1]), t[:, 0:1]], axis=0)
            pl.store(pl.reshape(turned, [1, 2 * pairs]), [r, 0], joined)

    return kernel


CASES = {
    f"{name}_{pairs}": (taken_apart(pairs), tuple(pto.spec((None, n), dtype) for n in (2 * pairs, pairs, pairs, 2 * pairs)))
    for name, dtype in TYPES.items() for pairs in PAIRS
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_columns_of_pairs(programs: Programs, name: str) -> None:
    fn, specs = CASES[name]
    dtype = specs[0].dtype.numpy
    x = np.random.default_rng(0).integers(-100, 100, (6, specs[0].shape[1])).astype(dtype)
    outputs = {n: np.zeros((6, s.shape[1]), dtype) for n, s in zip(("first", "second", "joined"), specs[1:], strict=True)}
    check_interpreted(programs, fn, name, {"x": x}, outputs)


def halves(rows: int, start: int) -> Any:
    """Columns that begin at whole blocks of 32 bytes, of rows that may be cut at the border."""

    @pto.jit
    def kernel(x: pl.Tensor, out: pl.Tensor, some: pl.Tensor):
        for r in pl.range(0, x.shape[0], rows, parallel=True):
            with pl.incore():
                t = pl.load(x, [r, 0], [rows, 48])
                pl.store(t[:, start : start + 13] + t[:, 32:45], [r, 0], out)
                pl.store(t[rows - 3 : rows - 1, 16:48], [r // rows * 2, 0], some)

    return kernel


HALVES = {
    f"{name}_{rows}_{start}": (halves(rows, start), tuple(pto.spec((None, n), dtype) for n in (48, 13, 32)))
    for name, dtype in {"f32": pl.f32, "f16": pl.f16, "i32": pl.i32, "i64": pl.i64}.items()
    for rows, start in ((4, 16), (7, 0))
}  # fmt: skip


@pto.jit
def gates(x: pl.Tensor, w: pl.Tensor, out: pl.Tensor):
    """Of a product, on the vector cores of a group."""
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        with pl.incore():
            g = pl.load(x, [r, 0], [16, 32]) @ pl.load(w, [0, 0], [32, 128])
            pl.store(pl.sigmoid(g[:, 0:32]) * g[:, 32:64] + g[:, 96:128] @ pl.load(w, [0, 0], [32, 32]), [r, 0], out)


@needs_compiler
def test_slices_of_several_rows_are_copied_on_chip(tmp_path: Path) -> None:
    three = tuple(pto.spec((None, n), pl.f32) for n in (32, 128, 32))
    programs = ordered({**HALVES, "gates": (gates, three)}, tmp_path)
    for name, (fn, specs) in HALVES.items():
        rows = int(name.split("_")[1])
        x = np.random.default_rng(0).integers(-100, 100, (4 * rows, 48)).astype(specs[0].dtype.numpy)
        outputs = {"out": np.zeros((4 * rows, 13), x.dtype), "some": np.zeros((8, 32), x.dtype)}
        check_interpreted(programs, fn, name, {"x": x}, outputs)
        assert not any("relay" in text for text in written(fn, *specs).sources.values())
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, 32), (32, 128)))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    check_interpreted(programs, gates, "gates", {"x": x, "w": w}, {"out": np.zeros_like(x)}, close)


@needs_compiler
def test_slices_end_where_tiles_do(tmp_path: Path) -> None:
    @pto.jit
    def ends(x: pl.Tensor, out: pl.Tensor):
        for r in pl.range(0, x.shape[0], 7, parallel=True):
            with pl.incore():
                pl.store(pl.load(x, [r, 0], [7, 48])[:, 16:40] * 2.0, [r, 0], out)

    programs = ordered({"ends": (ends, (pto.spec((None, 48), pl.f32), pto.spec((None, 24), pl.f32)))}, tmp_path)
    for rows in (1, 6, 7, 13, 20):
        x = np.random.default_rng(rows).standard_normal((rows, 48)).astype(np.float32)
        check_interpreted(programs, ends, "ends", {"x": x}, {"out": np.zeros((rows, 24), np.float32)})
