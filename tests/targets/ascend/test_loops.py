# SPDX-License-Identifier: MIT
"""While loops, products of rows that overlap, remainders: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import grids
from pto_jit.targets.ascend.ordering import races

from .harness import SEEDS, Programs, check_interpreted, kernels_of, mutants, needs_compiler, ordered, written

F32, I32, I64 = pl.f32, pl.i32, pl.i64


@pto.jit
def halved(x: pl.Tensor, out: pl.Tensor, counts: pl.Tensor):
    """A while loop on tiles, whose condition is read from one; another one on numbers of the kernel."""
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 40])
            n = 0
            while pl.max(pl.abs(t)) > 1.0:
                t = t * 0.5
                n += 1
            k = r
            while k > 10:
                t = t + 1.0
                k = k // 2
            while n < 40 and pl.min(t) < 0.5 or n < 2:
                t = t + 0.25
                n += 1
            pl.store(t, [r, 0], out)
            counts[r // 8] = n


@pto.jit
def doubled(x: pl.Tensor, limit: pl.Tensor, steps: pl.Tensor):
    """Elements that are done at different times, the last of them never."""
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            v, top, n = x[i], limit[i], 0
            while v < top and n < 20:
                v = v * 2.0
                n += 1
            steps[i] = n
            x[i] = v


@pto.jit
def remainders(x: pl.Tensor, y: pl.Tensor, n: pl.Tensor, out: pl.Tensor, places: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], parallel=True):
            a, b, k = pl.load(x, [r, 0], [1, 48]), pl.load(y, [r, 0], [1, 48]), pl.load(n, [r, 0], [1, 48])
            pl.store(a // b, [r, 0], out)
            pl.store(a % b, [r, 48], out)
            pl.store(k // 8 * 100 + k % 16, [r, 0], places)


VECTOR, MATRIX = pto.spec((None,), F32), pto.spec((None, None), F32)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "halved": (halved, (pto.spec((None, 40), F32), pto.spec((None, 40), F32), pto.spec((None,), I64))),
    "doubled": (doubled, (VECTOR, VECTOR, pto.spec((None,), I32))),
    "remainders": (remainders, (pto.spec((None, 48), F32), pto.spec((None, 48), F32), pto.spec((None, 48), I32),
                                pto.spec((None, 96), F32), pto.spec((None, 48), I32))),
    "mandelbrot": (grids.mandelbrot, (VECTOR, VECTOR, pto.spec((None, None), I32))),
    "conv3x3": (grids.conv3x3, (pto.spec((None,) * 3, F32), pto.spec((3, 3, None, None), F32),
                                pto.spec((None,) * 3, F32))),
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


def check(programs: Programs, name: str, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    check_interpreted(programs, CASES[name][0], name, inputs, outputs, partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5))


@needs_compiler
def test_while_loops_on_tiles(programs: Programs) -> None:
    x = np.random.default_rng(0).standard_normal((29, 40)).astype(np.float32)
    x[:8] /= 10
    x[8:16] *= 100
    check(programs, "halved", {"x": x}, {"out": np.zeros_like(x), "counts": np.zeros(4, np.int64)})


@needs_compiler
@pytest.mark.parametrize("length", [1, 70, 4100])
def test_while_loops_over_elements(programs: Programs, length: int) -> None:
    x = np.random.default_rng(length).random(length).astype(np.float32) + np.float32(0.1)
    limit = (np.arange(length) % 37).astype(np.float32)
    x[0], limit[-1] = 5, np.inf
    wanted, steps = x.copy(), np.zeros(length, np.int32)
    for _ in range(20):
        active = wanted < limit
        wanted[active] *= 2
        steps += active
    for seed in SEEDS:
        mine, count = x.copy(), np.zeros(length, np.int32)
        programs.run("doubled", seed, x=mine, limit=limit, steps=count)
        np.testing.assert_array_equal(mine, wanted)
        np.testing.assert_array_equal(count, steps)
    assert steps[-1] == 20


@needs_compiler
def test_quotients_and_remainders(programs: Programs) -> None:
    """As NumPy has them: signs, zeros, infinities, quotients beyond 2**24."""
    random = np.random.default_rng(4)
    x, y = (random.standard_normal((5, 48)).astype(np.float32) * 8 for _ in range(2))
    x[0, :8], y[0, :8] = [6, -6, 6, -6, 0, -0.0, np.inf, 5], [3, 3, -3, -4, -2, 2, 2, np.inf]
    x[1, :4], y[1, :4] = [1e30, 3e7, -1e9, 1], [3, 0.7, 3, 0]
    n = random.integers(-1000, 1000, (5, 48)).astype(np.int32)
    out, places = np.zeros((5, 96), np.float32), np.zeros((5, 48), np.int32)
    with np.errstate(all="ignore"):
        wanted = np.concatenate([x // y, x % y], axis=1)
    for seed in SEEDS:
        programs.run("remainders", seed, x=x, y=y, n=n, out=out, places=places)
        np.testing.assert_array_equal(out, wanted)
        np.testing.assert_array_equal(places, n // 8 * 100 + n % 16)


@needs_compiler
def test_mandelbrot(programs: Programs) -> None:
    re, im = np.linspace(-2, 1, 75, dtype=np.float32), np.linspace(-1, 1, 9, dtype=np.float32)
    wanted = np.zeros((9, 75), np.int32)
    grids.mandelbrot(re, im, wanted)
    mine = np.zeros_like(wanted)
    programs.run("mandelbrot", 1, re=re, im=im, counts=mine)
    assert (mine == wanted).mean() > 0.98 and wanted.max() == grids.LIMIT  # others contract products and sums


@needs_compiler
def test_convolutions_as_products(programs: Programs) -> None:
    random = np.random.default_rng(2)
    x, weight = random.standard_normal((8, 22, 20)).astype(np.float32), random.standard_normal((3, 3, 20, 24)).astype(np.float32)
    out = np.zeros((6, 20, 24), np.float32)
    programs.run("conv3x3", 0, x=x, weight=weight, out=out)
    wanted = sum(x[dy : dy + 6, dx : dx + 20].astype(np.float64) @ weight[dy, dx] for dy in range(3) for dx in range(3))
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match="the products of a sum have one shape"):
        programs.run("conv3x3", 0, x=x[:, :21].copy(), weight=weight, out=out)


def test_without_a_flag_a_while_loop_is_not_ordered() -> None:
    for kernel in kernels_of(written(*CASES["halved"][:1], *CASES["halved"][1])):
        for what in mutants(kernel):
            assert races(kernel, first=True), f"{kernel.name}: nobody misses it: {what}"


@pto.jit
def collatz(x: pl.Tensor, steps: pl.Tensor):
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            v, n = x[i], 0
            while v > 1:
                v = v // 2 if v % 2 == 0 else v * 3 + 1
                n += 1
            steps[i] = n


@pto.jit
def bisected(x: pl.Tensor, grid: pl.Tensor, out: pl.Tensor):
    """A loop whose condition, and body, read memory; functions of numbers in it."""
    for i in pl.range(x.shape[0], parallel=True):
        low, high = 0, grid.shape[0]
        while low < high:
            middle = (low + high) // 2
            if grid[middle] < pl.tanh(x[i]):
                low = middle + 1
            else:
                high = middle
        out[i] = low


@needs_compiler
def test_while_loops_of_the_scalar_unit(tmp_path: Path) -> None:
    line = pto.spec((None,), pl.f32)
    cases = {"collatz": (collatz, (pto.spec((None,), I32),) * 2), "bisected": (bisected, (line, line, pto.spec((None,), I32)))}
    programs = ordered(cases, tmp_path)
    x = np.array([1, 27, 6, 0, 97], np.int32)
    check_interpreted(programs, collatz, "collatz", {"x": x}, {"steps": np.zeros(5, np.int32)})
    rng = np.random.default_rng(3)
    inputs = {"x": rng.standard_normal(9).astype(np.float32), "grid": np.linspace(-1, 1, 65, dtype=np.float32)}
    check_interpreted(programs, bisected, "bisected", inputs, {"out": np.zeros(9, np.int32)})
