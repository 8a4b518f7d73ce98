# SPDX-License-Identifier: MIT
"""Running sums and products of lines and tiles that end within a block of 32 bytes, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered

pytestmark = needs_compiler


@pto.jit
def sums(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.cumsum(pl.load(x) + 1, reverse=True), [0], out)


@pto.jit
def sums_forwards(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.cumsum(pl.load(x) + 1), [0], out)


@pto.jit
def products(x: pl.Tensor, out: pl.Tensor):
    pl.store(pl.cumprod(pl.load(x) + 1, reverse=True), [0], out)


@pto.jit
def along_rows(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        pl.store(pl.cumsum(pl.load(x, [r, 0], [16, 48]), axis=1, reverse=True), [r, 0], out)


@pto.jit
def down_columns(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(0, x.shape[0], 16, parallel=True):
        pl.store(pl.cumsum(pl.load(x, [r, 0], [16, 20]), axis=0, reverse=True), [r, 0], out)


@pto.jit
def handed_on(x: pl.Tensor, out: pl.Tensor):
    """Tiles that are cut at the border, left in memory for a later kernel."""
    added = pl.cumsum(pl.load(x, [0, 7], [1, 5]), axis=0)
    multiplied = pl.cumprod(pl.load(x, [6, 0], [5, 4]), axis=0)
    in_order = pl.sort(pl.load(x, [2, 5], [1, 7]))
    for r in pl.range(0, 8, parallel=True):
        pl.store(pl.load(x, [r, 0], [1, 9]) + 1.0, [r, 0], out)
    pl.store(added, [0, 0], out)
    pl.store(multiplied, [1, 4], out)
    pl.store(in_order, [4, 1], out)


def _line(length: int, dtype: Any = pl.f32) -> tuple[Any, Any]:
    return (pto.spec((length,), dtype),) * 2


LENGTHS = (1, 13, 37, 40)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{f"{fn.__name__}_{n}": (fn, _line(n)) for fn in (sums, sums_forwards, products) for n in LENGTHS},
    **{f"integers_{n}": (sums, _line(n, pl.i32)) for n in LENGTHS},
    "along_rows": (along_rows, (pto.spec((None, 45), pl.f32),) * 2),
    "handed_on": (handed_on, (pto.spec((8, 9), pl.f32),) * 2),
    "down_columns": (down_columns, (pto.spec((None, 20), pl.f32),) * 2),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("scans"))


def close(mine: np.ndarray, wanted: np.ndarray, err_msg: str) -> None:
    np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-4, err_msg=err_msg)


@pytest.mark.parametrize("name", CASES)
def test_scans_of_any_length(programs: Programs, name: str) -> None:
    fn, (spec, _) = CASES[name]
    x = np.random.default_rng(5).standard_normal([37 if n is None else n for n in spec.shape]) * 0.3
    x = (10 * x).astype(np.int32) if name.startswith("integers") else x.astype(np.float32)
    check_interpreted(programs, fn, name, {"x": x}, {"out": np.zeros_like(x)}, close)
