# SPDX-License-Identifier: MIT
"""Tiles of constant extents that are no multiples of anything."""

from __future__ import annotations

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, needs_compiler, ordered


@pto.jit
def pairs(x: pl.Tensor, out: pl.Tensor):
    """A vector as a column is as tall as the tile that it is combined with is."""
    out[...] = pl.sum(x[:, None] * 2.0 + x, axis=1)


@pto.jit
def waves(x: pl.Tensor, out: pl.Tensor):
    """The largest of 250 elements is found in the memory that 256 need."""
    out[:-2] = pl.sin(x[1:-1])


@pto.jit
def products(x: pl.Tensor, out: pl.Tensor, w: pl.Tensor):
    """Of an odd number of rows, which two vector cores share."""
    with pl.incore():
        right = pl.load(w, [0, 0], [64, 64])
        t = pl.load(x, [0, 0], [33, 64]) @ right
        e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
        pl.store(e @ right, [0, 0], out)


SPECS = {"pairs": ((5,),) * 2, "waves": ((252,),) * 2, "products": ((33, 64), (33, 64), (64, 64))}
CASES = {fn.__name__: (fn, tuple(pto.spec(s, pl.f32) for s in SPECS[fn.__name__])) for fn in (pairs, waves, products)}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("ascend"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str) -> None:
    rng = np.random.default_rng(0)
    x, out, *w = (rng.standard_normal(s, np.float32) for s in SPECS[name])

    def close(a: np.ndarray, b: np.ndarray, err_msg: str) -> None:
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-4, err_msg=err_msg)

    check_interpreted(programs, CASES[name][0], name, {"x": x}, {"out": out} | dict(zip("w", w, strict=False)), close)
