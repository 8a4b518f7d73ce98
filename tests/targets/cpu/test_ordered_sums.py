# SPDX-License-Identifier: MIT
"""Sums of what takes long to compute: vectors of it, added up in the order of the iterations to the last bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pto_jit as pto
import pto_jit.language as pl


def total(x: Any, y: Any) -> None:
    s = 0.0
    for i in range(x.shape[0]):
        s += math.exp(x[i])
    y[0] = s


def running(x: Any, y: Any) -> None:
    s = 1.0
    p = 1.0
    for i in range(x.shape[0]):
        s = x[i] * 0.5 + math.log(x[i] + 1.0) + s
        p *= math.cos(x[i])
        y[i] = s + p


def downwards(x: Any, y: Any) -> None:
    s = 0.0
    for i in range(x.shape[0] - 1, 0, -2):
        y[i] = s
        s -= math.sin(x[i])
    y[0] = s


def with_extreme(x: Any, y: Any) -> None:
    s = 0.0
    most = x[0]
    for i in range(x.shape[0]):
        s += math.tanh(x[i])
        most = max(most, x[i])
        y[i] = most
    y[0] = s


def in_place(x: Any, y: Any) -> None:
    """What is read is written first: iterations run one by one."""
    s = 0.0
    for i in range(x.shape[0]):
        y[i] = x[i] * 2.0
        s += math.exp(y[i])
        y[i] = s


def of_itself(x: Any, y: Any) -> None:
    s = 0.0
    for i in range(x.shape[0]):
        s += math.exp(x[i] - s)
        y[i] = s


def by_rows(x: Any, y: Any) -> None:
    """Lanes are rows, and have a sum each."""
    for i in range(y.shape[0]):
        s = 0.0
        for k in range(x.shape[0]):
            s += math.exp(x[k] * x[i])
        y[i] = s


def by_cases(x: Any, y: Any) -> None:
    """Some are added, some subtracted from, which is another sum; nothing is added elsewhere."""
    s = 0.0
    p = 1.0
    for i in range(x.shape[0]):
        if x[i] > 0.3:
            s -= math.log(x[i])
        elif x[i] > 0.1:
            s -= math.exp(x[i])
        if i % 3 == 1:
            p = math.cos(x[i]) * p
    y[0] = s
    y[x.shape[0] - 1] = p


def of_rows(x: Any, y: Any) -> None:
    """What is added is a loop's, with elements of its own and a `while`."""
    s = 0.0
    for i in range(x.shape[0] - 1, -1, -1):
        t = x[i]
        for k in range(i):
            t = t * 0.5 + x[k]
        n = 0
        while t > 0.2 and n < i % 5:
            t = t / (1.0 + x[i])
            n += 1
        y[i] = t
        if n != 2:
            s = t + s
    y[0] = s


def quotients(x: Any, y: Any) -> None:
    """A selection of what it was: minus zero is added to nothing."""
    s = -0.0
    for i in range(x.shape[0]):
        if x[i] > 2.0:
            s = s + x[i] / (x[i] + 1.0)
    y[0] = s


def mixed(x: Any, y: Any) -> None:
    """No sum: it is multiplied, too."""
    s = 1.0
    for i in range(x.shape[0]):
        if x[i] > 0.5:
            s += math.exp(x[i])
        else:
            s *= 0.5
    y[0] = s


KERNELS = [total, running, downwards, with_extreme, in_place, of_itself, by_rows, by_cases, of_rows,
           quotients, mixed]  # fmt: skip


def _wanted(function: Callable[..., None], x: Any, y: Any) -> None:
    """What the function itself computes with the same functions of single numbers."""
    single = {name: pto.jit(_of(getattr(pl, name)), cache=False) for name in ("exp", "log", "cos", "sin", "tanh")}

    def scalar(name: str) -> Callable[[Any], Any]:
        def apply(value: Any) -> Any:
            got = np.empty(1, x.dtype)
            single[name](np.array([value], x.dtype), got)
            return got[0]

        return apply

    names = {"math": type("functions", (), {name: staticmethod(scalar(name)) for name in single}), "max": np.maximum}
    number = x.dtype.type
    code = type(function)(function.__code__, {**function.__globals__, **names})
    if number is np.float64:
        code(x, y)
    else:  # Python's floats do not make f64 of NumPy's f32
        with np.errstate(all="ignore"):
            code(x, y)


def _of(apply: Any) -> Callable[..., None]:
    def single(x: Any, y: Any) -> None:
        for i in range(x.shape[0]):
            y[i] = apply(x[i])

    return single


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", KERNELS)
def test_sums_are_those_of_single_iterations(function: Callable[..., None], dtype: Any) -> None:
    compiled = pto.jit(function, cache=False)
    rng = np.random.default_rng(3)
    for length in (1, 2, 7, 8, 15, 16, 17, 31, 33, 100):
        x = rng.random(length).astype(dtype)
        if length == 33:
            x[20] = np.nan
        got, wanted = np.zeros(length, dtype), np.zeros(length, dtype)
        compiled(x, got)
        _wanted(function, x, wanted)
        np.testing.assert_array_equal(got, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


def test_tensors_that_overlap() -> None:
    x = np.linspace(0.0, 1.0, 80)
    for distance in (1, 3, 9):
        got, wanted = x.copy(), x.copy()
        pto.jit(running)(got[:-distance], got[distance:])
        _wanted(running, wanted[:-distance], wanted[distance:])
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("function", [total, running, downwards, with_extreme, by_cases, of_rows, quotients])
def test_what_is_added_is_computed_in_vectors(function: Callable[..., None]) -> None:
    x = np.zeros(100)
    compiled = pto.jit(function).compile(x, x.copy())
    assert any("one iteration follows the other" in d.reason for d in compiled.decisions)
    assert "extractelement" in compiled.ir("llvm")


@pytest.mark.parametrize("function", [of_itself, mixed])
def test_what_waits_for_the_sum_does_not(function: Callable[..., None]) -> None:
    x = np.zeros(100)
    assert not any(d.applied for d in pto.jit(function).compile(x, x.copy()).decisions if d.kind == "schedule")


def test_with_fastmath_sums_are_left_to_the_optimiser() -> None:
    x = np.random.default_rng(0).random(1000)
    y = np.zeros(1000)
    pto.jit(total, fastmath=True)(x, y)
    np.testing.assert_allclose(y[0], np.exp(x).sum(), rtol=1e-13)


@pytest.mark.parametrize("function", [math.sin, math.cos, math.tan, lambda v: v % 0.3, lambda v: v // 0.3])
def test_loops_with_slow_paths_are_lanes(function: Callable[[Any], Any]) -> None:
    def kernel(x: Any, y: Any) -> None:
        for i in range(x.shape[0]):
            y[i] = function(x[i])

    x, y = np.linspace(-9.0, 9.0, 53), np.zeros(53)
    compiled = pto.jit(kernel, cache=False)
    compiled(x, y)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(y, [function(v) for v in x], rtol=1e-12, atol=1e-12)
    assert any(d.applied for d in compiled.compile(x, y).decisions if d.kind == "schedule")


def test_what_is_added_soon_is_added_by_itself() -> None:
    def eighths(x: Any, y: Any) -> None:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i] / 8.0
        y[0] = s

    x = np.zeros(100)
    assert not any(d.applied for d in pto.jit(eighths).compile(x, x.copy()).decisions if d.kind == "schedule")
