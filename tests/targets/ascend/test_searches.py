# SPDX-License-Identifier: MIT
"""Places of extremes, truth values, numbers and elements: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import loops, reductions

from .harness import SEEDS, Programs, check_interpreted, needs_compiler, ordered

pytestmark = needs_compiler


@pto.jit
def places(x: pl.Tensor, n: pl.Tensor, out: pl.Tensor, columns: pl.Tensor, all_of: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t, k = pl.load(x, [r, 0], [8, 48]), pl.load(n, [r, 0], [8, 48])
            pl.store(pl.argmax(t, axis=1, keepdims=True), [r, 0], out)
            pl.store(pl.argmin(k, axis=1, keepdims=True), [r, 1], out)
            pl.store(pl.reshape(pl.argmin(t, axis=1), [8, 1]), [r, 2], out)
            pl.store(pl.argmax(t, axis=0, keepdims=True), [r // 8, 0], columns)
            all_of[r // 8, 0] = pl.argmax(t)
            all_of[r // 8, 1] = pl.argmin(k)


@pto.jit
def truths(x: pl.Tensor, m: pl.Tensor, out: pl.Tensor, rows: pl.Tensor, kept: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t, given = pl.load(x, [r, 0], [8, 40]), pl.load(m, [r, 0], [8, 40])
            up, down = t > 0.5, t < -0.5
            some = pl.any(up, axis=1, keepdims=True)
            column = pl.all(down | up, axis=0, keepdims=True)
            chosen = pl.where(given ^ up, t, 0.0) + pl.where(some, t, 2.0) + pl.where(column, 4.0, t)
            chosen = pl.where((up == given) & (down <= up), chosen, -chosen)
            pl.store(pl.where(pl.where(up, given, down), chosen, 8.0), [r, 0], out)
            top = pl.max(t, axis=1, keepdims=True)
            pl.store(pl.where(some & pl.any(given, axis=1, keepdims=True), top, 0.0), [r, 0], rows)
            pl.store(up != given, [r, 0], kept)


@pto.jit
def steered(x: pl.Tensor, out: pl.Tensor):
    """Conditions and places made of tiles are read by the scalar unit."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            if pl.any(t > 2.0):
                t = t * 2.0
            if pl.max(t) < 2.0:
                t = t - 1.0
            pl.store(t, [r, 0], out)


@pto.jit
def chosen(x: pl.Tensor, out: pl.Tensor, picked: pl.Tensor):
    """Numbers that are assigned in branches and loops, some made of tiles, and elements that are stored."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            t = pl.load(x, [r, 0], [1, 40])
            if r % 2 == 0:
                count = 3
            else:
                count = 5
            total = 0.0
            for k in pl.range(count):
                total = total + x[r, k]
            low = 1e9
            for c in pl.range(0, 40, 8):
                low = pl.minimum(low, pl.min(pl.load(x, [r, c], [1, 8])))
            pl.store(t * total + low, [r, 0], out)
            picked[r, 0] = pl.max(t)
            picked[r, 1] = total
            picked[r, 2] = low


@pto.jit
def largest(x: pl.Tensor, values: pl.Tensor, indices: pl.Tensor):
    """`pl.topk` by hand: the largest element of each row, and then those that are left."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            place = pl.reshape(pl.arange(0, 40), [1, 40])
            for k in pl.range(5):
                pl.store(pl.max(t, axis=1, keepdims=True), [r, k], values)
                at = pl.argmax(t, axis=1, keepdims=True).to(pl.i32)
                pl.store(at, [r, k], indices)
                t = pl.where(place == at, -3e38, t)


@pto.jit
def in_place(x: pl.Tensor):
    """Iterations that touch each other: for one core."""
    with pl.incore():
        for k in pl.range(3):
            pl.store(pl.load(x, [k * 8, 0], [16, 64]) * 2.0, [k * 8, 0], x)


@pto.jit
def stretched(x: pl.Tensor, out: pl.Tensor):
    """Numbers of f64, of which nothing would be left in f32."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            little = 1.0 + x.shape[0] * 1e-9 - 1.0
            if x[r, 0] > 0.0:
                t = t * (1.0 / x.shape[0])
            pl.store(t * little, [r, 0], out)


I32 = pl.i32
VECTOR, MATRIX = pto.spec((None,), pl.f32), pto.spec((None, None), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "places": (places, (pto.spec((None, 48), pl.f32), pto.spec((None, 48), I32), pto.spec((None, 3), I32),
                        pto.spec((None, 48), I32), pto.spec((None, 2), I32))),
    "truths": (truths, (pto.spec((None, 40), pl.f32), pto.spec((None, 40), pl.bool_), pto.spec((None, 40), pl.f32),
                        pto.spec((None, 1), pl.f32), pto.spec((None, 40), pl.bool_))),
    "steered": (steered, (pto.spec((None, 40), pl.f32),) * 2),
    "chosen": (chosen, (pto.spec((None, 40), pl.f32), pto.spec((None, 40), pl.f32), pto.spec((None, 3), pl.f32))),
    "largest": (largest, (pto.spec((None, 40), pl.f32), pto.spec((None, 5), pl.f32), pto.spec((None, 5), I32))),
    "stretched": (stretched, (pto.spec((None, 40), pl.f32),) * 2),
    "in_place": (in_place, (pto.spec((None, 64), pl.f32),)),
    "vector_sum": (reductions.vector_sum, (VECTOR,) * 2),
    "column_first_kept": (loops.column_first_kept, (MATRIX,) * 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


def check(programs: Programs, name: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    check_interpreted(programs, CASES[name][0], name, inputs, outputs)


@pytest.mark.parametrize("rows", [16, 13])
def test_places_of_extremes(programs: Programs, rows: int) -> None:
    """The first of equal ones, and NaNs before all others."""
    x = np.random.default_rng(rows).integers(-6, 6, (rows, 48)).astype(np.float32)
    n = np.random.default_rng(rows + 1).integers(-30, 30, (rows, 48)).astype(np.int32)
    x[3, 7], x[3, 2], x[9, 40] = np.nan, np.nan, np.nan
    x[4, :] = -np.inf
    outputs = {"out": np.zeros((rows, 3), np.int32), "columns": np.zeros((2, 48), np.int32),
               "all_of": np.zeros((2, 2), np.int32)}  # fmt: skip
    check(programs, "places", {"x": x, "n": n}, outputs)


@pytest.mark.parametrize("rows", [16, 11])
def test_truth_values(programs: Programs, rows: int) -> None:
    random = np.random.default_rng(rows)
    x, m = random.standard_normal((rows, 40)).astype(np.float32), random.random((rows, 40)) < 0.1
    x[:, 5], x[2], m[6] = 1, 0, False
    outputs = {"out": np.zeros_like(x), "rows": np.zeros((rows, 1), np.float32), "kept": np.zeros((rows, 40), bool)}
    check(programs, "truths", {"x": x, "m": m}, outputs)


def test_the_largest_elements_without_a_sort(programs: Programs) -> None:
    x = np.random.default_rng(8).integers(-9, 9, (13, 40)).astype(np.float32)
    places = np.argsort(-x, axis=1, kind="stable")[:, :5].astype(np.int32)
    for seed in SEEDS:
        values, indices = np.zeros((13, 5), np.float32), np.zeros((13, 5), np.int32)
        programs.run("largest", seed, x=x, values=values, indices=indices)
        np.testing.assert_array_equal(indices, places)
        np.testing.assert_array_equal(values, np.take_along_axis(x, places, 1))


def test_conditions_that_are_made_of_tiles(programs: Programs) -> None:
    x = np.random.default_rng(3).standard_normal((29, 40)).astype(np.float32) * np.float32(0.3)
    x[10, 7], x[20, 3] = 3, 1.5
    check(programs, "steered", {"x": x}, {"out": np.zeros_like(x)})


def test_numbers_that_are_assigned_several_times(programs: Programs) -> None:
    x = np.random.default_rng(5).standard_normal((13, 40)).astype(np.float32)
    check(programs, "chosen", {"x": x}, {"out": np.zeros_like(x), "picked": np.zeros((13, 3), np.float32)})


def test_what_is_not_dealt_to_the_cores_is_done_once(programs: Programs) -> None:
    check(programs, "in_place", {}, {"x": np.ones((40, 64), np.float32)})


@pytest.mark.parametrize("length", [1, 9000])
def test_elements_are_folded_in_lines(programs: Programs, length: int) -> None:
    x = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    for seed in SEEDS:
        total = np.full(1, np.nan, np.float32)
        programs.run("vector_sum", seed, x=x, total=total)
        np.testing.assert_allclose(total[0], x.astype(np.float64).sum(), rtol=1e-5, atol=1e-3)


def test_sequential_loops_over_elements_that_do_not_meet(programs: Programs) -> None:
    x = np.random.default_rng(7).standard_normal((9, 130)).astype(np.float32)
    check(programs, "column_first_kept", {"x": x}, {"out": np.zeros_like(x)})


def test_numbers_of_f64_are_computed_by_the_host(programs: Programs) -> None:
    x = np.random.default_rng(5).standard_normal((32, 40)).astype(np.float32)
    check(programs, "stretched", {"x": x}, {"out": np.zeros_like(x)})
