# SPDX-License-Identifier: MIT
"""Running sums and products along lines that are longer than a core has room for: reduce, then scan."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.lower.wholes import choose
from pto_jit.slotted import replace
from tests.targets.ascend.harness import Programs, check_interpreted, needs_compiler, ordered, written

LINE, FLAT = pto.spec((None,), pl.f32), pto.spec((None, None), pl.f32)


@pto.jit
def vector(x, y):
    y[...] = pl.cumsum(x, axis=0) * 2.0 + x


@pto.jit
def vector_from_the_end(x, y):
    y[...] = pl.cumsum(x, axis=0, reverse=True)


@pto.jit
def columns(x, y):
    y[...] = pl.cumsum(x, axis=0) - x


@pto.jit
def columns_from_the_end(x, y):
    y[...] = pl.cumsum(x, axis=0, reverse=True)


@pto.jit
def rows(x, y):
    y[...] = pl.cumsum(x, axis=1)


@pto.jit
def products(x, y):
    y[...] = pl.cumprod(x * 0.001 + 1.0, axis=1)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    fn.__name__: (fn, (LINE if fn in (vector, vector_from_the_end) else FLAT,) * 2)
    for fn in (vector, vector_from_the_end, columns, columns_from_the_end, rows, products)
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    with pytest.MonkeyPatch.context() as patched:  # so that a chunk has several steps
        patched.setitem(choose.PARTS, "ascend", replace(choose.PARTS["ascend"], chunks=2))
        return ordered(CASES, tmp_path_factory.mktemp("running"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sides", [(1, 1), (3, 1601), (311, 7), (1, 600)])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, sides: tuple[int, int]) -> None:
    x = np.random.default_rng(sum(sides)).standard_normal(sides, np.float32)
    x = x.ravel() if CASES[name][1][0] is LINE else x
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-3)
    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"y": np.zeros_like(x)}, close)


@pytest.mark.parametrize(("fn", "shape"), [(vector, (100000,)), (columns, (100000, 3)), (rows, (None, 131072))])
def test_known_extents_are_not_asked_for(fn: Any, shape: tuple[int | None, ...]) -> None:
    spec = pto.spec(shape, pl.f32)
    compiled = written(fn, spec, spec)
    assert "%fits" not in compiled.ir("divided")
    assert any("in up to 64 parts" in str(d) for d in compiled.decisions)


@needs_compiler
@pytest.mark.parametrize("columns", [49, 48])
def test_rows_of_any_known_extent(columns: int, tmp_path: Path) -> None:
    """Several at a time where they are transposed as a whole, else one after the other."""

    @pto.jit
    def summed(x, y):
        y[...] = pl.cumsum(x, axis=1)

    spec = pto.spec((None, columns), pl.f32)
    x = np.random.default_rng(columns).standard_normal((37, columns), np.float32)
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-4)
    mine = ordered({"summed": (summed, (spec, spec))}, tmp_path)
    check_interpreted(mine, summed, "summed", {"x": x}, {"y": np.zeros_like(x)}, close)
