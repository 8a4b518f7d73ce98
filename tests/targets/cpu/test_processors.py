# SPDX-License-Identifier: MIT
"""Kernels on processors that have less than this one: the same results as plain Python, and no crash.

Each processor is a process of its own, because what a processor has is looked up once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import pto_jit.language as pl
from tests.targets.cpu.processors import WIDTHS, runs_here

ROOT = Path(__file__).parents[3]
FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
NARROW = (np.int8, np.uint16, np.float16, np.float32)
PROGRAMS = (0, 3)


def tiles(x, y, n):
    for r in pl.range(0, x.shape[0], 4, chunk=2):
        a, b = pl.load(x, [r, 0], [4, x.shape[1]]), pl.load(y, [r, 0], [4, x.shape[1]])
        m = pl.max(a, axis=1, keepdims=True)
        e = pl.exp(a - m) * b.to(pl.f32)
        pl.store(pl.where(b > 0, e / (pl.sum(pl.abs(e), axis=1, keepdims=True) + n), -a).to(x.dtype), [r, 0], x)


def elements(x, y, n):
    with pl.incore():
        for i in pl.range(x.shape[0], parallel=True):
            total = 0.0
            for j in range(x.shape[1]):
                if y[i, j] > 0 and j != n:
                    total += x[i, j] * y[i, j]
                else:
                    total -= 0.5
            x[i, 0] = total
        for j in pl.range(x.shape[1], parallel=True):
            y[0, j] = x[1, j] * 2 + x[2, j]


def products(x, y, n):
    return pl.dot(pl.load(x), pl.load(y).T), pl.dot(pl.load(x, [0, 0], [1, x.shape[1]]), pl.load(y).T)


def order(x, y, n):
    a = pl.load(x)
    values, places = pl.topk(a, 3)
    return pl.sort(a), pl.argsort(pl.load(y)), values, places, pl.argmax(a, axis=0), pl.cumsum(a, axis=1)


def converted(x, y, n):
    a = pl.load(x)
    pl.store(a.to(pl.i8).to(x.dtype) + a.to(pl.bool_).to(x.dtype), [0, 0], y)
    return a.to(pl.f16), a.to(pl.bf16), a.to(pl.f64), a.to(pl.i64), a.to(pl.u32)


def constant_extents(x, y, n):
    """The extents are constants and multiples of every vector; the results may go past the caches."""
    pl.store(pl.load(x, [0, 0], [8, 8]) + pl.load(y, [0, 0], [1, 8]), [0, 0], y)
    pl.store(pl.load(x, [0, 0], [16, 64]) * 2, [0, 0], y)


def narrow(x, y, n):
    """Rows that end within a register, and lanes of which any may be left out."""
    for i in pl.range(x.shape[0], parallel=True):
        for j in pl.range(x.shape[1], parallel=True):
            if x[i, j] > n:
                y[i, j] = x[i, j] + y[i, j]
    return pl.load(x) - pl.load(y)


def check(level: str) -> None:
    """Everything on the processor that this process pretends to have."""
    from pto_jit.targets.cpu import host
    from tests.differential.compare import agree, disagreement
    from tests.differential.kernels import generate

    assert host().width == WIDTHS[level]
    data = np.random.default_rng(3)
    for dtype in FLOATS:
        x, y = (np.clip(data.standard_normal((19, 70)), -4, 4).astype(dtype) for _ in range(2))
        rtol = {2: 3e-2, 4: 2e-4, 8: 1e-9}[np.dtype(dtype).itemsize]
        for fn in (tiles, elements, products, order, converted) if dtype is np.float16 else (tiles,):
            agree(fn, x, y, 2, rtol=rtol)
    agree(constant_extents, x, y, 2)
    for dtype in NARROW:
        for columns in (1, 7, 8, 15, 19, 31, 32, 45, 130):
            x, y = (data.integers(0, 9, (3, columns)).astype(dtype) for _ in range(2))
            for n in (-1, 4, 8):  # all lanes, some, none
                agree(narrow, x, y, n)
    for seed in PROGRAMS:
        kernel = generate(seed)
        why = disagreement(kernel)
        assert why is None, f"{why}\n{kernel}"


@pytest.mark.parametrize("level", ["sse2", "avx2 without f16c", "avx2", "avx512"])
def test_kernels_run_on_a_lesser_processor(level: str) -> None:
    if not runs_here(level):
        pytest.skip("this processor has less itself")
    lines = [
        "from tests.targets.cpu.processors import pretend",
        f"pretend({level!r})",
        "from tests.targets.cpu.test_processors import check",
        f"check({level!r})",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
