# SPDX-License-Identifier: MIT
"""Scopes of unrolled loops that differ in where they work are one kernel on devices, which is told where."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pto_jit as pto
import pto_jit.language as pl
from tests.targets.ascend.harness import check_interpreted, kernels_of, ordered, written
from tests.targets.cuda.harness import emulated


@pto.jit
def heads(q, k, v, o, which: pl.constexpr):
    for h in which:
        with pl.incore():
            for r in pl.range(0, 32, 16):
                s = pl.load(q, [r, h * 32], [16, 32]) @ pl.transpose(pl.load(k, [0, h * 32], [48, 32]))
                e = pl.exp(s - pl.max(s, axis=1, keepdims=True))
                p = e / pl.sum(e, axis=1, keepdims=True)
                pl.store(p @ pl.load(v, [0, h * 32], [48, 32]), [r, h * 32], o)


def _arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = (32, 128), (48, 128), (48, 128)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def four_heads(q, k, v, o):
    heads(q, k, v, o, (0, 1, 2, 3))


def _attention(q, k, v):
    out = np.zeros_like(q)
    for part in (slice(h, h + 32) for h in range(0, 128, 32)):
        s = q[:, part].astype(np.float64) @ k[:, part].T.astype(np.float64)
        e = np.exp(s - s.max(axis=1, keepdims=True))
        out[:, part] = e / e.sum(axis=1, keepdims=True) @ v[:, part]
    return out


def test_heads_are_one_kernel_of_cuda() -> None:
    arrays, fn = _arrays(), pto.jit(four_heads)
    _, (*_, o) = emulated(fn, *arrays, np.zeros((32, 128), np.float32))
    sources = fn.compile(*arrays, o, target="cuda").sources
    assert len([name for name in sources if name.endswith(".cu")]) == 1
    np.testing.assert_allclose(o, _attention(*arrays), rtol=1e-4, atol=1e-5)


def test_heads_are_one_kernel_of_ascend(tmp_path: Path) -> None:
    fn, specs = pto.jit(four_heads), [pto.spec((rows, 128), pl.f32) for rows in (32, 48, 48, 32)]
    programs = ordered({"heads": (fn, tuple(specs))}, tmp_path)
    assert len(kernels_of(written(fn, *specs))) == 1
    inputs = dict(zip("qkv", _arrays(), strict=True))

    def close(a: np.ndarray, b: np.ndarray, err_msg: str) -> None:
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=err_msg)

    check_interpreted(programs, fn, "heads", inputs, {"o": np.zeros((32, 128), np.float32)}, close)
