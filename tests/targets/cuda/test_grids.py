# SPDX-License-Identifier: MIT
"""Loops that the grid runs: no loop is left where it covers all iterations, and one that is right where it does not."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import loops
from pto_jit.device_kernel import emulate
from pto_jit.targets import toolchain
from pto_jit.targets.cuda import spreads
from pto_jit.targets.cuda.devices import EmulatedDevice, headers
from pto_jit.targets.cuda.spreads import covers

from .harness import needs_compiler, of_the_emulation


@pto.jit
def all_pairs(y: pl.Tensor):
    n, m = y.shape
    with pl.incore():
        for i in pl.range(0, n, parallel=True):
            for j in pl.range(0, m, parallel=True):
                y[i, j] = y[i, j] + i * 100 + j


@pto.jit
def later_pairs(y: pl.Tensor):
    n, m = y.shape
    with pl.incore():
        for i in pl.range(0, n, 3, parallel=True):
            for j in pl.range(i + 1, m, parallel=True):
                y[i, j] = y[i, j] + i * 100 + j


@pto.jit
def earlier_pairs(y: pl.Tensor):
    n, m = y.shape
    with pl.incore():
        for i in pl.range(0, n, parallel=True):
            for j in pl.range(0, pl.minimum(i * 2 + 1, m), parallel=True):
                y[i, j] = y[i, j] + i * 100 + j


@pto.jit
def chunks(y: pl.Tensor):
    n, m = y.shape
    with pl.incore():
        for i in pl.range(0, n, chunk=8):
            t = pl.load(y, [i, 0], [1, m])
            pl.store(t + i, [i, 0], y)


def wanted(name: str, n: int, m: int) -> np.ndarray:
    i, j = np.arange(n)[:, None], np.arange(m)[None]
    if name == "chunks":
        return (i + 0 * j).astype(np.float32)
    mask = {"all_pairs": i >= 0, "later_pairs": (j > i) & (i % 3 == 0), "earlier_pairs": j < 2 * i + 1}[name]
    return np.where(mask, i * 100 + j, 0).astype(np.float32)


@needs_compiler
@of_the_emulation
@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize(("fn", "covered"), [(all_pairs, 2), (later_pairs, 2), (earlier_pairs, 1), (chunks, 2)])
def test_every_iteration_runs_once(fn: Any, covered: int, clipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """clipped: a grid has few blocks; covered: loops that run as often as ever when those around them begin."""
    if clipped:
        monkeypatch.setattr(spreads, "_BLOCKS", (2, 1, 1))
    prepared: list[spreads.Spread] = []
    prepare = EmulatedDevice.prepare
    monkeypatch.setattr(EmulatedDevice, "prepare", lambda self, kernel, spread, shared: (
        prepared.append(spread), prepare(self, kernel, spread, shared))[1])  # fmt: skip
    n, m = 43, 70
    y = np.zeros((n, m), np.float32)
    compiled = fn.compile(y, target="cuda")
    emulate(compiled, y)
    np.testing.assert_array_equal(y, wanted(fn.__name__, n, m))
    (kernel,) = compiled._kernel.built.program.host.kernels.values()
    assert kernel.source.count("PTO_NEXT(") == len(kernel.covered) == covered
    assert [("COVERED", 1) in spread.defines for spread in prepared] == [not clipped]


def test_grids_have_limits() -> None:
    spec = pto.spec((None, None), pl.f32)
    (kernel,) = all_pairs.compile(spec, target="cuda")._kernel.built.program.host.kernels.values()
    assert covers(kernel, (65535, 2**31 - 1)) and not covers(kernel, (65536, 1)) and not covers(kernel, (1, 2**31))
    (kernel,) = earlier_pairs.compile(spec, target="cuda")._kernel.built.program.host.kernels.values()
    assert covers(kernel, (65535, 2**40))  # a loop that strides anyway


def test_written_programs_have_loops_unless_all_bounds_are_numbers() -> None:
    known, unknown = (all_pairs.compile(pto.spec(shape, pl.f32), target="cuda") for shape in ((40, 70), (None, 70)))
    assert "-DCOVERED=1" in known.sources["README.md"] and "COVERED" not in unknown.sources["README.md"]


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
@pytest.mark.parametrize("defines", [[], ["-DCOVERED=1"]])
def test_no_thread_divides_to_learn_how_often_it_runs(defines: list[str]) -> None:
    vector = pto.spec((None,), pl.f32)
    sources = loops.affine.compile(vector, vector, target="cuda").sources
    (file,) = (n for n in sources if n.endswith(".cu"))
    text = toolchain.build(["nvcc", "-std=c++17", "-ptx", "-arch=sm_90", "--fmad=false", *defines, "-o", "kernel.ptx",
                            file], {**headers(), file: sources[file]}, "kernel.ptx").decode()  # fmt: skip
    assert "div." not in text and text.count("ld.global") == 1
