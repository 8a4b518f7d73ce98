# SPDX-License-Identifier: MIT
"""Conversions: floats saturate, integers wrap; tiles of i64 are moved and converted. Run on the CPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import Programs, needs_compiler, ordered, written


@pto.jit
def of_floats(x: pl.Tensor, wide: pl.Tensor, middle: pl.Tensor, byte: pl.Tensor, small: pl.Tensor, truth: pl.Tensor,
              usual: pl.Tensor, natural: pl.Tensor):  # fmt: skip
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 32])
            pl.store(t.to(pl.i64), [r, 0], wide)
            pl.store(t.to(pl.i16), [r, 0], middle)
            pl.store(t.to(pl.u8), [r, 0], byte)
            pl.store(t.to(pl.i8), [r, 0], small)
            pl.store((t > 0.0).to(pl.i64), [r, 0], truth)
            pl.store(t.to(pl.i32), [r, 0], usual)
            pl.store(t.to(pl.u16), [r, 0], natural)


@pto.jit
def of_integers(x: pl.Tensor, n: pl.Tensor, same: pl.Tensor, real: pl.Tensor, low: pl.Tensor, lowest: pl.Tensor,
                middle: pl.Tensor, wide: pl.Tensor):  # fmt: skip
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t, k = pl.load(x, [r, 0], [8, 32]), pl.load(n, [r, 0], [8, 32])
            pl.store(t, [r, 0], same)
            pl.store(t.to(pl.f32), [r, 0], real)
            pl.store(t.to(pl.i32), [r, 0], low)
            pl.store(t.to(pl.i16), [r, 0], lowest)
            pl.store(k.to(pl.i16), [r, 0], middle)
            pl.store((k + 1).to(pl.i64), [r, 0], wide)


@pto.jit
def divided(x: pl.Tensor, out: pl.Tensor):
    with pl.incore():
        for r in pl.range(0, x.shape[0], 8, parallel=True):
            t = pl.load(x, [r, 0], [8, 32])
            pl.store(t // pl.max(t, axis=1, keepdims=True), [r, 0], out)


def specs(*dtypes: object) -> tuple[object, ...]:
    return tuple(pto.spec((None, None), dtype) for dtype in dtypes)


CASES = {
    "of_floats": (of_floats, specs(pl.f32, pl.i64, pl.i16, pl.u8, pl.i8, pl.i64, pl.i32, pl.u16)),
    "of_integers": (of_integers, specs(pl.i64, pl.i32, pl.i64, pl.f32, pl.i32, pl.i16, pl.i16, pl.i64)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@needs_compiler
def test_floats_saturate(programs: Programs) -> None:
    x = (np.random.default_rng(0).standard_normal((11, 30)) * 100).astype(np.float32)
    x[1, :6] = [40000, -40000, 300, -300, 0.75, -0.75]
    x[2, :8] = [2**31, -(2**31) - 256, 70000, 2.0**63, -1e30, np.inf, -np.inf, np.nan]
    names = {"wide": np.int64, "middle": np.int16, "byte": np.uint8, "small": np.int8, "truth": np.int64, "usual": np.int32,
             "natural": np.uint16}  # fmt: skip
    wanted, out = ({name: np.zeros(x.shape, dtype) for name, dtype in names.items()} for _ in range(2))
    of_floats.interpret(x, *wanted.values())
    programs.run("of_floats", 1, x=x, **out)
    for name in names:
        np.testing.assert_array_equal(out[name], wanted[name], err_msg=name)


@needs_compiler
def test_integers_wrap(programs: Programs) -> None:
    x = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, (11, 30))
    x[2] //= 2**40
    n = np.random.default_rng(2).integers(-(2**31), 2**31 - 2, (11, 30)).astype(np.int32)
    names = {"same": x.astype(np.int64), "real": x.astype(np.float32), "low": x.astype(np.int32), "lowest": x.astype(np.int16),
             "middle": n.astype(np.int16), "wide": n.astype(np.int64) + 1}  # fmt: skip
    out = {name: np.zeros_like(wanted) for name, wanted in names.items()}
    programs.run("of_integers", 1, x=x, n=n, **out)
    for name, wanted in names.items():
        np.testing.assert_array_equal(out[name], wanted, err_msg=name)


def test_quotients_of_64_bits_are_refused() -> None:
    with pytest.raises(TargetError, match="this with tiles of i64, which the vector core computes with in words"):
        written(divided, *specs(pl.i64, pl.i64))
