# SPDX-License-Identifier: MIT
"""Rows of unknown extents that are reduced and may be too long for a block: a kernel of its own goes over their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.device_kernel import emulate
from pto_jit.lower.wholes import choose
from pto_jit.slotted import replace
from tests.targets.cuda.harness import emulated, needs_compiler

RNG = np.random.default_rng(41)


@pto.jit
def softmax(x, y, v):
    e = pl.exp(x - pl.max(x, axis=1, keepdims=True))
    y[...] = e / pl.sum(e, axis=1, keepdims=True)


@pto.jit
def layer_norm(x, y, v):
    d = x - pl.mean(x, axis=1, keepdims=True)
    y[...] = d / pl.sqrt(pl.mean(d * d, axis=1, keepdims=True) + 1e-5) * pl.mean(y, axis=0) + 0.5


@pto.jit
def in_place(x, y, v):
    x[...] = x / (pl.sum(pl.abs(x), axis=1, keepdims=True) + 1)


@pto.jit
def cross_entropy(x, y, v):
    m = pl.max(x, axis=1)
    v[...] = pl.log(pl.sum(pl.exp(x - m[:, None]), axis=1)) + m - x[:, 0]


@pto.jit
def places(x, y, v):
    v[...] = pl.argmax(x, axis=1).to(pl.f32) - pl.argmin(y, axis=1).to(pl.f32)


@pto.jit
def truths(x, y, v):
    v[...] = pl.any(x > 2, axis=1).to(pl.f32) * 2 + pl.all(x > -9, axis=1).to(pl.f32) + pl.prod(x * 0 + 1, axis=1)


@pto.jit
def of_other_rows(x, y, v):
    """Rows of two extents, of which one is reduced first."""
    h = x.shape[1] // 2
    y[...] = x * pl.max(y[:, :h], axis=1, keepdims=True) - pl.min(x, axis=1, keepdims=True)


@pto.jit
def numbered(x, y, v):
    """With a number for each column, and the number of columns."""
    w = pl.arange(x.shape[1]) * 2.0
    v[...] = pl.sum(x * w, axis=1) / x.shape[1]
    y[...] = x - w


ALL = (softmax, layer_norm, in_place, cross_entropy, places, truths, of_other_rows, numbered)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Rows of some hundred elements are long, so that they can be emulated."""
    monkeypatch.setitem(choose.PARTS, "cuda", replace(choose.PARTS["cuda"], longest=256, beside=256, part=128))
    yield


def compared(fn: Any, x: np.ndarray, orders: tuple[int, ...] = (0, 5)) -> None:
    y, v = (RNG.standard_normal(shape).astype(x.dtype) for shape in (x.shape, x.shape[:1]))
    given = [x.copy(), y.copy(), v.copy()]
    wanted = [a.copy() for a in given]
    _, mine = emulated(fn, *given, orders=orders)
    fn.interpret(*wanted)
    close = 4e-3 if x.dtype == np.float16 else 2e-5
    for a, b in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=close, atol=close)


@needs_compiler
@pytest.mark.parametrize("shape", [(3, 1), (0, 5), (2, 256), (3, 257), (2, 997), (5, 384)])
@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
@pytest.mark.usefixtures("short")
def test_they_give_the_same(fn: Any, shape: tuple[int, int]) -> None:
    compared(fn, RNG.standard_normal(shape).astype(np.float32))


@needs_compiler
@pytest.mark.parametrize("fn", [softmax, in_place, places], ids=lambda fn: fn.__name__)
@pytest.mark.usefixtures("short")
def test_half_precision(fn: Any) -> None:
    compared(fn, RNG.standard_normal((3, 391)).astype(np.float16))


@needs_compiler
@pytest.mark.usefixtures("short")
def test_integers_and_nans() -> None:
    @pto.jit
    def centred(x, y, v):
        y[...] = x - pl.max(x, axis=1, keepdims=True) + pl.sum(x, axis=1, keepdims=True).to(pl.i32)
        v[...] = pl.argmin(x, axis=1)

    x = RNG.integers(-1000, 1000, (3, 700)).astype(np.int32)
    compared(centred, x)
    bad = RNG.standard_normal((3, 700)).astype(np.float32)
    bad[1, 411] = np.nan
    compared(places, bad)


@needs_compiler
@pytest.mark.usefixtures("short")
def test_rows_of_known_extents_beside_them() -> None:
    @pto.jit
    def weighted(x, w, v):
        v[...] = pl.sum(x, axis=1) * pl.max(w, axis=1) + pl.sum(x * pl.min(w, axis=1, keepdims=True), axis=1)

    one = pto.spec((None,), pl.f32)
    compiled = weighted.compile(pto.spec((None, None), pl.f32), pto.spec((None, 24), pl.f32), one, target="cuda")
    x, w = (RNG.standard_normal((3, n)).astype(np.float32) for n in (997, 24))
    v, wanted = np.zeros(3, np.float32), np.zeros(3, np.float32)
    emulate(compiled, x, w, v)
    weighted.interpret(x, w, wanted)
    np.testing.assert_allclose(v, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
def test_one_kernel_more_is_written(fn: Any) -> None:
    """For rows that do not fit; what is stored of rows that are not reduced is another loop."""
    two, one = pto.spec((None, None), pl.f32), pto.spec((None,), pl.f32)
    text = pto.jit(fn.__wrapped__).compile(two, two, one, target="cuda").ir("divided")
    assert "IF %fits" in text and "8192:idx" in text


@needs_compiler
def test_a_row_of_a_vocabulary() -> None:
    compared(pto.jit(softmax.__wrapped__), RNG.standard_normal((2, 128256)).astype(np.float32), orders=(0,))
