# SPDX-License-Identifier: MIT
"""New tensors that are filled with a number, and whole tensors of which nothing is loaded."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.errors import TargetError

from .harness import SEEDS, Programs, check_interpreted, kernels_of, needs_compiler, ordered, written

ROWS = pto.spec((None, None), pl.f32)


@pto.jit
def numbers(x: pl.Tensor, n: pl.i32, s: pl.f32):
    a = pl.full((x.shape[0], x.shape[1]), 1.5, pl.f32)
    b = pl.ones((x.shape[1], 3, x.shape[0]), pl.f16)
    c = pl.full((5, 7), 0.3, pl.bf16)
    d = pl.full((x.shape[0],), s, pl.f32)
    e = pl.full((x.shape[0], 2), n, pl.i32)
    f = pl.full((x.shape[0],), -0.0, pl.f32)
    return a, b, c, d, e, f


@pto.jit
def integers(x: pl.Tensor, n: pl.i32, k: pl.i8):
    a = pl.full((x.shape[0], x.shape[1]), -1, pl.i32)
    b = pl.full((x.shape[0],), 7, pl.u16)
    c = pl.full((x.shape[0],), 1 << 31, pl.u32)
    d = pl.full((x.shape[0],), -3, pl.i64)
    e = pl.full((x.shape[0],), True, pl.bool_)
    f = pl.full((x.shape[0],), k, pl.i8)
    g = pl.full((x.shape[0],), -2, pl.i16)
    h = pl.ones((x.shape[0],), pl.u8)
    return a, b, c, d, e, f, g, h


@pto.jit
def updated(x: pl.Tensor, out: pl.Tensor):
    t = pl.ones((x.shape[0], x.shape[1]), pl.f32)
    for k in pl.range(3):
        t[:, 0] += x[:, k]
        out[...] += t


@pto.jit
def stored(x: pl.Tensor, out: pl.Tensor):
    out[...] = 2.5
    x[...] = pl.arange(x.shape[1], dtype=pl.f32) * 2.0


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "numbers": (numbers, (ROWS, 5, 2.0)),
    "integers": (integers, (ROWS, 5, pl.i8(-4))),
    "updated": (updated, (ROWS, ROWS)),
    "stored": (stored, (ROWS, ROWS)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("fills"))


def taken(programs: Programs, name: str, **arguments: Any) -> list[np.ndarray]:
    wanted = CASES[name][0].interpret(*(v.copy() if isinstance(v, np.ndarray) else v for v in arguments.values()))
    for seed in SEEDS:
        found: list[Any] = []
        programs.run(name, seed, results=found, **arguments)
        for result, want in zip(found, wanted, strict=True):
            got = programs.taken(result, want.ndim, want.dtype)
            assert got.tobytes() == np.ascontiguousarray(want).tobytes()
    return wanted


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (70, 3000), (0, 4)])
def test_floats(programs: Programs, shape: tuple[int, int]) -> None:
    wanted = taken(programs, "numbers", x=np.zeros(shape, np.float32), n=-9, s=3.0)
    assert wanted[2].dtype == ml_dtypes.bfloat16 and (wanted[3] == 3).all() and np.signbit(wanted[5]).all()


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (2500, 3)])
def test_integers(programs: Programs, shape: tuple[int, int]) -> None:
    wanted = taken(programs, "integers", x=np.zeros(shape, np.float32), n=-9, k=-4)
    assert (wanted[2] == 1 << 31).all() and (wanted[5] == -4).all()


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 3), (40, 600)])
def test_they_are_updated(programs: Programs, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    check_interpreted(programs, updated, "updated", {"x": x}, {"out": np.zeros_like(x)})


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 3), (9, 513), (300, 700)])
def test_stores_of_generated_tiles_are_divided(programs: Programs, shape: tuple[int, int]) -> None:
    outputs = {name: np.full(shape, np.nan, np.float32) for name in ("x", "out")}
    check_interpreted(programs, stored, "stored", {}, outputs)
    assert not any(form.alone or form.limits for form in kernels_of(written(stored, ROWS, ROWS)))


def test_bytes_that_are_the_same_need_no_kernel() -> None:
    @pto.jit
    def zeros(x: pl.Tensor):
        return pl.zeros((x.shape[0],), pl.f64), pl.full((x.shape[0],), -1, pl.i64), pl.ones((x.shape[0],), pl.bool_)

    compiled = written(zeros, ROWS)
    assert kernels_of(compiled) == []
    assert "take(&memory, x_d0 * 8, 255)" in compiled.sources["zeros_orchestration.c"]


def test_other_numbers_of_64_bits_are_refused() -> None:
    @pto.jit
    def halves(x: pl.Tensor):
        return pl.full((x.shape[0],), 0.5, pl.f64)

    with pytest.raises(TargetError, match="a new tensor of f64 that is filled with this number"):
        written(halves, ROWS)
