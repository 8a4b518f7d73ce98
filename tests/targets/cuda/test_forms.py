# SPDX-License-Identifier: MIT
"""Which tiles products of whole tensors are computed in, for extents that are known and for those that are not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels import matrix
from pto_jit.dtypes import bf16, f32
from pto_jit.targets.cuda import forms
from pto_jit.targets.cuda.forms import forms_of

from .harness import emulated, needs_compiler

RNG = np.random.default_rng(13)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "tile"),
    [
        (f32, 4096, 4096, (128, 128)), (f32, 1024, 1024, (128, 64)), (f32, 32, 4096, (32, 32)), (f32, 1, 4096, (1, 32)),
        (f32, 4096, 1, (8, 1)), (f32, 1, 1, (1, 1)), (f32, 100_000, 16, (128, 16)), (bf16, 4096, 4096, (128, 256)),
        (bf16, 1024, 1024, (128, 64)), (bf16, 2048, 2048, (128, 256)), (bf16, 16, 4096, (16, 32)),
        (bf16, 64, 4096, (64, 32)),
    ],
)  # fmt: skip
def test_tiles_for_extents_that_are_known(dtype: Any, rows: int, columns: int, tile: tuple[int, int]) -> None:
    [form] = forms_of(dtype, rows, columns, streams=True)
    assert (form.rows, form.columns) == tile
    assert form.depth * dtype.bytes >= 128  # bytes of a row of a left operand at a time


def test_tiles_for_extents_that_are_not() -> None:
    def of(rows: int | None, columns: int | None, *, streams: bool = True) -> list[tuple[int, ...]]:
        return [(f.rows, f.columns, f.most_rows, f.least_tiles) for f in forms_of(f32, rows, columns, streams)]

    assert of(None, None) == [(1, 32, 1, 0), (32, 32, 32, 0), (128, 128, 0, 96), (64, 64, 0, 0)]
    assert of(None, None, streams=False) == of(None, None)[1:]
    assert of(20, None) == [(32, 32, 0, 0)]
    assert of(200, None) == of(None, None)[2:]
    assert of(None, 16) == [(1, 32, 1, 0), (32, 16, 32, 0), (128, 16, 0, 96), (64, 16, 0, 0)]


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [0, 1, 20, 50, 150])
def test_the_host_takes_the_form_that_suits(dtype: type, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row, few rows, less than two large tiles, more."""
    monkeypatch.setattr(forms, "_BLOCKS", 2)

    @pto.jit
    def product(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
        c[...] = a @ b + 1.0

    a, b = normal(rows, 70, dtype=dtype), normal(70, 140, dtype=dtype)
    _, (*_, c) = emulated(product, a, b, np.zeros((rows, 140), np.float32), orders=(0, 5))
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64) + 1, rtol=1e-4, atol=1e-4)
    compiled = product.compile(a, b, c, target="cuda")
    kernels = compiled._kernel.built.program.host.kernels.values()
    assert [k.streams for k in kernels] == [True, False, False, False]
    host = next(text for name, text in compiled.sources.items() if name.endswith("_orchestration.c"))
    assert host.count("pto_cuda_launch(") == 4


def test_products_by_what_is_computed_after_products() -> None:
    """A matrix that is converted before it is multiplied is loaded where it is, not kept before the products."""
    compiled = matrix.swiglu.compile(*[pto.spec((None, None), pl.f16)] * 5, target="cuda")
    assert not [name for name in compiled.sources if "copy" in name]
