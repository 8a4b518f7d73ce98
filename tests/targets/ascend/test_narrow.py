# SPDX-License-Identifier: MIT
"""Integers of 64 bits that are computed in 32: run on the CPU, against the interpreter; and bits of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


@pto.jit
def sums(x: pl.Tensor, rows: pl.Tensor, run: pl.Tensor, times: pl.Tensor):
    """Of integers, of which the lower 32 bits are wanted: sums, products and numbers beyond 32 bits in between."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48], pad=0)
            total = pl.sum(t, axis=1, keepdims=True)
            pl.store((total * 5000000001 - t.to(pl.i64)).to(pl.i32), [r, 0], rows)
            pl.store(pl.cumsum(t, axis=0).to(pl.i32), [r, 0], run)
            pl.store((t.to(pl.i32) * pl.prod(t, axis=1, keepdims=True).to(pl.i32)) ^ pl.sum(t).to(pl.i32), [r, 0], times)


@pto.jit
def from_wide(x: pl.Tensor, out: pl.Tensor):
    """Tiles of 64 bits from memory."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48])
            pl.store(pl.where(pl.load(out, [r, 0], [8, 48]) > 0, t + t, ~t).to(pl.i32), [r, 0], out)


@pto.jit
def counts(x: pl.Tensor, shares: pl.Tensor, scaled: pl.Tensor, run: pl.Tensor):
    """How often something is true, as floats and as integers of 64 bits."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48], pad=0)
            n = pl.sum(t > 0, axis=1, keepdims=True)
            pl.store(t.to(pl.f32) * n.to(pl.f32) * 0.125, [r, 0], shares)
            pl.store(t.to(pl.f32) + pl.sum(t > 3).to(pl.f32), [r, 0], scaled)
            pl.store(pl.cumsum(t > 1, axis=0), [r, 0], run)


@pto.jit
def of_whole_tensors(x: pl.Tensor, means: pl.Tensor, number: pl.Tensor, run: pl.Tensor, few: pl.Tensor):
    """How often something is true, of truth values that were made numbers before, which are compared, too."""
    kept = x > 0
    n = pl.sum(kept.to(pl.i32), axis=1)
    means[...] = pl.sum(pl.where(kept, x, 0), axis=1).to(pl.i32).to(pl.f32) / pl.maximum(n, 1).to(pl.f32)
    number[...] = pl.sum(pl.where(x > 3, 2, -1), axis=1)
    run[...] = pl.cumsum(kept.to(pl.i16), axis=1)
    few[...] = (pl.minimum(n, 30) < 20).to(pl.i32)


@pto.jit
def bits(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor, more: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            a, b = pl.load(x, [r, 0], [8, 48]), pl.load(y, [r, 0], [8, 48])
            pl.store((a ^ b) & 1023 | (a & 7), [r, 0], out)
            pl.store((a ^ 21) ^ (a | b), [r, 0], more)


@pto.jit
def extremes(x: pl.Tensor, out: pl.Tensor, down: pl.Tensor):
    """Of small integers, which f32 holds."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48])
            pl.store(t - pl.max(t, axis=1, keepdims=True), [r, 0], out)
            pl.store(pl.min(t, axis=0), [r // 8 * 48], down)


@pto.jit
def unsigned(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48])
            pl.store(t + pl.sum(t, axis=1, keepdims=True).to(pl.u32), [r, 0], out)


@pto.jit
def truths(x: pl.Tensor, out: pl.Tensor, more: pl.Tensor, n: int):
    """Truth values of tiles with those of numbers."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48])
            pl.store(pl.where(pl.where(t > 0, t > 3, True), t, 100), [r, 0], out)
            pl.store(pl.where((t > 1) ^ (n > 2), t, 100), [r, 0], more)


@pto.jit
def mean(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 48])
            pl.store(t.to(pl.f32) * pl.sum(t, axis=1, keepdims=True).to(pl.f32), [r, 0], out)


def spec(dtype: pl.DType) -> Any:
    return pto.spec((None, 48), dtype)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{f"sums_{t}": (sums, (spec(t), *[spec(pl.i32)] * 3)) for t in (pl.i32, pl.i16)},
    "from_wide": (from_wide, (spec(pl.i64), spec(pl.i32))),
    "counts": (counts, (spec(pl.i32), spec(pl.f32), spec(pl.f32), spec(pl.i64))),
    **{f"bits_{t}": (bits, [spec(t)] * 4) for t in (pl.i32, pl.i16, pl.u32, pl.u16)},
    "extremes": (extremes, (spec(pl.i16), spec(pl.i16), pto.spec((None,), pl.i16))),
    "unsigned": (unsigned, (spec(pl.u32), spec(pl.u32))),
    "truths": (truths, (spec(pl.i32), spec(pl.i32), spec(pl.i32), 3)),
    "small": (mean, (spec(pl.i16), spec(pl.f32))), "large": (mean, (spec(pl.i32), spec(pl.f32))),
    "of_whole_tensors": (of_whole_tensors, (spec(pl.i32), pto.spec((None,), pl.f32), pto.spec((None,), pl.i64),
                                            spec(pl.i64), pto.spec((None,), pl.i32))),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


def integers(dtype: str, rows: int, low: int, high: int) -> np.ndarray:
    return np.random.default_rng(rows).integers(low, high, (rows, 48)).astype(dtype)


@needs_compiler
@pytest.mark.parametrize("rows", [8, 21])
@pytest.mark.parametrize(("dtype", "low", "high"), [("i32", -(2**31), 2**31), ("i16", -(2**15), 2**15)])
def test_lower_halves_are_those_of_64_bits(programs: Programs, rows: int, dtype: str, low: int, high: int) -> None:
    x = integers({"i32": "i4", "i16": "i2"}[dtype], rows, low, high)
    outputs = {name: np.zeros((rows, 48), np.int32) for name in ("rows", "run", "times")}
    check_interpreted(programs, sums, f"sums_{dtype}", {"x": x}, outputs)


@needs_compiler
def test_lower_halves_of_unsigned_integers(programs: Programs) -> None:
    x = integers("u4", 21, 0, 2**32)
    check_interpreted(programs, unsigned, "unsigned", {"x": x}, {"out": np.zeros_like(x)})


@needs_compiler
def test_tiles_of_64_bits_from_memory(programs: Programs) -> None:
    x, out = integers("i8", 13, -(2**62), 2**62), integers("i4", 13, -2, 3)
    check_interpreted(programs, from_wide, "from_wide", {"x": x}, {"out": out})


@needs_compiler
@pytest.mark.parametrize("rows", [8, 21])
def test_what_32_bits_hold_is_used_as_64(programs: Programs, rows: int) -> None:
    outputs = {n: np.zeros((rows, 48), t) for n, t in (("shares", "f4"), ("scaled", "f4"), ("run", "i8"))}
    check_interpreted(programs, counts, "counts", {"x": integers("i4", rows, -5, 9)}, outputs)
    x = np.full((rows, 48), -32768, np.int16)
    check_interpreted(programs, mean, "small", {"x": x}, {"out": np.zeros((rows, 48), np.float32)})


@needs_compiler
@pytest.mark.parametrize("rows", [8, 21])
def test_counts_of_rows(programs: Programs, rows: int) -> None:
    x = integers("i4", rows, -5, 9)
    x[1] = -1
    outputs = {"means": np.zeros(rows, np.float32), "number": np.zeros(rows, np.int64),
               "run": np.zeros((rows, 48), np.int64), "few": np.zeros(rows, np.int32)}  # fmt: skip
    check_interpreted(programs, of_whole_tensors, "of_whole_tensors", {"x": x}, outputs)


@needs_compiler
@pytest.mark.parametrize(("dtype", "numpy"), [("i32", "i4"), ("i16", "i2"), ("u32", "u4"), ("u16", "u2")])
def test_bits(programs: Programs, dtype: str, numpy: str) -> None:
    x, y = (integers(numpy, rows, *((0, 2**16) if dtype[0] == "u" else (-(2**15), 2**15)))[:11] for rows in (11, 12))
    check_interpreted(programs, bits, f"bits_{dtype}", {"x": x, "y": y}, {n: np.zeros_like(x) for n in ("out", "more")})


@needs_compiler
def test_extremes_of_small_integers(programs: Programs) -> None:
    x = integers("i2", 21, -(2**15), 2**15)
    outputs = {"out": np.zeros_like(x), "down": np.zeros(3 * 48, np.int16)}
    check_interpreted(programs, extremes, "extremes", {"x": x}, outputs)


@needs_compiler
@pytest.mark.parametrize("n", [1, 3])
def test_truth_values_with_numbers(programs: Programs, n: int) -> None:
    x = integers("i4", 21, -5, 9)
    out, more, wanted, others = (np.zeros_like(x) for _ in range(4))
    truths.interpret(x, wanted, others, n)
    programs.run("truths", n, x=x, out=out, more=more, n=n)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(more, others)


@needs_compiler
def test_sums_of_which_more_is_wanted(programs: Programs) -> None:
    """A sum of i32 as floats needs all of its 64 bits."""
    x = integers("i4", 21, -(2**31), 2**31)
    x[8:12] = 2**31 - 1
    check_interpreted(programs, mean, "large", {"x": x}, {"out": np.zeros(x.shape, np.float32)})
