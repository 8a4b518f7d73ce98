# SPDX-License-Identifier: MIT
"""Arithmetic and comparisons of integers of 8 bits, which wrap: on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


@pto.jit
def arithmetic(x, y, out):
    out[...] = x * y + (x - y) * 3


@pto.jit
def bits(x, y, out):
    out[...] = ((x & y) | (x ^ 5)) + (~x << 1)


@pto.jit
def ordered_ones(x, y, out):
    out[...] = pl.where(x > y, pl.maximum(x, 7), pl.minimum(y, x // 4)) + pl.where(x == 3, y, x)


@pto.jit
def signs(x, y, out):
    out[...] = pl.abs(x) - (-y) % 10


@pto.jit
def narrowed(x, y, out):
    out[...] = ((x.to(pl.i32) * 1000) // 7).to(out.dtype) + (x.to(pl.i16) * 300).to(out.dtype)


@pto.jit
def padded(x, out):
    for r in pl.range(0, out.shape[0], 8, parallel=True):
        with pl.incore():
            pl.store(pl.load(x, [r, 3], [8, 13], pad=101), [r, 0], out)


@pto.jit
def padded_truth(x, out):
    for r in pl.range(0, out.shape[0], 8, parallel=True):
        with pl.incore():
            pl.store(~pl.load(x, [r, 3], [8, 13], pad=True), [r, 0], out)


FUNCTIONS = (arithmetic, bits, ordered_ones, signs, narrowed)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    f"{fn.__name__}_{dtype}": (fn, (pto.spec((None,), dtype),) * 3) for fn in FUNCTIONS for dtype in (pl.i8, pl.u8)
    if not (fn is signs and dtype == pl.u8)
}  # fmt: skip
PADDED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    f"padded_{dtype}": (padded if dtype != pl.bool_ else padded_truth, (pto.spec((None, None), dtype),) * 2)
    for dtype in (pl.i8, pl.u8, pl.bool_)
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES | PADDED, tmp_path_factory.mktemp("bytes"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str) -> None:
    fn, (spec, *_) = CASES[name]
    info = np.iinfo(spec.dtype.numpy)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(info.min, info.max, 900, endpoint=True).astype(info.dtype) for _ in range(2))
    check_interpreted(programs, fn, name, {"x": x, "y": y}, {"out": np.zeros_like(x)})


@needs_compiler
@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("shape", [(19, 10), (24, 16), (3, 30), (20, 2)])
def test_loads_with_a_pad_value(programs: Programs, name: str, shape: tuple[int, int]) -> None:
    fn, (spec, *_) = PADDED[name]
    x = np.random.default_rng(1).integers(0, 2 if spec.dtype == pl.bool_ else 100, shape).astype(spec.dtype.numpy)
    check_interpreted(programs, fn, name, {"x": x}, {"out": np.zeros((24, 13), x.dtype)})
