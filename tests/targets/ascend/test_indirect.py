# SPDX-License-Identifier: MIT
"""Rows and elements at places that a tile has, scatters and histograms: written programs run on the CPU, against the
interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, races, written


@pto.jit
def rows(places: pl.Tensor, table: pl.Tensor, scale: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, places.shape[0], 16, parallel=True):
        at = pl.load(places, [i], [16])
        pl.store(table[at, :] * scale[at][:, None], [i, 0], out)


@pto.jit
def halves(places: pl.Tensor, table: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, places.shape[0], 8, parallel=True):
        at = pl.load(places, [i], [8]) + 1
        pl.store(pl.slice(table, [7, 21], [1, 3])[at - 1, :], [i, 0], out)


@pto.jit
def elements(places: pl.Tensor, x: pl.Tensor, n: pl.Tensor, out: pl.Tensor, sums: pl.Tensor):
    for i in pl.range(0, places.shape[0], 8, parallel=True):
        at = pl.load(places, [i], [8])
        pl.store(x[at] + 1.0, [i], out)
        pl.store(n[at] + at.to(pl.i32), [i], sums)


@pto.jit
def scattered(places: pl.Tensor, x: pl.Tensor, out: pl.Tensor):
    """In order: the last of several elements at one place stays."""
    with pl.incore():
        for i in pl.range(0, places.shape[0], 16):
            pl.scatter(pl.load(x, [i], [16]) * 2.0, pl.load(places, [i], [16]), 0, out)


@pto.jit
def along_rows(places: pl.Tensor, x: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, x.shape[0], 4, parallel=True):
        pl.scatter(pl.load(x, [i, 0], [4, 10]), pl.load(places, [i, 0], [4, 10]), 1, out[i : i + 4, :])


@pto.jit
def down_columns(places: pl.Tensor, x: pl.Tensor, out: pl.Tensor, one: pl.Tensor):
    with pl.incore():
        t, at = pl.load(x, [0, 0], [5, 10]), pl.load(places, [0, 0], [5, 10])
        pl.scatter(t, at, 0, out)
        pl.scatter(t[:, 3:4], at[:, 3:4], 0, one)


@pto.jit
def counts(n: pl.Tensor, out: pl.Tensor, all_of: pl.Tensor):
    for i in pl.range(0, n.shape[0], 4, parallel=True):
        t = pl.load(n, [i, 0], [4, 40])
        pl.store(pl.histogram(t, 12), [i, 0], out)
        pl.atomic_add(all_of, [0], pl.sum(pl.histogram(t, 12), axis=0).to(pl.i32))


@pto.jit
def routed(experts: pl.Tensor, out: pl.Tensor):
    """How many tokens each expert is given."""
    for i in pl.range(0, experts.shape[0], 256, parallel=True):
        pl.atomic_add(out, [0], pl.histogram(pl.load(experts, [i], [256]), 64))


@pto.jit
def wider(places: pl.Tensor, table: pl.Tensor, x: pl.Tensor, out: pl.Tensor):
    """A tile whose extent is known at the launch, to the places of a column."""
    with pl.incore():
        for i in pl.range(0, places.shape[0], 8):
            at = pl.load(places, [i, 0], [8, 1])
            t = table[pl.reshape(at, [8]), :] + pl.load(x, [i, 0], [8, 1])
            pl.scatter(t, at, 0, out)


F, N = pl.f32, pl.i32
LINE, NUMBERS, PLACES = pto.spec((None,), F), pto.spec((None,), N), pto.spec((None,), pl.i64)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rows": (rows, (NUMBERS, pto.spec((None, 50), F), LINE, pto.spec((None, 50), F))),
    "halves": (halves, (NUMBERS, pto.spec((None, 24), pl.f16), pto.spec((None, 21), pl.f16))),
    "elements": (elements, (PLACES, LINE, NUMBERS, LINE, NUMBERS)),
    "scattered": (scattered, (NUMBERS, LINE, LINE)),
    "along_rows": (along_rows, (pto.spec((None, 10), N), pto.spec((None, 10), pl.i16), pto.spec((None, 30), pl.i16))),
    "down_columns": (down_columns, (pto.spec((5, 10), N), pto.spec((5, 10), F), pto.spec((9, 10), F), pto.spec((9, 1), F))),
    "wider": (wider, (pto.spec((None, 1), N), pto.spec((None, None), F), pto.spec((None, 1), F), pto.spec((None, None), F))),
    "counts": (counts, (pto.spec((None, None), N), pto.spec((None, 12), N), pto.spec((12,), N))),
    "routed": (routed, (NUMBERS, pto.spec((64,), N))),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("indirect"))


def check(programs: Programs, name: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    check_interpreted(programs, CASES[name][0], name, inputs, outputs)


@needs_compiler
@pytest.mark.parametrize("count", [1, 16, 21])
def test_rows_at_places(programs: Programs, count: int) -> None:
    rng = np.random.default_rng(count)
    at = rng.integers(0, 7, count).astype(np.int32)
    x = rng.standard_normal((7, 50)).astype(np.float32)
    inputs = {"places": at, "table": x, "scale": rng.standard_normal(7).astype(np.float32)}
    check(programs, "rows", inputs, {"out": np.zeros((count, 50), np.float32)})
    half = rng.standard_normal((8, 24)).astype(np.float16)
    check(programs, "halves", {"places": at, "table": half}, {"out": np.zeros((count, 21), np.float16)})


@needs_compiler
@pytest.mark.parametrize("count", [8, 11])
def test_elements_at_places(programs: Programs, count: int) -> None:
    rng = np.random.default_rng(count)
    inputs = {"places": rng.integers(0, 5, count), "x": rng.standard_normal(5).astype(np.float32),
              "n": rng.integers(-99, 99, 5).astype(np.int32)}  # fmt: skip
    check(programs, "elements", inputs, {"out": np.zeros(count, np.float32), "sums": np.zeros(count, np.int32)})


@needs_compiler
def test_places_that_are_not_there_stop_the_core(programs: Programs) -> None:
    x = np.ones((7, 50), np.float32)
    for place in (7, -1):
        with pytest.raises(RuntimeError, match="trap"):
            programs.run("rows", places=np.array([0, place], np.int32), table=x, scale=x[0], out=x[:2].copy())
    with pytest.raises(RuntimeError, match="trap"):
        programs.run("scattered", places=np.array([0, 9], np.int32), x=x[0, :2].copy(), out=x[0, :9].copy())


@needs_compiler
@pytest.mark.parametrize("count", [16, 21])
def test_scatters(programs: Programs, count: int) -> None:
    rng = np.random.default_rng(count)
    x = rng.standard_normal(count).astype(np.float32)
    check(programs, "scattered", {"places": rng.integers(0, 9, count).astype(np.int32), "x": x},
          {"out": np.zeros(9, np.float32)})  # fmt: skip
    places = np.stack([rng.permutation(30)[:10] for _ in range(count)]).astype(np.int32)
    n = rng.integers(-99, 99, (count, 10)).astype(np.int16)
    check(programs, "along_rows", {"places": places, "x": n}, {"out": np.zeros((count, 30), np.int16)})
    places = np.stack([rng.permutation(9)[:5] for _ in range(10)], axis=1).astype(np.int32)
    inputs = {"places": places, "x": rng.standard_normal((5, 10)).astype(np.float32)}
    check(programs, "down_columns", inputs, {"out": np.zeros((9, 10), np.float32), "one": np.zeros((9, 1), np.float32)})


@needs_compiler
@pytest.mark.parametrize("columns", [1, 5])
def test_rows_of_run_time_extents(programs: Programs, columns: int) -> None:
    rng = np.random.default_rng(columns)
    inputs = {"places": rng.integers(0, 7, (11, 1)).astype(np.int32),
              "table": rng.standard_normal((7, columns)).astype(np.float32),
              "x": rng.standard_normal((11, 1)).astype(np.float32)}  # fmt: skip
    check(programs, "wider", inputs, {"out": np.zeros((7, columns), np.float32)})


@needs_compiler
@pytest.mark.parametrize(("rows", "columns"), [(8, 40), (6, 33)])
def test_histograms(programs: Programs, rows: int, columns: int) -> None:
    """Numbers beyond the bins are left out."""
    rng = np.random.default_rng(rows)
    n = rng.integers(-2, 15, (rows, columns)).astype(np.int32)
    check(programs, "counts", {"n": n}, {"out": np.zeros((rows, 12), np.int32), "all_of": np.zeros(12, np.int32)})
    experts = rng.integers(0, 64, 300 + rows).astype(np.int32)
    check(programs, "routed", {"experts": experts}, {"out": np.zeros(64, np.int32)})


def test_each_flag_is_needed() -> None:
    (kernel,) = kernels_of(written(CASES["scattered"][0], *CASES["scattered"][1]))
    for what in mutants(kernel):
        assert races(kernel, first=True), what
