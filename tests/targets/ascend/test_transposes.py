# SPDX-License-Identifier: MIT
"""Transposed tiles of any extents, cut ones too: written programs run on the CPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


def turned(rows: int, columns: int) -> Any:
    @pto.jit
    def kernel(x: pl.Tensor, y: pl.Tensor, out: pl.Tensor):
        for i in pl.range(0, x.shape[0], rows, parallel=True):
            for j in pl.range(0, x.shape[1], columns, parallel=True):
                t = pl.load(x, [i, j], [rows, columns]).T
                pl.store(t + pl.load(y, [j, i], [columns, rows]), [j, i], out)

    return kernel


@pto.jit
def there_and_back(x: pl.Tensor, out: pl.Tensor):
    for i in pl.range(0, x.shape[0], 8, parallel=True):
        t = pl.load(x, [i, 0], [8, 20])
        s = t.T + 1.0
        pl.store((s * pl.sum(s, axis=0, keepdims=True)).T, [i, 0], out)


TYPES = {"f32": np.float32, "i32": np.int32, "f16": np.float16, "i16": np.int16}
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    f"{name}_{rows}_{columns}": (turned(rows, columns), (pto.spec((None, None), getattr(pl, name)),) * 3)
    for name, rows, columns in [("f32", 32, 16), ("f32", 8, 20), ("i32", 24, 40), ("f16", 16, 48), ("i16", 5, 33)]
}
CASES["back"] = there_and_back, (pto.spec((None, 20), pl.f32),) * 2


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("transposes"))


@needs_compiler
@pytest.mark.parametrize("name", [n for n in CASES if n != "back"])
@pytest.mark.parametrize("cut", [0, 3])
def test_transposes(programs: Programs, name: str, cut: int) -> None:
    kind, rows, columns = name.split("_")
    shape = 2 * int(rows) - cut, 2 * int(columns) - cut
    rng = np.random.default_rng(cut)
    x, y = (rng.integers(-99, 99, s).astype(TYPES[kind]) for s in (shape, shape[::-1]))
    check_interpreted(programs, CASES[name][0], name, {"x": x, "y": y}, {"out": np.zeros(shape[::-1], TYPES[kind])})


@needs_compiler
@pytest.mark.parametrize("rows", [16, 13])
def test_there_and_back(programs: Programs, rows: int) -> None:
    x = np.random.default_rng(rows).integers(-9, 9, (rows, 20)).astype(np.float32)
    check_interpreted(programs, there_and_back, "back", {"x": x}, {"out": np.zeros_like(x)})
