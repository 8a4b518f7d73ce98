# SPDX-License-Identifier: MIT
"""Tiles of rows that are longer than the unified buffer, in loops of the program: gone over in passes, against the
interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered, written

F = pl.f32


def softmax(rows: int, columns: int | None) -> Any:
    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor):
        for i in pl.range(0, x.shape[0], rows, parallel=True):
            t = pl.load(x, [i, 0], [rows, x.shape[1] if columns is None else columns])
            t = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            pl.store(t / pl.sum(t, axis=1, keepdims=True), [i, 0], y)

    return kernel


def layer_norm(rows: int, columns: int | None) -> Any:
    @pto.jit
    def kernel(x: pl.Tensor, w: pl.Tensor, y: pl.Tensor, means: pl.Tensor):
        for i in pl.range(0, x.shape[0], rows, parallel=True):
            width = x.shape[1] if columns is None else columns
            t = pl.load(x, [i, 0], [rows, width])
            mean = pl.mean(t, axis=1, keepdims=True)
            d = t - mean
            pl.store(d * pl.rsqrt(pl.mean(d * d, axis=1, keepdims=True) + 1e-5) * pl.load(w, [0], [width]), [i, 0], y)
            pl.store(mean, [i, 0], means)

    return kernel


def largest(columns: int) -> Any:
    @pto.jit
    def kernel(x: pl.Tensor, places: pl.Tensor, loss: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            t = pl.load(x, [i, 0], [1, columns])
            top = pl.max(t)
            places[i] = pl.argmax(t, axis=1)[0]
            loss[i] = pl.log(pl.sum(pl.exp(t - top))) + top

    return kernel


def sampled(rows: int, columns: int | None) -> Any:
    """Running sums of probabilities, and the place where they are large enough."""

    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor, places: pl.Tensor):
        for i in pl.range(0, x.shape[0], rows, parallel=True):
            t = pl.load(x, [i, 0], [rows, x.shape[1] if columns is None else columns])
            p = pl.exp(t - pl.max(t, axis=1, keepdims=True))
            c = pl.cumsum(p, axis=1) / pl.sum(p, axis=1, keepdims=True)
            pl.store(c, [i, 0], y)
            pl.store(pl.sum(pl.where(c < 0.5, 1.0, 0.0).to(pl.f32), axis=1, keepdims=True), [i, 0], places)

    return kernel


@pto.jit
def wrapped(n: pl.Tensor, sums: pl.Tensor, products: pl.Tensor):
    """Of integers, which wrap, along rows and down columns."""
    for i in pl.range(0, n.shape[0], 4, parallel=True):
        t = pl.load(n, [i, 0], [4, LONG])
        pl.store(pl.cumsum(t, axis=1).to(pl.i32) + t, [i, 0], sums)
        pl.store(pl.cumprod(pl.cumsum(t, axis=0).to(pl.i32), axis=1).to(pl.i32), [i, 0], products)


def matrix(columns: int | None) -> Any:
    return pto.spec((None, columns), F)


LONG = 12000
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {}
for rows in (1, 8, 16):
    for columns in (LONG, None):
        CASES[f"softmax_{rows}_{columns}"] = softmax(rows, columns), (matrix(columns),) * 2
        CASES[f"norm_{rows}_{columns}"] = layer_norm(rows, columns), (
            matrix(columns), pto.spec((columns,), F), matrix(columns), matrix(1))  # fmt: skip
        CASES[f"sampled_{rows}_{columns}"] = sampled(rows, columns), (*(matrix(columns),) * 2, matrix(1))
CASES["wrapped"] = wrapped, (pto.spec((None, LONG), pl.i32),) * 3
CASES["largest"] = largest(30000), (matrix(30000), pto.spec((None,), pl.i32), pto.spec((None,), F))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("long_rows"))


close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("largest", "wrapped")])
@pytest.mark.parametrize("count", [11, 16])
def test_rows(programs: Programs, name: str, count: int) -> None:
    """Rows are cut at the end of the tensor; of those of run-time extents short ones have a kernel of their own."""
    kind, rows, known = name.split("_")
    for columns in (LONG,) if known != "None" else (100, 2500):
        rng = np.random.default_rng(columns)
        x = rng.standard_normal((count if rows != "1" else 3, columns), np.float32)
        inputs, outputs = {"x": x}, {"y": np.zeros_like(x)}
        if kind == "norm":
            inputs["w"] = rng.standard_normal(columns, np.float32)
            outputs["means"] = np.zeros((len(x), 1), np.float32)
        if kind == "sampled":
            outputs["places"] = np.zeros((len(x), 1), np.float32)
        check_interpreted(programs, CASES[name][0], name, inputs, outputs, close_places if kind == "sampled" else close)


def close_places(mine: np.ndarray, wanted: np.ndarray, err_msg: str) -> None:
    """Where sums are next to a half they may be on the other side of it."""
    np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=2 if err_msg == "places" else 1e-5, err_msg=err_msg)


@needs_compiler
def test_running_sums_of_integers(programs: Programs) -> None:
    n = np.random.default_rng(2).integers(-(2**31), 2**31, (6, LONG)).astype(np.int32)
    outputs = {k: np.zeros_like(n) for k in ("sums", "products")}
    check_interpreted(programs, wrapped, "wrapped", {"n": n}, outputs)


@needs_compiler
def test_places_in_rows(programs: Programs) -> None:
    x = np.random.default_rng(1).integers(-90, 90, (3, 30000)).astype(np.float32)
    x[1, 17000] = np.nan
    outputs = {"places": np.zeros(3, np.int32), "loss": np.zeros(3, np.float32)}
    check_interpreted(programs, CASES["largest"][0], "largest", {"x": x}, outputs, close)


def test_sorts_need_whole_rows() -> None:
    @pto.jit
    def sorted_rows(x: pl.Tensor, y: pl.Tensor):
        for i in pl.range(x.shape[0], parallel=True):
            pl.store(pl.sort(pl.load(x, [i, 0], [1, LONG])), [i, 0], y)

    with pytest.raises(pto.TargetError, match="PTO-X21"):
        written(sorted_rows, *(matrix(LONG),) * 2)
