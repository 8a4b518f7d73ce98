# SPDX-License-Identifier: MIT
"""Integers divided by constants that are no powers of two, over all of their range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

DIVISORS = (7, -7, 10, -1, 1, 60, 4097, 524287, -524287)


def divided(divisor: int) -> Any:
    def kernel(x: pl.Tensor, whole: pl.Tensor, rest: pl.Tensor):
        whole[...] = x // divisor
        rest[...] = x % divisor

    return pto.jit(kernel)


def case(divisor: int, dtype: Any) -> tuple[Any, tuple[Any, ...]]:
    return divided(divisor), (pto.spec((None,), dtype),) * 3


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{f"by_{d}".replace("-", "minus_"): case(d, pl.i32) for d in DIVISORS},
    "short_by_7": case(7, pl.i16), "short_by_minus_300": case(-300, pl.i16),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("quotients"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str) -> None:
    fn, (spec, *_) = CASES[name]
    dtype = spec.dtype.numpy
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    rng = np.random.default_rng(len(name))
    by = int(name.rsplit("_", 1)[1])
    near = rng.integers(low // by, high // by, 500, endpoint=True) * by
    x = np.concatenate([
        rng.integers(low, high, 1000), near, np.minimum(near + 1, high), np.maximum(near - 1, low), np.arange(-40, 40),
        [low, low + 1, high, high - 1],
    ]).astype(dtype)  # fmt: skip
    check_interpreted(programs, fn, name, {"x": x}, {"whole": np.zeros_like(x), "rest": np.zeros_like(x)})


def by_tiles(x: pl.Tensor, y: pl.Tensor, whole: pl.Tensor, rest: pl.Tensor):
    for i in pl.range(0, x.shape[0], 1024, parallel=True):
        t, u = pl.load(x, [i], [1024]), pl.load(y, [i], [1024])
        pl.store(t // u, [i], whole)
        pl.store(t % u, [i], rest)


def rows_and_columns(n: pl.Tensor, rows: pl.Tensor, columns: pl.Tensor):
    """The places of elements, by a width that the launch knows."""
    for i in pl.range(0, rows.shape[0], 64, parallel=True):
        places = pl.arange(64) + pl.cast(i, pl.i32)
        width = pl.cast(n[0], pl.i32)
        pl.store(places // width, [i], rows)
        pl.store(places % width, [i], columns)


@needs_compiler
@pytest.mark.parametrize("dtype", [pl.i32, pl.i16])
def test_tiles_are_divided_by_tiles(tmp_path: Path, dtype: Any) -> None:
    """The ends of the range, multiples and what is next to them, and 0, by which the quotient is 0."""
    kernel = pto.jit(by_tiles)
    programs = ordered({"tiles": (kernel, (pto.spec((None,), dtype),) * 4)}, tmp_path)
    low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
    rng = np.random.default_rng(1)
    ends = np.array([low, low + 1, low + 2, high, high - 1, 0, 1, -1, 2, -2, 3, 129, -300])
    x, y = (v.ravel() for v in np.meshgrid(ends, ends))
    for scale in (3, 300, 20000, high):
        divisors = rng.integers(-min(scale, high) - 1, min(scale, high), 1500, endpoint=True)
        near = rng.integers(low, high, 1500) // np.where(divisors == 0, 1, divisors) * divisors + rng.integers(-1, 2, 1500)
        x = np.concatenate([x, rng.integers(low, high, 1500, endpoint=True), np.clip(near, low, high)])
        y = np.concatenate([y, divisors, divisors])
    x, y = x.astype(dtype.numpy), y.astype(dtype.numpy)
    check_interpreted(programs, kernel, "tiles", {"x": x, "y": y}, {"whole": np.zeros_like(x), "rest": np.zeros_like(x)})


@needs_compiler
def test_places_are_divided_by_a_number(tmp_path: Path) -> None:
    kernel = pto.jit(rows_and_columns)
    programs = ordered({"places": (kernel, (pto.spec((1,), pl.i64), *(pto.spec((None,), pl.i32),) * 2))}, tmp_path)
    outputs = {"rows": np.zeros(300, np.int32), "columns": np.zeros(300, np.int32)}
    check_interpreted(programs, kernel, "places", {"n": np.array([37])}, outputs)
