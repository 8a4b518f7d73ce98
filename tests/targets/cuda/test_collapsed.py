# SPDX-License-Identifier: MIT
"""Contiguous tensors that are combined element by element are one row, whatever their extents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate

from .harness import emulated, needs_compiler
from .simulation import needs_simulation
from .test_launcher import Program, needs_compilers
from .test_traffic import aligned, counted

RNG = np.random.default_rng(37)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return aligned(RNG.standard_normal(shape).astype(dtype))


@pto.jit
def combined(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
    out[...] = pl.where(x > 0.5, x * 2.0 + y, y)


def wanted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(x > 0.5, x * 2 + y, y).astype(x.dtype)


SHAPES = [(70, 3), (1000, 1), (1, 77), (33, 129), (3, 5, 7, 2), (0, 4), (4, 0), (1100, 2)]


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_of_all_shapes(shape: tuple[int, ...], dtype: Any) -> None:
    x, y, out = (floats(*shape, dtype=dtype) for _ in range(3))
    _, (_, _, found) = emulated(combined, x, y, out)
    np.testing.assert_allclose(found.astype(np.float32), wanted(x, y).astype(np.float32), rtol=2e-3)


@needs_compiler
def test_tensors_of_other_extents_keep_their_shape() -> None:
    """What is stored is cut, and operands have to agree."""
    x, y = floats(6, 4), floats(6, 4)
    compiled = combined.compile(x, y, x, target="cuda")
    for shape in ((6, 5), (4, 6), (3, 8), (7, 4), (1, 24)):
        out = np.full(shape, 9, np.float32)
        expected = out.copy()
        rows, columns = min(shape[0], 6), min(shape[1], 4)
        expected[:rows, :columns] = wanted(x, y)[:rows, :columns]
        emulate(compiled, x, y, out)
        np.testing.assert_array_equal(out, expected)
        with pytest.raises(pto.LaunchError, match="extents"):
            emulate(compiled, x, floats(*shape), out)


@needs_compiler
def test_known_extents_are_compared_when_the_program_is_compiled() -> None:
    @pto.jit
    def scaled(x: pl.Tensor[[None, 6, 4], pl.f32], out: pl.Tensor[[None, 6, 4], pl.f32]):
        out[...] = x * 3.0

    x, out = floats(5, 6, 4), floats(5, 6, 4)
    _, (_, found) = emulated(scaled, x, out)
    np.testing.assert_array_equal(found, x * 3)


@needs_compiler
def test_a_tensor_may_be_updated() -> None:
    @pto.jit
    def moved(x: pl.Tensor, v: pl.Tensor, rate: pl.f32):
        v[...] = v * 0.5 + x
        x[...] = x - v * rate

    x, v = floats(40, 3), floats(40, 3)
    _, (found, speed, _) = emulated(moved, x, v, np.float32(0.25))
    np.testing.assert_allclose(speed, v * 0.5 + x, rtol=1e-6)
    np.testing.assert_allclose(found, x - (v * 0.5 + x) * 0.25, rtol=1e-5, atol=1e-6)
    both = floats(40, 3)
    compiled = moved.compile(both, both, np.float32(0.25), target="cuda")
    same = both.copy()
    emulate(compiled, same, same, np.float32(0.25))
    half = both * np.float32(0.5) + both
    np.testing.assert_allclose(same, half - half * np.float32(0.25), rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize("x", [floats(40, 6)[:, ::2], floats(40, 6)[:, 1:4], floats(3, 40).T])
def test_tensors_with_gaps_stay_as_they_are(x: np.ndarray) -> None:
    y, out = floats(40, 3), floats(40, 3)
    assert "_row" not in combined.compile(x, y, out, target="cuda").ir("divided")
    _, (_, _, found) = emulated(combined, x, y, out)
    np.testing.assert_allclose(found, wanted(x, y), rtol=1e-6)


@needs_simulation
@pytest.mark.parametrize("shape", [(512, 16), (512, 3), (300, 129), (4, 64, 3, 40)])
def test_narrow_and_odd_rows_take_as_few_instructions_as_others(shape: tuple[int, ...]) -> None:
    """Threads load and store 16 bytes; of rows of 16 elements one took 40 times as many."""

    @pto.jit
    def doubled(x: pl.Tensor, y: pl.Tensor):
        y[...] = x * 2.0

    x, y = floats(*shape), floats(*shape)
    shares = counted(doubled, x, y)
    np.testing.assert_array_equal(y, x * 2)
    assert shares.used > 0.98 and shares.instructions < 7 * 2 * x.nbytes / 128


@needs_simulation
def test_the_warps_of_a_block_share_short_rows() -> None:
    """Rows beside others that are no row with them: a warp has one, and a block eight."""

    @pto.jit
    def biased(x: pl.Tensor, bias: pl.Tensor, y: pl.Tensor):
        y[...] = x + bias[...]

    x, bias, y = floats(400, 256), floats(256), floats(400, 256)
    shares = counted(biased, x, bias, y)
    np.testing.assert_array_equal(y, x + bias)
    assert shares.instructions < 12 * 2 * x.nbytes / 128


@needs_compilers
def test_written_programs_compare_extents_too(tmp_path: Path) -> None:
    @pto.jit
    def doubled(x: pl.Tensor, y: pl.Tensor):
        y[...] = x * 2.0

    spec = pto.spec((None, None), pl.f32)
    program = Program(doubled.compile(spec, spec, target="cuda"), tmp_path)
    for shape in ((6, 4), (6, 5), (4, 6), (0, 3), (3000, 3)):
        x, out = floats(6, 4) if shape[0] < 3000 else floats(*shape), np.full(shape, 9, np.float32)
        expected = out.copy()
        rows, columns = (min(a, b) for a, b in zip(shape, x.shape, strict=True))
        expected[:rows, :columns] = x[:rows, :columns] * 2
        assert program(x, *x.shape, out, *shape) == 0, program.said()
        np.testing.assert_array_equal(out, expected)
