# SPDX-License-Identifier: MIT
"""Tensors whose elements do not lie one after the other: run on the CPU, against the interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.ascend.machine import MOST_ROWS
from pto_jit.targets.ascend.ordering import races

from .harness import Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, written


@pto.jit
def scaled(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 16, parallel=True):
            for c in pl.range(0, x.shape[1], 24):
                t = pl.load(x, [r, c], [16, 24])
                pl.store(t if t.dtype == pl.i8 else t * 2, [r, c], out)


@pto.jit
def turned(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    """The transposed view of a tensor, and of a result."""
    with pl.incore():
        for r in pl.range(0, x.shape[1], 16, parallel=True):
            t = pl.load(x.T, [r, 0], [16, 40]) + pl.load(y, [r, 0], [16, 40])
            pl.store(t, [r, 0], out.T)


@pto.jit
def lines(x: pl.Tensor, out: pl.Tensor):
    """Columns of a tensor, as lines of elements and as tiles of one axis."""
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            out[i, 1] = x[i, 2] + 1.0
        for r in pl.range(0, x.shape[0], 32, parallel=True):
            pl.store(pl.load(x[:, 0], [r], [32]) * pl.load(x[:, 1], [r], [32]), [r], out[:, 0])


@pto.jit
def parts(x: pl.Tensor, out: pl.Tensor):
    """Views whose extents the launch does not know."""
    with pl.incore():
        for c in pl.range(0, x.shape[1], 24, parallel=True):
            pl.store(pl.load(x[:, c : c + 24], [0, 0], [8, 24]) + 1, [0, 0], out[:, c : c + 24])


@pto.jit
def doubled(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            pl.store(pl.load(x, [r, 0], [8, 40]) * 2, [r, 0], out)


WIDE = np.zeros((8, 96), np.float32)
HALF, SMALL = np.zeros((8, 96), np.float16)[:, ::3], np.zeros((8, 96), np.int8)[:, ::3]
M = pto.spec((None, None), pl.f32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "scaled": (scaled, (WIDE[:, ::2], WIDE[:, ::3])),
    "scaled_half": (scaled, (HALF, HALF)),
    "scaled_small": (scaled, (SMALL, SMALL)),
    "parts": (parts, (WIDE[:, ::2], WIDE[:, ::3])),
    "doubled": (doubled, (WIDE[:, :40], M)),
    "turned": (turned, (M, M, M)),
    "lines": (lines, (M, M)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(shape) * 20).astype(dtype)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 16, 35])
@pytest.mark.parametrize(("name", "dtype"), [("scaled", "f4"), ("scaled_half", "f2"), ("scaled_small", "i1")])
def test_every_second_element(programs: Programs, name: str, dtype: str, rows: int) -> None:
    x = numbers(rows, 150, dtype=dtype)[:, ::2]
    out = np.full((rows, 3 * 75), 7, dtype)[:, ::3]
    whole = out.base
    wanted = np.where(np.arange(225) % 3 == 0, np.repeat(x * np.array(1 if dtype == "i1" else 2, dtype), 3, axis=1), np.array(7, dtype))
    programs.run(name, 1, x=x, out=out)
    np.testing.assert_array_equal(whole, wanted)


@needs_compiler
def test_views_of_elements_that_lie_apart(programs: Programs) -> None:
    x, out = numbers(7, 100)[:, ::2], np.zeros((7, 150), np.float32)[:, ::3]
    programs.run("parts", 7, x=x, out=out)
    np.testing.assert_array_equal(out, x + 1)


@needs_compiler
def test_transposed_views(programs: Programs) -> None:
    x, y = numbers(30, 50), numbers(50, 30)
    check_interpreted(programs, turned, "turned", {"x": x, "y": y}, {"out": np.zeros((30, 50), np.float32)})


@needs_compiler
@pytest.mark.parametrize("rows", [5, 100, 4097])
def test_columns(programs: Programs, rows: int) -> None:
    check_interpreted(programs, lines, "lines", {"x": numbers(rows, 4)}, {"out": np.zeros((rows, 2), np.float32)})


@needs_compiler
def test_rows_lie_one_behind_the_other(programs: Programs) -> None:
    x, out = numbers(16, 50), np.zeros((16, 40), np.float32)
    programs.run("doubled", x=x[:, :40], out=out)
    np.testing.assert_array_equal(out, x[:, :40] * 2)
    programs.run("doubled", x=np.broadcast_to(x[:1, :40], (1, 40)), out=out[:1])
    for other in (x[::-1, :40], np.broadcast_to(x[:1, :40], (16, 40))):
        with pytest.raises(RuntimeError, match="lie one behind the other"):
            programs.run("doubled", x=other, out=out)


@needs_compiler
@pytest.mark.parametrize("stride", [-1, 0])
def test_elements_lie_one_behind_the_other(programs: Programs, stride: int) -> None:
    x = numbers(16, 30)
    x = x[:, ::-1] if stride else np.broadcast_to(x[:, :1], (16, 30))
    with pytest.raises(RuntimeError, match="lie one behind the other"):
        programs.run("scaled", x=x, out=np.zeros((16, 90), np.float32)[:, ::3])


def test_without_a_flag_elements_that_lie_apart_are_not_ordered() -> None:
    for kernel in kernels_of(written(*CASES["scaled"][:1], *CASES["scaled"][1])):
        for what in mutants(kernel):
            assert races(kernel, first=True), f"{kernel.name}: nobody misses it: {what}"


@pto.jit
def spread(x: pl.Tensor, out: pl.Tensor):
    for _ in pl.range(1, parallel=True):
        t = pl.load(x)
        pl.store(t - pl.max(t), [0], out)


@needs_compiler
def test_a_line_of_elements_that_lie_apart_is_no_longer_than_one_transfer_takes(tmp_path: Path) -> None:
    """It was an internal error, as each of them is a row on chip; a longer one is taken in parts."""
    x = np.zeros(40, np.float32)
    compiled = written(spread, x, np.zeros(80, np.float32)[::2])
    kernel = kernels_of(compiled)[0]
    assert 1024 < max(kernel.limits.values()) <= MOST_ROWS  # two lines are on chip at a time
    x, out = np.arange(5000, dtype=np.float32), np.zeros(10000, np.float32)[::2]
    programs = ordered({"long": (spread, (pto.spec((5000,), pl.f32), out))}, tmp_path)
    check_interpreted(programs, spread, "long", {"x": x}, {"out": out})
