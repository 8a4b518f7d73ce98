# SPDX-License-Identifier: MIT
"""Loops that reduce by functions of several numbers, by lanes: what they come to, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl
from pto_jit.bench.kernels.reductions import log_sum_exp

RNG = np.random.default_rng(12)
COUNTS = (0, 1, 7, 100, 255, 4096, 20_001)


@pto.jit
def first_largest(x: pl.Tensor, out: pl.Tensor):
    best = pl.reduction(
        init=(-1e30, -1), combine=lambda a, b: (pl.maximum(a[0], b[0]), pl.where(b[0] > a[0], b[1], a[1]))
    )
    for i in pl.range(x.shape[0], parallel=True):
        best.update(x[i], i)
    out[0] = best.value[1]


@pto.jit
def functions(x: pl.Tensor, out: pl.Tensor):
    """One affine function after the other: of every third element, and backwards."""
    ahead = pl.reduction(init=(1.0, 0.0), combine=lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))
    for i in pl.range(2, x.shape[0], 3, parallel=True):
        ahead.update(1.0 - 0.01 * x[i], x[i])
    back = pl.reduction(init=(1.0, 0.0), combine=lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]))
    for i in pl.range(x.shape[0] - 1, -1, -1, parallel=True):
        back.update(1.0 - 0.01 * x[i], x[i])
    out[0], out[1], out[2] = ahead.value[1], back.value[1], back.value[0]


@pto.jit
def moments(x: pl.Tensor, out: pl.Tensor):
    def both(a, b):
        n, apart = a[0] + b[0], b[1] - a[1]
        share = pl.where(n > 0, b[0] / pl.maximum(n, 1.0), 0.0)
        return n, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share

    acc = pl.reduction(init=(0.0, 0.0, 0.0), combine=both)
    for i in pl.range(x.shape[0], parallel=True):
        if x[i] > -1:
            acc.update(1.0, x[i], 0.0)
    out[0], out[1], out[2] = acc.value


@pto.jit
def bits(x: pl.Tensor, out: pl.Tensor):
    """Numbers of several widths beside each other, and a bool."""
    acc = pl.reduction(init=(0, False, 0), combine=lambda a, b: (a[0] ^ b[0], a[1] | b[1], pl.maximum(a[2], b[2])))
    for i in pl.range(x.shape[0], parallel=True):
        n = pl.cast(x[i] * 1000, pl.i16)
        acc.update(i * i, n == 77, pl.cast(n, pl.i32))
    out[0], out[1], out[2] = acc.value


def composed(x: np.ndarray) -> tuple[float, float]:
    scale, shift = 1.0, 0.0
    for v in x:
        scale, shift = scale * (1 - 0.01 * v), shift * (1 - 0.01 * v) + v
    return scale, shift


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_several_numbers(n: int, dtype: Any) -> None:
    x = RNG.standard_normal(n).astype(dtype)
    near = {"rtol": 2e-4 if dtype is np.float32 else 1e-10, "atol": 1e-6}
    out = np.zeros(3, dtype)
    log_sum_exp(x, out)
    if n:
        np.testing.assert_allclose(out[0], np.log(np.exp(x.astype(np.float64)).sum()), **near)
    for repeats in range(3):
        x[RNG.integers(0, max(n, 1), min(n, 2 * repeats))] = 9  # the first of equal ones, wherever lanes begin
        first_largest(x, out)
        assert out[0] == (x.argmax() if n else -1)
    chosen = x[x > -1].astype(np.float64)
    moments(x, out)
    mean = chosen.mean() if len(chosen) else 0
    np.testing.assert_allclose(out, [len(chosen), mean, ((chosen - mean) ** 2).sum()], **near)


@pytest.mark.parametrize("n", COUNTS)
def test_the_order_of_iterations_is_kept(n: int) -> None:
    x = RNG.standard_normal(n)
    out = np.zeros(3)
    functions(x, out)
    (_, ahead), (scale, back) = composed(x[2::3]), composed(x[::-1])
    np.testing.assert_allclose(out, [ahead, back, scale], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", COUNTS)
def test_states_of_several_widths(n: int) -> None:
    x = RNG.standard_normal(n)
    out = np.zeros(3, np.int64)
    bits(x, out)
    whole = (x * 1000).astype(np.int16)
    expected = np.bitwise_xor.reduce(np.arange(n) ** 2), (whole == 77).any(), max([0, *whole])
    np.testing.assert_array_equal(out, expected)


@pto.jit
def best_of_rows(x: pl.Tensor, out: pl.Tensor):
    for r in pl.range(x.shape[0], parallel=True):
        best = pl.reduction(init=(1e30, -1), combine=lambda a, b: (pl.minimum(a[0], b[0]), pl.where(b[0] < a[0], b[1], a[1])))
        for i in pl.range(x.shape[1], parallel=True):
            best.update(x[r, i], i)
        out[r] = best.value[1]


def test_elements_of_columns_and_of_reversed_rows() -> None:
    x = RNG.integers(0, 40, (9, 700)).astype(np.float32)
    for view in (x, x[:, ::-1], x[::2, 3:], np.asfortranarray(x), x.T):
        out = np.zeros(len(view), np.int64)
        best_of_rows(view, out)
        np.testing.assert_array_equal(out, view.argmin(axis=1))


def choosing(better: Any, start: float) -> Any:
    @pto.jit
    def kernel(x, y, out):
        best = pl.reduction(init=(start, -1, 0.0), combine=lambda a, b: b if better(b[0], a[0]) else a)
        for i in pl.range(x.shape[0], parallel=True):
            if y[i] < 1:
                best.update(x[i], i, y[i])
        out[0], out[1], out[2] = best.value

    return kernel


@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize(
    "better, start, place",
    [
        (lambda b, a: b > a, -np.inf, lambda x: x.argmax()),
        (lambda b, a: a > b, np.inf, lambda x: x.argmin()),
        (lambda b, a: b >= a and b > -50, -100.0, lambda x: len(x) - 1 - x[::-1].argmax()),
    ],
    ids=["greatest", "least", "last"],
)
def test_functions_with_branches(better: Any, start: float, place: Any, n: int) -> None:
    x, y = RNG.integers(-40, 40, n).astype(np.float64), RNG.standard_normal(n)
    out = np.zeros(3)
    choosing(better, start)(x, y, out)
    chosen = np.flatnonzero(y < 1)
    if not len(chosen):
        np.testing.assert_array_equal(out, [start, -1, 0])
        return
    at = chosen[place(x[chosen])]
    np.testing.assert_array_equal(out, [x[at], at, y[at]])


@pytest.mark.parametrize("pair", [True, False])
def test_the_place_of_the_greatest_element_is_looked_for(pair: bool) -> None:
    """As in a sequential loop, whether one comparison chooses both numbers, or one each."""
    if pair:
        combine: Any = lambda a, b: b if b[0] > a[0] else a  # noqa: E731
    else:
        combine = lambda a, b: (pl.where(b[0] > a[0], b[0], a[0]), pl.where(b[0] > a[0], b[1], a[1]))  # noqa: E731

    @pto.jit
    def kernel(x, out):
        best = pl.reduction(init=(-1e30, -1), combine=combine)
        for i in pl.range(x.shape[0], parallel=True):
            best.update(x[i], i)
        out[0] = best.value[1]

    for n in COUNTS[1:]:
        x, out = RNG.integers(-40, 40, n).astype(np.float32), np.zeros(1, np.float32)
        kernel(x, out)
        assert out[0] == x.argmax()
        x[n // 2] = np.nan  # better than nothing, and nothing is better than it
        kernel(x, out)
        assert out[0] == np.where(np.isnan(x), -np.inf, x).argmax() or n == 1
    assert "@winner" in kernel.compile(x, out).ir("llvm")
