# SPDX-License-Identifier: MIT
"""Reductions of numbers in parallel loops by functions of the program, which the scalar unit runs, and of some
iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import SEEDS, Programs, needs_compiler, ordered, written

ZERO, ONE = np.float32(0), np.float32(1)
LOW, NONE = np.float32(-1e30), np.int32(-1)
RNG = np.random.default_rng(5)


def top_and_sum(a, b):
    return pl.maximum(a[0], b[0]), a[1] + b[1]


def first_largest(a, b):
    return pl.maximum(a[0], b[0]), pl.where(b[0] > a[0], b[1], a[1])


def after(a, b):
    """One affine function after the other."""
    return a[0] * b[0], a[1] * b[0] + b[1]


@pto.jit
def commuting(x: pl.Tensor, out: pl.Tensor):
    acc = pl.reduction(init=(LOW, ZERO), combine=top_and_sum)
    for i in pl.range(x.shape[0], parallel=True):
        acc.update(x[i], x[i] * 2)
    out[0], out[1] = acc.value


@pto.jit
def largest(x: pl.Tensor, out: pl.Tensor):
    """Numbers of two types."""
    best = pl.reduction(init=(LOW, NONE), combine=first_largest)
    for i in pl.range(x.shape[0], parallel=True):
        best.update(x[i], pl.cast(i, pl.i32))
    out[0] = best.value[1]


@pto.jit
def affine(x: pl.Tensor, out: pl.Tensor):
    acc = pl.reduction(init=(ONE, ZERO), combine=after)
    for i in pl.range(1, x.shape[0], 3, parallel=True):
        acc.update(0.75 + 0.25 * x[i], x[i])
    out[0], out[1] = acc.value


@pto.jit
def affine_in_chunks(x: pl.Tensor, out: pl.Tensor):
    acc = pl.reduction(init=(ONE, ZERO), combine=after)
    for i in pl.range(x.shape[0], chunk=8):
        acc.update(0.75 + 0.25 * x[i], x[i])
    out[0], out[1] = acc.value


@pto.jit
def conditions(x: pl.Tensor, out: pl.Tensor):
    """Beside reductions by rules, in some iterations."""
    low = pl.reduction(init=(-LOW, ZERO), combine=lambda a, b: (pl.minimum(a[0], b[0]), a[1] + b[1]))
    total = ZERO
    for i in pl.range(x.shape[0], parallel=True):
        if x[i] > 0.5:
            low.update(x[i], ONE)
        total += x[i]
    out[0], out[1], out[2] = low.value[0], low.value[1], total


@pto.jit
def rows(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        acc = pl.reduction(init=(ONE, ZERO), combine=after)
        for i in pl.range(x.shape[1], parallel=True):
            acc.update(x[r, i], 1 - x[r, i])
        out[r] = acc.value[0] + acc.value[1]


@pto.jit
def integers(x: pl.Tensor, out: pl.Tensor):
    acc = pl.reduction(init=(np.int32(1), np.int32(0)), combine=after)
    for i in pl.range(x.shape[0], parallel=True):
        acc.update(x[i], x[i] + 1)
    out[0], out[1] = acc.value


@pto.jit
def several_of_integers(x: pl.Tensor, out: pl.Tensor):
    low = pl.reduction(init=(np.int32(99), NONE), combine=lambda a, b: (pl.minimum(a[0], b[0]), pl.where(b[0] < a[0], b[1], a[1])))
    count, total, most = np.int32(0), np.int32(0), np.int32(-99)
    for i in pl.range(x.shape[0], parallel=True):
        if x[i] > 0:
            low.update(x[i], pl.cast(i, pl.i32))
            count += 1
        total += x[i]
        most = pl.maximum(most, x[i])
    out[0], out[1], out[2], out[3] = low.value[1], count, total, most


@pto.jit
def matrix(x: pl.Tensor, out: pl.Tensor):
    """A nest of chunks."""
    best = pl.reduction(init=(np.int32(-99), NONE), combine=first_largest)
    for i in pl.range(x.shape[0], chunk=8):
        for j in pl.range(x.shape[1], chunk=16):
            best.update(x[i, j], pl.cast(i * 100 + j, pl.i32))
    out[0] = best.value[1]


FLOATS = (commuting, largest, affine, affine_in_chunks, conditions)
INTEGERS = (integers, several_of_integers)
MATRICES = {rows: np.float32, matrix: np.int32}


def numbers(shape: int | tuple[int, int], dtype: Any) -> np.ndarray:
    """Of which sums are exact, and many are equal."""
    return (RNG.integers(-5, 6, shape) / (4 if dtype is np.float32 else 1)).astype(dtype)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    f32, i32 = (pto.spec((None,), d) for d in (pl.f32, pl.i32))
    kinds = dict.fromkeys(FLOATS, (f32, f32)) | dict.fromkeys(INTEGERS, (i32, i32))
    kinds |= {rows: (pto.spec((None, None), pl.f32), f32), matrix: (pto.spec((None, None), pl.i32), i32)}
    return ordered({fn.__name__: (fn, specs) for fn, specs in kinds.items()}, tmp_path_factory.mktemp("merges"))


def check(programs: Programs, fn: Any, x: np.ndarray, count: int = 4) -> None:
    expected = np.full(count, 7, x.dtype)
    fn(x, expected)
    for seed in SEEDS:
        out = np.full(count, 7, x.dtype)
        programs.run(fn.__name__, seed, x=x, out=out)
        np.testing.assert_allclose(out, expected, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("n", [0, 1, 37, 300])
@pytest.mark.parametrize("fn", [*FLOATS, *INTEGERS], ids=lambda fn: fn.__name__)
def test_functions_of_several_numbers(programs: Programs, fn: Any, n: int) -> None:
    check(programs, fn, numbers(n, np.float32 if fn in FLOATS else np.int32))


@needs_compiler
@pytest.mark.parametrize("shape", [(0, 9), (3, 0), (1, 1), (37, 61)], ids=str)
@pytest.mark.parametrize("fn", list(MATRICES), ids=lambda fn: fn.__name__)
def test_reductions_of_rows_and_of_nests(programs: Programs, fn: Any, shape: tuple[int, int]) -> None:
    check(programs, fn, numbers(shape, MATRICES[fn]), max(shape[0], 1))


def test_what_the_scalar_unit_does_not_have_is_said() -> None:
    @pto.jit
    def kernel(x, out):
        acc = pl.reduction(init=(0, 0), combine=lambda a, b: (pl.maximum(a[0], b[0]), a[1] ** b[0] + b[1]))
        for i in pl.range(x.shape[0], parallel=True):
            acc.update(x[i], x[i])
        out[0], out[1] = acc.value

    with pytest.raises(TargetError, match="PTO-X210: the ascend target does not do `pow` of numbers of i32") as raised:
        written(kernel, pto.spec((None,), pl.i32), pto.spec((None,), pl.i32))
    assert "help: compute it on the host, or on a tile of one element" in str(raised.value)
