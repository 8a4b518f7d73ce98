# SPDX-License-Identifier: MIT
"""Products whose left operand is transposed, over contracted extents that do not fill whole fractals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.targets.ascend.form import Instruction, Tile
from pto_jit.targets.ascend.legality import violations

from .harness import SEEDS, Programs, blocks, kernels_of, needs_compiler, ordered, written

LENGTHS = (5, 8, 16, 24, 40, 41)
TYPES: dict[str, tuple[Any, Any]] = {
    "f32": (pl.f32, np.float32), "f16": (pl.f16, np.float16), "bf16": (pl.bf16, ml_dtypes.bfloat16)
}  # fmt: skip


def turned(length: int) -> Any:
    def kernel(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
        for i in pl.range(0, a.shape[1], 32, parallel=True):
            pl.store(pl.load(a, [0, i], [length, 32]).T @ pl.load(b, [0, 0], [length, 48]), [i, 0], c)

    return pto.jit(kernel)


@pto.jit
def both_turned(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    for i in pl.range(0, a.shape[1], 32, parallel=True):
        pl.store(pl.load(a, [0, i], [24, 32]).T @ pl.load(b.T, [0, 0], [48, 24]).T, [i, 0], c)


@pto.jit
def sums(a: pl.Tensor, b: pl.Tensor, c: pl.Tensor):
    """Whose last step has as many rows as are left."""
    for i in pl.range(0, c.shape[0], 32, parallel=True):
        acc = pl.zeros([32, 48], pl.f32)
        for k in pl.range(0, a.shape[0], 32):
            acc += pl.dot(pl.load(a, [k, i], [32, 32]).T, pl.load(b, [k, 0], [32, 48]))
        pl.store(acc, [i, 0], c)


def _specs(length: int | None, dtype: Any) -> tuple[Any, ...]:
    return pto.spec((length, 64), dtype), pto.spec((length, 48), dtype), pto.spec((64, 48), pl.f32)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{f"{name}_{k}": (turned(k), _specs(k, dtype)) for k in LENGTHS for name, (dtype, _) in TYPES.items()},
    **{f"sums_{name}": (sums, _specs(None, dtype)) for name, (dtype, _) in TYPES.items()},
    "both": (both_turned, _specs(24, pl.f32)),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("turned"))


def check(programs: Programs, name: str, length: int, dtype: Any) -> None:
    random = np.random.default_rng(length)
    a, b = (random.standard_normal((length, n)).astype(dtype) for n in (64, 48))
    for seed in SEEDS:
        c = np.full((64, 48), np.nan, np.float32)
        programs.run(name, seed, a=a, b=b, c=c)
        np.testing.assert_allclose(c, a.T.astype(np.float64) @ b.astype(np.float64), rtol=1e-4, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_transposed_left_operand(programs: Programs, length: int, dtype: str) -> None:
    check(programs, f"{dtype}_{length}", length, TYPES[dtype][1])


@needs_compiler
def test_both_operands_are_transposed(programs: Programs) -> None:
    check(programs, "both", 24, np.float32)


@needs_compiler
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [37, 45, 64])
def test_a_sum_whose_last_step_is_short(programs: Programs, length: int, dtype: str) -> None:
    check(programs, f"sums_{dtype}", length, TYPES[dtype][1])


@pytest.mark.parametrize(("name", "aligned"), [("f32_24", True), ("sums_f32", True), ("f16_24", False)])
def test_an_operand_that_is_not_told_how_it_lies_is_found(name: str, aligned: bool) -> None:
    (kernel,) = kernels_of(written(CASES[name][0], *CASES[name][1]))
    (tile,) = (n.args[0] for b in blocks(kernel.body) for n in b if isinstance(n, Instruction)
               and n.name == "TEXTRACT_LEFT")  # fmt: skip
    assert isinstance(tile, Tile) and tile.aligned == aligned and violations(kernel) == []
    tile.aligned = not aligned
    assert any("aligned" in text for text in violations(kernel))
