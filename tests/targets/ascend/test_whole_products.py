# SPDX-License-Identifier: MIT
"""Products of whole tensors whose operands are computed, transposed or stored into, and what follows them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl

from .harness import Programs, check_interpreted, kernels_of, needs_compiler, ordered, written

FLAT = pto.spec((None, None), pl.f32)


@pto.jit
def operand(x, w, y):
    """Tiles of the product that are stored are read for others."""
    y[...] = x @ y


@pto.jit
def both(x, w, y):
    y[...] = pl.relu(x @ y) + y


@pto.jit
def added(x, w, y):
    y += x @ w


@pto.jit
def clipped(x, w, y):
    y[...] = x.T @ pl.clip(y, -1.0, 1.0) - pl.abs(x)


@pto.jit
def computed(x, w, y):
    y[...] = pl.relu(x) @ (w * 0.5)


@pto.jit
def turned(x, w, y):
    y[...] = x.T @ w


@pto.jit
def linear(x, w, y):
    y[...] = x @ w.T


@pto.jit
def gram(x, w, y):
    y[...] = pl.transpose(x @ x.T) * 2.0


@pto.jit
def scaled(x, w, y):
    y[...] = (x @ w) * (y + w[:, 0][:, None])


@pto.jit
def weights(x, w, y):
    t = x @ w
    e = pl.exp(t - pl.max(t, axis=1, keepdims=True))
    y[...] = e / pl.sum(e, axis=1, keepdims=True)


@pto.jit
def chained(x, w, y):
    y[...] = (x @ w) @ y


@pto.jit
def means(x, w, y):
    """Numbers that are made of tiles' extents."""
    y[...] = pl.mean(pl.where(x > 0.0, x @ w.T, 1.0), axis=0, keepdims=True) + y


@pto.jit
def again(x, w, y):
    for _ in pl.range(3):
        y[...] = x @ y * 0.1


FUNCTIONS = (operand, both, added, clipped, computed, turned, linear, gram, scaled, weights, chained, means,
             again)
CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {fn.__name__: (fn, (FLAT,) * 3) for fn in FUNCTIONS}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return ordered(CASES, tmp_path_factory.mktemp("products"))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("side", [3, 150])
def test_they_give_the_numbers_of_the_interpreter(programs: Programs, name: str, side: int) -> None:
    rng = np.random.default_rng(side)
    x, w, y = (rng.standard_normal((side, side), np.float32) for _ in range(3))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-3)
    check_interpreted(programs, CASES[name][0], name, {"x": x, "w": w}, {"y": y}, close)


@pytest.mark.parametrize("name", CASES)
def test_all_cores_take_part(name: str) -> None:
    fn, specs = CASES[name]
    forms = kernels_of(written(fn, *specs))
    assert not any(form.alone for form in forms)
    assert all(form.limits == {} or name in ("weights", "means") for form in forms)


def test_what_follows_a_product_is_one_kernel() -> None:
    """`(x @ w) * (y + w[:, 0][:, None])` is no more than a product and a bias."""
    assert [form.core for form in kernels_of(written(scaled, *(FLAT,) * 3))] == ["cube", "vector"]


@needs_compiler
def test_operands_without_lines_that_lie_together_are_named(tmp_path: Path) -> None:
    x, w = np.zeros((4, 4), np.float32), np.zeros((8, 8), np.float32)[::2, ::2]
    programs = ordered({"linear": (linear, (FLAT, w, FLAT))}, tmp_path)
    with pytest.raises(RuntimeError, match="rows or columns of operands of products lie in one piece"):
        programs.run("linear", 0, x=x, w=w, y=x.copy())


def test_numbers_that_are_made_of_products_are_not_made_before_them() -> None:
    """What a kernel stores and loads is made before its products only without what follows from these."""

    @pto.jit
    def steps(a, b, x, n):
        s = pl.sum(b * b)
        for _ in pl.range(n):
            q = a @ b
            step = s / pl.sum(b * q)
            x[...] = x + step * b
            s = pl.sum(x * x)
            b[...] = x * s

    flat = pto.spec((None,), pl.f32)
    with pytest.raises(pto.TargetError, match="a kernel with products that loads from and stores into `x`"):
        written(steps, FLAT, flat, flat, 3)
